//! Reasons why an implementation is not judged.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use crate::event::{Exit, ProcessEnd, SilenceProof};
use crate::verdict::Verdict;

/// The reason why the implementation was not judged in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnjudgedReason {
    /// The user interrupted the run.
    Interrupted,
    /// A process of the first group did not report to the runner.
    NotStarted {
        /// The rank of the process.
        rank: u32,
        /// True if no process of the group reported.
        none: bool,
        /// The exit of the launcher, if it has ended.
        launcher: Option<Exit>,
        /// The proof that no further process will report, and the time that the runner waited.
        nothing: Option<(SilenceProof, Duration)>,
    },
    /// The server did not offer the wire protocol to any process, so the protocol's requirements do not apply. Contains a description and,
    /// if known, the option that enables the protocol.
    NotOffered(String),
    /// The library under test cannot be used.
    Unloadable(LoadFailure),
    /// The scenario could not be played.
    Unplayable(String),
    /// The process manager has not placed the processes on the nodes that the scenario requires, so the scenario does not apply.
    Misplaced(String),
    /// No process of the program wrote to its connection. Contains the way in which the first process ended.
    Silent(Option<ProcessEnd>),
    /// The program fails even in a plain run, so the scenario does not apply.
    FailsPlainRun(ProcessEnd),
    /// The program does not make the request that the scenario is about, so the scenario does not apply.
    NoSuchRequest(String),
    /// The library lacks a function that the scenario calls. The scenarios about the library's file report the missing function.
    NoSuchFunction(String),
}

impl UnjudgedReason {
    /// Returns the text for [`Self::Misplaced`] if the process manager has placed the processes on these nodes.
    pub fn placement<S: Borrow<str>>(processes: u32, nodes: &[S]) -> String {
        format!(
            "the process manager placed {processes} processes on {} nodes ({})",
            nodes.len(),
            nodes.join(", ")
        )
    }

    /// Returns the verdict for this reason.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::FailsPlainRun(_)
            | Self::NoSuchRequest(_)
            | Self::NoSuchFunction(_)
            | Self::Misplaced(_) => Verdict::NotApplicable,
            _ => Verdict::Unjudged,
        }
    }
}

/// The reason why a library under test cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadFailure {
    /// The dynamic linker rejects the library.
    Refused(String),
    /// The process ended while it loaded the library.
    Ended(Exit),
    /// Loading does not finish.
    TimedOut,
    /// The launcher ended before the process of this rank reported.
    LauncherEnded(u32),
    /// The process of this rank did not report within this time.
    NoReport(u32, Duration),
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unloadable = "the library cannot be loaded:";
        match self {
            Self::Refused(why) => write!(f, "{unloadable} {why}"),
            Self::Ended(exit) => write!(f, "{unloadable} the process ended with {exit}"),
            Self::TimedOut => write!(f, "{unloadable} dlopen does not return"),
            Self::LauncherEnded(rank) => {
                write!(f, "rank {rank} did not report: the launcher ended first")
            }
            Self::NoReport(rank, waited) => {
                write!(f, "rank {rank} did not report within {waited:?} (--start-timeout)")
            }
        }
    }
}

impl fmt::Display for UnjudgedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => write!(f, "interrupted"),
            Self::NotStarted { none: true, launcher: Some(Exit::Code(0)), rank, .. } => write!(
                f,
                "the launcher ended (exit status 0) before rank {rank} reported: the command did not start {{agent}}, or \
                 went into the background, where it cannot be judged"
            ),
            Self::NotStarted { launcher: Some(exit), rank, .. } => {
                write!(
                    f,
                    "the launcher ended ({exit}) before rank {rank} reported: to find out why, run its command by hand with true in place of {{agent}}"
                )
            }
            Self::NotStarted { nothing: Some((SilenceProof::Timeout, waited)), rank, .. } => {
                write!(f, "rank {rank} did not report within {waited:?} (--start-timeout)")
            }
            Self::NotStarted { rank, .. } => {
                write!(f, "rank {rank} did not report, and the launcher's processes wait for something else")
            }
            Self::Unloadable(why) => why.fmt(f),
            Self::NotOffered(why)
            | Self::Unplayable(why)
            | Self::NoSuchFunction(why)
            | Self::Misplaced(why) => f.write_str(why),
            Self::Silent(end) => {
                let end = end.as_ref().map(ToString::to_string).unwrap_or_default();
                write!(
                    f,
                    "no process sent a message to the process manager ({end}): is this a PMI program, such as one built with MPICH? An Open MPI program uses PMIx, sends nothing here, and runs each process as rank 0 of 1"
                )
            }
            Self::FailsPlainRun(end) => write!(
                f,
                "the program fails with a server that does nothing unusual ({end}), so this scenario cannot judge it"
            ),
            Self::NoSuchRequest(request) => write!(f, "the program makes no such request: {request}"),
        }
    }
}
