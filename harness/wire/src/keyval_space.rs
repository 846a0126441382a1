//! Requests of PMI-1 that RFC 13 left out and some process managers have: further keyval spaces, and the pairs of one by their
//! number. MPICH's paper on process management has their functions (`PMI_KVS_Create`, `PMI_KVS_Destroy`, `PMI_KVS_Iter_first`); on
//! the wire they are what MPICH's gforker answers.

use crate::grammar::{is_word, parse_uint};
use crate::message::{Message, ValueReading};
use crate::protocol::EXTRA_LINES;

/// Whether a command is one that RFC 13 does not have and some clients send.
pub fn is_extra_command(cmd: &[u8]) -> bool {
    EXTRA_LINES.iter().any(|exchange| exchange.request.as_bytes() == cmd)
}

/// Such a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyvalSpaceRequest<'a> {
    /// `create_kvs`: a new space.
    Create,
    /// `destroy_kvs`: the end of one.
    Destroy {
        /// Which.
        kvsname: &'a [u8],
    },
    /// `getbyidx`: a pair of one, by its number.
    ByIndex {
        /// Which space.
        kvsname: &'a [u8],
        /// From 0.
        index: u64,
    },
}

impl<'a> KeyvalSpaceRequest<'a> {
    /// Reads a line without its newline; `None` if it is something else.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let message = Message::parse(line, ValueReading::ToEndOfLine).ok()?;
        let kvsname = || message.get("kvsname").filter(|name| is_word(name));
        match message.cmd()? {
            b"create_kvs" => Some(Self::Create),
            b"destroy_kvs" => Some(Self::Destroy { kvsname: kvsname()? }),
            b"getbyidx" => {
                Some(Self::ByIndex { kvsname: kvsname()?, index: parse_uint(message.get("idx")?)? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyvalSpaceRequest as Request;

    #[test]
    fn requests_are_read_as_gforker_reads_them() {
        assert_eq!(Request::parse(b"cmd=create_kvs"), Some(Request::Create));
        assert_eq!(Request::parse(b"cmd=destroy_kvs kvsname=a"), Some(Request::Destroy { kvsname: b"a" }));
        let by_index = Request::ByIndex { kvsname: b"a", index: 7 };
        assert_eq!(Request::parse(b"cmd=getbyidx kvsname=a idx=7"), Some(by_index));
        for other in [
            "cmd=destroy_kvs",
            "cmd=getbyidx kvsname=a",
            "cmd=getbyidx kvsname=a idx=x",
            "cmd=get_maxes",
            "what",
        ] {
            assert_eq!(Request::parse(other.as_bytes()), None, "{other}");
        }
    }
}
