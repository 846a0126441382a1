//! Faults and variations of the reference's two sides, as data.
//!
//! A fault is one named way of breaking a standard, a variation one named way of keeping it unusually. Each is a line of `faults.toml`:
//! where it shows, which steps change what is there, and when. To add one, add a line. A new kind of step is an arm in [`edit`].

pub mod behaviour;
mod catalogue;
mod circumstances;
pub mod client;
mod draft;
mod edit;
mod effect;
mod row;

pub use catalogue::{faults, variations};
pub use circumstances::{Circumstances, When};
pub(crate) use draft::ReplyDraft;
pub(crate) use edit::Line;
pub use edit::Singinit;
pub use edit::{Edit, Words};
pub use effect::*;
pub use row::{Fault, Variation, behaviour};
