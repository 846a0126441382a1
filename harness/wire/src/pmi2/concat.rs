//! Commands that are too long for one message.
//!
//! `concat=ID` at the end of a message says that the command goes on in another one, which begins with `cmd=concat` and
//! `concatid=ID`. The draft speaks of a value or a command that is too long; since each message is a series of whole tuples, it is
//! divided between tuples here.

use std::borrow::Cow;

use memchr::memmem;
use thiserror::Error;

use super::body::{Body, Semicolons, write_tuple};

/// Most bytes that are kept where nothing else is said. The draft has about 64 KiB be enough.
const LIMIT: usize = 256 * 1024;

/// Commands of a connection that are not complete.
#[derive(Debug, Clone)]
pub struct Concat {
    open: Vec<(Vec<u8>, Vec<u8>)>,
    limit: usize,
}

/// Why a piece fits nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConcatError {
    /// `cmd=concat` names no command that has begun, or none at all.
    #[error("it goes on with a command that has not begun")]
    NotBegun,
    /// A command has begun under this id, and is not complete.
    #[error("a command that has this id already is not complete")]
    Begun,
    /// The pieces are too long together.
    #[error("the pieces are too long together")]
    TooLong,
}

impl Default for Concat {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Concat {
    /// Nothing has begun. Pieces of up to `limit` bytes are kept, all commands together.
    pub fn new(limit: usize) -> Self {
        Self { open: Vec::new(), limit }
    }

    /// Whether no command has begun that is not complete.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes in the body of a frame. Gives the body of a whole command, which is the same where it came in one message, or
    /// `None` if there is more to come. A body that cannot be read is given back for others to say so.
    ///
    /// # Errors
    ///
    /// See [`ConcatError`].
    pub fn push<'a>(
        &mut self,
        bytes: &'a [u8],
        semicolons: Semicolons,
    ) -> Result<Option<Cow<'a, [u8]>>, ConcatError> {
        // So that it costs little where nobody does it.
        if memmem::find(bytes, b"concat").is_none() {
            return Ok(Some(bytes.into()));
        }
        let Ok(body) = Body::parse(bytes, semicolons) else { return Ok(Some(bytes.into())) };
        let last = body.tuples().last().filter(|tuple| tuple.key == b"concat").map(|tuple| tuple.value);
        let goes_on = body.cmd() == Some(b"concat");
        if last.is_none() && !goes_on {
            return Ok(Some(bytes.into()));
        }
        let id = if goes_on { body.raw("concatid") } else { last };
        let place = self.open.iter().position(|(other, _)| Some(&other[..]) == id);
        let mut whole = match (place, goes_on) {
            (Some(place), true) => self.open.swap_remove(place).1,
            (None, true) => return Err(ConcatError::NotBegun),
            (Some(_), false) => return Err(ConcatError::Begun),
            (None, false) => Vec::new(),
        };
        let count = body.tuples().count() - usize::from(last.is_some());
        for tuple in body.tuples().take(count) {
            // What ties the messages together is no part of the command. A thrid belongs to each message of it.
            if goes_on && matches!(tuple.key, b"cmd" | b"concatid" | b"thrid") {
                continue;
            }
            whole.extend_from_slice(tuple.key);
            whole.push(b'=');
            whole.extend_from_slice(tuple.value);
            whole.push(b';');
        }
        // Each open command counts for what it takes to remember it, however short it is.
        let kept: usize = self.open.iter().map(|(id, begun)| id.len() + begun.len() + 64).sum();
        if whole.len() + kept > self.limit {
            return Err(ConcatError::TooLong);
        }
        match last {
            Some(id) => {
                self.open.push((id.to_vec(), whole));
                Ok(None)
            }
            None => Ok(Some(whole.into())),
        }
    }
}

/// A command in the bodies of as many messages as it takes, none longer than `longest`. Where a tuple is too long for that, so is the
/// message that it stands in.
pub fn in_pieces(body: &[u8], longest: usize, id: &[u8]) -> Vec<Vec<u8>> {
    let Ok(tuples) = Body::parse(body, Semicolons::Doubled) else { return vec![body.to_vec()] };
    if body.len() <= longest {
        return vec![body.to_vec()];
    }
    let mut ties = Vec::new();
    write_tuple(&mut ties, "concat", id);
    let mut begin = b"cmd=concat;".to_vec();
    write_tuple(&mut begin, "concatid", id);
    let mut pieces = vec![Vec::new()];
    let mut empty = true;
    for tuple in tuples.tuples() {
        let length = tuple.key.len() + tuple.value.len() + 2;
        if let Some(last) =
            pieces.last_mut().filter(|last| !empty && last.len() + length + ties.len() > longest)
        {
            last.extend_from_slice(&ties);
            pieces.push(begin.clone());
        }
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(tuple.key);
            last.push(b'=');
            last.extend_from_slice(tuple.value);
            last.push(b';');
        }
        empty = false;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::testing::Prng;

    fn put_together(pieces: &[&str]) -> Vec<String> {
        let mut concat = Concat::new(1000);
        let mut shown = Vec::new();
        for piece in pieces {
            match concat.push(piece.as_bytes(), Semicolons::Doubled) {
                Ok(Some(body)) => shown.push(body.escape_ascii().to_string()),
                Ok(None) => {}
                Err(error) => shown.push(error.to_string()),
            }
        }
        shown
    }

    #[rstest]
    #[case(&["cmd=finalize;"], &["cmd=finalize;"])]
    #[case(&["cmd=x;a=1;concat=7;", "cmd=concat;concatid=7;b=2;"], &["cmd=x;a=1;b=2;"])]
    #[case(&["cmd=x;concat=7;", "cmd=concat;concatid=7;a=1;concat=7;", "cmd=concat;concatid=7;"], &["cmd=x;a=1;"])]
    #[case(&["cmd=x;concat=1;", "cmd=y;concat=2;", "cmd=concat;concatid=1;a=1;", "cmd=concat;concatid=2;a=2;"],
        &["cmd=x;a=1;", "cmd=y;a=2;"])]
    #[case(&["cmd=x;thrid=t;a=;;;concat=7;", "cmd=concat;concatid=7;thrid=t;b=2;"], &["cmd=x;thrid=t;a=;;;b=2;"])]
    // Only what stands at the end ties messages together.
    #[case(&["cmd=x;concat=7;a=1;"], &["cmd=x;concat=7;a=1;"])]
    #[case(&["cmd=concat;concatid=7;a=1;"], &["it goes on with a command that has not begun"])]
    #[case(&["cmd=concat;a=1;"], &["it goes on with a command that has not begun"])]
    #[case(&["cmd=x;concat=7;", "cmd=y;concat=7;"], &["a command that has this id already is not complete"])]
    #[case(&["no body"], &["no body"])]
    fn pieces_are_put_together(#[case] pieces: &[&str], #[case] shown: &[&str]) {
        assert_eq!(put_together(pieces), shown);
    }

    #[test]
    fn nobody_can_make_it_grow() {
        let mut concat = Concat::new(1000);
        let mut push =
            |id: usize| concat.push(format!("cmd=x;concat={id};").as_bytes(), Semicolons::Doubled).is_ok();
        assert!((0..100).filter(|id| push(*id)).count() < 16);
        let long = format!("cmd=x;a={};concat=1;", "a".repeat(1000));
        let mut concat = Concat::new(1000);
        assert_eq!(concat.push(long.as_bytes(), Semicolons::Doubled), Err(ConcatError::TooLong));
    }

    #[test]
    fn what_is_divided_is_put_together_again() {
        let mut prng = Prng(8);
        for _ in 0..500 {
            let mut body = b"cmd=spawn;".to_vec();
            for i in 0..prng.below(20) {
                write_tuple(&mut body, &format!("k{i}"), &Prng::string(&mut prng));
            }
            let longest = 30 + prng.below(200) as usize;
            let pieces = in_pieces(&body, longest, b"i;d");
            let mut concat = Concat::new(1 << 16);
            let (last, others) = pieces.split_last().unwrap();
            for piece in others {
                assert_eq!(concat.push(piece, Semicolons::Doubled), Ok(None));
            }
            assert_eq!(concat.push(last, Semicolons::Doubled), Ok(Some(body.as_slice().into())));
            assert!(concat.is_empty());
        }
    }
}
