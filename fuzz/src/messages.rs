//! Target: the decoder of messages, for each row of the protocol table. The decoder must return the fields that were written.
//!
//! Input: a byte that selects the framing and the direction, a byte that selects the row, and the fields (see `input`).

use arbitrary::Unstructured;
use pmi_wire::grammar::Rule;
use pmi_wire::pmi2::SemicolonReading;
use pmi_wire::protocol::{Exchange, Field, documented_exchanges};
use pmi_wire::{Decoded, Direction, Framing, ResponseOutcome, ValueReading};

use crate::input::{Arena, byte, number};
use crate::planted;
use crate::spell::{message, msg_last};

/// A written field: its key and its value.
type WrittenFields = (&'static str, Vec<u8>);

/// Writes a message and decodes it twice: unchanged, and with reordered tuples and an unknown tuple.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let kind = byte(&mut u);
    let framing = if kind & 1 == 0 { Framing::Lines } else { Framing::Frames };
    let direction = if kind & 2 == 0 { Direction::ToServer } else { Direction::FromServer };
    let rows = documented_exchanges(framing);
    let row = &rows[usize::from(byte(&mut u)) % rows.len()];
    // The target `spawn` covers requests that consist of several lines or sections.
    if direction == Direction::ToServer && row.request == "spawn" {
        return;
    }
    let Some(command) = row.command(direction) else { return };
    let mut fields = vec![("cmd", command.as_bytes().to_vec())];
    fields.extend(of_row(row, framing, direction, &mut u));
    let shown =
        |fields: &[WrittenFields]| message(framing, fields.iter().map(|(key, value)| (*key, &value[..])));
    let mut text = shown(&fields);
    plant(&mut text, row, framing, direction);
    check(row, framing, direction, &text, &fields, true);
    // The rest of this function reorders the fields. In a line, a value with spaces or tabs must stay last, so such a line is skipped. In a
    // frame, the command stays first.
    if framing == Framing::Lines && has_blank(&fields) {
        return;
    }
    let by = usize::from(byte(&mut u));
    let first = usize::from(framing == Framing::Frames);
    let movable = fields.len() - first;
    let mut turned = fields.clone();
    turned[first..].rotate_left(by % movable.max(1));
    turned.insert(first + by % (movable + 1), ("xyzzy", b"=".to_vec()));
    check(row, framing, direction, &shown(&turned), &fields, false);
}

/// Draws the fields of a message. In lines, a response has either all of its fields or none, and the value of a get comes last.
fn of_row(
    row: &Exchange,
    framing: Framing,
    direction: Direction,
    u: &mut Unstructured<'_>,
) -> Vec<WrittenFields> {
    let is_response = direction == Direction::FromServer;
    let all = byte(u) & 1 == 1;
    let is_written = |field: &Field, u: &mut Unstructured<'_>| match (framing, is_response) {
        (Framing::Lines, true) => all,
        _ => !field.optional || byte(u) & 1 == 1,
    };
    let mut own = Vec::new();
    for field in row.fields(direction).iter().filter(|field| !field.numbered) {
        if is_written(field, u) {
            own.push((field.key, value(field, framing, u)));
        }
    }
    let text = |u: &mut Unstructured<'_>| match framing {
        Framing::Lines => word(u),
        Framing::Frames => any(u),
    };
    let mut common = Vec::new();
    if is_response && (framing == Framing::Frames || byte(u) & 1 == 1) {
        common.push(("rc", number(u).cast_signed().to_string().into_bytes()));
        if byte(u) & 1 == 1 {
            common.push((framing.pick(["msg", "errmsg"]), text(u)));
        }
    }
    if framing == Framing::Frames && byte(u) & 1 == 1 {
        common.push(("thrid", any(u)));
    }
    let mut fields: Vec<_> = common.into_iter().chain(own).collect();
    msg_last(&mut fields);
    fields
}

fn word(u: &mut Unstructured<'_>) -> Vec<u8> {
    let mut arena = Arena::new();
    let range = arena.word(u);
    arena.get(range).to_vec()
}

/// Draws arbitrary bytes, with many semicolons.
fn any(u: &mut Unstructured<'_>) -> Vec<u8> {
    let length = usize::from(byte(u) % 32).min(u.len());
    let bytes = u.bytes(length).unwrap_or_default();
    bytes.iter().map(|b| if b % 16 == 15 { b';' } else { *b }).collect()
}

/// Draws a value that the rule of the field accepts.
fn value(field: &Field, framing: Framing, u: &mut Unstructured<'_>) -> Vec<u8> {
    let mut arena = Arena::new();
    let text = match (field.rule, framing) {
        (Rule::Uint, _) => return number(u).to_string().into_bytes(),
        (Rule::Int, _) => return number(u).cast_signed().to_string().into_bytes(),
        (Rule::Bool, _) => return [&b"TRUE"[..], b"false"][usize::from(byte(u) & 1)].to_vec(),
        (Rule::IntList, _) => {
            let codes: Vec<_> = (0..=byte(u) % 8).map(|_| number(u).cast_signed().to_string()).collect();
            return codes.join(",").into_bytes();
        }
        (_, Framing::Frames) => return any(u),
        (Rule::Visible, _) => arena.visible(u),
        (Rule::String, _) if field.key == "value" => arena.string(u),
        (Rule::Word | Rule::String, _) => arena.word(u),
    };
    arena.get(text).to_vec()
}

/// Corrupts a message as a bug in the message printer would, if that bug is planted.
fn plant(text: &mut Vec<u8>, row: &Exchange, framing: Framing, direction: Direction) {
    let lost = if planted::is("port-loses-second-equals") && row.request == "publish_name" {
        (0..text.len()).filter(|at| text[*at] == b'=').nth(4)
    } else if planted::is("errcodes-lose-the-last-sign")
        && framing == Framing::Lines
        && text.ends_with(b",-1")
    {
        (direction == Direction::FromServer && row.operation == "spawn").then(|| text.len() - 2)
    } else if planted::is("frame-loses-doubled-semicolon") && row.request == "name-publish" {
        text.windows(2).position(|two| two == b";;")
    } else {
        None
    };
    lost.map(|at| text.remove(at));
}

fn has_blank(fields: &[WrittenFields]) -> bool {
    fields.iter().any(|(_, value)| value.iter().any(|byte| matches!(byte, b' ' | b'\t')))
}

/// Checks that `text` is decoded to the given fields. If `in_order` is true, the last value of a line may contain spaces and tabs.
fn check(
    row: &Exchange,
    framing: Framing,
    direction: Direction,
    text: &[u8],
    fields: &[WrittenFields],
    in_order: bool,
) {
    // According to the standard, an unknown tuple after `msg` belongs to the value of `msg`, so a reordered line is not decoded that way.
    let standard =
        Some(Decoded::new(direction, framing, text)).filter(|_| in_order || framing == Framing::Frames);
    let has_doubled = text.windows(2).any(|two| two == b";;");
    let other = match framing {
        Framing::Lines if has_blank(fields) => None,
        Framing::Lines => Some(Decoded::line(direction, text, ValueReading::ToBlank)),
        Framing::Frames if has_doubled => None,
        Framing::Frames => Some(Decoded::body(direction, text, SemicolonReading::Plain)),
    };
    for decoded in [&standard, &other].into_iter().flatten() {
        assert_eq!(decoded.error(), None, "{}", text.escape_ascii());
        assert_eq!(decoded.exchange(), Some(row));
        for (key, value) in fields {
            assert_eq!(decoded.value(key).as_deref(), Some(&value[..]), "{key} in {}", text.escape_ascii());
        }
        assert_eq!(decoded.outcome(), outcome(direction, framing, fields));
    }
    if direction == Direction::ToServer && framing == Framing::Lines {
        assert!(standard.is_none_or(|message| message.is_canonical()), "{}", text.escape_ascii());
    }
}

/// Returns the outcome that the fields report.
fn outcome(direction: Direction, framing: Framing, fields: &[WrittenFields]) -> Option<ResponseOutcome> {
    let get = |key: &str| fields.iter().find(|(known, _)| *known == key).map(|(_, value)| &value[..]);
    let flag = get("found").or_else(|| get("flag")).filter(|_| framing == Framing::Frames);
    match (direction, get("rc"), flag) {
        (Direction::ToServer, ..) => None,
        (_, Some(rc), _) if rc != b"0" => Some(ResponseOutcome::Failure),
        (.., None | Some(b"TRUE")) => Some(ResponseOutcome::Success),
        (.., Some(_)) => Some(ResponseOutcome::Miss),
    }
}
