//! Connects the processes under test to the reference server. Reports all events to the judge, and answers some requests as the scenario
//! defines instead of letting the server answer.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pmi_faults::{Config, GroupId, GroupSpec, Server, ServerAction};
use pmi_process::observe::idle::{ControlledPeers, IdleCheck};
use pmi_process::observe::{procfs, tree};
use pmi_process::output::LINES_MAX;
use pmi_wire::{
    ConnectionMethod, Direction, Framing, FramingError, Proc, SpawnAssembler, SpawnCollector, SpawnLimits,
};

use super::process::{EndReason, PendingOutput, ProgramProcess};
use super::program_server::{ProcessScript, ProgramServer, ScriptAction, ScriptError};
use crate::party::ScenarioLimits;
use crate::serve::host::{Host, JobView, NextTick};
use pmi_judge::crash::is_broken_memory;
use pmi_judge::event::{AbandonReason, Bytes, EventKind, Exit, HangProof};

/// Interval between checks of whether a process has read the bytes that were written to it. `MAX_READ_WAIT` limits the wait, since a
/// process that is not reading would delay all other processes.
const READ_CHECK_INTERVAL: Duration = Duration::from_micros(50);
const MAX_READ_WAIT: Duration = Duration::from_millis(20);
/// Time without events before the first check for idleness, and the maximum interval between later checks. The interval doubles each time.
const IDLE_CHECK_INTERVALS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];
/// Time for which the job must be idle and silent to count as hung.
const SETTLE_TIME: Duration = Duration::from_millis(10);
/// Maximum duration of a job, in multiples of the maximum time without events.
const MAX_JOB_FACTOR: u32 = 24;
/// Maximum number of events in a job. A program that exceeds this number is assumed to repeat its requests forever.
const MAX_EVENTS: usize = 100_000;
/// Minimum number of bytes printed between two messages for the output to count as a flood instead of a progress report.
const OUTPUT_FLOOD: usize = 1 << 16;
/// Factor by which the time limit of a step is extended for a program that prints fewer bytes than [`OUTPUT_FLOOD`].
const PRINTING_FACTOR: u32 = 4;

/// A function that receives each event, and the line of the scenario that is being played.
pub(super) type EventRecorder<'a> = &'a mut dyn FnMut(usize, EventKind);

/// The only process that can request a process manager.
const FIRST_RANK: Proc = Proc { group: 0, rank: 0 };

pub(super) struct ProgramJob<'a> {
    server: Server,
    /// The value of `PATH`, if the program must find the harness as `mpiexec`.
    pub(super) path: Option<OsString>,
    /// The first line that was sent to the process that started an `mpiexec`, until the process has answered.
    pending_singinit: Option<Vec<u8>>,
    script: &'a dyn ProgramServer,
    record: EventRecorder<'a>,
    /// Line of the scenario that is being played.
    line: usize,
    /// Number of events so far.
    events: usize,
    /// True if the run ends because of an error in the scenario.
    has_script_error: bool,
    limits: ScenarioLimits,
    interrupted: &'a AtomicBool,
    /// Environment value that identifies all processes of the job.
    mark: String,
    actions: VecDeque<ServerAction>,
    pub(super) processes: BTreeMap<Proc, ProgramProcess>,
    /// Processes whose end is withheld from the server for now. If it were reported, the server would kill other processes that still have
    /// steps of the scenario to play, or that can continue.
    withheld_ends: Vec<Proc>,
    /// Processes that have requested the abort of their group. The group is killed after these processes have exited on their own or become
    /// idle. Otherwise, the verdict on their behaviour after the abort would depend on when they are killed.
    pending_aborts: Vec<Proc>,
    /// Number of bytes received from all processes.
    received: u64,
    kept_lines: usize,
    start: Instant,
    /// Time of the last event.
    last: Instant,
    /// Time of the last event other than output, which a program can write forever.
    progress: Instant,
    /// Number of bytes that the processes have printed since the last event other than output.
    output_length: usize,
    /// Time of the next check for idleness, and the interval after it.
    idle_check: (Instant, Duration),
    /// Start of the job's current idle period.
    idle: Option<Instant>,
}

impl<'a> ProgramJob<'a> {
    pub(super) fn new(
        serving: &'a dyn ProgramServer,
        record: EventRecorder<'a>,
        limits: ScenarioLimits,
        interrupted: &'a AtomicBool,
        mark: String,
        connection_method: ConnectionMethod,
    ) -> Self {
        let now = Instant::now();
        Self {
            server: Server::new(Config { connection_method, ..serving.config().clone() }),
            path: None,
            pending_singinit: None,
            script: serving,
            record,
            line: 0,
            events: 0,
            has_script_error: false,
            limits,
            interrupted,
            mark,
            actions: VecDeque::new(),
            processes: BTreeMap::new(),
            withheld_ends: Vec::new(),
            pending_aborts: Vec::new(),
            received: 0,
            kept_lines: 0,
            start: now,
            last: now,
            progress: now,
            output_length: 0,
            idle_check: (now + IDLE_CHECK_INTERVALS[0], IDLE_CHECK_INTERVALS[0]),
            idle: None,
        }
    }

    pub(super) fn record(&mut self, kind: EventKind) {
        self.record_at(self.line, kind);
    }

    fn record_at(&mut self, line: usize, kind: EventKind) {
        self.events += 1;
        (self.record)(line, kind);
    }

    /// Ends the run because of an error in the scenario.
    fn give_up(&mut self, mistake: ScriptError) {
        if !std::mem::replace(&mut self.has_script_error, true) {
            self.record_at(
                mistake.line,
                EventKind::Abandoned(AbandonReason::Mistake(mistake.message.to_string())),
            );
        }
    }

    fn happened(&mut self) {
        self.printed();
        self.progress = self.last;
        self.output_length = 0;
    }

    fn printed(&mut self) {
        self.last = Instant::now();
        self.idle_check = (self.last + IDLE_CHECK_INTERVALS[0], IDLE_CHECK_INTERVALS[0]);
        self.idle = None;
    }

    // ----- requests from the processes -----------------------------------------------------------------------------

    /// Handles the complete messages from a process. If the framing is invalid, the server receives the bytes of the last read, and reacts
    /// to them.
    fn read(&mut self, from: Proc, chunk: &[u8]) {
        while let Some(message) = self.processes.get_mut(&from).and_then(ProgramProcess::next_message) {
            match message {
                Ok((Framing::Lines, line)) => self.line(from, &line),
                Ok((Framing::Frames, body)) => {
                    // This cannot fail: the body was received in a frame, so its length has at most six digits.
                    let raw = Framing::Frames.complete(body.clone()).unwrap_or_default();
                    self.request(from, &body, Framing::Frames, &raw);
                }
                // The bytes of the overlong line are lost, so the server receives another overlong line, and reacts to it.
                Err(FramingError::Line(_)) => {
                    let limit = self.script.config().line_max;
                    self.server.receive(from, &vec![b'x'; limit + 1]);
                    self.server.receive(from, b"\n");
                    self.drain();
                }
                Err(_) => {
                    self.server.receive(from, chunk);
                    self.drain();
                }
            }
        }
    }

    fn line(&mut self, p: Proc, line: &[u8]) {
        let Some(process) = self.processes.get_mut(&p) else { return };
        let raw = [line, b"\n"].concat();
        if process.spawn.is_none() && !SpawnAssembler::is_spawn_start(line) {
            return self.request(p, line, Framing::Lines, &raw);
        }
        // The lines of a spawn request are collected, because the server answers them with a single response.
        let (collector, all) = process
            .spawn
            .get_or_insert_with(|| Box::new((SpawnCollector::new(SpawnLimits::default()), Vec::new())))
            .as_mut();
        all.extend_from_slice(&raw);
        if matches!(collector.push_line(line), Ok(None)) {
            return;
        }
        if let Some(request) = process.spawn.take() {
            let first = request.1.split(|b| *b == b'\n').next().unwrap_or_default();
            self.request(p, first, Framing::Lines, &request.1);
        }
    }

    /// Handles a complete request. `line` is its first line, or the body of its frame.
    fn request(&mut self, p: Proc, line: &[u8], framing: Framing, raw: &[u8]) {
        let Some(process) = self.processes.get_mut(&p) else { return };
        process.requested_abort |= line.starts_with(b"cmd=abort");
        let found = process.script.rules.iter().enumerate().find_map(|(i, rule)| {
            let (wanted, _) = rule.trigger.as_ref().filter(|_| process.is_active(i))?;
            Some((i, wanted.matches(line, framing).ok()?))
        });
        let Some((i, captures)) = found else {
            self.server.receive(p, raw);
            return self.drain();
        };
        let rule = &mut process.script.rules[i];
        rule.scope.bind(captures);
        let acts: VecDeque<ScriptAction> = rule.actions.clone().into();
        self.line = rule.line;
        if process.mark_applied(i) {
            self.record(EventKind::SituationReached { proc: p });
        }
        if acts.is_empty() {
            self.server.receive(p, raw);
            return self.drain();
        }
        // If the scenario answers an init, the server must still treat the process as initialized.
        let joins = line.starts_with(b"cmd=fullinit");
        let answered = (joins || line.starts_with(b"cmd=init"))
            && !acts.iter().any(|act| matches!(act, ScriptAction::DefaultResponse));
        let introduces = |process: &mut ProgramProcess| {
            answered && (!std::mem::replace(&mut process.is_initialized, true) || joins)
        };
        if self.processes.get_mut(&p).is_some_and(introduces) {
            self.server.receive(p, raw);
            while self.server.next_action().is_some() {}
        }
        self.perform(p, i, acts, raw);
    }

    /// Carries out the actions of a rule. Actions after the server's own response wait for that response.
    fn perform(&mut self, p: Proc, rule: usize, mut acts: VecDeque<ScriptAction>, raw: &[u8]) {
        while let Some(act) = acts.pop_front() {
            if matches!(act, ScriptAction::DefaultResponse) {
                if let Some(process) = self.processes.get_mut(&p) {
                    process.after_answer = Some((rule, acts));
                }
                self.server.receive(p, raw);
                return self.drain();
            }
            self.act(p, rule, &act);
        }
    }

    fn act(&mut self, p: Proc, rule: usize, act: &ScriptAction) {
        let Some(rule) = self.processes.get(&p).map(|process| &process.script.rules[rule]) else { return };
        let writes = match act {
            ScriptAction::Send(mode, lines) => rule.scope.message(*mode, lines),
            ScriptAction::Empty => Ok(vec![b"\n".to_vec()]),
            ScriptAction::Close => return self.queue_output(p, PendingOutput::Close),
            ScriptAction::Kill => return self.queue_output(p, PendingOutput::Kill),
            ScriptAction::DefaultResponse => return,
        };
        match writes {
            Ok(writes) => {
                writes.into_iter().for_each(|bytes| self.queue_output(p, PendingOutput::Bytes(bytes)))
            }
            Err(what) => self.give_up(ScriptError { line: rule.line, message: what }),
        }
    }

    // ----- actions of the server -----------------------------------------------------------------------------------

    fn drain(&mut self) {
        while let Some(action) = self.server.next_action() {
            match action {
                ServerAction::Send { to, bytes } => {
                    // A complete line ends with a newline, and a complete frame with a semicolon.
                    let done = bytes.ends_with(b"\n") || bytes.ends_with(b";");
                    let (first, rest) = bytes.split_at(self.script.first_write().min(bytes.len()));
                    for part in [first, rest].into_iter().filter(|part| !part.is_empty()) {
                        self.queue_output(to, PendingOutput::Bytes(part.to_vec()));
                    }
                    let after =
                        self.processes.get_mut(&to).filter(|_| done).and_then(|a| a.after_answer.take());
                    if let Some((rule, acts)) = after {
                        self.perform(to, rule, acts, b"");
                    }
                }
                ServerAction::Close { proc, end } => {
                    self.queue_output(proc, if end { PendingOutput::End } else { PendingOutput::Close })
                }
                ServerAction::Abort { group, rank: by, reason, .. } => {
                    self.abort(Proc { group, rank: by }, reason)
                }
                action @ ServerAction::Spawn { .. } => self.actions.push_back(action),
            }
        }
    }

    /// Handles the abort of a process group. If `by` has requested the abort, the group is killed later (see
    /// `pending_aborts`); otherwise, it is killed immediately.
    fn abort(&mut self, by: Proc, reason: String) {
        self.record(EventKind::Aborted { by, reason });
        if self.processes.get(&by).is_some_and(|process| process.requested_abort) {
            self.pending_aborts.push(by);
        } else {
            self.end_group(by.group, false);
        }
    }

    /// Kills the groups whose abort is pending. If `all` is false, skips groups in which a process that has requested the abort is still
    /// running. Returns whether any group was killed.
    fn end_aborted_groups(&mut self, all: bool) -> bool {
        let is_running = |(p, process): (&Proc, &ProgramProcess), by: &Proc| {
            p.group == by.group && process.requested_abort && process.exit.is_none()
        };
        let is_due = |by: &mut Proc| all || !self.processes.iter().any(|entry| is_running(entry, by));
        let due: Vec<Proc> = self.pending_aborts.extract_if(.., is_due).collect();
        due.iter().for_each(|by| self.end_group(by.group, true));
        !due.is_empty()
    }

    /// Kills a process group as a process manager would. If a process must exit on its own and a rule has been applied to it, only its
    /// connection is closed. If `requested` is true, such a process is killed as well, because it cannot foresee that another process
    /// will request an abort.
    fn end_group(&mut self, group: GroupId, requested: bool) {
        let group: Vec<Proc> = self.processes.keys().copied().filter(|p| p.group == group).collect();
        for p in group {
            let Some(process) = self.processes.get_mut(&p) else { continue };
            if process.exit.is_some() || process.was_ended() {
                continue;
            }
            let closes = process.must_exit_itself() && process.applied_count > 0 && !requested;
            // A process that has closed its own connection is left running, unless an abort was requested.
            let is_open = !process.is_closed() || requested;
            self.flush(p);
            if let Some(process) = self.processes.get_mut(&p).filter(|_| is_open) {
                let end = if closes { PendingOutput::Close } else { PendingOutput::End };
                process.pending_output.push_back((Instant::now() + self.script.delay(), end));
            }
        }
    }

    /// Queues output for a process. The output is delivered after the delay that the script defines.
    fn queue_output(&mut self, p: Proc, out: PendingOutput) {
        let delay = self.script.delay();
        let Some(process) = self.processes.get_mut(&p).filter(|process| !process.is_closed()) else { return };
        process.pending_output.push_back((Instant::now() + delay, out));
        if process.pending_output.len() == 1 {
            self.release_due(p);
        }
    }

    /// Delivers the output that is due. A delivery waits until the process has read the previous output. Only the end of the connection is
    /// delivered without this wait, because the process might send another request during the wait.
    fn release_due(&mut self, p: Proc) {
        let now = Instant::now();
        let may_release = |process: &ProgramProcess| {
            let next = process.pending_output.front();
            next.is_some_and(|(due, out)| {
                *due <= now && (process.has_read || matches!(out, PendingOutput::Close))
            })
        };
        while self.processes.get(&p).is_some_and(may_release) {
            self.release(p);
        }
    }

    fn release(&mut self, p: Proc) {
        let proc = p;
        let Some(process) = self.processes.get_mut(&p) else { return };
        let Some((_, out)) = process.pending_output.pop_front() else { return };
        process.has_read = false;
        process.released = Instant::now();
        let (kind, action) = match out {
            PendingOutput::Bytes(bytes) => {
                process.receive(&bytes);
                (
                    EventKind::FromServer { proc, bytes: Bytes(bytes.clone()) },
                    ServerAction::Send { to: p, bytes },
                )
            }
            PendingOutput::Close => {
                process.closed_by_runner = true;
                process.pending_output.retain(|(_, out)| !matches!(out, PendingOutput::Bytes(_)));
                (EventKind::ClosedByServer { proc }, ServerAction::Close { proc: p, end: false })
            }
            PendingOutput::End | PendingOutput::Kill => {
                let ours = matches!(out, PendingOutput::Kill);
                process.closed_by_runner = true;
                process.end_reason = Some(if ours { EndReason::Script } else { EndReason::Abort });
                (EventKind::Ended { proc, ours }, ServerAction::Close { proc: p, end: true })
            }
        };
        self.record(kind);
        self.actions.push_back(action);
        self.happened();
    }

    fn flush(&mut self, p: Proc) {
        while self.processes.get(&p).is_some_and(|process| !process.pending_output.is_empty()) {
            self.release(p);
        }
    }

    // ----- the end of processes ------------------------------------------------------------------------------------

    /// Returns whether some process of a group still has rules to apply. If the group were killed, these rules could not be applied.
    fn has_pending_rules(&self, group: GroupId) -> bool {
        self.processes.iter().any(|(p, process)| p.group == group && process.has_pending_rules())
    }

    /// Returns whether the end of this process is withheld from the server for now.
    fn is_end_withheld(&self, p: Proc) -> bool {
        self.has_pending_rules(p.group) || self.is_dispensable(p)
    }

    /// Returns whether the other processes may continue until they are idle, even if this process has closed its connection without
    /// finalizing. Returns true for a process that is still running or has exited with status 0. A program whose processes never finalize
    /// is then judged like every other program. Also returns true for a process that must exit with status 0 but failed, because the next
    /// requests of the others may show the cause.
    fn is_dispensable(&self, p: Proc) -> bool {
        let process =
            self.processes.get(&p).filter(|process| process.end_reason.is_none() && !process.requested_abort);
        process.is_some_and(|process| match process.exit {
            None | Some(Exit::Code(0)) => true,
            Some(Exit::Code(_)) => process.must_succeed(),
            Some(Exit::Signal(_)) => false,
        })
    }

    fn report_departed(&mut self) {
        for p in std::mem::take(&mut self.withheld_ends) {
            self.server.closed(p);
        }
        self.drain();
    }

    /// Records that the remaining processes will not end on their own.
    fn report_hang(&mut self, proof: HangProof) {
        let procs: Vec<Proc> =
            self.processes.iter().filter(|(_, process)| process.exit.is_none()).map(|(p, _)| *p).collect();
        for p in &procs {
            if let Some(process) = self.processes.get_mut(p) {
                process.end_reason.get_or_insert(EndReason::Stuck);
            }
        }
        self.record(EventKind::StillRunning { procs, proof });
    }

    /// Returns whether every process of the job is waiting for the runner.
    fn is_idle(&self, job: &dyn JobView) -> bool {
        let pids: Vec<i32> = job.alive().iter().map(|(_, pid)| *pid).collect();
        let list = || {
            // A process that is missing from the list has just ended.
            let mut all: Vec<i32> = pids.iter().flat_map(|pid| tree::descendants(*pid)).collect();
            if !pids.iter().all(|pid| all.contains(pid)) {
                return None;
            }
            all.extend(tree::orphans(&self.mark));
            all.sort_unstable();
            all.dedup();
            Some(all)
        };
        let pids = HashSet::from([procfs::own_pid()]);
        IdleCheck::default().all_waiting(
            list,
            &ControlledPeers { pids, connections: job.connections() },
            true,
        )
    }
}

impl Host for ProgramJob<'_> {
    fn add_group(&mut self, spec: GroupSpec) -> GroupId {
        self.server.add_group(spec)
    }

    fn size(&self, group: GroupId) -> u32 {
        self.server.size(group)
    }

    fn connection_method(&self) -> ConnectionMethod {
        self.server.connection_method()
    }

    fn welcome(&mut self) -> Vec<u8> {
        let request = self.server.welcome();
        self.pending_singinit = Some(request.clone());
        request
    }

    fn manager_requested(&mut self, args: Vec<Bytes>) {
        self.happened();
        self.record(EventKind::ManagerStarted { proc: FIRST_RANK, args });
    }

    fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        self.happened();
        let admitted = self.server.admit(line);
        let answer = [line, b"\n"].concat();
        match &admitted {
            Some((proc, received)) if self.connection_method() == ConnectionMethod::Port => {
                let (proc, received) = (*proc, Bytes(received.clone()));
                self.record(EventKind::Greeted { proc, initack: Bytes(answer), response: received });
            }
            _ => {
                let received = admitted.as_ref().map_or_else(Vec::new, |(_, received)| received.clone());
                self.record_singinit(answer, received);
            }
        }
        admitted
    }

    fn environment(&mut self, p: Proc, place: &str) -> Vec<(String, String)> {
        let own = self.server.environment(p, place);
        let mut env: BTreeMap<String, String> = own.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        if let Some(process) = self.processes.get_mut(&p) {
            for (name, value) in &process.script.env {
                match value {
                    Some(value) => drop(env.insert(name.clone(), value.clone())),
                    None => drop(env.remove(name)),
                }
            }
            process.env.clone_from(&env);
        }
        env.insert(tree::MARK.to_owned(), self.mark.clone());
        let path = self.path.as_ref().map(|path| path.to_string_lossy().into_owned());
        env.extend(path.map(|path| ("PATH".to_owned(), path)));
        env.into_iter().collect()
    }

    fn connects(&mut self, p: Proc) -> bool {
        self.server.connects(p)
    }

    fn descriptor(&mut self, p: Proc) -> Option<i32> {
        let part = self.script.process_script(p, self.server.size(p.group)).unwrap_or_else(|mistake| {
            self.give_up(mistake);
            ProcessScript::default()
        });
        let fd = part.env.iter().rev().find(|(name, _)| name == "PMI_FD").and_then(|(_, fd)| fd.clone());
        // By default, use the first descriptor that is free in most programs, so that the number is the same in every run.
        let descriptor = fd.and_then(|fd| fd.parse::<i32>().ok()).filter(|n| *n > 2).unwrap_or(3);
        self.processes.insert(p, ProgramProcess::new(part, descriptor, self.script.config().line_max));
        Some(descriptor)
    }

    fn receive(&mut self, from: Proc, bytes: &[u8]) {
        self.received += bytes.len() as u64;
        self.record(EventKind::ToServer { proc: from, bytes: Bytes(bytes.to_vec()) });
        self.happened();
        let Some(process) = self.processes.get_mut(&from) else { return };
        process.has_read = true;
        process.has_written = true;
        process.connection.push(Direction::ToServer, bytes);
        self.read(from, bytes);
    }

    fn left_unread(&mut self, p: Proc) {
        if self.processes.get(&p).is_some_and(|process| !process.is_closed()) {
            self.record(EventKind::LeftUnread { proc: p });
        }
    }

    fn closed(&mut self, from: Proc) {
        self.happened();
        let Some(process) = self.processes.get_mut(&from) else { return };
        if !process.is_closed() {
            self.record(EventKind::ClosedByClient { proc: from });
        }
        let Some(process) = self.processes.get_mut(&from) else { return };
        process.has_closed = true;
        let ended = process.end_reason;
        match ended {
            // The scenario has ended the process, but the server must continue as if the process were still running.
            Some(EndReason::Script) => {}
            _ if self.withheld_ends.contains(&from) => {}
            _ if self.server.is_joined(from) && self.is_end_withheld(from) => self.withheld_ends.push(from),
            _ => {
                self.server.closed(from);
                self.drain();
            }
        }
    }

    fn spawned(&mut self, group: GroupId, errcodes: &[i64]) {
        self.server.spawned(group, errcodes);
        self.drain();
    }

    fn is_joined(&self, p: Proc) -> bool {
        self.server.is_joined(p)
    }

    fn next_action(&mut self) -> Option<ServerAction> {
        self.actions.pop_front()
    }

    fn started(&mut self, p: Proc) {
        let Some(process) = self.processes.get_mut(&p) else { return };
        let env = process.env.iter().filter(|(name, _)| name.starts_with("PMI_"));
        let env = env.map(|(name, value)| (name.clone(), value.clone())).collect();
        let fd = process.env.get("PMI_FD").filter(|fd| fd.parse::<i32>() != Ok(process.descriptor));
        let bad_fd = fd.map(|_| "PMI_FD does not name the connection".to_owned());
        let expectations = process.script.expectations.clone();
        // If the first rule has no trigger, its actions are performed at the start.
        let first = process.script.rules.first().filter(|rule| rule.trigger.is_none());
        let first = first.map(|rule| (rule.line, rule.actions.clone()));
        let kind = EventKind::Started { proc: p, env, args: Vec::new(), bad_fd };
        if self.processes.keys().all(|other| *other == p) {
            self.happened();
        }
        self.record(kind);
        for (line, expectation) in expectations {
            self.record_at(line, EventKind::Expected(Box::new(expectation)));
        }
        if let (Some((line, acts)), Some(process)) = (first, self.processes.get_mut(&p)) {
            process.mark_applied(0);
            self.record_at(line, EventKind::SituationReached { proc: p });
            self.perform(p, 0, acts.into(), b"");
        }
    }

    fn ended(&mut self, p: Proc, exit: Exit) {
        self.happened();
        self.record_singinit(Vec::new(), Vec::new());
        self.record(EventKind::Exited { proc: p, exit });
        for stderr in [false, true] {
            let rest = self.processes.get_mut(&p).and_then(|a| a.lines[usize::from(stderr)].finish());
            if let Some(rest) = rest {
                self.record_line(p, stderr, rest);
            }
        }
        if let Some(process) = self.processes.get_mut(&p) {
            process.exit = Some(exit);
        }
        self.end_aborted_groups(false);
    }

    fn output(&mut self, p: Proc, stderr: bool, bytes: &[u8]) {
        self.printed();
        self.output_length += bytes.len();
        let Some(process) = self.processes.get_mut(&p) else { return };
        if !stderr {
            process.printed(bytes);
        }
        let mut lines = Vec::new();
        process.lines[usize::from(stderr)].push(bytes, &mut |line| lines.push(line));
        for line in lines {
            self.record_line(p, stderr, line);
        }
    }

    fn tick(&mut self, job: &dyn JobView) -> NextTick {
        if self.has_script_error || self.interrupted.load(Ordering::Relaxed) {
            return NextTick::End;
        }
        // Bytes that a process sent before the response to its offer can be decoded only after that response, so decoding is tried again.
        for p in self.processes.keys().copied().collect::<Vec<_>>() {
            self.read(p, b"");
        }
        let now = Instant::now();
        let mut next: Option<Duration> = None;
        for p in self.processes.keys().copied().collect::<Vec<_>>() {
            let Some(process) = self.processes.get_mut(&p) else { continue };
            let Some((due, _)) = process.pending_output.front() else { continue };
            let wait = due.saturating_duration_since(now);
            process.has_read |= now - process.released > MAX_READ_WAIT || job.has_read_all(p);
            self.release_due(p);
            next = Some(next.unwrap_or(wait.max(READ_CHECK_INTERVAL)).min(wait.max(READ_CHECK_INTERVAL)));
        }
        if let Some(next) = next {
            return NextTick::Again(next);
        }
        if !self.withheld_ends.is_empty() && !self.withheld_ends.iter().any(|p| self.is_end_withheld(*p)) {
            self.report_departed();
        }
        let flood = self.received > self.limits.bytes || self.events > MAX_EVENTS;
        if flood || now - self.start > self.limits.step * MAX_JOB_FACTOR {
            self.report_hang(HangProof::Endless);
            return NextTick::End;
        }
        let (quiet, stalled) = (now - self.last, now - self.progress);
        // A process that has not written anything may still be loading its libraries, so the job does not count as idle.
        let at_work = self.processes.values().any(|process| process.exit.is_none() && !process.has_written);
        // Two checks must find the job idle, so that all bytes written before the first check have been received.
        let mut settled = false;
        if !at_work && now >= self.idle_check.0 {
            let idle = self.is_idle(job);
            settled = idle && self.idle.is_some_and(|since| now - since >= SETTLE_TIME);
            self.idle = self.idle.filter(|_| idle).or(idle.then_some(now));
            self.idle_check = (now + self.idle_check.1, (self.idle_check.1 * 2).min(IDLE_CHECK_INTERVALS[1]));
        }
        // A program that prints may be reporting its progress, so it gets more time unless it floods its output.
        let is_printing = quiet < stalled / 2;
        let patience = if is_printing && self.output_length < OUTPUT_FLOOD { PRINTING_FACTOR } else { 1 };
        let is_over =
            if at_work { self.limits.is_start_over(stalled) } else { stalled >= self.limits.step * patience };
        if settled || is_over {
            if self.end_aborted_groups(true) {
                return NextTick::Again(IDLE_CHECK_INTERVALS[0]);
            }
            if !self.withheld_ends.is_empty() {
                self.report_departed();
                return NextTick::Again(IDLE_CHECK_INTERVALS[0]);
            }
            self.report_hang(match settled {
                true => HangProof::Idle,
                false if is_printing => HangProof::Prints(stalled.as_secs()),
                false => HangProof::Quiet(quiet.as_secs()),
            });
            return NextTick::End;
        }
        NextTick::Again(self.idle_check.0.saturating_duration_since(now).max(Duration::from_millis(1)))
    }

    fn print(&mut self, line: fmt::Arguments<'_>) {
        let line = Bytes(line.to_string().into_bytes());
        self.record(EventKind::Output { proc: None, stderr: true, line });
    }
}

impl ProgramJob<'_> {
    /// Records the result of singleton init, if it has begun and has not been recorded yet.
    fn record_singinit(&mut self, answer: Vec<u8>, reply: Vec<u8>) {
        if let Some(request) = self.pending_singinit.take() {
            let (request, answer, reply) = (Bytes(request), Bytes(answer), Bytes(reply));
            self.record(EventKind::Singinit { proc: FIRST_RANK, request, answer, reply });
        }
    }

    /// Records a line of output, and whether it reports that the C library has detected corrupted memory. The C library then calls abort(),
    /// which must not be mistaken for the program's own decision.
    fn record_line(&mut self, p: Proc, stderr: bool, line: Vec<u8>) {
        let text = String::from_utf8_lossy(&line);
        if stderr && is_broken_memory(&text) {
            let text = text.into_owned();
            self.record(EventKind::BrokenMemory { proc: p, text });
        }
        if self.kept_lines < LINES_MAX {
            self.kept_lines += 1;
            self.record(EventKind::Output { proc: None, stderr, line: Bytes(line) });
        }
    }
}
