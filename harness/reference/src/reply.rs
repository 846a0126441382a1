//! A server's reply before it is bytes.

use pmi_wire::Operation;

/// A reply in parts: what faults and variations change before it is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The operation it answers.
    pub(crate) op: Operation,
    /// 0 on success.
    pub(crate) rc: i64,
    /// Why it failed.
    pub(crate) msg: Option<String>,
    /// The operation's own tuples, in the order of RFC 13's grammar.
    pub(crate) fields: Vec<(&'static str, Vec<u8>)>,
}

impl Reply {
    /// Success without tuples of its own.
    pub(crate) fn ok(op: Operation) -> Self {
        Self { op, rc: 0, msg: None, fields: Vec::new() }
    }

    /// Adds a tuple.
    #[must_use]
    pub(crate) fn with(mut self, key: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((key, value.into()));
        self
    }

    /// Failure, with the reason for people. Blanks in it become underscores, as in Hydra's messages: RFC 13 has `msg` be a
    /// `string`, but clients that read no blanks (MPICH 4.0) take an answer with some for broken.
    pub(crate) fn fail(op: Operation, msg: impl AsRef<str>) -> Self {
        Self { op, rc: -1, msg: Some(msg.as_ref().replace(' ', "_")), fields: Vec::new() }
    }

    /// The line in the order of RFC 13's grammar, newline included. `msg` stands last, because it runs to the end of
    /// the line; RFC 13's answer to abort is a bare newline.
    pub(crate) fn render(&self, out: &mut Vec<u8>) {
        if let Some(cmd) = self.op.response_cmd() {
            out.extend_from_slice(b"cmd=");
            out.extend_from_slice(cmd.as_bytes());
            out.extend_from_slice(b" rc=");
            out.extend_from_slice(self.rc.to_string().as_bytes());
            for (key, value) in &self.fields {
                out.push(b' ');
                out.extend_from_slice(key.as_bytes());
                out.push(b'=');
                out.extend_from_slice(value);
            }
            if let Some(msg) = &self.msg {
                out.extend_from_slice(b" msg=");
                out.extend_from_slice(msg.as_bytes());
            }
        }
        out.push(b'\n');
    }
}
