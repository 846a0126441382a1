//! Edits as data: the changes that an entry of `faults.toml` makes, step by step.
//!
//! A step is a verb and its arguments. Each kind of target has its own steps. [`bytes`] contains the steps for values, keys, names and
//! bytes that are read; [`environment`] contains those for the variables of a process. [`request`], [`response`] and [`spawn`] contain the
//! steps for requests, responses and spawn requests, and [`line`] the conditions on requests. A step that needs special code has a separate
//! arm in the `match` of its target.

mod bytes;
mod environment;
mod line;
mod request;
mod response;
mod spawn;
mod step;

pub(crate) use bytes::first_frame;
pub(crate) use environment::{ProcessVariables, SingletonMessages};
pub(crate) use line::{RequestText, command};
pub(crate) use request::{RequestDraft, RequestOutcome, RequestSituation};
pub use step::{Edit, VerbAndArguments};
pub(crate) use step::{Editable, UnknownStep, fill};
