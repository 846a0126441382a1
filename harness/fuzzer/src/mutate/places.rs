//! Positions of changes within a message, and the pieces inserted there. Lines and frames share this code.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::{Piece, Template};

use crate::mutate::values::LENGTHS;
use crate::session::decisions::pick;
use crate::session::pieces::{Limit, letters, letters_up_to, literal, push, template};

/// A source of bytes. After the source is exhausted, all bytes are zero.
pub(super) trait ByteSource {
    fn bytes_or_zeros(&mut self, count: std::ops::RangeInclusive<usize>) -> Result<Vec<u8>>;
}

impl ByteSource for Unstructured<'_> {
    fn bytes_or_zeros(&mut self, count: std::ops::RangeInclusive<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.int_in_range(count)?];
        self.fill_buffer(&mut bytes)?;
        Ok(bytes)
    }
}

/// Draws a run of letters with a boundary length.
pub(crate) fn any_length(u: &mut Unstructured<'_>) -> Result<Piece> {
    Ok(match u.arbitrary()? {
        false => letters(pick(u, LENGTHS)?),
        true => letters_up_to(pick(u, &Limit::ALL)?, u.int_in_range(-2..=2)?),
    })
}

/// Returns the positions of the bytes that `wanted` accepts. A position consists of the index of the piece and the index of the byte within
/// the piece.
pub(super) fn positions(line: &Template, wanted: impl Fn(u8) -> bool) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (i, piece) in line.pieces.iter().enumerate() {
        if let Piece::Literal { bytes, .. } = piece {
            all.extend((0..bytes.len()).filter(|at| wanted(bytes[*at])).map(|at| (i, at)));
        }
    }
    all
}

/// Splits a line into two parts at a random position.
pub(crate) fn split(line: &Template, u: &mut Unstructured<'_>) -> Result<(Template, Template)> {
    let places = positions(line, |_| true);
    if places.is_empty() {
        return Ok((line.clone(), Template::default()));
    }
    let place = match u.int_in_range(0..=3)? {
        // Split near the end, where the receiver has little left to read.
        0 => places[places.len() - u.int_in_range(1..=places.len().min(4))?],
        // Split after a separator of keys, values or tuples.
        1 => {
            let after = |(piece, at): &(usize, usize)| match &line.pieces[*piece] {
                Piece::Literal { bytes, .. } => *at > 0 && matches!(bytes[at - 1], b'=' | b' ' | b';'),
                _ => false,
            };
            let parted: Vec<_> = places.iter().copied().filter(after).collect();
            pick(u, if parted.is_empty() { &places } else { &parted })?
        }
        _ => pick(u, &places)?,
    };
    Ok(cut(line, place))
}

/// Splits a line into two parts, before a byte of one of its pieces.
pub(super) fn cut(line: &Template, (piece, at): (usize, usize)) -> (Template, Template) {
    let (mut first, mut second) = (template(line.pieces[..piece].to_vec()), Template::default());
    if let Piece::Literal { bytes, .. } = &line.pieces[piece] {
        push(&mut first, literal(&bytes[..at]));
        push(&mut second, literal(&bytes[at..]));
    }
    line.pieces[piece + 1..].iter().for_each(|piece| push(&mut second, piece.clone()));
    (first, second)
}
