//! The carrier forwards the messages between the processes of a session and their process manager, and reports them in chronological order.
//!
//! The taps pass the connections of all processes to the carrier, so it sees all messages in a single order. Each message is reported
//! before it is forwarded, so causes are reported before their effects. A tap keeps copies of both ends of its connection for two reasons:
//! the connection must not close before the tap exits, and the tap must be able to forward messages if the recorder exits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmi_judge::event::Exit;
use pmi_process::agent::channel::Channel;
use pmi_process::nonblocking;
use pmi_process::observe::procfs::is_exiting;
use pmi_process::reactor::{Reactor, ReactorKey, Ready, WatchMode};
use pmi_wire::Direction;
use rustix::process::{Pid, test_kill_process};

use super::pump::{MAX_READ, Pump, PumpHandler, PumpSide, PumpState};
use super::rewrite::Rewriter;
use super::tap;
use super::tap::notice::{Notice, RecorderMessage, Start};

/// A fact about a process of the session. `B` is either the bytes of a message or their number.
#[derive(Debug)]
pub(crate) struct ProcessFact<B = Vec<u8>> {
    /// Time since the session began.
    pub(crate) at: Duration,
    /// The process id that the process manager sees: the id of the tap.
    pub(crate) pid: i32,
    pub(crate) kind: FactKind<B>,
}

/// The kind of a [`ProcessFact`].
#[derive(Debug)]
pub(crate) enum FactKind<B = Vec<u8>> {
    /// The process is about to start.
    Started(Start),
    /// The program could not be started.
    NotStarted(String),
    /// A spawn request is about to be forwarded. Contains the folder of the tap that replaces one of the programs in the request.
    Spawns(String),
    /// Bytes in this direction are about to be forwarded.
    Carried(Direction, B),
    /// The process has closed its connection before reading everything.
    LeftUnread,
    /// The process has closed its connection.
    ClosedByClient,
    /// The process manager has closed the connection of the process.
    ClosedByServer,
    /// The process has ended.
    Ended(Exit),
}

/// The facts since the last batch, in order. The bytes of all messages are in a single buffer. Otherwise, memory would be allocated for
/// each message, and freed by the judge in another thread.
#[derive(Default)]
pub(crate) struct Batch {
    facts: Vec<ProcessFact<usize>>,
    bytes: Vec<u8>,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }

    /// Returns the processes that have started, according to the facts from index `first`.
    pub(crate) fn started(&self, first: usize) -> impl Iterator<Item = i32> {
        let started = self.facts[first..].iter().filter(|fact| matches!(fact.kind, FactKind::Started(_)));
        started.map(|fact| fact.pid)
    }

    /// Returns the facts in order, including their bytes.
    pub(crate) fn facts(self) -> impl Iterator<Item = ProcessFact> {
        let Self { facts, bytes } = self;
        let mut at = 0;
        facts.into_iter().map(move |ProcessFact { at: time, pid, kind: fact }| {
            let fact = match fact {
                FactKind::Carried(direction, length) => {
                    let carried = bytes[at..at + length].to_vec();
                    at += length;
                    FactKind::Carried(direction, carried)
                }
                FactKind::Started(start) => FactKind::Started(start),
                FactKind::NotStarted(why) => FactKind::NotStarted(why),
                FactKind::Spawns(folder) => FactKind::Spawns(folder),
                FactKind::LeftUnread => FactKind::LeftUnread,
                FactKind::ClosedByClient => FactKind::ClosedByClient,
                FactKind::ClosedByServer => FactKind::ClosedByServer,
                FactKind::Ended(exit) => FactKind::Ended(exit),
            };
            ProcessFact { at: time, pid, kind: fact }
        })
    }
}

/// A descriptor on which the carrier waits for events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CarrierSource {
    /// Another descriptor that [`Carrier::watch`] has added.
    Other,
    Listener,
    /// The channel of a tap.
    Tap(u64),
    /// One end of the connection that a tap has passed to the carrier.
    Carried(u64, PumpSide),
}

/// A tap, and the connection that it has passed to the carrier.
struct TapConnection {
    control: Channel,
    /// The key of the tap's channel in the reactor; `None` after the tap has exited.
    key: Option<ReactorKey>,
    pump: Option<Pump>,
    process: ObservedProcess,
}

/// The state of a process whose connection is observed.
#[derive(Default)]
struct ObservedProcess {
    /// The process id; `None` until the tap has reported it.
    pid: Option<i32>,
    program: Option<Pid>,
    rewriter: Rewriter,
    spawned: u32,
    /// True if the program's end of the connection was closed while the program was exiting. The close is reported only together with the
    /// exit of the program. If the program is killed together with its tap, neither is reported, because the program has not closed the
    /// connection itself.
    closed_while_ending: bool,
    /// The exit of the program, until it is reported.
    ended: Option<Exit>,
    exit_reported: bool,
}

impl ObservedProcess {
    /// Returns true if the program is ending or has ended, even if the tap has reaped the program but has not reported this yet. Also
    /// returns true if the program's process id is unknown, as it is right after the tap has started.
    fn is_ending(&self) -> bool {
        let ends = |program: Pid| is_exiting(program) || test_kill_process(program).is_err();
        self.ended.is_some() || self.exit_reported || self.program.is_none_or(ends)
    }
}

/// The carrier, which forwards the messages on all connections of a session and reports each message.
pub(crate) struct Carrier {
    reactor: Reactor<CarrierSource>,
    /// The listener for taps; `None` after the descriptors have run out. A tap that had not been accepted by then forwards its messages
    /// without the recorder.
    listener: Option<UnixListener>,
    listens: ReactorKey,
    taps: BTreeMap<u64, TapConnection>,
    count: u64,
    facts: PendingFacts,
    buffer: Vec<u8>,
    /// True if the connections of some processes could not be taken over.
    has_unrecorded: bool,
}

/// Facts that the caller has not taken yet, and the data needed to report further facts.
struct PendingFacts {
    start: Instant,
    reported: Batch,
    scratch: PathBuf,
    binary: PathBuf,
}

impl PendingFacts {
    fn report(&mut self, pid: i32, fact: FactKind<usize>) {
        self.reported.facts.push(ProcessFact { at: self.start.elapsed(), pid, kind: fact });
    }

    fn carried(&mut self, pid: i32, direction: Direction, bytes: &[u8]) {
        self.reported.bytes.extend_from_slice(bytes);
        self.report(pid, FactKind::Carried(direction, bytes.len()));
    }
}

/// A reporter of the facts about one process.
struct FactReporter<'a> {
    process: &'a mut ObservedProcess,
    facts: &'a mut PendingFacts,
}

impl FactReporter<'_> {
    fn report(&mut self, fact: FactKind<usize>) {
        if let Some(pid) = self.process.pid {
            self.facts.report(pid, fact);
        }
    }

    fn client_closed(&mut self, left_unread: bool) {
        if left_unread {
            self.report(FactKind::LeftUnread);
        }
        self.report(FactKind::ClosedByClient);
    }
}

impl PumpHandler for FactReporter<'_> {
    fn forward<'a>(&mut self, from: PumpSide, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Self { process, facts } = self;
        if from == PumpSide::Server {
            process.pid.into_iter().for_each(|pid| facts.carried(pid, Direction::FromServer, bytes));
            process.rewriter.read_response(bytes);
            return bytes.into();
        }
        let Some(pid) = process.pid else { return bytes.into() };
        let out = process.rewriter.pass(bytes, |name| {
            process.spawned += 1;
            let place = format!("by-{pid}-{}", process.spawned);
            // If no tap can be created, the program runs unobserved.
            let path = tap::make_for(name, &facts.binary, &facts.scratch.join(&place)).ok()?;
            facts.report(pid, FactKind::Spawns(place));
            Some(path.into_os_string().into_vec())
        });
        facts.carried(pid, Direction::ToServer, bytes);
        out
    }

    fn closed(&mut self, by: PumpSide, left_unread: bool) -> Vec<u8> {
        if by == PumpSide::Server {
            self.report(FactKind::ClosedByServer);
            return Vec::new();
        }
        match self.process.is_ending() && !self.process.exit_reported {
            true => self.process.closed_while_ending = true,
            false => self.client_closed(left_unread),
        }
        self.process.rewriter.finish()
    }

    fn client_is_ending(&mut self) -> bool {
        self.process.is_ending()
    }
}

impl Carrier {
    /// Creates the carrier of a session that begins at `start`. The taps are links to `binary`, and find the carrier in `scratch`.
    pub(crate) fn new(scratch: &Path, binary: &Path, start: Instant) -> io::Result<Self> {
        let listener = UnixListener::bind(scratch.join(tap::SOCKET))?;
        nonblocking(&listener)?;
        let mut reactor = Reactor::new()?;
        let listens = reactor.add(&listener, CarrierSource::Listener, WatchMode::Read)?;
        let facts = PendingFacts {
            start,
            reported: Batch::default(),
            scratch: scratch.to_owned(),
            binary: binary.to_owned(),
        };
        Ok(Self {
            reactor,
            listener: Some(listener),
            listens,
            taps: BTreeMap::new(),
            count: 0,
            facts,
            buffer: vec![0; MAX_READ],
            has_unrecorded: false,
        })
    }

    /// Adds another descriptor to wait for.
    pub(crate) fn watch(&mut self, other: impl AsFd) -> io::Result<()> {
        self.reactor.add(other, CarrierSource::Other, WatchMode::Read).map(drop)
    }

    /// Waits for at most `wait`, and forwards the available bytes. Returns whether a descriptor that [`watch`](Self::watch) has added is
    /// ready.
    pub(crate) fn carry(&mut self, wait: Duration) -> bool {
        let mut other = false;
        // If the wait fails, no events are handled now, and the next call waits again.
        let ready = self.reactor.wait(Some(wait)).unwrap_or_default();
        // The process manager's messages are forwarded first. The waiting processes then continue, and their next requests reach the
        // process manager together.
        let is_from_server = |ready: &Ready<CarrierSource>| {
            matches!(ready.source, CarrierSource::Carried(_, PumpSide::Server))
        };
        let (answers, others): (Vec<_>, Vec<_>) = ready.into_iter().partition(is_from_server);
        for Ready { source, .. } in answers.into_iter().chain(others) {
            match source {
                CarrierSource::Other => other = true,
                CarrierSource::Listener => self.accept(),
                CarrierSource::Tap(id) => self.receive(id),
                CarrierSource::Carried(id, side) => self.carry_for(id, side),
            }
        }
        other
    }

    pub(crate) fn reported_facts(&self) -> &Batch {
        &self.facts.reported
    }

    /// Returns the facts since the last call, and removes them from the carrier.
    pub(crate) fn take_reported_facts(&mut self) -> Batch {
        std::mem::take(&mut self.facts.reported)
    }

    /// Calls [`Pump::take_old_unread`] for all connections. This must be called periodically; see [`Pump::leave_requests`].
    pub(crate) fn take_old_unread(&mut self) {
        self.taps.values_mut().filter_map(|tap| tap.pump.as_mut()).for_each(Pump::take_old_unread);
    }

    /// Returns the processes that have started but not ended, and whose taps are still running.
    pub(crate) fn running_processes(&self) -> Vec<i32> {
        let lives = |pid: &i32| Pid::from_raw(*pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        let open = self.taps.values().filter(|tap| tap.key.is_some() && !tap.process.exit_reported);
        open.filter_map(|tap| tap.process.pid).filter(lives).collect()
    }

    /// Returns true if some processes are not recorded, for lack of file descriptors.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.has_unrecorded
    }

    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error()) => {
                    self.has_unrecorded = true;
                    self.reactor.remove(self.listens);
                    self.listener = None;
                    return;
                }
                Err(_) => return,
            };
            let control = Channel::new(stream);
            self.count += 1;
            let Ok(key) = self.reactor.add(&control, CarrierSource::Tap(self.count), WatchMode::Read) else {
                continue;
            };
            let process = ObservedProcess::default();
            self.taps.insert(self.count, TapConnection { control, key: Some(key), pump: None, process });
        }
    }

    /// Handles the messages from a tap.
    fn receive(&mut self, id: u64) {
        let Some(tap) = self.taps.get_mut(&id) else { return };
        for notice in tap.control.messages::<Notice>() {
            match notice {
                Notice::Started(start) => {
                    tap.process.pid = Some(start.pid);
                    self.facts.report(start.pid, FactKind::Started(start));
                }
                Notice::NotStarted(why) => {
                    if let Some(pid) = tap.process.pid {
                        self.facts.report(pid, FactKind::NotStarted(why));
                    }
                }
                Notice::Connected if tap.take_over(id, &mut self.reactor) => {}
                Notice::Connected => {
                    // Removing the tap closes its channel. The tap then forwards the messages without the recorder.
                    self.has_unrecorded = true;
                    tap.key.take().into_iter().for_each(|key| self.reactor.remove(key));
                    self.taps.remove(&id);
                    return;
                }
                Notice::Running(pid) => {
                    tap.process.program = Pid::from_raw(pid);
                    if tap.process.closed_while_ending && !tap.process.is_ending() {
                        tap.process.closed_while_ending = false;
                        let unread = tap.pump.as_ref().is_some_and(Pump::client_left_unread);
                        FactReporter { process: &mut tap.process, facts: &mut self.facts }
                            .client_closed(unread);
                        tap.control.send(&RecorderMessage::Close);
                        tap.pump.take().into_iter().for_each(|pump| pump.close(&mut self.reactor));
                    }
                }
                Notice::Ended(exit) => tap.process.ended = Some(exit),
            }
        }
        if tap.control.is_over() {
            // The tap has exited: either the carrier has released it, or it was killed together with its program.
            tap.key.take().into_iter().for_each(|key| self.reactor.remove(key));
        }
        self.settle(id);
    }

    fn carry_for(&mut self, id: u64, side: PumpSide) {
        let Some(TapConnection { pump: Some(pump), process, control, key }) = self.taps.get_mut(&id) else {
            return;
        };
        let mut owner = FactReporter { process, facts: &mut self.facts };
        let state = pump.carry(side, &mut owner, &mut self.reactor, &mut self.buffer);
        // If the program is ending, the connection stays open until the tap has reported the exit.
        if state == PumpState::Over && (process.exit_reported || !process.is_ending()) {
            control.send(&RecorderMessage::Close);
            self.close(id);
            self.settle(id);
        } else if process.ended.is_some() || key.is_none() {
            self.settle(id);
        }
    }

    fn close(&mut self, id: u64) {
        let pump = self.taps.get_mut(&id).and_then(|tap| tap.pump.take());
        pump.into_iter().for_each(|pump| pump.close(&mut self.reactor));
    }

    /// Releases a tap whose program has ended, after all messages have been forwarded. Removes a tap that has exited.
    fn settle(&mut self, id: u64) {
        let Some(tap) = self.taps.get_mut(&id) else { return };
        let is_gone = tap.key.is_none();
        if let (Some(exit), Some(pid)) = (tap.process.ended, tap.process.pid) {
            let mut state = PumpState::Over;
            if let Some(pump) = &mut tap.pump {
                let mut owner = FactReporter { process: &mut tap.process, facts: &mut self.facts };
                state = pump.drain(&mut owner, &mut self.reactor, &mut self.buffer);
                if pump.is_blocked() && !is_gone {
                    // The process manager must first read the messages that were sent before the end.
                    return;
                }
            }
            if std::mem::take(&mut tap.process.closed_while_ending) {
                let unread = tap.pump.as_ref().is_some_and(Pump::client_left_unread);
                FactReporter { process: &mut tap.process, facts: &mut self.facts }.client_closed(unread);
            }
            self.facts.report(pid, FactKind::Ended(exit));
            (tap.process.ended, tap.process.exit_reported) = (None, true);
            // The pump continues if another process, such as a child of the program, holds the connection open.
            if state == PumpState::Over {
                tap.pump.take().into_iter().for_each(|pump| pump.close(&mut self.reactor));
            }
            tap.control.send(&RecorderMessage::Done);
        }
        let Some(tap) = self.taps.get(&id) else { return };
        if tap.key.is_none() && (tap.pump.is_none() || !tap.process.exit_reported) {
            self.close(id);
            self.taps.remove(&id);
        }
    }
}

impl TapConnection {
    /// Takes over the connection whose two descriptors were sent with the last message. Returns false if the descriptors did not arrive
    /// because the limit on descriptors was reached, or if the pump could not be created.
    fn take_over(&mut self, id: u64, reactor: &mut Reactor<CarrierSource>) -> bool {
        let (Some(client), Some(server)) = (self.control.take_descriptor(), self.control.take_descriptor())
        else {
            return false;
        };
        self.pump.take().into_iter().for_each(|pump| pump.close(reactor));
        self.pump = Pump::new(client, server, reactor, |side| CarrierSource::Carried(id, side)).ok();
        self.pump.as_mut().map(Pump::leave_requests).is_some()
    }
}
