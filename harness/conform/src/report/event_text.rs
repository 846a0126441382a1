//! Descriptions of events, for transcripts and sequence charts.

use super::text;
use pmi_judge::event::{Bytes, Event, EventKind, Exit, JobTermination, SilenceProof};
use pmi_wire::Proc;

/// Maximum number of bytes shown for an event.
pub(super) const MAX_EVENT_BYTES: usize = 120;

fn ended(exit: Option<Exit>) -> String {
    exit.map_or("still running".to_owned(), |exit| exit.to_string())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventDirection {
    /// No direction: an event of a process or of the job.
    None,
    /// From a process to the server.
    ToServer,
    /// From the server to a process.
    FromServer,
    /// From a proxy to its upstream.
    ToUpstream,
    /// From the upstream to a proxy.
    FromUpstream,
    /// Between a program and the library that it calls.
    Call,
}

impl EventDirection {
    /// Returns the arrow that shows this direction in transcripts.
    pub(super) fn arrow(self) -> &'static str {
        match self {
            Self::None => "  ",
            Self::ToServer => "->",
            Self::FromServer => "<-",
            Self::ToUpstream => "=>",
            Self::FromUpstream => "<=",
            Self::Call => "()",
        }
    }
}

#[derive(Debug)]
pub(super) struct EventDescription<'a> {
    /// The process that the event concerns; `None` if the event concerns the whole job.
    pub(super) proc: Option<Proc>,
    pub(super) direction: EventDirection,
    /// The text, with escaped bytes.
    pub(super) what: String,
    /// The bytes sent over a connection, if the event contains bytes.
    pub(super) bytes: Option<&'a [u8]>,
}

impl EventDescription<'_> {
    pub(super) fn rank(&self) -> String {
        self.proc.as_ref().map(Proc::to_string).unwrap_or_default()
    }
}

/// Maximum number of frames shown from the backtrace of a process that died.
const MAX_FRAMES: usize = 6;

/// Describes an event. Returns `None` for output. Output is shown separately from the transcript, because its arrival time says little
/// about when it was written.
pub(super) fn describe<'a>(event: &'a Event, limit: usize) -> Option<EventDescription<'a>> {
    let directed = |proc: Option<Proc>, direction, what: String| {
        Some(EventDescription { proc, direction, what, bytes: None })
    };
    let of_proc = |proc: &Proc, what: String| directed(Some(*proc), EventDirection::None, what);
    let of_job = |what: String| directed(None, EventDirection::None, what);
    let sent = |proc: Proc, direction, bytes: &'a Bytes, more: &str| {
        let what = text::bytes(&bytes.0, limit, event.cut) + more;
        Some(EventDescription { proc: Some(proc), direction, what, bytes: Some(&bytes.0) })
    };
    match &event.kind {
        EventKind::Launched { ranks, nodes, .. } => {
            // The number is 0 if it is unknown. For example, `record` learns the number of ranks only from the environment of a process.
            let of = |number: u32, prefix, noun| match number {
                0 => String::new(),
                _ => format!("{prefix}{}", text::count(number as usize, noun)),
            };
            let (ranks, on) = (of(*ranks, ": ", "rank"), of(*nodes, " on ", "node"));
            of_job(format!("launched{ranks}{on}"))
        }
        EventKind::Started { proc, env, bad_fd, .. } => {
            let variables = env.iter().filter(|(name, _)| name.starts_with("PMI_"));
            let variables: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
            let with = if variables.is_empty() { "" } else { " with " };
            let without = bad_fd.as_ref().map(|why| format!(" without a connection: {why}"));
            let what = ["started", with, &variables.join(" "), &without.unwrap_or_default()].concat();
            of_proc(proc, text::clean(&what))
        }
        EventKind::Greeted { proc, initack, response } => {
            let (initack, response) = (text::bytes(&initack.0, limit, 0), text::bytes(&response.0, limit, 0));
            of_proc(proc, format!("connected through PMI_PORT: {initack} was answered with {response}"))
        }
        EventKind::ManagerStarted { proc, args } => {
            let args: Vec<String> = args.iter().map(|arg| text::bytes(&arg.0, limit, 0)).collect();
            of_proc(proc, format!("started a process manager: mpiexec {}", args.join(" ")))
        }
        EventKind::Singinit { proc, request, answer, reply } => {
            let shown = |bytes: &Bytes| match bytes.0.is_empty() {
                true => "nothing".to_owned(),
                false => text::bytes(&bytes.0, limit, 0),
            };
            let [request, answer, reply] = [request, answer, reply].map(shown);
            of_proc(
                proc,
                format!("singleton init: {request} was answered with {answer}, followed by {reply}"),
            )
        }
        EventKind::ToServer { proc, bytes } => sent(*proc, EventDirection::ToServer, bytes, ""),
        EventKind::FromServer { proc, bytes } => sent(*proc, EventDirection::FromServer, bytes, ""),
        EventKind::ClosedByClient { proc } => {
            directed(Some(*proc), EventDirection::ToServer, "(closed)".to_owned())
        }
        EventKind::ClosedByServer { proc } => {
            directed(Some(*proc), EventDirection::FromServer, "(closed)".to_owned())
        }
        EventKind::Ended { proc, ours: true } => of_proc(proc, "terminated by the harness".to_owned()),
        EventKind::Ended { proc, ours: false } => {
            of_proc(proc, "terminated by the process manager".to_owned())
        }
        EventKind::Exited { proc, exit } => of_proc(proc, exit.to_string()),
        EventKind::NoResponse { proc, proof } => {
            let proof = match proof {
                SilenceProof::Idle => "(nothing: the server has read everything and waits)",
                SilenceProof::Polled => "(nothing: the server has read everything and polls)",
                SilenceProof::Unread => "(nothing: the server waits, but has not read everything)",
                SilenceProof::Timeout => "(nothing: the time limit was reached)",
            };
            directed(Some(*proc), EventDirection::FromServer, proof.to_owned())
        }
        EventKind::NotRead { proc } => of_proc(proc, "(the server has not read the request)".to_owned()),
        EventKind::FromProxy { proxy, text, held, .. } => {
            let held = if *held { "  (the scenario answers)" } else { "" };
            sent(Proc::proxy(*proxy), EventDirection::ToUpstream, text, held)
        }
        EventKind::ToProxy { proxy, text, .. } => {
            sent(Proc::proxy(*proxy), EventDirection::FromUpstream, text, "")
        }
        EventKind::ClosedByUpstream { proxy } => {
            directed(Some(Proc::proxy(*proxy)), EventDirection::FromUpstream, "(closed)".to_owned())
        }
        EventKind::ProxyEnded { proxy, exit, .. } => of_proc(&Proc::proxy(*proxy), format!("ended: {exit}")),
        EventKind::Output { .. }
        | EventKind::Expected(_)
        | EventKind::Silence { .. }
        | EventKind::Abandoned(_)
        | EventKind::StatementsSkipped { .. }
        | EventKind::LibraryFile { .. }
        | EventKind::Loaded { error: None, .. }
        | EventKind::PlainRun(_)
        | EventKind::BrokenMemory { .. }
        | EventKind::OutputCompared { .. } => None,
        EventKind::SituationReached { proc } => {
            of_proc(proc, format!("(line {} of the scenario)", event.line))
        }
        EventKind::LeftUnread { proc } => {
            of_proc(proc, "closes its connection before reading everything".to_owned())
        }
        EventKind::Aborted { by, reason } => {
            of_proc(by, format!("causes the server to abort the group: {}", text::clean(reason)))
        }
        EventKind::StillRunning { procs, .. } if procs.is_empty() => {
            of_job("the launcher is still running, so the harness terminates it".to_owned())
        }
        EventKind::OutlivedLauncher { procs } => {
            of_job(format!("no longer recorded, because the launcher has ended: {}", Proc::list(procs)))
        }
        EventKind::StillRunning { procs, proof } => of_job(format!(
            "the harness terminates the processes that are still running: {} ({proof})",
            Proc::list(procs)
        )),
        EventKind::JobKeepsRunning { procs, names, .. } => {
            let ours = procs.iter().map(|p| format!("rank {p}"));
            let all: Vec<String> = ours.chain(names.iter().map(|name| text::clean(name))).collect();
            of_job(format!("the job is still running, so the harness terminates {}", all.join(", ")))
        }
        EventKind::JobEnding(JobTermination::Terminated { exit }) => {
            of_job(format!("launcher, after SIGTERM: {}", ended(*exit)))
        }
        EventKind::JobEnding(JobTermination::Cancelled { command, exit }) => {
            of_job(format!("cancelled by {}: {}", text::clean(command), ended(*exit)))
        }
        EventKind::JobEnding(JobTermination::Killed { names }) => {
            of_job(format!("killed: {}", text::clean(&names.join(", "))))
        }
        EventKind::LeftoverProcesses { names } => {
            of_job(format!("left behind: {}", text::clean(&names.join(", "))))
        }
        EventKind::Flooded { limit } => directed(
            None,
            EventDirection::FromServer,
            format!("(more than {limit} bytes; the rest was not read)"),
        ),
        EventKind::Called { proc, function, arguments, .. } => {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            directed(
                Some(*proc),
                EventDirection::Call,
                text::clean(&format!("{function}({})", arguments.join(", "))),
            )
        }
        EventKind::NotStarted { proc, why } => of_proc(proc, text::clean(why)),
        EventKind::NotCalled { proc, why } => directed(Some(*proc), EventDirection::Call, text::clean(why)),
        EventKind::Returned { proc, function, returned } => directed(
            Some(*proc),
            EventDirection::Call,
            text::clean(&format!("{function} = {}", returned.shown(function))),
        ),
        EventKind::Loaded { proc, error: Some(why) } => {
            of_proc(proc, text::clean(&format!("cannot load the library: {why}")))
        }
        EventKind::Replayed { shown_by: Some(scenario), .. } => {
            of_job(format!("{} already showed interference between jobs", text::clean(scenario)))
        }
        EventKind::Replayed { other_jobs, played, failed, .. } => {
            let names = other_jobs.iter().map(|other| other.scenario.as_str()).collect::<Vec<_>>().join(", ");
            let company = if names.is_empty() {
                "without other jobs".to_owned()
            } else {
                format!("alongside {}", text::clean(&names))
            };
            of_job(format!("played again {company}: failed {failed} of {played} times"))
        }
        EventKind::StartsFewerRanks { ranks } => {
            let ranks = text::count(*ranks as usize, "rank");
            of_job(format!("the same command can start {ranks}"))
        }
        EventKind::JobExited { exit } => of_job(format!("launcher: {exit}")),
        EventKind::Crashed { name, signal } => {
            of_job(format!("{} killed by signal {signal}", text::clean(name)))
        }
        EventKind::Backtrace(trace) => {
            let calls: Vec<String> = trace.frames.iter().take(MAX_FRAMES).map(ToString::to_string).collect();
            let died = format!("{} died {}", trace.name, calls.join("; called "));
            of_job(text::clean(&died))
        }
        EventKind::Untraced { why } => of_job(format!("crash location unknown: {}", text::clean(why))),
    }
}
