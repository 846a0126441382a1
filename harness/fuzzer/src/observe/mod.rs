//! Observations of a played case: the [`failure`]s that the `oracle` detects, and the coverage of the case. The coverage consists of the
//! [`edges`] of an instrumented program and the [`transition`]s of the protocol's model.

pub mod edges;
pub mod failure;
pub mod message_kind;
pub mod observation;
pub(crate) mod oracle;
pub(crate) mod proxy_status;
pub mod transition;
pub(crate) mod upstream_state;
