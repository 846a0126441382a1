//! The client's half of PMI-1 for one process.
//!
//! No sockets: each operation's method returns the bytes to send; what arrives goes into [`Client::receive`], and the answer
//! comes out of it. The client keeps to what RFC 13 asks of clients and refuses ([`Misuse`]) what would break it; a
//! server that breaks it is found out ([`ServerError`]), after which the connection is of no use any more.

pub mod pmi2;

use std::collections::HashSet;

use pmi_wire::grammar::{is_string, is_word, parse_uint};
use pmi_wire::{
    Body, Framer, GroupBarrier, Maxes, Operation, Request, Response, ResponseError, SpawnProgram,
    ValueReading, Version,
};
use thiserror::Error;

/// A request that would break RFC 13. Nothing was sent, and the client is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Misuse {
    /// Lock-step: the answer to the request before is still to come.
    #[error("the answer to {0:?} is still to come")]
    InFlight(Operation),
    /// Init comes first.
    #[error("not initialized")]
    NotInitialized,
    /// Init comes once.
    #[error("initialized already")]
    Initialized,
    /// Nothing comes after finalize or abort.
    #[error("finalized or aborted")]
    Over,
    /// The server erred; nothing can be said to it any more.
    #[error("the connection is broken")]
    Broken,
    /// A put or get before the name of the keyval space is known.
    #[error("the name of the keyval space is not known yet")]
    NoKvsname,
    /// A field that its rule does not derive.
    #[error("the {0} has characters that it must not have, or none")]
    BadField(&'static str),
    /// Longer than the server said it may be.
    #[error("the {what} has {length} bytes, only {limit} are allowed")]
    TooLong {
        /// Which field.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The longest allowed.
        limit: u64,
    },
    /// A key was put already by this client.
    #[error("the key was put before")]
    KeyPutBefore,
    /// A barrier of a group where the server has not answered 1.2.
    #[error("version {0} has no barriers of groups")]
    NoGroups(Version),
    /// A barrier with the tag of one that is open.
    #[error("a barrier with the tag {0} is open")]
    TagOpen(u64),
    /// A spawn, or the end of the connection, while barriers are open.
    #[error("barriers of groups are open")]
    BarriersOpen,
    /// A spawn of no programs or no processes.
    #[error("nothing to spawn")]
    NothingToSpawn,
}

/// What a server did wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// Bytes came though no answer was due, or after the one that was.
    #[error("bytes that answer nothing")]
    Unsolicited,
    /// The answer to another request than the one made.
    #[error("an answer to {found:?} where one to {expected:?} was due")]
    Mismatched {
        /// What was asked.
        expected: Operation,
        /// What was answered.
        found: Operation,
    },
    /// A line that is no response.
    #[error(transparent)]
    Malformed(#[from] ResponseError),
    /// A line longer than the client is ready to read.
    #[error("the line is too long")]
    Overlong,
    /// A success without the result.
    #[error("success without a result")]
    NoResult,
    /// A higher version than the client offered.
    #[error("version {0} was not offered")]
    BadVersion(Version),
    /// The connection was closed though the client had not finalized.
    #[error("the connection was closed")]
    Closed,
    /// An earlier error.
    #[error("the connection is broken")]
    Broken,
}

/// An answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The version to speak.
    Init(Version),
    /// The limits.
    Maxes(Maxes),
    /// The program will be aborted.
    AbortAck,
    /// The process may end.
    Finalized,
    /// The universe size.
    Universe(u64),
    /// The number of the program.
    Appnum(u64),
    /// The pair is stored.
    Put,
    /// The name of the keyval space.
    Kvsname(Vec<u8>),
    /// All have entered the barrier.
    Barrier,
    /// All of its group have entered the barrier with this tag, or, if the first is false, it failed.
    GroupBarrier(bool, u64),
    /// The value asked for.
    Value(Vec<u8>),
    /// The name is published.
    Published,
    /// The name is withdrawn.
    Unpublished,
    /// The port published under the name.
    Port(Vec<u8>),
    /// The programs were started: the error codes of the processes, if the server sent them.
    Spawned(Option<Vec<i64>>),
    /// The operation failed.
    Failed {
        /// Which.
        operation: Operation,
        /// Not 0.
        rc: i64,
        /// The reason, for people.
        msg: Option<Vec<u8>>,
        /// Of a spawn, if the server sent them.
        errcodes: Option<Vec<i64>>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Joined,
    /// Finalized or aborted: nothing more to say.
    Over,
    /// The server erred.
    Broken,
}

/// The state machine.
#[derive(Debug)]
pub struct Client {
    framer: Framer,
    phase: Phase,
    awaiting: Option<Operation>,
    /// The highest version that is offered.
    offers: Version,
    /// The version that is spoken.
    version: Version,
    /// The tags of the barriers of groups that it is in.
    open: Vec<u64>,
    maxes: Option<Maxes>,
    kvsname: Option<Vec<u8>>,
    /// Keys that were put.
    keys: HashSet<Vec<u8>>,
    /// See [`Client::tolerant`].
    tolerant: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

/// Longest line read: room for a value of any server known, and for the error codes of 10,000 processes.
const LINE_MAX: usize = 64 * 1024;

/// See [`Client::tolerant`].
const FOUND: &[u8] = b" found=TRUE";

impl Client {
    /// A client that has said nothing yet.
    pub fn new() -> Self {
        Self {
            framer: Framer::new(LINE_MAX),
            phase: Phase::New,
            awaiting: None,
            offers: Version::V1_1,
            version: Version::V1_1,
            open: Vec::new(),
            maxes: None,
            kvsname: None,
            keys: HashSet::new(),
            tolerant: false,
        }
    }

    /// A client for servers as they are: one that answers with a later subversion than the client's is taken to mean the client's,
    /// since MPICH's Hydra 5.0 answers 1.2 to whoever offers 1.1; and `found=TRUE`, which Hydra 4.1 and 4.2 write behind each value, is
    /// no part of it.
    pub fn tolerant() -> Self {
        Self { tolerant: true, ..Self::new() }
    }

    /// A client that offers 1.2. With a server that answers less it does without groups.
    pub fn with_groups() -> Self {
        Self { offers: Version::V1_2, ..Self::new() }
    }

    /// The version that was negotiated; 1.1 before that.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The limits, once the server has told them.
    pub fn limits(&self) -> Option<Maxes> {
        self.maxes
    }

    /// The name of the keyval space, once the server has told it.
    pub fn keyval_space(&self) -> Option<&[u8]> {
        self.kvsname.as_deref()
    }

    /// Offers the highest version that it has. May be repeated after a refusal only.
    pub fn init(&mut self) -> Result<Vec<u8>, Misuse> {
        self.idle()?;
        if self.phase == Phase::Joined {
            return Err(Misuse::Initialized);
        }
        Ok(self.request(Request::Init(self.offers)))
    }

    /// Asks for the limits, which [`put`](Self::put) and [`get`](Self::get) keep to from then on.
    pub fn maxes(&mut self) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Maxes)
    }

    /// Asks for the name of the keyval space, which [`put`](Self::put) and [`get`](Self::get) need.
    pub fn kvsname(&mut self) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Kvsname)
    }

    /// Asks for the universe size.
    pub fn universe(&mut self) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Universe)
    }

    /// Asks for the number of the program.
    pub fn appnum(&mut self) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Appnum)
    }

    /// Enters the barrier.
    pub fn barrier(&mut self) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Barrier { group: None })
    }

    /// Enters a barrier of a group. Others may be entered, and values put and got, before its answer comes.
    pub fn group_barrier(&mut self, group: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        if !self.version.has_group_barriers() {
            return Err(Misuse::NoGroups(self.version));
        }
        let barrier = GroupBarrier::parse(group).map_err(|_| Misuse::BadField("group"))?;
        if self.open.contains(&barrier.tag) {
            return Err(Misuse::TagOpen(barrier.tag));
        }
        self.open.push(barrier.tag);
        let mut bytes = Vec::new();
        Request::Barrier { group: Some(group) }.write_to(&mut bytes);
        Ok(bytes)
    }

    /// Puts a pair into the keyval space. A key that the server refused may not be tried again either: whether it is there is
    /// not known.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        let kvsname = self.kvsname.clone().ok_or(Misuse::NoKvsname)?;
        self.check_pair(key, value)?;
        if !self.keys.insert(key.to_vec()) {
            return Err(Misuse::KeyPutBefore);
        }
        Ok(self.request(Request::Put { kvsname: &kvsname, key, value }))
    }

    /// Asks for a value of the keyval space.
    pub fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        // Taken and put back, as the request borrows it.
        let kvsname = self.kvsname.take().ok_or(Misuse::NoKvsname)?;
        let result = self.check_key(key).map(|()| self.request(Request::Get { kvsname: &kvsname, key }));
        self.kvsname = Some(kvsname);
        result
    }

    /// Publishes a port under a name.
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        check("service", is_word(service))?;
        // See `Request::Publish`: more than a word.
        check("port", !port.is_empty() && port.iter().all(u8::is_ascii_graphic))?;
        Ok(self.request(Request::Publish { service, port }))
    }

    /// Withdraws a published name.
    pub fn unpublish(&mut self, service: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        check("service", is_word(service))?;
        Ok(self.request(Request::Unpublish { service }))
    }

    /// Asks for the port published under a name.
    pub fn lookup(&mut self, service: &[u8]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        check("service", is_word(service))?;
        Ok(self.request(Request::Lookup { service }))
    }

    /// Starts programs as one new process group. `totspawns`, `spawnssofar` and the indices of the arguments are filled in.
    pub fn spawn(&mut self, programs: &[SpawnProgram]) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        if programs.iter().all(|program| program.nprocs == 0) {
            return Err(Misuse::NothingToSpawn);
        }
        self.outside()?;
        let mut bytes = Vec::new();
        for (number, program) in (1..).zip(programs) {
            check("execname", is_string(&program.execname))?;
            check("argument", program.args.iter().all(|(_, arg)| is_value(arg)))?;
            for (key, value) in &program.preput {
                self.check_pair(key, value)?;
            }
            check("info", program.info.iter().all(|(key, value)| is_string(key) && is_value(value)))?;
            let mut program = program.clone();
            program.totspawns = programs.len() as u64;
            program.spawnssofar = number;
            // RFC 13, Spawn Operation: the indices begin with zero.
            (0..).zip(&mut program.args).for_each(|(index, arg)| arg.0 = index);
            program.write_to(&mut bytes);
        }
        self.awaiting = Some(Operation::Spawn);
        Ok(bytes)
    }

    /// Asks for the end of the program. `exitcode` is no part of RFC 13.
    pub fn abort(&mut self, exitcode: Option<i64>) -> Result<Vec<u8>, Misuse> {
        self.bare(Request::Abort { exitcode })
    }

    /// Leaves PMI.
    pub fn finalize(&mut self) -> Result<Vec<u8>, Misuse> {
        self.outside()?;
        self.bare(Request::Finalize)
    }

    /// Bytes from the server: the answer, if they complete it. An error is a protocol error: RFC 13 has the connection be
    /// closed and the program be aborted.
    pub fn receive(&mut self, bytes: &[u8]) -> Option<Result<Answer, ServerError>> {
        if bytes.is_empty() {
            return None;
        }
        let result = match (self.phase, self.awaiting) {
            (Phase::Broken, _) => Err(ServerError::Broken),
            (_, None) if self.open.is_empty() => Err(ServerError::Unsolicited),
            (_, operation) => self.answer(operation, bytes)?,
        };
        if result.is_err() {
            self.phase = Phase::Broken;
        }
        Some(result)
    }

    /// The server closed the connection. An error unless the client has left.
    pub fn closed(&mut self) -> Result<(), ServerError> {
        let over = self.phase == Phase::Over && self.awaiting.is_none();
        self.phase = Phase::Broken;
        if over { Ok(()) } else { Err(ServerError::Closed) }
    }

    fn answer(&mut self, operation: Option<Operation>, bytes: &[u8]) -> Option<Result<Answer, ServerError>> {
        self.framer.push(bytes);
        let answer = match self.framer.next_line()? {
            Err(_) => return Some(Err(ServerError::Overlong)),
            Ok(line) => match Response::parse(line, ValueReading::ToEndOfLine) {
                Ok(response) => match read_any(self.offers, &mut self.open, operation, &response) {
                    Err(ServerError::BadVersion(v))
                        if self.tolerant && v.version == Version::V1_1.version =>
                    {
                        Ok(Answer::Init(Version::V1_1))
                    }
                    Ok(Answer::Value(mut value)) if self.tolerant && value.ends_with(FOUND) => {
                        value.truncate(value.len() - FOUND.len());
                        Ok(Answer::Value(value))
                    }
                    answer => answer,
                },
                Err(error) => Err(error.into()),
            },
        };
        let of_group = matches!(answer, Ok(Answer::GroupBarrier(..)));
        let more = !self.open.is_empty() || (of_group && self.awaiting.is_some());
        if answer.is_ok() && !more && (self.framer.next_line().is_some() || !self.framer.partial().is_empty())
        {
            return Some(Err(ServerError::Unsolicited));
        }
        if let Ok(answer) = &answer {
            if !of_group {
                self.awaiting = None;
            }
            match answer {
                Answer::Init(version) => (self.phase, self.version) = (Phase::Joined, *version),
                Answer::Maxes(maxes) => self.maxes = Some(*maxes),
                Answer::Kvsname(name) => self.kvsname = Some(name.clone()),
                Answer::Finalized | Answer::AbortAck => self.phase = Phase::Over,
                _ => {}
            }
        }
        Some(answer)
    }

    fn request(&mut self, request: Request<'_>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        request.write_to(&mut bytes);
        self.awaiting = Some(request.operation());
        bytes
    }

    fn bare(&mut self, request: Request<'_>) -> Result<Vec<u8>, Misuse> {
        self.joined()?;
        Ok(self.request(request))
    }

    /// What is left of a line that was read together with another; asked for behind each answer while barriers of groups are open.
    pub fn next_answer(&mut self) -> Option<Result<Answer, ServerError>> {
        let result = match (self.phase, self.awaiting) {
            (Phase::Broken, _) => return None,
            (_, operation) => self.answer(operation, b"")?,
        };
        if result.is_err() {
            self.phase = Phase::Broken;
        }
        Some(result)
    }

    /// Nothing but puts, gets and other barriers may come while barriers of groups are open.
    fn outside(&self) -> Result<(), Misuse> {
        if self.open.is_empty() { Ok(()) } else { Err(Misuse::BarriersOpen) }
    }

    fn idle(&self) -> Result<(), Misuse> {
        match (self.phase, self.awaiting) {
            (Phase::Broken, _) => Err(Misuse::Broken),
            (_, Some(operation)) => Err(Misuse::InFlight(operation)),
            (Phase::Over, _) => Err(Misuse::Over),
            _ => Ok(()),
        }
    }

    fn joined(&self) -> Result<(), Misuse> {
        self.idle()?;
        if self.phase == Phase::Joined { Ok(()) } else { Err(Misuse::NotInitialized) }
    }

    fn check_key(&self, key: &[u8]) -> Result<(), Misuse> {
        check("key", is_word(key))?;
        fits("key", key, self.maxes.map(|maxes| maxes.keylen_max))
    }

    fn check_pair(&self, key: &[u8], value: &[u8]) -> Result<(), Misuse> {
        self.check_key(key)?;
        check("value", is_value(value))?;
        fits("value", value, self.maxes.map(|maxes| maxes.vallen_max))
    }
}

/// A `string`, or nothing: see [`Request::Put`].
fn is_value(bytes: &[u8]) -> bool {
    bytes.is_empty() || is_string(bytes)
}

fn check(what: &'static str, good: bool) -> Result<(), Misuse> {
    if good { Ok(()) } else { Err(Misuse::BadField(what)) }
}

/// The limits count a terminating NUL in.
fn fits(what: &'static str, bytes: &[u8], max: Option<u64>) -> Result<(), Misuse> {
    match max {
        Some(max) if bytes.len() as u64 >= max => {
            Err(Misuse::TooLong { what, length: bytes.len(), limit: max.saturating_sub(1) })
        }
        _ => Ok(()),
    }
}

/// What a response says, which may be the answer to a barrier of a group that is open.
fn read_any(
    offered: Version,
    open: &mut Vec<u64>,
    awaited: Option<Operation>,
    response: &Response<'_>,
) -> Result<Answer, ServerError> {
    if let Body::Barrier(tag) = &response.body {
        let tag = tag.map_or(Some(0), parse_uint);
        if let Some(at) = open.iter().position(|open| Some(*open) == tag) {
            return Ok(Answer::GroupBarrier(response.is_success(), open.remove(at)));
        }
    }
    read(offered, awaited.ok_or(ServerError::Unsolicited)?, response)
}

fn read(offered: Version, expected: Operation, response: &Response<'_>) -> Result<Answer, ServerError> {
    let found = response.operation();
    if found != expected {
        return Err(ServerError::Mismatched { expected, found });
    }
    if let Some(rc) = response.rc.filter(|rc| *rc != 0) {
        let errcodes = match &response.body {
            Body::Spawn(codes) => codes.clone(),
            _ => None,
        };
        return Ok(Answer::Failed { operation: found, rc, msg: response.msg.map(<[u8]>::to_vec), errcodes });
    }
    let bytes = |field: Option<&[u8]>| field.map(<[u8]>::to_vec).ok_or(ServerError::NoResult);
    Ok(match &response.body {
        Body::Init(version) => match version.ok_or(ServerError::NoResult)? {
            version if version > offered => return Err(ServerError::BadVersion(version)),
            version => Answer::Init(version),
        },
        Body::Maxes(maxes) => Answer::Maxes(maxes.ok_or(ServerError::NoResult)?),
        Body::AbortAck => Answer::AbortAck,
        Body::Finalize => Answer::Finalized,
        Body::Universe(size) => Answer::Universe(size.ok_or(ServerError::NoResult)?),
        Body::Appnum(number) => Answer::Appnum(number.ok_or(ServerError::NoResult)?),
        Body::Put => Answer::Put,
        Body::Kvsname(name) => Answer::Kvsname(bytes(*name)?),
        Body::Barrier(_) => Answer::Barrier,
        Body::Get(value) => Answer::Value(bytes(*value)?),
        Body::Publish => Answer::Published,
        Body::Unpublish => Answer::Unpublished,
        Body::Lookup(port) => Answer::Port(bytes(*port)?),
        Body::Spawn(codes) => Answer::Spawned(codes.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Config, GroupSpec, Server};
    use pmi_wire::Proc;

    /// A client and the server it talks to.
    struct Pair {
        server: Server,
        clients: Vec<Client>,
        answers: Vec<Option<Answer>>,
        aborted: Option<String>,
    }

    impl Pair {
        fn new(ranks: u32) -> Self {
            let mut server = Server::new(Config::default());
            server.add_group(GroupSpec { programs: vec![ranks], ..GroupSpec::default() });
            let clients = (0..ranks).map(|_| Client::new()).collect();
            Self { server, clients, answers: vec![None; ranks as usize], aborted: None }
        }

        /// Ranks that have initialized and know limits and keyval space.
        fn joined(ranks: u32) -> Self {
            let mut pair = Self::new(ranks);
            for rank in 0..ranks as usize {
                pair.ask(rank, Client::init);
                pair.ask(rank, Client::maxes);
                pair.ask(rank, Client::kvsname);
            }
            pair
        }

        fn send(&mut self, rank: usize, request: impl FnOnce(&mut Client) -> Result<Vec<u8>, Misuse>) {
            let bytes = request(&mut self.clients[rank]).unwrap();
            self.server.receive(Proc { group: 0, rank: rank as u32 }, &bytes);
            while let Some(action) = self.server.next_action() {
                match action {
                    Action::Send { to, bytes } => {
                        let rank = to.rank as usize;
                        // Byte by byte: framing is the client's business.
                        let (last, rest) = bytes.split_last().unwrap();
                        for byte in rest {
                            assert_eq!(self.clients[rank].receive(&[*byte]), None);
                        }
                        self.answers[rank] = Some(self.clients[rank].receive(&[*last]).unwrap().unwrap());
                    }
                    Action::Spawn { group, programs, .. } => {
                        let total = programs.iter().map(|program| program.nprocs).sum::<u64>();
                        self.server.spawned(group, &vec![0; total as usize]);
                    }
                    Action::Abort { reason, .. } => self.aborted = Some(reason),
                    Action::Close { .. } => panic!("a good server ends the group or nothing"),
                }
            }
        }

        fn ask(
            &mut self,
            rank: usize,
            request: impl FnOnce(&mut Client) -> Result<Vec<u8>, Misuse>,
        ) -> Answer {
            self.send(rank, request);
            assert_eq!(self.aborted, None);
            self.answers[rank].take().unwrap()
        }
    }

    #[test]
    fn every_operation_against_the_server() {
        let mut pair = Pair::new(2);
        for rank in 0..2 {
            assert_eq!(pair.ask(rank, Client::init), Answer::Init(Version::V1_1));
            let maxes = Maxes { kvsname_max: 256, keylen_max: 64, vallen_max: 1024 };
            assert_eq!(pair.ask(rank, Client::maxes), Answer::Maxes(maxes));
            assert_eq!(pair.ask(rank, Client::kvsname), Answer::Kvsname(b"kvs-0".to_vec()));
            assert_eq!(pair.ask(rank, Client::universe), Answer::Universe(2));
            assert_eq!(pair.ask(rank, Client::appnum), Answer::Appnum(0));
        }
        assert_eq!(pair.ask(0, |c| c.put(b"a", b"two words")), Answer::Put);
        assert_eq!(pair.ask(0, |c| c.put(b"empty", b"")), Answer::Put);
        pair.send(0, Client::barrier);
        assert_eq!(pair.answers[0], None);
        assert_eq!(pair.ask(1, Client::barrier), Answer::Barrier);
        assert_eq!(pair.answers[0], Some(Answer::Barrier));
        assert_eq!(pair.ask(1, |c| c.get(b"a")), Answer::Value(b"two words".to_vec()));
        assert_eq!(pair.ask(1, |c| c.get(b"empty")), Answer::Value(Vec::new()));
        assert!(matches!(
            pair.ask(1, |c| c.get(b"b")),
            Answer::Failed { operation: Operation::Get, rc: -1, .. }
        ));
        assert_eq!(pair.ask(0, |c| c.publish(b"s", b"tag=0$port=1$")), Answer::Published);
        assert_eq!(pair.ask(1, |c| c.lookup(b"s")), Answer::Port(b"tag=0$port=1$".to_vec()));
        assert_eq!(pair.ask(0, |c| c.unpublish(b"s")), Answer::Unpublished);
        let program = |n| SpawnProgram {
            nprocs: n,
            execname: b"a.out".to_vec(),
            args: vec![(7, b"x".to_vec()), (7, Vec::new())],
            preput: vec![(b"k".to_vec(), b"v".to_vec())],
            info: vec![(b"wdir".to_vec(), b"/".to_vec())],
            ..SpawnProgram::default()
        };
        let spawned = Answer::Spawned(Some(vec![0; 3]));
        assert_eq!(pair.ask(0, |c| c.spawn(&[program(1), program(2)])), spawned);
        for rank in 0..2 {
            assert_eq!(pair.ask(rank, Client::finalize), Answer::Finalized);
            assert_eq!(pair.clients[rank].closed(), Ok(()));
        }
    }

    #[test]
    fn abort_is_acknowledged() {
        let mut pair = Pair::joined(1);
        pair.send(0, |c| c.abort(Some(3)));
        assert_eq!(pair.answers[0], Some(Answer::AbortAck));
        assert_eq!(pair.aborted.as_deref(), Some("abort requested"));
        assert_eq!(pair.clients[0].finalize(), Err(Misuse::Over));
    }

    #[test]
    fn misuse_is_refused() {
        let mut client = Client::new();
        assert_eq!(client.maxes(), Err(Misuse::NotInitialized));
        client.init().unwrap();
        assert_eq!(client.init(), Err(Misuse::InFlight(Operation::Init)));
        client.receive(b"cmd=response_to_init pmi_version=1 pmi_subversion=1\n").unwrap().unwrap();
        assert_eq!(client.init(), Err(Misuse::Initialized));
        assert_eq!(client.put(b"k", b"v"), Err(Misuse::NoKvsname));
        assert_eq!(client.get(b"k"), Err(Misuse::NoKvsname));

        let mut pair = Pair::joined(1);
        let client = &mut pair.clients[0];
        assert_eq!(client.put(b"k=", b"v"), Err(Misuse::BadField("key")));
        assert_eq!(client.put(b"", b"v"), Err(Misuse::BadField("key")));
        assert_eq!(client.put(b"k", b"v\n"), Err(Misuse::BadField("value")));
        assert_eq!(
            client.put(&[b'k'; 64], b"v"),
            Err(Misuse::TooLong { what: "key", length: 64, limit: 63 })
        );
        assert!(matches!(client.put(b"k", &[b'v'; 1024]), Err(Misuse::TooLong { what: "value", .. })));
        assert_eq!(client.publish(b"s s", b"p"), Err(Misuse::BadField("service")));
        assert_eq!(client.publish(b"s", b"p p"), Err(Misuse::BadField("port")));
        assert_eq!(client.spawn(&[]), Err(Misuse::NothingToSpawn));
        let newline = SpawnProgram { nprocs: 1, execname: b"a\nb".to_vec(), ..SpawnProgram::default() };
        assert_eq!(client.spawn(&[newline]), Err(Misuse::BadField("execname")));

        assert_eq!(pair.ask(0, |c| c.put(&[b'k'; 63], &[b'v'; 1023])), Answer::Put);
        assert_eq!(pair.clients[0].put(&[b'k'; 63], b"v"), Err(Misuse::KeyPutBefore));
        assert_eq!(pair.ask(0, Client::finalize), Answer::Finalized);
        assert_eq!(pair.clients[0].barrier(), Err(Misuse::Over));
    }

    /// A client that waits for the answer to get.
    fn asking() -> Client {
        let mut pair = Pair::joined(1);
        let mut client = pair.clients.remove(0);
        client.get(b"k").unwrap();
        client
    }

    #[test]
    fn a_server_that_errs_is_found_out() {
        let cases: [(&[u8], ServerError); 7] = [
            (
                b"cmd=put_result rc=0\n",
                ServerError::Mismatched { expected: Operation::Get, found: Operation::Put },
            ),
            (b"\n", ServerError::Mismatched { expected: Operation::Get, found: Operation::Abort }),
            (b"cmd=get_result rc=0\n", ServerError::NoResult),
            (b"cmd=what\n", ServerError::Malformed(ResponseError::UnknownCommand)),
            (b"cmd=get_result value=v\ncmd=get_result value=v\n", ServerError::Unsolicited),
            (b"cmd=get_result value=v\nc", ServerError::Unsolicited),
            (&[b'x'; LINE_MAX], ServerError::Overlong),
        ];
        for (bytes, error) in cases {
            let mut client = asking();
            assert_eq!(client.receive(bytes), Some(Err(error)), "{}", bytes.escape_ascii());
            assert_eq!(client.receive(b"x"), Some(Err(ServerError::Broken)));
            assert_eq!(client.barrier(), Err(Misuse::Broken));
        }
        let mut client = asking();
        client.receive(b"cmd=get_result value=v\n").unwrap().unwrap();
        assert_eq!(client.receive(b"c"), Some(Err(ServerError::Unsolicited)));
        assert_eq!(asking().closed(), Err(ServerError::Closed));

        let mut client = Client::new();
        client.init().unwrap();
        let higher = Version { version: 2, subversion: 0 };
        let answer = client.receive(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        assert_eq!(answer, Some(Err(ServerError::BadVersion(higher))));
    }

    #[test]
    fn a_tolerant_client_takes_a_later_subversion_but_no_later_version() {
        let answer = |bytes: &[u8]| {
            let mut client = Client::tolerant();
            client.init().unwrap();
            client.receive(bytes)
        };
        let later = answer(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n");
        assert_eq!(later, Some(Ok(Answer::Init(Version::V1_1))));
        let other = answer(b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        assert!(matches!(other, Some(Err(ServerError::BadVersion(_)))));
    }

    #[test]
    fn a_tolerant_client_cuts_off_what_hydra_writes_behind_a_value() {
        for (tolerant, value) in [(true, &b"a b"[..]), (false, &b"a b found=TRUE"[..])] {
            let mut client = Client { tolerant, ..asking() };
            let answer = client.receive(b"cmd=get_result rc=0 value=a b found=TRUE\n");
            assert_eq!(answer, Some(Ok(Answer::Value(value.to_vec()))));
        }
    }

    #[test]
    fn barriers_of_groups_are_told_apart_by_their_tags() {
        let config = Config { pmi12: true, ..Config::default() };
        let mut server = Server::new(config);
        server.add_group(GroupSpec { programs: vec![2], ..GroupSpec::default() });
        let mut clients = [Client::with_groups(), Client::with_groups()];
        let mut said = |clients: &mut [Client; 2], rank: usize, bytes: Vec<u8>| {
            server.receive(Proc { group: 0, rank: rank as u32 }, &bytes);
            let mut answers = Vec::new();
            while let Some(Action::Send { to, bytes }) = server.next_action() {
                let client = &mut clients[to.rank as usize];
                answers.extend(client.receive(&bytes).map(|answer| (to.rank, answer.unwrap())));
            }
            answers
        };
        for rank in 0..2 {
            let init = clients[rank].init().unwrap();
            assert_eq!(said(&mut clients, rank, init), [(rank as u32, Answer::Init(Version::V1_2))]);
        }
        let one = clients[0].group_barrier(b"0,1:1").unwrap();
        let two = clients[0].group_barrier(b"WORLD:2").unwrap();
        assert_eq!(clients[0].group_barrier(b"NODE:2"), Err(Misuse::TagOpen(2)));
        assert_eq!(clients[0].finalize(), Err(Misuse::BarriersOpen));
        let maxes = clients[0].maxes().unwrap();
        assert_eq!(said(&mut clients, 0, [one, two].concat()), []);
        assert_eq!(said(&mut clients, 0, maxes).len(), 1);
        let opens = |tag: u64| [0, 1].map(|rank| (rank, Answer::GroupBarrier(true, tag)));
        let two = clients[1].group_barrier(b"WORLD:2").unwrap();
        assert_eq!(said(&mut clients, 1, two), opens(2));
        let one = clients[1].group_barrier(b"0,1:1").unwrap();
        assert_eq!(said(&mut clients, 1, one), opens(1));
        assert!(clients.iter_mut().all(|client| client.finalize().is_ok()));
    }

    #[test]
    fn a_client_of_1_2_falls_back_on_1_1() {
        let mut pair = Pair::new(1);
        pair.clients = vec![Client::with_groups()];
        assert_eq!(pair.ask(0, Client::init), Answer::Init(Version::V1_1));
        assert_eq!(pair.clients[0].group_barrier(b"WORLD"), Err(Misuse::NoGroups(Version::V1_1)));
        assert_eq!(pair.ask(0, Client::barrier), Answer::Barrier);
    }

    #[test]
    fn answers_that_come_together_are_taken_one_by_one() {
        let mut client = Client::with_groups();
        client.init().unwrap();
        client.receive(b"cmd=response_to_init pmi_version=1 pmi_subversion=2\n").unwrap().unwrap();
        client.group_barrier(b"0,1:1").unwrap();
        client.group_barrier(b"0,1:2").unwrap();
        let both = b"cmd=barrier_out tag=2\ncmd=barrier_out rc=-1 tag=1\n";
        assert_eq!(client.receive(both), Some(Ok(Answer::GroupBarrier(true, 2))));
        assert_eq!(client.next_answer(), Some(Ok(Answer::GroupBarrier(false, 1))));
        assert_eq!(client.next_answer(), None);
        client.group_barrier(b"NODE:9").unwrap();
        assert_eq!(client.receive(b"cmd=barrier_out tag=8\n"), Some(Err(ServerError::Unsolicited)));
    }

    #[test]
    fn a_refused_init_may_be_repeated() {
        let mut client = Client::new();
        client.init().unwrap();
        let answer = client.receive(b"cmd=response_to_init rc=-1\n");
        assert!(matches!(answer, Some(Ok(Answer::Failed { operation: Operation::Init, .. }))));
        assert_eq!(client.maxes(), Err(Misuse::NotInitialized));
        assert!(client.init().is_ok());
    }

    /// Numbers without a crate for them: xorshift.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn junk_neither_panics_nor_makes_it_grow() {
        let pieces: [&[u8]; 12] = [
            b"cmd=",
            b"get_result",
            b"spawn_result",
            b" rc=",
            b"-1",
            b" value=",
            b" errcodes=",
            b",",
            b"\n",
            b"=",
            b" ",
            &[0, 255],
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..2000 {
            let mut client = asking();
            for _ in 0..40 {
                let piece = pieces[random(&mut state) as usize % pieces.len()];
                _ = client.receive(piece);
                _ = client.get(piece);
                _ = client.put(piece, piece);
            }
        }
        let mut client = asking();
        for _ in 0..1000 {
            _ = client.receive(&[b'x'; 10_000]);
        }
        assert!(client.framer.partial().len() <= LINE_MAX);
    }
}
