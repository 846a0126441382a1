//! The parts that all reproducers share.

/// Most lines of a script.
pub(super) const LINES: usize = 60;

/// The finding that a reproducer shows.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// The finding in one line.
    pub title: &'a str,
    /// The expected behavior.
    pub expected: &'a str,
    /// The observed behavior.
    pub seen: &'a str,
    /// In how many of how many runs it was observed, if not in each.
    pub shown: Option<(u32, u32)>,
}

/// A standalone program that shows a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reproducer {
    /// The source code.
    pub text: String,
    /// The suffix of its file: `py` or `c`.
    pub suffix: &'static str,
}
