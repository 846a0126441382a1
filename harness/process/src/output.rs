//! Standard output and error of processes, split into lines and limited in size.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::process::Command;

use super::nonblocking;
use super::reactor::{Reactor, ReactorKey, WatchMode};
use pmi_judge::event::Bytes;

/// Maximum number of stored bytes of a line; the rest of the line is dropped.
pub const LINE_MAX: usize = 1024;
/// Maximum number of lines that are reported as they arrive.
pub const LINES_MAX: usize = 400;
/// Number of lines at the end of the output that are also reported if a process exceeds [`LINES_MAX`]. A process usually prints the reason
/// for its exit last.
const LAST_LINES: usize = 50;
/// Maximum number of bytes that are read at once.
const CHUNK_SIZE: usize = 64 * 1024;

/// The lines of a stream that is read in chunks.
#[derive(Debug, Default)]
pub struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Adds a chunk, and reports the complete lines without their newlines.
    pub fn push(&mut self, bytes: &[u8], report: &mut dyn FnMut(Vec<u8>)) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = LINE_MAX.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&text[..text.len().min(room)]);
            if part.len() > text.len() {
                report(std::mem::take(&mut self.partial));
            }
        }
    }

    /// Handles the end of the stream. Returns the last line if it is incomplete.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.partial)).filter(|line| !line.is_empty())
    }
}

/// Redirects a command's standard output and error into non-blocking pipes.
pub fn capture(command: &mut Command) -> io::Result<[PipeReader; 2]> {
    let (out, out_writer) = io::pipe()?;
    let (err, err_writer) = io::pipe()?;
    command.stdout(out_writer).stderr(err_writer);
    nonblocking(&out)?;
    nonblocking(&err)?;
    Ok([out, err])
}

#[derive(Default)]
struct OutputStream {
    pipe: Option<(PipeReader, Option<ReactorKey>)>,
    lines: Lines,
    last: LastLines,
}

/// The last lines of a stream that exceeds the limit.
#[derive(Debug, Default)]
struct LastLines {
    lines: VecDeque<Vec<u8>>,
    dropped: usize,
}

impl LastLines {
    fn keep(&mut self, line: Vec<u8>) {
        if self.lines.len() == LAST_LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
    }

    fn report(&mut self, emit: &mut dyn FnMut(Bytes)) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            emit(Bytes(format!("(lines left out: {dropped})").into_bytes()));
        }
        self.lines.drain(..).for_each(|line| emit(Bytes(line)));
    }
}

/// Standard output and error of a process, split into lines. The default value belongs to no process.
#[derive(Default)]
pub struct Output {
    streams: [OutputStream; 2],
    kept: usize,
}

impl Output {
    /// Captures the output of a command's processes.
    pub fn of(command: &mut Command) -> io::Result<Self> {
        let streams = capture(command)?
            .map(|pipe| OutputStream { pipe: Some((pipe, None)), ..OutputStream::default() });
        Ok(Self { streams, kept: 0 })
    }

    /// Registers the streams with the reactor. `source` returns the reactor's source for a stream; its argument is true for standard error.
    pub fn watch<S: Copy>(&mut self, reactor: &mut Reactor<S>, source: impl Fn(bool) -> S) -> io::Result<()> {
        for (stream, stderr) in self.streams.iter_mut().zip([false, true]) {
            if let Some((pipe, key)) = &mut stream.pipe {
                *key = Some(reactor.add(&*pipe, source(stderr), WatchMode::Read)?);
            }
        }
        Ok(())
    }

    /// Reads once, and reports the complete lines up to the limit.
    pub fn read<S: Copy>(&mut self, stderr: bool, reactor: &mut Reactor<S>, emit: &mut dyn FnMut(Bytes)) {
        let Self { streams, kept } = self;
        let OutputStream { pipe: open, lines, last } = &mut streams[usize::from(stderr)];
        let Some((pipe, key)) = open else { return };
        let mut keep = |line: Vec<u8>| {
            if *kept < LINES_MAX {
                *kept += 1;
                emit(Bytes(line));
            } else {
                last.keep(line);
            }
        };
        let mut buffer = [0; CHUNK_SIZE];
        match pipe.read(&mut buffer) {
            Ok(n) if n > 0 => {
                lines.push(&buffer[..n], &mut keep);
                if let Some(key) = key {
                    reactor.after_read(*key, n, buffer.len());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                if let Some(key) = key {
                    reactor.mark_ready(*key);
                }
            }
            _ => {
                lines.finish().into_iter().for_each(keep);
                last.report(emit);
                if let Some(key) = key {
                    reactor.remove(*key);
                }
                *open = None;
            }
        }
    }

    /// Reads until nothing is left, but at most [`LINES_MAX`] times, because a process may never stop writing.
    pub fn read_rest<S: Copy>(
        &mut self,
        stderr: bool,
        reactor: &mut Reactor<S>,
        emit: &mut dyn FnMut(Bytes),
    ) {
        for _ in 0..LINES_MAX {
            self.read(stderr, reactor, emit);
        }
        self.streams[usize::from(stderr)].last.report(emit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_long_lines_for_any_chunk_size() {
        let long = vec![b'x'; 3 * LINE_MAX];
        let text = [b"a\n\nb", &long[..], b"\nend"].concat();
        for size in [1, 2, 7, text.len()] {
            let (mut lines, mut emitted) = (Lines::default(), Vec::new());
            text.chunks(size).for_each(|piece| lines.push(piece, &mut |line| emitted.push(line)));
            let cut = [b"b", &long[..LINE_MAX - 1]].concat();
            assert_eq!(emitted, [b"a".to_vec(), Vec::new(), cut]);
            assert_eq!((lines.finish(), lines.finish()), (Some(b"end".to_vec()), None));
        }
    }

    #[test]
    fn keeps_first_and_last_lines_of_a_flood() {
        let mut command = Command::new("yes");
        let mut output = Output::of(&mut command).unwrap();
        let mut reactor = Reactor::new().unwrap();
        output.watch(&mut reactor, |stderr| stderr).unwrap();
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut line_count = 0;
        for _ in 0..3 {
            for ready in reactor.wait(None).unwrap() {
                output.read(ready.source, &mut reactor, &mut |line| {
                    assert_eq!(line.0, b"y");
                    line_count += 1;
                });
            }
        }
        assert_eq!(line_count, LINES_MAX);
        let mut rest = Vec::new();
        output.read_rest(false, &mut reactor, &mut |line| rest.push(line.to_string()));
        assert_eq!(rest.len(), 1 + LAST_LINES);
        assert!(rest[0].starts_with("(lines left out: ") && rest[1..].iter().all(|line| line == "y"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
