//! The client's side of PMI for a single process, in every dialect.
//!
//! Each operation has a method that returns the bytes to send. Pass received bytes to [`Client::receive`], which returns the response.
//! The client rejects requests that its standard does not allow ([`ClientMisuse`]), and detects servers that do not comply
//! ([`ServerError`]). After a `ServerError`, the connection can no longer be used.

use std::collections::HashSet;

use pmi_wire::grammar::{Rule, is_string, parse_int, parse_intlist, parse_uint};
use pmi_wire::pmi2::{KEY_MAX, VALUE_MAX, is_key};
use pmi_wire::protocol::{self, Exchange};
use pmi_wire::{
    Connection, Decoded, Direction, Framing, FramingError, GroupBarrier, KvsLimits, ResponseOutcome,
    SpawnProgram, SpawnRequest, Version,
};
use thiserror::Error;

/// The reason why the client refuses a request: the standard forbids the request, or the server has broken the protocol. A refused
/// request is not sent, and does not change the state of the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClientMisuse {
    /// The response to an earlier request is still missing.
    #[error("the response to {0} has not arrived yet")]
    InFlight(&'static str),
    /// A request before init, or in PMI-2 before fullinit.
    #[error("not initialized")]
    NotInitialized,
    /// A second init or fullinit.
    #[error("already initialized")]
    Initialized,
    /// A request after finalize or abort.
    #[error("already finalized or aborted")]
    Left,
    /// The server has broken the protocol, and the connection can no longer be used.
    #[error("the connection is broken")]
    Broken,
    /// A put or get while the name of the keyval space is unknown.
    #[error("the name of the keyval space is not known yet")]
    NoKvsname,
    /// An operation that the version of the connection does not support.
    #[error("PMI {1} does not support the operation `{0}`")]
    NoOperation(&'static str, Version),
    /// A field whose value does not match its rule.
    #[error("the {0} is empty or contains invalid characters")]
    BadField(&'static str),
    /// A field that is longer than its limit.
    #[error("the {what} is {length} bytes long, but at most {limit} bytes are allowed")]
    TooLong {
        /// The name of the field.
        what: &'static str,
        /// The length of its value in bytes.
        length: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// A PMI-1 put of a key that this client has already put, even if the server refused the first put.
    #[error("the key has already been put")]
    KeyPutBefore,
    /// A barrier with the tag of an open barrier.
    #[error("a barrier with the tag {0} is already open")]
    TagOpen(u64),
    /// A spawn or a finalize while group barriers are open.
    #[error("group barriers are still open")]
    BarriersOpen,
    /// A spawn that requests no processes.
    #[error("the spawn requests no processes")]
    NothingToSpawn,
}

/// A violation of the protocol by the server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// Bytes that do not belong to a response to a pending request.
    #[error("received bytes although no request is pending")]
    Unsolicited,
    /// The response to a different operation.
    #[error("received a response to {found} instead of a response to {expected}")]
    Mismatched {
        /// The requested operation.
        expected: &'static str,
        /// The operation to which the response belongs.
        found: &'static str,
    },
    /// Bytes that are not a message.
    #[error(transparent)]
    Framing(#[from] FramingError),
    /// A message that is not a response.
    #[error("{0}")]
    Malformed(String),
    /// A success response without the requested result.
    #[error("the response reports success but contains no result")]
    NoResult,
    /// A version that the client did not offer.
    #[error("the server chose version {0}, which was not offered")]
    BadVersion(Version),
    /// The connection was closed before the client had finalized.
    #[error("the connection was closed")]
    Closed,
    /// An earlier error has made the connection unusable.
    #[error("the connection is broken")]
    Broken,
}

/// A response from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerResponse {
    /// The response to init: the version to use.
    Init(Version),
    /// The response to fullinit: the process has joined its job.
    Joined {
        /// The rank of the process.
        rank: u64,
        /// The size of the job.
        size: u64,
        /// The application number. Slurm sends -1.
        appnum: i64,
        /// True if the job was spawned by another job.
        spawned: bool,
    },
    /// The limits of the keyval space.
    Maxes(KvsLimits),
    /// The program will be aborted.
    AbortAck,
    /// The process may end.
    Finalized,
    /// The universe size.
    Universe(u64),
    /// The application number.
    Appnum(u64),
    /// The name of the keyval space; in PMI-2, the id of the job.
    Kvsname(Vec<u8>),
    /// All processes have entered the barrier.
    Barrier,
    /// The group barrier with this tag has ended: `true` if all processes of the group have entered it, `false` if it has failed.
    GroupBarrier(bool, u64),
    /// An operation that has no result succeeded.
    Done(&'static str),
    /// The requested value.
    Value(Vec<u8>),
    /// The port that was published under the name.
    Port(Vec<u8>),
    /// The programs were started.
    Spawned {
        /// The error codes of the processes, if the server sent a list.
        errcodes: Option<Vec<i64>>,
        /// The id of the new job, in PMI-2.
        jobid: Option<Vec<u8>>,
    },
    /// The process is connected to the job.
    Connected {
        /// True if the client has to copy the pairs of the job to its own server.
        copies: bool,
    },
    /// The operation failed.
    Failed {
        /// The operation that failed.
        operation: &'static str,
        /// [`ResponseOutcome::Miss`] if PMI-2's flag reports a miss; otherwise, [`ResponseOutcome::Failure`].
        outcome: ResponseOutcome,
        /// The return code `rc`.
        rc: i64,
        /// The reason, as human-readable text.
        msg: Option<Vec<u8>>,
        /// The error codes of a spawn, if the server sent them.
        errcodes: Option<Vec<i64>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    New,
    /// In PMI-2, the client has initialized, but has not joined with fullinit yet.
    Accepted,
    Joined,
    /// Finalized or aborted.
    Left,
    /// The server has broken the protocol.
    Broken,
}

#[derive(Debug)]
struct InFlightRequest {
    exchange: &'static Exchange,
    thrid: Option<Vec<u8>>,
}

/// The state machine of a client.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    phase: ClientPhase,
    pending: Vec<InFlightRequest>,
    /// The highest version to offer.
    offered_version: Version,
    /// The version in use.
    version: Version,
    /// The id of the thread that makes the next requests.
    thrid: Option<Vec<u8>>,
    /// The tags of open group barriers.
    open: Vec<u64>,
    maxes: Option<KvsLimits>,
    kvsname: Option<Vec<u8>>,
    /// The keys of all put requests of the client (PMI-1).
    keys: HashSet<Vec<u8>>,
    /// True if the client accepts the breaches that [`Client::lenient`] lists.
    lenient: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

/// Maximum length of a message: enough for a value of any known server, and for the error codes of 10,000 processes.
const MESSAGE_MAX: usize = 100_000;

/// The limits of PMI-2 (draft, "The protocol"), including a terminating NUL, as in PMI-1.
const DRAFT_LIMITS: KvsLimits =
    KvsLimits { kvsname_max: u64::MAX, keylen_max: KEY_MAX as u64 + 1, vallen_max: VALUE_MAX as u64 + 1 };

/// The suffix that Hydra appends to some responses, and that a [lenient](Client::lenient) client accepts.
const FOUND: &[u8] = b" found=TRUE";

/// A field of a request: its name in the protocol table, and its value.
pub type Argument<'a> = (&'static str, &'a [u8]);

impl Client {
    /// Creates a PMI-1.1 client that has not sent anything yet.
    pub fn new() -> Self {
        Self {
            connection: Connection::new(MESSAGE_MAX),
            phase: ClientPhase::New,
            pending: Vec::new(),
            offered_version: Version::V1_1,
            version: Version::V1_1,
            thrid: None,
            open: Vec::new(),
            maxes: None,
            kvsname: None,
            keys: HashSet::new(),
            lenient: false,
        }
    }

    /// Creates a PMI-1.1 client that accepts two breaches of the standard. MPICH's Hydra 5.0 answers an offer of 1.1 with a later
    /// subversion (1.2), and Hydra 4.1 and 4.2 write `found=TRUE` after each value.
    pub fn lenient() -> Self {
        Self { lenient: true, ..Self::new() }
    }

    /// Creates a client that offers 1.2. If the server answers with a lower version, group barriers are not available.
    pub fn with_groups() -> Self {
        Self { offered_version: Version::V1_2, ..Self::new() }
    }

    /// Creates a client that offers 2.0. If the server answers with a lower version, the client uses that version.
    pub fn with_pmi2() -> Self {
        Self { offered_version: Version::V2_0, ..Self::new() }
    }

    /// Returns the negotiated version, or 1.1 before the negotiation.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the limits of the keyval space, or `None` if the server has not sent them yet. In PMI-2, returns the constant limits of the
    /// draft.
    pub fn limits(&self) -> Option<KvsLimits> {
        if self.is_pmi2() { Some(DRAFT_LIMITS) } else { self.maxes }
    }

    /// Returns the name of the keyval space, or `None` if the server has not sent it yet.
    pub fn keyval_space(&self) -> Option<&[u8]> {
        self.kvsname.as_deref()
    }

    fn is_pmi2(&self) -> bool {
        self.connection.framing() == Framing::Frames
    }

    /// Sets the thread that makes the next requests. Requests with different thread ids may be pending at the same time (draft, "Thread
    /// Safety").
    pub fn set_thread(&mut self, thrid: Option<&[u8]>) {
        self.thrid = thrid.map(<[u8]>::to_vec);
    }

    /// Offers the client's highest version (RFC 13, "Version Negotiation"). The offer may be repeated only after a refusal.
    pub fn init(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.check_idle()?;
        if self.phase != ClientPhase::New {
            return Err(ClientMisuse::Initialized);
        }
        let (version, subversion) =
            (self.offered_version.version.to_string(), self.offered_version.subversion.to_string());
        let fields = [("pmi_version", version.as_bytes()), ("pmi_subversion", subversion.as_bytes())];
        let bytes = self.write("init", &fields)?;
        // The connection must see the offer, because the offer determines whether frames may follow.
        self.connection.push(Direction::ToServer, &bytes);
        let _ = self.connection.next(Direction::ToServer);
        Ok(bytes)
    }

    /// Joins the job (draft, "`PMI_Init`"). Every argument is optional.
    pub fn fullinit(
        &mut self,
        jobid: Option<&[u8]>,
        rank: Option<u64>,
        threaded: bool,
    ) -> Result<Vec<u8>, ClientMisuse> {
        self.check_idle()?;
        match self.phase {
            ClientPhase::Accepted => {}
            ClientPhase::Joined => return Err(ClientMisuse::Initialized),
            _ => return Err(ClientMisuse::NotInitialized),
        }
        let rank = rank.map(|rank| rank.to_string());
        let jobid = jobid.map(|jobid| ("pmijobid", jobid));
        let rank = rank.as_ref().map(|rank| ("pmirank", rank.as_bytes()));
        let fields: Vec<_> =
            jobid.into_iter().chain(rank).chain([("threaded", boolean_text(threaded))]).collect();
        self.write("init", &fields)
    }

    /// Requests the limits (RFC 13, "Initialization"). After the response, [`put`](Self::put) and [`get`](Self::get) enforce the limits.
    pub fn maxes(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.request("maxes", &[])
    }

    /// Requests the name of the keyval space (RFC 13, "`PMI_KVS_Get_my_name`"; draft, "`PMI_Job_GetId`"). In PMI-1, [`put`](Self::put) and
    /// [`get`](Self::get) need this name.
    pub fn kvsname(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.request("kvsname", &[])
    }

    /// Requests the universe size (RFC 13, "`PMI_Get_universe_size`").
    pub fn universe(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.request("universe", &[])
    }

    /// Requests the application number (RFC 13, "`PMI_Get_appnum`").
    pub fn appnum(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.request("appnum", &[])
    }

    /// Enters the barrier of the whole process group (RFC 13, "`PMI_Barrier`"; draft, "`PMI_KVS_Fence`").
    pub fn barrier(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.request("barrier", &[])
    }

    /// Enters a group barrier (PMI-1.2; MPICH's list of PMI messages, `barrier_in`). Before the response arrives, the client may enter
    /// other barriers, and put and get pairs.
    pub fn group_barrier(&mut self, group: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.check_joined()?;
        if !self.version.has_group_barriers() {
            return Err(ClientMisuse::NoOperation("group barrier", self.version));
        }
        let barrier = GroupBarrier::parse(group).map_err(|_| ClientMisuse::BadField("group"))?;
        if self.open.contains(&barrier.tag) {
            return Err(ClientMisuse::TagOpen(barrier.tag));
        }
        let bytes = self.write("barrier", &[("group", group)])?;
        // The response is recognized by its tag, so the request is stored in `open` instead of `pending`.
        self.pending.pop();
        self.open.push(barrier.tag);
        Ok(bytes)
    }

    /// Puts a pair (RFC 13, "`PMI_KVS_Put`"; draft, "`PMI_KVS_Put`"). RFC 13 requires: "A key SHALL NOT be put more than once". The client
    /// also applies this rule to a key whose put the server has refused, because the server may have stored the key. The draft does not
    /// limit the number of puts.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.check_joined()?;
        if self.keys.contains(key) {
            return Err(ClientMisuse::KeyPutBefore);
        }
        let bytes = self.request_in_space("put", &[("key", key), ("value", value)])?;
        if !self.is_pmi2() {
            self.keys.insert(key.to_vec());
        }
        Ok(bytes)
    }

    /// Requests a value from the process group's keyval space (RFC 13, "`PMI_KVS_Get`"; draft, "`PMI_KVS_Get`").
    pub fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.check_joined()?;
        self.request_in_space("get", &[("key", key)])
    }

    /// Requests a value from a job's keyval space, with a hint about the rank that put the value (draft, "`PMI_KVS_Get`").
    pub fn get_of_job(
        &mut self,
        jobid: Option<&[u8]>,
        srcid: Option<i64>,
        key: &[u8],
    ) -> Result<Vec<u8>, ClientMisuse> {
        let srcid = srcid.map(|id| id.to_string());
        let jobid = jobid.map(|jobid| ("jobid", jobid));
        let srcid = srcid.as_ref().map(|id| ("srcid", id.as_bytes()));
        let fields: Vec<_> = jobid.into_iter().chain(srcid).chain([("key", key)]).collect();
        self.request("get", &fields)
    }

    /// Puts an attribute of this process's node (draft, "`PMI_Info_PutNodeAttr`").
    pub fn put_node_attribute(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("put-node-attribute", &[("key", key), ("value", value)])
    }

    /// Requests an attribute of this process's node (draft, "`PMI_Info_GetNodeAttr`"). With `wait`, the server responds only when the
    /// attribute has a value.
    pub fn get_node_attribute(&mut self, key: &[u8], wait: bool) -> Result<Vec<u8>, ClientMisuse> {
        let fields = [("key", key), ("wait", boolean_text(true))];
        self.request("get-node-attribute", if wait { &fields } else { &fields[..1] })
    }

    /// Requests an attribute of the job (draft, "`PMI_Info_GetJobAttr`").
    pub fn get_job_attribute(&mut self, key: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("get-job-attribute", &[("key", key)])
    }

    /// Connects to another job (draft, "`PMI_Job_Connect`").
    pub fn connect(&mut self, jobid: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("connect", &[("jobid", jobid)])
    }

    /// Disconnects from another job (draft, "`PMI_Job_Disconnect`").
    pub fn disconnect(&mut self, jobid: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("disconnect", &[("jobid", jobid)])
    }

    /// Publishes a port under a name (RFC 13, "`PMI_Publish_name`"; draft, "`PMI_Nameserv_publish`").
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("publish", &[("service", service), ("port", port)])
    }

    /// Withdraws a name (RFC 13, "`PMI_Unpublish_name`"; draft, "`PMI_Nameserv_unpublish`").
    pub fn unpublish(&mut self, service: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("unpublish", &[("service", service)])
    }

    /// Requests the port that is published under a name (RFC 13, "`PMI_Lookup_name`"; draft, "`PMI_Nameserv_lookup`").
    pub fn lookup(&mut self, service: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.request("lookup", &[("service", service)])
    }

    /// Starts programs as a new process group (RFC 13, "`PMI_Spawn_multiple`"; draft, "`PMI_Job_Spawn`"). This method fills in `totspawns`,
    /// `spawnssofar` and the indices of the arguments. In PMI-2, the pairs of all programs are sent together.
    pub fn spawn(&mut self, programs: &[SpawnProgram]) -> Result<Vec<u8>, ClientMisuse> {
        self.check_joined()?;
        if programs.iter().all(|program| program.nprocs == 0) {
            return Err(ClientMisuse::NothingToSpawn);
        }
        self.check_no_group_barrier()?;
        for program in programs {
            for (key, value) in &program.preput {
                self.check("key", Rule::Word, key)?;
                self.check("value", Rule::String, value)?;
            }
        }
        let exchange = self.exchange("spawn")?;
        let mut bytes = Vec::new();
        if self.is_pmi2() {
            let request = SpawnRequest { programs: programs.to_vec() };
            request.write_body(self.thrid.as_deref(), &mut bytes);
            bytes = self.complete(bytes)?;
        } else {
            for (number, program) in (1..).zip(programs) {
                let is_value = |value: &[u8]| value.is_empty() || is_string(value);
                let bad = |name, good: bool| if good { Ok(()) } else { Err(ClientMisuse::BadField(name)) };
                bad("execname", is_string(&program.execname))?;
                bad("argument", program.args.iter().all(|(_, arg)| is_value(arg)))?;
                bad("info", program.info.iter().all(|(key, value)| is_string(key) && is_value(value)))?;
                let mut program = program.clone();
                program.totspawns = programs.len() as u64;
                program.spawnssofar = number;
                // RFC 13, "Spawn Operation": the indices begin with zero.
                (0..).zip(&mut program.args).for_each(|(index, arg)| arg.0 = index);
                program.write_to(&mut bytes);
            }
        }
        self.pending.push(InFlightRequest { exchange, thrid: self.thrid.clone() });
        Ok(bytes)
    }

    /// Requests the end of the program (RFC 13, "`PMI_Abort`"). `exitcode` is not part of RFC 13 or the draft, but MPICH sends it.
    pub fn abort(&mut self, exitcode: Option<i64>) -> Result<Vec<u8>, ClientMisuse> {
        let code = exitcode.map(|code| code.to_string());
        let fields: Vec<_> = code.iter().map(|code| ("exitcode", code.as_bytes())).collect();
        self.abort_with(&fields)
    }

    /// Requests the end of the job, with a human-readable message (draft, "`PMI_Abort`"). No response follows.
    pub fn abort_job(&mut self, is_world: bool, message: &[u8]) -> Result<Vec<u8>, ClientMisuse> {
        self.abort_with(&[("isworld", boolean_text(is_world)), ("msg", message)])
    }

    fn abort_with(&mut self, fields: &[Argument<'_>]) -> Result<Vec<u8>, ClientMisuse> {
        if !self.is_pmi2() {
            return self.request("abort", fields);
        }
        // Any thread may abort the job at any time, even if requests are pending.
        match self.phase {
            ClientPhase::Broken => return Err(ClientMisuse::Broken),
            ClientPhase::Left => return Err(ClientMisuse::Left),
            ClientPhase::New | ClientPhase::Accepted | ClientPhase::Joined => {}
        }
        let bytes = self.write("abort", fields)?;
        self.pending.clear();
        self.phase = ClientPhase::Left;
        Ok(bytes)
    }

    /// Leaves PMI (RFC 13, "`PMI_Finalize`"; draft, "`PMI_Finalize`").
    pub fn finalize(&mut self) -> Result<Vec<u8>, ClientMisuse> {
        self.check_no_group_barrier()?;
        self.request("finalize", &[])
    }

    /// Reads bytes from the server, and returns the first response that they complete, if any. After an error, the client must close the
    /// connection (RFC 13, "Error Handling").
    pub fn receive(&mut self, bytes: &[u8]) -> Option<Result<ServerResponse, ServerError>> {
        if bytes.is_empty() {
            return None;
        }
        if self.phase == ClientPhase::Broken {
            return Some(Err(ServerError::Broken));
        }
        if !self.waits() {
            return Some(self.broken(ServerError::Unsolicited));
        }
        self.connection.push(Direction::FromServer, bytes);
        self.next_response()
    }

    /// Returns the next response, or `None` if no complete response is left. Call this after [`receive`](Self::receive), because the
    /// received bytes may contain several responses.
    pub fn next_response(&mut self) -> Option<Result<ServerResponse, ServerError>> {
        if self.phase == ClientPhase::Broken {
            return None;
        }
        let (framing, text) = match self.connection.next(Direction::FromServer)? {
            Ok(message) => (message.framing, message.text.to_vec()),
            Err(error) => return Some(self.broken(error.into())),
        };
        Some(match self.read(&Decoded::new(Direction::FromServer, framing, &text)) {
            Ok(_) if !self.waits() && self.has_more() => self.broken(ServerError::Unsolicited),
            Ok(answer) => Ok(answer),
            Err(error) => self.broken(error),
        })
    }

    /// Handles the end of the connection, which is an error unless the client has finalized or aborted. The server closes the connection
    /// after a protocol error (RFC 13, "Error Handling").
    pub fn closed(&mut self) -> Result<(), ServerError> {
        let over = self.phase == ClientPhase::Left && self.pending.is_empty();
        self.phase = ClientPhase::Broken;
        if over { Ok(()) } else { Err(ServerError::Closed) }
    }

    /// Returns whether bytes of a further message have arrived.
    fn has_more(&mut self) -> bool {
        let from = Direction::FromServer;
        self.connection.next(from).is_some() || !self.connection.partial(from).is_empty()
    }

    fn waits(&self) -> bool {
        !self.pending.is_empty() || !self.open.is_empty()
    }

    fn broken(&mut self, error: ServerError) -> Result<ServerResponse, ServerError> {
        self.phase = ClientPhase::Broken;
        Err(error)
    }

    /// Checks that a request may be made now. Requests and responses alternate (RFC 13, "Wire Protocol"), but the requests of different
    /// threads are independent (draft, "Thread Safety").
    fn check_idle(&self) -> Result<(), ClientMisuse> {
        let conflicts = |pending: &&InFlightRequest| {
            !self.is_pmi2() || pending.thrid.is_none() || self.thrid.is_none() || pending.thrid == self.thrid
        };
        match (self.phase, self.pending.iter().find(conflicts)) {
            (ClientPhase::Broken, _) => Err(ClientMisuse::Broken),
            (_, Some(pending)) => Err(ClientMisuse::InFlight(pending.exchange.operation)),
            (ClientPhase::Left, _) => Err(ClientMisuse::Left),
            _ => Ok(()),
        }
    }

    fn check_joined(&self) -> Result<(), ClientMisuse> {
        self.check_idle()?;
        if self.phase == ClientPhase::Joined { Ok(()) } else { Err(ClientMisuse::NotInitialized) }
    }

    /// Checks that no group barrier is open. This client does not spawn or finalize while it is in a group barrier.
    fn check_no_group_barrier(&self) -> Result<(), ClientMisuse> {
        if self.open.is_empty() { Ok(()) } else { Err(ClientMisuse::BarriersOpen) }
    }

    /// Makes a request with the given fields, for an operation that has no rules other than those in the protocol table.
    pub fn request(
        &mut self,
        operation: &'static str,
        fields: &[Argument<'_>],
    ) -> Result<Vec<u8>, ClientMisuse> {
        self.check_joined()?;
        self.write(operation, fields)
    }

    /// Makes a request about the keyval space of the process group. In PMI-1, adds the name of the space.
    fn request_in_space(
        &mut self,
        operation: &'static str,
        fields: &[Argument<'_>],
    ) -> Result<Vec<u8>, ClientMisuse> {
        if self.is_pmi2() {
            return self.write(operation, fields);
        }
        let kvsname = self.kvsname.clone().ok_or(ClientMisuse::NoKvsname)?;
        self.write(operation, &[&[("kvsname", &kvsname[..])], fields].concat())
    }

    fn exchange(&self, operation: &'static str) -> Result<&'static Exchange, ClientMisuse> {
        let exchange = protocol::by_operation(self.connection.framing(), operation);
        exchange.ok_or(ClientMisuse::NoOperation(operation, self.version))
    }

    /// Encodes a request using the protocol table, and records it as pending.
    fn write(&mut self, operation: &'static str, fields: &[Argument<'_>]) -> Result<Vec<u8>, ClientMisuse> {
        let exchange = self.exchange(operation)?;
        let is_frame = self.is_pmi2();
        let mut bytes = Vec::with_capacity(64);
        let framing = self.connection.framing();
        let mut tuple = |key: &str, value: &[u8]| framing.write_tuple(&mut bytes, key, value);
        tuple("cmd", exchange.request.as_bytes());
        if let Some(thrid) = self.thrid.as_ref().filter(|_| is_frame) {
            tuple("thrid", thrid);
        }
        for (name, value) in fields {
            let mut all = exchange.arguments.iter();
            let field = all.find(|field| field.name == *name).ok_or(ClientMisuse::BadField(name))?;
            self.check(name, field.rule, value)?;
            tuple(field.key, value);
        }
        let bytes = self.complete(bytes)?;
        self.pending.push(InFlightRequest { exchange, thrid: self.thrid.clone().filter(|_| is_frame) });
        Ok(bytes)
    }

    /// Adds the framing of the connection to a message whose tuples are already encoded.
    fn complete(&self, tuples: Vec<u8>) -> Result<Vec<u8>, ClientMisuse> {
        let length = tuples.len();
        let too_long = ClientMisuse::TooLong { what: "message", length, limit: 999_999 };
        self.connection.framing().complete(tuples).ok_or(too_long)
    }

    /// Checks the characters and the length of a value. PMI-2 restricts only the characters of keys. The limits count a terminating NUL.
    fn check(&self, name: &'static str, rule: Rule, value: &[u8]) -> Result<(), ClientMisuse> {
        let is_good = match (self.is_pmi2(), rule) {
            (true, _) => name != "key" || is_key(value) || value.len() > KEY_MAX,
            (false, Rule::String) => value.is_empty() || is_string(value),
            (false, rule) => rule.accepts(value),
        };
        if !is_good {
            return Err(ClientMisuse::BadField(name));
        }
        let limits = self.limits();
        let limit = match name {
            "key" => limits.map(|maxes| maxes.keylen_max),
            "value" => limits.map(|maxes| maxes.vallen_max),
            _ => None,
        };
        match limit.filter(|limit| value.len() as u64 >= *limit) {
            Some(limit) => {
                Err(ClientMisuse::TooLong { what: name, length: value.len(), limit: limit.saturating_sub(1) })
            }
            None => Ok(()),
        }
    }

    /// Finds the request that a response answers, and reads the response.
    fn read(&mut self, message: &Decoded<'_>) -> Result<ServerResponse, ServerError> {
        if let Some(error) = message.error() {
            return Err(ServerError::Malformed(error.to_string()));
        }
        let exchange = message.exchange().ok_or(ServerError::Unsolicited)?;
        let outcome = message.outcome().ok_or(ServerError::NoResult)?;
        if message.framing == Framing::Lines && exchange.operation == "barrier" {
            let tag = message.raw("tag").map_or(Some(0), parse_uint);
            if let Some(at) = self.open.iter().position(|open| Some(*open) == tag) {
                return Ok(ServerResponse::GroupBarrier(
                    outcome == ResponseOutcome::Success,
                    self.open.remove(at),
                ));
            }
        }
        let thrid = message.value("thrid").filter(|_| message.framing == Framing::Frames);
        let is_same = |pending: &InFlightRequest| pending.exchange.request == exchange.request;
        let is_own = |pending: &InFlightRequest| {
            pending.thrid.is_none() || pending.thrid.as_deref() == thrid.as_deref()
        };
        let place = self.pending.iter().position(|pending| is_same(pending) && is_own(pending));
        // Slurm's responses never contain a thrid, so a response without one belongs to the oldest request of the same kind.
        let place = place.or_else(|| self.pending.iter().position(|p| is_same(p) && thrid.is_none()));
        let Some(place) = place else {
            return Err(match self.pending.first() {
                Some(pending) if message.framing == Framing::Lines => ServerError::Mismatched {
                    expected: pending.exchange.operation,
                    found: exchange.operation,
                },
                _ => ServerError::Unsolicited,
            });
        };
        let answer = self.result(message, exchange, outcome)?;
        self.pending.remove(place);
        match &answer {
            ServerResponse::Init(version) => {
                self.phase = if self.is_pmi2() { ClientPhase::Accepted } else { ClientPhase::Joined };
                self.version = *version;
            }
            ServerResponse::Joined { .. } => self.phase = ClientPhase::Joined,
            ServerResponse::Maxes(limits) => self.maxes = Some(*limits),
            ServerResponse::Kvsname(name) => self.kvsname = Some(name.clone()),
            ServerResponse::Finalized | ServerResponse::AbortAck => self.phase = ClientPhase::Left,
            // In PMI-2, a refused fullinit or finalize must not be repeated, so the client rejects all further requests.
            ServerResponse::Failed { operation: "init" | "finalize", .. }
                if message.framing == Framing::Frames =>
            {
                self.phase = ClientPhase::Left;
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Reads the results of a response.
    fn result(
        &self,
        message: &Decoded<'_>,
        exchange: &'static Exchange,
        outcome: ResponseOutcome,
    ) -> Result<ServerResponse, ServerError> {
        let value = |name| message.field(name).map(std::borrow::Cow::into_owned);
        let need = |name| value(name).ok_or(ServerError::NoResult);
        let number = |name| value(name).and_then(|text| parse_uint(&text)).ok_or(ServerError::NoResult);
        let integer = |name| value(name).and_then(|text| parse_int(&text));
        let errcodes = || value("errcodes").and_then(|codes| parse_intlist(&codes));
        let operation = exchange.operation;
        if outcome != ResponseOutcome::Success {
            let msg = value("msg").or_else(|| value("errmsg"));
            let rc = message.rc().unwrap_or(0);
            return Ok(ServerResponse::Failed { operation, outcome, rc, msg, errcodes: errcodes() });
        }
        Ok(match operation {
            "init" if message.framing == Framing::Frames => ServerResponse::Joined {
                rank: number("rank")?,
                size: number("size")?,
                appnum: integer("appnum").ok_or(ServerError::NoResult)?,
                spawned: value("spawner-jobid").is_some(),
            },
            "init" => match message.version().ok_or(ServerError::NoResult)? {
                version if version <= self.offered_version => ServerResponse::Init(version),
                version if self.lenient && version.version == self.offered_version.version => {
                    ServerResponse::Init(self.offered_version)
                }
                version => return Err(ServerError::BadVersion(version)),
            },
            "maxes" => ServerResponse::Maxes(message.limits().ok_or(ServerError::NoResult)?),
            "abort" => ServerResponse::AbortAck,
            "finalize" => ServerResponse::Finalized,
            "universe" => ServerResponse::Universe(number("size")?),
            "appnum" => ServerResponse::Appnum(number("appnum")?),
            "kvsname" => ServerResponse::Kvsname(need("kvsname")?),
            "barrier" => ServerResponse::Barrier,
            "get" | "get-node-attribute" | "get-job-attribute" => {
                let mut value = need("value")?;
                if self.lenient && value.ends_with(FOUND) {
                    value.truncate(value.len() - FOUND.len());
                }
                ServerResponse::Value(value)
            }
            "lookup" => ServerResponse::Port(need("port")?),
            "spawn" => ServerResponse::Spawned { errcodes: errcodes(), jobid: value("jobid") },
            "connect" => {
                let copies = value("kvscopy").map(|copy| copy.to_ascii_lowercase());
                ServerResponse::Connected { copies: matches!(copies.as_deref(), Some(b"yes" | b"true")) }
            }
            operation => ServerResponse::Done(operation),
        })
    }
}

fn boolean_text(value: bool) -> &'static [u8] {
    if value { b"TRUE" } else { b"FALSE" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, GroupSpec, Server, ServerAction};
    use pmi_wire::{Overlong, Proc};
    use rstest::rstest;

    /// A server and its clients.
    struct Pair {
        server: Server,
        clients: Vec<Client>,
        answers: Vec<Option<ServerResponse>>,
        aborted: Option<String>,
    }

    impl Pair {
        fn new(ranks: u32) -> Self {
            let mut server = Server::new(Config::default());
            server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
            let clients = (0..ranks).map(|_| Client::new()).collect();
            Self { server, clients, answers: vec![None; ranks as usize], aborted: None }
        }

        /// Creates a server whose clients have initialized and know the limits and the name of the keyval space.
        fn joined(ranks: u32) -> Self {
            let mut pair = Self::new(ranks);
            for rank in 0..ranks as usize {
                pair.ask(rank, Client::init);
                pair.ask(rank, Client::maxes);
                pair.ask(rank, Client::kvsname);
            }
            pair
        }

        fn send(&mut self, rank: usize, request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>) {
            let bytes = request(&mut self.clients[rank]).unwrap();
            self.server.receive(Proc { group: 0, rank: rank as u32 }, &bytes);
            while let Some(action) = self.server.next_action() {
                match action {
                    ServerAction::Send { to, bytes } => {
                        let rank = to.rank as usize;
                        // Pass the bytes one by one, because framing is the client's task.
                        let (last, rest) = bytes.split_last().unwrap();
                        for byte in rest {
                            assert_eq!(self.clients[rank].receive(&[*byte]), None);
                        }
                        self.answers[rank] = Some(self.clients[rank].receive(&[*last]).unwrap().unwrap());
                    }
                    ServerAction::Spawn { group, programs, .. } => {
                        let total = programs.iter().map(|program| program.nprocs).sum::<u64>();
                        self.server.spawned(group, &vec![0; total as usize]);
                    }
                    ServerAction::Abort { reason, .. } => self.aborted = Some(reason),
                    ServerAction::Close { .. } => panic!("the reference server closes only whole groups"),
                }
            }
        }

        fn ask(
            &mut self,
            rank: usize,
            request: impl FnOnce(&mut Client) -> Result<Vec<u8>, ClientMisuse>,
        ) -> ServerResponse {
            self.send(rank, request);
            assert_eq!(self.aborted, None);
            self.answers[rank].take().unwrap()
        }
    }

    #[test]
    fn client_completes_every_operation() {
        let mut pair = Pair::new(2);
        for rank in 0..2 {
            assert_eq!(pair.ask(rank, Client::init), ServerResponse::Init(Version::V1_1));
            let limits = KvsLimits { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 };
            assert_eq!(pair.ask(rank, Client::maxes), ServerResponse::Maxes(limits));
            assert_eq!(pair.ask(rank, Client::kvsname), ServerResponse::Kvsname(b"kvs-0".to_vec()));
            assert_eq!(pair.ask(rank, Client::universe), ServerResponse::Universe(2));
            assert_eq!(pair.ask(rank, Client::appnum), ServerResponse::Appnum(0));
        }
        assert_eq!(pair.ask(0, |c| c.put(b"a", b"two words")), ServerResponse::Done("put"));
        assert_eq!(pair.ask(0, |c| c.put(b"empty", b"")), ServerResponse::Done("put"));
        pair.send(0, Client::barrier);
        assert_eq!(pair.answers[0], None);
        assert_eq!(pair.ask(1, Client::barrier), ServerResponse::Barrier);
        assert_eq!(pair.answers[0], Some(ServerResponse::Barrier));
        assert_eq!(pair.ask(1, |c| c.get(b"a")), ServerResponse::Value(b"two words".to_vec()));
        assert_eq!(pair.ask(1, |c| c.get(b"empty")), ServerResponse::Value(Vec::new()));
        assert!(matches!(
            pair.ask(1, |c| c.get(b"b")),
            ServerResponse::Failed { operation: "get", rc: -1, .. }
        ));
        assert_eq!(pair.ask(0, |c| c.publish(b"s", b"tag=0$port=1$")), ServerResponse::Done("publish"));
        assert_eq!(pair.ask(1, |c| c.lookup(b"s")), ServerResponse::Port(b"tag=0$port=1$".to_vec()));
        assert_eq!(pair.ask(0, |c| c.unpublish(b"s")), ServerResponse::Done("unpublish"));
        let program = |n| SpawnProgram {
            nprocs: n,
            execname: b"a.out".to_vec(),
            args: vec![(7, b"x".to_vec()), (7, Vec::new())],
            preput: vec![(b"k".to_vec(), b"v".to_vec())],
            info: vec![(b"wdir".to_vec(), b"/".to_vec())],
            ..SpawnProgram::default()
        };
        let spawned = ServerResponse::Spawned { errcodes: Some(vec![0; 3]), jobid: None };
        assert_eq!(pair.ask(0, |c| c.spawn(&[program(1), program(2)])), spawned);
        for rank in 0..2 {
            assert_eq!(pair.ask(rank, Client::finalize), ServerResponse::Finalized);
            assert_eq!(pair.clients[rank].closed(), Ok(()));
        }
    }

    #[test]
    fn abort_is_acknowledged() {
        let mut pair = Pair::joined(1);
        pair.send(0, |c| c.abort(Some(3)));
        assert_eq!(pair.answers[0], Some(ServerResponse::AbortAck));
        assert_eq!(pair.aborted.as_deref(), Some("abort requested"));
        assert_eq!(pair.clients[0].finalize(), Err(ClientMisuse::Left));
    }

    #[test]
    fn client_rejects_misuse() {
        let mut client = Client::new();
        assert_eq!(client.maxes(), Err(ClientMisuse::NotInitialized));
        client.init().unwrap();
        assert_eq!(client.init(), Err(ClientMisuse::InFlight("init")));
        client.receive(b"cmd=response_to_init pmi_version=1 pmi_subversion=1\n").unwrap().unwrap();
        assert_eq!(client.init(), Err(ClientMisuse::Initialized));
        assert_eq!(client.put(b"k", b"v"), Err(ClientMisuse::NoKvsname));
        assert_eq!(client.get(b"k"), Err(ClientMisuse::NoKvsname));

        let mut pair = Pair::joined(1);
        let client = &mut pair.clients[0];
        assert_eq!(client.put(b"k=", b"v"), Err(ClientMisuse::BadField("key")));
        assert_eq!(client.put(b"", b"v"), Err(ClientMisuse::BadField("key")));
        assert_eq!(client.put(b"k", b"v\n"), Err(ClientMisuse::BadField("value")));
        assert_eq!(
            client.put(&[b'k'; 64], b"v"),
            Err(ClientMisuse::TooLong { what: "key", length: 64, limit: 63 })
        );
        assert!(matches!(client.put(b"k", &[b'v'; 1024]), Err(ClientMisuse::TooLong { what: "value", .. })));
        assert_eq!(client.publish(b"s s", b"p"), Err(ClientMisuse::BadField("service")));
        assert_eq!(client.publish(b"s", b"p p"), Err(ClientMisuse::BadField("port")));
        assert_eq!(client.spawn(&[]), Err(ClientMisuse::NothingToSpawn));
        let newline = SpawnProgram { nprocs: 1, execname: b"a\nb".to_vec(), ..SpawnProgram::default() };
        assert_eq!(client.spawn(&[newline]), Err(ClientMisuse::BadField("execname")));

        assert_eq!(pair.ask(0, |c| c.put(&[b'k'; 63], &[b'v'; 1023])), ServerResponse::Done("put"));
        assert_eq!(pair.clients[0].put(&[b'k'; 63], b"v"), Err(ClientMisuse::KeyPutBefore));
        assert_eq!(pair.ask(0, Client::finalize), ServerResponse::Finalized);
        assert_eq!(pair.clients[0].barrier(), Err(ClientMisuse::Left));
    }

    /// Returns a client that is waiting for the response to a get.
    fn asking() -> Client {
        let mut pair = Pair::joined(1);
        let mut client = pair.clients.remove(0);
        client.get(b"k").unwrap();
        client
    }

    #[test]
    fn client_reports_server_errors() {
        let cases: [(&[u8], ServerError); 7] = [
            (b"cmd=put_result rc=0\n", ServerError::Mismatched { expected: "get", found: "put" }),
            (b"\n", ServerError::Mismatched { expected: "get", found: "abort" }),
            (b"cmd=get_result rc=0\n", ServerError::NoResult),
            (b"cmd=what\n", ServerError::Malformed("not a PMI-1.1 response".to_owned())),
            (b"cmd=get_result value=v\ncmd=get_result value=v\n", ServerError::Unsolicited),
            (b"cmd=get_result value=v\nc", ServerError::Unsolicited),
            (&[b'x'; MESSAGE_MAX], ServerError::Framing(Overlong { limit: MESSAGE_MAX }.into())),
        ];
        for (bytes, error) in cases {
            let mut client = asking();
            assert_eq!(client.receive(bytes), Some(Err(error)), "{}", bytes.escape_ascii());
            assert_eq!(client.receive(b"x"), Some(Err(ServerError::Broken)));
            assert_eq!(client.barrier(), Err(ClientMisuse::Broken));
        }
        let mut client = asking();
        client.receive(b"cmd=get_result value=v\n").unwrap().unwrap();
        assert_eq!(client.receive(b"c"), Some(Err(ServerError::Unsolicited)));
        assert_eq!(asking().closed(), Err(ServerError::Closed));

        let mut client = Client::new();
        client.init().unwrap();
        let answer = client.receive(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        assert_eq!(answer, Some(Err(ServerError::BadVersion(Version::V2_0))));
    }

    #[test]
    fn lenient_client_accepts_a_later_subversion() {
        let answer = |bytes: &[u8]| {
            let mut client = Client::lenient();
            client.init().unwrap();
            client.receive(bytes)
        };
        let later = answer(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n");
        assert_eq!(later, Some(Ok(ServerResponse::Init(Version::V1_1))));
        let other = answer(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        assert!(matches!(other, Some(Err(ServerError::BadVersion(_)))));
    }

    #[test]
    fn lenient_client_strips_the_found_suffix() {
        for (tolerant, value) in [(true, &b"a b"[..]), (false, &b"a b found=TRUE"[..])] {
            let mut client = Client { lenient: tolerant, ..asking() };
            let answer = client.receive(b"cmd=get_result rc=0 value=a b found=TRUE\n");
            assert_eq!(answer, Some(Ok(ServerResponse::Value(value.to_vec()))));
        }
    }

    #[test]
    fn tags_distinguish_group_barriers() {
        let config = Config { pmi12: true, ..Config::default() };
        let mut server = Server::new(config);
        server.add_group(GroupSpec { programs: vec![2], ..GroupSpec::default() });
        let mut clients = [Client::with_groups(), Client::with_groups()];
        let mut deliver = |clients: &mut [Client; 2], rank: usize, bytes: Vec<u8>| {
            server.receive(Proc { group: 0, rank: rank as u32 }, &bytes);
            let mut answers = Vec::new();
            while let Some(ServerAction::Send { to, bytes }) = server.next_action() {
                let client = &mut clients[to.rank as usize];
                answers.extend(client.receive(&bytes).map(|answer| (to.rank, answer.unwrap())));
            }
            answers
        };
        for rank in 0..2 {
            let init = clients[rank].init().unwrap();
            assert_eq!(
                deliver(&mut clients, rank, init),
                [(rank as u32, ServerResponse::Init(Version::V1_2))]
            );
        }
        let one = clients[0].group_barrier(b"0,1:1").unwrap();
        let two = clients[0].group_barrier(b"WORLD:2").unwrap();
        assert_eq!(clients[0].group_barrier(b"NODE:2"), Err(ClientMisuse::TagOpen(2)));
        assert_eq!(clients[0].finalize(), Err(ClientMisuse::BarriersOpen));
        let maxes = clients[0].maxes().unwrap();
        assert_eq!(deliver(&mut clients, 0, [one, two].concat()), []);
        assert_eq!(deliver(&mut clients, 0, maxes).len(), 1);
        let opens = |tag: u64| [0, 1].map(|rank| (rank, ServerResponse::GroupBarrier(true, tag)));
        let two = clients[1].group_barrier(b"WORLD:2").unwrap();
        assert_eq!(deliver(&mut clients, 1, two), opens(2));
        let one = clients[1].group_barrier(b"0,1:1").unwrap();
        assert_eq!(deliver(&mut clients, 1, one), opens(1));
        assert!(clients.iter_mut().all(|client| client.finalize().is_ok()));
    }

    #[test]
    fn pmi_1_2_client_falls_back_to_1_1() {
        let mut pair = Pair::new(1);
        pair.clients = vec![Client::with_groups()];
        assert_eq!(pair.ask(0, Client::init), ServerResponse::Init(Version::V1_1));
        assert_eq!(
            pair.clients[0].group_barrier(b"WORLD"),
            Err(ClientMisuse::NoOperation("group barrier", Version::V1_1))
        );
        assert_eq!(pair.ask(0, Client::barrier), ServerResponse::Barrier);
    }

    #[test]
    fn client_returns_pipelined_responses_one_by_one() {
        let mut client = Client::with_groups();
        client.init().unwrap();
        client.receive(b"cmd=response_to_init pmi_version=1 pmi_subversion=2\n").unwrap().unwrap();
        client.group_barrier(b"0,1:1").unwrap();
        client.group_barrier(b"0,1:2").unwrap();
        let both = b"cmd=barrier_out tag=2\ncmd=barrier_out rc=-1 tag=1\n";
        assert_eq!(client.receive(both), Some(Ok(ServerResponse::GroupBarrier(true, 2))));
        assert_eq!(client.next_response(), Some(Ok(ServerResponse::GroupBarrier(false, 1))));
        assert_eq!(client.next_response(), None);
        client.group_barrier(b"NODE:9").unwrap();
        assert_eq!(client.receive(b"cmd=barrier_out tag=8\n"), Some(Err(ServerError::Unsolicited)));
    }

    #[test]
    fn refused_init_may_be_repeated() {
        let mut client = Client::new();
        client.init().unwrap();
        let answer = client.receive(b"cmd=response_to_init rc=-1\n");
        assert!(matches!(answer, Some(Ok(ServerResponse::Failed { operation: "init", .. }))));
        assert_eq!(client.maxes(), Err(ClientMisuse::NotInitialized));
        assert!(client.init().is_ok());
    }

    const TAKEN: &[u8] = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";

    fn frame(body: &str) -> Vec<u8> {
        format!("{:>6}{body}", body.len()).into_bytes()
    }

    /// Returns a PMI-2 client that has initialized.
    fn in_pmi2() -> Client {
        let mut client = Client::with_pmi2();
        assert_eq!(client.fullinit(None, Some(0), false), Err(ClientMisuse::NotInitialized));
        client.init().unwrap();
        assert_eq!(client.receive(TAKEN), Some(Ok(ServerResponse::Init(Version::V2_0))));
        assert_eq!(client.barrier(), Err(ClientMisuse::NotInitialized));
        client.fullinit(None, Some(0), false).unwrap();
        let joined = ServerResponse::Joined { rank: 0, size: 1, appnum: -1, spawned: false };
        let response = frame("cmd=fullinit-response;rc=0;rank=0;size=1;appnum=-1;");
        assert_eq!(client.receive(&response), Some(Ok(joined)));
        client
    }

    #[test]
    fn each_pmi2_thread_may_have_a_pending_request() {
        let mut client = in_pmi2();
        assert_eq!(client.put(b"k", b"a;b"), Ok(frame("cmd=kvs-put;key=k;value=a;;b;")));
        client.set_thread(Some(b"2"));
        assert_eq!(client.barrier(), Err(ClientMisuse::InFlight("put")));
        let done = client.receive(&frame("cmd=kvs-put-response;rc=0;"));
        assert_eq!(done, Some(Ok(ServerResponse::Done("put"))));
        for thread in [b"1", b"2"] {
            client.set_thread(Some(thread));
            client.kvsname().unwrap();
        }
        assert_eq!(client.kvsname(), Err(ClientMisuse::InFlight("kvsname")));
        let second = client.receive(&frame("cmd=job-getid-response;thrid=2;rc=0;jobid=b;"));
        assert_eq!(second, Some(Ok(ServerResponse::Kvsname(b"b".to_vec()))));
        // Slurm's responses do not contain the thread id.
        let first = client.receive(&frame("cmd=job-getid-response;rc=0;jobid=a;"));
        assert_eq!(first, Some(Ok(ServerResponse::Kvsname(b"a".to_vec()))));
    }

    #[test]
    fn pmi2_client_falls_back_to_pmi1() {
        let mut client = Client::with_pmi2();
        client.init().unwrap();
        let answer = client.receive(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
        assert_eq!(answer, Some(Ok(ServerResponse::Init(Version::V1_1))));
        assert_eq!(client.fullinit(None, None, false), Err(ClientMisuse::Initialized));
        assert_eq!(client.maxes(), Ok(b"cmd=get_maxes\n".to_vec()));
    }

    #[rstest]
    #[case("cmd=kvs-fence-response;rc=0;")]
    #[case("cmd=kvs-put-response;")]
    #[case("cmd=kvs-put-response;rc=0")]
    #[case("")]
    fn wrong_pmi2_response_breaks_the_connection(#[case] body: &str) {
        let mut client = in_pmi2();
        client.put(b"k", b"v").unwrap();
        assert!(matches!(client.receive(&frame(body)), Some(Err(_))));
        assert_eq!(client.finalize(), Err(ClientMisuse::Broken));
    }

    #[rstest]
    #[case("cmd=kvs-get-response;found=TRUE;value=v;rc=0;", Some(ResponseOutcome::Success))]
    #[case("cmd=kvs-get-response;found=FALSE;rc=0;", Some(ResponseOutcome::Miss))]
    #[case("cmd=kvs-get-response;rc=1;", Some(ResponseOutcome::Failure))]
    #[case("cmd=kvs-get-response;found=1;rc=0;", None)]
    fn client_distinguishes_missing_keys_from_failures(
        #[case] body: &str,
        #[case] outcome: Option<ResponseOutcome>,
    ) {
        let mut client = in_pmi2();
        client.get_of_job(None, Some(1), b"k").unwrap();
        let seen = match client.receive(&frame(body)) {
            Some(Ok(ServerResponse::Value(value))) if value == b"v" => Some(ResponseOutcome::Success),
            Some(Ok(ServerResponse::Failed { outcome, .. })) => Some(outcome),
            _ => None,
        };
        assert_eq!(seen, outcome);
    }

    #[test]
    fn pmi2_client_enforces_draft_limits() {
        let mut client = in_pmi2();
        assert!(matches!(
            client.put(b"k", &[b'v'; 1025]),
            Err(ClientMisuse::TooLong { what: "value", limit: 1024, .. })
        ));
        assert!(matches!(
            client.put(&[b'k'; 65], b"v"),
            Err(ClientMisuse::TooLong { what: "key", limit: 64, .. })
        ));
        assert_eq!(client.get(b"a b"), Err(ClientMisuse::BadField("key")));
        assert_eq!(client.maxes(), Err(ClientMisuse::NoOperation("maxes", client.version())));
        assert!(client.put(&[b'k'; 64], &[b'v'; 1024]).is_ok());
    }
}
