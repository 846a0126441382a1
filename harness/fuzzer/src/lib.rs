//! Campaigns: a generator makes cases, a target plays them until the implementation fails, and each failure is confirmed, minimized and
//! stored.
//!
//! A [`case`] is a scenario with metadata. [`generate`] makes cases from decisions, and `mutate` changes their messages. A [`target`] plays
//! them and reports failures, each identified by its [`failure::FailureKey`]. New failures are played again and minimized ([`confirm`]),
//! then stored ([`store`]). Cases that get further than others are kept ([`corpus`]), and new cases are derived from them. A [`campaign`]
//! runs all of this in parallel, for a limited time.

mod bindings;
mod bodies;
pub mod campaign;
pub mod case;
mod client_steps;
mod command;
pub mod confirm;
pub mod corpus;
mod decisions;
pub mod edges;
pub mod failure;
mod fields;
mod frontier;
pub mod generate;
pub mod known_failures;
pub mod message_kind;
mod mutate;
pub mod observation;
pub mod op;
mod oracle;
mod pieces;
mod plan;
mod play;
mod proxy_status;
mod reading;
pub mod reproducer;
pub mod schedule;
mod shrink;
mod spawn_guard;
pub mod state;
mod statement;
pub mod store;
pub mod stored;
pub mod stream;
pub mod target;
#[cfg(test)]
mod testing;
mod texts;
pub mod transition;
mod upstream_state;
mod values;
mod waits;
