//! What programs that show a finding have in common.

/// Most lines of a script.
pub(super) const LINES: usize = 60;

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

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reproducer {
    /// Its text.
    pub text: String,
    /// What its file's name ends with: `py` or `c`.
    pub suffix: &'static str,
}
