//! Named faults and variations that programs and libraries implement in code. A script cannot express them, because it does not react to
//! received messages.

use pmi_wire::Framing;

use super::client::UndetectableRequirement;
use super::dialects::Dialects;

/// Requirements that no fault of a library can break.
pub const UNBREAKABLE_BY_LIBRARIES: &[UndetectableRequirement] = &[
    UndetectableRequirement {
        id: "rfc13.put.unique",
        reason: "the caller chooses the keys, and the caller is the scenario",
    },
    UndetectableRequirement { id: "rfc13.api.no-other-functions", reason: FILE_REASON },
    UndetectableRequirement { id: "pmi2.common.api.functions", reason: FILE_REASON },
];

/// Requirements that neither a fault of the reference client nor a fault of a program can break.
pub const UNBREAKABLE_BY_PROGRAMS: [&str; 2] = ["rfc13.wire.client-sends-requests", "rfc13.abnf.intlist"];

/// The beginnings of the ids of requirements about the form of requests. Faults of the reference client break these requirements, so
/// programs need not.
pub const REQUEST_FORMS: [&str; 3] = ["rfc13.abnf.", "rfc13.spawn.", "rfc13.wire.server-sends-responses"];

/// The reason why no fault adds or removes a function.
const FILE_REASON: &str = "a library exports the same functions with every fault; our tests judge libraries with additional and with missing functions";

/// A way to find a fault: the dialects, the scenario, and the requirements that a finding may cite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExternalKill {
    /// The dialects in which the scenario finds the fault.
    pub dialect: Dialects,
    /// The scenario that finds the fault, or `None` if any scenario about one of the requirements may find it.
    pub scenario: Option<&'static str>,
    /// Ids of requirements. A finding must cite one of them.
    pub requirements: &'static [&'static str],
}

/// A named way for a program or a library to break a standard, or to behave unusually within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalFault {
    /// The name of the fault within the implementation, or several names separated by commas.
    pub name: &'static str,
    /// A one-line description of the fault or variation.
    pub about: &'static str,
    /// The names that select the implementation's behaviour in the control run. They do not include the fault, so the scenarios must pass.
    pub base: &'static str,
    /// The dialects in which the fault or variation applies.
    pub dialects: Dialects,
    /// The ways in which the fault is found. A variation has none.
    pub kills: Vec<ExternalKill>,
}

impl ExternalFault {
    /// Returns the ways in which the fault is found in dialects with this framing.
    pub fn kills_in(&self, framing: Framing) -> impl Iterator<Item = &ExternalKill> {
        self.kills.iter().filter(move |kill| kill.dialect.has(framing))
    }

    /// Returns whether the fault applies in a dialect with this framing.
    pub fn applies_in(&self, framing: Framing) -> bool {
        self.dialects.has(framing) && (self.kills.is_empty() || self.kills_in(framing).next().is_some())
    }
}
