//! What a reproducer looks for.

use pmi_judge::event::{Event, What};
use pmi_judge::{Finding, own};

/// What shows that a finding is there again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symptom {
    /// The event of this number, by which a finding is shown: a message, the end of a connection, silence, or how a process starts. Of
    /// several messages in it, the one that is part of what was seen.
    Event {
        /// Its number.
        seq: u64,
        /// What was seen, in words.
        seen: String,
    },
    /// A process dies of this signal.
    Death {
        /// Its name.
        name: String,
        /// The signal.
        signal: i32,
    },
    /// The job does not end although its processes have.
    JobStays,
}

/// Why there is no reproducer of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReproducible {
    /// The upstream of a proxy is played.
    #[error("pmi-conform plays the upstream of the proxy")]
    Upstream,
    /// No launcher was started.
    #[error("nothing was launched")]
    NotLaunched,
    /// Processes make their connections themselves.
    #[error("the processes have no PMI_FD")]
    NoDescriptor,
    /// The finding is about more than can be seen at one place of the session.
    #[error("the symptom is not a message, the end of a connection or of a process, or silence")]
    Symptom,
}

impl Symptom {
    /// What shows a finding of the judge.
    pub fn of(finding: &Finding, events: &[Event]) -> Option<Self> {
        let dies = |event: &Event| match &event.what {
            What::Crashed { name, signal } if finding.seen.starts_with(name.trim_end_matches(',')) => {
                Some(Self::Death { name: name.clone(), signal: *signal })
            }
            _ => None,
        };
        if finding.requirement == own::CRASH {
            return events.iter().find_map(dies);
        }
        // A missing answer is found at the last event before it is known that none comes.
        let shows = |event: &&Event| {
            !matches!(event.what, What::ToServer { .. } | What::Expected(_) | What::Output { .. })
        };
        let event = events.iter().skip_while(|event| event.seq < finding.seq).find(shows)?;
        match event.what {
            What::JobStays { .. } => Some(Self::JobStays),
            _ => Some(Self::Event { seq: event.seq, seen: finding.seen.clone() }),
        }
    }
}
