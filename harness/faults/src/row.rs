//! The entries of the catalogue.

use super::behaviour::Behaviour;
use super::circumstances::When;
use super::dialects::Dialects;
use super::effect::Effect;

/// One named way in which the server breaks a standard, or is unusual and lawful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Stable name.
    pub name: &'static str,
    /// The requirements or rules that it breaks; a finding has to cite one of them.
    pub breaks: &'static [&'static str],
    /// A line about the server's behavior.
    pub about: &'static str,
    /// The place and the change.
    pub effect: Effect,
    /// The occasions.
    pub when: When,
    /// The dialects.
    pub dialects: Dialects,
}

/// An entry that breaks nothing.
pub type Variation = Fault;

impl Fault {
    /// The behaviour of a server with this entry alone.
    pub fn behaviour(&self) -> Behaviour {
        std::iter::once(self).collect()
    }
}

/// The behaviour of a server with all of these entries, which apply in their order.
impl<'a> FromIterator<&'a Fault> for Behaviour {
    fn from_iter<I: IntoIterator<Item = &'a Fault>>(entries: I) -> Self {
        let add = |all: Self, entry: &Fault| all.with(entry.effect, entry.when, entry.dialects);
        entries.into_iter().fold(Self::default(), add)
    }
}

/// The behaviour of a server that has these variations, and this fault.
pub fn behaviour(fault: Option<&Fault>, variations: &[&Variation]) -> Behaviour {
    variations.iter().copied().chain(fault).collect()
}
