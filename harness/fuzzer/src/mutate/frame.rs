//! Mutations of PMI-2 frames.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Encoding, Piece, Template};
use pmi_wire::frame_header;

use super::places::{ByteSource, any_length, cut, positions, split};
use crate::mutate::values::values;
use crate::session::decisions::pick;
use crate::session::fields::{WriteContent, text};
use crate::session::pieces::{join_adjacent, known_length, literal, push, template};

/// Returns a frame whose body is not a message, or bytes that are not a frame.
pub(crate) fn junk(u: &mut Unstructured<'_>) -> Result<(Encoding, Template)> {
    Ok(match u.int_in_range(0..=4)? {
        0 => (Encoding::Body, text(u.bytes_or_zeros(1..=39)?)),
        1 => (Encoding::Body, template(vec![any_length(u)?])),
        2 | 3 => (Encoding::Body, text(pick(u, &values().bodies)?)),
        _ => (Encoding::Bytes, text(pick(u, &values().invalid_frames)?)),
    })
}

/// Returns the bytes of a frame with this header and body.
fn with_header(header: &[u8], body: &Template) -> Template {
    let mut whole = text(header);
    body.pieces.iter().for_each(|piece| push(&mut whole, piece.clone()));
    whole
}

/// Returns the bytes of the frame with this body, or `None` if the length of the body is unknown or too large for the header.
pub(crate) fn framed(body: &Template) -> Option<Template> {
    Some(with_header(&frame_header(known_length(body)?)?, body))
}

/// Gives one frame a wrong, invalid or unusual length, or changes its end. Returns `None` if the length of the body is unknown.
pub(super) fn with_bad_length(
    draft: &WriteContent,
    u: &mut Unstructured<'_>,
) -> Result<Option<WriteContent>> {
    let mut lines = draft.lines();
    let at = u.choose_index(lines.len())?;
    let Some(length) = known_length(&lines[at]).filter(|_| draft.encoding() == Encoding::Body) else {
        return Ok(None);
    };
    let Some(whole): Option<Vec<Template>> = lines.iter().map(framed).collect() else { return Ok(None) };
    let body = std::mem::take(&mut lines[at]);
    let header = |length: usize| frame_header(length).unwrap_or(*b"999999");
    let mut frames = whole;
    frames[at] = match u.int_in_range(0..=6)? {
        0 => with_header(pick(u, &values().headers)?, &body),
        // The length is too small or too large: by one, by a few bytes, by 1024, or by a factor of two.
        1 => with_header(&header(length.saturating_sub(1)), &body),
        2 => with_header(&header(length + u.int_in_range(1..=9)?), &body),
        3 => with_header(
            &header(pick(u, &[length / 2, length * 2, length.saturating_sub(5), length + 1024])?),
            &body,
        ),
        // Left-aligned and zero-padded lengths are valid, and some implementations send them.
        4 => match u.arbitrary()? {
            true => with_header(format!("{length:<6}").as_bytes(), &body),
            false => with_header(format!("{length:06}").as_bytes(), &body),
        },
        5 => {
            let body = without_end(&body);
            with_header(&header(length.saturating_sub(1)), &body)
        }
        _ => {
            let mut body = body;
            let semicolons = if u.arbitrary()? { ";" } else { ";;;;" };
            push(&mut body, literal(semicolons));
            with_header(&header(length + semicolons.len()), &body)
        }
    };
    Ok(Some(WriteContent::Lines(Encoding::Bytes, frames)))
}

/// Returns a body without the trailing semicolon.
fn without_end(body: &Template) -> Template {
    let mut body = body.clone();
    if let Some(Piece::Literal { bytes, .. }) = body.pieces.last_mut() {
        bytes.pop();
    }
    join_adjacent(&mut body);
    body
}

/// A frame in two halves. If the length is known, the halves are bytes that include the header. Otherwise, they are parts of a body.
pub(crate) enum SplitFrame {
    /// The bytes of the first and of the second write.
    Bytes(Template, Template),
    /// The body of a frame that is cut into two writes.
    Cut(Template),
}

/// Joins two parts of a body that are sent in separate writes.
pub(super) fn joined(mut first: Template, second: Template) -> Template {
    first.pieces.push(Piece::Cut);
    first.pieces.extend(second.pieces);
    first
}

/// Splits a frame into two parts, within the header or within the body.
pub(crate) fn halves(body: &Template, u: &mut Unstructured<'_>) -> Result<SplitFrame> {
    if let Some(whole) = framed(body) {
        if u.ratio(1, 4)? {
            let places = positions(&whole, |_| true);
            let at = u.int_in_range(1..=5usize)?;
            if let Some((first, second)) = places.get(at).map(|place| cut(&whole, *place)) {
                return Ok(SplitFrame::Bytes(first, second));
            }
        }
        let (first, second) = split(&whole, u)?;
        return Ok(SplitFrame::Bytes(first, second));
    }
    let (first, second) = split(body, u)?;
    Ok(SplitFrame::Cut(joined(first, second)))
}
