//! What a tap tells the recorder: a line of JSON and, behind it, the bytes it is about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use pmi_judge::event::{Bytes, Exit};

/// Most bytes that a tap reads, and tells of, at once. A datagram must hold them.
pub(super) const PIECE: usize = 32 * 1024;

/// Longest datagram.
pub(super) const DATAGRAM: usize = 256 * 1024;

/// A datagram's first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Process id of the program.
    pub(super) pid: i32,
    /// What happened.
    pub(super) what: Notice,
}

/// What happened at a tap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// The program is about to start.
    Started {
        /// The folder of the tap's path, which tells the process group.
        folder: String,
        /// The `PMI_*` variables.
        env: BTreeMap<String, String>,
        /// Arguments without the program.
        args: Vec<Bytes>,
        /// What is wrong with PMI_FD.
        bad_fd: Option<String>,
    },
    /// A block of a spawn request goes on with this folder's tap as its program.
    Spawns {
        /// The folder.
        folder: String,
    },
    /// The bytes behind go to the server.
    ToServer,
    /// The bytes behind go to the client.
    FromServer,
    /// The client has closed its connection.
    ClosedByClient,
    /// The server has closed it.
    ClosedByServer,
    /// The program has ended.
    Ended(Exit),
}

impl Head {
    /// The datagram.
    pub(super) fn datagram(&self, bytes: &[u8]) -> Vec<u8> {
        let mut all = serde_json::to_vec(self).unwrap_or_default();
        all.push(b'\n');
        all.extend_from_slice(bytes);
        all
    }

    /// Reads a datagram; `None` if it is none of ours.
    pub(super) fn read(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let end = memchr::memchr(b'\n', datagram)?;
        let head = serde_json::from_slice(&datagram[..end]).ok()?;
        Some((head, &datagram[end + 1..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_carries_any_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        for what in [Notice::ToServer, Notice::Ended(Exit::Signal(9))] {
            let head = Head { pid: 7, what };
            assert_eq!(Head::read(&head.datagram(&bytes)), Some((head, &bytes[..])));
        }
        assert_eq!(Head::read(b"junk\n"), None);
        assert_eq!(Head::read(b"{}"), None);
    }
}
