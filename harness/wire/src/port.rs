//! PMI_PORT: the process opens the connection, and receives its rank before the protocol begins on that connection.
//!
//! The environment of the process contains `PMI_PORT=HOST:PORT` and `PMI_ID`, but not `PMI_FD`, `PMI_RANK` or `PMI_SIZE`. The process
//! connects and identifies itself with `cmd=initack pmiid=ID`. The response has four lines, which MPICH's client reads in this order:
//! `cmd=initack`, which later servers extend, `cmd=set size=`, `cmd=set rank=` and `cmd=set debug=`. No specification describes this
//! exchange; this module follows MPICH's servers and clients.

use crate::grammar::parse_uint;
use crate::message::{Message, ValueReading};

/// Number of lines in a response to initack.
pub const LINES: usize = 4;

/// Maximum length in bytes of a response to initack: several times the length of any known server's response.
pub const MAX_RESPONSE: usize = 1024;

/// Returns the first message that a process sends, without the newline.
pub fn initack(id: &str) -> String {
    format!("cmd=initack pmiid={id}")
}

/// Returns the id of the process in an initack, or `None` for any other line.
pub fn initack_id(line: &[u8]) -> Option<u64> {
    let message = Message::parse(line, ValueReading::ToEndOfLine).ok()?;
    (message.get("cmd") == Some(b"initack")).then(|| message.get("pmiid")).flatten().and_then(parse_uint)
}

/// The content of the response to an initack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The size of the process group.
    pub size: u32,
    /// The rank of the process.
    pub rank: u32,
}

/// An error in a response to initack. MPICH's client rejects such a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} should be {expected}")]
pub struct GreetingError {
    /// The number of the line with the error, counted from 1.
    pub line: usize,
    /// A description of the expected line.
    pub expected: &'static str,
}

impl Greeting {
    /// Returns the four lines of the response, each with its newline. If `is_extended` is true, the first line also contains the rank and
    /// size, as in MPICH's servers since 4.1.
    pub fn lines(self, is_extended: bool) -> String {
        let Self { size, rank } = self;
        let more = if is_extended {
            format!(" rc=0 rank={rank} size={size} appnum=0 debug=0")
        } else {
            String::new()
        };
        format!("cmd=initack{more}\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0\n")
    }

    /// Parses the four lines of a greeting.
    ///
    /// # Errors
    ///
    /// Returns an error if the response is one that MPICH's client rejects. The error names the first invalid line.
    pub fn parse(text: &[u8]) -> Result<Self, GreetingError> {
        let mut lines = text.split_inclusive(|b| *b == b'\n').map(|line| line.strip_suffix(b"\n"));
        let mut next = |line: usize, expected: &'static str, command: &[u8], key: Option<&str>| {
            let wrong = GreetingError { line, expected };
            let text = lines.next().flatten().ok_or(wrong.clone())?;
            let body = Message::parse(text, ValueReading::ToEndOfLine).map_err(|_| wrong.clone())?;
            if body.get("cmd") != Some(command) || body.get("rc").is_some_and(|rc| rc != b"0") {
                return Err(wrong);
            }
            let Some(key) = key else { return Ok(0) };
            let number = body.get(key).and_then(parse_uint).and_then(|n| u32::try_from(n).ok());
            number.ok_or(wrong)
        };
        next(1, "cmd=initack, without an rc other than 0", b"initack", None)?;
        let size = next(2, "cmd=set size=SIZE", b"set", Some("size"))?;
        let rank = next(3, "cmd=set rank=RANK", b"set", Some("rank"))?;
        next(4, "cmd=set debug=NUMBER", b"set", Some("debug"))?;
        Ok(Self { size, rank })
    }
}

/// Parses the value of `PMI_PORT` into a host and a port.
pub fn address(variable: &str) -> Option<(&str, u16)> {
    let (host, port) = variable.rsplit_once(':')?;
    Some((host, port.parse().ok().filter(|port| *port != 0)?)).filter(|(host, _)| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_round_trips_in_both_forms() {
        let greeting = Greeting { size: 4, rank: 2 };
        for is_extended in [false, true] {
            assert_eq!(Greeting::parse(greeting.lines(is_extended).as_bytes()), Ok(greeting));
        }
        assert_eq!(initack_id(initack("17").as_bytes()), Some(17));
        assert_eq!(initack_id(b"cmd=init pmi_version=1 pmi_subversion=1"), None);
    }

    #[test]
    fn greeting_error_names_the_invalid_line() {
        let line = |text: &str| Greeting::parse(text.as_bytes()).unwrap_err().line;
        assert_eq!(line(""), 1);
        assert_eq!(line("cmd=initack rc=-1\n"), 1);
        assert_eq!(line("cmd=initack\ncmd=set rank=0\n"), 2);
        assert_eq!(line("cmd=initack\ncmd=set size=2\ncmd=set rank=one\n"), 3);
        assert_eq!(line("cmd=initack\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0"), 4, "no newline");
    }

    #[test]
    fn address_requires_a_host_and_a_port() {
        assert_eq!(address("127.0.0.1:4242"), Some(("127.0.0.1", 4242)));
        for wrong in ["", "host", ":1", "host:", "host:0", "host:70000"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
