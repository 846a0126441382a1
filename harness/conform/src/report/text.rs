//! Escapes and shortens untrusted text.

use std::borrow::Cow;
use std::fmt::Write;

/// Number of characters shown before the first difference when the beginning of the text is cut.
const CONTEXT_LENGTH: usize = 40;

/// Returns whether a character could control a terminal, change the text direction, or be invalid in XML.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Escapes text as a single harmless line. Backslashes are kept, since findings contain escaped bytes.
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

/// Escapes the harmful characters that JSON allows in strings.
pub(super) fn safe_json(json: &str) -> Cow<'_, str> {
    // Most lines of a log need no escaping.
    if json.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        // An unescaped line break in JSON is outside a string, so it is kept. Line breaks within strings are already escaped.
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

/// Returns the first `limit` characters of `text`. If characters were omitted, the length of the whole text is appended.
pub(super) fn clip(text: &str, limit: usize) -> String {
    part(text, 0, limit)
}

/// Cuts the middle out of text that has more than `limit` characters. In the description of a crash, this keeps both the process that died
/// and the end of its assertion.
pub(super) fn clip_middle(text: &str, limit: usize) -> String {
    let all = text.chars().count();
    if all <= limit {
        return text.to_owned();
    }
    let first: String = text.chars().take(limit / 2).collect();
    let last: String = text.chars().skip(all - limit / 2).collect();
    format!("{first}...{last}")
}

/// Cuts `expected` and `seen` to the same window around their first difference.
pub(super) fn window(expected: &str, seen: &str, limit: usize) -> (String, String) {
    let (expected, seen) = (clean(expected), clean(seen));
    let same = expected.chars().zip(seen.chars()).take_while(|(a, b)| a == b).count();
    let longest = expected.chars().count().max(seen.chars().count());
    let from = same.saturating_sub(CONTEXT_LENGTH).min(longest.saturating_sub(limit));
    (part(&expected, from, limit), part(&seen, from, limit))
}

fn part(text: &str, from: usize, limit: usize) -> String {
    let all = text.chars().count();
    if from == 0 && all <= limit {
        return text.to_owned();
    }
    let part: String = text.chars().skip(from).take(limit).collect();
    let (before, after) = (if from > 0 { "..." } else { "" }, if from + limit < all { "..." } else { "" });
    // If the text was already cut, its end states the length of the whole message.
    let stated =
        text.rfind("... (").map(|at| &text[at + "... ".len()..]).filter(|end| end.ends_with(" bytes)"));
    let length = stated.map_or_else(|| format!("({all} characters)"), str::to_owned);
    format!("{before}{part}{after} {length}")
}

pub(crate) fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Escapes at most `limit` bytes. `cut` is the number of additional bytes of the message that are not in `bytes`.
pub(super) fn bytes(bytes: &[u8], limit: usize, cut: usize) -> String {
    let (part, all) = (&bytes[..limit.min(bytes.len())], bytes.len() + cut);
    match part.len() < all {
        true => format!("{}... ({all} bytes)", part.escape_ascii()),
        false => part.escape_ascii().to_string(),
    }
}

/// Formats a line of a program's output: as text if it is UTF-8, otherwise as escaped bytes.
pub(super) fn output(line: &[u8], limit: usize) -> String {
    match std::str::from_utf8(line) {
        Ok(text) => clip(&clean(text), limit),
        Err(_) => bytes(line, limit, 0),
    }
}

/// Formats a count: `1 scenario`, `2 scenarios`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Formats a number of times: `once`, `2 times`.
pub(crate) fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{n} times") }
}

pub(super) fn time(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit after the point")]
    let seconds = us as f64 / 1e6;
    if us < 1_000_000 { format!("{:.1}ms", seconds * 1e3) } else { format!("{seconds:.1}s") }
}
