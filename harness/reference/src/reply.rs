//! A server's reply before it is bytes.

use pmi_wire::Operation;
use pmi_wire::pmi2::Command;

/// A reply of PMI-1 in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The operation it answers.
    pub op: Operation,
    /// 0 on success.
    pub rc: i64,
    /// Why it failed.
    pub msg: Option<String>,
    /// The operation's own tuples, in the order of RFC 13's grammar.
    pub fields: Vec<(&'static str, Vec<u8>)>,
}

impl Reply {
    /// Success without tuples of its own.
    pub fn ok(op: Operation) -> Self {
        Self { op, rc: 0, msg: None, fields: Vec::new() }
    }

    /// Adds a tuple.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((key, value.into()));
        self
    }

    /// Failure, with the reason for people. Blanks in it become underscores, as in Hydra's messages: RFC 13 has `msg` be a
    /// `string`, but clients that read no blanks (MPICH 4.0) take an answer with some for broken.
    pub fn fail(op: Operation, msg: impl AsRef<str>) -> Self {
        Self { op, rc: -1, msg: Some(msg.as_ref().replace(' ', "_")), fields: Vec::new() }
    }

    /// Success, or failure with its reason.
    pub fn of(op: Operation, done: Result<(), &str>) -> Self {
        done.map_or_else(|why| Self::fail(op, why), |()| Self::ok(op))
    }

    /// The line in the order of RFC 13's grammar, newline included. `msg` stands last, because it runs to the end of
    /// the line; RFC 13's answer to abort is a bare newline.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
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
        out
    }
}

/// A reply of PMI-2 in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameReply {
    /// What it answers.
    pub command: Command,
    /// Its `cmd` where that is not the command's own.
    pub name: Option<Vec<u8>>,
    /// The request's.
    pub thrid: Option<Vec<u8>>,
    /// 0 on success.
    pub rc: i64,
    /// Why it failed.
    pub errmsg: Option<String>,
    /// The command's own tuples, in the order of the draft.
    pub fields: Vec<(String, Vec<u8>)>,
}

impl FrameReply {
    /// Success without tuples of its own.
    pub fn ok(command: Command, thrid: Option<Vec<u8>>) -> Self {
        Self { command, name: None, thrid, rc: 0, errmsg: None, fields: Vec::new() }
    }

    /// Failure, with the reason for people.
    pub fn fail(command: Command, thrid: Option<Vec<u8>>, rc: i64, why: &str) -> Self {
        Self { rc, errmsg: Some(why.to_owned()), ..Self::ok(command, thrid) }
    }

    /// Adds a tuple.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((key.to_owned(), value.into()));
        self
    }

    /// Adds a value, or that there is none. The draft has it be `flag`; what all implementations write is `found`.
    #[must_use]
    pub fn found(self, value: Option<&Vec<u8>>) -> Self {
        match value {
            Some(value) => self.with("found", "TRUE").with("value", value.clone()),
            None => self.with("found", "FALSE"),
        }
    }

    /// All tuples in the order of the draft: `thrid` is the first behind `cmd`, `rc` and `errmsg` are the last.
    pub fn tuples(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let own = self.command.response_name().unwrap_or_default().as_bytes();
        let mut tuples = vec![(b"cmd".to_vec(), self.name.clone().unwrap_or_else(|| own.to_vec()))];
        tuples.extend(self.thrid.iter().map(|thrid| (b"thrid".to_vec(), thrid.clone())));
        tuples.extend(self.fields.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone())));
        tuples.push((b"rc".to_vec(), self.rc.to_string().into_bytes()));
        tuples.extend(self.errmsg.iter().map(|why| (b"errmsg".to_vec(), why.clone().into_bytes())));
        tuples
    }

    /// The frame: the length, and the tuples with their semicolons doubled.
    pub fn render(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64);
        for (key, value) in self.tuples() {
            body.extend(key);
            body.push(b'=');
            value.iter().for_each(|b| body.extend(std::iter::repeat_n(*b, 1 + usize::from(*b == b';'))));
            body.push(b';');
        }
        [format!("{:>6}", body.len()).into_bytes(), body].concat()
    }
}
