//! The one engine of mutations: the ways in which what is said to an implementation is made unusual or wrong, whoever says it.
//! Only what an upstream does wrong in the order and the time of its replies is drawn with them, in `generate/upstream.rs`.
//!
//! `message` changes the text of a message, which requests, answers and what a proxy's upstream says have in common; `request`
//! changes the course of requests, `frame` the frames of PMI-2, `answer` what a server says at a request, `case` makes a case of others.
//! Where in a text something is changed, `places` knows.

mod answer;
mod case;
mod content;
mod frame;
mod message;
mod mutation;
mod places;
mod request;
mod series;

pub(crate) use answer::{Answer, ReplyStep};
pub(crate) use case::{explore, vary};
pub(crate) use content::contents;
pub(crate) use message::{cached, junk_line};
pub(crate) use mutation::Mutation;
pub(crate) use places::split;
pub(crate) use request::mutate as mutate_requests;
pub(crate) use series::{Change, Series};
