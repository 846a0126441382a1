//! What people see while scenarios run, and when all is done.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::block::{Block, Palette};
use super::{Run, tally, text};
use pmi_judge::own::CRASH;
use pmi_judge::verdict::{Judged, RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{Finding, Severity};

/// Scenarios named for a requirement that many break.
const NAMED: usize = 5;

/// Characters of what was seen that the summary shows.
const SEEN: usize = 100;

/// The first of these scenarios, and how many more there are.
fn named(scenarios: &[&str]) -> String {
    let names: Vec<_> = scenarios.iter().take(NAMED).map(|name| text::clean(name)).collect();
    let more = scenarios.len().saturating_sub(NAMED);
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// How much to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Only what makes the run red, and the summary.
    Quiet,
    /// A line for each scenario, more for those that fail or warn.
    Normal,
    /// Every finding in full, known ones and notes too.
    Verbose,
}

/// How it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Whether to use colours.
    pub(crate) color: bool,
    /// Whether to draw a progress bar on standard error, if that is a terminal.
    pub(crate) progress: bool,
    /// How much to show.
    pub(crate) verbosity: Verbosity,
}

/// Shows a run, as it goes or from its log.
#[derive(Debug)]
pub(crate) struct Terminal<W> {
    out: W,
    palette: Palette,
    verbosity: Verbosity,
    bar: ProgressBar,
    strict: Strictness,
    /// What was shown in full, by requirement, expected and seen, and at which scenario.
    shown: HashMap<(String, String, String), String>,
    /// For each reason for which nothing was judged, how often it was met again.
    unjudged: BTreeMap<String, usize>,
    /// Whether the last line is empty.
    spaced: bool,
}

impl<W: Write> Terminal<W> {
    /// Shows to `out`.
    pub(crate) fn new(out: W, look: Look) -> Self {
        let bar = if look.progress {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        Self {
            out,
            palette: Palette { color: look.color },
            verbosity: look.verbosity,
            bar,
            strict: Strictness::Must,
            shown: HashMap::new(),
            unjudged: BTreeMap::new(),
            spaced: true,
        }
    }

    /// Shows what is going to be run.
    ///
    /// # Errors
    ///
    /// Those of writing, here and below.
    pub(crate) fn start(&mut self, header: &RunHeader) -> io::Result<()> {
        self.strict = header.strict;
        self.bar.set_length(header.selected as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            self.bar.set_style(style);
        }
        if self.verbosity == Verbosity::Quiet {
            return Ok(());
        }
        let RunHeader { version, server, dialect, selected, .. } = header;
        let (version, dialect, server) = (text::clean(version), text::clean(dialect), text::clean(server));
        let scenarios = text::count(*selected, "scenario");
        self.show(&format!("pmi-conform {version}, {dialect}: {scenarios} against {server}\n"))
    }

    /// Shows a scenario that is done.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn scenario_done(&mut self, result: &ScenarioResult) -> io::Result<()> {
        // Strict or not, a broken SHOULD deserves to be read in full.
        let bad = result.is_red(self.strict.max(Strictness::Should));
        if self.unjudged_before(result) {
            self.bar.inc(1);
            return Ok(());
        }
        let (line, block) = match self.verbosity {
            Verbosity::Quiet => (result.is_red(self.strict), result.is_red(self.strict)),
            Verbosity::Normal => (true, bad),
            Verbosity::Verbose => (true, bad || !result.findings.is_empty()),
        };
        let before = if block { self.shown_before(result) } else { None };
        let before = before.filter(|_| self.verbosity == Verbosity::Normal);
        let block = block && before.is_none();
        let mut shown = String::new();
        if line {
            let (style, dim) = (self.palette.result(result), self.palette.dim());
            let (label, name) = (tally::label(result), text::clean(&result.scenario));
            let time = text::time(result.time_us);
            let _ = write!(shown, "{style}{label:>15}{style:#}  {name}  {dim}{time}{dim:#}");
            if !result.findings.is_empty() {
                let _ = write!(shown, ", {}", text::count(result.findings.len(), "finding"));
            }
            if let Some(first) = &before {
                let _ = write!(shown, ", as in {} (-v shows it)", text::clean(first));
            }
            if let (Verdict::NotApplicable, Some(reason)) = (result.verdict, &result.reason) {
                let _ = write!(shown, ", {}", text::clean(reason));
            }
            shown.push('\n');
        }
        if block {
            let _ = writeln!(shown, "{}", Block { result, palette: self.palette });
        }
        if line {
            self.spaced = block;
        }
        self.bar.inc(1);
        self.bar.set_message(text::clean(&result.scenario));
        self.show(&shown)
    }

    /// Shows the summary.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn finish(&mut self, run: &Run) -> io::Result<()> {
        self.bar.finish_and_clear();
        let palette = self.palette;
        let mut shown = String::from(if self.spaced { "" } else { "\n" });
        let groups = tally::groups(&run.results);
        if !groups.is_empty() && self.verbosity > Verbosity::Quiet {
            shown.push_str("findings by requirement\n");
            for group in groups {
                let (style, label) = (palette.severity(group.severity), tally::severity(group.severity));
                let (id, of) =
                    (text::clean(group.requirement), text::count(group.scenarios.len(), "scenario"));
                let crash = group.crash.map(|crash| text::clean(&crash) + ": ").unwrap_or_default();
                let names = named(&group.scenarios);
                let _ = writeln!(shown, "  {style}{label}{style:#} {id}: {crash}{of}: {names}");
                let told = |s: &[&str]| s.len() < group.scenarios.len() && group.severity > Severity::Note;
                for (seen, scenarios) in group.repeated.iter().filter(|(_, s)| told(s)) {
                    let (seen, of) =
                        (text::clip(&text::clean(seen), SEEN), text::count(scenarios.len(), "scenario"));
                    let _ = writeln!(shown, "      in {of}: {seen}: {}", named(scenarios));
                }
            }
            shown.push('\n');
        }
        let again: Vec<_> = self.unjudged.iter().filter(|(_, times)| **times > 0).collect();
        for (reason, times) in &again {
            let style = palette.severity(Severity::Fail);
            let of = text::count(**times, "more scenario");
            let _ = writeln!(
                shown,
                "{style}could not judge{style:#} {of} (-v lists them): {}",
                text::clean(reason)
            );
        }
        if !again.is_empty() {
            shown.push('\n');
        }
        let complaints = run.complaints();
        for complaint in &complaints {
            let style = palette.severity(Severity::Fail);
            let _ = writeln!(shown, "{style}{}{style:#}: {}", complaint.name, complaint.text);
        }
        if !complaints.is_empty() {
            shown.push('\n');
        }
        let counts = tally::counts(&run.results);
        let counts: Vec<_> = counts.iter().map(|(n, what)| format!("{n} {what}")).collect();
        let time = run.end.as_ref().map(|end| format!(" in {}", text::time(end.time_us))).unwrap_or_default();
        let bold = palette.bold();
        let _ = writeln!(shown, "{bold}{}{bold:#}{time}", counts.join(", "));
        let early = run.results.iter().filter(|r| r.unreached > 0).count();
        if early > 0 {
            let steps = run.results.iter().map(|r| r.unreached).sum();
            let (early, steps) = (text::count(early, "scenario"), text::count(steps, "later step"));
            let _ = writeln!(shown, "{early} ended early: {steps} not judged");
        }
        let _ = writeln!(shown, "{}", tally::meaning(run));
        self.show(&shown)
    }

    /// Whether nothing was judged, for a reason that was told before: it is counted then, and told in the end.
    fn unjudged_before(&mut self, result: &ScenarioResult) -> bool {
        let bare = result.verdict == Verdict::Unjudged
            && result.findings.is_empty()
            && self.verbosity < Verbosity::Verbose;
        let Some(reason) = result.reason.as_ref().filter(|_| bare) else { return false };
        match self.unjudged.get_mut(reason) {
            Some(times) => {
                *times += 1;
                true
            }
            None => {
                self.unjudged.insert(reason.clone(), 0);
                false
            }
        }
    }

    /// The scenario at which the same was shown in full, if all that a result has found was shown before: it is one cause, as a rule,
    /// and not worth a transcript each time.
    fn shown_before(&mut self, result: &ScenarioResult) -> Option<String> {
        let told = |judged: &Judged| {
            let Finding { requirement, expected, seen, .. } = &judged.finding;
            // Of a crash of which nothing else is known, what led to it is in the transcript only.
            let bare = requirement == CRASH && seen.ends_with(|c: char| c.is_ascii_digit());
            let expected = if bare { result.scenario.clone() } else { expected.clone() };
            (requirement.clone(), expected, seen.clone())
        };
        let told: Vec<_> = result.findings.iter().map(told).collect();
        let known: Option<Vec<_>> = told.iter().map(|what| self.shown.get(what)).collect();
        let first = known.and_then(|all| all.first().map(|name| (*name).clone()));
        for what in told {
            self.shown.entry(what).or_insert_with(|| result.scenario.clone());
        }
        first.filter(|_| !matches!(result.verdict, Verdict::Hung | Verdict::Unjudged))
    }

    /// Shows a run that is over.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub(crate) fn whole(&mut self, run: &Run) -> io::Result<()> {
        self.start(&run.header)?;
        run.results.iter().try_for_each(|result| self.scenario_done(result))?;
        self.finish(run)
    }

    /// Writes all at once, with the bar out of the way.
    fn show(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }
}
