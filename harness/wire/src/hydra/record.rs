//! What goes over a connection between Hydra's `mpiexec` and a proxy, alike for all families.

use super::family::Family;

/// Most bytes of a frame's body. A proxy that announces more does not speak the protocol.
pub(super) const BODY_MAX: usize = 16 << 20;

/// What a proxy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upward {
    /// Its init record.
    Init {
        /// Its number in its process group.
        proxy: i32,
    },
    /// Process ids of its processes, in order of launch.
    Pids(Vec<i32>),
    /// How its processes ended, as of `wait`, in the same order.
    Ended(Vec<i32>),
    /// A request that it passes on or makes itself.
    Request {
        /// Names the client; to be sent back with the answer.
        route: i32,
        /// The text, possibly without its end.
        text: Vec<u8>,
    },
    /// Pairs that its clients have put, where they do not come as a request.
    Puts(Vec<(Vec<u8>, Vec<u8>)>),
    /// Output of a process.
    Output {
        /// Which stream.
        stderr: bool,
        /// A part of it.
        bytes: Vec<u8>,
    },
    /// A process closed its connection early; told only on request.
    Terminated,
}

/// A frame of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Process group; `None` where the header does not tell.
    pub group: Option<i32>,
    /// What it says.
    pub what: Upward,
}

/// Why bytes are not what the family's proxies send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// No init record, or more than one.
    #[error("an init record of {} bytes was expected, but {} came: {}", .expected, .seen.len(), .seen.escape_ascii())]
    Init {
        /// Its length in bytes.
        expected: usize,
        /// The first bytes that came.
        seen: Vec<u8>,
    },
    /// A frame of no known command.
    #[error("a frame has the unknown command {0}")]
    Command(i32),
    /// A body that is too long, or too short for what must be in it.
    #[error("a frame of command {command} announces a body of {length} bytes")]
    Length {
        /// The command.
        command: i32,
        /// The length announced, in bytes.
        length: i32,
    },
}

/// A process group at a proxy, as frames to it say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Which generation it speaks.
    pub family: Family,
    /// The number of the process group.
    pub group: i32,
    /// The number of the proxy.
    pub proxy: i32,
}
