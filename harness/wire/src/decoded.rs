//! Messages of either framing and direction, decoded with the protocol table.

use std::borrow::Cow;

use crate::error::DecodeError;
use crate::grammar::{Rule, parse_bool, parse_int, parse_uint};
use crate::message::{Message, ValueReading};
use crate::pmi2::{Body, SemicolonReading};
use crate::protocol::{
    Exchange, Field, Framing, Operation, common_arguments, common_results, documented_exchanges,
    undocumented_exchanges, without_extensions,
};
use crate::spawn::SpawnRequest;
use crate::{Direction, KvsLimits, Tuple, Version};

/// A decoded message.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The direction of the message.
    pub direction: Direction,
    /// The framing of the message.
    pub framing: Framing,
    /// A line without its newline, or the body of a frame.
    pub text: &'a [u8],
    tuples: Option<DecodedTuples<'a>>,
    exchange: Option<&'static Exchange>,
    /// The operation of the exchange, if RFC 13 defines it.
    operation: Option<Operation>,
    spawn: Option<Box<SpawnRequest>>,
    error: Option<DecodeError>,
}

/// The outcome that a response reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResponseOutcome {
    /// The operation succeeded, and the requested key or name was found.
    Success,
    /// The key or name was not found, according to a PMI-2 flag such as `found`.
    Miss,
    /// The operation failed: `rc` is not 0.
    Failure,
}

#[derive(Debug, Clone, Copy)]
enum DecodedTuples<'a> {
    Line(Message<'a>),
    Frame(Body<'a>),
}

/// Maximum number of keys that may appear only once in a line: the [`common_keys`] and the keys of a row in the protocol table.
const MAX_UNIQUE_KEYS: usize = 6;

/// Returns the keys that may appear only once in any line.
fn common_keys(direction: Direction) -> &'static [&'static str] {
    match direction {
        Direction::ToServer => &["cmd"],
        Direction::FromServer => &["cmd", "rc", "msg"],
    }
}

/// The keys of counts that no known server checks.
const UNCHECKED_COUNTS: [&str; 2] = ["infokeycount", "count"];

impl<'a> Decoded<'a> {
    /// Decodes a message. In a line, `value` extends to the end of the line, as in RFC 13. In a frame, two semicolons in a value are read
    /// as a single semicolon, as in the draft.
    pub fn new(direction: Direction, framing: Framing, text: &'a [u8]) -> Self {
        match framing {
            Framing::Lines => Self::line(direction, text, ValueReading::ToEndOfLine),
            Framing::Frames => Self::body(direction, text, SemicolonReading::Doubled),
        }
    }

    /// Decodes a line without its newline.
    pub fn line(direction: Direction, text: &'a [u8], reading: ValueReading) -> Self {
        let mut decoded = Self::undecoded(direction, Framing::Lines, text);
        if direction == Direction::FromServer && text.is_empty() {
            decoded.exchange = Some(Operation::Abort.exchange());
            decoded.operation = Some(Operation::Abort);
            return decoded;
        }
        let checked = Message::parse(text, reading).map_err(DecodeError::from).and_then(|message| {
            decoded.tuples = Some(DecodedTuples::Line(message));
            decoded.check_line(message)
        });
        decoded.error = checked.err();
        decoded
    }

    /// Decodes the body of a frame.
    pub fn body(direction: Direction, text: &'a [u8], reading: SemicolonReading) -> Self {
        let mut decoded = Self::undecoded(direction, Framing::Frames, text);
        let checked = Body::parse(text, reading).map_err(DecodeError::from).and_then(|body| {
            decoded.tuples = Some(DecodedTuples::Frame(body));
            decoded.check_body(body)
        });
        decoded.error = checked.err();
        decoded
    }

    fn undecoded(direction: Direction, framing: Framing, text: &'a [u8]) -> Self {
        Self {
            direction,
            framing,
            text,
            tuples: None,
            exchange: None,
            operation: None,
            spawn: None,
            error: None,
        }
    }

    /// Finds and stores the row of the command in the protocol table.
    fn find(&mut self, command: &[u8]) -> Result<&'static Exchange, DecodeError> {
        let fits =
            |row: &&Exchange| row.command(self.direction).is_some_and(|word| word.as_bytes() == command);
        let found = documented_exchanges(self.framing).iter().find(fits);
        self.exchange = found.or_else(|| undocumented_exchanges(self.framing).iter().find(fits));
        self.operation = found.and_then(|row| Operation::from_rule(row.operation));
        found.ok_or(DecodeError::UnknownCommand { framing: self.framing, direction: self.direction })
    }

    /// Checks a line. Tuples may be in any order, and unknown keys are allowed.
    fn check_line(&mut self, message: Message<'a>) -> Result<(), DecodeError> {
        let is_request = self.direction == Direction::ToServer;
        let Some(command) = message.cmd() else {
            return Err(match message.get("mcmd") {
                Some(b"spawn") if is_request => DecodeError::SpawnOutsideBlock,
                _ => DecodeError::NoCommand { framing: self.framing },
            });
        };
        let row = self.find(command)?;
        if is_request && row.is_block {
            return Err(DecodeError::SpawnOutsideBlock);
        }
        let fields = without_extensions(row.fields(self.direction));
        let own = common_keys(self.direction);
        let mut keys = [""; MAX_UNIQUE_KEYS];
        for (key, known) in keys.iter_mut().zip(own.iter().copied().chain(fields.clone().map(|f| f.key))) {
            *key = known;
        }
        let found = message.fields(keys).map_err(|key| DecodeError::RepeatedKey(key.into()))?;
        let (rc, values) = (found[1].filter(|_| !is_request), &found[own.len()..]);
        if rc.is_some_and(|rc| !Rule::Int.accepts(rc)) {
            return Err(DecodeError::value("rc", Rule::Int, self.framing));
        }
        // RFC 13 allows a response to omit all of its fields, but not just some of them.
        let is_optional = |field: &Field| {
            if is_request { field.optional } else { values.iter().all(Option::is_none) }
        };
        let mut missing = None;
        for (field, value) in fields.zip(values) {
            match value {
                Some(value) if !field.rule.accepts(value) => {
                    return Err(DecodeError::value(field.key, field.rule, self.framing));
                }
                None if !is_optional(field) && is_request => {
                    return Err(DecodeError::MissingKey(field.key.into()));
                }
                None if !is_optional(field) => missing = missing.or(Some(field.key)),
                _ => {}
            }
        }
        missing.map_or(Ok(()), |key| Err(DecodeError::MissingKey(key.into())))
    }

    /// Checks a body. After `cmd`, keys may be in any order, and unknown keys are allowed.
    fn check_body(&mut self, body: Body<'a>) -> Result<(), DecodeError> {
        let is_request = self.direction == Direction::ToServer;
        let command = body.cmd().ok_or(DecodeError::NoCommand { framing: self.framing })?;
        let row = self.find(command)?;
        if is_request && body.tuples().last().is_some_and(|tuple| tuple.key == b"concat") {
            // The rest of the command follows in other messages, so the fields are not checked.
            return self.find(b"concat").map(drop);
        }
        let is_spawn = is_request && row.request == "spawn";
        let fields = || row.fields(self.direction).iter().filter(|field| !field.numbered);
        // A spawn request has a section for each program, so the keys of the command may repeat.
        let own = fields().filter(|_| !is_spawn).map(|field| field.key);
        let common = self.common_fields().iter().map(|field| field.key);
        let mut keys = own.chain(common).chain((!is_spawn).then_some("cmd"));
        if let Some(key) = keys.find(|key| body.has_duplicate(key)) {
            return Err(DecodeError::RepeatedKey(key.into()));
        }
        if is_spawn {
            self.spawn = SpawnRequest::of_body(&body)?.map(Box::new);
            return Ok(());
        }
        if !is_request {
            return match body.raw("rc").map(|rc| Rule::Int.accepts(rc)) {
                Some(true) => Ok(()),
                Some(false) => Err(DecodeError::value("rc", Rule::Int, self.framing)),
                None => Err(DecodeError::MissingKey("rc".into())),
            };
        }
        for field in fields().filter(|field| !UNCHECKED_COUNTS.contains(&field.key)) {
            // Words in PMI-2 are not checked, because no implementation restricts their characters.
            let is_checked = matches!(field.rule, Rule::Uint | Rule::Int | Rule::Bool);
            match body.raw(field.key) {
                Some(value) if is_checked && !field.rule.accepts(value) => {
                    return Err(DecodeError::value(field.key, field.rule, self.framing));
                }
                None if !field.optional => return Err(DecodeError::MissingKey(field.key.into())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the fields, besides `cmd`, that every message in this direction may have.
    fn common_fields(&self) -> &'static [Field] {
        match self.direction {
            Direction::ToServer => common_arguments(self.framing),
            Direction::FromServer => common_results(self.framing),
        }
    }

    /// Returns whether the message follows the grammar of its framing.
    pub fn is_well_formed(&self) -> bool {
        self.error.is_none()
    }

    /// Returns whether the message is a series of tuples.
    pub fn has_tuples(&self) -> bool {
        self.tuples.is_some()
    }

    /// Returns the violation of the grammar, if any.
    pub fn error(&self) -> Option<&DecodeError> {
        self.error.as_ref()
    }

    /// Returns the message's row in the protocol table. A message with a known command has a row even if it violates the grammar.
    pub fn exchange(&self) -> Option<&'static Exchange> {
        self.exchange
    }

    /// Returns the operation of a well-formed message, if RFC 13 defines it. In frames, fullinit counts as init.
    pub fn operation(&self) -> Option<Operation> {
        self.operation.filter(|_| self.is_well_formed())
    }

    /// Returns the programs of a well-formed spawn request in a frame. Returns `None` if the programs follow in separate messages, as in
    /// the draft.
    pub fn spawn(&self) -> Option<&SpawnRequest> {
        self.spawn.as_deref()
    }

    /// Returns whether the message is a well-formed PMI-2 request that only the draft describes, or a part of such a request. Returns false
    /// for requests whose only field is the id of a job.
    pub fn is_request_part(&self) -> bool {
        let is_part = |row: &Exchange| match row.operation {
            "connect" | "disconnect" | "get-all" => false,
            "spawn" => self.spawn.is_none(),
            _ => row.is_draft_only(),
        };
        let is_request = self.direction == Direction::ToServer && self.framing == Framing::Frames;
        is_request && self.is_well_formed() && self.exchange.is_some_and(is_part)
    }

    /// Returns the command word: the value of `cmd`, which is the first tuple of a frame.
    pub fn command(&self) -> Option<&'a [u8]> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.cmd(),
            DecodedTuples::Frame(body) => body.cmd(),
        }
    }

    /// Returns the tuples in order, without unescaping their values. Returns no tuples for a message that is not a series of tuples.
    pub fn tuples(&self) -> impl Iterator<Item = Tuple<'a>> + use<'a> {
        let (line, body) = match self.tuples {
            Some(DecodedTuples::Line(message)) => (Some(message), None),
            Some(DecodedTuples::Frame(body)) => (None, Some(body)),
            None => (None, None),
        };
        let line = line.into_iter().flat_map(|message| message.tuples());
        line.chain(body.into_iter().flat_map(|body| body.tuples()))
    }

    /// Returns the value of the first tuple with this key, without unescaping it.
    pub fn raw(&self, key: &str) -> Option<&'a [u8]> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.get(key),
            DecodedTuples::Frame(body) => body.raw(key),
        }
    }

    /// Returns the value of the first tuple with this key.
    pub fn value(&self, key: &str) -> Option<Cow<'a, [u8]>> {
        match self.tuples? {
            DecodedTuples::Line(message) => message.get(key).map(Cow::Borrowed),
            DecodedTuples::Frame(body) => body.value(key),
        }
    }

    /// Returns the value of the first tuple with this key as a number; `None` if it is not an unsigned integer below 2^64.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.raw(key).and_then(parse_uint)
    }

    /// Returns the value of the first tuple with this key as a Boolean; `None` if it is neither true nor false.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.raw(key).and_then(parse_bool)
    }

    /// Returns the value of a field, given its name in the protocol table, which is the same in both framings. If several keys have this
    /// name, the key with the same spelling takes precedence.
    pub fn field(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let own = self.exchange?.fields(self.direction);
        let fields = || own.iter().chain(self.common_fields()).filter(|field| field.name == name);
        let mut keys = fields().filter(|field| field.key == name).chain(fields());
        keys.find_map(|field| self.value(field.key))
    }

    /// Returns whether a response contains none of the results of its operation. Returns false if the operation has no results.
    pub fn lacks_results(&self) -> bool {
        let results = self.exchange.map_or(&[][..], |exchange| exchange.results);
        !results.is_empty() && results.iter().all(|field| self.raw(field.key).is_none())
    }

    /// Returns the return code `rc`.
    pub fn rc(&self) -> Option<i64> {
        self.raw("rc").and_then(parse_int)
    }

    /// Returns the outcome of a well-formed response. Returns `None` for any other message, and for a response whose flag for a miss is
    /// neither true nor false. The draft calls this field `flag`, and implementations call it `found`.
    pub fn outcome(&self) -> Option<ResponseOutcome> {
        let is_response = self.direction == Direction::FromServer && self.is_well_formed();
        if !is_response || !is_zero(self.rc()) {
            return is_response.then_some(ResponseOutcome::Failure);
        }
        let flag = self.raw("found").or_else(|| self.raw("flag")).filter(|_| self.framing == Framing::Frames);
        match flag.map(parse_bool) {
            None | Some(Some(true)) => Some(ResponseOutcome::Success),
            Some(Some(false)) => Some(ResponseOutcome::Miss),
            Some(None) => None,
        }
    }

    /// Returns whether this is a well-formed response whose `rc`, if it has one, is 0 (RFC 13, "Error Handling").
    pub fn is_success(&self) -> bool {
        self.direction == Direction::FromServer && self.is_well_formed() && is_zero(self.rc())
    }

    /// Returns whether this is a well-formed response whose `rc` is not 0.
    pub fn is_refusal(&self) -> bool {
        self.outcome() == Some(ResponseOutcome::Failure)
    }

    /// Returns the version of a well-formed init line, or of the response to it.
    pub fn version(&self) -> Option<Version> {
        if self.framing == Framing::Frames || self.operation() != Some(Operation::Init) {
            return None;
        }
        let (version, subversion) = self.number("pmi_version").zip(self.number("pmi_subversion"))?;
        Some(Version { version, subversion })
    }

    /// Returns the limits in a well-formed response to get_maxes.
    pub fn limits(&self) -> Option<KvsLimits> {
        if self.operation() != Some(Operation::Maxes) {
            return None;
        }
        Some(KvsLimits {
            kvsname_max: self.number("kvsname_max")?,
            keylen_max: self.number("keylen_max")?,
            vallen_max: self.number("vallen_max")?,
        })
    }

    /// Returns whether a line has exactly the form of its row in the table. The tuples must be in the same order with single spaces between
    /// them, numbers must have no extra characters, and additional keys are not allowed.
    pub fn is_canonical(&self) -> bool {
        let Some(row) = self.exchange.filter(|_| self.is_well_formed()) else { return false };
        let mut line = Vec::with_capacity(self.text.len());
        let mut tuple = |key: &str, value: &[u8]| self.framing.write_tuple(&mut line, key, value);
        row.command(self.direction).into_iter().for_each(|word| tuple("cmd", word.as_bytes()));
        for field in row.fields(self.direction) {
            let Some(value) = self.raw(field.key) else { continue };
            let number = match field.rule {
                Rule::Uint => parse_uint(value).map(|number| number.to_string()),
                Rule::Int => parse_int(value).map(|number| number.to_string()),
                _ => None,
            };
            tuple(field.key, number.as_ref().map_or(value, |number| number.as_bytes()));
        }
        line == self.text
    }
}

/// Returns whether a return code is 0 or missing.
fn is_zero(rc: Option<i64>) -> bool {
    rc.is_none_or(|rc| rc == 0)
}
#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use Direction::{FromServer, ToServer};
    use Framing::{Frames, Lines};

    #[rstest]
    #[case(ToServer, Lines, "cmd=put kvsname=k key=a value=b c", Some(Operation::Put), "value", Some("b c"))]
    #[case(ToServer, Frames, "cmd=kvs-put;key=a;value=b;;c;", Some(Operation::Put), "value", Some("b;c"))]
    #[case(FromServer, Lines, "cmd=my_kvsname kvsname=k", Some(Operation::Kvsname), "kvsname", Some("k"))]
    #[case(
        FromServer,
        Frames,
        "cmd=job-getid-response;jobid=k;rc=0;",
        Some(Operation::Kvsname),
        "kvsname",
        Some("k")
    )]
    #[case(ToServer, Lines, "cmd=lookup_name service=s", Some(Operation::Lookup), "service", Some("s"))]
    #[case(ToServer, Frames, "cmd=name-lookup;name=s;", Some(Operation::Lookup), "service", Some("s"))]
    #[case(
        FromServer,
        Frames,
        "cmd=name-lookup-response;value=v;port=p;rc=0;",
        Some(Operation::Lookup),
        "port",
        Some("p")
    )]
    #[case(
        FromServer,
        Frames,
        "cmd=name-lookup-response;value=v;rc=0;",
        Some(Operation::Lookup),
        "port",
        Some("v")
    )]
    // A request that lacks a required field has no operation, but its other fields can still be read.
    #[case(ToServer, Lines, "cmd=put key=a", None, "key", Some("a"))]
    #[case(ToServer, Frames, "cmd=kvs-put;key=a;", None, "key", Some("a"))]
    #[case(FromServer, Frames, "cmd=info-getjobattr-response;value=v;rc=0;", None, "value", Some("v"))]
    #[case(FromServer, Lines, "", Some(Operation::Abort), "rc", None)]
    #[case(FromServer, Lines, "nonsense", None, "rc", None)]
    fn both_framings_use_the_same_field_names(
        #[case] direction: Direction,
        #[case] framing: Framing,
        #[case] text: &str,
        #[case] operation: Option<Operation>,
        #[case] field: &str,
        #[case] value: Option<&str>,
    ) {
        let message = Decoded::new(direction, framing, text.as_bytes());
        assert_eq!(message.operation(), operation);
        assert_eq!(message.field(field).as_deref(), value.map(str::as_bytes));
    }

    #[rstest]
    #[case(Lines, "cmd=get_result rc=0 value=v", Some(ResponseOutcome::Success))]
    #[case(Lines, "cmd=get_result value=v", Some(ResponseOutcome::Success))]
    #[case(Lines, "cmd=get_result rc=-1", Some(ResponseOutcome::Failure))]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;value=v;rc=0;", Some(ResponseOutcome::Success))]
    #[case(Frames, "cmd=kvs-get-response;flag=false;rc=0;", Some(ResponseOutcome::Miss))]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;rc=1;", Some(ResponseOutcome::Failure))]
    #[case(Frames, "cmd=kvs-get-response;found=1;rc=0;", None)]
    #[case(Frames, "cmd=kvs-get-response;found=TRUE;", None)]
    #[case(Lines, "cmd=get kvsname=k key=a", None)]
    fn decodes_every_response_outcome(
        #[case] framing: Framing,
        #[case] text: &str,
        #[case] outcome: Option<ResponseOutcome>,
    ) {
        let message = Decoded::new(FromServer, framing, text.as_bytes());
        assert_eq!(message.outcome(), outcome);
        assert_eq!(message.is_refusal(), outcome == Some(ResponseOutcome::Failure));
    }

    #[rstest]
    #[case(ToServer, "", "the line is empty")]
    #[case(ToServer, "\0", "byte 0x00 at offset 0 is neither space, tab nor visible ASCII")]
    #[case(ToServer, "barrier_in", "no key=value tuple at offset 0")]
    #[case(ToServer, "key=k", "no command: the key \"cmd\" is missing")]
    #[case(ToServer, "cmd=", "not a PMI-1.1 request")]
    #[case(ToServer, "cmd=put_result", "not a PMI-1.1 request")]
    #[case(ToServer, "cmd=create_kvs", "not a PMI-1.1 request")]
    #[case(ToServer, "cmd=init pmi_version=1", "the key \"pmi_subversion\" is missing")]
    #[case(
        ToServer,
        "cmd=init pmi_version=one pmi_subversion=1",
        "the value of \"pmi_version\" is not an unsigned integer below 2^64 (RFC 13: uint)"
    )]
    #[case(ToServer, "cmd=abort exitcode=", "the value of \"exitcode\" is not an integer (RFC 13: int)")]
    #[case(ToServer, "cmd=get kvsname=s", "the key \"key\" is missing")]
    #[case(ToServer, "cmd=get kvsname=s key=k key=k", "the key \"key\" appears more than once")]
    #[case(ToServer, "cmd=get_maxes cmd=get_maxes", "the key \"cmd\" appears more than once")]
    #[case(
        ToServer,
        "cmd=publish_name service=s port=",
        "the value of \"port\" is not one or more visible characters"
    )]
    #[case(
        ToServer,
        "mcmd=spawn",
        "a spawn request must be a block of lines from \"mcmd=spawn\" to \"endcmd\""
    )]
    #[case(
        ToServer,
        "cmd=spawn",
        "a spawn request must be a block of lines from \"mcmd=spawn\" to \"endcmd\""
    )]
    #[case(ToServer, "mcmd=other", "no command: the key \"cmd\" is missing")]
    #[case(FromServer, " ", "the line is empty")]
    #[case(FromServer, "rc=0", "no command: the key \"cmd\" is missing")]
    #[case(FromServer, "cmd=put", "not a PMI-1.1 response")]
    #[case(FromServer, "cmd=abort", "not a PMI-1.1 response")]
    #[case(FromServer, "cmd=put_result rc=ok", "the value of \"rc\" is not an integer (RFC 13: int)")]
    #[case(FromServer, "cmd=put_result rc=0 rc=0", "the key \"rc\" appears more than once")]
    // A response may omit all of its fields, but not just some of them.
    #[case(FromServer, "cmd=response_to_init pmi_version=1", "the key \"pmi_subversion\" is missing")]
    #[case(FromServer, "cmd=maxes keylen_max=1 vallen_max=1", "the key \"kvsname_max\" is missing")]
    #[case(FromServer, "cmd=maxes", "")]
    #[case(FromServer, "cmd=get_result value=", "")]
    #[case(FromServer, "cmd=lookup_result rc=1 ", "")]
    #[case(ToServer, " pmi_subversion=2\tx=y  pmi_version=1 cmd=init ", "")]
    #[case(ToServer, "group=a group=b cmd=barrier_in", "")]
    #[case(ToServer, "value=v cmd=put key=k kvsname=s", "")]
    #[case(ToServer, "cmd=publish_name service=s port=tag=0$h=x$", "")]
    fn errors_in_lines_describe_the_mistake(
        #[case] direction: Direction,
        #[case] line: &str,
        #[case] error: &str,
    ) {
        for reading in [ValueReading::ToEndOfLine, ValueReading::ToBlank] {
            let decoded = Decoded::line(direction, line.as_bytes(), reading);
            assert_eq!(decoded.error().map(ToString::to_string).unwrap_or_default(), error);
            assert_eq!(decoded.is_well_formed(), error.is_empty());
        }
    }

    #[rstest]
    #[case(ToServer, "thrid=1;cmd=finalize;", "the first key is not \"cmd\"")]
    #[case(ToServer, "cmd=barrier_in;", "not a PMI-2 request")]
    #[case(ToServer, "cmd=kvs-put;key=k;", "the key \"value\" is missing")]
    #[case(ToServer, "cmd=kvs-put;key=k;key=l;value=v;", "the key \"key\" appears more than once")]
    #[case(
        ToServer,
        "cmd=fullinit;pmirank=x;",
        "the value of \"pmirank\" is not an unsigned integer below 2^64"
    )]
    #[case(ToServer, "cmd=info-getnodeattr;key=k;wait=yes;", "the value of \"wait\" is not true or false")]
    #[case(
        ToServer,
        "cmd=spawn;ncmds=2;subcmd=a;maxprocs=1;",
        "the value of \"ncmds\" is not the number of programs"
    )]
    #[case(ToServer, "cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;argc=2;argv0=x;", "the key \"argv1\" is missing")]
    #[case(ToServer, "cmd=spawn;ncmds=1;subcmd=a;", "the key \"maxprocs\" is missing")]
    #[case(ToServer, "cmd=spawn;ncmds=0;", "the value of \"ncmds\" is not the number of programs")]
    #[case(
        ToServer,
        "cmd=spawn;ncmds=99999999999;",
        "the value of \"ncmds\" is not a number within the server's limits"
    )]
    #[case(ToServer, "cmd=spawn-cmd;argc=0;", "the key \"maxprocs\" is missing")]
    #[case(
        ToServer,
        "cmd=kvs-putall;jobid=j;npair=-1;",
        "the value of \"npair\" is not an unsigned integer below 2^64"
    )]
    #[case(ToServer, "cmd=concat;", "the key \"concatid\" is missing")]
    #[case(ToServer, "cmd=kvs-get;thrid=0x7f;srcid=-1;x=y;key=;jobid=j;", "")]
    #[case(ToServer, "cmd=fullinit;authtype=challenge-sha256;authinfo=x;", "")]
    #[case(ToServer, "cmd=spawn;thrid=1;ncmds=2;preputcount=1;ppkey0=k;ppval0=v;", "")]
    #[case(ToServer, "cmd=name-publish;name=n;port=p;infokeycount=x;", "")]
    // The rest of the command follows in other messages.
    #[case(ToServer, "cmd=kvs-put;key=k;concat=1;", "")]
    #[case(FromServer, "cmd=kvs-get;rc=0;", "not a PMI-2 response")]
    #[case(FromServer, "cmd=abort-response;rc=0;", "not a PMI-2 response")]
    #[case(FromServer, "rc=0;cmd=kvs-get-response;", "the first key is not \"cmd\"")]
    #[case(FromServer, "cmd=finalize-response;", "the key \"rc\" is missing")]
    #[case(FromServer, "cmd=finalize-response;rc=ok;", "the value of \"rc\" is not an integer")]
    #[case(FromServer, "cmd=finalize-response;rc=0;rc=0;", "the key \"rc\" appears more than once")]
    fn errors_in_frames_describe_the_mistake(
        #[case] direction: Direction,
        #[case] body: &str,
        #[case] error: &str,
    ) {
        for reading in [SemicolonReading::Doubled, SemicolonReading::Plain] {
            let decoded = Decoded::body(direction, body.as_bytes(), reading);
            assert_eq!(decoded.error().map(ToString::to_string).unwrap_or_default(), error);
        }
    }

    #[test]
    fn no_message_exceeds_the_limit_on_unique_keys() {
        for (row, from) in
            documented_exchanges(Lines).iter().flat_map(|row| [(row, ToServer), (row, FromServer)])
        {
            let keys = common_keys(from).len() + without_extensions(row.fields(from)).count();
            assert!(
                keys <= MAX_UNIQUE_KEYS || row.is_block && from == ToServer,
                "{} {from:?}",
                row.operation
            );
        }
    }

    #[rstest]
    #[case("cmd=init pmi_version=1 pmi_subversion=1", true)]
    #[case("cmd=init pmi_version=01 pmi_subversion=1", false)]
    #[case("cmd=init pmi_subversion=1 pmi_version=1", false)]
    #[case("cmd=abort exitcode=-1", true)]
    #[case("cmd=abort exitcode=+1", false)]
    #[case("cmd=put kvsname=s key=k value=a b=c", true)]
    #[case("cmd=put kvsname=s key=k value=", true)]
    #[case("cmd=barrier_in group=0,1:42", true)]
    #[case("cmd=barrier_in ", false)]
    #[case("cmd=barrier_in x=y", false)]
    #[case("cmd=get kvsname=s", false)]
    fn recognizes_canonical_messages(#[case] line: &str, #[case] is_canonical: bool) {
        assert_eq!(Decoded::new(ToServer, Lines, line.as_bytes()).is_canonical(), is_canonical);
    }

    #[test]
    fn response_precedes_requests_that_awaited_it() {
        let mut connection = crate::Connection::new(64);
        let ahead = b"cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;";
        let offer = connection.read(ToServer, ahead);
        assert_eq!(offer.len(), 1);
        let taken = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n     7a=b;c=d";
        let arrivals = connection.read(FromServer, taken);
        let shown: Vec<_> = arrivals.iter().map(|one| (one.direction, one.decode().unwrap())).collect();
        assert_eq!(
            shown.iter().map(|(from, _)| *from).collect::<Vec<_>>(),
            [FromServer, ToServer, FromServer]
        );
        assert_eq!(shown[0].1.version(), Some(Version::V2_0));
        assert_eq!(shown[1].1.operation(), Some(Operation::Init));
        assert!(!shown[2].1.has_tuples());
    }
}
