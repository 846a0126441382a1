//! The one change on the way: in a spawn request, `execname` names a tap that knows the program's name.
//!
//! Everything else passes as it came, piece by piece. Only from an `execname` line to the end of its block are bytes held
//! back: whether the process manager would look for the program in a `path` of its own, where no tap can be, is said last.

/// Most bytes of a block that are held back. A longer one passes unchanged, and its processes are not heard.
const LONGEST: usize = 256 * 1024;

/// Longest line whose end matters.
const LOOKED_AT: usize = 16;

const EXECNAME: &[u8] = b"execname=";

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// In a block, before its `execname`; or after it, where nothing is held.
    Block,
    /// The line may be an `execname`, or the block has had one: everything is held.
    Holding,
}

/// Finds the programs' names in the requests of one client.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    place: Place,
    /// The beginning of the line.
    line: Vec<u8>,
    held: Vec<u8>,
}

impl Rewriter {
    /// Passes a piece through. `tap` makes a tap for the program of this name and gives its path.
    pub(super) fn pass(&mut self, piece: &[u8], mut tap: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for part in piece.split_inclusive(|b| *b == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = (LOOKED_AT + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            let begun = self.line.len().min(EXECNAME.len());
            if self.place == Place::Block && self.line[..begun] == EXECNAME[..begun] {
                self.place = Place::Holding;
            } else if self.place == Place::Holding && self.held.len() <= LOOKED_AT && !self.may_be_name() {
                out.append(&mut self.held);
                self.place = Place::Block;
            }
            let to = if self.place == Place::Holding { &mut self.held } else { &mut out };
            to.extend_from_slice(part);
            if self.held.len() > LONGEST {
                out.append(&mut self.held);
                self.place = Place::Outside;
            }
            if part.len() > text.len() {
                match (&self.line[..], self.place) {
                    (b"mcmd=spawn", Place::Outside) => self.place = Place::Block,
                    (b"endcmd", place) => {
                        if place == Place::Holding {
                            out.extend(rewritten(&std::mem::take(&mut self.held), &mut tap));
                        }
                        self.place = Place::Outside;
                    }
                    // An empty line, or one that ends within the word, is no name.
                    (line, Place::Holding) if self.held.len() <= LOOKED_AT && !line.starts_with(EXECNAME) => {
                        out.append(&mut self.held);
                        self.place = Place::Block;
                    }
                    _ => {}
                }
                self.line.clear();
            }
        }
        out
    }

    /// Whether what is held, the beginning of a line, goes on like a name's line.
    fn may_be_name(&self) -> bool {
        let begun = self.line.len().min(EXECNAME.len());
        self.held.contains(&b'\n') || self.line[..begun] == EXECNAME[..begun]
    }

    /// What is held back, to be passed on as it is: nothing more will come.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// The rest of a block, from its `execname` on.
fn rewritten(held: &[u8], tap: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut lines = held.split(|b| *b == b'\n');
    let name = lines.next().and_then(|line| line.strip_prefix(EXECNAME)).filter(|name| !name.is_empty());
    let elsewhere = lines.any(|line| line.starts_with(b"info_key_") && line.ends_with(b"=path"));
    match name.filter(|_| !elsewhere).and_then(|name| Some((name, tap(name)?))) {
        Some((name, path)) => [EXECNAME, &path, &held[EXECNAME.len() + name.len()..]].concat(),
        None => held.to_vec(),
    }
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
    fn only_the_name_changes_however_it_is_cut() {
        let twice = [BLOCK, BLOCK].concat();
        for size in 1..=twice.len() {
            let mut rewriter = Rewriter::default();
            let out: Vec<u8> = twice.chunks(size).flat_map(|piece| rewriter.pass(piece, tap)).collect();
            assert_eq!(
                out.escape_ascii().to_string(),
                [EXPECTED, EXPECTED].concat().escape_ascii().to_string()
            );
            assert!(rewriter.finish().is_empty());
        }
    }

    #[test]
    fn pieces_outside_of_blocks_pass_at_once() {
        let mut rewriter = Rewriter::default();
        for piece in [&b"cmd=in"[..], b"it\ncmd=ge", b"t key=execname=x\n", b"exec", b"\0\xff"] {
            assert_eq!(rewriter.pass(piece, tap), piece);
        }
    }

    #[test]
    fn what_is_no_name_or_too_long_passes_unchanged() {
        let long =
            [b"mcmd=spawn\nexecname=".to_vec(), vec![b'x'; 2 * LONGEST], b"\nendcmd\n".to_vec()].concat();
        for input in [
            &long[..],
            b"mcmd=spawn\nexecname=\nendcmd\n",
            b"mcmd=spawn\nexecname=./a",
            b"mcmd=spawn\nexecname=a\ninfo_num=1\ninfo_key_0=path\ninfo_val_0=/bin\nendcmd\n",
        ] {
            let mut rewriter = Rewriter::default();
            let mut out: Vec<u8> = input.chunks(7).flat_map(|piece| rewriter.pass(piece, tap)).collect();
            out.extend(rewriter.finish());
            assert_eq!(out, input);
        }
        let mut rewriter = Rewriter::default();
        let input = b"mcmd=spawn\nexecname=a\nendcmd\n";
        assert_eq!(rewriter.pass(input, |_| None), input);
    }
}
