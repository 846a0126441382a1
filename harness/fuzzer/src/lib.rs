//! Campaigns: cases that a generator makes, played against an implementation until something breaks, and what is done with what
//! breaks.
//!
//! A [`case`] is a scenario with what went into it. [`generate`] makes cases from decisions, `mutate` changes what is said in them;
//! a [`target`] plays them and tells what is wrong, each failure by its [`failure::FailureKey`]. What is new is tried again and made
//! smaller ([`confirm`]) and stored ([`store`]). Cases that get further than others are kept ([`corpus`]), and more are made of
//! them. [`campaign`] does all this for some time, side by side.

mod bodies;
mod bound;
pub mod campaign;
pub mod case;
mod client_steps;
mod command;
pub mod confirm;
pub mod corpus;
mod decisions;
mod drive;
pub mod edges;
pub mod failure;
mod fields;
mod frontier;
pub mod generate;
pub mod known;
pub mod message_kind;
mod mutate;
pub mod observation;
pub mod op;
mod oracle;
mod pieces;
mod plan;
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
