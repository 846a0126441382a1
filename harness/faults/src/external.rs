//! Named faults and variations that programs and libraries implement themselves, because they react to the messages that they read.

use pmi_wire::Framing;

use super::dialects::Dialects;

/// The way in which a fault is found in one dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalKill {
    /// The dialect.
    pub dialect: Dialects,
    /// The scenario that finds it; `None` stands for any scenario about one of the requirements.
    pub scenario: Option<&'static str>,
    /// A finding must cite one of these requirements.
    pub requirements: &'static [&'static str],
}

/// One named way in which a program or a library breaks a standard, or behaves in an unusual but lawful way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFault {
    /// The name by which the implementation knows it. Several names, separated by commas, mean all of them.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The names with which the implementation is played to show that it passes without the fault.
    pub base: &'static str,
    /// The dialects in which it applies.
    pub dialects: Dialects,
    /// The ways in which it is found; none for a variation.
    pub kills: Vec<ExternalKill>,
}

impl ExternalFault {
    /// Returns the ways in which it is found in this framing.
    pub fn kills_in(&self, framing: Framing) -> impl Iterator<Item = &ExternalKill> {
        self.kills.iter().filter(move |kill| kill.dialect.has(framing))
    }

    /// Returns whether it applies in this framing.
    pub fn applies_in(&self, framing: Framing) -> bool {
        self.dialects.has(framing) && (self.kills.is_empty() || self.kills_in(framing).next().is_some())
    }
}
