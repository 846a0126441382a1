//! The mutation engine: ways to make messages to an implementation unusual or invalid, regardless of the sender. Unusual orders and delays
//! of an upstream's responses are generated in `generate/upstream.rs`.
//!
//! `message` changes the text of any message: a request, a response, or a message from a proxy's upstream. `request` changes the sequence
//! of requests, `frame` the frames of PMI-2, and `response` the responses from a server. `case` derives a case from others. `places` finds
//! the positions of changes within a message.

mod case;
pub(crate) mod client_steps;
mod content;
mod frame;
mod message;
mod mutation;
mod places;
mod request;
mod response;
mod series;
pub(crate) mod texts;
pub(crate) mod values;

pub(crate) use case::{explore, vary};
pub(crate) use content::contents;
pub(crate) use message::{draw_cache_line, junk_line};
pub(crate) use mutation::Mutation;
pub(crate) use places::split;
pub(crate) use request::mutate as mutate_requests;
pub(crate) use response::{CorrectResponse, ResponseStep};
pub(crate) use series::{ChangeSeries, ResponseChange};
