//! The terminal output during a run and at its end.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::block::{Palette, ResultBlock};
use super::run::{RELAYED_NOTE, Run, protocol, subject};
use super::{tally, text};
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::cause::key;
use pmi_judge::verdict::{JudgedFinding, RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{Finding, Severity};

/// Maximum number of causes in the index, so that the index fits on a screen.
const MAX_CAUSES: usize = 15;
/// Maximum number of requirements in the index's line of notes.
const MAX_NOTED_REQUIREMENTS: usize = 8;

/// Maximum number of scenarios named for a cause.
const MAX_NAMED_SCENARIOS: usize = 2;

/// Maximum length of a cause's name, in characters.
const MAX_CAUSE_LENGTH: usize = 160;
/// Maximum length of a finding's `seen` field, in characters.
const MAX_SEEN_LENGTH: usize = 100;

/// Maximum number of findings per requirement that are printed in full without `-v`. Every crash is printed.
const MAX_BLOCKS_PER_REQUIREMENT: usize = 5;

/// Maximum number of listed reasons why scenarios were not played.
const MAX_REASONS: usize = 8;

/// Maximum length of a printed reason, in characters.
const MAX_REASON_LENGTH: usize = 160;

/// Formats a list of scenarios: the first names, and the number of the other scenarios.
fn named(scenarios: &[&str]) -> String {
    let names: Vec<_> = scenarios.iter().take(MAX_NAMED_SCENARIOS).map(|name| text::clean(name)).collect();
    let more = scenarios.len().saturating_sub(MAX_NAMED_SCENARIOS);
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Only the index of causes and the summary.
    Quiet,
    /// Failures and warnings, each cause once, and the reasons why scenarios were not played.
    Normal,
    /// A line for each scenario, and every finding in full, including known ones and notes.
    Verbose,
}

impl Verbosity {
    /// Returns the verbosity with or without `-v`.
    pub(crate) fn of(verbose: bool) -> Self {
        if verbose { Self::Verbose } else { Self::Normal }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalOptions {
    pub(crate) color: bool,
    /// True to draw a progress bar on standard error, if that is a terminal.
    pub(crate) progress: bool,
    pub(crate) verbosity: Verbosity,
    /// The option that writes the omitted events to a log, as named in messages.
    pub(crate) log: &'static str,
}

/// The terminal output of a run, live or from its log.
#[derive(Debug)]
pub(crate) struct Terminal<W> {
    out: W,
    palette: Palette,
    verbosity: Verbosity,
    log: &'static str,
    bar: ProgressBar,
    strict: Strictness,
    /// The findings that were printed in full, by requirement. Findings with the same cause have equal keys; the flag is true if valid
    /// input reached the finding.
    shown: HashMap<String, HashSet<(String, bool)>>,
    /// Number of red scenarios whose findings had all been shown before.
    again: usize,
    /// The printed reasons why scenarios could not be judged.
    unjudged: HashSet<String>,
    indexed: bool,
    /// True if the last line is empty.
    spaced: bool,
}

impl<W: Write> Terminal<W> {
    pub(crate) fn new(out: W, look: TerminalOptions) -> Self {
        let bar = if look.progress {
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        } else {
            ProgressBar::hidden()
        };
        Self {
            out,
            palette: Palette { color: look.color },
            verbosity: look.verbosity,
            log: look.log,
            bar,
            strict: Strictness::Must,
            shown: HashMap::new(),
            again: 0,
            unjudged: HashSet::new(),
            indexed: false,
            spaced: true,
        }
    }

    /// Shows the header of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub(crate) fn start(&mut self, header: &RunHeader) -> io::Result<()> {
        self.strict = header.strict;
        self.bar.set_length(header.selected as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            self.bar.set_style(style);
        }
        if self.verbosity == Verbosity::Quiet {
            return Ok(());
        }
        let RunHeader { version, selected, .. } = header;
        let (version, server, dialect) = (text::clean(version), subject(header), protocol(header));
        let scenarios = text::count(*selected, "scenario");
        self.show(&format!("pmi-conform {version}, {dialect}: {scenarios} against {server}\n"))?;
        if header.relayed { self.show(&format!("{RELAYED_NOTE}\n")) } else { Ok(()) }
    }

    /// Shows the result of a scenario.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub(crate) fn scenario_done(&mut self, result: &ScenarioResult) -> io::Result<()> {
        // A violation of a SHOULD requirement is shown in full, even if it is not red.
        let bad = result.is_red(self.strict.max(Strictness::Should)) || result.verdict == Verdict::Flaky;
        if self.unjudged_before(result) {
            self.bar.inc(1);
            return Ok(());
        }
        let verbose = self.verbosity == Verbosity::Verbose;
        let block = match self.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Normal => bad,
            Verbosity::Verbose => bad || !result.findings.is_empty(),
        };
        let again = block && self.shown_before(result);
        let block = block && (verbose || !again);
        let line = block || verbose;
        self.again += usize::from(again && !verbose);
        let mut shown = String::new();
        if line {
            let (style, dim) = (self.palette.result(result, self.strict), self.palette.dim());
            let (label, name) = (tally::label(result, self.strict), text::clean(&result.scenario));
            let time = text::time(result.time_us);
            let _ = write!(shown, "{style}{label:>15}{style:#}  {name}  {dim}{time}{dim:#}");
            if !result.findings.is_empty() {
                let _ = write!(shown, ", {}", text::count(result.findings.len(), "finding"));
            }
            if let Some(attempts) = &result.attempts {
                let _ = write!(shown, ", red in {} of {} attempts", attempts.red, attempts.played);
            }
            if let (Verdict::NotApplicable, Some(reason)) = (result.verdict, &result.reason) {
                let _ = write!(shown, ", {}", text::clean(reason));
            }
            shown.push('\n');
        }
        if block {
            let block =
                ResultBlock { result, palette: self.palette, verbose, strict: self.strict, log: self.log };
            let _ = writeln!(shown, "{block}");
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
    /// Returns an error if writing fails.
    pub(crate) fn finish(&mut self, run: &Run) -> io::Result<()> {
        self.bar.finish_and_clear();
        let palette = self.palette;
        let mut shown = String::from(if self.spaced { "" } else { "\n" });
        if !self.indexed {
            self.index(run, &mut shown);
        }
        if self.again > 0 {
            let dim = palette.dim();
            let (of, have) =
                (text::count(self.again, "more scenario"), if self.again == 1 { "shows" } else { "show" });
            let _ = writeln!(shown, "{dim}{of} {have} the same causes (-v prints each){dim:#}\n");
        }
        self.not_played(run, &mut shown);
        let complaints = run.problems();
        for complaint in &complaints {
            let style = palette.severity(Severity::Fail);
            let _ = writeln!(shown, "{style}{}{style:#}: {}", complaint.name, complaint.text);
        }
        if !complaints.is_empty() {
            shown.push('\n');
        }
        let time = run.end.as_ref().map_or(0, |end| end.time_us);
        let time = if time > 0 { format!(" in {}", text::time(time)) } else { String::new() };
        let bold = palette.bold();
        let _ = writeln!(shown, "{bold}{}{bold:#}{time}", tally::counts_text(run));
        let early = run.results.iter().filter(|r| r.unreached > 0).count();
        if early > 0 {
            let steps = run.results.iter().map(|r| r.unreached).sum();
            let (early, steps) = (text::count(early, "scenario"), text::count(steps, "later step"));
            let _ = writeln!(shown, "{early} ended early: {steps} not judged");
        }
        let _ = writeln!(shown, "{}", tally::meaning(run));
        self.show(&shown)
    }

    fn not_played(&self, run: &Run, shown: &mut String) {
        let reasons = tally::not_played(&run.results);
        if self.verbosity == Verbosity::Quiet || reasons.is_empty() {
            return;
        }
        let dim = self.palette.dim();
        shown.push_str("not applicable\n");
        for (reason, number) in reasons.iter().take(MAX_REASONS) {
            let reason = text::clip(&text::clean(reason), MAX_REASON_LENGTH);
            let _ = writeln!(shown, "  {number:>5}  {dim}{reason}{dim:#}");
        }
        if let Some(more @ 1..) = reasons.len().checked_sub(MAX_REASONS) {
            let _ = writeln!(shown, "         {dim}and {more} more reasons (-v prints them){dim:#}");
        }
        shown.push('\n');
    }

    /// Shows the causes, one per line. Without `-v`, all notes share one line; in quiet mode, they are omitted.
    fn index(&self, run: &Run, shown: &mut String) {
        let palette = self.palette;
        let verbose = self.verbosity == Verbosity::Verbose;
        let (causes, noted): (Vec<_>, Vec<_>) = tally::groups(&run.results, self.strict)
            .into_iter()
            .partition(|group| verbose || group.shown(self.strict) > Severity::Note);
        let noted = if self.verbosity == Verbosity::Quiet { Vec::new() } else { noted };
        let bare = tally::red_without_finding(&run.results, self.strict);
        if causes.is_empty() && noted.is_empty() && bare.is_empty() {
            return;
        }
        shown.push_str("causes\n");
        let most = if verbose { usize::MAX } else { MAX_CAUSES };
        for group in causes.iter().take(most) {
            let severity = group.shown(self.strict);
            let (style, label) = (palette.severity(severity), group.label_for(self.strict));
            let (name, of) = (
                text::clip_middle(&group.name(), MAX_CAUSE_LENGTH),
                text::count(group.scenarios.len(), "scenario"),
            );
            let _ = writeln!(shown, "  {style}{label}{style:#} {name}: {of}: {}", named(&group.scenarios));
            let part = |s: &[&str]| verbose && s.len() < group.scenarios.len() && severity > Severity::Note;
            for (seen, scenarios) in group.repeated.iter().filter(|(_, s)| part(s)) {
                let (seen, of) = (
                    text::clip(&text::clean(seen), MAX_SEEN_LENGTH),
                    text::count(scenarios.len(), "scenario"),
                );
                let _ = writeln!(shown, "      in {of}: {seen}: {}", named(scenarios));
            }
        }
        if let Some(more @ 1..) = causes.len().checked_sub(most) {
            let _ = writeln!(shown, "       and {} (-v prints them)", text::count(more, "more cause"));
        }
        for ((verdict, reason), results) in bare {
            let label = verdict.label();
            let style = palette.severity(Severity::Fail);
            let (reason, of) =
                (text::clip(&text::clean(reason), MAX_CAUSE_LENGTH), text::count(results.len(), "scenario"));
            let names: Vec<&str> = results.iter().map(|result| result.scenario.as_str()).collect();
            let reason = if reason.is_empty() { reason } else { reason + ": " };
            let _ = writeln!(shown, "  {style}{label}{style:#} {reason}{of}: {}", named(&names));
        }
        if !noted.is_empty() {
            let (style, label) = (palette.severity(Severity::Note), Severity::Note.label());
            let each = |g: &tally::RequirementTally<'_>| {
                format!("{} ({})", text::clean(g.requirement), g.scenarios.len())
            };
            let ids: Vec<String> = noted.iter().take(MAX_NOTED_REQUIREMENTS).map(each).collect();
            let more = noted.len().saturating_sub(MAX_NOTED_REQUIREMENTS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let _ = writeln!(shown, "  {style}{label}{style:#} {}{more} (-v shows them)", ids.join(", "));
        }
        shown.push('\n');
    }

    /// Returns whether the scenario is unjudged for a reason that was printed before, and records the reason. The index counts these
    /// scenarios.
    fn unjudged_before(&mut self, result: &ScenarioResult) -> bool {
        let bare = result.verdict == Verdict::Unjudged
            && result.findings.is_empty()
            && self.verbosity < Verbosity::Verbose;
        let Some(reason) = result.reason.as_ref().filter(|_| bare) else { return false };
        !self.unjudged.insert(tally::reason_shape(reason))
    }

    /// Returns whether all findings of a result were shown before, and records them as shown. Findings with equal keys usually have the
    /// same cause, so one transcript is enough.
    fn shown_before(&mut self, result: &ScenarioResult) -> bool {
        let cause_key = |judged: &JudgedFinding| {
            let Finding { requirement, seen, place, .. } = &judged.finding;
            // Crashes without a known location may have different causes, so the transcript of each scenario is shown.
            let bare =
                requirement == NO_CRASH && place.is_none() && seen.ends_with(|c: char| c.is_ascii_digit());
            let key = if bare { result.scenario.clone() } else { key(&judged.finding) };
            (requirement.clone(), key, judged.valid_input)
        };
        let is_shown = |(requirement, key, valid): &(String, String, bool)| {
            let Some(shown) = self.shown.get(requirement) else { return false };
            // The first example with valid input is shown even if an example with invalid input was shown before.
            let is_enough = requirement != NO_CRASH && shown.len() >= MAX_BLOCKS_PER_REQUIREMENT;
            shown.iter().any(|(other, with)| (other == key || is_enough) && (*with || !valid))
        };
        // Notes are ignored here, unless the result has no other findings.
        let worst = result.findings.iter().map(|judged| judged.severity).max();
        let least = worst.map_or(Severity::Note, |worst| worst.min(Severity::Warn));
        let causes = result.findings.iter().filter(|judged| judged.severity >= least).map(cause_key);
        let mut causes: Vec<_> = causes.collect();
        let is_bare = causes.is_empty();
        causes.retain(|cause| !is_shown(cause));
        let again = causes.is_empty() && !is_bare;
        for (requirement, key, valid) in causes {
            self.shown.entry(requirement).or_default().insert((key, valid));
        }
        again && result.verdict != Verdict::Unjudged
    }

    /// Shows a run that has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if writing fails.
    pub(crate) fn whole(&mut self, run: &Run) -> io::Result<()> {
        self.start(&run.header)?;
        let mut index = String::new();
        self.index(run, &mut index);
        self.indexed = true;
        self.show(&index)?;
        run.results.iter().try_for_each(|result| self.scenario_done(result))?;
        self.finish(run)
    }

    /// Writes text while the progress bar is hidden.
    fn show(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        self.bar.suspend(|| out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }
}
