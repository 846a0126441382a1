//! The messages between Hydra's `mpiexec` and a proxy, in a form that all families share.

use super::family::Family;

/// Maximum length of a frame's body in bytes. A proxy that announces a longer body does not follow the protocol.
pub(super) const BODY_MAX: usize = 16 << 20;

/// A message from a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyMessage {
    /// The init record.
    Init {
        /// The number of the proxy in its process group.
        proxy: i32,
    },
    /// The process ids of the proxy's processes, in launch order.
    Pids(Vec<i32>),
    /// The wait statuses of the proxy's processes, in launch order.
    Ended(Vec<i32>),
    /// A request that the proxy forwards or makes itself.
    Request {
        /// The number that identifies the client. The response must repeat it.
        route: i32,
        /// The text of the request. Some families omit its terminator.
        text: Vec<u8>,
    },
    /// Key-value pairs that clients have put, from a proxy that does not forward each put as a request.
    Puts(Vec<(Vec<u8>, Vec<u8>)>),
    /// Output of a process.
    Output {
        /// True for standard error, false for standard output.
        stderr: bool,
        /// A part of the output.
        bytes: Vec<u8>,
    },
    /// A process closed its connection early. Proxies report this only on request.
    Terminated,
}

/// A frame from a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedFrame {
    /// The process group; `None` if the header does not contain it.
    pub group: Option<i32>,
    /// The message.
    pub message: ProxyMessage,
}

/// An error in the bytes from a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The proxy's first bytes are not a single init record in the family's form.
    #[error("expected an init record of {} bytes, but received {} bytes: {}", .expected, .seen.len(), .seen.escape_ascii())]
    Init {
        /// The expected length in bytes.
        expected: usize,
        /// The first bytes that were received.
        seen: Vec<u8>,
    },
    /// The frame has an unknown command.
    #[error("unknown command {0} in a frame")]
    Command(i32),
    /// The body is too long, or too short for its required content.
    #[error("a frame with command {command} has an invalid body length: {length} bytes")]
    Length {
        /// The number of the command.
        command: i32,
        /// The announced length in bytes.
        length: i32,
    },
}

/// The destination of frames: a process group at a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameAddress {
    /// The generation of the proxy's protocol.
    pub family: Family,
    /// The number of the process group.
    pub group: i32,
    /// The number of the proxy.
    pub proxy: i32,
}
