//! Workflow commands of GitHub Actions, which appear as annotations of the run and its pull request.

use std::io::{self, Write};

use super::block::{headline, replay_note};
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;

/// Maximum number of errors, and of warnings, that GitHub shows per step. Therefore findings are grouped by requirement, not by scenario.
const MAX_ANNOTATIONS: usize = 10;
/// Maximum length of a finding's `expected` or `seen` field, in characters. `MAX_LINE_LENGTH` limits each line of a message.
const MAX_PART_LENGTH: usize = 200;
const MAX_LINE_LENGTH: usize = 500;

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for group in tally::groups(&run.results, run.header.strict) {
        let (result, judged) = group.first;
        let shown = group.shown(run.header.strict);
        if shown < Severity::Warn {
            continue;
        }
        let others = match group.scenarios.len() {
            1 => String::new(),
            n => format!(", and in {}", text::count(n - 1, "other scenario")),
        };
        let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, MAX_PART_LENGTH);
        let message = [
            headline(judged),
            format!("expected: {expected}"),
            format!("seen: {seen}"),
            format!("in {}{others}", text::clean(&result.scenario)),
            format!("help: {}", text::clean(&judged.help)),
            format!("play it again{}: {}", replay_note(result), text::clean(&result.replay)),
        ];
        let lines: Vec<String> = message
            .iter()
            .filter(|line| *line != "help: ")
            .map(|line| text::clip(line, MAX_LINE_LENGTH))
            .collect();
        let message = lines.join("\n");
        let title = text::clip_middle(
            &format!("{} {}", group.label_for(run.header.strict), group.name()),
            MAX_PART_LENGTH,
        );
        (if shown == Severity::Fail { &mut errors } else { &mut warnings }).push((title, message, None));
    }
    for ((verdict, reason), results) in tally::red_without_finding(&run.results, run.header.strict) {
        let (scenario, others) = (text::clean(&results[0].scenario), results.len() - 1);
        let others = if others > 0 {
            format!(", and in {}", text::count(others, "other scenario"))
        } else {
            String::new()
        };
        let message = format!("{}\nin {scenario}{others}", text::clean(reason));
        errors.push((verdict.label().to_owned(), message.trim_start().to_owned(), None));
    }
    errors.extend(run.problems().into_iter().map(|c| (c.name, c.text, c.place)));

    for (kind, all) in [("error", &errors), ("warning", &warnings)] {
        for (title, message, place) in all.iter().take(MAX_ANNOTATIONS) {
            let place = place
                .as_ref()
                .map(|(file, line)| format!(",file={},line={line}", property(&text::clean(file))));
            let (place, title) = (place.unwrap_or_default(), property(&text::clean(title)));
            writeln!(out, "::{kind} title={title}{place}::{}", data(message))?;
        }
    }
    let more = errors.len().saturating_sub(MAX_ANNOTATIONS) + warnings.len().saturating_sub(MAX_ANNOTATIONS);
    if more > 0 {
        writeln!(out, "::notice title=pmi-conform::{more} more are in the reports")?;
    }
    // The title comes first, because text at the beginning of a line could be interpreted as a command.
    writeln!(out, "{}: {}", run.title(), tally::meaning(run))
}

/// Escapes the text of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a workflow command's property, which a comma or a colon would terminate.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
