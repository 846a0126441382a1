//! Campaigns: a generator makes cases, a target plays them until the implementation fails, and each failure is confirmed, minimized and
//! stored.
//!
//! A case ([`session`]) is a scenario with metadata. [`generate`] makes cases from decisions, and `mutate` changes their messages. A
//! [`target`] plays them and reports failures ([`observe`]), each identified by its [`observe::failure::FailureKey`]. New failures are
//! played again, minimized and stored ([`triage`]). A [`campaign`] runs all of this in parallel, for a limited time. It keeps the cases
//! that increase the coverage, and derives other cases from them.

pub mod campaign;
pub mod generate;
mod mutate;
pub mod observe;
pub mod session;
pub mod target;
pub mod triage;
