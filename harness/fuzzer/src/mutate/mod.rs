//! The mutation engine: ways to make messages to an implementation unusual or invalid, regardless of the sender. Only faults in the order
//! and timing of an upstream's replies are drawn elsewhere, in `generate/upstream.rs`.
//!
//! `message` changes the text of messages, which is common to requests, responses and a proxy's upstream. `request` changes the sequence of
//! requests, `frame` the frames of PMI-2, and `answer` the responses from a server. `case` derives a case from others. `places` finds the
//! positions of changes within a text.

mod answer;
mod case;
pub(crate) mod client_steps;
mod content;
mod frame;
mod message;
mod mutation;
mod places;
mod request;
mod series;
pub(crate) mod texts;
pub(crate) mod values;

pub(crate) use answer::{CorrectResponse, ResponseStep};
pub(crate) use case::{explore, vary};
pub(crate) use content::contents;
pub(crate) use message::{cached, junk_line};
pub(crate) use mutation::Mutation;
pub(crate) use places::split;
pub(crate) use request::mutate as mutate_requests;
pub(crate) use series::{ResponseChange, Series};
