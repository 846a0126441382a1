//! `bisect`: the same scenarios on several versions.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Parser;
use pmi_judge::event::Event;
use pmi_judge::verdict::{RunHeader, ScenarioResult, Verdict};
use pmi_runner::run::Observer;

use super::args::{Bisect, Cli};
use super::exit::{INTERRUPTED, UNJUDGED};
use super::play::{choose, ends_on_signals};
use super::read::named_run;
use super::tell::say;
use crate::report::{Entry, History};

/// What is told of a run is told when all are over.
struct Unheard;

impl Observer for Unheard {
    fn begin(&mut self, _: &RunHeader) {}
    fn event(&mut self, _: &str, _: &Event) {}
    fn result(&mut self, _: &ScenarioResult) {}
}

pub(super) fn bisect(args: &Bisect) -> anyhow::Result<u8> {
    let versions = args.logs.len().max(args.server.len());
    anyhow::ensure!(versions > 1, "name two versions at least, the oldest first");
    let mut entries = Vec::new();
    for log in &args.logs {
        entries.push(named_run(log)?);
    }
    if !args.server.is_empty() {
        let Some(played) = played(args)? else { return Ok(INTERRUPTED) };
        entries = played;
    }
    let unjudged = |entry: &&Entry| {
        let none =
            |result: &ScenarioResult| matches!(result.verdict, Verdict::Unjudged | Verdict::NotApplicable);
        entry.run.results.iter().all(none)
    };
    if let Some(entry) = entries.iter().find(unjudged) {
        let reason = entry.run.results.iter().find_map(|result| result.reason.as_deref());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        writeln!(anstream::stderr(), "error: of {}, nothing could be judged{reason}", entry.name)?;
        return Ok(UNJUDGED);
    }
    let history = History::of(&entries);
    if args.json {
        say(&format!("{:#}\n", serde_json::to_value(&history)?))?;
    } else {
        let mut text = Vec::new();
        history.write_to(&mut text, args.verbose)?;
        say(&String::from_utf8_lossy(&text))?;
    }
    Ok(u8::from(history.got_worse()))
}

/// Plays the suite on each; `None` if that was interrupted.
fn played(args: &Bisect) -> anyhow::Result<Option<Vec<Entry>>> {
    let interrupted = ends_on_signals()?;
    let mut entries = Vec::new();
    for server in &args.server {
        let timeout = args.timeout.as_secs_f64().to_string();
        let mut words =
            vec!["pmi-conform".to_owned(), format!("--server={server}"), format!("--timeout={timeout}")];
        words.extend(args.filter.iter().map(|pattern| format!("--filter={pattern}")));
        words.extend(args.requirement.iter().map(|id| format!("--requirement={id}")));
        words.extend(args.dialect.iter().map(|dialect| format!("--dialect={dialect}")));
        words.extend(args.jobs.iter().map(|jobs| format!("--jobs={jobs}")));
        let play = Cli::try_parse_from(words)?.play;
        writeln!(anstream::stderr(), "playing {server} ({} of {})", entries.len() + 1, args.server.len())?;
        let Some(prepared) = choose(&play)?.prepare(&play, &Arc::clone(&interrupted))? else {
            return Ok(None);
        };
        let (run, torn_down) = prepared.play(&mut Unheard)?;
        torn_down?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let label = &run.header.server;
        let name = match &run.header.implementation_version {
            Some(version) if !label.contains(version.as_str()) => format!("{label}, version {version}"),
            _ => label.clone(),
        };
        entries.push(Entry { name, run });
    }
    Ok(Some(entries))
}
