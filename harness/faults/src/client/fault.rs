//! The catalogue entries for clients.

use super::session::{ClientSession, PlainSession};
use crate::circumstances::Circumstances;
use crate::edit::Edit;

/// A named way for a client to break a standard, or to behave unusually within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFault {
    /// The stable name.
    pub name: &'static str,
    /// Ids of the requirements that the client breaks. A finding must cite one of them.
    pub breaks: &'static [&'static str],
    /// A one-line description of the client's behaviour.
    pub description: &'static str,
    /// The plain session that the steps change.
    pub plain: PlainSession,
    /// The steps that change the plain session.
    pub edit: Edit,
}

/// An entry that breaks no requirement.
pub type ClientVariation = ClientFault;

impl ClientFault {
    /// Returns the plain session with this entry's changes.
    pub fn session(&self) -> ClientSession {
        let mut session = self.plain.session();
        self.edit.apply(&mut session, &Circumstances::default());
        session
    }
}

/// A requirement that no fault of an implementation can break in a way that scenarios detect.
#[derive(Debug)]
pub struct UndetectableRequirement {
    /// Id of the requirement.
    pub id: &'static str,
    /// The reason why no fault can break the requirement.
    pub reason: &'static str,
}

/// Requirements on clients that no script breaks.
pub const UNDETECTABLE_REQUIREMENTS: &[UndetectableRequirement] = &[
    UndetectableRequirement {
        id: "rfc13.env.pmi-fd",
        reason: "a process that uses a descriptor other than PMI_FD sends nothing on the wire",
    },
    UndetectableRequirement {
        id: "rfc13.wire.client-sends-requests",
        reason: "only a server can break this requirement, by sending a request; see rfc13.wire.server-sends-responses for the client",
    },
    UndetectableRequirement {
        id: "rfc13.init.highest",
        reason: "the wire does not show which versions a client supports",
    },
    UndetectableRequirement {
        id: "rfc13.init.highest-mutual",
        reason: "the server chooses the version, and the wire does not show which versions a client supports",
    },
    UndetectableRequirement { id: "rfc13.put.visible-after-barrier", reason: SCRIPT_REASON },
    UndetectableRequirement { id: "pmi2.common.fence.visible", reason: SCRIPT_REASON },
    UndetectableRequirement { id: "rfc13.abnf.intlist", reason: "no request has a list of integers" },
    UndetectableRequirement { id: "singleton.client.answers", reason: SINGLETON_REASON },
    UndetectableRequirement { id: "singleton.client.arguments", reason: SINGLETON_REASON },
    UndetectableRequirement { id: "singleton.client.once", reason: SINGLETON_REASON },
];

/// The reason why no script breaks requirements about the use of a value. The test programs break these requirements.
const SCRIPT_REASON: &str = "the scripts do not use the value, so they do not fail if it is missing";

/// The reason why no script breaks requirements on a program that starts its process manager. The test programs break
/// these requirements.
const SINGLETON_REASON: &str = "this requirement is broken before PMI begins, when a program starts its process manager, which no session in this table does";
