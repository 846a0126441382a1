//! The symptom that a reproducer looks for.

use pmi_judge::event::{Event, EventKind, Exit};
use pmi_judge::{Finding, PartyKind, builtin_requirements};
use pmi_wire::Proc;

use crate::observe::failure::{CrashCause, Failure, FailureKey};

/// The symptom by which a reproducer recognizes a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symptom {
    /// The event that shows a finding: a message, the end of a connection, silence, or the start of a process. If the event contains
    /// several messages, `seen` selects one.
    Event {
        /// The number of the event.
        seq: u64,
        /// The observed behaviour, as quoted in the finding.
        seen: String,
    },
    /// A process is killed by this signal.
    Death {
        /// The name of the process.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// The job does not end although its processes have ended.
    JobKeepsRunning,
}

/// The reason why a finding has no reproducer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReproducible {
    /// The harness is the upstream of a proxy.
    #[error("pmi-conform acts as the proxy's upstream")]
    Upstream,
    /// The finding needs the state that an earlier job leaves behind.
    #[error("the finding occurs only after an earlier job")]
    EarlierJob,
    /// The finding needs a concurrent job.
    #[error("the finding occurs only while another job is running")]
    OtherJob,
    /// No launcher was started.
    #[error("no launcher was started")]
    NotLaunched,
    /// A function of a library is called with an argument that does not match its declaration.
    #[error("a call has an argument of the wrong type")]
    Calls,
    /// The program under test spawns processes.
    #[error("the program under test spawns processes")]
    Spawned,
    /// The manager that connects to the process is not started in the way that MPICH's client starts it.
    #[error("the process manager is not started with -pmi_args")]
    Manager,
    /// The finding cannot be recognized at a single point of the session.
    #[error("the symptom is neither a message, nor silence, nor the end of a connection or process")]
    Symptom,
}

/// Returns the event that shows a finding. `seq` is the number of the finding's event. The judge reports a missing response from a server
/// at the event before the event that proves the silence. It reports the exit status of a program after all events, so the event is then
/// the exit of `proc`, or of any process if `proc` is `None`.
fn event_of_finding(events: &[Event], seq: u64, proc: Option<Proc>, of_server: bool) -> Option<&Event> {
    let shows = |event: &&Event| match &event.kind {
        EventKind::Expected(_) | EventKind::Output { .. } | EventKind::OutputCompared { .. } => false,
        EventKind::ToServer { .. } => !of_server,
        _ => true,
    };
    let ends = |event: &&Event| match &event.kind {
        EventKind::StillRunning { procs, .. } => proc.is_none_or(|proc| procs.contains(&proc)),
        EventKind::Exited { proc: of, .. } => proc.is_none_or(|proc| *of == proc),
        _ => false,
    };
    let at = events.iter().skip_while(|event| event.seq < seq).find(shows);
    at.or_else(|| events.iter().find(ends))
}

impl Symptom {
    /// Returns the symptom of a failure of a case.
    pub(crate) fn of_failure(failure: &Failure, events: &[Event]) -> Option<Self> {
        let died = |of: i32| {
            events.iter().find_map(|event| match &event.kind {
                EventKind::Crashed { name, signal } if *signal == of => Some(name.clone()),
                _ => None,
            })
        };
        match &failure.key {
            FailureKey::Crash { program: who, cause: CrashCause::Signal(signal), .. } => {
                Some(Self::Death { name: died(*signal).unwrap_or_else(|| who.clone()), signal: *signal })
            }
            FailureKey::JobKeepsRunning(_) => Some(Self::JobKeepsRunning),
            key => {
                let of_server = matches!(
                    key,
                    FailureKey::Rule { party: None, .. } | FailureKey::Hang { party: None, .. }
                );
                let event = event_of_finding(
                    events,
                    failure.seq?,
                    None,
                    of_server || *key == FailureKey::HangDuringPartialRequest,
                )?;
                Some(Self::Event { seq: event.seq, seen: failure.description.clone() })
            }
        }
    }

    /// Returns the symptom of a finding of the judge.
    pub fn of(finding: &Finding, events: &[Event]) -> Option<Self> {
        let of_server = finding.party == PartyKind::Server;
        let dies = |event: &Event| match &event.kind {
            EventKind::Crashed { name, signal } if finding.seen.starts_with(name.trim_end_matches(',')) => {
                Some(Self::Death { name: name.clone(), signal: *signal })
            }
            EventKind::Exited { exit: Exit::Signal(signal), .. } if !of_server => {
                Some(Self::Death { name: "the program".to_owned(), signal: *signal })
            }
            _ => None,
        };
        if finding.requirement == builtin_requirements::NO_CRASH {
            return events.iter().find_map(dies);
        }
        let event = event_of_finding(events, finding.seq, finding.proc, of_server)?;
        match event.kind {
            EventKind::JobKeepsRunning { .. } => Some(Self::JobKeepsRunning),
            _ => Some(Self::Event { seq: event.seq, seen: finding.seen.clone() }),
        }
    }
}
