//! The life of a connection: init, finalize, abort, its end, and protocol errors.

use pmi_wire::{Framing, Operation, Proc, Version};

use super::state::{Phase, Server};
use crate::reply::Reply;

/// The version of PMI-2 that is spoken.
const V2_0: Version = Version { version: 2, subversion: 0 };

/// The reason why a message, or the end of a connection, is a protocol error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub String);

impl From<&str> for ProtocolError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<String> for ProtocolError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl Server {
    /// RFC 13, Version Negotiation. This server speaks 1.0 and 1.1, and 1.2 and 2.0 if it is set up so. A client whose highest
    /// version is lower cannot be served and is told so. It stays connected and may offer another version.
    pub(super) fn init(&mut self, from: Proc, offered: Version) -> Result<(), ProtocolError> {
        if self.process(from).phase == Phase::Joined {
            return Err("init twice".into());
        }
        if self.config.pmi2 && offered.version == V2_0.version {
            self.process_mut(from).framing = Framing::Frames;
            self.join(from, V2_0);
        } else if offered < Version::V1_0 {
            let why = format!("version {offered} is not supported, 1.0 and 1.1 are");
            self.reply(from, Reply::fail(Operation::Init, why));
        } else {
            let highest = if self.config.pmi12 { Version::V1_2 } else { Version::V1_1 };
            let used = offered.min(highest);
            self.process_mut(from).version = used;
            self.join(from, used);
        }
        Ok(())
    }

    /// Answers an init with the version that is used.
    pub fn join(&mut self, from: Proc, used: Version) {
        self.process_mut(from).phase = Phase::Joined;
        let reply = Reply::ok(Operation::Init)
            .with("pmi_version", used.version.to_string())
            .with("pmi_subversion", used.subversion.to_string());
        self.reply(from, reply);
    }

    /// The process closed its connection, or it ended. Without a finalize before, that is a protocol error, because the
    /// others might wait for this process for ever.
    pub fn closed(&mut self, from: Proc) {
        if self.is_gone(from) {
            return;
        }
        match self.close(from) {
            Err(error) => self.protocol_error(from, &error, b""),
            // A program that never speaks PMI is lawful, but no other process may wait for it in a barrier.
            Ok(()) => {
                self.fail_barrier(from.group);
                self.fail_fence(from.group);
            }
        }
    }

    /// Counts a process as gone.
    ///
    /// # Errors
    ///
    /// If it had to finalize before.
    pub fn close(&mut self, from: Proc) -> Result<(), ProtocolError> {
        let proc = self.process_mut(from);
        let phase = std::mem::replace(&mut proc.phase, Phase::Closed);
        let partial = !proc.framer.partial().is_empty();
        self.groups[from.group as usize].left += u32::from(phase != Phase::Finalized);
        match phase {
            Phase::Joined => Err("connection closed without finalize".into()),
            Phase::New if partial => Err("connection closed within a message".into()),
            Phase::New | Phase::Finalized | Phase::Closed => Ok(()),
        }
    }

    /// RFC 13, Error Handling: close the connection, abort the program, log what it was.
    pub fn protocol_error(&mut self, from: Proc, error: &ProtocolError, message: &[u8]) {
        let shown = message[..message.len().min(200)].escape_ascii();
        let reason = match message {
            b"" => format!("protocol error: {error}"),
            _ => format!("protocol error: {error}: \"{shown}\""),
        };
        self.abort(from, 1, reason);
    }

    /// RFC 13, PMI_Abort: all processes of the group end.
    pub(super) fn abort_requested(&mut self, from: Proc, exitcode: Option<i64>) {
        self.reply(from, Reply::ok(Operation::Abort));
        self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
    }

    /// RFC 13, PMI_Finalize: it is acknowledged at once, whatever the other processes do.
    pub(super) fn finalize(&mut self, from: Proc) {
        self.leave(from);
        self.reply(from, Reply::ok(Operation::Finalize));
        self.fail_barrier(from.group);
    }

    /// Counts a process as finalized.
    pub fn leave(&mut self, from: Proc) {
        self.process_mut(from).phase = Phase::Finalized;
        self.groups[from.group as usize].left += 1;
    }
}
