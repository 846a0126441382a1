//! Mutations of the text of a request or response.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Encoding, Piece, Template};
use pmi_wire::Framing;

use super::frame;
use super::mutation::Mutation;
use super::places::{ByteSource, any_length, positions};
use crate::mutate::values::{self, LENGTHS, values};
use crate::session::decisions::pick;
use crate::session::fields::{FieldList, MessageField, WriteContent, field, text};
use crate::session::pieces::{join_adjacent, kvsname, letters, literal, push, template};

impl Mutation {
    /// Applies the mutation to a message. Returns `false` if the mutation is not applicable, or does not change text. The correct command
    /// may be replaced with one of `commands`.
    pub(crate) fn change(
        self,
        draft: &mut WriteContent,
        commands: &[&str],
        u: &mut Unstructured<'_>,
    ) -> Result<bool> {
        let encoding = draft.encoding();
        if matches!(self, Self::Separator | Self::Bytes) {
            let mut lines = draft.lines();
            let at = u.choose_index(lines.len())?;
            match self {
                Self::Separator => separator(&mut lines[at], encoding, u)?,
                _ => bytes(&mut lines[at], u)?,
            }
            *draft = WriteContent::Lines(encoding, lines);
            return Ok(true);
        }
        if self == Self::Junk {
            let (encoding, line) = junk(framing(encoding), u)?;
            *draft = WriteContent::Lines(encoding, vec![line]);
            return Ok(true);
        }
        if self == Self::Frame {
            let frames = frame::with_bad_length(draft, u)?;
            let changed = frames.is_some();
            if let Some(frames) = frames {
                *draft = frames;
            }
            return Ok(changed);
        }
        let Some(messages) = draft.messages_mut() else { return Ok(false) };
        match self {
            Self::Token => token(messages, encoding, u)?,
            Self::Length => length(messages, u)?,
            Self::Number => return number(messages, u),
            Self::Count => count(messages, u)?,
            Self::Command if u.ratio(1, 4)? => drop(messages[0].remove(0)),
            Self::Command => messages[0][0].value = text(pick(u, commands)?),
            Self::Kvsname => {
                let Some(name) = value(messages, "kvsname") else { return Ok(false) };
                *name = other_kvsname(u)?;
            }
            Self::Refusal => refuse(&mut messages[0], encoding, u)?,
            Self::Thread if encoding == Encoding::Body => thread(&mut messages[0], u)?,
            _ => return Ok(false),
        }
        messages.retain(|message| !message.is_empty());
        if messages.is_empty() {
            messages.push(vec![field("cmd", "")]);
        }
        Ok(true)
    }
}

pub(super) fn value<'a>(messages: &'a mut [FieldList], key: &str) -> Option<&'a mut Template> {
    messages.iter_mut().flatten().find(|field| field.key == key).map(|field| &mut field.value)
}

/// Returns the framing of a connection that uses this encoding.
pub(super) fn framing(encoding: Encoding) -> Framing {
    if encoding == Encoding::Dialect { Framing::Lines } else { Framing::Frames }
}

/// Draws a line or a frame that is not a message, or bytes that are not a frame.
pub(crate) fn junk(framing: Framing, u: &mut Unstructured<'_>) -> Result<(Encoding, Template)> {
    Ok(match framing {
        Framing::Lines => (Encoding::Dialect, junk_line(u)?),
        Framing::Frames => frame::junk(u)?,
    })
}

/// Draws a line that is not a message.
pub(crate) fn junk_line(u: &mut Unstructured<'_>) -> Result<Template> {
    Ok(template(vec![match u.int_in_range(0..=2)? {
        0 => {
            let mut bytes = u.bytes_or_zeros(1..=39)?;
            bytes.iter_mut().filter(|b| **b == b'\n').for_each(|b| *b = 0);
            literal(bytes)
        }
        1 => any_length(u)?,
        _ => literal(pick(u, &values().junk)?),
    }]))
}

fn other_kvsname(u: &mut Unstructured<'_>) -> Result<Template> {
    Ok(match u.int_in_range(0..=4)? {
        0 | 1 => text(pick(u, &values().names)?),
        2 => template(vec![kvsname(), literal("x")]),
        3 => template(vec![any_length(u)?]),
        _ => text(pick(u, &["wrong", "kvs_0_0_0"])?),
    })
}

fn token(messages: &mut Vec<FieldList>, encoding: Encoding, u: &mut Unstructured<'_>) -> Result<()> {
    let framing = framing(encoding);
    let (keys, requests) = (values::keys(framing), values::requests(framing));
    let m = u.choose_index(messages.len())?;
    let message = &mut messages[m];
    let i = u.choose_index(message.len())?;
    match u.int_in_range(0..=8)? {
        0 => drop(message.remove(i)),
        1 => message.insert(i, message[i].clone()),
        2 => message[i].key = pick(u, keys)?.to_owned(),
        3 => message[i].key = String::new(),
        4 => message[i].value = Template::default(),
        5 => message.rotate_left(1),
        6 => {
            let command = pick(u, requests)?;
            // A server may start as many processes as `nprocs` states, so the value of this field is removed and never replaced.
            message[i].value = if message[i].key == "nprocs" { Template::default() } else { text(command) };
        }
        7 => message.push(field(pick(u, keys)?, "1")),
        _ => {
            let copy = message.clone();
            let to = u.int_in_range(0..=messages.len())?;
            messages.insert(to, copy);
        }
    }
    Ok(())
}

fn length(messages: &mut [FieldList], u: &mut Unstructured<'_>) -> Result<()> {
    if u.ratio(1, 8)? {
        let key = "k".repeat(pick(u, &[31, 32, 63, 64, 65, 255, 256, 1023, 1024, 5000])?);
        let m = u.choose_index(messages.len())?;
        // The new field directly follows the command, because a later value may extend to the end of the line.
        let at = 1.min(messages[m].len());
        messages[m].insert(at, field(&key, "1"));
        return Ok(());
    }
    let mut fields: Vec<&mut MessageField> = messages.iter_mut().flatten().collect();
    let i = u.choose_index(fields.len())?;
    let long = any_length(u)?;
    if u.ratio(1, 6)? {
        // Prepend letters to the value instead of replacing it.
        fields[i].value.pieces.insert(0, long);
    } else {
        fields[i].value = template(vec![long]);
    }
    Ok(())
}

fn number(messages: &mut [FieldList], u: &mut Unstructured<'_>) -> Result<bool> {
    let numeric = |f: &&mut MessageField| match &f.value.pieces[..] {
        // Leave `nprocs` unchanged, because a larger number of processes could overload the machine.
        [Piece::Literal { bytes, .. }] => f.key != "nprocs" && bytes.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let mut fields: Vec<&mut MessageField> = messages.iter_mut().flatten().filter(numeric).collect();
    if fields.is_empty() {
        return Ok(false);
    }
    let number = match u.arbitrary()? {
        true => pick(u, &["0", "1", "-1", "2147483647", "2147483648", "4294967296"])?,
        false => pick(u, &values().numbers)?,
    };
    let i = u.choose_index(fields.len())?;
    match u.ratio(1, 4)? {
        // Sometimes set all numbers of the message to the same value, which an implementation may accept although it rejects a single
        // unusual number.
        true => fields.iter_mut().for_each(|field| field.value = text(number)),
        false => fields[i].value = text(number),
    }
    Ok(true)
}

fn count(messages: &mut [FieldList], u: &mut Unstructured<'_>) -> Result<()> {
    let m = u.choose_index(messages.len())?;
    let times = pick(u, &[31, 32, 63, 64, 99, 100, 101, 128, 500])?;
    messages[m].extend((0..times).map(|i| field(&format!("x{i}"), "1")));
    Ok(())
}

fn refuse(fields: &mut FieldList, encoding: Encoding, u: &mut Unstructured<'_>) -> Result<()> {
    let msg = if encoding == Encoding::Body { "errmsg" } else { "msg" };
    fields.retain(|field| !["rc", msg].contains(&field.key.as_str()));
    if u.arbitrary()? {
        fields.truncate(1);
    }
    let at = u.int_in_range(0..=fields.len())?;
    fields.insert(at, field("rc", pick(u, &values().codes)?));
    if u.arbitrary()? {
        let why = match u.ratio(1, 4)? {
            true => field(msg, letters(pick(u, LENGTHS)?)),
            false => field(msg, pick(u, &values().messages)?),
        };
        fields.push(why);
    }
    Ok(())
}

/// Adds, replaces or removes a thread number. The new number may belong to no thread.
fn thread(fields: &mut FieldList, u: &mut Unstructured<'_>) -> Result<()> {
    let had = fields.iter().position(|field| field.key == "thrid");
    if let Some(at) = had {
        fields.remove(at);
        if u.ratio(1, 3)? {
            return Ok(());
        }
    }
    // Prefer the position directly after the command, where most servers write the thread number.
    let at = if u.arbitrary()? { 1.min(fields.len()) } else { u.int_in_range(0..=fields.len())? };
    fields.insert(at, field("thrid", pick(u, &values().threads)?));
    Ok(())
}

pub(super) fn separator(line: &mut Template, encoding: Encoding, u: &mut Unstructured<'_>) -> Result<()> {
    const OTHERS: &[&str] = &["", "  ", "\t", "==", " =", "= ", ";", "\0", "\r", "\n", ",", "\"", "\x0b"];
    const OF_FRAMES: &[&str] =
        &["", ";;", ";;;", "=", "==", ";=;", "; ", " ", "\0", "\n", ",", ";;;;;;;;", "=;", "\u{e9}"];
    let (others, between) = match encoding {
        Encoding::Dialect | Encoding::Line => (OTHERS, b' '),
        Encoding::Body | Encoding::Bytes => (OF_FRAMES, b';'),
    };
    let places = positions(line, |b| b == between || b == b'=');
    let text = pick(u, others)?.as_bytes();
    match (u.int_in_range(0..=4)?, places.is_empty()) {
        (0, _) | (_, true) => push(line, literal(text)),
        (1, _) => line.pieces.insert(0, literal(text)),
        _ => {
            let (piece, at) = pick(u, &places)?;
            if let Piece::Literal { bytes, .. } = &mut line.pieces[piece] {
                bytes.splice(at..=at, text.iter().copied());
            }
        }
    }
    join_adjacent(line);
    Ok(())
}

pub(super) fn bytes(line: &mut Template, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..u.int_in_range(1..=3)? {
        let places = positions(line, |b| !b.is_ascii_digit());
        if places.is_empty() {
            return Ok(());
        }
        let (piece, at) = pick(u, &places)?;
        let Piece::Literal { bytes, .. } = &mut line.pieces[piece] else { return Ok(()) };
        let byte = match u.int_in_range(0..=2)? {
            0 => u.arbitrary()?,
            1 => bytes[at] ^ (1 << u.int_in_range(0..=7)?),
            _ => pick(u, b"=\0 \xff%x\t\r")?,
        };
        // Use `=` instead of a digit, because a digit could increase the number of processes that a spawn request starts.
        let byte = if byte.is_ascii_digit() { b'=' } else { byte };
        match u.int_in_range(0..=2)? {
            0 => bytes[at] = byte,
            1 => bytes.insert(at, byte),
            _ => drop(bytes.remove(at)),
        }
    }
    join_adjacent(line);
    Ok(())
}

/// Draws a line of key-value pairs for a proxy's cache. Some pairs are invalid.
pub(crate) fn draw_cache_line(u: &mut Unstructured<'_>) -> Result<Template> {
    let mut line = text("cmd=keyval_cache");
    match u.int_in_range(0..=9)? {
        0 => {
            let count = pick(u, &[100, 500, 2000])?;
            (0..count).for_each(|i| push(&mut line, literal(format!(" key-{i}=v"))));
        }
        1 => [literal(" a="), any_length(u)?].into_iter().for_each(|piece| push(&mut line, piece)),
        2 => {
            [literal(" "), any_length(u)?, literal("=1")].into_iter().for_each(|piece| push(&mut line, piece))
        }
        _ => push(&mut line, literal(pick(u, &values().caches)?)),
    }
    Ok(line)
}
