//! PMI-1 requests that RFC 13 omits but some process managers support: additional keyval spaces, and access to the pairs in a space by
//! index. MPICH's paper on process management describes their functions (`PMI_KVS_Create`, `PMI_KVS_Destroy`, `PMI_KVS_Iter_first`). The
//! messages here are those that MPICH's gforker answers.

use crate::grammar::{is_word, parse_uint};
use crate::message::{Message, ValueReading};
use crate::protocol::EXTRA_LINES;

/// Returns whether a command is one that some clients send although RFC 13 does not define it.
pub fn is_extra_command(cmd: &[u8]) -> bool {
    EXTRA_LINES.iter().any(|exchange| exchange.request.as_bytes() == cmd)
}

/// A request about additional keyval spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyvalSpaceRequest<'a> {
    /// `create_kvs`: creates a space.
    Create,
    /// `destroy_kvs`: destroys a space.
    Destroy {
        /// The name of the space.
        kvsname: &'a [u8],
    },
    /// `getbyidx`: gets a pair of a space by its index.
    ByIndex {
        /// The name of the space.
        kvsname: &'a [u8],
        /// The index of the pair, from 0.
        index: u64,
    },
}

impl<'a> KeyvalSpaceRequest<'a> {
    /// Parses a line without its newline. Returns `None` for any other request.
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
    fn parses_requests_like_gforker() {
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
