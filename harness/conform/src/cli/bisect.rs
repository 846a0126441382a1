//! `report bisect`: plays the same scenarios on several versions.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use super::args::{Bisect, Cli};
use super::exit::{INTERRUPTED, UNJUDGED};
use super::output::print_result;
use super::play::{ends_on_signals, select_scenarios};
use super::progress::RunProgress;
use super::read::named_run;
use crate::report::{NamedRun, Run, VersionHistory};

pub(super) fn bisect(args: &Bisect) -> anyhow::Result<u8> {
    let versions = args.logs.len().max(args.server.len());
    anyhow::ensure!(versions > 1, "name at least two versions, the oldest first");
    let mut entries = Vec::new();
    for log in &args.logs {
        entries.push(named_run(log)?);
    }
    if !args.server.is_empty() {
        let Some(played) = play_versions(args)? else { return Ok(INTERRUPTED) };
        entries = played;
    }
    let unjudged = |entry: &&NamedRun| entry.run.results.iter().all(|result| !result.verdict.is_judged());
    if let Some(entry) = entries.iter().find(unjudged) {
        let reason = entry.run.results.iter().find_map(|result| result.reason.as_deref());
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        writeln!(anstream::stderr(), "error: {}: no scenario could be judged{reason}", entry.name)?;
        return Ok(UNJUDGED);
    }
    let history = VersionHistory::of(&entries);
    print_result(args.json, &history, |out| history.write_to(out, args.verbose))?;
    Ok(u8::from(history.got_worse()))
}

/// Plays the selected scenarios on each version, and then replays those with differing results `--repeat` times on each version. Returns
/// `None` if interrupted.
fn play_versions(args: &Bisect) -> anyhow::Result<Option<Vec<NamedRun>>> {
    let interrupted = ends_on_signals()?;
    let mut words: Vec<String> = args.filter.iter().map(|pattern| format!("--filter={pattern}")).collect();
    words.extend(args.requirement.iter().map(|id| format!("--requirement={id}")));
    let mut entries = Vec::new();
    for (server, number) in args.server.iter().zip(1..) {
        let what = format!("playing {server} ({number} of {})", args.server.len());
        let Some(run) = play(args, server, &words, &what, &interrupted)? else { return Ok(None) };
        let label = &run.header.server;
        let name = match &run.header.implementation_version {
            Some(version) if !label.contains(version.as_str()) => format!("{label}, version {version}"),
            _ => label.clone(),
        };
        entries.push(NamedRun { name, run });
    }
    let differing = VersionHistory::differing(&entries);
    if differing.is_empty() || args.repeat == 1 {
        return Ok(Some(entries));
    }
    let mut words: Vec<String> = differing.iter().map(|name| format!("--filter=={name}")).collect();
    words.push(format!("--repeat={}", args.repeat));
    for ((server, entry), number) in args.server.iter().zip(&mut entries).zip(1..) {
        let what = format!(
            "playing differing scenarios {} times on {server} ({number} of {})",
            args.repeat,
            args.server.len()
        );
        let Some(run) = play(args, server, &words, &what, &interrupted)? else { return Ok(None) };
        for again in run.results {
            let of_this = entry.run.results.iter_mut().find(|result| result.scenario == again.scenario);
            of_this.into_iter().for_each(|result| *result = again.clone());
        }
    }
    Ok(Some(entries))
}

/// Plays the selected scenarios on one version; `selection` contains the options that select them. Returns `None` if interrupted.
fn play(
    args: &Bisect,
    server: &str,
    selection: &[String],
    what: &str,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<Option<Run>> {
    let timeout = args.timeout.as_secs_f64().to_string();
    let mut words =
        vec!["pmi-conform".to_owned(), format!("--server={server}"), format!("--timeout={timeout}")];
    words.extend_from_slice(selection);
    words.extend(args.dialect.iter().map(|dialect| format!("--dialect={dialect}")));
    words.extend(args.jobs.iter().map(|jobs| format!("--jobs={jobs}")));
    let play = Cli::try_parse_from(words)?.play;
    let Some(prepared) = select_scenarios(&play)?.prepare(&play, interrupted)? else { return Ok(None) };
    let (run, torn_down) = prepared.play(&mut RunProgress::new(what, "scenarios"))?;
    torn_down?;
    Ok(Some(run).filter(|_| !interrupted.load(Ordering::Relaxed)))
}
