//! Types and functions that all reproducers share.

use pmi_wire::{Connection, Direction, Framing};

/// Maximum number of lines of a script.
pub(super) const LINES: usize = 60;

/// Returns `text` as a single line, for a Python comment.
pub(super) fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Pushes bytes through a connection, and returns the messages that they complete, with their framing.
pub(super) fn push_bytes(
    connection: &mut Connection,
    direction: Direction,
    bytes: &[u8],
) -> Vec<(Vec<u8>, Framing)> {
    connection.push(direction, bytes);
    let mut messages = Vec::new();
    // Responses are read first, because a response may determine how requests are framed.
    for of in [Direction::FromServer, Direction::ToServer] {
        while let Some(Ok(message)) = connection.next(of) {
            if of == direction {
                messages.push((message.text.to_vec(), message.framing));
            }
        }
    }
    messages
}

/// The finding that a reproducer shows.
#[derive(Debug, Clone, Copy)]
pub struct FindingSummary<'a> {
    /// The finding in one line.
    pub title: &'a str,
    /// The required behaviour.
    pub expected: &'a str,
    /// The observed behaviour.
    pub seen: &'a str,
    /// Number of runs that showed the finding and total number of runs, or `None` if the reproducer states no frequency.
    pub run_counts: Option<(u32, u32)>,
}

impl FindingSummary<'_> {
    /// Returns the frequency of a finding that only some runs show, such as `in 2 of 200 runs (1 %)`.
    pub(super) fn chance(&self) -> Option<String> {
        let (times, played) = self.run_counts?;
        let percent = f64::from(times) * 100.0 / f64::from(played.max(1));
        Some(format!("in {times} of {played} runs ({percent:.0} %)"))
    }
}

/// A standalone program that shows a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reproducer {
    /// The source code.
    pub text: String,
    /// The suffix of the reproducer's file: `py` or `c`.
    pub suffix: &'static str,
}
