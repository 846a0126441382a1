//! The command line: its definition and its commands.

mod args;
mod bisect;
mod catalogue;
mod doctor;
mod exit;
mod files;
mod fuzz;
#[cfg(test)]
mod hints;
mod init;
mod inputs;
mod judge;
mod measure;
mod mutants;
mod output;
mod play;
mod progress;
mod read;
mod record;
mod select;
mod versions;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::report::{
    Comparison, ExtraPages, Format, KeptEvents, Verbosity, wireshark_plugin, write_compatibility,
    write_matrix,
};
use anyhow::Context;
use clap::FromArgMatches;
use pmi_judge::compatibility::{self, MessageSupport, Observations};
use pmi_runner::party::proxy as upstream;
use pmi_runner::party::server::ProxyCheckError;
use pmi_runner::serve::{self, Caller, ConnectionMethod, Remote, ServeOptions};

use args::{
    Cli, Command, Compare, EXIT_CODES, Explain, FailOn, HydraUpstream, Interop, Listed, Matrix, Report,
    ReportCommand, ScenarioCommand, Serve, SuiteCommand,
};
use exit::{UNJUDGED, USAGE};
use output::{RenderedDiagnostics, print, print_result, write_report};
use read::{named_run, read_run};

pub(crate) fn main() -> ExitCode {
    if let Some((old, new)) = args::renamed(&std::env::args_os().skip(1).collect::<Vec<_>>()) {
        anstream::eprintln!("error: `{old}` was renamed; use `pmi-conform {new}`");
        return ExitCode::from(USAGE);
    }
    let cli = Cli::from_arg_matches(&args::command().get_matches()).unwrap_or_else(|error| error.exit());
    let done = match cli.command {
        None if cli.help => print_help(),
        None => play::play(&cli.play),
        Some(Command::Doctor(args)) if args.versions => versions::versions(&args),
        Some(Command::Doctor(args)) => doctor::doctor(&args),
        Some(Command::Init(args)) => init::init(&args),
        Some(Command::Serve(serve)) => run_serve(serve),
        Some(Command::Record(args)) => record::record(&args),
        Some(Command::Interop(args)) if args.client_log.is_empty() => record::interop(&args),
        Some(Command::Interop(args)) => run_compatibility(&args),
        Some(Command::HydraUpstream(upstream)) => run_hydra_upstream(upstream),
        Some(Command::LibraryAgent { library }) => {
            Ok(pmi_process::agent::library::main(&library).unwrap_or(UNJUDGED))
        }
        Some(Command::Explain(explain)) => run_explain(explain),
        Some(Command::Scenario(command)) => match command {
            ScenarioCommand::Check { paths } => files::check(&paths),
            ScenarioCommand::Fmt { check, paths } => files::fmt(check, &paths),
            ScenarioCommand::Show { name, dialect } => catalogue::show(&name, dialect),
            ScenarioCommand::List(args) => play::list(&args),
            ScenarioCommand::Export { dir } => files::export(&dir),
        },
        Some(Command::Suite(SuiteCommand::Coverage(coverage))) => catalogue::coverage(&coverage),
        Some(Command::Suite(SuiteCommand::Mutants(mutants))) => mutants::mutants(&mutants),
        Some(Command::Fuzz(fuzz)) => fuzz::fuzz(&fuzz),
        Some(Command::Measure(args)) => measure::measure(&args),
        Some(Command::Report(report)) => match &report.command {
            None => run_report(&report),
            Some(ReportCommand::Judge(again)) => judge::judge(again),
            Some(ReportCommand::Compare(compare)) => run_compare(compare),
            Some(ReportCommand::Bisect(args)) => bisect::bisect(args),
            Some(ReportCommand::Matrix(args)) => run_matrix(args),
        },
        Some(Command::Schema) => print(&format!("{:#}\n", crate::report::log_schema())).map(|()| 0),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::parser(), "pmi-conform", &mut script);
            print(&String::from_utf8_lossy(&script)).map(|()| 0)
        }
        Some(Command::Man { dir }) => std::fs::create_dir_all(&dir)
            .and_then(|()| clap_mangen::generate_to(args::parser().after_help(EXIT_CODES), &dir))
            .map(|()| 0)
            .map_err(|e| anyhow::anyhow!("{}: {e}", dir.display())),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let mark = if error.is::<RenderedDiagnostics>() { "" } else { "error: " };
            // A failure to write to standard error is ignored, because it cannot be reported anywhere.
            let _ = writeln!(anstream::stderr(), "{mark}{error:#}");
            let status = if error.is::<ProxyCheckError>() { UNJUDGED } else { USAGE };
            ExitCode::from(status)
        }
    }
}

/// Prints the full help for `pmi-conform` without a subcommand, with a paragraph for each option.
fn print_help() -> anyhow::Result<u8> {
    let help =
        args::command().mut_args(|arg| arg.hide_short_help(false)).after_help(EXIT_CODES).render_help();
    print(&help.ansi().to_string()).map(|()| 0)
}

fn run_explain(explain: Explain) -> anyhow::Result<u8> {
    match (explain.list, explain.id) {
        (Some(Listed::Requirements { json, pages }), _) => catalogue::requirements(json, pages.as_deref()),
        (Some(Listed::Profiles { json }), _) => catalogue::profiles(json),
        (Some(Listed::Wireshark), _) => print(&wireshark_plugin()).map(|()| 0),
        (None, Some(id)) => catalogue::explain(&id),
        (None, None) => anyhow::bail!(
            "name a requirement, rule, scenario, operation, command or C function; to list requirements, profiles or scenarios, use `explain requirements`, `explain profiles` or `scenario list`"
        ),
    }
}

fn run_serve(serve: Serve) -> anyhow::Result<u8> {
    let Serve { ranks, nodes, pmi_port, hosts, launch, listen, pmi_args, fault, vary, .. } = serve;
    let Serve { state, verbose, command, .. } = serve;
    let remote = launch.map(|launch| Remote::new(hosts, &launch, listen)).transpose()?;
    let caller = match &pmi_args[..] {
        [] => None,
        words => Some(Caller::parse(words).context("--pmi-args: use PORT INTERFACE KEY PID")?),
    };
    let wrapper = pmi_runner::behaviours::behaviour(fault.as_deref(), vary.iter().map(String::as_str))?;
    let kvs_prefix = serve::unique_prefix();
    let config = pmi_faults::Config {
        nodes: remote.as_ref().map_or(nodes, Remote::nodes),
        connection_method: match (pmi_port || remote.is_some(), &caller) {
            (true, _) => ConnectionMethod::Port,
            (false, Some(_)) => ConnectionMethod::Singleton,
            (false, None) => ConnectionMethod::Fd,
        },
        wrapper,
        kvs_prefix,
        pmi2: true,
        pmi12: true,
        ..pmi_faults::Config::default()
    };
    match serve::run(ServeOptions { ranks, config, command, caller, remote, state, verbose }) {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            // The ranks write to standard error too, so the message names the command that prints it.
            let _ = writeln!(anstream::stderr(), "pmi-conform serve: {error}");
            Ok(USAGE)
        }
    }
}

fn run_hydra_upstream(upstream: HydraUpstream) -> anyhow::Result<u8> {
    let HydraUpstream { proxy, family, pmi_port, ranks, nodes, patience, command } = upstream;
    let end = upstream::run(upstream::UpstreamOptions {
        proxy,
        family,
        pmi_port,
        ranks,
        nodes,
        timeout: patience,
        command,
    })?;
    match end {
        upstream::JobEnd::Status(status) => Ok(u8::try_from(status).unwrap_or(255)),
        upstream::JobEnd::Signal(signal) => {
            // Raise the signal twice, because Rust's handler for stack overflows may catch the first one and then
            // uninstall itself.
            for _ in 0..2 {
                let _ = signal_hook::low_level::raise(signal);
            }
            Ok(u8::try_from(128 + signal).unwrap_or(255))
        }
    }
}

fn run_compare(compare: &Compare) -> anyhow::Result<u8> {
    let comparison = Comparison::of(
        &read_run(&compare.before, KeptEvents::Nothing)?,
        &read_run(&compare.after, KeptEvents::Nothing)?,
    );
    print_result(compare.json, &comparison, |out| comparison.write_to(out, compare.verbose))?;
    if comparison.same == 0 && comparison.changed.is_empty() {
        anyhow::bail!(
            "{} and {} have no scenario in common; compare runs of the same scenarios",
            compare.before.display(),
            compare.after.display()
        );
    }
    let bad = if compare.fail_on == FailOn::New { comparison.is_worse() } else { !comparison.is_same() };
    Ok(u8::from(bad))
}

fn run_matrix(args: &Matrix) -> anyhow::Result<u8> {
    let entries = args.logs.iter().map(|log| named_run(log)).collect::<anyhow::Result<Vec<_>>>()?;
    let read = |path: &PathBuf| {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(name)?;
        serde_json::from_str(&text).with_context(|| format!("{}: not the output of `interop --json`", name()))
    };
    let interop = args.interop.iter().map(read).collect::<anyhow::Result<_>>()?;
    let extra = ExtraPages { interop, history: args.history };
    let folder = args.output.display();
    let written = write_matrix(&entries, &extra, &args.output).with_context(|| folder.to_string())?;
    let runs = match args.logs.len() {
        0 => "no pages for runs".to_owned(),
        1 => "a page and a badge for the run".to_owned(),
        n => format!("a page and a badge for each of {n} runs"),
    };
    print(&format!(
        "{} files written to {folder}: {}, and {runs}\n",
        written.len(),
        written[..3].join(", ")
    ))?;
    Ok(0)
}

fn run_compatibility(args: &Interop) -> anyhow::Result<u8> {
    let observed = |logs: &[PathBuf]| -> anyhow::Result<Observations> {
        let mut observations = Observations::default();
        for log in logs {
            read_run(log, KeptEvents::All)?.events.values().for_each(|events| observations.read(events));
        }
        Ok(observations)
    };
    let compatibility =
        compatibility::Compatibility::of(&observed(&args.client_log)?, &observed(&args.server_log)?);
    print_result(args.json, &compatibility, |out| write_compatibility(&compatibility, out))?;
    Ok(match [MessageSupport::Incompatible, MessageSupport::Compatible].map(|fit| compatibility.count(fit)) {
        [0, 0] => UNJUDGED,
        [0, _] => 0,
        _ => 1,
    })
}

fn run_report(report: &Report) -> anyhow::Result<u8> {
    let keep = match report.format {
        Format::Ndjson | Format::Pcapng => KeptEvents::All,
        Format::Sequence => KeptEvents::FirstAndLast,
        format if format.needs_events() => KeptEvents::FirstAndLastOfFindings,
        _ => KeptEvents::Nothing,
    };
    let log = report.log.as_deref().context("name a log")?;
    let mut run = read_run(log, keep)?;
    if !report.filter.is_empty() {
        anyhow::ensure!(report.format == Format::Sequence, "--filter requires --format sequence");
        let filters = select::Filter::all(&report.filter);
        run.results.retain(|r| filters.iter().any(|filter| filter.matches(&r.scenario)));
    }
    if let Some(strict) = report.strict {
        run.set_strict(strict);
    }
    write_report(&run, report.format, Verbosity::of(report.verbose), report.output.as_deref())?;
    Ok(0)
}
