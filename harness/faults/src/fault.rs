//! The catalogue entries for servers.

use super::behaviour::Behaviour;
use super::circumstances::Occasion;
use super::dialects::Dialects;
use super::effect::Effect;

/// A named way for the server to break a standard, or to behave unusually within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The stable name.
    pub name: &'static str,
    /// The requirements or rules that the server breaks. A finding must cite one of them.
    pub breaks: &'static [&'static str],
    /// A one-line description of the server's behaviour.
    pub description: &'static str,
    /// The difference from the reference server.
    pub effect: Effect,
    /// The occasions on which the effect applies.
    pub when: Occasion,
    /// The dialects in which the entry applies.
    pub dialects: Dialects,
    /// The reason why the server breaks different rules in different dialects, if it does.
    pub differs: Option<&'static str>,
}

/// An entry that breaks no requirement.
pub type Variation = Fault;

impl Fault {
    /// Returns the behaviour of a server with only this entry.
    pub fn behaviour(&self) -> Behaviour {
        std::iter::once(self).collect()
    }
}

/// Combines entries into the behaviour of a server. The entries apply in iteration order.
impl<'a> FromIterator<&'a Fault> for Behaviour {
    fn from_iter<I: IntoIterator<Item = &'a Fault>>(entries: I) -> Self {
        let add = |all: Self, entry: &Fault| all.with(entry.effect, entry.when, entry.dialects);
        entries.into_iter().fold(Self::default(), add)
    }
}

/// Returns the behaviour of a server with these variations and this fault.
pub fn behaviour(fault: Option<&Fault>, variations: &[&Variation]) -> Behaviour {
    variations.iter().copied().chain(fault).collect()
}
