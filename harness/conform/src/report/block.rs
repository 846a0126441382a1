//! The complete result of a scenario, as shown for a failure on the terminal and in the text of a JUnit test case.

use std::fmt::{self, Display, Formatter};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use similar::{ChangeTag, TextDiffConfig};

use super::event_text::{EventDescription, MAX_EVENT_BYTES, describe};
use super::{tally, text};
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::evidence::evidence;
use pmi_judge::verdict::{Attempts, JudgedFinding, ScenarioResult, Strictness, UnreachedStep, Verdict};
use pmi_judge::{Finding, PartyKind, Severity};
use pmi_wire::Proc;

/// Maximum number of findings that are shown. An implementation can break the same requirement in every message. The log contains all
/// findings.
pub(super) const MAX_FINDINGS: usize = 10;
/// Maximum number of events in a transcript, besides those that explain findings.
const MAX_EVENTS: usize = 60;
/// Maximum number of bytes shown for a message that explains no finding.
const MAX_MESSAGE_BYTES: usize = 2 * MAX_EVENT_BYTES;
/// Maximum number of lines to show from the implementation's output.
const MAX_OUTPUT_LINES: usize = 20;
/// Maximum length of a finding's `expected` or `seen` field, in characters.
const MAX_TEXT_LENGTH: usize = 300;
/// Styles for the terminal. Without colours, all styles are empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    pub(super) color: bool,
}

impl Palette {
    pub(super) const PLAIN: Self = Self { color: false };

    pub(super) fn severity(self, severity: Severity) -> Style {
        self.of(match severity {
            Severity::Note => AnsiColor::Cyan.on_default(),
            Severity::Warn => AnsiColor::Yellow.on_default().bold(),
            Severity::Fail => AnsiColor::Red.on_default().bold(),
        })
    }

    pub(super) fn result(self, result: &ScenarioResult, strict: Strictness) -> Style {
        match tally::verdict(result, strict) {
            _ if result.is_known() => self.of(AnsiColor::Magenta.on_default()),
            Verdict::Pass => self.of(AnsiColor::Green.on_default()),
            Verdict::NotApplicable => self.dim(),
            Verdict::Note => self.severity(Severity::Note),
            Verdict::Warn | Verdict::Flaky => self.severity(Severity::Warn),
            Verdict::Fail | Verdict::Crashed | Verdict::Hung | Verdict::Unjudged => {
                self.severity(Severity::Fail)
            }
        }
    }

    pub(super) fn bold(self) -> Style {
        self.of(Style::new().bold())
    }

    pub(super) fn dim(self) -> Style {
        self.of(Style::new().dimmed())
    }

    fn differs(self, expected: bool) -> Style {
        self.of(if expected { AnsiColor::Green } else { AnsiColor::Red }.on_default().bold().underline())
    }

    fn of(self, style: Style) -> Style {
        if self.color { style } else { Style::new() }
    }
}

/// The result of a scenario, without the line that states its verdict and name.
pub(super) struct ResultBlock<'a> {
    pub(super) result: &'a ScenarioResult,
    pub(super) palette: Palette,
    /// True to list the steps that were not judged, instead of counting them.
    pub(super) verbose: bool,
    pub(super) strict: Strictness,
    /// The option that writes the omitted events to a log, as named in messages.
    pub(super) log: &'static str,
}

/// The option that writes the log of a run, as named in messages.
pub(crate) const LOG_OPTION: &str = "--report ndjson=FILE";

impl Display for ResultBlock<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { result, palette, verbose, strict, .. } = self;
        let (summary, dim) = (text::clean(text::first_sentence(&result.summary)), palette.dim());
        if !summary.is_empty() {
            writeln!(f, "  {dim}{summary}{dim:#}")?;
        }
        if let Some(reason) = &result.reason {
            writeln!(f, "  {}", text::clean(reason))?;
        }
        for judged in result.findings.iter().take(MAX_FINDINGS) {
            finding(f, *palette, result, judged, *strict)?;
        }
        if let Some(more @ 1..) = result.findings.len().checked_sub(MAX_FINDINGS) {
            writeln!(f, "  and {} in the log", text::count(more, "more finding"))?;
        }
        for line in consequences(result) {
            writeln!(f, "  as a consequence  {line}")?;
        }
        if result.unreached > 0 {
            writeln!(
                f,
                "  not reached and therefore not judged: {}",
                text::count(result.unreached, "later step")
            )?;
            let steps = if *verbose { &result.unreached_steps[..] } else { &[] };
            for line in steps.iter().map(unreached) {
                writeln!(f, "    {line}")?;
            }
        }
        self.transcript(f)?;
        self.output(f)?;
        if let Some(exit) = result.exit {
            writeln!(f, "  job: {exit}")?;
        }
        if result.replay.is_empty() {
            return Ok(());
        }
        writeln!(f, "  play it again{}: {}", replay_note(result), text::clean(&result.replay))
    }
}

/// Returns the note that follows "play it again" and states how often the scenario was red. Returns an empty string if every attempt was
/// red.
pub(super) fn replay_note(result: &ScenarioResult) -> String {
    let by_chance = result.attempts.as_ref().filter(|attempts| attempts.red < attempts.played);
    let words = |a: &Attempts| format!(" (red in {} of {} attempts, so it may pass)", a.red, a.played);
    by_chance.map(words).unwrap_or_default()
}

/// Formats the consequences of the first finding, one line each, as in `rfc13.barrier.released: the end of the connection (the server, to
/// rank 1)`.
pub(super) fn consequences(result: &ScenarioResult) -> impl Iterator<Item = String> {
    result.consequences.iter().take(MAX_FINDINGS).map(|judged| {
        let (id, seen) = (text::clean(&judged.finding.requirement), text::clean(&judged.finding.seen));
        text::clip(&format!("{id}: {seen} ({})", party_and_process(judged)), MAX_TEXT_LENGTH)
    })
}

/// Formats a step that was not judged, as in `line 12: 0  send    cmd=finalize`.
pub(super) fn unreached(step: &UnreachedStep) -> String {
    text::clip(&format!("line {}: {}", step.line, text::clean(&step.step)), MAX_TEXT_LENGTH)
}

/// Formats the first line of a finding, as in `rfc13.put.unique (MUST): TEXT OF THE REQUIREMENT`. For a crash, the observed behaviour
/// replaces the text. The level is omitted if the finding is less severe than the level implies.
pub(super) fn headline(judged: &JudgedFinding) -> String {
    let id = text::clean(&judged.finding.requirement);
    if id == NO_CRASH {
        return format!("{id}: {}", text::clean(&judged.finding.seen));
    }
    let level =
        judged.level.filter(|_| judged.finding.max_severity.is_none_or(|most| most > judged.severity));
    let level = level.map(|level| format!(" ({level})")).unwrap_or_default();
    let text = text::clean(&judged.text);
    if text.is_empty() { format!("{id}{level}") } else { format!("{id}{level}: {text}") }
}

/// Formats the party and the process, as in `the server, to rank 1`.
pub(super) fn party_and_process(judged: &JudgedFinding) -> String {
    let rank = |p: Proc| if p.group == 0 { format!("rank {p}") } else { p.to_string() };
    match (judged.finding.party, judged.finding.proc) {
        (PartyKind::Server, None) => "the server".to_owned(),
        (PartyKind::Server, Some(p)) => format!("the server, to {}", rank(p)),
        (PartyKind::Client, None) => "the client".to_owned(),
        (PartyKind::Client, Some(p)) => format!("the client, {}", rank(p)),
        (PartyKind::Library, None) => "the library".to_owned(),
        (PartyKind::Library, Some(p)) => format!("the library, at {}", rank(p)),
    }
}

/// Formats the location of a finding: `FILE:LINE`, or `FILE` if the line is unknown.
pub(super) fn place(result: &ScenarioResult, judged: &JudgedFinding) -> String {
    let path = text::clean(&result.path);
    if judged.finding.line == 0 { path } else { format!("{path}:{}", judged.finding.line) }
}

fn finding(
    f: &mut Formatter<'_>,
    palette: Palette,
    result: &ScenarioResult,
    judged: &JudgedFinding,
    strict: Strictness,
) -> fmt::Result {
    let is_flaky = result.verdict == Verdict::Flaky;
    let (style, bold) = (palette.severity(tally::shown(judged, is_flaky, strict)), palette.bold());
    let label = tally::finding_label(judged, is_flaky, strict);
    writeln!(f, "  {style}{label}{style:#} {bold}{}{bold:#}", headline(judged))?;
    let (expected, seen) = highlight_differences(palette, &judged.finding.expected, &judged.finding.seen);
    writeln!(f, "    expected  {expected}")?;
    writeln!(f, "    seen      {seen}")?;
    writeln!(f, "    at        {}", place(result, judged))?;
    if !judged.step.is_empty() {
        writeln!(f, "    step      {}", text::clean(&judged.step))?;
    }
    writeln!(f, "    by        {}", party_and_process(judged))?;
    if judged.valid_input {
        writeln!(f, "    input     valid: all messages sent before the finding are allowed")?;
    }
    if !judged.help.is_empty() {
        writeln!(f, "    help      {}", text::clean(&judged.help))?;
    }
    if let Some(reason) = &judged.deviation {
        writeln!(f, "    known     {}", text::clean(reason))?;
    }
    Ok(())
}

/// Returns `expected` and `seen` with their differences highlighted.
fn highlight_differences(palette: Palette, expected: &str, seen: &str) -> (String, String) {
    let (expected, seen) = text::window(expected, seen, MAX_TEXT_LENGTH);
    if !palette.color {
        return (expected, seen);
    }
    let style = |pieces: Vec<TextPiece>, expected| {
        let style = palette.differs(expected);
        let shown = pieces.into_iter().map(|piece| match piece.differs {
            true => format!("{style}{}{style:#}", piece.text),
            false => piece.text,
        });
        shown.collect::<String>()
    };
    let (left, right) = differences(&expected, &seen);
    (style(left, true), style(right, false))
}

/// A segment of a finding's `expected` or `seen` field.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct TextPiece {
    pub(super) text: String,
    pub(super) differs: bool,
}

/// Splits `expected` and `seen` into pieces that are equal and pieces that differ.
pub(super) fn differences(expected: &str, seen: &str) -> (Vec<TextPiece>, Vec<TextPiece>) {
    let piece = |text: &str, differs| TextPiece { text: text.to_owned(), differs };
    let (old, new) = (tokens(expected), tokens(seen));
    let diff = TextDiffConfig::default().diff_slices::<str>(&old, &new);
    // If the two texts have little in common, nothing is highlighted, because highlighting almost everything would not help.
    if diff.ratio() < 0.5 {
        return (vec![piece(expected, false)], vec![piece(seen, false)]);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for change in diff.iter_all_changes() {
        let token = change.value();
        // A finding quotes observed messages but not expected messages, so quotation marks do not count as differences.
        let differs = token != "\"";
        match change.tag() {
            ChangeTag::Equal => {
                left.push(piece(token, false));
                right.push(piece(token, false));
            }
            ChangeTag::Delete => left.push(piece(token, differs)),
            ChangeTag::Insert => right.push(piece(token, differs)),
        }
    }
    (left, right)
}

/// Splits text into keys, values and separators, so that each difference is a whole value.
fn tokens(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '=', '"'])
        .flat_map(|piece| {
            let at = piece.len() - usize::from(piece.ends_with([' ', '=', '"']));
            [&piece[..at], &piece[at..]]
        })
        .filter(|token| !token.is_empty())
        .collect()
}

impl ResultBlock<'_> {
    fn transcript(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let events = &self.result.last_events;
        let evidence = evidence(self.result.findings.iter().map(|judged| &judged.finding), events);
        let limit = |e: &Event| if evidence.contains(&e.seq) { usize::MAX } else { MAX_MESSAGE_BYTES };
        let mut shown: Vec<_> = events.iter().filter_map(|e| Some((e, describe(e, limit(e))?))).collect();
        if shown.is_empty() {
            return Ok(());
        }
        // A finding about a missing event, or about the end of a process, has no event in the transcript. For such a
        // finding, the last event of its process is marked or, if there is none, the last event of any process.
        let marked = |finding: &Finding| {
            let before = || shown.iter().rev().filter(|(event, _)| event.seq <= finding.seq);
            let own = before().find(|(event, text)| event.seq == finding.seq || text.proc == finding.proc);
            own.or_else(|| before().next()).map(|(event, _)| event.seq)
        };
        let seqs: Vec<_> = self.result.findings.iter().filter_map(|judged| marked(&judged.finding)).collect();
        let (all, mut index) = (shown.len(), 0);
        shown.retain(|(event, _)| {
            index += 1;
            index + MAX_EVENTS > all || evidence.contains(&event.seq)
        });
        let (bold, dim) = (self.palette.bold(), self.palette.dim());
        writeln!(f, "  {bold}last events{bold:#} (-> to the server, <- from the server, > finding)")?;
        let left_out = self.result.left_out + all - shown.len();
        if left_out > 0 {
            let others = text::count(left_out, "other event");
            let option = self.log;
            writeln!(f, "    {dim}{others} left out; see the log ({option}){dim:#}")?;
        }
        if let Some(words) = &self.result.launch {
            writeln!(f, "    {dim}before the launcher's command:{dim:#} {}", text::clean(words))?;
        }
        self.events(f, &shown, &seqs)?;
        for event in &self.result.last_events {
            let EventKind::Replayed { other_jobs: beside, .. } = &event.kind else { continue };
            for other in beside.iter().filter(|other| !other.events.is_empty()) {
                let events = other.events.iter().filter_map(|e| Some((e, describe(e, MAX_MESSAGE_BYTES)?)));
                let events: Vec<_> = events.collect();
                let events = &events[events.len().saturating_sub(MAX_EVENTS)..];
                writeln!(
                    f,
                    "  {bold}last events of the other job{bold:#}, {}",
                    text::clean(&other.scenario)
                )?;
                self.events(f, events, &[])?;
            }
        }
        Ok(())
    }

    fn events(
        &self,
        f: &mut Formatter<'_>,
        shown: &[(&Event, EventDescription<'_>)],
        seqs: &[u64],
    ) -> fmt::Result {
        let dim = self.palette.dim();
        let width = |get: fn(&(&Event, EventDescription)) -> usize| shown.iter().map(get).max().unwrap_or(0);
        let seq_width = width(|(e, _)| e.seq.to_string().len());
        let rank_width = width(|(_, description)| description.rank().len());
        for (event, description) in shown {
            let mark = if seqs.contains(&event.seq) { '>' } else { ' ' };
            let (seq, rank) = (event.seq, description.rank());
            let (arrow, what) = (description.direction.arrow(), &description.what);
            writeln!(f, "  {mark} {dim}{seq:>seq_width$}{dim:#}  {rank:>rank_width$} {arrow} {what}")?;
        }
        Ok(())
    }

    fn output(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lines = output_lines(self.result, MAX_OUTPUT_LINES, MAX_TEXT_LENGTH);
        lines.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Returns the last lines of the output, at most `count`, each cut to `length` characters. Equal consecutive lines count as one.
pub(super) fn output_lines(result: &ScenarioResult, count: usize, length: usize) -> Vec<String> {
    let lines = result.last_events.iter().filter_map(|event| match &event.kind {
        EventKind::Output { stderr, line, .. } => Some((if *stderr { "stderr" } else { "stdout" }, line)),
        _ => None,
    });
    let lines: Vec<_> = lines.collect();
    let runs: Vec<_> = lines.chunk_by(|one, other| one == other).collect();
    let last = runs[runs.len().saturating_sub(count)..].iter();
    last.map(|equal| {
        let (stream, line) = equal[0];
        let times = if equal.len() > 1 { format!(" ({} times)", equal.len()) } else { String::new() };
        format!("{stream}  {}{times}", text::output(&line.0, length))
    })
    .collect()
}
