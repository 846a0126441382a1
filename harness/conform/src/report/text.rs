//! Foreign text made harmless.

use std::borrow::Cow;
use std::fmt::Write;

/// Characters shown before the first difference, when the beginning must go.
const CONTEXT: usize = 40;

/// Whether a character could act on a terminal, turn text around or be no part of XML.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// One line of text that does nothing when shown. Backslashes stay: findings hold bytes that are escaped already.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(c) {
            Ok(byte) if byte.is_ascii_control() => out.extend(byte.escape_ascii().map(char::from)),
            _ if is_harmful(c) => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

/// Finished JSON, with the harmful characters in its strings escaped that JSON would let through.
pub(super) fn safe_json(json: &str) -> Cow<'_, str> {
    // Most of a log is plain.
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // JSON's own line breaks and indentation stand outside of strings; in strings they are escaped already.
        if c == '\n' || !is_harmful(c) {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out.into()
}

/// The first `limit` characters, with what is left out said.
pub(super) fn clip(text: &str, limit: usize) -> String {
    part(text, 0, limit)
}

/// Two texts that should be alike, cut to the same window around their first difference.
pub(super) fn window(expected: &str, seen: &str, limit: usize) -> (String, String) {
    let (expected, seen) = (clean(expected), clean(seen));
    let same = expected.chars().zip(seen.chars()).take_while(|(a, b)| a == b).count();
    let longest = expected.chars().count().max(seen.chars().count());
    let from = same.saturating_sub(CONTEXT).min(longest.saturating_sub(limit));
    (part(&expected, from, limit), part(&seen, from, limit))
}

fn part(text: &str, from: usize, limit: usize) -> String {
    let all = text.chars().count();
    if from == 0 && all <= limit {
        return text.to_owned();
    }
    let part: String = text.chars().skip(from).take(limit).collect();
    let (before, after) = (if from > 0 { "..." } else { "" }, if from + limit < all { "..." } else { "" });
    format!("{before}{part}{after} ({all} characters)")
}

/// The first sentence of a text.
pub(crate) fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Bytes escaped, at most `limit` of them. `cut` is the number of bytes of the message that are missing after them.
pub(super) fn bytes(bytes: &[u8], limit: usize, cut: usize) -> String {
    let (part, all) = (&bytes[..limit.min(bytes.len())], bytes.len() + cut);
    match part.len() < all {
        true => format!("{}... ({all} bytes)", part.escape_ascii()),
        false => part.escape_ascii().to_string(),
    }
}

/// What a program printed: as text where it is text.
pub(super) fn output(line: &[u8], limit: usize) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => clip(&clean(text), limit),
        Err(_) => bytes(line, limit, 0),
    }
}

/// `1 scenario`, `2 scenarios`.
pub(super) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A time for people.
pub(super) fn time(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
    let seconds = us as f64 / 1e6;
    if us < 1_000_000 { format!("{:.1}ms", seconds * 1e3) } else { format!("{seconds:.1}s") }
}
