//! A measured job, in which this process sends the requests of all ranks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use pmi_judge::event::{Bytes, Event, EventKind, SilenceProof};
use pmi_judge::{Finding, Judge, PartyKind, ScenarioOutcome};
use pmi_process::descriptors::RaisedLimit;
use pmi_process::observe::tree;
use pmi_wire::protocol::by_operation;
use pmi_wire::{Connection, Decoded, Direction, Framing, Proc};

use super::plan::{MeasureError, MeasuredPhase, Plan};
use super::request::{MeasuredRequest, succeeds};
use crate::party::server::{Implementation, LaunchEnvironment, ServerParty};
use crate::party::{Incoming, Party, SilenceMeaning};

/// Maximum number of bytes of a received message.
const MAX_MESSAGE_SIZE: usize = 64 * 1024;
/// Number of descriptors for each rank: the connection to its agent, and its PMI connection.
const DESCRIPTORS_PER_RANK: u64 = 2;
/// Number of descriptors that are reserved for everything else.
const SPARE_DESCRIPTORS: u64 = 128;
/// The number of the spawned process group.
const SPAWNED_GROUP: u32 = 1;

struct JudgedEvents {
    judge: Judge,
    events: Vec<Event>,
}

impl JudgedEvents {
    fn record(&mut self, kind: EventKind) {
        let event = Event::new(self.events.len() as u64, kind);
        self.judge.observe(&event);
        self.events.push(event);
    }
}

/// The result of a measured request.
pub(super) struct RequestResult {
    /// Time until the last response.
    pub(super) time: Duration,
    /// Number of responses that report a failure.
    pub(super) refused: usize,
    /// The last response that reports a failure or, if there is none, the last response.
    last: Vec<u8>,
}

pub(super) struct MeasuredJob {
    party: ServerParty,
    ranks: u32,
    plan: Plan,
    phase: MeasuredPhase,
    connections: HashMap<Proc, Connection>,
    kvsname: Vec<u8>,
    judged: Option<JudgedEvents>,
    /// The last line that the job has written to standard error.
    last_error_line: Option<String>,
    /// The raised descriptor limit. It is dropped after the party, which needs the descriptors.
    _raised_limit: RaisedLimit,
}

impl MeasuredJob {
    /// Starts the job, and waits until all of its processes have started.
    pub(super) fn start(
        implementation: &Implementation,
        ranks: u32,
        plan: Plan,
        environment: &LaunchEnvironment,
    ) -> Result<Self, MeasureError> {
        let (mut party, _) =
            ServerParty::launch(implementation, ranks, plan.nodes, plan.response_timeout, environment)?;
        party.set_in_turn(false);
        // The limit is raised only after the launch, because the manager must not inherit the higher limit.
        let raised_limit = RaisedLimit::raise_to(
            u64::from(ranks) * DESCRIPTORS_PER_RANK + SPARE_DESCRIPTORS,
            format_args!("{ranks} ranks"),
        )?;
        let mut session = Self {
            party,
            ranks,
            plan,
            phase: MeasuredPhase::Start,
            connections: HashMap::new(),
            kvsname: Vec::new(),
            judged: plan.is_judged.then(|| JudgedEvents {
                judge: Judge::without_scenario(PartyKind::Server),
                events: Vec::new(),
            }),
            last_error_line: None,
            _raised_limit: raised_limit,
        };
        session.until_started()?;
        Ok(session)
    }

    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the memory use of the manager in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.party.memory().iter().map(|memory| memory.bytes).sum()
    }

    /// Returns the number of open descriptors of the manager.
    pub(super) fn descriptors(&self) -> u64 {
        self.party.memory().iter().map(|memory| tree::descriptors(memory.pid)).sum()
    }

    /// Returns the number of judged events so far.
    pub(super) fn event_count(&self) -> u64 {
        self.judged.as_ref().map_or(0, |judged| judged.events.len() as u64)
    }

    /// Returns the findings of a judged job about event number `first` and later events, and the messages of each finding.
    pub(super) fn findings(self, first: u64) -> (Vec<Finding>, Vec<Vec<String>>) {
        let Some(JudgedEvents { judge, events }) = self.judged else { return Default::default() };
        let ScenarioOutcome { events, mut findings, .. } = judge.finish(events);
        findings.retain(|finding| finding.seq >= first);
        let message = |seq: u64| {
            let (proc, direction, bytes) = events.get(seq as usize)?.kind.message_bytes()?;
            let arrow = if direction == Direction::ToServer { "->" } else { "<-" };
            Some(format!("rank {proc} {arrow} {}", bytes.escape_ascii()))
        };
        let of = |finding: &Finding| {
            let related =
                if finding.related.is_empty() { vec![finding.seq] } else { finding.related.clone() };
            related.into_iter().filter_map(message).collect()
        };
        let messages = findings.iter().map(of).collect();
        (findings, messages)
    }

    fn unexpected(&self, what: String) -> MeasureError {
        let error_line =
            self.last_error_line.as_ref().map(|line| format!(" (last line of its standard error: {line})"));
        let what = what + &error_line.unwrap_or_default();
        MeasureError::UnexpectedBehavior { phase: self.phase.name(), ranks: self.ranks, what }
    }

    fn next(&mut self, deadline: Instant) -> Result<EventKind, MeasureError> {
        match self.party.next(deadline, SilenceMeaning::ResponseDue) {
            Incoming::Event(EventKind::JobExited { exit }) if self.phase != MeasuredPhase::End => {
                Err(self.unexpected(format!("the job has ended: {exit}")))
            }
            Incoming::Event(EventKind::Crashed { name, signal }) => {
                Err(self.unexpected(format!("{name} died of signal {signal}")))
            }
            Incoming::Event(kind) => {
                if let Some(judged) = &mut self.judged {
                    judged.record(kind.clone());
                }
                if let EventKind::Output { stderr: true, line, .. } = &kind
                    && !line.0.trim_ascii().is_empty()
                {
                    self.last_error_line = Some(line.to_string());
                }
                Ok(kind)
            }
            Incoming::Interrupted => Err(MeasureError::Interrupted),
            Incoming::Nothing(SilenceProof::Idle) => {
                Err(self.unexpected("no response: the process manager's processes are idle".to_owned()))
            }
            Incoming::Nothing(SilenceProof::Unread) => {
                let ranks = Proc::list(&self.party.unread());
                Err(self.unexpected(format!(
                    "no response: the process manager's processes are idle and have not read the request from {ranks}"
                )))
            }
            Incoming::Nothing(SilenceProof::Polled | SilenceProof::Timeout) => {
                Err(self
                    .unexpected(format!("no response within {} s", self.plan.response_timeout.as_secs_f64())))
            }
        }
    }

    /// Handles a process that has reported to the runner.
    fn reported(&mut self, kind: &EventKind) -> Result<(), MeasureError> {
        match kind {
            EventKind::Started { proc, bad_fd: None, .. } => {
                self.connections.insert(*proc, Connection::new(MAX_MESSAGE_SIZE));
                Ok(())
            }
            EventKind::Started { proc, bad_fd: Some(why), .. } => {
                Err(self.unexpected(format!("rank {} has no connection: {why}", proc.rank)))
            }
            _ => Ok(()),
        }
    }

    fn until_started(&mut self) -> Result<(), MeasureError> {
        let deadline = Instant::now() + self.plan.response_timeout;
        let mut places = HashSet::new();
        while self.connections.len() < self.ranks as usize {
            let kind = self.next(deadline)?;
            if let EventKind::Started { env, .. } = &kind {
                self.check_rank(env, &mut places)?;
            }
            self.reported(&kind)?;
        }
        Ok(())
    }

    /// Checks that the processes are the ranks of a single job. If the launcher starts a separate job for each process, the measured times
    /// do not depend on the number of ranks.
    fn check_rank(
        &self,
        env: &BTreeMap<String, String>,
        places: &mut HashSet<String>,
    ) -> Result<(), MeasureError> {
        let size = env.get("PMI_SIZE").filter(|size| **size != self.ranks.to_string());
        let twice = env.get("PMI_RANK").filter(|rank| !places.insert((*rank).clone()));
        let seen = size.map(|size| format!("a process has PMI_SIZE={size}"));
        match seen.or(twice.map(|rank| format!("two processes have PMI_RANK={rank}"))) {
            Some(seen) => {
                Err(self.unexpected(format!("{seen}, so the processes are not the ranks of a single job")))
            }
            None => Ok(()),
        }
    }

    /// Makes every rank join, and then requests the name of the keyval space if the dialect needs it. Returns the time that joining took,
    /// without the request for the name.
    pub(super) fn join(&mut self) -> Result<Duration, MeasureError> {
        let offered = self.join_ranks(0)?;
        let put = by_operation(self.plan.dialect.framing(), "put");
        if put.is_some_and(|put| put.argument("kvsname").is_some()) {
            let result = self.each_accepted(MeasuredPhase::Init, 1, &|_, _| MeasuredRequest::Kvsname)?;
            let answer = Decoded::new(Direction::FromServer, Framing::Lines, &result.last);
            match answer.field("kvsname").filter(|_| answer.is_well_formed()) {
                Some(name) => self.kvsname = name.into_owned(),
                None => {
                    return Err(self.unexpected(format!(
                        "no kvsname in the response \"{}\"",
                        result.last.escape_ascii()
                    )));
                }
            }
        }
        Ok(offered)
    }

    /// Makes the processes of a group send their offer and, in PMI-2, fullinit. Returns the time until the last responses.
    fn join_ranks(&mut self, group: u32) -> Result<Duration, MeasureError> {
        let procs = self.procs(group);
        let mut time = self.all(MeasuredPhase::Init, &procs, 1, &|_, _| MeasuredRequest::Offer)?.time;
        if self.plan.dialect.switches_framing() {
            let framed =
                |proc| self.connections.get(proc).and_then(Connection::negotiated) == Some(Framing::Frames);
            if !procs.iter().all(framed) {
                return Err(self.unexpected("the process manager does not accept PMI-2".to_owned()));
            }
            let joined =
                self.all(MeasuredPhase::Init, &procs, 1, &|rank, _| MeasuredRequest::Fullinit(rank))?;
            self.check_accepted(&joined)?;
            time += joined.time;
        }
        Ok(time)
    }

    fn procs(&self, group: u32) -> Vec<Proc> {
        let mut procs: Vec<Proc> = self.connections.keys().filter(|p| p.group == group).copied().collect();
        procs.sort_unstable();
        procs
    }

    fn check_accepted(&self, result: &RequestResult) -> Result<(), MeasureError> {
        match result.refused {
            0 => Ok(()),
            _ => Err(self.unexpected(format!("request refused: \"{}\"", result.last.escape_ascii()))),
        }
    }

    /// Like [`each`](Self::each), but returns an error if the manager refuses a request.
    pub(super) fn each_accepted(
        &mut self,
        phase: MeasuredPhase,
        times: u32,
        ask: &dyn Fn(u32, u32) -> MeasuredRequest,
    ) -> Result<RequestResult, MeasureError> {
        let result = self.each(phase, times, ask)?;
        self.check_accepted(&result)?;
        Ok(result)
    }

    /// Makes every rank send `times` requests, each after the response to the rank's previous request.
    pub(super) fn each(
        &mut self,
        phase: MeasuredPhase,
        times: u32,
        ask: &dyn Fn(u32, u32) -> MeasuredRequest,
    ) -> Result<RequestResult, MeasureError> {
        let procs = self.procs(0);
        self.all(phase, &procs, times, ask)
    }

    fn send(&mut self, proc: Proc, ask: &MeasuredRequest) {
        let bytes = ask.bytes(self.plan.dialect, &self.kvsname);
        if let Some(connection) = self.connections.get_mut(&proc) {
            connection.read(Direction::ToServer, &bytes);
        }
        if let Some(judged) = &mut self.judged {
            judged.record(EventKind::ToServer { proc, bytes: Bytes(bytes.clone()) });
        }
        self.party.send(proc, &bytes);
    }

    /// Implements [`each`](Self::each) for the processes in `procs`.
    fn all(
        &mut self,
        phase: MeasuredPhase,
        procs: &[Proc],
        times: u32,
        ask: &dyn Fn(u32, u32) -> MeasuredRequest,
    ) -> Result<RequestResult, MeasureError> {
        self.phase = phase;
        let start = Instant::now();
        for proc in procs {
            self.send(*proc, &ask(proc.rank, 0));
        }
        let mut open: HashMap<Proc, u32> = procs.iter().map(|proc| (*proc, 1)).collect();
        let (mut refused, mut last) = (0, Vec::new());
        while !open.is_empty() {
            // The time limit grows with the number of requests.
            match self.next(start + self.plan.response_timeout * times)? {
                EventKind::FromServer { proc, bytes } => {
                    for answer in self.receive(proc, &bytes.0) {
                        let done = succeeds(&answer, self.plan.dialect);
                        refused += usize::from(!done);
                        if !done || refused == 0 {
                            last = answer;
                        }
                        match open.get_mut(&proc) {
                            Some(requested) if *requested < times => {
                                *requested += 1;
                                let next = ask(proc.rank, *requested - 1);
                                self.send(proc, &next);
                            }
                            _ => drop(open.remove(&proc)),
                        }
                    }
                }
                EventKind::ClosedByServer { proc } if open.contains_key(&proc) => {
                    return Err(self.unexpected(format!(
                        "the process manager closed the connection of rank {}",
                        proc.rank
                    )));
                }
                kind => self.reported(&kind)?,
            }
        }
        Ok(RequestResult { time: start.elapsed(), refused, last })
    }

    /// Returns the messages that `bytes` complete.
    fn receive(&mut self, proc: Proc, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Some(connection) = self.connections.get_mut(&proc) else { return Vec::new() };
        connection.push(Direction::FromServer, bytes);
        let next = || {
            let message = connection.next(Direction::FromServer)?;
            Some(message.map(|message| message.text.to_vec()).unwrap_or_default())
        };
        std::iter::from_fn(next).collect()
    }

    /// Spawns a process, which joins and finalizes so that nothing waits for it. Returns the time until it has reported, or `None` if the
    /// spawn was refused.
    pub(super) fn spawn(&mut self) -> Result<Option<Duration>, MeasureError> {
        let agent = self.party.agent(SPAWNED_GROUP);
        let start = Instant::now();
        let result = self.all(MeasuredPhase::Spawn, &[Proc { group: 0, rank: 0 }], 1, &|_, _| {
            MeasuredRequest::Spawn(agent.clone())
        })?;
        if result.refused > 0 {
            return Ok(None);
        }
        let child = Proc { group: SPAWNED_GROUP, rank: 0 };
        while !self.connections.contains_key(&child) {
            let kind = self.next(start + self.plan.response_timeout)?;
            self.reported(&kind)?;
        }
        let time = start.elapsed();
        self.join_ranks(SPAWNED_GROUP)?;
        self.all(MeasuredPhase::Spawn, &[child], 1, &|_, _| MeasuredRequest::Finalize)?;
        self.party.exit(child, 0);
        Ok(Some(time))
    }

    /// Makes every rank finalize; returns the time until the job has ended.
    pub(super) fn end(&mut self) -> Result<Duration, MeasureError> {
        let start = Instant::now();
        self.each(MeasuredPhase::End, 1, &|_, _| MeasuredRequest::Finalize)?;
        for rank in 0..self.ranks {
            self.party.exit(Proc { group: 0, rank }, 0);
        }
        let deadline = Instant::now() + self.plan.response_timeout;
        loop {
            if let EventKind::JobExited { .. } = self.next(deadline)? {
                return Ok(start.elapsed());
            }
        }
    }
}
