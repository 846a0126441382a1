//! Records real sessions through a tap between a real process manager and real programs.
//!
//! ```text
//! process manager ── PMI_FD ── carrier ── PMI_FD ── program
//!                    (handed over by the tap)
//! ```
//!
//! The tap ([`tap`]) is a small program, or `pmi-conform` under a different name, that is placed before the program in a command line. It
//! starts the program, passes the program's connection to the recorder, forwards signals, and ends in the same way as the program. The
//! recorder carries the bytes of all connections (`carrier`, `pump`), and reports them *before* forwarding them. Therefore a cause is
//! recorded before its effect, and no `barrier_out` is recorded before the last `barrier_in`. If the recorder ends before the session, the
//! taps forward the messages themselves.
//!
//! The recorder changes the messages in only one respect: it replaces the name of the program in a spawn request (`rewrite`), because
//! spawned processes could not be observed otherwise. In a separate thread, [`recording`] turns the reports into events and passes them to
//! the judge. [`script`] writes the events as a scenario for process managers, and [`recorded_responses`] writes them as a scenario for the
//! program. [`session`] runs a session, [`result`] creates its result, and [`interop`] runs programs under process managers.

mod carrier;
pub mod interop;
mod peer_identity;
mod pump;
pub mod recorded_responses;
pub mod recording;
pub mod result;
mod rewrite;
pub mod script;
pub mod session;
pub mod tap;
