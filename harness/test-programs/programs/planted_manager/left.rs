//! State that a job leaves behind in a file, and that may make the next job fail.

use std::fs;
use std::io;
use std::path::Path;

/// Pairs of a key or a name, and its value or port.
pub(super) type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// State that the last job left.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) keys: Pairs,
    pub(super) names: Pairs,
    /// Names that were published and withdrawn.
    pub(super) withdrawn: Pairs,
    pub(super) aborted: bool,
    /// Processes that waited in a barrier when the job ended.
    pub(super) waiting: usize,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}

impl Left {
    /// Reads the file; returns an empty state if there is no file yet.
    pub(super) fn read(file: &Path) -> Self {
        let mut left = Self::default();
        for line in fs::read_to_string(file).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let pair = |a: &str, b: &str| Some((unhex(a)?, unhex(b)?));
            match words[..] {
                ["key", a, b] => left.keys.extend(pair(a, b)),
                ["name", a, b] => left.names.extend(pair(a, b)),
                ["withdrawn", a, b] => left.withdrawn.extend(pair(a, b)),
                ["aborted"] => left.aborted = true,
                ["waiting", count] => left.waiting = count.parse().unwrap_or(0),
                _ => {}
            }
        }
        left
    }

    /// Writes the file, whole or not at all: other jobs may run.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let mut text = String::new();
        for (word, pairs) in [("key", &self.keys), ("name", &self.names), ("withdrawn", &self.withdrawn)] {
            pairs.iter().for_each(|(a, b)| text += &format!("{word} {} {}\n", hex(a), hex(b)));
        }
        if self.aborted {
            text += "aborted\n";
        }
        text += &format!("waiting {}\n", self.waiting);
        let part = file.with_extension(std::process::id().to_string());
        fs::write(&part, text)?;
        fs::rename(&part, file)
    }
}
