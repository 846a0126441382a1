//! Events in words, for transcripts and sequence charts.

use super::text;
use pmi_judge::event::{Bytes, Ending, Event, Exit, SilenceProof, What};
use pmi_wire::Proc;

/// Maximum number of bytes of an event that are shown.
pub(super) const BYTES: usize = 120;

fn ended(exit: Option<Exit>) -> String {
    exit.map_or("it does not end".to_owned(), |exit| exit.to_string())
}

/// The direction of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// None: something happened to a process or the job.
    Stays,
    /// From a process to the server.
    ToServer,
    /// From the server to a process.
    FromServer,
    /// From a proxy to its upstream.
    ToUpstream,
    /// From the upstream to a proxy.
    FromUpstream,
    /// Between a program and the library in it.
    Call,
}

impl Way {
    /// Returns the sign for transcripts.
    pub(super) fn arrow(self) -> &'static str {
        match self {
            Self::Stays => "  ",
            Self::ToServer => "->",
            Self::FromServer => "<-",
            Self::ToUpstream => "=>",
            Self::FromUpstream => "<=",
            Self::Call => "()",
        }
    }
}

/// An event in words.
#[derive(Debug)]
pub(super) struct EventInWords<'a> {
    /// The process; `None` for the job as a whole.
    pub(super) proc: Option<Proc>,
    pub(super) way: Way,
    /// The description, with escaped bytes.
    pub(super) what: String,
    /// The bytes sent over a connection, as far as the event contains them.
    pub(super) bytes: Option<&'a [u8]>,
}

impl EventInWords<'_> {
    pub(super) fn rank(&self) -> String {
        self.proc.as_ref().map(Proc::to_string).unwrap_or_default()
    }
}

/// Maximum number of frames of the backtrace of a process that died.
const CALLS: usize = 6;

/// Describes an event. Returns `None` for output, which is shown apart from the transcript: the time at which it arrives says little about
/// when it was written.
pub(super) fn told<'a>(event: &'a Event, limit: usize) -> Option<EventInWords<'a>> {
    let told = |proc: Option<&Proc>, way, what: String| {
        Some(EventInWords { proc: proc.copied(), way, what, bytes: None })
    };
    let sent = |proc: Proc, way, bytes: &'a Bytes, more: &str| {
        let what = text::bytes(&bytes.0, limit, event.cut) + more;
        Some(EventInWords { proc: Some(proc), way, what, bytes: Some(&bytes.0) })
    };
    match &event.what {
        What::Launched { ranks, nodes, .. } => {
            // A recording knows the number only from the environment of a process.
            let of = |number: u32, prefix, noun| match number {
                0 => String::new(),
                _ => format!("{prefix}{}", text::count(number as usize, noun)),
            };
            let (ranks, on) = (of(*ranks, ": ", "rank"), of(*nodes, " on ", "node"));
            told(None, Way::Stays, format!("launched{ranks}{on}"))
        }
        What::Started { proc, bad_fd: Some(why), .. } => {
            told(Some(proc), Way::Stays, format!("started without a connection: {}", text::clean(why)))
        }
        What::Started { proc, bad_fd: None, .. } => told(Some(proc), Way::Stays, "started".to_owned()),
        What::Greeted { proc, said, told: answer } => {
            let (said, answer) = (text::bytes(&said.0, limit, 0), text::bytes(&answer.0, limit, 0));
            told(Some(proc), Way::Stays, format!("connected by PMI_PORT: {said} answered by {answer}"))
        }
        What::ManagerStarted { proc, args } => {
            let args: Vec<String> = args.iter().map(|arg| text::bytes(&arg.0, limit, 0)).collect();
            told(Some(proc), Way::Stays, format!("started a process manager: mpiexec {}", args.join(" ")))
        }
        What::Singinit { proc, asked, said, told: answer } => {
            let shown = |bytes: &Bytes| match bytes.0.is_empty() {
                true => "nothing".to_owned(),
                false => text::bytes(&bytes.0, limit, 0),
            };
            let [asked, said, answer] = [asked, said, answer].map(shown);
            told(
                Some(proc),
                Way::Stays,
                format!("singleton init: {asked} answered by {said}, and then {answer}"),
            )
        }
        What::ToServer { proc, bytes } => sent(*proc, Way::ToServer, bytes, ""),
        What::FromServer { proc, bytes } => sent(*proc, Way::FromServer, bytes, ""),
        What::ClosedByClient { proc } => told(Some(proc), Way::ToServer, "(closed)".to_owned()),
        What::ClosedByServer { proc } => told(Some(proc), Way::FromServer, "(closed)".to_owned()),
        What::Ended { proc, ours: true } => {
            told(Some(proc), Way::Stays, "ended as the scenario says".to_owned())
        }
        What::Ended { proc, ours: false } => {
            told(Some(proc), Way::Stays, "ended by the process manager".to_owned())
        }
        What::Exited { proc, exit } => told(Some(proc), Way::Stays, exit.to_string()),
        What::NoAnswer { proc, proof } => {
            let proof = match proof {
                SilenceProof::Idle => "(nothing: the server has read all and waits)",
                SilenceProof::Polled => "(nothing: the server has read all and looks around now and then)",
                SilenceProof::Unread => "(nothing: the server waits, and has not read all)",
                SilenceProof::Timeout => "(nothing: the time was up)",
            };
            told(Some(proc), Way::FromServer, proof.to_owned())
        }
        What::NotRead { proc } => {
            told(Some(proc), Way::Stays, "(not read: what it wrote is still in its socket)".to_owned())
        }
        What::FromProxy { proxy, text, held, .. } => {
            let held = if *held { "  (the scenario answers)" } else { "" };
            sent(Proc::proxy(*proxy), Way::ToUpstream, text, held)
        }
        What::ToProxy { proxy, text, .. } => sent(Proc::proxy(*proxy), Way::FromUpstream, text, ""),
        What::ClosedByUpstream { proxy } => {
            told(Some(&Proc::proxy(*proxy)), Way::FromUpstream, "(closed)".to_owned())
        }
        What::ProxyEnded { proxy, exit, .. } => {
            told(Some(&Proc::proxy(*proxy)), Way::Stays, format!("ended: {exit}"))
        }
        What::Output { .. }
        | What::Expected(_)
        | What::Nothing { .. }
        | What::Abandoned(_)
        | What::NotReached { .. }
        | What::LibraryFile { .. }
        | What::Loaded { error: None, .. }
        | What::PlainRun(_)
        | What::BrokenMemory { .. }
        | What::OutputCompared { .. } => None,
        What::Reached { proc } => {
            told(Some(proc), Way::Stays, format!("(line {} of the scenario)", event.line))
        }
        What::LeftUnread { proc } => {
            told(Some(proc), Way::Stays, "closes its connection without reading all".to_owned())
        }
        What::Aborted { by, reason } => {
            told(Some(by), Way::Stays, format!("makes the server end its group: {}", text::clean(reason)))
        }
        What::StillRunning { procs, .. } if procs.is_empty() => {
            told(None, Way::Stays, "still running, and ended now: the launcher".to_owned())
        }
        What::Outlived { procs } => {
            let procs: Vec<String> = procs.iter().map(Proc::to_string).collect();
            told(None, Way::Stays, format!("not recorded any more: rank {}", procs.join(", ")))
        }
        What::StillRunning { procs, proof } => {
            let procs: Vec<String> = procs.iter().map(Proc::to_string).collect();
            told(
                None,
                Way::Stays,
                format!("still running, and ended now ({proof}): rank {}", procs.join(", ")),
            )
        }
        What::JobStays { procs, names, .. } => {
            let ours = procs.iter().map(|p| format!("rank {p}"));
            let all: Vec<String> = ours.chain(names.iter().map(|name| text::clean(name))).collect();
            told(None, Way::Stays, format!("the job still runs, and is ended now: {}", all.join(", ")))
        }
        What::JobEnding(Ending::Asked { exit }) => {
            told(None, Way::Stays, format!("launcher, on SIGTERM: {}", ended(*exit)))
        }
        What::JobEnding(Ending::Cancelled { command, exit }) => {
            told(None, Way::Stays, format!("cancelled by {}: {}", text::clean(command), ended(*exit)))
        }
        What::JobEnding(Ending::Killed { names }) => {
            told(None, Way::Stays, format!("killed: {}", text::clean(&names.join(", "))))
        }
        What::LeftBehind { names } => {
            told(None, Way::Stays, format!("left behind: {}", text::clean(&names.join(", "))))
        }
        What::Flooded { limit } => {
            told(None, Way::FromServer, format!("(more than {limit} bytes: nothing more was read)"))
        }
        What::Called { proc, function, arguments, .. } => {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            told(Some(proc), Way::Call, text::clean(&format!("{function}({})", arguments.join(", "))))
        }
        What::NotStarted { proc, why } => told(Some(proc), Way::Stays, text::clean(why)),
        What::NotCalled { proc, why } => told(Some(proc), Way::Call, text::clean(why)),
        What::Returned { proc, function, returned } => {
            told(Some(proc), Way::Call, text::clean(&format!("{function} = {}", returned.shown(function))))
        }
        What::Loaded { proc, error: Some(why) } => {
            told(Some(proc), Way::Stays, text::clean(&format!("cannot load the library: {why}")))
        }
        What::PlayedAgain { shown_by: Some(scenario), .. } => {
            told(None, Way::Stays, format!("interference was shown by {}", text::clean(scenario)))
        }
        What::PlayedAgain { beside, played, failed, .. } => {
            let names = beside.iter().map(|other| other.scenario.as_str()).collect::<Vec<_>>().join(", ");
            let beside = if names.is_empty() {
                "without its other jobs".to_owned()
            } else {
                format!("beside {}", text::clean(&names))
            };
            told(None, Way::Stays, format!("played again {beside}: failed in {failed} of {played}"))
        }
        What::StartsFewer { ranks } => {
            let ranks = text::count(*ranks as usize, "rank");
            told(None, Way::Stays, format!("the same command started {ranks}"))
        }
        What::JobExited { exit } => told(None, Way::Stays, format!("launcher: {exit}")),
        What::Crashed { name, signal } => {
            told(None, Way::Stays, format!("{} killed by signal {signal}", text::clean(name)))
        }
        What::Backtrace(trace) => {
            let calls: Vec<String> = trace.frames.iter().take(CALLS).map(ToString::to_string).collect();
            let died = format!("{} died {}", trace.name, calls.join("; called "));
            told(None, Way::Stays, text::clean(&died).to_string())
        }
        What::Untraced { why } => {
            told(None, Way::Stays, format!("where it died is not known: {}", text::clean(why)))
        }
    }
}
