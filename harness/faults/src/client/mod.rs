//! Faults and variations of clients.
//!
//! Each is a change to one plain session: two processes that use every operation, and one that they spawn. So a fault is
//! the only thing wrong in what is otherwise a program like any other. The session is a script, not [`pmi_reference::client::Client`],
//! which cannot be made to break RFC 13.

mod edit;
mod row;
mod session;

pub use row::{ClientFault, ClientVariation, UNSEEN, Unseen};
pub use session::{Act, ClientSession, PlainSession, SessionStep};

pub use super::catalogue::{client_faults as faults, client_variations as variations};
