//! Reproducers: programs that show one finding again and need nothing but Python's standard library.

mod python;
mod steps;
mod symptom;

pub use symptom::{NotReproducible, Symptom};

use pmi_judge::event::Event;

use python::Script;
use steps::Session;

/// Most lines of a reproducer.
pub const LINES: usize = 60;

/// What a reproducer says of itself.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Which finding it is of, in one line.
    pub title: &'a str,
    /// What should have been seen.
    pub expected: &'a str,
    /// What was seen.
    pub seen: &'a str,
}

/// Returns the script that shows a symptom again. `events` is the session that showed it, and `quote` returns the text of a line of its
/// scenario, which tells how a process of ours ended.
///
/// # Errors
///
/// See [`NotReproducible`].
pub fn reproducer(
    about: About<'_>,
    events: &[Event],
    symptom: &Symptom,
    quote: &dyn Fn(usize) -> String,
) -> Result<String, NotReproducible> {
    let session = Session::read(events, symptom, quote)?;
    Ok(Script { about, session: &session }.text())
}
