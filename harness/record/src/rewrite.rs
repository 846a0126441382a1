//! Replaces each program in a spawn request (`execname`, or `subcmd` in PMI-2) with a tap, which starts the original program.
//!
//! All other bytes are forwarded unchanged, piece by piece. In lines, only the bytes from an `execname` to the end of its block are held
//! back, because an info key `path` may follow. The process manager would search for the program in that path, and would not find a tap. In
//! frames, a spawn request is held back completely, and any other request only until its command is recognized.

use std::borrow::Cow;

use pmi_wire::{Connection, Decoded, Direction, Framing, HEADER, frame_header, frame_length};

/// Maximum number of bytes of a spawn request that are held back. A longer request is forwarded unchanged, and its processes are not
/// observed.
const MAX_BUFFERED: usize = 256 * 1024;

/// Maximum number of bytes that are needed to recognize a line.
const MAX_RECOGNIZED_LINE: usize = 16;

/// The first line of a block, the PMI-1 form of a spawn request.
const BLOCK_START: &[u8] = b"mcmd=spawn";

/// The beginning of the line with a program's name.
const EXECNAME: &[u8] = b"execname=";

/// The beginning of a spawn request's body in PMI-2.
const PMI2_SPAWN: &[u8] = b"cmd=spawn;";

/// Maximum length of a message that negotiates a version.
const MAX_NEGOTIATION: usize = 64 * 1024;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum BlockState {
    #[default]
    Outside,
    /// Within a block. No bytes are held back.
    Block,
    /// Within a block, after the beginning of a line that is or may be an `execname`. All bytes from that beginning are held back.
    Held,
}

/// The state of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameState {
    /// The frame is held back, because it may be a spawn request.
    Held,
    /// The frame contains a different request. This number of its bytes must still be forwarded.
    Passes(usize),
    /// The boundaries between frames are unknown.
    Unreadable,
}

/// The framing of a client's requests.
#[derive(Debug)]
enum Protocol {
    /// Lines, until the framing is negotiated.
    Negotiated(Box<Connection>),
    Lines,
    Frames,
}

/// A rewriter that replaces the program names in a client's requests.
#[derive(Debug)]
pub(crate) struct Rewriter {
    protocol: Protocol,
    place: BlockState,
    /// The beginning of the current line.
    line: Vec<u8>,
    frame: FrameState,
    held: Vec<u8>,
}

impl Default for Rewriter {
    fn default() -> Self {
        Self {
            protocol: Protocol::Negotiated(Box::new(Connection::new(MAX_NEGOTIATION))),
            place: BlockState::Outside,
            line: Vec::new(),
            frame: FrameState::Held,
            held: Vec::new(),
        }
    }
}

impl Rewriter {
    /// Reads bytes from the server, which may negotiate frames.
    pub(crate) fn read_response(&mut self, piece: &[u8]) {
        let Protocol::Negotiated(connection) = &mut self.protocol else { return };
        connection.push(Direction::FromServer, piece);
        while connection.next(Direction::FromServer).is_some() {}
        match connection.negotiated() {
            None => {}
            Some(Framing::Lines) => self.protocol = Protocol::Lines,
            Some(Framing::Frames) => {
                // The client's bytes before the response have already been forwarded.
                while connection.next(Direction::ToServer).is_some() {}
                let passed = connection.partial(Direction::ToServer);
                self.frame = match passed.first_chunk().map(|header| frame_length(*header)) {
                    _ if passed.is_empty() => FrameState::Held,
                    Some(Some(length)) => FrameState::Passes(HEADER + length - passed.len()),
                    _ => FrameState::Unreadable,
                };
                self.protocol = Protocol::Frames;
            }
        }
    }

    /// Reads bytes from the client, and returns the bytes to forward. `tap` creates a tap for the program with the given name, and returns
    /// the tap's path.
    pub(crate) fn pass<'a>(
        &mut self,
        piece: &'a [u8],
        mut tap: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Cow<'a, [u8]> {
        match &mut self.protocol {
            Protocol::Negotiated(connection) => {
                connection.push(Direction::ToServer, piece);
                while connection.next(Direction::ToServer).is_some() {}
            }
            Protocol::Lines => {}
            Protocol::Frames => return self.pass_frames(piece, &mut tap).into(),
        }
        // Usually, the piece consists of complete lines, and no line begins a block. Such a piece is forwarded without a copy.
        if self.place == BlockState::Outside
            && self.line.is_empty()
            && piece.ends_with(b"\n")
            && piece.split(|b| *b == b'\n').all(|line| line != BLOCK_START)
        {
            return piece.into();
        }
        self.pass_lines(piece, &mut tap).into()
    }

    fn pass_frames(&mut self, mut piece: &[u8], tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        while !piece.is_empty() {
            let passing = match self.frame {
                FrameState::Held => {
                    // Take only the needed bytes, because the bytes after them may belong to the next frame.
                    let wanted = self.missing_bytes().min(piece.len());
                    self.held.extend_from_slice(&piece[..wanted]);
                    piece = &piece[wanted..];
                    self.decide(tap, &mut out);
                    continue;
                }
                FrameState::Passes(left) => left.min(piece.len()),
                FrameState::Unreadable => piece.len(),
            };
            out.extend_from_slice(&piece[..passing]);
            piece = &piece[passing..];
            if let FrameState::Passes(left) = &mut self.frame {
                *left -= passing;
                if *left == 0 {
                    self.frame = FrameState::Held;
                }
            }
        }
        out
    }

    /// Returns the number of bytes that are needed to recognize or complete the held frame.
    fn missing_bytes(&self) -> usize {
        let Some(length) = self.held.first_chunk().and_then(|header| frame_length(*header)) else {
            return HEADER - self.held.len();
        };
        let shown = HEADER + length.min(PMI2_SPAWN.len());
        if self.held.len() < shown { shown - self.held.len() } else { HEADER + length - self.held.len() }
    }

    fn decide(&mut self, tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>, out: &mut Vec<u8>) {
        let Some(header) = self.held.first_chunk() else { return };
        let body = &self.held[HEADER..];
        let begun = body.len().min(PMI2_SPAWN.len());
        match frame_length(*header) {
            None => self.frame = FrameState::Unreadable,
            Some(length) if length > MAX_BUFFERED || body[..begun] != PMI2_SPAWN[..begun] => {
                let left = length - body.len();
                self.frame = if left == 0 { FrameState::Held } else { FrameState::Passes(left) };
            }
            Some(length) if body.len() < length => return,
            Some(_) => {
                let rewritten = rewrite_frame(*header, body, tap);
                self.held = rewritten.unwrap_or_else(|| std::mem::take(&mut self.held));
            }
        }
        out.append(&mut self.held);
    }

    fn pass_lines(&mut self, piece: &[u8], mut tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|b| *b == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = (MAX_RECOGNIZED_LINE + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            let begun = self.line.len().min(EXECNAME.len());
            if self.place == BlockState::Block && self.line[..begun] == EXECNAME[..begun] {
                self.place = BlockState::Held;
            } else if self.place == BlockState::Held
                && self.held.len() <= MAX_RECOGNIZED_LINE
                && !self.may_become_execname()
            {
                out.append(&mut self.held);
                self.place = BlockState::Block;
            }
            let to = if self.place == BlockState::Held { &mut self.held } else { &mut out };
            to.extend_from_slice(part);
            if self.held.len() > MAX_BUFFERED {
                out.append(&mut self.held);
                self.place = BlockState::Outside;
            }
            if part.len() > text.len() {
                match (&self.line[..], self.place) {
                    (BLOCK_START, BlockState::Outside) => self.place = BlockState::Block,
                    (b"endcmd", place) => {
                        if place == BlockState::Held {
                            out.extend(rewrite_block(&std::mem::take(&mut self.held), &mut tap));
                        }
                        self.place = BlockState::Outside;
                    }
                    // A line that is shorter than `execname=` contains no name, so it is forwarded.
                    (line, BlockState::Held)
                        if self.held.len() <= MAX_RECOGNIZED_LINE && !line.starts_with(EXECNAME) =>
                    {
                        out.append(&mut self.held);
                        self.place = BlockState::Block;
                    }
                    _ => {}
                }
                self.line.clear();
            }
        }
        out
    }

    /// Returns whether the held-back line begins like an `execname`, or whether lines after an `execname` are held back.
    fn may_become_execname(&self) -> bool {
        let begun = self.line.len().min(EXECNAME.len());
        self.held.contains(&b'\n') || self.line[..begun] == EXECNAME[..begun]
    }

    /// Returns the bytes that are still held back. At the end of the connection, they are forwarded unchanged.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Returns the held-back bytes of a block, with a tap in place of the program if possible. The bytes begin with an `execname`.
fn rewrite_block(held: &[u8], tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut lines = held.split(|b| *b == b'\n');
    let name = lines.next().and_then(|line| line.strip_prefix(EXECNAME)).filter(|name| !name.is_empty());
    let elsewhere = lines.any(|line| line.starts_with(b"info_key_") && line.ends_with(b"=path"));
    match name.filter(|_| !elsewhere).and_then(|name| Some((name, tap(name)?))) {
        Some((name, path)) => [EXECNAME, &path, &held[EXECNAME.len() + name.len()..]].concat(),
        None => held.to_vec(),
    }
}

/// Returns a PMI-2 spawn request with taps as its programs; `None` if the request must be forwarded unchanged.
fn rewrite_frame(
    header: [u8; HEADER],
    body: &[u8],
    tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let read = Decoded::new(Direction::ToServer, Framing::Frames, body);
    let elsewhere = |key: &[u8], value: &[u8]| key.starts_with(b"infokey") && value == b"path";
    if !read.has_tuples() || read.tuples().any(|tuple| elsewhere(tuple.key, tuple.value)) {
        return None;
    }
    let mut out = Vec::with_capacity(body.len());
    for tuple in read.tuples() {
        let path = (tuple.key == b"subcmd" && !tuple.value.is_empty()).then(|| tap(tuple.value)).flatten();
        out.extend_from_slice(tuple.key);
        out.push(b'=');
        out.extend_from_slice(path.as_deref().unwrap_or(tuple.value));
        out.push(b';');
    }
    // The padding is on the same side of the length as in the client's header.
    let mut length = frame_header(out.len())?;
    if header[0] != b' ' {
        let blanks = length.iter().take_while(|b| **b == b' ').count();
        length.rotate_left(blanks);
    }
    Some([&length[..], &out].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &[u8] = b"cmd=init pmi_version=1\nmcmd=spawn\nnprocs=2\n\ne=1\nexec\nexecname=./a b\narg1=execname=x\n\nendcmd\nexecname=no\n";
    const EXPECTED: &[u8] = b"cmd=init pmi_version=1\nmcmd=spawn\nnprocs=2\n\ne=1\nexec\nexecname=/tap<./a b>\narg1=execname=x\n\nendcmd\nexecname=no\n";

    fn tap(name: &[u8]) -> Option<Vec<u8>> {
        Some([b"/tap<", name, b">"].concat())
    }

    #[test]
    fn rewrites_only_execname_for_any_chunk_size() {
        let twice = [BLOCK, BLOCK].concat();
        for size in 1..=twice.len() {
            let mut rewriter = Rewriter::default();
            if size % 2 == 0 {
                rewriter.read_response(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
            }
            let out: Vec<u8> =
                twice.chunks(size).flat_map(|piece| rewriter.pass(piece, tap).into_owned()).collect();
            assert_eq!(
                out.escape_ascii().to_string(),
                [EXPECTED, EXPECTED].concat().escape_ascii().to_string()
            );
            assert!(rewriter.finish().is_empty());
        }
    }

    const OFFER: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";
    const TAKEN: &[u8] = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";

    fn framed(body: &str) -> Vec<u8> {
        format!("{:<6}{body}", body.len()).into_bytes()
    }

    #[test]
    fn rewrites_programs_and_length_of_spawn_frames() {
        let spawn = |a: &str, b: &str| {
            framed(&format!(
                "cmd=spawn;ncmds=2;subcmd={a};maxprocs=1;argc=1;argv0=subcmd=x;subcmd={b};maxprocs=2;"
            ))
        };
        let other = [framed("cmd=kvs-put;key=subcmd;value=./a;"), framed("cmd=spa;"), framed("")].concat();
        let elsewhere =
            framed("cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;infokeycount=1;infokey0=path;infoval0=/bin;");
        let input = [&other[..], &spawn("./a", "b c"), &other, &elsewhere, b"     3"].concat();
        let expected = [&other[..], &spawn("/tap<./a>", "/tap<b c>"), &other, &elsewhere, b"     3"].concat();
        for size in 1..input.len() {
            let mut rewriter = Rewriter::default();
            assert_eq!(*rewriter.pass(OFFER, tap), *OFFER);
            rewriter.read_response(TAKEN);
            let mut out: Vec<u8> =
                input.chunks(size).flat_map(|piece| rewriter.pass(piece, tap).into_owned()).collect();
            out.extend(rewriter.finish());
            assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string());
        }
    }

    #[test]
    fn frame_sent_before_acceptance_is_unchanged() {
        let spawn = framed("cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;");
        for cut in 0..spawn.len() {
            let mut rewriter = Rewriter::default();
            let ahead = [OFFER, &spawn[..cut]].concat();
            assert_eq!(*rewriter.pass(&ahead, tap), *ahead);
            rewriter.read_response(TAKEN);
            let mut out = rewriter.pass(&spawn[cut..], tap).into_owned();
            out.extend(rewriter.finish());
            if cut > 0 {
                assert_eq!(out, spawn[cut..]);
            } else {
                assert_eq!(out, framed("cmd=spawn;ncmds=1;subcmd=/tap<a>;maxprocs=1;"));
            }
        }
    }

    #[test]
    fn forwards_frames_without_spawns_immediately() {
        let mut rewriter = Rewriter::default();
        rewriter.pass(OFFER, tap);
        rewriter.read_response(TAKEN);
        for piece in [&b"    14cmd=f"[..], b"inali", b"ze;", b"999999cmd=spawn;", &[b'x'; 999_989]] {
            assert_eq!(*rewriter.pass(piece, tap), *piece);
        }
        for piece in [&b"  -  1"[..], b"cmd=spawn;", b"\0"] {
            assert_eq!(*rewriter.pass(piece, tap), *piece);
        }
    }

    #[test]
    fn forwards_bytes_outside_blocks_immediately() {
        let mut rewriter = Rewriter::default();
        for piece in [&b"cmd=in"[..], b"it\ncmd=ge", b"t key=execname=x\n", b"exec", b"\0\xff"] {
            assert_eq!(*rewriter.pass(piece, tap), *piece);
        }
    }

    #[test]
    fn missing_or_overlong_names_are_not_rewritten() {
        let long = [b"mcmd=spawn\nexecname=".to_vec(), vec![b'x'; 2 * MAX_BUFFERED], b"\nendcmd\n".to_vec()]
            .concat();
        for input in [
            &long[..],
            b"mcmd=spawn\nexecname=\nendcmd\n",
            b"mcmd=spawn\nexecname=./a",
            b"mcmd=spawn\nexecname=a\ninfo_num=1\ninfo_key_0=path\ninfo_val_0=/bin\nendcmd\n",
        ] {
            let mut rewriter = Rewriter::default();
            let mut out: Vec<u8> =
                input.chunks(7).flat_map(|piece| rewriter.pass(piece, tap).into_owned()).collect();
            out.extend(rewriter.finish());
            assert_eq!(out, input);
        }
        let mut rewriter = Rewriter::default();
        let input = b"mcmd=spawn\nexecname=a\nendcmd\n";
        assert_eq!(*rewriter.pass(input, |_| None), *input);
    }
}
