//! The steps of an edit, and the targets that the steps change.

use thiserror::Error;

use crate::circumstances::Circumstances;

/// A verb and its arguments.
pub type VerbAndArguments = &'static [&'static str];

/// The error for a step that its target does not support, or that has wrong arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("unknown step or wrong arguments")]
pub struct UnknownStep;

/// A target that steps can change.
pub trait Editable {
    /// Applies a step. Returns false if the step is a condition that does not hold.
    ///
    /// # Errors
    ///
    /// Returns an error if the target has no such step.
    fn step(&mut self, words: VerbAndArguments, circumstances: &Circumstances) -> Result<bool, UnknownStep>;
}

/// The steps of an edit, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Edit(pub &'static [VerbAndArguments]);

impl Edit {
    /// Applies the steps up to the first condition that does not hold. Returns whether all conditions held.
    pub fn apply(self, target: &mut impl Editable, circumstances: &Circumstances) -> bool {
        self.0.iter().all(|words| target.step(words, circumstances) == Ok(true))
    }

    /// Returns the first step that a target does not support.
    pub(crate) fn unknown_step(self, target: &mut impl Editable) -> Option<VerbAndArguments> {
        let circumstances = Circumstances { size: 2, nodes: 1, use_count: 1, ..Circumstances::default() };
        self.0.iter().copied().find(|words| target.step(words, &circumstances).is_err())
    }
}

/// Replaces `{rank}`, `{size}`, `{count}` and `{group}`, and sums like `{rank+1}`, with their values. `{k*64}` becomes the letter k,
/// repeated 64 times.
pub(crate) fn fill(text: &str, circumstances: &Circumstances) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        out += before;
        let filled = after.split_once('}').and_then(|(name, rest)| Some((value(name, circumstances)?, rest)));
        match filled {
            Some((value, behind)) => {
                out += &value;
                rest = behind;
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out + rest
}

fn value(name: &str, circumstances: &Circumstances) -> Option<String> {
    if let Some((text, times)) = name.split_once('*') {
        return Some(text.repeat(times.parse().ok()?));
    }
    let (name, by) = name.split_at(name.find(['+', '-']).unwrap_or(name.len()));
    let by: i64 = if by.is_empty() { 0 } else { by.parse().ok()? };
    let number = match name {
        "rank" => circumstances.rank.into(),
        "size" => circumstances.size.into(),
        "group" => circumstances.group.into(),
        "count" => circumstances.use_count as i64,
        _ => return None,
    };
    Some((number + by).to_string())
}

/// Parses an argument of a step as a number.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, UnknownStep> {
    text.parse().map_err(|_| UnknownStep)
}

/// Parses an argument of a step as a single byte.
pub(super) fn byte(text: &str) -> Result<u8, UnknownStep> {
    <[u8; 1]>::try_from(text.as_bytes()).map(|[byte]| byte).map_err(|_| UnknownStep)
}
