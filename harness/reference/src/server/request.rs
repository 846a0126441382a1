//! Requests, independent of the dialect: decoding, and the order in which a process may make them.

use std::borrow::Cow;

use pmi_wire::grammar::parse_int;
use pmi_wire::protocol::{Exchange, Field};
use pmi_wire::{
    DecodeError, Decoded, Direction, Framing, Operation, Proc, SpawnAssembler, SpawnCollector, SpawnLimits,
    SpawnRequest, Version,
};

use super::lifecycle::ProtocolError;
use super::state::{AwaitedEvent, ProcessPhase, Server};
use crate::response::ResponseHeader;

/// Maximum number of unanswered requests of a process, so that no client can exhaust the server's memory.
pub(super) const MAX_HELD: usize = 10_000;

type Value<'a> = Cow<'a, [u8]>;

/// An operation and its arguments. The protocol table in `pmi_wire` defines the spellings in PMI-1 and PMI-2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerRequest<'a> {
    /// Offers a version: `init`, in every dialect.
    Init(Version),
    /// Joins the job after the init line of PMI-2: `fullinit`.
    Fullinit {
        /// The kind of authentication that the client requests.
        authtype: Option<Value<'a>>,
    },
    /// Requests the limits: `get_maxes`.
    Maxes,
    /// Requests the name of the keyval space: `get_my_kvsname`, `job-getid`.
    Kvsname,
    /// Requests the universe size: `get_universe_size`.
    Universe,
    /// Requests the application number: `get_appnum`.
    Appnum,
    /// Stores a pair: `put`, `kvs-put`.
    Put {
        /// The keyval space. In PMI-2, it is `None`, which means the space of the process's group.
        space: Option<Value<'a>>,
        /// The key.
        key: Value<'a>,
        /// The value.
        value: Value<'a>,
    },
    /// Reads a pair: `get`, `kvs-get`.
    Get {
        /// The keyval space; `None` means the space of the process's group.
        space: Option<Value<'a>>,
        /// A hint about the rank that put the pair.
        source: Option<i64>,
        /// The key.
        key: Value<'a>,
    },
    /// Enters a barrier: `barrier_in`, `kvs-fence`.
    Barrier {
        /// The group, which has a meaning only in PMI-1.2.
        group: Option<Value<'a>>,
    },
    /// Stores an attribute of the process's node: `info-putnodeattr`.
    PutNodeAttribute {
        /// The key.
        key: Value<'a>,
        /// The value.
        value: Value<'a>,
    },
    /// Reads an attribute of the process's node: `info-getnodeattr`.
    GetNodeAttribute {
        /// The key.
        key: Value<'a>,
        /// True if the response must wait until the attribute exists.
        wait: bool,
    },
    /// Reads an attribute of the job: `info-getjobattr`.
    GetJobAttribute {
        /// The key.
        key: Value<'a>,
    },
    /// Publishes a port: `publish_name`, `name-publish`.
    Publish {
        /// The name.
        name: Value<'a>,
        /// The port.
        port: Value<'a>,
    },
    /// Looks up a port: `lookup_name`, `name-lookup`.
    Lookup {
        /// The name.
        name: Value<'a>,
    },
    /// Withdraws a name: `unpublish_name`, `name-unpublish`.
    Unpublish {
        /// The name.
        name: Value<'a>,
    },
    /// Starts a process group: `spawn`. In PMI-2, the first program has the preput pairs of all programs.
    Spawn(SpawnRequest),
    /// Creates a keyval space: `create_kvs` in MPICH's gforker.
    CreateSpace,
    /// Destroys a keyval space: `destroy_kvs` in MPICH's gforker.
    DestroySpace {
        /// The name of the keyval space.
        space: Value<'a>,
    },
    /// Reads a pair by its index: `getbyidx` in MPICH's gforker.
    PairByIndex {
        /// The name of the keyval space.
        space: Value<'a>,
        /// The index of the pair, counting from 0.
        index: u64,
    },
    /// Ends the process group: `abort`.
    Abort {
        /// The exit status, which MPICH sends. It is not part of RFC 13 or the draft.
        exitcode: Option<i64>,
    },
    /// Leaves PMI: `finalize`.
    Finalize,
    /// A request that changes nothing and has no result: `get_ranks2hosts`, `execution_problem` or `tv_ready` of MPD's clients. No standard
    /// describes these requests.
    Plain,
    /// A request that only the draft describes and no known server supports.
    Unsupported,
    /// An unknown command in PMI-2.
    Unknown,
}

/// A request that a process may make now.
#[derive(Debug, Clone)]
pub struct AllowedRequest<'a> {
    /// The properties of the request that determine the form of its response.
    pub header: ResponseHeader,
    /// The operation.
    pub request: ServerRequest<'a>,
}

impl Server {
    /// Reads a message, and checks that the process may send it now. Returns `None` if the message is only a part of a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is invalid or must not be sent at this point (RFC 13, "Error Handling").
    pub fn read<'a>(
        &mut self,
        from: Proc,
        text: &'a [u8],
    ) -> Result<Option<AllowedRequest<'a>>, ProtocolError> {
        let process = self.process(from);
        let framing = process.framing;
        if framing == Framing::Lines && (process.spawn.is_some() || SpawnAssembler::is_spawn_start(text)) {
            let header = ResponseHeader::line(Operation::Spawn.exchange());
            self.check_order(from, &header, &ServerRequest::Spawn(SpawnRequest::default()))?;
            let request = self.read_spawn_line(from, text)?.map(ServerRequest::Spawn);
            return Ok(request.map(|request| AllowedRequest { header, request }));
        }
        let message = Decoded::new(Direction::ToServer, framing, text);
        let header = header(&message);
        let is_part = header.response.is_empty() && header.operation() != "abort";
        match (framing, message.error()) {
            // Draft, "Unrecognized command": the command is answered with an error code.
            (Framing::Frames, Some(DecodeError::UnknownCommand { .. })) => {
                let name = message.command().unwrap_or_default();
                let response = [name, b"-response"].concat().into();
                let header = ResponseHeader { response, ..header };
                return Ok(Some(AllowedRequest { header, request: ServerRequest::Unknown }));
            }
            (Framing::Lines, Some(_)) if self.has_keyval_spaces(from, &message) => {}
            (_, Some(error)) => return Err(error.to_string().into()),
            // The server does not support PMI-2 requests that consist of several messages, so it ignores their parts.
            (Framing::Frames, None) if is_part => return Ok(None),
            _ => {}
        }
        let request = decode(&message).ok_or("not a request")?;
        self.check_order(from, &header, &request)?;
        Ok(Some(AllowedRequest { header, request }))
    }

    /// Returns whether the server accepts a message as a request about additional keyval spaces. The server must support such spaces, the
    /// process must have initialized, and the request must be well-formed.
    fn has_keyval_spaces(&self, from: Proc, message: &Decoded<'_>) -> bool {
        let is_argument = |exchange: &Exchange| {
            let accepts =
                |field: &Field| message.raw(field.key).is_some_and(|value| field.rule.accepts(value));
            exchange.operation.starts_with("kvs-") && exchange.arguments.iter().all(accepts)
        };
        self.config.keyval_spaces
            && self.process(from).phase == ProcessPhase::Joined
            && message.exchange().is_some_and(is_argument)
    }

    /// Reads a line of a spawn request (RFC 13, "Spawn Operation"). Returns the request after its last line.
    fn read_spawn_line(&mut self, from: Proc, line: &[u8]) -> Result<Option<SpawnRequest>, ProtocolError> {
        let new = || Box::new(SpawnCollector::new(SpawnLimits::default()));
        let collector = self.process_mut(from).spawn.get_or_insert_with(new);
        let request = collector.push_line(line).map_err(|error| ProtocolError(error.to_string()))?;
        if request.is_some() {
            self.process_mut(from).spawn = None;
        }
        Ok(request)
    }

    /// Checks that a process may make a request now.
    ///
    /// * RFC 13, "Version Negotiation": init comes first. Draft, "`PMI_Init`": fullinit comes next.
    /// * RFC 13, "Wire Protocol": requests and responses alternate. PMI-1.2 has an exception: a process in a group barrier may make any
    ///   request except finalize. In a barrier without a group, spawn is not allowed either. Draft, "Thread Safety": requests with
    ///   different `thrid` are independent.
    fn check_order(
        &self,
        from: Proc,
        header: &ResponseHeader,
        request: &ServerRequest<'_>,
    ) -> Result<(), ProtocolError> {
        let process = self.process(from);
        let is_frame = header.framing == Framing::Frames;
        match (process.phase, request) {
            (ProcessPhase::New, ServerRequest::Init(_)) => {}
            (ProcessPhase::New, _) => return Err("request before init".into()),
            (ProcessPhase::Finalized | ProcessPhase::Closed, _) => {
                return Err("request after finalize".into());
            }
            // In PMI-2, any thread may abort the job, even if requests of other threads are pending.
            (ProcessPhase::Joined, ServerRequest::Abort { .. }) if is_frame => return Ok(()),
            (ProcessPhase::Joined, _) => {}
        }
        if process.held.len() >= MAX_HELD {
            return Err("too many pending requests".into());
        }
        let ends = matches!(request, ServerRequest::Spawn(_) | ServerRequest::Finalize);
        let has_groups = process.version.has_group_barriers();
        let conflict = process.held.iter().find(|held| match header.framing {
            Framing::Frames => held.header.thrid.is_none() || held.header.thrid == header.thrid,
            Framing::Lines => held.awaited_event != AwaitedEvent::Barrier || !has_groups || ends,
        });
        match conflict.map(|held| &held.awaited_event) {
            Some(AwaitedEvent::Barrier) => return Err("request while in the barrier".into()),
            Some(AwaitedEvent::Spawn(_)) => return Err("request while a spawn is pending".into()),
            Some(_) => return Err("request before the previous request was answered".into()),
            None if *request == ServerRequest::Finalize && self.is_in_group_barrier(from) => {
                return Err("finalize while in a barrier".into());
            }
            None => {}
        }
        match request {
            ServerRequest::Fullinit { .. } if process.has_fullinit => Err("fullinit twice".into()),
            ServerRequest::Fullinit { .. } => Ok(()),
            _ if is_frame && !process.has_fullinit => Err("request before fullinit".into()),
            _ => Ok(()),
        }
    }
}

fn header(message: &Decoded<'_>) -> ResponseHeader {
    let thrid = match message.framing {
        Framing::Lines => None,
        Framing::Frames => message.value("thrid").map(Cow::into_owned),
    };
    ResponseHeader { thrid, ..ResponseHeader::new(message.framing, message.exchange()) }
}

/// Reads the arguments of a well-formed request, using their names in the protocol table.
fn decode<'a>(message: &Decoded<'a>) -> Option<ServerRequest<'a>> {
    let value = |name| message.field(name);
    let named = |name| value(name).unwrap_or_default();
    let number = |name| value(name).as_deref().and_then(parse_int);
    let exchange = message.exchange()?;
    Some(match exchange.operation {
        "init" => match message.version() {
            Some(version) => ServerRequest::Init(version),
            None => ServerRequest::Fullinit { authtype: value("authtype") },
        },
        "maxes" => ServerRequest::Maxes,
        "kvsname" => ServerRequest::Kvsname,
        "universe" => ServerRequest::Universe,
        "appnum" => ServerRequest::Appnum,
        "put" => ServerRequest::Put { space: value("kvsname"), key: named("key"), value: named("value") },
        "get" => {
            // PMI-2 libraries send an empty id if they do not know the id, so an empty id counts as missing.
            let space = value("kvsname").or_else(|| value("jobid")).filter(|space| !space.is_empty());
            ServerRequest::Get { space, source: number("srcid"), key: named("key") }
        }
        "barrier" => ServerRequest::Barrier { group: value("group") },
        "put-node-attribute" => ServerRequest::PutNodeAttribute { key: named("key"), value: named("value") },
        "get-node-attribute" => {
            ServerRequest::GetNodeAttribute { key: named("key"), wait: message.boolean("wait") == Some(true) }
        }
        "get-job-attribute" => ServerRequest::GetJobAttribute { key: named("key") },
        "publish" => ServerRequest::Publish { name: named("service"), port: named("port") },
        "lookup" => ServerRequest::Lookup { name: named("service") },
        "unpublish" => ServerRequest::Unpublish { name: named("service") },
        "spawn" => message
            .spawn()
            .map_or(ServerRequest::Unsupported, |request| ServerRequest::Spawn(request.clone())),
        "kvs-create" => ServerRequest::CreateSpace,
        "kvs-destroy" => ServerRequest::DestroySpace { space: named("kvsname") },
        "kvs-index" => ServerRequest::PairByIndex { space: named("kvsname"), index: message.number("idx")? },
        "abort" => ServerRequest::Abort { exitcode: number("exitcode") },
        "finalize" => ServerRequest::Finalize,
        // This command is a Slurm extension of the draft, and this server does not support it.
        "ring" => ServerRequest::Unknown,
        _ if exchange.is_draft_only() => ServerRequest::Unsupported,
        _ => ServerRequest::Plain,
    })
}
