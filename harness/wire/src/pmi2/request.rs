//! Requests: the messages that the client (the process) may send after the init line.

use std::borrow::Cow;

use thiserror::Error;

use super::body::{Body, BodyError, SemicolonReading, write_tuple};
use super::command::Command;
use crate::grammar::{Rule, parse_bool, parse_int, parse_uint};

/// Maximum number of programs, arguments and pairs in a spawn request.
const SPAWN_LIMIT: u64 = 100_000;

/// The value of a field.
type RequestValue<'a> = Cow<'a, [u8]>;

/// A request with all fields of the draft except `thrid`, which [`Request::thrid`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// `cmd=fullinit`. In the draft, every key is optional.
    Fullinit {
        /// The id of the job, if the process was given one.
        pmijobid: Option<RequestValue<'a>>,
        /// The rank, if the process knows it.
        pmirank: Option<u64>,
        /// True if requests will carry a `thrid`.
        threaded: Option<bool>,
        /// The requested kind of authentication.
        authtype: Option<RequestValue<'a>>,
        /// The initial data of the authentication.
        authinfo: Option<RequestValue<'a>>,
    },
    /// `cmd=finalize`.
    Finalize,
    /// `cmd=abort`.
    Abort {
        /// In the draft: true if the whole job ends.
        isworld: Option<bool>,
        /// `exitcode`, which MPICH has sent since 4.1.
        exitcode: Option<i64>,
        /// The message to report: `msg` in the draft, `message` in MPICH since 4.1.
        message: Option<RequestValue<'a>>,
    },
    /// `cmd=job-getid`.
    JobGetid,
    /// `cmd=job-connect`.
    JobConnect {
        /// The job.
        jobid: RequestValue<'a>,
    },
    /// `cmd=job-disconnect`.
    JobDisconnect {
        /// The job.
        jobid: RequestValue<'a>,
    },
    /// `cmd=kvs-put`.
    KvsPut {
        /// The key.
        key: RequestValue<'a>,
        /// The value.
        value: RequestValue<'a>,
    },
    /// `cmd=kvs-get`.
    KvsGet {
        /// The job; the client's own if absent.
        jobid: Option<RequestValue<'a>>,
        /// The rank that may have put it, as a hint; negative if unknown.
        srcid: Option<i64>,
        /// The key.
        key: RequestValue<'a>,
    },
    /// `cmd=kvs-fence`.
    KvsFence,
    /// `cmd=info-putnodeattr`.
    InfoPutnodeattr {
        /// The key.
        key: RequestValue<'a>,
        /// The value.
        value: RequestValue<'a>,
    },
    /// `cmd=info-getnodeattr`.
    InfoGetnodeattr {
        /// The key.
        key: RequestValue<'a>,
        /// True if the response must be delayed until the value exists.
        wait: bool,
    },
    /// `cmd=info-getjobattr`.
    InfoGetjobattr {
        /// The key.
        key: RequestValue<'a>,
    },
    /// `cmd=name-publish`. All known servers ignore the info keys, and so does this crate.
    NamePublish {
        /// The name.
        name: RequestValue<'a>,
        /// The port.
        port: RequestValue<'a>,
    },
    /// `cmd=name-lookup`.
    NameLookup {
        /// The name.
        name: RequestValue<'a>,
    },
    /// `cmd=name-unpublish`.
    NameUnpublish {
        /// The name.
        name: RequestValue<'a>,
    },
    /// `cmd=spawn`, in one message with a `subcmd` for each program.
    Spawn {
        /// The pairs to put into the keyval space of the new processes.
        preput: Vec<(Vec<u8>, Vec<u8>)>,
        /// The programs to start.
        programs: Vec<Pmi2SpawnProgram>,
    },
    /// A request, or a part of one, that only the draft describes. It is checked against its row of the protocol table.
    DraftOnly(Command),
    /// `cmd=ring`.
    Ring {
        /// The value that the left neighbour receives as `right`.
        left: RequestValue<'a>,
        /// The value that the right neighbour receives as `left`.
        right: RequestValue<'a>,
    },
}

/// One program of a spawn request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pmi2SpawnProgram {
    /// `subcmd`: the program.
    pub command: Vec<u8>,
    /// `maxprocs`: number of processes.
    pub maxprocs: u64,
    /// `argv0` etc.
    pub argv: Vec<Vec<u8>>,
    /// `infokey0`, `infoval0` etc.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An error in a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The body is not a series of tuples.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// `cmd` is not the first tuple.
    #[error("the first key is not \"cmd\"")]
    NoCommand,
    /// `cmd` is not a request of PMI-2.
    #[error("not a request of PMI-2")]
    UnknownCommand,
    /// A key that the command requires is missing.
    #[error("the key \"{0}\" is missing")]
    MissingKey(String),
    /// The value of a key is invalid.
    #[error("the value of \"{key}\" is not {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A key occurs more than once where that is not allowed.
    #[error("the key \"{0}\" appears more than once")]
    RepeatedKey(&'static str),
}

fn need<'a>(body: &Body<'a>, key: &str) -> Result<RequestValue<'a>, RequestError> {
    body.value(key).ok_or_else(|| RequestError::MissingKey(key.to_owned()))
}

fn bad(key: &str, expected: &'static str) -> RequestError {
    RequestError::BadValue { key: key.to_owned(), expected }
}

fn optional<T>(
    body: &Body<'_>,
    key: &str,
    expected: &'static str,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, RequestError> {
    body.raw(key).map(|value| read(value).ok_or_else(|| bad(key, expected))).transpose()
}

impl<'a> Request<'a> {
    /// Parses the body of a frame. Keys may have any order after `cmd`, and may be mixed with keys that are not in the draft.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn parse(bytes: &'a [u8], semicolons: SemicolonReading) -> Result<Self, RequestError> {
        Self::read(Body::parse(bytes, semicolons)?)
    }

    /// Reads the tuples of a body.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub(crate) fn read(body: Body<'a>) -> Result<Self, RequestError> {
        let cmd = body.cmd().ok_or(RequestError::NoCommand)?;
        let command = Command::from_name(cmd).ok_or(RequestError::UnknownCommand)?;
        if body.tuples().last().is_some_and(|tuple| tuple.key == b"concat") {
            // The rest of the command follows in other messages.
            return Ok(Self::DraftOnly(Command::Concat));
        }
        // A spawn has a section for each program.
        let single = command.request_keys().chain(["thrid", "cmd"]);
        let mut single = single.filter(|key| command != Command::Spawn || *key == "thrid");
        if let Some(key) = single.find(|key| body.repeats(key)) {
            return Err(RequestError::RepeatedKey(key));
        }
        Ok(match command {
            Command::Fullinit => Self::Fullinit {
                pmijobid: body.value("pmijobid"),
                pmirank: optional(&body, "pmirank", "an unsigned integer", parse_uint)?,
                threaded: optional(&body, "threaded", "true or false", parse_bool)?,
                authtype: body.value("authtype"),
                authinfo: body.value("authinfo"),
            },
            Command::Finalize => Self::Finalize,
            Command::Abort => Self::Abort {
                isworld: optional(&body, "isworld", "true or false", parse_bool)?,
                exitcode: optional(&body, "exitcode", "an integer", parse_int)?,
                message: body.value("msg").or_else(|| body.value("message")),
            },
            Command::JobGetid => Self::JobGetid,
            Command::JobConnect => Self::JobConnect { jobid: need(&body, "jobid")? },
            Command::JobDisconnect => Self::JobDisconnect { jobid: need(&body, "jobid")? },
            Command::KvsPut => Self::KvsPut { key: need(&body, "key")?, value: need(&body, "value")? },
            Command::KvsGet => Self::KvsGet {
                jobid: body.value("jobid"),
                srcid: optional(&body, "srcid", "an integer", parse_int)?,
                key: need(&body, "key")?,
            },
            Command::KvsFence => Self::KvsFence,
            Command::InfoPutnodeattr => {
                Self::InfoPutnodeattr { key: need(&body, "key")?, value: need(&body, "value")? }
            }
            Command::InfoGetnodeattr => Self::InfoGetnodeattr {
                key: need(&body, "key")?,
                wait: optional(&body, "wait", "true or false", parse_bool)?.unwrap_or(false),
            },
            Command::InfoGetjobattr => Self::InfoGetjobattr { key: need(&body, "key")? },
            Command::NamePublish => {
                Self::NamePublish { name: need(&body, "name")?, port: need(&body, "port")? }
            }
            Command::NameLookup => Self::NameLookup { name: need(&body, "name")? },
            Command::NameUnpublish => Self::NameUnpublish { name: need(&body, "name")? },
            Command::Spawn => spawn(&body)?,
            Command::AuthResponse
            | Command::AuthResponseComplete
            | Command::KvsGetall
            | Command::KvsPutall
            | Command::KvsPutallPair
            | Command::SpawnCmd
            | Command::Concat => draft_only(command, &body)?,
            Command::Ring => Self::Ring {
                left: body.value("left").unwrap_or_default(),
                right: body.value("right").unwrap_or_default(),
            },
        })
    }

    /// Returns the `thrid` of a body, which its response must repeat.
    pub fn thrid(bytes: &'a [u8], semicolons: SemicolonReading) -> Option<RequestValue<'a>> {
        Body::parse(bytes, semicolons).ok()?.value("thrid")
    }

    /// Returns the command of the request.
    pub fn command(&self) -> Command {
        match self {
            Self::Fullinit { .. } => Command::Fullinit,
            Self::Finalize => Command::Finalize,
            Self::Abort { .. } => Command::Abort,
            Self::JobGetid => Command::JobGetid,
            Self::JobConnect { .. } => Command::JobConnect,
            Self::JobDisconnect { .. } => Command::JobDisconnect,
            Self::KvsPut { .. } => Command::KvsPut,
            Self::KvsGet { .. } => Command::KvsGet,
            Self::KvsFence => Command::KvsFence,
            Self::InfoPutnodeattr { .. } => Command::InfoPutnodeattr,
            Self::InfoGetnodeattr { .. } => Command::InfoGetnodeattr,
            Self::InfoGetjobattr { .. } => Command::InfoGetjobattr,
            Self::NamePublish { .. } => Command::NamePublish,
            Self::NameLookup { .. } => Command::NameLookup,
            Self::NameUnpublish { .. } => Command::NameUnpublish,
            Self::Spawn { .. } => Command::Spawn,
            Self::DraftOnly(command) => *command,
            Self::Ring { .. } => Command::Ring,
        }
    }

    /// Appends the body in the order of the draft. For a request that only the draft describes, this is only its command.
    pub fn write_to(&self, thrid: Option<&[u8]>, out: &mut Vec<u8>) {
        write_tuple(out, "cmd", self.command().name().as_bytes());
        if let Some(thrid) = thrid {
            write_tuple(out, "thrid", thrid);
        }
        let mut text = |key: &str, value: Option<&[u8]>| {
            if let Some(value) = value {
                write_tuple(out, key, value);
            }
        };
        let shown = |b: bool| if b { &b"TRUE"[..] } else { b"FALSE" };
        match self {
            Self::Fullinit { pmijobid, pmirank, threaded, authtype, authinfo } => {
                text("pmijobid", pmijobid.as_deref());
                text("pmirank", pmirank.map(|n| n.to_string()).as_deref().map(str::as_bytes));
                text("threaded", threaded.map(shown));
                text("authtype", authtype.as_deref());
                text("authinfo", authinfo.as_deref());
            }
            Self::Abort { isworld, exitcode, message } => {
                text("isworld", isworld.map(shown));
                text("exitcode", exitcode.map(|n| n.to_string()).as_deref().map(str::as_bytes));
                text("msg", message.as_deref());
            }
            Self::Finalize | Self::JobGetid | Self::KvsFence | Self::DraftOnly(_) => {}
            Self::JobConnect { jobid } | Self::JobDisconnect { jobid } => text("jobid", Some(jobid)),
            Self::KvsPut { key, value } | Self::InfoPutnodeattr { key, value } => {
                text("key", Some(key));
                text("value", Some(value));
            }
            Self::KvsGet { jobid, srcid, key } => {
                text("jobid", jobid.as_deref());
                text("srcid", srcid.map(|n| n.to_string()).as_deref().map(str::as_bytes));
                text("key", Some(key));
            }
            Self::InfoGetnodeattr { key, wait } => {
                text("key", Some(key));
                text("wait", wait.then_some(b"TRUE"));
            }
            Self::InfoGetjobattr { key } => text("key", Some(key)),
            Self::NamePublish { name, port } => {
                text("name", Some(name));
                text("port", Some(port));
            }
            Self::NameLookup { name } | Self::NameUnpublish { name } => text("name", Some(name)),
            Self::Ring { left, right } => {
                text("count", Some(b"1"));
                text("left", Some(left));
                text("right", Some(right));
            }
            Self::Spawn { preput, programs } => {
                write_number(out, "ncmds", programs.len() as u64);
                write_number(out, "preputcount", preput.len() as u64);
                for (i, (key, value)) in preput.iter().enumerate() {
                    write_tuple(out, &format!("ppkey{i}"), key);
                    write_tuple(out, &format!("ppval{i}"), value);
                }
                programs.iter().for_each(|program| program.write_to(out));
            }
        }
    }
}

/// Appends a tuple with a number.
fn write_number(out: &mut Vec<u8>, key: &str, number: u64) {
    write_tuple(out, key, number.to_string().as_bytes());
}

impl Pmi2SpawnProgram {
    fn write_to(&self, out: &mut Vec<u8>) {
        write_tuple(out, "subcmd", &self.command);
        write_number(out, "maxprocs", self.maxprocs);
        write_number(out, "argc", self.argv.len() as u64);
        for (i, arg) in self.argv.iter().enumerate() {
            write_tuple(out, &format!("argv{i}"), arg);
        }
        write_number(out, "infokeycount", self.info.len() as u64);
        for (i, (key, value)) in self.info.iter().enumerate() {
            write_tuple(out, &format!("infokey{i}"), key);
            write_tuple(out, &format!("infoval{i}"), value);
        }
    }
}

/// Returns the tuples of a body in sections: those before the first `subcmd`, and those from each `subcmd` on.
fn sections(body: &Body<'_>) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    for tuple in body.tuples() {
        if tuple.key == b"subcmd" {
            sections.push(Section::default());
        }
        let value = match body.semicolons() {
            SemicolonReading::Doubled => super::body::halved(tuple.value).into_owned(),
            SemicolonReading::Plain => tuple.value.to_vec(),
        };
        if let Some(last) = sections.last_mut() {
            last.0.entry(tuple.key.to_vec()).or_insert(value);
        }
    }
    sections
}

/// Reads a spawn request. Each program's keys come after its `subcmd`. In the draft, which has a separate message for each program, the
/// request may contain none.
fn spawn<'a>(body: &Body<'_>) -> Result<Request<'a>, RequestError> {
    let sections = sections(body);
    let head = &sections[0];
    let ncmds = head.number("ncmds", None)?;
    let count = head.number("preputcount", Some(0))?;
    let preput = head.list("ppkey", count)?.into_iter().zip(head.list("ppval", count)?).collect();
    if sections.len() == 1 && head.get("maxprocs").is_none() && ncmds > 0 {
        return Ok(Request::DraftOnly(Command::Spawn));
    }
    let programs = sections[1..].iter().map(Section::program).collect::<Result<Vec<_>, RequestError>>()?;
    if programs.len() as u64 != ncmds || programs.is_empty() {
        return Err(bad("ncmds", "the number of programs"));
    }
    Ok(Request::Spawn { preput, programs })
}

/// Checks the fields of a request that only the draft describes.
fn draft_only<'a>(command: Command, body: &Body<'_>) -> Result<Request<'a>, RequestError> {
    for field in command.exchange().arguments.iter().filter(|field| !field.numbered) {
        match body.value(field.key) {
            Some(value) if field.rule == Rule::Uint && !field.rule.accepts(&value) => {
                return Err(bad(field.key, "an unsigned integer"));
            }
            None if !field.optional => return Err(RequestError::MissingKey(field.key.to_owned())),
            _ => {}
        }
    }
    Ok(Request::DraftOnly(command))
}

/// The keys and values of a section of a spawn request.
#[derive(Default)]
struct Section(std::collections::HashMap<Vec<u8>, Vec<u8>>);

impl Section {
    fn get(&self, key: &str) -> Option<&[u8]> {
        self.0.get(key.as_bytes()).map(Vec::as_slice)
    }

    /// Returns a number. If the key is missing, returns `least`, or an error if that is `None`.
    fn number(&self, key: &'static str, least: Option<u64>) -> Result<u64, RequestError> {
        let value = match (self.get(key), least) {
            (Some(value), _) => parse_uint(value).ok_or_else(|| bad(key, "an unsigned integer"))?,
            (None, Some(least)) => least,
            (None, None) => return Err(RequestError::MissingKey(key.to_owned())),
        };
        if value > SPAWN_LIMIT { Err(bad(key, "a number within the server's limits")) } else { Ok(value) }
    }

    /// Returns the values of `count` numbered keys.
    fn list(&self, prefix: &str, count: u64) -> Result<Vec<Vec<u8>>, RequestError> {
        let value = |i| {
            let key = format!("{prefix}{i}");
            self.get(&key).map(<[u8]>::to_vec).ok_or(RequestError::MissingKey(key))
        };
        (0..count).map(value).collect()
    }

    fn program(&self) -> Result<Pmi2SpawnProgram, RequestError> {
        let argc = self.number("argc", Some(0))?;
        let pairs = self.number("infokeycount", Some(0))?;
        Ok(Pmi2SpawnProgram {
            command: self.get("subcmd").unwrap_or_default().to_vec(),
            maxprocs: self.number("maxprocs", None)?,
            argv: self.list("argv", argc)?,
            info: self.list("infokey", pairs)?.into_iter().zip(self.list("infoval", pairs)?).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::SemicolonReading::{Doubled, Plain};
    use super::*;
    use crate::testing::Prng;

    #[rstest]
    #[case(b"cmd=kvs-get;key=k;", Request::KvsGet { jobid: None, srcid: None, key: b"k".into() })]
    #[case(b"cmd=kvs-get;thrid=0x7f;srcid=-1;x=y;key=;jobid=j;", Request::KvsGet {
        jobid: Some(b"j".into()), srcid: Some(-1), key: b"".into() })]
    #[case(b"cmd=info-getnodeattr;key=k;wait=TRUE;", Request::InfoGetnodeattr { key: b"k".into(), wait: true })]
    #[case(b"cmd=abort;exitcode=7;message=a b;", Request::Abort {
        isworld: None, exitcode: Some(7), message: Some(b"a b".into()) })]
    #[case(b"cmd=fullinit;pmijobid=1;pmirank=0;threaded=FALSE;", Request::Fullinit {
        pmijobid: Some(b"1".into()), pmirank: Some(0), threaded: Some(false), authtype: None, authinfo: None })]
    #[case(b"cmd=fullinit;authtype=challenge-sha256;authinfo=x;", Request::Fullinit {
        pmijobid: None, pmirank: None, threaded: None, authtype: Some(b"challenge-sha256".into()),
        authinfo: Some(b"x".into()) })]
    #[case(b"cmd=auth-response-complete;authinfo=ab12;", Request::DraftOnly(Command::AuthResponseComplete))]
    #[case(b"cmd=kvs-putall;thrid=1;jobid=j;npair=2;", Request::DraftOnly(Command::KvsPutall))]
    #[case(b"cmd=spawn;thrid=1;ncmds=2;preputcount=1;ppkey0=k;ppval0=v;", Request::DraftOnly(Command::Spawn))]
    #[case(b"cmd=kvs-put;key=k;concat=1;", Request::DraftOnly(Command::Concat))]
    fn parses_requests_of_real_clients(#[case] body: &[u8], #[case] request: Request<'_>) {
        assert_eq!(Request::parse(body, Plain).unwrap(), request);
    }

    #[rstest]
    #[case(b"thrid=1;cmd=finalize;", "the first key is not \"cmd\"")]
    #[case(b"cmd=barrier_in;", "not a request of PMI-2")]
    #[case(b"cmd=kvs-put;key=k;", "the key \"value\" is missing")]
    #[case(b"cmd=kvs-put;key=k;key=l;value=v;", "the key \"key\" appears more than once")]
    #[case(b"cmd=fullinit;pmirank=x;", "the value of \"pmirank\" is not an unsigned integer")]
    #[case(b"cmd=info-getnodeattr;key=k;wait=yes;", "the value of \"wait\" is not true or false")]
    #[case(b"cmd=spawn;ncmds=2;subcmd=a;maxprocs=1;", "the value of \"ncmds\" is not the number of programs")]
    #[case(b"cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;argc=2;argv0=x;", "the key \"argv1\" is missing")]
    #[case(b"cmd=spawn;ncmds=1;subcmd=a;", "the key \"maxprocs\" is missing")]
    #[case(b"cmd=spawn;ncmds=1;maxprocs=1;", "the value of \"ncmds\" is not the number of programs")]
    #[case(b"cmd=spawn;ncmds=0;", "the value of \"ncmds\" is not the number of programs")]
    #[case(b"cmd=spawn-cmd;argc=0;", "the key \"maxprocs\" is missing")]
    #[case(b"cmd=kvs-putall;jobid=j;", "the key \"npair\" is missing")]
    #[case(b"cmd=kvs-putall;jobid=j;npair=-1;", "the value of \"npair\" is not an unsigned integer")]
    #[case(b"cmd=concat;", "the key \"concatid\" is missing")]
    #[case(
        b"cmd=spawn;ncmds=99999999999;",
        "the value of \"ncmds\" is not a number within the server's limits"
    )]
    fn rejects_invalid_requests(#[case] body: &[u8], #[case] error: &str) {
        assert_eq!(Request::parse(body, Doubled).unwrap_err().to_string(), error);
    }

    #[test]
    fn requests_round_trip() {
        let mut prng = Prng(33);
        for _ in 0..500 {
            let mut text = || prng.maybe(Prng::string).unwrap_or_else(|| b"a;b;;\n\0".to_vec());
            let program = Pmi2SpawnProgram {
                command: text(),
                maxprocs: 3,
                argv: vec![text(), text()],
                info: vec![(text(), text())],
            };
            let requests = [
                Request::KvsPut { key: text().into(), value: text().into() },
                Request::NamePublish { name: text().into(), port: text().into() },
                Request::Ring { left: text().into(), right: text().into() },
                Request::Spawn { preput: vec![(text(), text())], programs: vec![program.clone(), program] },
            ];
            for request in requests {
                let mut body = Vec::new();
                request.write_to(Some(b"t;1"), &mut body);
                assert_eq!(Request::parse(&body, Doubled), Ok(request));
                assert_eq!(Request::thrid(&body, Doubled).as_deref(), Some(&b"t;1"[..]));
            }
        }
    }
}
