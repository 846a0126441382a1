//! The ways in which a server differs from the reference server.

use super::circumstances::Occasion;
use super::dialects::Dialects;
use super::effect::Effect;

/// The effects that make a server differ from the reference server. By default, there are no effects.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    effects: Vec<(Effect, Occasion, Dialects)>,
    with_rehearsal: bool,
    within_job: bool,
}

impl Behaviour {
    /// Adds an effect. Effects apply in the order in which they were added.
    #[must_use]
    pub fn with(mut self, effect: Effect, when: Occasion, dialects: Dialects) -> Self {
        self.effects.push((effect, when, dialects));
        self
    }

    /// Makes the behaviour a rehearsal: the server acts like the reference, and records which effects would have
    /// applied.
    #[must_use]
    pub fn with_rehearsal(self) -> Self {
        Self { with_rehearsal: true, ..self }
    }

    /// Sets whether the launcher runs within another job. If it does, its environment contains the variables of that job.
    #[must_use]
    pub fn launched(self, within_job: bool) -> Self {
        Self { within_job, ..self }
    }

    pub(crate) fn is_within_job(&self) -> bool {
        self.within_job
    }

    pub(crate) fn is_rehearsed(&self) -> bool {
        self.with_rehearsal
    }

    /// Returns the effects, in the order in which they apply.
    pub(crate) fn effects(&self) -> impl Iterator<Item = (Effect, Occasion, Dialects)> {
        self.effects.iter().copied()
    }
}
