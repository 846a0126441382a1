//! An HTML page that shows the findings of a campaign and its progress over time. The file is self-contained: it loads no external
//! resources.

use std::io;
use std::time::Duration;

use pmi_fuzzer::campaign::{CampaignOptions, CampaignSummary, ProgressSample};
use pmi_fuzzer::target::Target;
use pmi_fuzzer::triage::store::{RequiredInput, RootCause, SCENARIO, StoredFinding};
use serde::Serialize;

use super::super::plot::{Area, at, path};
use super::super::{page, text};
use super::roots::by_root;
use super::unreported::unreported;

/// Maximum length of untrusted text, in characters.
const MAX_WORDS_LENGTH: usize = 300;
const MAX_FRAMES: usize = 16;
const MAX_ROWS: usize = 1000;

const AREA: Area = Area { width: 800.0, height: 170.0, left: 50.0, right: 800.0, top: 20.0, floor: 150.0 };

#[derive(Serialize)]
struct CampaignPage {
    title: String,
    version: &'static str,
    subject: String,
    color: &'static str,
    meaning: String,
    facts: Vec<(&'static str, String)>,
    curves: Vec<Curve>,
    moments: Vec<CampaignRow>,
    roots: Vec<FindingGroup>,
    /// The buckets that were not reported, each with the reason.
    others: Vec<(String, String)>,
}

/// The curve of a quantity that grew during the campaign.
#[derive(Serialize)]
struct Curve {
    what: &'static str,
    #[serde(flatten)]
    area: Area,
    /// The path of the curve, in SVG syntax.
    path: String,
    most: usize,
    end: String,
    /// The findings as marks on the curve: the position and the label of each mark.
    met: Vec<(String, String)>,
}

#[derive(Serialize)]
struct CampaignRow {
    time: String,
    sessions: u64,
    transitions: usize,
    edges: String,
    found: usize,
}

/// Findings that probably have the same cause.
#[derive(Serialize)]
struct FindingGroup {
    name: String,
    kind: &'static str,
    label: &'static str,
    found: Vec<ShownFinding>,
}

#[derive(Serialize)]
struct ShownFinding {
    bucket: String,
    what: String,
    again: String,
    met: String,
    session: u64,
    seen: u64,
    requirement: String,
    untraced: String,
    stack: Vec<String>,
    scenario: String,
    replay: String,
}

pub(super) fn campaign_page(
    target: &dyn Target,
    options: &CampaignOptions,
    campaign: &CampaignSummary,
) -> io::Result<String> {
    page::render("campaign.html", of_campaign(&target.label(), options, campaign))
}

fn of_campaign(subject: &str, options: &CampaignOptions, campaign: &CampaignSummary) -> CampaignPage {
    let progress = &campaign.progress;
    let roots = by_root(&campaign.found);
    let mut meaning = match (campaign.found.len(), progress.sessions) {
        (0, 0) => "No session could be judged".to_owned(),
        (0, _) => "Nothing new was found".to_owned(),
        (found, _) => {
            format!(
                "{}, probably of {}",
                text::count(found, "new finding"),
                text::count(roots.len(), "mistake")
            )
        }
    };
    if campaign.interrupted {
        meaning += "; interrupted";
    }
    let green = campaign.found.is_empty() && progress.sessions > 0;
    let edges = progress.edges.filter(|edges| *edges > 0);
    let curve = |what, of: &dyn Fn(&ProgressSample) -> usize| curve(what, campaign, of);
    let mut curves = vec![curve("transitions of the model", &|moment| moment.transitions)];
    if edges.is_some() {
        curves.push(curve("edges of the program", &|moment| moment.edges.unwrap_or(0)));
    }
    let others = unreported(campaign).map(|(bucket, why)| (words(bucket), why.to_string()));
    CampaignPage {
        title: format!("{}: a campaign", words(subject)),
        version: env!("CARGO_PKG_VERSION"),
        subject: words(subject),
        color: if green { "green" } else { "red" },
        meaning,
        facts: facts(options, campaign),
        curves,
        moments: moments(campaign),
        roots: roots.into_iter().map(|(root, all)| group(&root, &all, options, campaign)).collect(),
        others: others.take(MAX_ROWS).collect(),
    }
}

/// Returns untrusted text as one line of limited length.
fn words(foreign: &str) -> String {
    text::clip(&text::clean(foreign), MAX_WORDS_LENGTH)
}

fn clock(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

fn facts(options: &CampaignOptions, campaign: &CampaignSummary) -> Vec<(&'static str, String)> {
    let progress = &campaign.progress;
    let rate = progress.sessions as f64 / progress.time.as_secs_f64().max(0.001);
    let mut facts = vec![
        ("seed", options.seed.to_string()),
        ("workers", options.workers.to_string()),
        ("time", clock(progress.time)),
        ("sessions", format!("{}, {rate:.0} a second", progress.sessions)),
        (
            "skipped",
            format!(
                "{} with excluded commands or only known findings",
                text::count(progress.skipped as usize, "session")
            ),
        ),
        ("requests", progress.requests.to_string()),
        ("transitions", format!("{} of the model", progress.transitions)),
        ("corpus", format!("{} sessions", progress.corpus)),
    ];
    let edges = progress.edges.map(|edges| match edges {
        0 => "none: built without edge coverage".to_owned(),
        edges => format!("{edges} of its program"),
    });
    facts.extend(edges.map(|edges| ("edges", edges)));
    if progress.unjudged.0 > 0 {
        let value = format!("{} sessions: {}", progress.unjudged.0, words(&progress.unjudged.1));
        facts.push(("not judged", value));
    }
    facts
}

/// Returns the curve of a quantity, with marks at the times of findings.
fn curve(what: &'static str, campaign: &CampaignSummary, of: &dyn Fn(&ProgressSample) -> usize) -> Curve {
    let history = &campaign.history;
    let all = history.last().map_or(0.0, |moment| moment.time.as_secs_f64()).max(0.001);
    let most = history.iter().map(of).max().unwrap_or(0);
    let x = |time: Duration| AREA.x(time.as_secs_f64() / all);
    let y = |moment: &ProgressSample| AREA.y(of(moment) as f64 / most.max(1) as f64);
    let mark = |(bucket, time): (&String, &Duration)| {
        (at(x(*time).min(AREA.right)), format!("{} after {}", words(bucket), clock(*time)))
    };
    Curve {
        what,
        area: AREA,
        path: path(history.iter().map(|moment| (x(moment.time), y(moment)))),
        most,
        end: clock(campaign.progress.time),
        met: campaign.first_met.iter().take(MAX_ROWS).map(mark).collect(),
    }
}

/// Returns a few samples of the campaign's progress as table rows.
fn moments(campaign: &CampaignSummary) -> Vec<CampaignRow> {
    const MAX_SAMPLES: usize = 12;
    let history = &campaign.history;
    let step = history.len().div_ceil(MAX_SAMPLES).max(1);
    let last = history.len().saturating_sub(1);
    let shown =
        history.iter().enumerate().filter(|(at, _)| at % step == 0 && last - at >= step || *at == last);
    shown
        .map(|(_, moment)| CampaignRow {
            time: clock(moment.time),
            sessions: moment.sessions,
            transitions: moment.transitions,
            edges: moment.edges.filter(|n| *n > 0).map(|n| n.to_string()).unwrap_or_default(),
            found: campaign.first_met.values().filter(|time| **time <= moment.time).count(),
        })
        .collect()
}

fn group(
    root: &RootCause,
    all: &[&StoredFinding],
    options: &CampaignOptions,
    campaign: &CampaignSummary,
) -> FindingGroup {
    let found = |found: &&StoredFinding| {
        let folder = options.out.join(&found.bucket);
        let trace = found.backtrace.as_ref();
        let met = campaign.first_met.get(&found.bucket);
        ShownFinding {
            bucket: words(&found.bucket),
            what: words(&found.description),
            again: found.label(),
            met: met.map(|time| clock(*time)).unwrap_or_default(),
            session: found.number,
            seen: campaign.progress.new.get(&found.bucket).copied().unwrap_or(0),
            requirement: words(found.requirement.as_deref().unwrap_or_default()),
            untraced: words(found.untraced.as_deref().unwrap_or_default()),
            stack: trace.map_or(Vec::new(), |trace| {
                trace.frames.iter().take(MAX_FRAMES).map(|frame| words(&frame.to_string())).collect()
            }),
            scenario: words(&folder.join(SCENARIO).display().to_string()),
            replay: text::clean(&format!("{} --replay {}", options.replay, folder.display())),
        }
    };
    let (kind, label) = match root.input() {
        RequiredInput::Valid => ("fail", "valid input is enough"),
        RequiredInput::Unknown => ("warn", "input not minimized"),
        RequiredInput::Invalid => ("warn", "needs invalid input"),
    };
    FindingGroup { name: words(&root.to_string()), kind, label, found: all.iter().map(found).collect() }
}
