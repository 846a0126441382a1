//! Reports of campaigns.

mod json;
mod junit;
mod page;
mod sarif;

use std::fmt;
use std::io;
use std::str::FromStr;

use pmi_fuzzer::campaign::{CampaignOptions, Summary};
use pmi_fuzzer::store::TRIES;
use pmi_fuzzer::target::Target;

/// What the report of a campaign is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CampaignFormat {
    Json,
    Sarif,
    Junit,
    Html,
}

impl CampaignFormat {
    const NAMES: [(&str, Self); 4] =
        [("json", Self::Json), ("sarif", Self::Sarif), ("junit", Self::Junit), ("html", Self::Html)];

    /// The report as it is written to a file.
    ///
    /// # Errors
    ///
    /// It cannot be written out.
    pub(crate) fn report(
        self,
        target: &dyn Target,
        options: &CampaignOptions,
        campaign: &Summary,
    ) -> io::Result<String> {
        match self {
            Self::Json => Ok(json::write(target, options, campaign)),
            Self::Sarif => Ok(sarif::write(options, campaign)),
            Self::Junit => junit::write(&target.label(), options, campaign),
            Self::Html => page::campaign_page(target, options, campaign),
        }
    }
}

impl FromStr for CampaignFormat {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or(UnknownFormat)
    }
}

/// There is no report of that name.
#[derive(Debug, thiserror::Error)]
#[error("write json=FILE, sarif=FILE, junit=FILE or html=FILE")]
pub(crate) struct UnknownFormat;

/// Why a bucket that was met is not among what was found.
#[derive(Debug, Clone, Copy)]
enum Unreported {
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
            Self::Unexamined => write!(f, "not looked into: the campaign's time was over"),
        }
    }
}

/// The buckets that were met and are not among what was found.
fn unreported(campaign: &Summary) -> impl Iterator<Item = (&str, Unreported)> {
    let progress = &campaign.progress;
    let known = progress.known.iter().map(|(bucket, seen)| (&**bucket, Unreported::Known(*seen)));
    let unconfirmed =
        progress.unconfirmed.iter().map(|(bucket, seen)| (&**bucket, Unreported::Unconfirmed(*seen)));
    let unexamined = progress.unexamined.iter().map(|bucket| (&**bucket, Unreported::Unexamined));
    known.chain(unconfirmed).chain(unexamined)
}
