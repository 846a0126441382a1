//! Faults and variations of clients.
//!
//! Each fault or variation is a change to a plain session, in which two processes use every operation and spawn a third process. A fault is
//! therefore the only error of an otherwise ordinary program. The session is a script rather than a [`pmi_reference::client::Client`],
//! which cannot be made to break RFC 13.

mod edit;
mod fault;
mod session;

pub use fault::{ClientFault, ClientVariation, UNDETECTABLE_REQUIREMENTS, UndetectableRequirement};
pub use session::{ClientSession, PlainSession, SessionAction, SessionStep};
