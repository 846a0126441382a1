//! What happened: the one stream of facts that every mode makes and the judge reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pmi_wire::{Direction, Proc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::backtrace::Backtrace;
pub use crate::bytes::Bytes;
use crate::expectation::Expectation;
use crate::library::api::{Argument, Returned};
use crate::seen::NO_PROOF;

/// How a process or job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Exit status.
    Code(i32),
    /// Died of this signal.
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

/// Why it is said that no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SilenceProof {
    /// The server has read everything and every process of it waits without a time limit.
    Idle,
    /// The server has read everything, and since then every process of it has waited for some time, several times, and said
    /// nothing. Enough where silence is lawful.
    Polled,
    /// Every process of the server waits without a time limit, and bytes that were written to it are still unread.
    Unread,
    /// The step's time was up.
    Timeout,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// From 0, without gaps within a scenario.
    pub seq: u64,
    /// Microseconds since the scenario began, by a monotonic clock. Never judged.
    pub time_us: u64,
    /// Line of the scenario that was being played, 0 if none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: usize,
    /// Number of bytes that are left out at the end of its message.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: usize,
    /// What happened.
    pub what: What,
}

fn is_zero(line: &usize) -> bool {
    *line == 0
}

impl Event {
    /// An event with this number, at time 0 and in no line of a scenario.
    pub fn new(seq: u64, what: What) -> Self {
        Self { seq, time_us: 0, line: 0, cut: 0, what }
    }

    /// Leaves out the bytes of its message after the first `most`. Returns how many it keeps.
    pub fn cut_to(&mut self, most: usize) -> usize {
        let Some(bytes) = self.what.bytes_mut() else { return 0 };
        self.cut += bytes.len().saturating_sub(most);
        bytes.truncate(most);
        bytes.shrink_to_fit();
        bytes.len()
    }
}

/// Why a scenario was not played to its end, by no doing of the implementation's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Abandoned {
    /// The user wants the run to end.
    Interrupted,
    /// A mistake in the scenario that only shows when it is played.
    Mistake(String),
    /// It cannot be played against what is under test.
    Unplayable(String),
    /// What the implementation has told cannot be used.
    Unusable(String),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The implementation was started and asked for a process group of this shape.
    Launched {
        /// The command, as run; empty in memory.
        command: Vec<String>,
        /// Ranks asked for.
        ranks: u32,
        /// Nodes asked for; 0 if that is not known.
        nodes: u32,
    },
    /// A process of the group reported to the runner.
    Started {
        /// Which.
        proc: Proc,
        /// Its `PMI_*` environment.
        env: BTreeMap<String, String>,
        /// Its arguments.
        args: Vec<Bytes>,
        /// What is wrong with the descriptor that PMI_FD names, if anything; or with the connection by PMI_PORT.
        bad_fd: Option<String>,
    },
    /// The program of a process of a recorded session could not be started.
    NotStarted {
        /// Which.
        proc: Proc,
        /// Why, with the name of the program.
        why: String,
    },
    /// A process that has `PMI_PORT` has made its connection, on which this was said before anything else.
    Greeted {
        /// Which.
        proc: Proc,
        /// Its initack.
        said: Bytes,
        /// What it was answered.
        told: Bytes,
    },
    /// A process has started a process manager for itself.
    ManagerStarted {
        /// Which.
        proc: Proc,
        /// The arguments that it gave, without the program.
        args: Vec<Bytes>,
    },
    /// A process that nobody has started by a process manager has asked for one, and this was said on the connection that was
    /// made to it, before anything else.
    Singinit {
        /// Which.
        proc: Proc,
        /// What the process manager said first; empty if it said nothing or made no connection.
        asked: Bytes,
        /// What the process answered.
        said: Bytes,
        /// What it was told then.
        told: Bytes,
    },
    /// Bytes from the client to the server, as written.
    ToServer {
        /// By whom.
        proc: Proc,
        /// What.
        bytes: Bytes,
    },
    /// Bytes from the server to the client, as read.
    FromServer {
        /// To whom.
        proc: Proc,
        /// What.
        bytes: Bytes,
    },
    /// The client closed its connection.
    ClosedByClient {
        /// Whose.
        proc: Proc,
    },
    /// The server closed the connection.
    ClosedByServer {
        /// Whose.
        proc: Proc,
    },
    /// The process is gone: of its own (`exit`, `kill` steps) or ended by the process manager.
    Ended {
        /// Which.
        proc: Proc,
        /// Whether we ended it.
        ours: bool,
    },
    /// A process under test, or of a recorded session, has ended: by its own doing or another's.
    Exited {
        /// Which.
        proc: Proc,
        /// How.
        exit: Exit,
    },
    /// An answer was waited for and did not come.
    NoAnswer {
        /// To whom.
        proc: Proc,
        /// How that is known.
        proof: SilenceProof,
    },
    /// The server has not read everything that this process wrote. Reported with a wait in which nothing came.
    NotRead {
        /// The process that wrote it.
        proc: Proc,
    },
    /// A proxy passed something on to its upstream, which we play.
    FromProxy {
        /// Process group that it is about.
        group: u32,
        /// Which of the group's proxies: its node.
        proxy: u32,
        /// Number of the request, over all proxies of the launch.
        id: u64,
        /// The request, alike for all generations of the protocol, without its end.
        text: Bytes,
        /// It waits for the scenario to answer it.
        held: bool,
    },
    /// The upstream answered a proxy, or told it something.
    ToProxy {
        /// Process group that it is about.
        group: u32,
        /// Which of the group's proxies.
        proxy: u32,
        /// Number of the request that it answers.
        answers: Option<u64>,
        /// The text.
        text: Bytes,
        /// The scenario's words, rather than what a proper upstream says.
        scripted: bool,
    },
    /// The upstream closed its connection to a proxy, as the scenario says.
    ClosedByUpstream {
        /// Which of the first group's proxies.
        proxy: u32,
    },
    /// A proxy's process has ended.
    ProxyEnded {
        /// Process group that it was started for.
        group: u32,
        /// Which of the group's proxies.
        proxy: u32,
        /// How.
        exit: Exit,
    },
    /// A line that the implementation wrote.
    Output {
        /// By which process, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proc: Option<Proc>,
        /// `true` for stderr.
        stderr: bool,
        /// The line without its newline, cut if long.
        line: Bytes,
    },
    /// After the launcher had failed to start the processes, the same command started this smaller number of them.
    StartsFewer {
        /// Ranks asked for.
        ranks: u32,
    },
    /// A scenario that had failed beside others was played again.
    PlayedAgain {
        /// The other jobs of the implementation that ran at the same time; none if it was played alone or beside other load.
        beside: Vec<OtherJob>,
        /// Number of plays.
        played: u32,
        /// Number of plays that failed.
        failed: u32,
        /// The scenario that has shown interference between jobs before in the same run; other jobs were not started again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shown_by: Option<String>,
    },
    /// The launcher has ended.
    JobExited {
        /// How.
        exit: Exit,
    },
    /// What the file of the library under test shows.
    LibraryFile {
        /// Its name.
        name: String,
        /// The name that programs which were linked with it look for.
        soname: Option<String>,
        /// The functions PMI_* that it exports.
        functions: Vec<String>,
    },
    /// A process has loaded the library under test, or could not.
    Loaded {
        /// Which.
        proc: Proc,
        /// Why it could not.
        error: Option<String>,
    },
    /// We called a function of the library under test.
    Called {
        /// In which process.
        proc: Proc,
        /// The function.
        function: String,
        /// Its arguments.
        arguments: Vec<Argument>,
        /// What the library asks within the call waits for the scenario to expect it.
        held: bool,
    },
    /// The library does not have the function that we called.
    NotCalled {
        /// In which process.
        proc: Proc,
        /// In words.
        why: String,
    },
    /// The call has returned.
    Returned {
        /// In which process.
        proc: Proc,
        /// The function.
        function: String,
        /// What came of it.
        returned: Returned,
    },
    /// The scenario expects this of the implementation next.
    Expected(Box<Expectation>),
    /// Nothing came of what was expected last.
    Nothing {
        /// How that is known.
        proof: SilenceProof,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
    /// More bytes have come than anything asked for can need; nothing more is read.
    Flooded {
        /// The most that is read.
        limit: u64,
    },
    /// The scenario is not played to its end.
    Abandoned(Abandoned),
    /// What stands in the scenario behind the place where playing ended.
    NotReached {
        /// The line of each statement.
        lines: Vec<usize>,
    },
    /// A process of the implementation died of a signal.
    Crashed {
        /// Its command name.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// What a debugger saw of a process that died of a signal. Looking takes time, so that it is done only where a crash is looked
    /// into: then all of the scenario was played once more, and this is of that play.
    Backtrace(Box<Backtrace>),
    /// A crash was looked into, and no debugger may see the process.
    Untraced {
        /// Why.
        why: String,
    },
    /// The program was run where nothing is unusual, since that is what it is measured by.
    PlainRun(PlainRun),
    /// A program's process has come, for the first time, to what this line of the scenario has for it.
    Reached {
        /// Which.
        proc: Proc,
    },
    /// The server ends a process group.
    Aborted {
        /// Who brought it about.
        by: Proc,
        /// Why.
        reason: String,
    },
    /// A program's process closed its connection, or ended, before it had read everything that the server wrote.
    LeftUnread {
        /// Which.
        proc: Proc,
    },
    /// These processes of a program, or of a recorded session whose time is up, do not end, so that they are ended now.
    StillRunning {
        /// All that have not ended.
        procs: Vec<Proc>,
        /// How that is known.
        proof: HangProof,
    },
    /// These processes of a recorded session go on although their launcher has ended, and are not recorded any more.
    Outlived {
        /// All that go on.
        procs: Vec<Proc>,
    },
    /// The C library said in a process of a program that memory is broken.
    BrokenMemory {
        /// In which.
        proc: Proc,
        /// What it said.
        text: String,
    },
    /// The standard output of a program's process was compared with that of a plain run.
    OutputCompared {
        /// Whose.
        proc: Proc,
        /// What differs; `None` if it is the same.
        difference: Option<Difference>,
    },
    /// The job has not ended although each of its processes had, or had been told to; it is ended now.
    JobStays {
        /// How it is known that it will not end.
        proof: SilenceProof,
        /// How long it was waited for at most, in milliseconds.
        waited_ms: u64,
        /// Processes of ours that had been told to exit and have not ended.
        procs: Vec<Proc>,
        /// Command names of the implementation's processes that still run, as far as they are descendants of ours.
        names: Vec<String>,
    },
    /// What was done to end the job, and what came of it.
    JobEnding(Ending),
    /// Processes are left of ranks of a program that have ended by themselves: they are of no rank's process group, with
    /// which they would have been ended.
    LeftBehind {
        /// Their command names.
        names: Vec<String>,
    },
}

impl What {
    /// The bytes that a client or the server of a process wrote, if it is that.
    pub fn said(&self) -> Option<(Proc, Direction, &[u8])> {
        match self {
            Self::ToServer { proc, bytes } => Some((*proc, Direction::ToServer, &bytes.0)),
            Self::FromServer { proc, bytes } => Some((*proc, Direction::FromServer, &bytes.0)),
            _ => None,
        }
    }

    /// What was written or read, if it is that.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::FromServer { bytes, .. }
            | Self::ToServer { bytes, .. }
            | Self::FromProxy { text: bytes, .. }
            | Self::ToProxy { text: bytes, .. } => Some(&bytes.0),
            _ => None,
        }
    }

    /// See [`What::bytes`].
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

/// A job that ran at the same time as another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OtherJob {
    /// Name of its scenario.
    pub scenario: String,
    /// Its last events.
    pub events: Vec<Event>,
}

/// What is done, in this order, to end a job that does not end by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The launcher was told to end, by SIGTERM.
    Asked {
        /// How it ended; `None` if it did not within the time that it got.
        exit: Option<Exit>,
    },
    /// The command was run that the profile has for this.
    Cancelled {
        /// The command.
        command: String,
        /// How the command ended; `None` if it did not within the time that it got.
        exit: Option<Exit>,
    },
    /// What was left of the launcher's processes was killed.
    Killed {
        /// Their command names.
        names: Vec<String>,
    },
}

/// A requirement that a program breaks also where nothing is unusual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flaw {
    /// The id of the requirement.
    pub requirement: String,
    /// The expectation of the finding.
    pub expected: String,
}

/// What a program came to where nothing is unusual.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlainRun {
    /// All of its processes ended with status 0.
    EndedWell,
    /// All of its processes ended with status 0, with these flaws. The scenarios where nothing is unusual report them, no other does.
    Flawed(Vec<Flaw>),
    /// A process did not.
    EndedBadly(ProcessEnd),
    /// No process wrote anything to its connection; what became of the first.
    Silent(Option<ProcessEnd>),
    /// It could not be run.
    Failed(String),
}

impl PlainRun {
    /// Returns true if other runs can be compared with this one.
    pub fn is_measure(&self) -> bool {
        matches!(self, Self::EndedWell | Self::Flawed(_))
    }
}

/// What became of a process of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEnd {
    /// Which process.
    pub proc: Proc,
    /// How it ended.
    pub how: End,
}

/// How a process of a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself.
    Itself(Exit),
    /// With its process group, which the server ended.
    Group,
    /// The scenario killed it.
    Killed,
    /// It did not end, by this proof; or by none, if it waited for another process.
    Never(Option<HangProof>),
    /// It was not waited for.
    Unknown,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ", self.proc)?;
        match self.how {
            End::Itself(exit) => write!(f, "ended with {exit}"),
            End::Group => f.write_str("was ended with its program"),
            End::Killed => f.write_str("was killed"),
            End::Never(Some(proof)) => write!(f, "did not end: {proof}"),
            End::Never(None) => f.write_str("did not end: it waited for another process"),
            End::Unknown => f.write_str("was not waited for"),
        }
    }
}

/// How it is known that a process does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HangProof {
    /// All processes of the program wait without a time limit, and nothing is on its way to them.
    Idle,
    /// None has done anything that can be seen for so many seconds.
    Quiet(u64),
    /// They go on, far longer than is allowed.
    Endless,
}

impl fmt::Display for HangProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("it waits, and nothing is to come"),
            Self::Quiet(seconds) => write!(f, "it has done nothing for {seconds} s{NO_PROOF}"),
            Self::Endless => write!(f, "it goes on and on, beyond the limits{NO_PROOF}"),
        }
    }
}

/// What differs between the output of a plain run and that of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The first line that is another, cut if long.
    Line {
        /// In the plain run.
        plain: Bytes,
        /// In the other.
        seen: Bytes,
    },
    /// One is the beginning of the other; numbers of bytes.
    Length {
        /// In the plain run.
        plain: usize,
        /// In the other.
        seen: usize,
    },
}

/// The values that a process received, each with the name of its field.
pub type ToldValues = BTreeSet<(Vec<u8>, Vec<u8>)>;

/// The field of a universe size, without which a server can do.
const UNIVERSE_SIZE: &[u8] = b"size";

/// Returns true if the lines are the same but for a field whose value they print. In place of a universe size that was not told, anything
/// may be printed.
fn differs_as_told(plain: (&[u8], &ToldValues), seen: (&[u8], &ToldValues)) -> bool {
    plain.1.iter().filter(|(_, usual)| !usual.is_empty()).any(|(name, usual)| {
        let mut now = seen.1.iter().filter(|(other, _)| other == name).peekable();
        let untold = name == UNIVERSE_SIZE && now.peek().is_none();
        let now: Vec<&[u8]> =
            now.filter(|told| !plain.1.contains(*told)).map(|(_, value)| &value[..]).collect();
        memchr::memmem::find_iter(plain.0, usual).any(|at| {
            let (before, behind) = (&plain.0[..at], &plain.0[at + usual.len()..]);
            let rest = seen.0.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
            rest.is_some_and(|rest| untold || now.contains(&rest))
        })
    })
}

impl Difference {
    /// Compares two outputs of a process, which was told other values in the two runs. A line with a value in it as the process was
    /// told it is no difference.
    pub fn between(plain: (&[u8], &ToldValues), seen: (&[u8], &ToldValues)) -> Option<Self> {
        let [left, right] = [plain.0, seen.0].map(|text| text.split(|b| *b == b'\n').collect::<Vec<_>>());
        let cut = |line: &[u8]| Bytes(line[..line.len().min(200)].to_vec());
        let differs = |(a, b): &(&&[u8], &&[u8])| a != b && !differs_as_told((a, plain.1), (b, seen.1));
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

    fn told(values: &[(&str, &str)]) -> ToldValues {
        values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    /// A program that prints the mapping and universe size it received does the same work. One that prints something
    /// else does not.
    #[rstest::rstest]
    #[case::as_told("mapping (vector,[0]x2)\nuniverse -1\nsum 3\n", false)]
    #[case::cut("mapping (vector,[0]x\nuniverse -1\nsum 3\n", true)]
    #[case::another_line("mapping (vector,[0]x2)\nuniverse -1\nsum 4\n", true)]
    #[case::value_of_another_field("mapping -1\nuniverse 2\nsum 3\n", true)]
    #[case::one_line_less("mapping (vector,[0]x2)\nuniverse -1\n", true)]
    fn output_differs_in_more_than_what_was_told(#[case] seen: &str, #[case] differs: bool) {
        let plain = "mapping (vector,(0,1,2))\nuniverse 2\nsum 3\n";
        // Nothing is told that may stand in the place of a value; of a universe size, anything may.
        let untold = told(&[("rc", "-1")]);
        let (before, behind) = (&b"mapping x\nuniverse 2"[..], &b"mapping x\nuniverse unknown"[..]);
        let usual = told(&[("value", "x"), ("size", "2"), ("rc", "0")]);
        assert_eq!(Difference::between((before, &usual), (behind, &untold)), None);
        assert!(Difference::between((before, &usual), (&b"mapping y\nuniverse 2"[..], &untold)).is_some());
        let usual = told(&[("value", "(vector,(0,1,2))"), ("size", "2"), ("rc", "0")]);
        let now = told(&[("value", "(vector,[0]x2)"), ("size", "-1"), ("rc", "0")]);
        let difference = Difference::between((plain.as_bytes(), &usual), (seen.as_bytes(), &now));
        assert_eq!(difference.is_some(), differs, "{difference:?}");
    }
}
