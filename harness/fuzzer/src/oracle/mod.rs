//! What is wrong with what happened in a case, the worst first and each failure once.

pub(crate) mod client;
pub(crate) mod server;

use std::collections::HashSet;

use pmi_judge::backtrace::Backtrace;

use crate::failure::{After, CrashSite, Failure};

/// The first failure of each key.
fn distinct(mut all: Vec<Failure>) -> Vec<Failure> {
    let mut seen = HashSet::new();
    all.retain(|failure| seen.insert(failure.key.clone()));
    all
}

/// Where somebody died, in words to be put behind that.
fn located(trace: Option<&Backtrace>) -> String {
    trace.and_then(Backtrace::blamed).map_or(String::new(), |frame| format!(", {frame},"))
}

/// What tells a crash from others.
fn site(trace: Option<&Backtrace>, call: Option<String>, after: Option<After>) -> CrashSite {
    match trace.and_then(Backtrace::place) {
        Some(place) => CrashSite::Place(place),
        None => CrashSite::Unseen { call, after },
    }
}
