//! Buckets that a campaign encountered but did not report.

use std::fmt;

use pmi_fuzzer::campaign::CampaignSummary;
use pmi_fuzzer::triage::store::CONFIRMATION_RUNS;

use crate::report::text::times;

/// The reason why a bucket was not reported.
#[derive(Debug, Clone, Copy)]
pub(super) enum UnreportedReason {
    /// The bucket is known. The number states how often it was encountered.
    Known(u64),
    /// At most one of the confirmation runs showed the failure again. The number states how often the bucket was
    /// encountered before these runs.
    Unconfirmed(u32),
    Unexamined,
}

impl fmt::Display for UnreportedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(seen) => write!(f, "known, seen {}", times(*seen)),
            Self::Unconfirmed(seen) => {
                write!(
                    f,
                    "not confirmed: seen {}, and in at most one of {CONFIRMATION_RUNS} more runs",
                    times(u64::from(*seen))
                )
            }
            Self::Unexamined => write!(f, "not examined: the campaign ended first"),
        }
    }
}

/// Returns the buckets that were encountered but not reported, with the reasons.
pub(super) fn unreported(campaign: &CampaignSummary) -> impl Iterator<Item = (&str, UnreportedReason)> {
    let progress = &campaign.progress;
    let known = progress.known.iter().map(|(bucket, seen)| (&**bucket, UnreportedReason::Known(*seen)));
    let unconfirmed =
        progress.unconfirmed.iter().map(|(bucket, seen)| (&**bucket, UnreportedReason::Unconfirmed(*seen)));
    let unexamined = progress.unexamined.iter().map(|bucket| (&**bucket, UnreportedReason::Unexamined));
    known.chain(unconfirmed).chain(unexamined)
}
