//! Why nothing is said about an implementation.

use std::fmt;
use std::time::Duration;

use crate::event::{Exit, ProcessEnd, SilenceProof};
use crate::verdict::Verdict;

/// Why nothing is said about the implementation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unjudged {
    /// The user wanted the run to end.
    Interrupted,
    /// A process of the first group did not report.
    NotStarted {
        /// Its rank.
        rank: u32,
        /// No other process reported either.
        none: bool,
        /// How the launcher ended, if it did.
        launcher: Option<Exit>,
        /// How it is known that nothing comes, and how long that was waited for.
        nothing: Option<(SilenceProof, Duration)>,
    },
    /// The library under test does nothing.
    Unloadable(Unloadable),
    /// It could not be played.
    Unplayable(String),
    /// No process of a program wrote anything to its connection; what became of the first.
    Silent(Option<ProcessEnd>),
    /// The program does not end well where nothing is unusual, so that it does not apply.
    EndsBadly(ProcessEnd),
    /// The program does not make the request that the scenario is about, so that it does not apply.
    NoSuchRequest(String),
    /// The library lacks a function that the scenario calls, which is reported where its file is judged.
    NoSuchFunction(String),
}

impl Unjudged {
    /// What the scenario comes to.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::EndsBadly(_) | Self::NoSuchRequest(_) | Self::NoSuchFunction(_) => Verdict::NotApplicable,
            _ => Verdict::Unjudged,
        }
    }
}

/// Why a library under test does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unloadable {
    /// The dynamic linker refuses it.
    Refused(String),
    /// The process ended while it was loaded.
    Ended(Exit),
    /// Loading does not come to an end.
    Stuck,
    /// The launcher ended before this rank's process reported.
    LauncherEnded(u32),
    /// This rank's process did not report within this time.
    Unseen(u32, Duration),
}

impl fmt::Display for Unloadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unloadable = "the library cannot be loaded:";
        match self {
            Self::Refused(why) => write!(f, "{unloadable} {why}"),
            Self::Ended(exit) => write!(f, "{unloadable} the process ended, {exit}"),
            Self::Stuck => write!(f, "{unloadable} it does not return"),
            Self::LauncherEnded(rank) => {
                write!(f, "rank {rank} did not report: the launcher ended before it did")
            }
            Self::Unseen(rank, waited) => {
                write!(f, "rank {rank} did not report: no sign of life within {waited:?} (--start-timeout)")
            }
        }
    }
}

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => write!(f, "interrupted"),
            Self::NotStarted { none: true, launcher: Some(Exit::Code(0)), rank, .. } => write!(
                f,
                "the launcher ended (exit status 0) before rank {rank} reported: it did not start {{agent}}, or it \
                 went into the background, where it cannot be judged"
            ),
            Self::NotStarted { launcher: Some(exit), rank, .. } => {
                write!(
                    f,
                    "the launcher ended ({exit}) before rank {rank} reported: if it says no more, try its command by hand, with true in \
                     the place of {{agent}}"
                )
            }
            Self::NotStarted { nothing: Some((SilenceProof::Timeout, waited)), rank, .. } => {
                write!(f, "rank {rank} did not report within {waited:?} (--start-timeout)")
            }
            Self::NotStarted { rank, .. } => {
                write!(f, "rank {rank} did not report, and the launcher's processes wait for something else")
            }
            Self::Unloadable(why) => why.fmt(f),
            Self::Unplayable(why) | Self::NoSuchFunction(why) => f.write_str(why),
            Self::Silent(end) => {
                let end = end.as_ref().map(ToString::to_string).unwrap_or_default();
                write!(
                    f,
                    "no process said anything to the process manager ({end}): is it a program that speaks PMI, as MPICH's do? One of \
                     Open MPI speaks PMIx, says nothing here, and is rank 0 of 1 in each of its processes"
                )
            }
            Self::EndsBadly(end) => write!(
                f,
                "the program does not end well where nothing is unusual ({end}), so nothing can be held against it here"
            ),
            Self::NoSuchRequest(request) => write!(f, "the program makes no such request: {request}"),
        }
    }
}
