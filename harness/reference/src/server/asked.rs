//! The requests that a server serves.

use pmi_wire::{KeyvalSpaceRequest, Request, SpawnRequest, pmi2};

/// A request that may be made now.
#[derive(Debug)]
pub enum Asked<'a> {
    /// A line of RFC 13.
    Line(Request<'a>),
    /// A spawn whose last line has been read.
    Spawn(SpawnRequest),
    /// One about keyval spaces that processes create.
    KeyvalSpace(KeyvalSpaceRequest<'a>),
    /// A frame of PMI-2.
    Frame {
        /// Its thread.
        thrid: Option<Vec<u8>>,
        /// The request.
        request: pmi2::Request<'a>,
    },
    /// A frame with a command that PMI-2 does not have.
    UnknownFrame {
        /// Its thread.
        thrid: Option<Vec<u8>>,
        /// The command.
        command: Vec<u8>,
    },
}
