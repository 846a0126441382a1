//! The life cycle of a connection: init, finalize, abort, the end of the connection, and protocol errors.

use pmi_wire::{Framing, Proc, Version};

use super::state::{ProcessPhase, Server};
use crate::response::{OperationResult, ResponseHeader};

/// The reason why a message, or the end of a connection, is a protocol error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProtocolError(pub String);

impl<T: Into<String>> From<T> for ProtocolError {
    fn from(why: T) -> Self {
        Self(why.into())
    }
}

impl Server {
    /// Handles init. RFC 13, "Version Negotiation": the client offers its highest version, and the server responds with the version to use.
    /// This server supports 1.0 and 1.1, and also 1.2 and 2.0 if they are enabled in its settings. It refuses a client that offers a lower
    /// version. The client stays connected, and may offer a different version. Draft, "The protocol": after the init line, a PMI-2
    /// connection uses frames.
    pub(super) fn init(
        &mut self,
        from: Proc,
        header: ResponseHeader,
        offered: Version,
    ) -> Result<(), ProtocolError> {
        if self.process(from).phase == ProcessPhase::Joined {
            return Err("init twice".into());
        }
        if self.config.pmi2 && offered.version == Version::V2_0.version {
            self.process_mut(from).framing = Framing::Frames;
            self.join(from, header, Version::V2_0);
        } else if offered < Version::V1_0 {
            let why = format!("version {offered} is not supported: offer 1.0 or later");
            self.reply(from, header, OperationResult::failed(why));
        } else {
            let highest = if self.config.pmi12 { Version::V1_2 } else { Version::V1_1 };
            let used = offered.min(highest);
            self.process_mut(from).version = used;
            self.join(from, header, used);
        }
        Ok(())
    }

    /// Answers an init with the version to use.
    pub fn join(&mut self, from: Proc, header: ResponseHeader, used: Version) {
        self.process_mut(from).phase = ProcessPhase::Joined;
        let answer = OperationResult::done()
            .with_number("pmi_version", used.version)
            .with_number("pmi_subversion", used.subversion);
        self.reply(from, header, answer);
    }

    /// Handles fullinit (draft, "`PMI_Init`"). All keys of fullinit are optional. The server identifies the process by its connection and
    /// needs no authentication. It refuses a client that requests authentication.
    pub(super) fn fullinit(&mut self, from: Proc, authtype: Option<&[u8]>) -> OperationResult {
        if authtype.is_some() {
            return OperationResult::failed("unknown authtype");
        }
        self.process_mut(from).has_fullinit = true;
        let answer = OperationResult::done()
            .with_number("pmi-version", Version::V2_0.version)
            .with_number("pmi-subversion", Version::V2_0.subversion)
            .with_number("rank", from.rank)
            .with_number("size", self.size(from.group))
            .with_number("appnum", self.appnum(from));
        let answer = match &self.groups[from.group as usize].spawner {
            Some(jobid) => answer.with("spawner-jobid", jobid.clone()),
            None => answer,
        };
        answer.with("debugged", "FALSE").with("pmiverbose", "FALSE")
    }

    /// Handles the end of a connection, which RFC 13 does not mention. If the process is between init and finalize, or within a message
    /// before init, this server treats the end as a protocol error. Without this rule, the other processes might wait for this process
    /// forever. A process may also end before its init. Barriers that need this process then fail.
    pub fn closed(&mut self, from: Proc) {
        if self.is_gone(from) {
            return;
        }
        match self.close(from) {
            Err(error) => self.protocol_error(from, &error, b""),
            Ok(()) => self.fail_lost_barriers(from.group),
        }
    }

    /// Records that the connection of a process has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the process should have finalized first, or if the connection ended within a message before init.
    pub fn close(&mut self, from: Proc) -> Result<(), ProtocolError> {
        let proc = self.process_mut(from);
        let phase = std::mem::replace(&mut proc.phase, ProcessPhase::Closed);
        let partial = !proc.framer.partial().is_empty();
        self.groups[from.group as usize].left_count += u32::from(phase != ProcessPhase::Finalized);
        match phase {
            ProcessPhase::Joined => Err("connection closed without finalize".into()),
            ProcessPhase::New if partial => Err("connection closed within a message".into()),
            ProcessPhase::New | ProcessPhase::Finalized | ProcessPhase::Closed => Ok(()),
        }
    }

    /// Handles a protocol error. RFC 13, "Error Handling": "the detecting side SHALL immediately close the connection and abort the
    /// program. IT SHOULD log the message".
    pub fn protocol_error(&mut self, from: Proc, error: &ProtocolError, message: &[u8]) {
        let shown = message[..message.len().min(200)].escape_ascii();
        let reason = match message {
            b"" => format!("protocol error: {error}"),
            _ => format!("protocol error: {error}: \"{shown}\""),
        };
        self.abort(from, 1, reason);
    }

    /// Handles an abort: all processes of the group end. In RFC 13 ("`PMI_Abort`"), the response is an empty line ("Protocol Definition",
    /// `S:abort`). In the draft ("`PMI_Abort`"), no response follows.
    pub(super) fn abort_requested(&mut self, from: Proc, header: ResponseHeader, exitcode: Option<i64>) {
        self.reply(from, header, OperationResult::done());
        self.abort(from, exitcode.unwrap_or(1), "abort requested".into());
    }

    /// Handles finalize (RFC 13, "`PMI_Finalize`"; draft, "`PMI_Finalize`"). The server responds immediately and does not wait for other
    /// processes. A barrier that needs this process fails: see [`Server::fail_lost_barriers`].
    pub(super) fn finalize(&mut self, from: Proc, header: ResponseHeader) {
        self.leave(from);
        self.reply(from, header, OperationResult::done());
        self.fail_lost_barriers(from.group);
    }

    /// Records that a process has finalized.
    pub fn leave(&mut self, from: Proc) {
        self.process_mut(from).phase = ProcessPhase::Finalized;
        self.groups[from.group as usize].left_count += 1;
    }
}
