//! Terminal output of a campaign: progress and summary.

use std::path::Path;

use pmi_fuzzer::campaign::{CampaignSummary, Progress};
use pmi_fuzzer::triage::store::RequiredInput;

use super::roots::by_root;
use super::unreported::{UnreportedReason, unreported};
use crate::report::text::{count, times};

/// Returns the heading for findings that need this kind of input.
fn heading(input: RequiredInput) -> &'static str {
    match input {
        RequiredInput::Valid => "Reached by valid input:\n",
        RequiredInput::Unknown => "Reached by input that was not minimized:\n",
        RequiredInput::Invalid => "Reached by invalid input only:\n",
    }
}

/// Formats the progress of a campaign as one line.
pub(crate) fn progress_line(progress: &Progress) -> String {
    let seconds = progress.time.as_secs_f64().max(0.001);
    let silence = progress.silence.map_or(String::new(), |s| format!(", silence in {s:.1?}"));
    let edges = progress.edges.filter(|n| *n > 0).map_or(String::new(), |n| format!(", {n} edges"));
    let examining = match progress.examining {
        0 => String::new(),
        failures => format!(", {failures} being examined"),
    };
    format!(
        "{:.0} s: {} sessions ({:.0}/s), {:.0} requests/s, {} skipped, {} transitions{edges}, corpus {}, buckets: {} new, {} known{examining}{silence}",
        seconds,
        progress.sessions,
        progress.sessions as f64 / seconds,
        progress.requests as f64 / seconds,
        progress.skipped,
        progress.transitions,
        progress.corpus,
        progress.new.len(),
        progress.known.len(),
    )
}

/// Formats the summary of a campaign, whose findings are stored in `out`. Findings that probably have the same cause are grouped, the most
/// severe first.
pub(crate) fn campaign_text(campaign: &CampaignSummary, out: &Path) -> String {
    let progress = &campaign.progress;
    let mut text = format!("{}\n", progress_line(progress));
    let mut input = None;
    for (root, all) in by_root(&campaign.found) {
        if input.replace(root.input()) != Some(root.input()) {
            text += heading(root.input());
        }
        text += &format!("  {root}\n");
        for found in all {
            let seen = progress.new.get(&found.bucket).copied().unwrap_or(0);
            text += &format!("    new    {:60} {:14} seen {}\n", found.bucket, found.label(), times(seen));
        }
    }
    for (bucket, why) in unreported(campaign) {
        text += &match why {
            UnreportedReason::Known(seen) => {
                format!("  known  {bucket:60} {:14} seen {}\n", "", times(seen))
            }
            why => format!("  {bucket}: {why}\n"),
        };
    }
    if progress.unjudged.0 > 0 {
        let (sessions, why) = &progress.unjudged;
        text += &format!("  {} could not be judged: {why}\n", count(*sessions as usize, "session"));
    }
    if !campaign.found.is_empty() {
        text += &format!("Findings are in {}.\n", out.display());
    }
    text
}
