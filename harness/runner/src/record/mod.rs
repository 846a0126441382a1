//! Recording a real session: a tap between a real process manager and real programs.
//!
//! ```text
//! process manager ── PMI_FD ── carrier ── PMI_FD ── program
//!                    (handed over by the tap)
//! ```
//!
//! The tap ([`tap`]) is a small program of ours, or the command under another name, put in front of the program. It starts the program, hands
//! its connection over to the recorder, passes signals on and ends as the program has ended. The recorder carries the bytes of all
//! connections (`carrier`, `pump`), and tells of every piece *before* it passes it on: a cause comes before its effect, no
//! `barrier_out` before the last `barrier_in`. If it ends before the session, the taps carry on by themselves.
//!
//! Nothing is changed on the way but one thing: what names the program in a spawn request (`rewrite`), since the processes that it
//! starts could not be heard otherwise. [`recording`] makes events of what was told and shows them to the judge, in a thread of its own,
//! [`script`] writes them as a scenario for
//! process managers, [`answers`] as one for the program,
//! [`session`] runs it all, [`result`] says what it came to, [`interop`] runs programs under process managers.

pub mod answers;
mod carrier;
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
mod visitor;
