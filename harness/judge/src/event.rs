//! Events: the stream of observations that every mode records and the judge reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pmi_wire::{Direction, Proc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::backtrace::Backtrace;
pub use crate::bytes::Bytes;
use crate::expectation::Expectation;
use crate::library::api::{CallArgument, CallResult};
use crate::observation::NO_PROOF_SUFFIX;

/// The way in which a process or job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The process exited with this status.
    Code(i32),
    /// The process was killed by this signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// The evidence that no response will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SilenceProof {
    /// The server has read everything, and all of its processes wait without a time limit.
    Idle,
    /// The server has read everything. Since then, all of its processes have waited several times with a time limit, without sending
    /// anything. This proof is sufficient where silence is allowed.
    Polled,
    /// All processes of the server wait without a time limit, but they have not read everything that was written to them.
    Unread,
    /// The step timed out.
    Timeout,
}

/// An event with its time and origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Number of the event. The events of a scenario are numbered consecutively from 0.
    pub seq: u64,
    /// Microseconds since the scenario began, on a monotonic clock. Verdicts never depend on this time.
    pub time_us: u64,
    /// Line of the scenario that was being played; 0 if no line was being played.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: usize,
    /// Number of bytes that were cut from the end of the event's message.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// The kind of the event, with its data.
    #[serde(rename = "what")]
    pub kind: EventKind,
}

fn is_zero(line: &usize) -> bool {
    *line == 0
}

impl Event {
    /// Creates an event with this number. Its time is 0, and it belongs to no line of a scenario.
    pub fn new(seq: u64, kind: EventKind) -> Self {
        Self { seq, time_us: 0, line: 0, cut: 0, kind }
    }

    /// Truncates the event's message to its first `most` bytes. Returns the number of bytes kept.
    pub fn cut_to(&mut self, most: usize) -> usize {
        let Some(bytes) = self.kind.bytes_mut() else { return 0 };
        self.cut += bytes.len().saturating_sub(most);
        bytes.truncate(most);
        bytes.shrink_to_fit();
        bytes.len()
    }
}

/// The reason why a scenario ended early, if the implementation did not cause it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Abandoned")]
pub enum AbandonReason {
    /// The user interrupted the run.
    Interrupted,
    /// A mistake in the scenario that is detected only when the scenario is played.
    Mistake(String),
    /// The scenario cannot be played against the implementation under test.
    Unplayable(String),
    /// A value that the implementation sent cannot be used.
    Unusable(String),
    /// The scenario depends on the nodes of the processes, and the process manager has placed them differently.
    Misplaced(String),
}

/// Environment variables that identify the node of a process. Several nodes can share a host, so a host name is not enough.
pub const NODE_VARIABLES: [&str; 2] = ["SLURMD_NODENAME", "FLUX_URI"];

/// The variable in which Hydra passes the number of the group's processes on the node.
pub const LOCAL_SIZE_VARIABLE: &str = "MPI_LOCALNRANKS";

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "What")]
pub enum EventKind {
    /// The implementation was started, with a request for a process group of this size.
    Launched {
        /// The command that was run; empty if the reference was tested in memory.
        command: Vec<String>,
        /// The number of requested ranks.
        ranks: u32,
        /// The number of requested nodes; 0 if unknown.
        nodes: u32,
    },
    /// A process of the group reported to the runner.
    Started {
        /// The process that reported.
        proc: Proc,
        /// The process's `PMI_*` environment, and the variables that describe its node.
        env: BTreeMap<String, String>,
        /// The arguments of the process.
        args: Vec<Bytes>,
        /// The problem with the descriptor in PMI_FD, or with the connection through PMI_PORT, if any.
        bad_fd: Option<String>,
    },
    /// The program of a process in a recorded session could not be started.
    NotStarted {
        /// The process whose program could not be started.
        proc: Proc,
        /// The cause, with the name of the program.
        why: String,
    },
    /// A process with `PMI_PORT` has connected and, before any other message, introduced itself.
    Greeted {
        /// The process that has connected.
        proc: Proc,
        /// The initack that the process sent.
        #[serde(rename = "said")]
        initack: Bytes,
        /// The server's response.
        #[serde(rename = "told")]
        response: Bytes,
    },
    /// A process has started a process manager for itself.
    ManagerStarted {
        /// The process that has started the process manager.
        proc: Proc,
        /// The arguments that the process passed, without the name of the program.
        args: Vec<Bytes>,
    },
    /// A process that was started without a process manager has requested one (singleton init). Contains the first messages on the
    /// connection that the process manager opens to the process.
    Singinit {
        /// The process that has requested a process manager.
        proc: Proc,
        /// The process manager's first message; empty if it sent no message or did not connect.
        #[serde(rename = "asked")]
        request: Bytes,
        /// The process's answer.
        #[serde(rename = "said")]
        answer: Bytes,
        /// The process manager's reply to the process's answer.
        #[serde(rename = "told")]
        reply: Bytes,
    },
    /// Bytes that the client wrote to the server.
    ToServer {
        /// The client that wrote the bytes.
        proc: Proc,
        /// The written bytes.
        bytes: Bytes,
    },
    /// Bytes that the client read from the server.
    FromServer {
        /// The client to which the bytes were sent.
        proc: Proc,
        /// The received bytes.
        bytes: Bytes,
    },
    /// The client closed its connection.
    ClosedByClient {
        /// The client that closed its connection.
        proc: Proc,
    },
    /// The server closed the connection.
    ClosedByServer {
        /// The client whose connection was closed.
        proc: Proc,
    },
    /// A process was terminated by the harness (in an `exit` or `kill` step) or by the process manager.
    Ended {
        /// The terminated process.
        proc: Proc,
        /// True if the harness terminated the process; false if the process manager did.
        ours: bool,
    },
    /// A process of a program or library under test, or of a recorded session, has ended for any reason.
    Exited {
        /// The process that has ended.
        proc: Proc,
        /// The exit status or signal.
        exit: Exit,
    },
    /// The runner waited for a response that did not come.
    #[serde(rename = "no_answer")]
    NoResponse {
        /// The client that waits for the response.
        proc: Proc,
        /// The evidence that the response will not come.
        proof: SilenceProof,
    },
    /// The server has not read everything that this process wrote. This event is reported immediately before the event about the resulting
    /// silence.
    NotRead {
        /// The process that wrote the bytes.
        proc: Proc,
    },
    /// A proxy sent a request to its upstream, whose role the harness plays.
    FromProxy {
        /// The process group of the request.
        group: u32,
        /// The proxy: the number of its node within the group.
        proxy: u32,
        /// Number of the request, counted across all proxies of the launch.
        id: u64,
        /// The request without its terminator, in a form that does not depend on the version of Hydra's protocol.
        text: Bytes,
        /// True if the request waits until the scenario answers it.
        held: bool,
    },
    /// The upstream sent a proxy a response or a notification.
    ToProxy {
        /// The process group of the message.
        group: u32,
        /// The proxy: the number of its node within the group.
        proxy: u32,
        /// Number of the request that the message answers, if it is a response.
        answers: Option<u64>,
        /// The text of the message.
        text: Bytes,
        /// True if the message comes from the scenario, and not from a correct upstream.
        scripted: bool,
    },
    /// The upstream closed its connection to a proxy, as the scenario requires.
    ClosedByUpstream {
        /// The proxy, in the first group.
        proxy: u32,
    },
    /// A proxy's process has ended.
    ProxyEnded {
        /// The process group for which the proxy was started.
        group: u32,
        /// The proxy: the number of its node within the group.
        proxy: u32,
        /// The exit status or signal.
        exit: Exit,
    },
    /// A line that the implementation wrote.
    Output {
        /// The process that wrote the line, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proc: Option<Proc>,
        /// True if the line was written to stderr.
        stderr: bool,
        /// The line without its newline; long lines are cut.
        line: Bytes,
    },
    /// The launcher failed to start the processes. It was able to start fewer processes or, without the words that the scenario adds to its
    /// command, all processes.
    #[serde(rename = "starts_fewer")]
    StartsFewerRanks {
        /// The number of ranks that the launcher was able to start.
        ranks: u32,
    },
    /// A scenario that had failed while other jobs were running was played again.
    #[serde(rename = "played_again")]
    Replayed {
        /// The other jobs of the implementation that ran at the same time; empty if the scenario was played alone or under unrelated load.
        #[serde(rename = "beside")]
        other_jobs: Vec<OtherJob>,
        /// Number of times that the scenario was played again.
        played: u32,
        /// Number of times that the scenario failed again.
        failed: u32,
        /// The scenario that showed interference between jobs earlier in this run, if any. If there is one, the other jobs are not started
        /// again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shown_by: Option<String>,
    },
    /// The launcher has ended.
    JobExited {
        /// The exit status or signal.
        exit: Exit,
    },
    /// The names and the exported PMI functions of the library under test, read from its file.
    LibraryFile {
        /// Name of the file.
        name: String,
        /// The soname of the library. Programs linked with the library search for this name.
        soname: Option<String>,
        /// The PMI functions that the library exports.
        functions: Vec<String>,
    },
    /// A process has loaded the library under test, or has failed to load it.
    Loaded {
        /// The process that has loaded the library, or has failed to.
        proc: Proc,
        /// The error, if loading failed.
        error: Option<String>,
    },
    /// The harness called a function of the library under test.
    Called {
        /// The process that made the call.
        proc: Proc,
        /// The name of the function.
        function: String,
        /// The arguments of the call.
        arguments: Vec<CallArgument>,
        /// True if requests that the library makes during the call wait until the scenario expects them.
        held: bool,
    },
    /// The library lacks the function that the scenario calls.
    NotCalled {
        /// The process that should have made the call.
        proc: Proc,
        /// The reason why the call was not made.
        why: String,
    },
    /// A call to a library function has returned.
    Returned {
        /// The process that made the call.
        proc: Proc,
        /// The name of the function.
        function: String,
        /// The result of the call.
        returned: CallResult,
    },
    /// The next expectation of the scenario.
    Expected(Box<Expectation>),
    /// The runner stopped waiting for the last expectation because it received no message.
    #[serde(rename = "nothing")]
    Silence {
        /// The evidence that no message will come.
        proof: SilenceProof,
        /// The maximum waiting time, in milliseconds. With other evidence than a timeout, the runner waits for a shorter time.
        waited_ms: u64,
    },
    /// The implementation sent more bytes than any request can need, so the runner stopped reading.
    Flooded {
        /// The maximum number of bytes that the runner reads.
        limit: u64,
    },
    /// The scenario ended early.
    Abandoned(AbandonReason),
    /// Statements that were not played, because the scenario ended before them.
    #[serde(rename = "not_reached")]
    StatementsSkipped {
        /// The line of each statement.
        lines: Vec<usize>,
    },
    /// A process of the implementation was killed by a signal.
    Crashed {
        /// The command name of the process.
        name: String,
        /// The number of the signal.
        signal: i32,
    },
    /// A debugger's view of a process that was killed by a signal. Crashes are analyzed only on request, because the analysis takes time.
    /// The whole scenario is then played once more, and the backtrace is from that second run.
    Backtrace(Box<Backtrace>),
    /// The analysis of a crash failed, because no debugger could examine the process.
    Untraced {
        /// The reason why no debugger could examine the process.
        why: String,
    },
    /// The result of the plain run, in which the server does nothing unusual. The program's other runs are compared with this run.
    PlainRun(PlainRun),
    /// A program's process has reached, for the first time, the situation that this line of the scenario describes.
    #[serde(rename = "reached")]
    SituationReached {
        /// The process that has reached the situation.
        proc: Proc,
    },
    /// The server aborts a process group.
    Aborted {
        /// The process that caused the abort.
        by: Proc,
        /// The reason for the abort.
        reason: String,
    },
    /// A program's process closed its connection, or ended, before it had read everything that the server sent.
    LeftUnread {
        /// The process that left bytes unread.
        proc: Proc,
    },
    /// These processes of a program, or of a recorded session that has timed out, do not exit on their own. The runner now terminates them.
    StillRunning {
        /// All processes that have not ended.
        procs: Vec<Proc>,
        /// The evidence that the processes will not end.
        proof: HangProof,
    },
    /// These processes of a recorded session outlived their launcher. They are no longer recorded.
    #[serde(rename = "outlived")]
    OutlivedLauncher {
        /// All processes that are still running.
        procs: Vec<Proc>,
    },
    /// The C library of a program's process reported corrupted memory.
    BrokenMemory {
        /// The process whose memory is corrupted.
        proc: Proc,
        /// The message of the C library.
        text: String,
    },
    /// The standard output of a program's process was compared with its output in the plain run.
    OutputCompared {
        /// The process whose output was compared.
        proc: Proc,
        /// The first difference; `None` if the outputs are equal.
        difference: Option<Difference>,
    },
    /// The job keeps running, although each of its processes has ended or was asked to exit. The runner now terminates the job.
    #[serde(rename = "job_stays")]
    JobKeepsRunning {
        /// The evidence that the job will not end.
        proof: SilenceProof,
        /// The longest time that the runner waited, in milliseconds.
        waited_ms: u64,
        /// Processes whose agents have not exited, although the runner asked them to exit.
        procs: Vec<Proc>,
        /// Command names of the implementation's processes that are still running, if they are descendants of the runner.
        names: Vec<String>,
    },
    /// An action by which the runner terminates the job, and the result of the action.
    JobEnding(JobTermination),
    /// Processes that a rank of a program had started outlived that rank. They had left the rank's operating-system process group, so they
    /// survived when that group was killed.
    #[serde(rename = "left_behind")]
    LeftoverProcesses {
        /// The command names of the processes.
        names: Vec<String>,
    },
}

impl EventKind {
    /// Returns the client, the direction and the bytes, if the event reports bytes on a client's connection.
    pub fn message_bytes(&self) -> Option<(Proc, Direction, &[u8])> {
        match self {
            Self::ToServer { proc, bytes } => Some((*proc, Direction::ToServer, &bytes.0)),
            Self::FromServer { proc, bytes } => Some((*proc, Direction::FromServer, &bytes.0)),
            _ => None,
        }
    }

    /// Returns the bytes of the event's message; `None` if the event has no message.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::FromServer { bytes, .. }
            | Self::ToServer { bytes, .. }
            | Self::FromProxy { text: bytes, .. }
            | Self::ToProxy { text: bytes, .. } => Some(&bytes.0),
            _ => None,
        }
    }

    /// Returns a mutable reference to the bytes that [`EventKind::bytes`] returns.
    pub fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::FromServer { bytes, .. }
            | Self::ToServer { bytes, .. }
            | Self::FromProxy { text: bytes, .. }
            | Self::ToProxy { text: bytes, .. } => Some(&mut bytes.0),
            _ => None,
        }
    }
}

/// A job that ran at the same time as the job of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherJob {
    /// Name of the job's scenario.
    pub scenario: String,
    /// The last events of the job.
    pub events: Vec<Event>,
}

/// An action by which the runner terminates a job that does not exit on its own. The runner takes the actions in the
/// order of the variants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Ending")]
pub enum JobTermination {
    /// The runner sent SIGTERM to the launcher.
    #[serde(rename = "asked")]
    Terminated {
        /// The exit of the launcher; `None` if it did not end in time.
        exit: Option<Exit>,
    },
    /// The runner ran the profile's command for cancelling a job.
    Cancelled {
        /// The command that cancels the job.
        command: String,
        /// The exit of the command; `None` if it did not end in time.
        exit: Option<Exit>,
    },
    /// The runner killed the remaining processes of the launcher.
    Killed {
        /// The command names of the processes.
        names: Vec<String>,
    },
}

/// A requirement that a program breaks even in a plain run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flaw {
    /// The id of the requirement.
    pub requirement: String,
    /// The expected behaviour that the finding states.
    pub expected: String,
}

/// The result of a plain run of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlainRun {
    /// All processes of the program ended with status 0.
    #[serde(rename = "ended_well")]
    Succeeded,
    /// All processes of the program ended with status 0, but the program has these flaws. The flaws are reported only in scenarios in which
    /// the server does nothing unusual.
    Flawed(Vec<Flaw>),
    /// A process did not end with status 0.
    #[serde(rename = "ended_badly")]
    ProcessFailed(ProcessEnd),
    /// No process wrote to its connection. Contains the way in which the first process ended.
    Silent(Option<ProcessEnd>),
    /// The program could not be run.
    Failed(String),
}

impl PlainRun {
    /// Returns whether other runs can be compared with this plain run.
    pub fn is_comparable(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Flawed(_))
    }
}

/// A process of a program, and the way in which the process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEnd {
    /// The process of the program.
    pub proc: Proc,
    /// The way in which the process ended, if it ended.
    #[serde(rename = "how")]
    pub kind: ProcessExitKind,
}

/// The way in which a process of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "End")]
pub enum ProcessExitKind {
    /// The process exited on its own.
    #[serde(rename = "itself")]
    Exited(Exit),
    /// The server terminated the process, because the process group was aborted.
    #[serde(rename = "group")]
    GroupAborted,
    /// The harness killed the process, as the scenario required.
    Killed,
    /// The process did not end. Contains the proof; `None` if the process was waiting for another process.
    Never(Option<HangProof>),
    /// The end is unknown, because the runner did not wait for the process.
    Unknown,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ", self.proc)?;
        match self.kind {
            ProcessExitKind::Exited(exit) => write!(f, "ended with {exit}"),
            ProcessExitKind::GroupAborted => f.write_str("was killed because its program aborted"),
            ProcessExitKind::Killed => f.write_str("was killed"),
            ProcessExitKind::Never(Some(proof)) => write!(f, "did not end: {proof}"),
            ProcessExitKind::Never(None) => f.write_str("did not end: waiting for another process"),
            ProcessExitKind::Unknown => f.write_str("was not waited for"),
        }
    }
}

/// The evidence that a process does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HangProof {
    /// All processes of the program wait without a time limit, and no message is in transit to them.
    Idle,
    /// No process has shown any activity for this number of seconds.
    Quiet(u64),
    /// For this number of seconds, the processes have done nothing but write output.
    Prints(u64),
    /// The processes keep running far beyond the time limit.
    Endless,
}

impl fmt::Display for HangProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("waiting, with no message pending"),
            Self::Quiet(seconds) => {
                write!(f, "nothing sent or printed for {seconds} s{NO_PROOF_SUFFIX}")
            }
            Self::Prints(seconds) => {
                write!(f, "nothing but output for {seconds} s{NO_PROOF_SUFFIX}")
            }
            Self::Endless => write!(f, "still running far beyond the time limit{NO_PROOF_SUFFIX}"),
        }
    }
}

/// A difference between the outputs of a plain run and of a different run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The first line that differs. Long lines are cut.
    Line {
        /// The line of the plain run.
        plain: Bytes,
        /// The line of the other run.
        seen: Bytes,
    },
    /// The shorter output is a prefix of the longer output.
    Length {
        /// The length of the plain run's output, in bytes.
        plain: usize,
        /// The length of the other run's output, in bytes.
        seen: usize,
    },
}

/// The values that a process received, each with the name of its field.
pub type ReceivedValues = BTreeSet<(Vec<u8>, Vec<u8>)>;

/// The name of the field for the universe size, which a server need not send.
const UNIVERSE_SIZE: &[u8] = b"size";

/// Returns whether two lines differ only in received values that they print. A process that received no universe size
/// may print anything in place of the size.
fn differs_in_received_value(plain: (&[u8], &ReceivedValues), seen: (&[u8], &ReceivedValues)) -> bool {
    plain.1.iter().filter(|(_, usual)| !usual.is_empty()).any(|(name, usual)| {
        let mut now = seen.1.iter().filter(|(other, _)| other == name).peekable();
        let is_omitted = name == UNIVERSE_SIZE && now.peek().is_none();
        let now: Vec<&[u8]> =
            now.filter(|pair| !plain.1.contains(*pair)).map(|(_, value)| &value[..]).collect();
        memchr::memmem::find_iter(plain.0, usual).any(|at| {
            let (before, after) = (&plain.0[..at], &plain.0[at + usual.len()..]);
            let rest = seen.0.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            rest.is_some_and(|rest| is_omitted || now.contains(&rest))
        })
    })
}

impl Difference {
    /// Compares two outputs of a process, which received different values in the two runs. Returns the first difference, if any. Lines that
    /// differ only in received values count as equal.
    pub fn between(plain: (&[u8], &ReceivedValues), seen: (&[u8], &ReceivedValues)) -> Option<Self> {
        let [left, right] = [plain.0, seen.0].map(|text| text.split(|b| *b == b'\n').collect::<Vec<_>>());
        let cut = |line: &[u8]| Bytes(line[..line.len().min(200)].to_vec());
        let differs =
            |(a, b): &(&&[u8], &&[u8])| a != b && !differs_in_received_value((a, plain.1), (b, seen.1));
        match left.iter().zip(&right).find(differs) {
            Some((a, b)) => Some(Self::Line { plain: cut(a), seen: cut(b) }),
            None if left.len() == right.len() => None,
            None => Some(Self::Length { plain: plain.0.len(), seen: seen.0.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(values: &[(&str, &str)]) -> ReceivedValues {
        values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    /// Lines that differ only in a mapping or universe size that the program received do not count as a difference. All other differences
    /// count.
    #[rstest::rstest]
    #[case::prints_received_values("mapping (vector,[0]x2)\nuniverse -1\nsum 3\n", false)]
    #[case::cut("mapping (vector,[0]x\nuniverse -1\nsum 3\n", true)]
    #[case::another_line("mapping (vector,[0]x2)\nuniverse -1\nsum 4\n", true)]
    #[case::value_of_another_field("mapping -1\nuniverse 2\nsum 3\n", true)]
    #[case::one_line_less("mapping (vector,[0]x2)\nuniverse -1\n", true)]
    fn output_may_differ_only_in_received_values(#[case] seen: &str, #[case] differs: bool) {
        let plain = "mapping (vector,(0,1,2))\nuniverse 2\nsum 3\n";
        // A line may differ only in received values. A value of the plain run may be replaced only by a value that the
        // process received in this run. A process that received no universe size may print anything in place of the
        // size.
        let no_size = received(&[("rc", "-1")]);
        let (before, after) = (&b"mapping x\nuniverse 2"[..], &b"mapping x\nuniverse unknown"[..]);
        let usual = received(&[("value", "x"), ("size", "2"), ("rc", "0")]);
        assert_eq!(Difference::between((before, &usual), (after, &no_size)), None);
        assert!(Difference::between((before, &usual), (&b"mapping y\nuniverse 2"[..], &no_size)).is_some());
        let usual = received(&[("value", "(vector,(0,1,2))"), ("size", "2"), ("rc", "0")]);
        let now = received(&[("value", "(vector,[0]x2)"), ("size", "-1"), ("rc", "0")]);
        let difference = Difference::between((plain.as_bytes(), &usual), (seen.as_bytes(), &now));
        assert_eq!(difference.is_some(), differs, "{difference:?}");
    }
}
