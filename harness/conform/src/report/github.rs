//! Workflow commands of GitHub Actions, which appear as annotations of the run and its pull request.

use std::io::{self, Write};

use super::block::{headline, replay_note};
use super::run::Run;
use super::{tally, text};
use pmi_judge::Severity;

/// GitHub shows at most this number of errors, and of warnings, per step. Therefore findings are grouped by requirement, not by scenario.
const SHOWN: usize = 10;
/// Maximum number of characters of an expected or seen text. `LINE` limits any line of a message.
const PART: usize = 200;
const LINE: usize = 500;

pub(super) fn write(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    for group in tally::groups(&run.results) {
        let (result, judged) = group.first;
        let shown = group.shown(run.header.strict);
        if shown < Severity::Warn {
            continue;
        }
        let others = match group.scenarios.len() {
            1 => String::new(),
            n => format!(", and in {}", text::count(n - 1, "other scenario")),
        };
        let (expected, seen) = text::window(&judged.finding.expected, &judged.finding.seen, PART);
        let message = [
            headline(judged),
            format!("expected: {expected}"),
            format!("seen: {seen}"),
            format!("in {}{others}", text::clean(&result.scenario)),
            format!("help: {}", text::clean(&judged.help)),
            format!("play it again{}: {}", replay_note(result), text::clean(&result.replay)),
        ];
        let lines: Vec<String> =
            message.iter().filter(|line| *line != "help: ").map(|line| text::clip(line, LINE)).collect();
        let message = lines.join("\n");
        let title = text::clip(&format!("{} {}", group.label_for(run.header.strict), group.name()), PART);
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
        for (title, message, place) in all.iter().take(SHOWN) {
            let place = place
                .as_ref()
                .map(|(file, line)| format!(",file={},line={line}", property(&text::clean(file))));
            let (place, title) = (place.unwrap_or_default(), property(&text::clean(title)));
            writeln!(out, "::{kind} title={title}{place}::{}", data(message))?;
        }
    }
    let more = errors.len().saturating_sub(SHOWN) + warnings.len().saturating_sub(SHOWN);
    if more > 0 {
        writeln!(out, "::notice title=pmi-conform::{more} more are in the reports")?;
    }
    // At the beginning of a line, the text could be interpreted as another command.
    writeln!(out, "{}: {}", run.title(), tally::meaning(run))
}

/// Escapes the text of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property, which a comma or a colon would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
