//! What the upstream and the runner say to each other, so that a scenario can look at what proxies pass on, and answer it.
//!
//! The upstream connects to the runner's socket, introduces itself ([`Hello`]) and waits for the first [`Command`], which is
//! [`Command::Hold`]. From then on it reports before it acts, and does as it is told. Both sides write lines of JSON.
//! Where there is no runner, the upstream serves by itself.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::agent;
use crate::event::{Bytes, What};

/// Longest line.
const LINE_MAX: usize = 64 << 20;

/// The upstream's first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    /// Its process id.
    pub(crate) upstream: u32,
}

/// What the runner orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Requests of these names (`get`, `spawn` ...) are the scenario's to answer.
    Hold(Vec<String>),
    /// Send this to a proxy of the first process group.
    Answer {
        /// Which.
        proxy: u32,
        /// Number of the request that it answers, answered before or not; `None` if it answers nothing.
        to: Option<u64>,
        /// The text, with its newline.
        text: Bytes,
    },
    /// Treat a request that was held as if it had not been.
    Usual(u64),
    /// Close the connection to a proxy of the first process group.
    Close(u32),
}

/// One end of the connection between upstream and runner.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) stream: UnixStream,
    buffer: Vec<u8>,
    unwritten: VecDeque<u8>,
    /// The other side is gone.
    pub(crate) over: bool,
}

impl Talk {
    /// Never waits once `stream` is in this place.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, buffer: Vec::new(), unwritten: VecDeque::new(), over: false })
    }

    /// The upstream's end: finds the runner by the agent's path, introduces itself and waits for the first order. `None`
    /// where nobody listens.
    pub(super) fn with_runner() -> Option<(Self, Command)> {
        let agent = std::env::var_os(agent::PATH_VARIABLE)?;
        let scratch = Path::new(&agent).parent()?.parent()?;
        let mut stream = UnixStream::connect(scratch.join(agent::SOCKET)).ok()?;
        let hello = serde_json::to_string(&Hello { upstream: std::process::id() }).ok()?;
        stream.write_all(format!("{hello}\n").as_bytes()).ok()?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.last() != Some(&b'\n') && line.len() < LINE_MAX {
            stream.read_exact(&mut byte).ok()?;
            line.push(byte[0]);
        }
        let first = serde_json::from_slice(&line).ok()?;
        Some((Self::new(stream).ok()?, first))
    }

    /// Whether something waits to be written.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Says something, now or when the other side has read what was said before.
    pub(crate) fn say(&mut self, what: &impl Serialize) {
        if let Ok(text) = serde_json::to_vec(what) {
            self.unwritten.extend(text);
            self.unwritten.push_back(b'\n');
        }
        self.flush();
        self.over |= self.unwritten.len() > LINE_MAX;
    }

    pub(crate) fn flush(&mut self) {
        while !self.unwritten.is_empty() && !self.over {
            let (front, _) = self.unwritten.as_slices();
            match rustix::net::send(&self.stream, front, rustix::net::SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.unwritten.drain(..n)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.over = true,
            }
        }
    }

    /// Everything that has been said by now. What is no such message ends the conversation.
    pub(crate) fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> Vec<T> {
        let mut chunk = [0; 64 * 1024];
        while !self.over && self.buffer.len() < LINE_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.over = true,
                Ok(n) => self.buffer.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.over = true,
            }
        }
        let end = self.buffer.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let mut heard = Vec::new();
        for line in self.buffer[..end].split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(message) => heard.push(message),
                Err(_) => self.over = true,
            }
        }
        self.buffer.drain(..end);
        self.over |= self.buffer.len() >= LINE_MAX;
        heard
    }
}

/// What the upstream may report: facts about proxies.
pub(crate) fn is_report(what: &What) -> bool {
    matches!(
        what,
        What::FromProxy { .. }
            | What::ToProxy { .. }
            | What::ClosedByUpstream { .. }
            | What::ProxyEnded { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_whole_and_in_order_however_they_were_cut() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Talk::new(a).unwrap(), Talk::new(b).unwrap());
        let long = Command::Answer { proxy: 1, to: None, text: Bytes(vec![b'x'; 1 << 20]) };
        here.say(&Command::Usual(7));
        here.say(&long);
        assert!(here.is_blocked());
        let mut heard: Vec<Command> = Vec::new();
        while heard.len() < 2 {
            heard.extend(there.hear());
            here.flush();
        }
        assert_eq!(heard, [Command::Usual(7), long]);
        drop(here);
        assert!(there.hear::<Command>().is_empty() && there.over);
    }

    #[test]
    fn what_is_no_message_ends_the_conversation() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut there = Talk::new(b).unwrap();
        a.write_all(b"junk\n").unwrap();
        assert!(there.hear::<Command>().is_empty() && there.over);
    }
}
