//! Reports of campaigns.

mod json;
mod junit;
mod page;
mod roots;
mod sarif;
mod terminal;
mod unreported;

use std::io;
use std::str::FromStr;

use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary};
use pmi_fuzzer::target::Target;

pub(crate) use terminal::{campaign_text, progress_line};

/// A format of campaign reports.
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

    /// Returns the text of the report.
    ///
    /// # Errors
    ///
    /// Returns an error if the report cannot be rendered.
    pub(crate) fn report(
        self,
        target: &dyn Target,
        options: &CampaignOptions,
        campaign: &CampaignSummary,
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

/// The format of a report is unknown.
#[derive(Debug, thiserror::Error)]
#[error("use json=FILE, sarif=FILE, junit=FILE or html=FILE")]
pub(crate) struct UnknownFormat;
