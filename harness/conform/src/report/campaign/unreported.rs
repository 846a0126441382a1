//! What was met in a campaign and is not among what it has found.

use std::fmt;

use pmi_fuzzer::campaign::Summary;
use pmi_fuzzer::store::TRIES;

/// Why a bucket that was met is not among what was found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unreported {
    /// So often.
    Known(u64),
    /// So often, and not when it was tried again.
    Unconfirmed(u32),
    Unexamined,
}

impl fmt::Display for Unreported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(seen) => write!(f, "known, seen {seen} times"),
            Self::Unconfirmed(seen) => {
                write!(f, "not confirmed: seen {seen} times, and in at most one of {TRIES} more runs each")
            }
            Self::Unexamined => write!(f, "not looked into: the campaign was over"),
        }
    }
}

/// The buckets that were met and are not among what was found.
pub(super) fn unreported(campaign: &Summary) -> impl Iterator<Item = (&str, Unreported)> {
    let progress = &campaign.progress;
    let known = progress.known.iter().map(|(bucket, seen)| (&**bucket, Unreported::Known(*seen)));
    let unconfirmed =
        progress.unconfirmed.iter().map(|(bucket, seen)| (&**bucket, Unreported::Unconfirmed(*seen)));
    let unexamined = progress.unexamined.iter().map(|bucket| (&**bucket, Unreported::Unexamined));
    known.chain(unconfirmed).chain(unexamined)
}
