//! What the user may write, and which command does it.

mod args;
mod bisect;
mod catalogue;
mod doctor;
mod files;
mod fuzz;
mod init;
mod judge;
mod measure;
mod mutants;
mod record;
mod select;
mod versions;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::report::{
    Comparison, Entry, Extra, Format, Keep, Part, Run, read_log, read_parts, render, write_compatibility,
    write_matrix,
};
use anyhow::Context;
use clap::{CommandFactory, Parser};
use pmi_judge::again;
use pmi_judge::compatibility::{self, Fit, Observations};
use pmi_judge::deviations::{Deviations, Version};
use pmi_judge::result::{self, Ran};
use pmi_runner::party::proxy as upstream;
use pmi_runner::party::server::UnknownProxy;
use pmi_runner::serve::{self, Caller, Remote, ServeOptions, WayIn};
use pmi_runner::suite::FilesError;
use pmi_scenario::suite::{Suite, SuiteError};

use args::{Again, Cli, Command, Compare, Compatibility, HydraUpstream, Matrix, Report, Serve};

/// Usage errors and mistakes in scenarios.
const USAGE: u8 = 2;
/// Nothing can be said about the implementation.
const UNJUDGED: u8 = 3;
/// The user has ended it.
const INTERRUPTED: u8 = 130;
/// What was looked at cannot be judged as it is.
const UNFIT: u8 = 1;
/// Exit status where no scenario was played, or would be.
const NOTHING_RAN: u8 = 4;

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => judge::judge(&cli.judge),
        Some(Command::Doctor(args)) => doctor::doctor(&args),
        Some(Command::Init(args)) => init::init(&args),
        Some(Command::Serve(serve)) => run_serve(serve),
        Some(Command::Record(args)) => record::record(&args),
        Some(Command::Interop(args)) => record::interop(&args),
        Some(Command::HydraUpstream(upstream)) => run_hydra_upstream(upstream),
        Some(Command::LibraryAgent { library }) => {
            Ok(pmi_runner::agent::library::main(&library).unwrap_or(UNJUDGED))
        }
        Some(Command::Profiles { json }) => catalogue::profiles(json),
        Some(Command::Requirements { json, pages }) => catalogue::requirements(json, pages.as_deref()),
        Some(Command::Show { name }) => catalogue::show(&name),
        Some(Command::Explain { id }) => catalogue::explain(&id),
        Some(Command::Coverage(coverage)) => catalogue::coverage(&coverage),
        Some(Command::Mutants(mutants)) => mutants::mutants(&mutants),
        Some(Command::Fuzz(fuzz)) => fuzz::fuzz(&fuzz),
        Some(Command::Versions(args)) => versions::versions(&args),
        Some(Command::Measure(args)) => measure::measure(&args),
        Some(Command::Check { paths }) => files::check(&paths),
        Some(Command::Fmt { check, paths }) => files::fmt(check, &paths),
        Some(Command::Judge(again)) => judge_again(&again),
        Some(Command::Report(report)) => run_report(&report),
        Some(Command::Compare(compare)) => run_compare(&compare),
        Some(Command::Bisect(args)) => bisect::bisect(&args),
        Some(Command::Matrix(args)) => run_matrix(&args),
        Some(Command::Compatibility(args)) => run_compatibility(&args),
        Some(Command::Schema) => say(&format!("{:#}\n", crate::report::log_schema())).map(|()| 0),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "pmi-conform", &mut script);
            say(&String::from_utf8_lossy(&script)).map(|()| 0)
        }
        Some(Command::Man { dir }) => std::fs::create_dir_all(&dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &dir))
            .map(|()| 0)
            .map_err(|e| anyhow::anyhow!("{}: {e}", dir.display())),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let told = format!("{error:#}");
            let mark = if told.starts_with("error") { "" } else { "error: " };
            // Where stderr is gone, nobody is left to tell.
            let _ = writeln!(anstream::stderr(), "{mark}{told}");
            let status = if error.is::<UnknownProxy>() { UNJUDGED } else { USAGE };
            ExitCode::from(status)
        }
    }
}

/// Ends a sentence that says that there is no such word: with the one that looks most like it, if any does, and what else helps.
fn hint<'a>(word: &str, words: impl Iterator<Item = &'a str>, help: &str) -> String {
    let alike = words.map(|other| (strsim::jaro_winkler(word, other), other));
    let nearest = alike.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness > 0.75);
    match (nearest, help) {
        (None, "") => String::new(),
        (None, help) => format!("; {help}"),
        (Some((_, other)), "") => format!(", did you mean {other}?"),
        (Some((_, other)), help) => {
            let (first, rest) = help.split_at(1);
            format!(", did you mean {other}? {}{rest}", first.to_ascii_uppercase())
        }
    }
}

/// How many things are done at the same time: as many as asked for, else one for each processor.
fn side_by_side(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
fn say(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Scenarios that cannot be used, with everything that is wrong in them.
fn told(error: FilesError) -> anyhow::Error {
    match error {
        FilesError::Suite(SuiteError::Diagnostics(all)) => {
            let color = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
            anyhow::anyhow!(all.iter().map(|d| d.render(color)).collect::<Vec<_>>().join("\n"))
        }
        other => other.into(),
    }
}

/// The embedded suite, by which these sets of requirements count as well.
fn suite_against(sets: &[String]) -> anyhow::Result<Suite> {
    let mut suite = pmi_runner::suite::embedded().map_err(told)?;
    for set in sets {
        suite.catalogue.judge_by(set);
    }
    Ok(suite)
}

/// Reads what an implementation of a version is known to do differently.
fn read_deviations(
    path: &Path,
    version: Option<&Version>,
    connection: WayIn,
    suite: &Suite,
) -> anyhow::Result<Deviations> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let deviations = Deviations::parse(path, &text, version, connection)?;
    if let Some((line, id)) = deviations.misspelt(suite) {
        let hint =
            hint(id, suite.catalogue.iter().map(|r| r.id.as_str()), "`pmi-conform requirements` lists them");
        anyhow::bail!("{}:{line}: there is no requirement {id}{hint}", path.display());
    }
    match deviations.unexplained() {
        0 => {}
        1 => writeln!(anstream::stderr(), "warning: {}: a reason is still to be written", path.display())?,
        n => {
            writeln!(anstream::stderr(), "warning: {}: {n} reasons are still to be written", path.display())?
        }
    }
    Ok(deviations)
}

fn run_serve(serve: Serve) -> anyhow::Result<u8> {
    let Serve { ranks, nodes, pmi_port, hosts, launch, listen, pmi_args, fault, vary, verbose, command } =
        serve;
    let remote = launch.map(|launch| Remote::new(hosts, &launch, listen)).transpose()?;
    let caller = match &pmi_args[..] {
        [] => None,
        words => Some(Caller::parse(words).context("--pmi-args takes a port, two words and a process id")?),
    };
    let behaviour = mutants::behaviour(fault.as_deref(), &vary)?;
    let kvs_prefix = serve::unique_prefix();
    let config = pmi_reference::Config {
        nodes: remote.as_ref().map_or(nodes, Remote::nodes),
        way_in: match (pmi_port || remote.is_some(), &caller) {
            (true, _) => WayIn::Port,
            (false, Some(_)) => WayIn::Singleton,
            (false, None) => WayIn::Fd,
        },
        behaviour,
        kvs_prefix,
        pmi2: true,
        pmi12: true,
        seed: serve::unforeseeable(),
        ..pmi_reference::Config::default()
    };
    match serve::run(ServeOptions { ranks, config, command, caller, remote, verbose }) {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            // Beside what the ranks write, it has to say who speaks.
            let _ = writeln!(anstream::stderr(), "pmi-conform serve: {error}");
            Ok(USAGE)
        }
    }
}

fn run_hydra_upstream(upstream: HydraUpstream) -> anyhow::Result<u8> {
    let HydraUpstream { proxy, family, pmi_port, ranks, nodes, patience, command } = upstream;
    let end = upstream::run(upstream::Options { proxy, family, pmi_port, ranks, nodes, patience, command })?;
    match end {
        upstream::End::Status(status) => Ok(u8::try_from(status).unwrap_or(255)),
        upstream::End::Signal(signal) => {
            // The first may go to the handler that Rust has for overflows of the stack, which then removes itself.
            for _ in 0..2 {
                let _ = signal_hook::low_level::raise(signal);
            }
            Ok(u8::try_from(128 + signal).unwrap_or(255))
        }
    }
}

/// Reads a log.
fn read_run(path: &Path, keep: Keep) -> anyhow::Result<Run> {
    let (name, log) = open_log(path)?;
    Ok(read_log(&name, log, keep)?)
}

/// A log, and what it is called.
fn open_log(path: &Path) -> anyhow::Result<(String, io::BufReader<std::fs::File>)> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|e| anyhow::anyhow!("{name}: {e}"))?;
    Ok((name, io::BufReader::with_capacity(1 << 18, file)))
}

/// Judges a log again. Deviations count as they are named here, not as they were when the log was written.
fn judge_again(args: &Again) -> anyhow::Result<u8> {
    let suite = suite_against(&args.against)?;
    let mut judging: Option<(again::Again<'_>, Deviations)> = None;
    let (mut judged, mut unread) = (Vec::new(), None);
    let (name, log) = open_log(&args.log)?;
    let run = read_parts(&name, log, true, &mut |part| match (part, &mut judging) {
        (Part::Header(header), _) => {
            let deviations = match &args.deviations {
                Some(path) => read_deviations(path, None, header.connection, &suite),
                None => Ok(Deviations::default()),
            };
            match deviations {
                Ok(deviations) => {
                    let strict = args.strict.unwrap_or(header.strict);
                    judging = Some((again::Again::new(header, &suite, strict), deviations));
                }
                Err(error) => unread = Some(error),
            }
        }
        (Part::Event(scenario, event), Some((again, _))) => again.event(scenario, event),
        (Part::Result(result), Some((again, deviations))) => judged.push(again.result(result, deviations)),
        (Part::Event(..) | Part::Result(_), None) => {}
    })?;
    if let Some(error) = unread {
        return Err(error);
    }
    let deviations = judging.map(|(_, deviations)| deviations).unwrap_or_default();
    let mut header = run.header;
    header.strict = args.strict.unwrap_or(header.strict);
    let ran = Ran {
        selected: header.selected,
        interrupted: false,
        scenario_errors: false,
        strict: header.strict,
        time: std::time::Duration::from_micros(run.results.iter().map(|r| r.time_us).sum()),
    };
    let end = result::of_run(&suite, &judged, &deviations, ran);
    let status = end.exit_code as u8;
    let run = Run { header, results: judged, end: Some(end), ..run };
    let mut text = Vec::new();
    render(&run, args.format, &mut text)?;
    say(&String::from_utf8_lossy(&text))?;
    Ok(status)
}

fn run_compare(compare: &Compare) -> anyhow::Result<u8> {
    let comparison =
        Comparison::of(&read_run(&compare.before, Keep::Nothing)?, &read_run(&compare.after, Keep::Nothing)?);
    let mut text = Vec::new();
    if compare.json {
        serde_json::to_writer_pretty(&mut text, &comparison)?;
        text.push(b'\n');
    } else {
        comparison.write_to(&mut text, compare.verbose)?;
    }
    say(&String::from_utf8_lossy(&text))?;
    if comparison.same == 0 && comparison.changed.is_empty() {
        anyhow::bail!(
            "{} and {} have no scenario in common",
            compare.before.display(),
            compare.after.display()
        );
    }
    let bad = if compare.fail_on == "new" { comparison.is_worse() } else { !comparison.is_same() };
    Ok(u8::from(bad))
}

/// Reads `NAME=LOG` or `LOG`.
fn named_run(log: &str) -> anyhow::Result<Entry> {
    let (name, path) = match log.split_once('=').filter(|_| !Path::new(log).exists()) {
        Some((name, path)) => (Some(name.to_owned()), path),
        None => (None, log),
    };
    let run = read_run(Path::new(path), Keep::Nothing)?;
    let header = &run.header;
    let name = name.or_else(|| header.implementation.clone()).unwrap_or_else(|| header.server.clone());
    Ok(Entry { name, run })
}

fn run_matrix(args: &Matrix) -> anyhow::Result<u8> {
    let entries = args.logs.iter().map(|log| named_run(log)).collect::<anyhow::Result<Vec<_>>>()?;
    let read = |path: &PathBuf| {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(name)?;
        serde_json::from_str(&text)
            .with_context(|| format!("{}: this is not what `interop --json` prints", name()))
    };
    let interop = args.interop.iter().map(read).collect::<anyhow::Result<_>>()?;
    let extra = Extra { interop, history: args.history };
    let folder = args.output.display();
    let written = write_matrix(&entries, &extra, &args.output).with_context(|| folder.to_string())?;
    let runs = match args.logs.len() {
        0 => "no run".to_owned(),
        1 => "a page and a badge for the run".to_owned(),
        n => format!("a page and a badge for each of {n} runs"),
    };
    say(&format!("{} files written to {folder}: {}, and {runs}\n", written.len(), written[..3].join(", ")))?;
    Ok(0)
}

fn run_compatibility(args: &Compatibility) -> anyhow::Result<u8> {
    let observed = |logs: &[PathBuf]| -> anyhow::Result<Observations> {
        let mut observations = Observations::default();
        for log in logs {
            read_run(log, Keep::All)?.events.values().for_each(|events| observations.read(events));
        }
        Ok(observations)
    };
    let compatibility = compatibility::Compatibility::of(&observed(&args.client)?, &observed(&args.server)?);
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut text, &compatibility)?;
        text.push(b'\n');
    } else {
        write_compatibility(&compatibility, &mut text)?;
    }
    say(&String::from_utf8_lossy(&text))?;
    Ok(match [Fit::Breaks, Fit::Fits].map(|fit| compatibility.count(fit)) {
        [0, 0] => UNJUDGED,
        [0, _] => 0,
        _ => 1,
    })
}

fn run_report(report: &Report) -> anyhow::Result<u8> {
    let keep = match report.format {
        Format::Ndjson => Keep::All,
        Format::Sequence => Keep::Edges,
        Format::Html => Keep::EdgesOfFindings,
        _ => Keep::Nothing,
    };
    let mut run = read_run(&report.log, keep)?;
    if !report.filter.is_empty() {
        anyhow::ensure!(report.format == Format::Sequence, "--filter goes with --format sequence");
        run.results.retain(|r| report.filter.iter().any(|f| select::fits(f, &r.scenario)));
    }
    if let Some(strict) = report.strict {
        run.set_strict(strict);
    }
    let mut text = Vec::new();
    render(&run, report.format, &mut text)?;
    match &report.output {
        Some(path) => std::fs::write(path, text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?,
        None => say(&String::from_utf8_lossy(&text))?,
    }
    Ok(0)
}
