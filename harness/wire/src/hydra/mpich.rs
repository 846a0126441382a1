//! The encoding of the control protocol of MPICH's Hydra. The module does no I/O.
//!
//! A connection carries an unframed first record from the proxy ([`ProxyInit`]), and then frames in both directions. A frame has a header
//! of `int` fields in host byte order, and a body.

use super::family::{Family, Header, ProxyInit};
use super::record::{BODY_MAX, CodecError, FrameAddress, ProxyMessage, ReceivedFrame};
use super::unread::Unread;
use super::vector::GroupLaunch;

/// The first bytes of tagged init records.
const TAG: [u8; 4] = *b"HYD\0";

/// Numbers of the commands sent to a proxy.
mod down {
    pub(super) const PROC_INFO: i32 = 1;
    pub(super) const PMI_RESPONSE: i32 = 2;
    pub(super) const STDIN: i32 = 4;
}

/// If a message for a proxy's cache exceeds this size in bytes, the next pair begins a new message.
const CACHE_MESSAGE_SIZE: usize = 32 * 1024;
/// Maximum number of pairs in a message for a proxy's cache. The proxies of MPICH 4.3 exit on a message of 1,000 tokens. `mpiexec` never
/// sends such a message.
const MAX_CACHE_PAIRS: usize = 500;

#[derive(Debug)]
pub(super) struct MpichDecoder {
    init: ProxyInit,
    header: Header,
    /// Number of processes that the proxy starts. The decoder needs this number because wide headers do not contain the lengths of
    /// per-process lists.
    processes: usize,
    begun: bool,
}

fn int(bytes: &[u8]) -> i32 {
    bytes.first_chunk().map_or(0, |four| i32::from_ne_bytes(*four))
}

fn ints(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(int).collect()
}

impl MpichDecoder {
    pub(super) fn new(family: Family, processes: usize) -> Self {
        let (init, header) = (family.init(), family.header());
        Self { init, header, processes, begun: false }
    }

    pub(super) fn next(&mut self, unread: &mut Unread) -> Result<Option<ReceivedFrame>, CodecError> {
        if !self.begun {
            return self.init(unread);
        }
        let rest = unread.rest();
        let head = match self.header {
            Header::Wide => 32,
            Header::Grouped => 24,
        };
        if rest.len() < head {
            return Ok(None);
        }
        let field = |at: usize| int(&rest[at..]);
        let command = field(0);
        let (group, route) = match self.header {
            Header::Wide => (None, field(8)),
            Header::Grouped => (Some(field(8)), field(20)),
        };
        let list = matches!(command, 5 | 6) && self.header == Header::Wide;
        let length = match command {
            5 | 6 if list => self.processes * 4,
            5..=9 => usize::try_from(field(4))
                .ok()
                .filter(|n| *n <= BODY_MAX)
                .ok_or(CodecError::Length { command, length: field(4) })?,
            10 => 0,
            _ => return Err(CodecError::Command(command)),
        };
        let Some(body) = rest.get(head..head + length) else { return Ok(None) };
        let what = match command {
            5 => ProxyMessage::Pids(ints(body)),
            6 => ProxyMessage::Ended(ints(body)),
            7 => ProxyMessage::Request { route, text: body.to_vec() },
            8 | 9 => ProxyMessage::Output { stderr: command == 9, bytes: body.to_vec() },
            _ => ProxyMessage::Terminated,
        };
        unread.read(head + length);
        Ok(Some(ReceivedFrame { group, message: what }))
    }

    fn init(&mut self, unread: &mut Unread) -> Result<Option<ReceivedFrame>, CodecError> {
        let seen = unread.rest();
        let wrong =
            || CodecError::Init { expected: self.init.len(), seen: seen[..seen.len().min(64)].to_vec() };
        if seen.len() < 4 {
            return Ok(None);
        }
        // The proxy sends no other bytes until it receives a command, so additional bytes are an error.
        let tagged = self.init != ProxyInit::Id;
        if seen.starts_with(&TAG) != tagged || seen.len() > self.init.len() {
            return Err(wrong());
        }
        if seen.len() < self.init.len() {
            return Ok(None);
        }
        let numbers = ints(if tagged { &seen[4..] } else { seen });
        let group = (self.init == ProxyInit::TaggedGroupId).then(|| numbers[0]);
        let proxy = *numbers.last().unwrap_or(&0);
        unread.read(self.init.len());
        self.begun = true;
        Ok(Some(ReceivedFrame { group, message: ProxyMessage::Init { proxy } }))
    }
}

fn frame(to: FrameAddress, command: i32, length: usize, number: i32, route: i32) -> Vec<u8> {
    let fields = match to.family.header() {
        Header::Wide => {
            let (length, pid, version) = match command {
                down::PROC_INFO => (-1, -1, -1),
                down::STDIN => (length as i32, -1, -1),
                _ => (length as i32, route, number),
            };
            vec![command, length, pid, version, -1, -1, -1, -1]
        }
        Header::Grouped => vec![command, length as i32, to.group, to.proxy, number, route],
    };
    fields.into_iter().flat_map(i32::to_ne_bytes).collect()
}

pub(super) fn launch(to: FrameAddress, launch: &GroupLaunch) -> Vec<u8> {
    let mut out = proc_info(to, &launch.options(to.family));
    // Only the first proxy of the first group receives standard input. This empty frame closes it.
    if (to.group, to.proxy) == (0, 0) {
        out.extend(frame(to, down::STDIN, 0, 0, 0));
    }
    out
}

fn proc_info(to: FrameAddress, options: &[Vec<u8>]) -> Vec<u8> {
    let mut out = frame(to, down::PROC_INFO, 0, 0, 0);
    out.extend((options.len() as i32).to_ne_bytes());
    for option in options {
        out.extend((option.len() as i32 + 1).to_ne_bytes());
        out.extend_from_slice(option);
        out.push(0);
    }
    out
}

pub(super) fn response(to: FrameAddress, route: i32, text: &[u8]) -> Vec<u8> {
    message(to, route, 1, text)
}

/// Encodes a complete message in PMI version `version` for the client that `route` identifies.
pub(super) fn message(to: FrameAddress, route: i32, version: i32, text: &[u8]) -> Vec<u8> {
    let mut out = frame(to, down::PMI_RESPONSE, text.len(), version, route);
    out.extend_from_slice(text);
    out
}

pub(super) fn barrier_out(to: FrameAddress, name: Option<&[u8]>) -> Vec<u8> {
    let name = name.map(|name| [b" group=", name].concat()).unwrap_or_default();
    response(to, 0, &[b"cmd=barrier_out", &name[..], b"\n"].concat())
}

pub(super) fn cache(to: FrameAddress, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut text = Vec::new();
    for (at, (key, value)) in pairs.iter().enumerate() {
        if text.is_empty() {
            text.extend_from_slice(b"cmd=keyval_cache");
        }
        text.push(b' ');
        text.extend_from_slice(key);
        text.push(b'=');
        for byte in value {
            if to.family.unescapes() && matches!(byte, b' ' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        if text.len() > CACHE_MESSAGE_SIZE || (at + 1) % MAX_CACHE_PAIRS == 0 || at + 1 == pairs.len() {
            text.push(b'\n');
            out.extend(response(to, 0, &text));
            text.clear();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_options_as_recorded() {
        let to = FrameAddress { family: Family::Mpich4_2, group: 1, proxy: 2 };
        let mut expected: Vec<u8> =
            [1_i32, 0, 1, 2, 0, 0, 2, 7].into_iter().flat_map(i32::to_ne_bytes).collect();
        expected.extend(b"--exec\0");
        expected.extend(1_i32.to_ne_bytes());
        expected.push(0);
        assert_eq!(proc_info(to, &[b"--exec".to_vec(), Vec::new()]), expected);
    }
}
