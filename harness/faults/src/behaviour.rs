//! The ways in which a server differs from the reference.

use super::circumstances::When;
use super::dialects::Dialects;
use super::effect::Effect;

/// In which ways a server differs from the reference. By default in none.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    effects: Vec<(Effect, When, Dialects)>,
    rehearsed: bool,
}

impl Behaviour {
    /// With one effect more. Effects apply in the order in which they were added.
    #[must_use]
    pub fn with(mut self, effect: Effect, when: When, dialects: Dialects) -> Self {
        self.effects.push((effect, when, dialects));
        self
    }

    /// The same, of which nothing shows: the server does as the reference does, and notes which effects would have shown.
    #[must_use]
    pub fn rehearsed(self) -> Self {
        Self { rehearsed: true, ..self }
    }

    /// Returns whether nothing is to show.
    pub(crate) fn is_rehearsed(&self) -> bool {
        self.rehearsed
    }

    /// The effects, in the order in which they apply.
    pub(crate) fn effects(&self) -> impl Iterator<Item = (Effect, When, Dialects)> {
        self.effects.iter().copied()
    }
}
