//! Runs a session: starts the launcher with taps in its command, reads the reports of the taps, and waits until the session ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use pmi_process::child::Child;
use pmi_process::context;
use pmi_process::descriptors::RaisedLimit;
use pmi_process::observe::procfs::{self, Stat};
use pmi_process::observe::tree::{become_subreaper, end_descendants, parent};
use pmi_process::scratch::scratch_folder;
use pmi_process::stop::StopSignals;
use pmi_process::trace::foreign::ForeignProcess;
use rustix::process::{Pid, Signal};

use super::carrier::{Batch, Carrier};
use super::recording::Recording;
use super::tap::position;
use super::tap::{self, FIRST_FOLDER};
use pmi_judge::event::{Event, Exit};

/// Number of facts that the judge receives in a batch. Batches avoid waking the judge for each fact.
const BATCH_SIZE: usize = 256;

/// Maximum number of batches that wait for the judge. This limits memory: a slow judge delays the session.
const MAX_BATCHES: usize = 64;

/// Maximum interval between checks of whether the session is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time during which programs that outlive their launcher are still recorded.
const EXIT_GRACE: Duration = Duration::from_secs(2);

/// The result of running a session.
pub struct RecordedSession {
    /// The recording of the session.
    pub recording: Recording,
    /// The exit of the launcher.
    pub exit: Exit,
    /// True if the user interrupted the session.
    pub interrupted: bool,
    /// True if some processes were not recorded, because the limit on file descriptors is too low.
    pub lost: bool,
    /// The elapsed time of the session.
    pub time: Duration,
}

/// The handling of a launcher's standard streams and time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionMode {
    /// The launcher inherits the recorder's standard streams, and has no time limit.
    Transparent,
    /// The launcher has no standard streams. After the time limit, all processes that the launcher has started are terminated.
    Bounded(Duration),
}

/// Runs a command in which `{tap}` is the placeholder for the tap at `binary`, and passes every event to `sink`.
///
/// # Errors
///
/// Returns an error if the scratch folder or the socket cannot be created, or the launcher cannot be started.
pub fn run(
    command: &[String],
    binary: &Path,
    mode: SessionMode,
    signals: &mut StopSignals,
    sink: &mut (dyn FnMut(&Event) + Send),
) -> io::Result<RecordedSession> {
    let scratch = scratch_folder()?;
    let start = Instant::now();
    let mut carrier = Carrier::new(scratch.path(), binary, start)?;
    let tap = tap::make(binary, &scratch.path().join(FIRST_FOLDER))?;
    let command = position::fill_tap(command, &tap);
    let mut launcher = Command::new(&command[0]);
    launcher.args(&command[1..]);
    if matches!(mode, SessionMode::Bounded(_)) {
        become_subreaper();
        launcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    }
    let launcher =
        Child::start(launcher).map_err(context(format_args!("cannot start \"{}\"", command[0])))?;
    let pid = launcher.pid();
    // The limit on file descriptors is raised to the maximum, because the number of processes is not known in advance.
    let _raised_limit = RaisedLimit::raise_to_max()?;
    carrier.watch(launcher.pidfd())?;
    carrier.watch(&*signals)?;
    let name = format!("the launcher, {},", command[0].rsplit('/').next().unwrap_or_default());
    let mut recording = Recording::new(command);
    // Judging takes longer than forwarding, so it has its own thread and rarely delays a process.
    let (ended, recording) = std::thread::scope(|scope| {
        let (messages, receiver) = sync_channel(MAX_BATCHES);
        let judge = scope.spawn(move || {
            receiver.into_iter().for_each(|message: SessionMessage| message.record(&mut recording, sink));
            recording
        });
        let mut running =
            RunningSession { carrier, launcher, messages, start, exit: None, managers: Vec::new() };
        let interrupted = running.until_over(mode, signals, pid);
        let left = running.carrier.running_processes();
        if matches!(mode, SessionMode::Bounded(_)) {
            end_descendants(pid.as_raw_nonzero().get());
        }
        let exit = running.exit.unwrap_or(Exit::Signal(Signal::KILL.as_raw()));
        running.report_crashes();
        if let Exit::Signal(signal) = exit
            && ForeignProcess::is_crash(signal)
        {
            running.report(SessionMessage::Crashed { at: start.elapsed(), name, signal });
        }
        running.report(SessionMessage::Over { at: start.elapsed(), exit, left });
        let lost = running.carrier.has_unrecorded();
        drop(running);
        let recording = judge.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ((interrupted, exit, lost), recording)
    });
    let (interrupted, exit, lost) = ended;
    Ok(RecordedSession { recording, exit, interrupted, lost, time: start.elapsed() })
}

/// A message to the judge.
enum SessionMessage {
    Facts(Batch),
    /// The user has interrupted the session.
    Interrupted(Duration),
    /// The session has exceeded its time limit.
    Hung(Duration),
    /// A process of the process manager was killed by a signal.
    Crashed {
        at: Duration,
        name: String,
        signal: i32,
    },
    /// The launcher has ended, but the listed processes have not.
    Over {
        at: Duration,
        exit: Exit,
        left: Vec<i32>,
    },
}

impl SessionMessage {
    fn record(self, recording: &mut Recording, sink: &mut dyn FnMut(&Event)) {
        match self {
            Self::Facts(batch) => batch.facts().for_each(|fact| recording.take(fact, sink)),
            Self::Interrupted(at) => recording.interrupted(at, sink),
            Self::Hung(at) => recording.hung(at, sink),
            Self::Crashed { at, name, signal } => recording.crashed(at, name, signal, sink),
            Self::Over { at, exit, left } => recording.job_exited(at, exit, &left, sink),
        }
    }
}

struct RunningSession {
    carrier: Carrier,
    launcher: Child,
    messages: SyncSender<SessionMessage>,
    start: Instant,
    exit: Option<Exit>,
    /// The processes between the launcher and the taps.
    managers: Vec<ForeignProcess>,
}

impl RunningSession {
    /// Watches the ancestors of a process up to the launcher.
    fn watch_managers(&mut self, pid: i32) {
        let (launcher, mut child) = (self.launcher.pid().as_raw_nonzero().get(), pid);
        while let Some((parent, _)) = parent(child) {
            let known = self.managers.iter().any(|manager| manager.has_pid(parent));
            if known || parent <= 1 || parent == launcher || parent == procfs::own_pid() {
                break;
            }
            self.managers.extend(ForeignProcess::new(parent));
            child = parent;
        }
    }

    /// Reports processes of the manager that have crashed since the last call.
    fn report_crashes(&mut self) {
        let crashed: Vec<_> = self.managers.iter_mut().filter_map(ForeignProcess::unreported_crash).collect();
        let at = self.start.elapsed();
        for (name, signal) in crashed {
            self.report(SessionMessage::Crashed { at, name, signal });
        }
    }

    /// Sends a message to the judge, after the facts that precede it.
    fn report(&mut self, message: SessionMessage) {
        self.report_carried();
        // This cannot fail, because the judge receives until the sender is dropped.
        let _ = self.messages.send(message);
    }

    fn report_carried(&mut self) {
        let facts = self.carrier.take_reported_facts();
        facts.started(0).for_each(|pid| self.watch_managers(pid));
        if facts.len() > 0 {
            let _ = self.messages.send(SessionMessage::Facts(facts));
        }
    }

    /// Carries messages until the launcher and its programs have ended. Returns whether the user interrupted the session.
    fn until_over(&mut self, mode: SessionMode, signals: &mut StopSignals, pid: Pid) -> bool {
        let (mut interrupts, mut hung, mut ended, mut last_check) = (0, false, None, self.start);
        loop {
            let before = self.carrier.reported_facts().len();
            let other = self.carrier.carry(CHECK_INTERVAL);
            let after = self.carrier.reported_facts().len();
            let quiet = after == before;
            // A new process is reported immediately, so that its ancestors are watched even if the job is short.
            if after >= BATCH_SIZE || self.carrier.reported_facts().started(before).next().is_some() {
                self.report_carried();
            }
            // The checks below take as long as forwarding a message, so they are not performed after each message.
            if !other && !quiet && last_check.elapsed() < CHECK_INTERVAL {
                continue;
            }
            last_check = Instant::now();
            self.carrier.take_old_unread();
            self.report_carried();
            self.report_crashes();
            for signal in signals.take().into_iter().filter_map(Signal::from_named_raw) {
                interrupts += 1;
                let at = self.start.elapsed();
                self.report(SessionMessage::Interrupted(at));
                // In the foreground, the terminal has already sent SIGINT to the launcher, so it is not sent again.
                let has_it = signal == Signal::INT && mode == SessionMode::Transparent && is_foreground();
                if !has_it {
                    // The third signal to this process kills the launcher.
                    self.launcher.signal(if interrupts > 2 { Signal::KILL } else { signal });
                }
            }
            if let SessionMode::Bounded(time) = mode {
                if self.start.elapsed() > time && !hung && self.exit.is_none() {
                    hung = true;
                    let at = self.start.elapsed();
                    self.report(SessionMessage::Hung(at));
                    // SIGTERM comes first, so that launchers can terminate their own processes.
                    self.launcher.signal(Signal::TERM);
                }
                if self.start.elapsed() > time + EXIT_GRACE || interrupts > 2 {
                    end_descendants(pid.as_raw_nonzero().get());
                }
            }
            if self.exit.is_none() {
                self.exit = self.launcher.try_wait();
            }
            if self.exit.is_some() {
                let since = *ended.get_or_insert_with(Instant::now);
                if self.carrier.running_processes().is_empty() || since.elapsed() > EXIT_GRACE {
                    // Messages may have arrived after the last call to `carry`, so they are forwarded before the session ends.
                    self.carrier.carry(Duration::ZERO);
                    return interrupts > 0;
                }
            }
        }
    }
}

/// Returns whether the terminal sends its signals to this process, and thus to the launcher too.
fn is_foreground() -> bool {
    // Field 5 is the process group, and field 8 is the foreground process group of the terminal.
    Stat::of(procfs::own_pid()).is_some_and(|stat| stat.field(5).is_some() && stat.field(5) == stat.field(8))
}
