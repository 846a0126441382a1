//! A campaign as JSON.

use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary};
use pmi_fuzzer::target::Target;
use serde_json::json;

pub(super) fn write(target: &dyn Target, options: &CampaignOptions, campaign: &CampaignSummary) -> String {
    let progress = &campaign.progress;
    let report = json!({
        "format": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "server": target.label(),
        "command": target.command(),
        "seed": options.seed,
        "workers": options.workers,
        "seconds": progress.time.as_secs_f64(),
        "sessions": progress.sessions,
        "left_out": progress.skipped,
        "requests": progress.requests,
        "jobs": target.launched().map(|launched| launched.jobs),
        "processes": target.launched().map(|launched| launched.processes),
        "transitions": progress.transitions,
        "edges": progress.edges,
        "corpus": progress.corpus,
        "growth_max_bytes": progress.growth,
        "silence_median_us": progress.silence.map(|s| s.as_micros() as u64),
        "found": campaign.found,
        "seen": {"new": progress.new, "known": progress.known, "not_confirmed": progress.unconfirmed, "not_examined": progress.unexamined},
        "unjudged": progress.unjudged.0,
        "interrupted": campaign.interrupted,
    });
    format!("{report:#}\n")
}
