//! The oracles, which derive the failures from the observation of a case. Failures are ordered by severity, without duplicates.

pub(crate) mod client;
pub(crate) mod server;

use std::collections::HashSet;

use pmi_judge::backtrace::Backtrace;

use crate::observe::failure::{CrashSite, Failure, LastAction};

/// Keeps only the first failure with each key.
fn distinct(mut all: Vec<Failure>) -> Vec<Failure> {
    let mut seen = HashSet::new();
    all.retain(|failure| seen.insert(failure.key.clone()));
    all
}

/// Returns the location of a crash, as a phrase to insert after the name of the signal.
fn located(trace: Option<&Backtrace>) -> String {
    trace.and_then(Backtrace::blamed_frame).map_or(String::new(), |frame| format!(", {frame},"))
}

/// Returns the location of a crash if a debugger recorded it; otherwise, returns the last call and the last action.
fn site(trace: Option<&Backtrace>, call: Option<String>, after: Option<LastAction>) -> CrashSite {
    match trace.and_then(Backtrace::place) {
        Some(place) => CrashSite::Place(place),
        None => CrashSite::Unknown { call, after },
    }
}
