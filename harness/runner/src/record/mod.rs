//! Recording a real session: a tap between a real process manager and real programs.
//!
//! ```text
//! process manager ── PMI_FD ── tap ── PMI_FD ── program
//!                               │ datagrams
//!                            recorder ── monitor, log, scenario
//! ```
//!
//! The tap ([`tap`]) is a small program of ours, or the command under another name, put in front of the program. It starts the program, carries the bytes
//! (`pump`), passes signals on and ends as the program has ended. It tells the recorder of every piece *before* it passes
//! it on. All taps send to one datagram socket, and a datagram is in its queue when the send returns, so the recorder reads
//! a cause before its effect: no `barrier_out` before the last `barrier_in`.
//!
//! Nothing is changed on the way but one thing: what names the program in a spawn request (`rewrite`), since the processes that it
//! starts could not be heard otherwise. [`recording`] makes events of what the taps tell and shows them to the judge,
//! [`script`] writes them as a scenario for
//! process managers, [`answers`] as one for the program,
//! [`session`] runs it all, [`result`] says what it came to, [`interop`] runs programs under process managers.

pub mod answers;
pub mod interop;
mod notice;
pub mod place;
mod pump;
pub mod recording;
pub mod result;
mod rewrite;
pub mod script;
pub mod session;
pub mod tap;
