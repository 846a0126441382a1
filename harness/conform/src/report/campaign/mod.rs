//! Reports of campaigns.

mod json;
mod junit;
mod page;
mod roots;
mod sarif;
mod terminal;
mod unreported;

use std::io;

use clap::ValueEnum;
use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary};
use pmi_fuzzer::target::Target;

pub(crate) use terminal::{campaign_text, progress_line};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CampaignFormat {
    Json,
    Sarif,
    Junit,
    Html,
}

impl CampaignFormat {
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
