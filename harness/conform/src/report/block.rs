//! A result in full: what terminals show of a failure, and what JUnit carries as its text.

use std::fmt::{self, Display, Formatter};

use anstyle::{AnsiColor, Style};
use similar::{ChangeTag, TextDiffConfig};

use super::{tally, text};
use pmi_judge::event::{Ending, Event, Exit, SilenceProof, What};
use pmi_judge::verdict::{Judged, ScenarioResult, Verdict};
use pmi_judge::{Severity, Side};
use pmi_wire::Proc;

/// An implementation can break the same rule without end; the log has the rest.
pub(super) const FINDINGS: usize = 10;
/// Of a transcript.
const EVENTS: usize = 60;
/// Of what the implementation printed.
const OUTPUT: usize = 20;
/// Characters of an expected or seen text.
const TEXT: usize = 300;
/// Bytes of an event.
const BYTES: usize = 120;

/// Colours, or none.
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

    pub(super) fn result(self, result: &ScenarioResult) -> Style {
        match result.verdict {
            _ if tally::is_known(result) => self.of(AnsiColor::Magenta.on_default()),
            Verdict::Pass => self.of(AnsiColor::Green.on_default()),
            Verdict::NotApplicable => self.dim(),
            Verdict::Note => self.severity(Severity::Note),
            Verdict::Warn => self.severity(Severity::Warn),
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

/// Everything about a result but its first line.
pub(super) struct Block<'a> {
    pub(super) result: &'a ScenarioResult,
    pub(super) palette: Palette,
}

impl Display for Block<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { result, palette } = self;
        if let Some(reason) = &result.reason {
            writeln!(f, "  {}", text::clean(reason))?;
        }
        for judged in result.findings.iter().take(FINDINGS) {
            finding(f, *palette, result, judged)?;
        }
        if let Some(more @ 1..) = result.findings.len().checked_sub(FINDINGS) {
            writeln!(f, "  and {} in the log", text::count(more, "more finding"))?;
        }
        if result.unreached > 0 {
            writeln!(f, "  not reached, and so not judged: {}", text::count(result.unreached, "later step"))?;
        }
        self.transcript(f)?;
        self.output(f)?;
        if let Some(exit) = result.exit {
            writeln!(f, "  job: {exit}")?;
        }
        if result.replay.is_empty() {
            return Ok(());
        }
        writeln!(f, "  play it again: {}", text::clean(&result.replay))
    }
}

/// `rfc13.put.unique (MUST): its text`. The level is left out where the finding counts for less.
pub(super) fn headline(judged: &Judged) -> String {
    let id = text::clean(&judged.finding.requirement);
    let level = judged.level.filter(|_| judged.finding.at_most.is_none_or(|most| most > judged.severity));
    let level = level.map(|level| format!(" ({level})")).unwrap_or_default();
    let text = text::clean(&judged.text);
    if text.is_empty() { format!("{id}{level}") } else { format!("{id}{level}: {text}") }
}

/// `the server, to rank 1`.
pub(super) fn who(judged: &Judged) -> String {
    let rank = |p: Proc| if p.group == 0 { format!("rank {p}") } else { p.to_string() };
    match (judged.finding.party, judged.finding.proc) {
        (Side::Server, None) => "the server".to_owned(),
        (Side::Server, Some(p)) => format!("the server, to {}", rank(p)),
        (Side::Client, None) => "the client".to_owned(),
        (Side::Client, Some(p)) => format!("the client, {}", rank(p)),
        (Side::Library, None) => "the library".to_owned(),
        (Side::Library, Some(p)) => format!("the library, at {}", rank(p)),
    }
}

/// `FILE:LINE`.
pub(super) fn place(result: &ScenarioResult, judged: &Judged) -> String {
    let path = text::clean(&result.path);
    if judged.finding.line == 0 { path } else { format!("{path}:{}", judged.finding.line) }
}

fn finding(f: &mut Formatter<'_>, palette: Palette, result: &ScenarioResult, judged: &Judged) -> fmt::Result {
    let (style, bold) = (palette.severity(judged.severity), palette.bold());
    let label = tally::severity(judged.severity);
    writeln!(f, "  {style}{label}{style:#} {bold}{}{bold:#}", headline(judged))?;
    let (expected, seen) = marked(palette, &judged.finding.expected, &judged.finding.seen);
    writeln!(f, "    expected  {expected}")?;
    writeln!(f, "    seen      {seen}")?;
    writeln!(f, "    at        {}", place(result, judged))?;
    if !judged.step.is_empty() {
        writeln!(f, "    step      {}", text::clean(&judged.step))?;
    }
    writeln!(f, "    by        {}", who(judged))?;
    if let Some(reason) = &judged.deviation {
        writeln!(f, "    known     {}", text::clean(reason))?;
    }
    Ok(())
}

/// Expected and seen, their differences marked by colours.
fn marked(palette: Palette, expected: &str, seen: &str) -> (String, String) {
    let (expected, seen) = text::window(expected, seen, TEXT);
    if !palette.color {
        return (expected, seen);
    }
    let (old, new) = (tokens(&expected), tokens(&seen));
    let diff = TextDiffConfig::default().diff_slices::<str>(&old, &new);
    // A sentence against a message: everything differs, and marking it all says nothing.
    if diff.ratio() < 0.5 {
        return (expected, seen);
    }
    let (mut left, mut right) = (String::new(), String::new());
    for change in diff.iter_all_changes() {
        let token = change.value();
        let mark = |expected| {
            // Findings quote what they saw, not what they expected.
            let style = if token == "\"" { Style::new() } else { palette.differs(expected) };
            format!("{style}{token}{style:#}")
        };
        match change.tag() {
            ChangeTag::Equal => {
                left.push_str(token);
                right.push_str(token);
            }
            ChangeTag::Delete => left.push_str(&mark(true)),
            ChangeTag::Insert => right.push_str(&mark(false)),
        }
    }
    (left, right)
}

/// Keys, values and what stands between them, so that a difference is a whole value.
fn tokens(text: &str) -> Vec<&str> {
    text.split_inclusive([' ', '=', '"'])
        .flat_map(|piece| {
            let at = piece.len() - usize::from(piece.ends_with([' ', '=', '"']));
            [&piece[..at], &piece[at..]]
        })
        .filter(|token| !token.is_empty())
        .collect()
}

impl Block<'_> {
    fn transcript(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let shown: Vec<_> = self.result.last_events.iter().filter_map(|e| Some((e, told(e)?))).collect();
        if shown.is_empty() {
            return Ok(());
        }
        let seqs: Vec<_> = self.result.findings.iter().map(|j| j.finding.seq).collect();
        let shown = &shown[shown.len().saturating_sub(EVENTS)..];
        let (bold, dim) = (self.palette.bold(), self.palette.dim());
        writeln!(f, "  {bold}last events{bold:#} (-> to the server, <- from it, > what was found)")?;
        let width = |get: fn(&(&Event, Told)) -> usize| shown.iter().map(get).max().unwrap_or(0);
        let seq_width = width(|(e, _)| e.seq.to_string().len());
        let rank_width = width(|(_, told)| told.rank.len());
        for (event, Told { rank, arrow, what }) in shown {
            let mark = if seqs.contains(&event.seq) { '>' } else { ' ' };
            let seq = event.seq;
            writeln!(f, "  {mark} {dim}{seq:>seq_width$}{dim:#}  {rank:>rank_width$} {arrow} {what}")?;
        }
        Ok(())
    }

    fn output(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lines = self.result.last_events.iter().filter_map(|event| match &event.what {
            What::Output { stderr, line, .. } => Some((if *stderr { "stderr" } else { "stdout" }, line)),
            _ => None,
        });
        let lines: Vec<_> = lines.collect();
        for (stream, line) in &lines[lines.len().saturating_sub(OUTPUT)..] {
            writeln!(f, "  {stream}  {}", text::bytes(&line.0, TEXT))?;
        }
        Ok(())
    }
}

fn ended(exit: Option<Exit>) -> String {
    exit.map_or("it does not end".to_owned(), |exit| exit.to_string())
}

/// An event as a transcript tells it.
struct Told {
    rank: String,
    arrow: &'static str,
    what: String,
}

/// Output stands apart from the transcript: when it was written says little about when it arrives.
fn told(event: &Event) -> Option<Told> {
    let told = |proc: Option<&Proc>, arrow, what: String| {
        Some(Told { rank: proc.map(Proc::to_string).unwrap_or_default(), arrow, what })
    };
    match &event.what {
        What::Launched { ranks, nodes, .. } => {
            let ranks = text::count(*ranks as usize, "rank");
            let on = if *nodes == 0 {
                String::new()
            } else {
                format!(" on {}", text::count(*nodes as usize, "node"))
            };
            told(None, "  ", format!("launched: {ranks}{on}"))
        }
        What::Started { proc, bad_fd: Some(why), .. } => {
            told(Some(proc), "  ", format!("started without a connection: {}", text::clean(why)))
        }
        What::Started { proc, bad_fd: None, .. } => told(Some(proc), "  ", "started".to_owned()),
        What::Greeted { proc, said, told: answer } => {
            let (said, answer) = (text::bytes(&said.0, BYTES), text::bytes(&answer.0, BYTES));
            told(Some(proc), "  ", format!("connected by PMI_PORT: {said} answered {answer}"))
        }
        What::ToServer { proc, bytes } => told(Some(proc), "->", text::bytes(&bytes.0, BYTES)),
        What::FromServer { proc, bytes } => told(Some(proc), "<-", text::bytes(&bytes.0, BYTES)),
        What::ClosedByClient { proc } => told(Some(proc), "->", "(closed)".to_owned()),
        What::ClosedByServer { proc } => told(Some(proc), "<-", "(closed)".to_owned()),
        What::Ended { proc, ours: true } => told(Some(proc), "  ", "ended as the scenario says".to_owned()),
        What::Ended { proc, ours: false } => {
            told(Some(proc), "  ", "ended by the process manager".to_owned())
        }
        What::Exited { proc, exit } => told(Some(proc), "  ", exit.to_string()),
        What::NoAnswer { proc, proof } => {
            let proof = match proof {
                SilenceProof::Idle => "(nothing: the server has read all and waits)",
                SilenceProof::Timeout => "(nothing: the time was up)",
            };
            told(Some(proc), "<-", proof.to_owned())
        }
        What::FromProxy { proxy, text, held, .. } => {
            let held = if *held { "  (the scenario answers)" } else { "" };
            told(Some(&Proc::proxy(*proxy)), "=>", format!("{}{held}", text::bytes(&text.0, BYTES)))
        }
        What::ToProxy { proxy, text, .. } => {
            told(Some(&Proc::proxy(*proxy)), "<=", text::bytes(&text.0, BYTES))
        }
        What::ClosedByUpstream { proxy } => told(Some(&Proc::proxy(*proxy)), "<=", "(closed)".to_owned()),
        What::ProxyEnded { proxy, exit, .. } => {
            told(Some(&Proc::proxy(*proxy)), "  ", format!("ended: {exit}"))
        }
        What::Output { .. }
        | What::Expected(_)
        | What::Nothing { .. }
        | What::Abandoned(_)
        | What::NotReached { .. }
        | What::LibraryFile { .. }
        | What::Loaded { error: None, .. }
        | What::PlainRun(_)
        | What::BrokenMemory { .. }
        | What::OutputCompared { .. } => None,
        What::Reached { proc } => told(Some(proc), "  ", format!("(line {} of the scenario)", event.line)),
        What::Aborted { by, reason } => {
            told(Some(by), "  ", format!("makes the server end its group: {}", text::clean(reason)))
        }
        What::StillRunning { procs, .. } if procs.is_empty() => {
            told(None, "  ", "still running, and ended now: the launcher".to_owned())
        }
        What::Outlived { procs } => {
            let procs: Vec<String> = procs.iter().map(Proc::to_string).collect();
            told(None, "  ", format!("not recorded any more: rank {}", procs.join(", ")))
        }
        What::StillRunning { procs, proof } => {
            let procs: Vec<String> = procs.iter().map(Proc::to_string).collect();
            told(None, "  ", format!("still running, and ended now ({proof}): rank {}", procs.join(", ")))
        }
        What::JobStays { procs, names, .. } => {
            let ours = procs.iter().map(|p| format!("rank {p}"));
            let all: Vec<String> = ours.chain(names.iter().map(|name| text::clean(name))).collect();
            told(None, "  ", format!("the job still runs, and is ended now: {}", all.join(", ")))
        }
        What::JobEnding(Ending::Asked { exit }) => {
            told(None, "  ", format!("launcher, on SIGTERM: {}", ended(*exit)))
        }
        What::JobEnding(Ending::Cancelled { command, exit }) => {
            told(None, "  ", format!("cancelled by {}: {}", text::clean(command), ended(*exit)))
        }
        What::JobEnding(Ending::Killed { names }) => {
            told(None, "  ", format!("killed: {}", text::clean(&names.join(", "))))
        }
        What::LeftBehind { names } => {
            told(None, "  ", format!("left behind: {}", text::clean(&names.join(", "))))
        }
        What::Flooded { limit } => {
            told(None, "<-", format!("(more than {limit} bytes: nothing more was read)"))
        }
        What::Called { proc, function, arguments, .. } => {
            let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
            told(Some(proc), "()", text::clean(&format!("{function}({})", arguments.join(", "))))
        }
        What::NotCalled { proc, why } => told(Some(proc), "()", text::clean(why)),
        What::Returned { proc, function, returned } => {
            told(Some(proc), "()", text::clean(&format!("{function} = {}", returned.shown(function))))
        }
        What::Loaded { proc, error: Some(why) } => {
            told(Some(proc), "  ", text::clean(&format!("cannot load the library: {why}")))
        }
        What::JobExited { exit } => told(None, "  ", format!("launcher: {exit}")),
        What::Crashed { name, signal } => {
            told(None, "  ", format!("{} killed by signal {signal}", text::clean(name)))
        }
    }
}
