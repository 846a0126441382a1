//! Carries what the processes of a session and their process manager say to each other, and tells of it in the order in which it
//! happened.
//!
//! The connections of all processes come together here, each handed over by its tap: so there is one order, and a cause is told
//! before its effect because it is told before it is passed on. A tap keeps copies of both ends, by which the connection ends with it
//! and by which it goes on alone if we end.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pmi_judge::event::Exit;
use pmi_wire::Direction;
use rustix::process::{Pid, test_kill_process};

use super::notice::{Notice, Start, Word};
use super::pump::{Owner, PIECE, Pump, PumpSide, State};
use super::rewrite::Rewriter;
use super::tap;
use crate::agent::channel::Channel;
use crate::process::nonblocking;
use crate::process::procfs::is_exiting;
use crate::process::reactor::{Key, Reactor, Ready, Wanted};

/// Something that has happened to a process of the session. `B` is what is known of the bytes that it has said or was told.
#[derive(Debug)]
pub(super) struct ProcessFact<B = Vec<u8>> {
    /// When, since the session began.
    pub(super) at: Duration,
    /// The process, by the number that the process manager knows.
    pub(super) pid: i32,
    pub(super) fact: Fact<B>,
}

/// What.
#[derive(Debug)]
pub(super) enum Fact<B = Vec<u8>> {
    /// It is about to start.
    Started(Start),
    /// Its program could not be started.
    NotStarted(String),
    /// A block of its spawn request goes on with the tap in this folder as its program.
    Spawns(String),
    /// These bytes are about to be passed on.
    Carried(Direction, B),
    /// It has closed its connection, and had not read all that came before that.
    LeftUnread,
    /// It has closed its connection.
    ClosedByClient,
    /// The process manager has closed it.
    ClosedByServer,
    /// It has ended.
    Ended(Exit),
}

/// What has happened since the last one, in order. The bytes of all that was said are in one piece: so no memory is allocated here for each
/// message, which its judge would give back in another thread.
#[derive(Default)]
pub(super) struct Batch {
    facts: Vec<ProcessFact<usize>>,
    bytes: Vec<u8>,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.facts.len()
    }

    /// The processes that have started.
    pub(super) fn started(&self) -> impl Iterator<Item = i32> {
        let started = self.facts.iter().filter(|told| matches!(told.fact, Fact::Started(_)));
        started.map(|told| told.pid)
    }

    /// What has happened, one by one.
    pub(super) fn facts(self) -> impl Iterator<Item = ProcessFact> {
        let Self { facts, bytes } = self;
        let mut at = 0;
        facts.into_iter().map(move |ProcessFact { at: time, pid, fact }| {
            let fact = match fact {
                Fact::Carried(direction, length) => {
                    let said = bytes[at..at + length].to_vec();
                    at += length;
                    Fact::Carried(direction, said)
                }
                Fact::Started(start) => Fact::Started(start),
                Fact::NotStarted(why) => Fact::NotStarted(why),
                Fact::Spawns(folder) => Fact::Spawns(folder),
                Fact::LeftUnread => Fact::LeftUnread,
                Fact::ClosedByClient => Fact::ClosedByClient,
                Fact::ClosedByServer => Fact::ClosedByServer,
                Fact::Ended(exit) => Fact::Ended(exit),
            };
            ProcessFact { at: time, pid, fact }
        })
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// What the owner of this waits for.
    Other,
    Listener,
    /// The channel of a tap.
    Tap(u64),
    /// One end of what is carried for it.
    Carried(u64, PumpSide),
}

/// A tap, and what is carried for it.
struct Tapped {
    control: Channel,
    /// `None` once it is gone.
    key: Option<Key>,
    pump: Option<Pump>,
    ear: Ear,
}

/// Where a connection is listened to.
struct Ear {
    /// Unknown until the tap has said it.
    pid: Option<i32>,
    program: Option<Pid>,
    rewriter: Rewriter,
    spawned: u32,
    /// The program has closed its end because it was coming to its own, which is told with that: one that is killed together with its tap
    /// has closed nothing.
    closes: bool,
    /// How the program has ended, if that is not told yet.
    ended: Option<Exit>,
    /// That has been told.
    over: bool,
}

impl Ear {
    /// Whether the program is coming to its end, or has come there: its tap may have waited for it and not said so yet. Of one that has
    /// only just started we may not know which it is.
    fn is_ending(&self) -> bool {
        let ends = |program: Pid| is_exiting(program) || test_kill_process(program).is_err();
        self.ended.is_some() || self.over || self.program.is_none_or(ends)
    }
}

/// See the module's documentation.
pub(super) struct Carrier {
    reactor: Reactor<Source>,
    /// `None` once descriptors have run out: who comes then, or waits to be let in, goes on alone.
    listener: Option<UnixListener>,
    listens: Key,
    taps: BTreeMap<u64, Tapped>,
    count: u64,
    book: Book,
    buffer: Vec<u8>,
    /// There are processes whose connections could not be taken over.
    lost: bool,
}

/// What was told and nobody has taken yet, and what it takes to tell.
struct Book {
    start: Instant,
    told: Batch,
    scratch: PathBuf,
    binary: PathBuf,
}

impl Book {
    fn tell(&mut self, pid: i32, fact: Fact<usize>) {
        self.told.facts.push(ProcessFact { at: self.start.elapsed(), pid, fact });
    }

    fn carried(&mut self, pid: i32, direction: Direction, bytes: &[u8]) {
        self.told.bytes.extend_from_slice(bytes);
        self.tell(pid, Fact::Carried(direction, bytes.len()));
    }
}

/// Tells what is heard of a process.
struct Listening<'a> {
    ear: &'a mut Ear,
    book: &'a mut Book,
}

impl Listening<'_> {
    fn tell(&mut self, fact: Fact<usize>) {
        if let Some(pid) = self.ear.pid {
            self.book.tell(pid, fact);
        }
    }

    fn client_closed(&mut self, left_unread: bool) {
        if left_unread {
            self.tell(Fact::LeftUnread);
        }
        self.tell(Fact::ClosedByClient);
    }
}

impl Owner for Listening<'_> {
    fn piece<'a>(&mut self, from: PumpSide, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Self { ear, book } = self;
        if from == PumpSide::Server {
            ear.pid.into_iter().for_each(|pid| book.carried(pid, Direction::FromServer, bytes));
            ear.rewriter.hear(bytes);
            return bytes.into();
        }
        let Some(pid) = ear.pid else { return bytes.into() };
        let out = ear.rewriter.pass(bytes, |name| {
            ear.spawned += 1;
            let place = format!("by-{pid}-{}", ear.spawned);
            // Without a tap the program is started all the same, and not heard.
            let path = tap::make_for(name, &book.binary, &book.scratch.join(&place)).ok()?;
            book.tell(pid, Fact::Spawns(place));
            Some(path.into_os_string().into_vec())
        });
        book.carried(pid, Direction::ToServer, bytes);
        out
    }

    fn closed(&mut self, by: PumpSide, left_unread: bool) -> Vec<u8> {
        if by == PumpSide::Server {
            self.tell(Fact::ClosedByServer);
            return Vec::new();
        }
        match self.ear.is_ending() && !self.ear.over {
            true => self.ear.closes = true,
            false => self.client_closed(left_unread),
        }
        self.ear.rewriter.finish()
    }

    fn client_is_ending(&mut self) -> bool {
        self.ear.is_ending()
    }
}

impl Carrier {
    /// For a session that begins at `start`, whose taps are `binary` and find us in this folder.
    pub(super) fn new(scratch: &Path, binary: &Path, start: Instant) -> io::Result<Self> {
        let listener = UnixListener::bind(scratch.join(tap::SOCKET))?;
        nonblocking(&listener)?;
        let mut reactor = Reactor::new()?;
        let listens = reactor.add(&listener, Source::Listener, Wanted::Read)?;
        let book =
            Book { start, told: Batch::default(), scratch: scratch.to_owned(), binary: binary.to_owned() };
        Ok(Self {
            reactor,
            listener: Some(listener),
            listens,
            taps: BTreeMap::new(),
            count: 0,
            book,
            buffer: vec![0; PIECE],
            lost: false,
        })
    }

    /// Waits for something else as well.
    pub(super) fn watch(&mut self, other: impl AsFd) -> io::Result<()> {
        self.reactor.add(other, Source::Other, Wanted::Read).map(drop)
    }

    /// Waits, at most so long, and carries what there is. Whether anything else that is watched has something.
    pub(super) fn carry(&mut self, wait: Duration) -> bool {
        let mut other = false;
        // Interrupted or not, whatever is there is looked at.
        let ready = self.reactor.wait(Some(wait)).unwrap_or_default();
        // What the process manager has said comes first: those who are waiting go on meanwhile, and what they ask comes to it together.
        let says = |ready: &Ready<Source>| matches!(ready.source, Source::Carried(_, PumpSide::Server));
        let (answers, others): (Vec<_>, Vec<_>) = ready.into_iter().partition(says);
        for Ready { source, .. } in answers.into_iter().chain(others) {
            match source {
                Source::Other => other = true,
                Source::Listener => self.accept(),
                Source::Tap(id) => self.hear(id),
                Source::Carried(id, side) => self.carry_for(id, side),
            }
        }
        other
    }

    /// What was told and nobody has taken yet.
    pub(super) fn told(&self) -> &Batch {
        &self.book.told
    }

    /// Takes that.
    pub(super) fn take_told(&mut self) -> Batch {
        std::mem::take(&mut self.book.told)
    }

    /// To be called from time to time, see [`Pump::leave_requests`].
    pub(super) fn take_old(&mut self) {
        self.taps.values_mut().filter_map(|tap| tap.pump.as_mut()).for_each(Pump::take_old);
    }

    /// Processes that have started, whose end was not told, and whose taps are still there.
    pub(super) fn left(&self) -> Vec<i32> {
        let lives = |pid: &i32| Pid::from_raw(*pid).is_some_and(|pid| test_kill_process(pid).is_ok());
        let open = self.taps.values().filter(|tap| tap.key.is_some() && !tap.ear.over);
        open.filter_map(|tap| tap.ear.pid).filter(lives).collect()
    }

    /// Whether there are processes that are not recorded, since descriptors have run out.
    pub(super) fn lost(&self) -> bool {
        self.lost
    }

    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if [libc::EMFILE, libc::ENFILE].map(Some).contains(&error.raw_os_error()) => {
                    self.lost = true;
                    self.reactor.remove(self.listens);
                    self.listener = None;
                    return;
                }
                Err(_) => return,
            };
            let control = Channel::new(stream);
            self.count += 1;
            let Ok(key) = self.reactor.add(&control, Source::Tap(self.count), Wanted::Read) else { continue };
            let ear = Ear {
                pid: None,
                program: None,
                rewriter: Rewriter::default(),
                spawned: 0,
                closes: false,
                ended: None,
                over: false,
            };
            self.taps.insert(self.count, Tapped { control, key: Some(key), pump: None, ear });
        }
    }

    /// Hears what a tap says.
    fn hear(&mut self, id: u64) {
        let Some(tap) = self.taps.get_mut(&id) else { return };
        for notice in tap.control.messages::<Notice>() {
            match notice {
                Notice::Started(start) => {
                    tap.ear.pid = Some(start.pid);
                    self.book.tell(start.pid, Fact::Started(start));
                }
                Notice::NotStarted(why) => {
                    if let Some(pid) = tap.ear.pid {
                        self.book.tell(pid, Fact::NotStarted(why));
                    }
                }
                Notice::Connected if tap.take_over(id, &mut self.reactor) => {}
                Notice::Connected => {
                    // It has to go on alone, which it does when it hears no more of us.
                    self.lost = true;
                    tap.key.take().into_iter().for_each(|key| self.reactor.remove(key));
                    self.taps.remove(&id);
                    return;
                }
                Notice::Runs(pid) => {
                    tap.ear.program = Pid::from_raw(pid);
                    if tap.ear.closes && !tap.ear.is_ending() {
                        tap.ear.closes = false;
                        let unread = tap.pump.as_ref().is_some_and(Pump::client_left_unread);
                        Listening { ear: &mut tap.ear, book: &mut self.book }.client_closed(unread);
                        tap.control.send(&Word::Close);
                        tap.pump.take().into_iter().for_each(|pump| pump.close(&mut self.reactor));
                    }
                }
                Notice::Ended(exit) => tap.ear.ended = Some(exit),
            }
        }
        if tap.control.is_over() {
            // Killed with its program, unless we have let it go.
            tap.key.take().into_iter().for_each(|key| self.reactor.remove(key));
        }
        self.settle(id);
    }

    fn carry_for(&mut self, id: u64, side: PumpSide) {
        let Some(Tapped { pump: Some(pump), ear, control, key }) = self.taps.get_mut(&id) else { return };
        let mut owner = Listening { ear, book: &mut self.book };
        let state = pump.carry(side, &mut owner, &mut self.reactor, &mut self.buffer);
        // With a program that is ending it ends when its tap does.
        if !matches!(state, Ok(State::Open)) && (ear.over || !ear.is_ending()) {
            control.send(&Word::Close);
            self.close(id);
            self.settle(id);
        } else if ear.ended.is_some() || key.is_none() {
            self.settle(id);
        }
    }

    fn close(&mut self, id: u64) {
        let pump = self.taps.get_mut(&id).and_then(|tap| tap.pump.take());
        pump.into_iter().for_each(|pump| pump.close(&mut self.reactor));
    }

    /// Lets a tap go whose program has ended, once all that it wrote was carried, and forgets one that is gone.
    fn settle(&mut self, id: u64) {
        let Some(tap) = self.taps.get_mut(&id) else { return };
        let is_gone = tap.key.is_none();
        if let (Some(exit), Some(pid)) = (tap.ear.ended, tap.ear.pid) {
            let mut state = Ok(State::Over);
            if let Some(pump) = &mut tap.pump {
                let mut owner = Listening { ear: &mut tap.ear, book: &mut self.book };
                state = pump.drain(&mut owner, &mut self.reactor, &mut self.buffer);
                if pump.is_held_up() && !is_gone {
                    // The process manager reads what was written before.
                    return;
                }
            }
            if std::mem::take(&mut tap.ear.closes) {
                let unread = tap.pump.as_ref().is_some_and(Pump::client_left_unread);
                Listening { ear: &mut tap.ear, book: &mut self.book }.client_closed(unread);
            }
            self.book.tell(pid, Fact::Ended(exit));
            (tap.ear.ended, tap.ear.over) = (None, true);
            // Where somebody else has the connection, a child of the program's, it goes on.
            if !matches!(state, Ok(State::Open)) {
                tap.pump.take().into_iter().for_each(|pump| pump.close(&mut self.reactor));
            }
            tap.control.send(&Word::Done);
        }
        let Some(tap) = self.taps.get(&id) else { return };
        if tap.key.is_none() && (tap.pump.is_none() || !tap.ear.over) {
            self.close(id);
            self.taps.remove(&id);
        }
    }
}

impl Tapped {
    /// Takes over the connection that has come along. Where descriptors have run out it has not.
    fn take_over(&mut self, id: u64, reactor: &mut Reactor<Source>) -> bool {
        let (Some(client), Some(server)) = (self.control.take_descriptor(), self.control.take_descriptor())
        else {
            return false;
        };
        self.pump.take().into_iter().for_each(|pump| pump.close(reactor));
        self.pump = Pump::new(client, server, reactor, |side| Source::Carried(id, side)).ok();
        self.pump.as_mut().map(Pump::leave_requests).is_some()
    }
}
