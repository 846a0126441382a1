//! The main command: plays the suite against an implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::report::{
    Format, LOG_OPTION, LogWriter, ReportSpec, Run, Terminal, TerminalOptions, Verbosity, first_sentence,
};
use anyhow::Context;
use pmi_judge::deviations::{Deviations, draft, summarize_draft};
use pmi_judge::event::Event;
use pmi_judge::verdict::{LogLine, RunHeader, ScenarioResult, Strictness};
use pmi_process::agent::network_listener::ListenOptions;
use pmi_process::agent::rank::NAME;
use pmi_runner::interpret::program::offered_dialect;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::{Library, apis_or_first};
use pmi_runner::party::program::Program;

use pmi_runner::iut::Iut;
use pmi_runner::party::server::{
    Implementation, LaunchEnvironment, RecordedDeviations, parse_capability, profile,
};
use pmi_runner::run::{AttemptPolicy, Observer, RunOptions, run};
use pmi_runner::serve::ConnectionMethod;
use pmi_scenario::ast::{Capability, Dialect, Scenario};
use pmi_scenario::suite::Suite;

use super::args::{ConnectionMethodArg, Play, side_by_side};
use super::exit::{INTERRUPTED, NOTHING_RAN};
use super::output::{note, print, write_report};
use super::read::{check_scenarios, enable_sets, read_deviations};
use super::select::{are_scenario_files, select, suite_for};

/// Lists the scenarios that these arguments select. No process is started, so the scenarios for a program are listed in all dialects.
pub(super) fn list(args: &Play) -> anyhow::Result<u8> {
    are_scenario_files(args)?;
    let Selection { selected, .. } = select_with_probe(args, false)?;
    let list: String =
        selected.iter().map(|s| format!("{}\t{}\n", s.name, first_sentence(&s.summary()))).collect();
    print(&list)?;
    Ok(if selected.is_empty() { NOTHING_RAN } else { 0 })
}

pub(super) fn play(args: &Play) -> anyhow::Result<u8> {
    are_scenario_files(args)?;
    // A draft must not overwrite a file that the user has edited.
    if let Some(path) = args.draft_deviations.as_ref().filter(|path| path.exists()) {
        anyhow::bail!("--draft-deviations: {} already exists; name a new file", path.display());
    }
    let mut targets = BTreeSet::new();
    if let Some(twice) = args.report.iter().find(|report| !targets.insert(report.file.as_ref())) {
        anyhow::bail!("two reports would be written to {}: name a file for each", twice.destination());
    }
    let Some(prepared) = select_scenarios(args)?.prepare(args, &ends_on_signals()?)? else {
        return Ok(INTERRUPTED);
    };
    let mut observer = ReportWriters::open(args)?;
    let precedents = if args.draft_deviations.is_some() { prepared.precedents() } else { Vec::new() };
    let (run, torn_down) = prepared.play(&mut observer)?;
    let mut notice = None;
    if let Some(path) = &args.draft_deviations {
        let name = run.header.implementation.as_deref().unwrap_or(&run.header.server);
        let text = draft(name, &run.results, run.header.strict, &precedents);
        let summary =
            summarize_draft(&text).unwrap_or_else(|| "nothing to record; the file has no entries".to_owned());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
        notice = Some(format!("deviations drafted in {}: {summary}\n", path.display()));
    }
    let status = run.end.as_ref().map_or(0, |end| end.exit_code as u8);
    observer.finish(run, args)?;
    if let Some(notice) = notice {
        anstream::eprint!("{notice}");
    }
    torn_down.map(|()| status)
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP, and returns the flag that they set.
///
/// # Errors
///
/// Returns an error if the signal handlers cannot be installed.
pub(super) fn ends_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

pub(super) struct Selection {
    suite: Suite,
    implementation: Option<Implementation>,
    program: Option<Program>,
    dialects: Vec<Dialect>,
    selected: Vec<Arc<Scenario>>,
}

/// Determines the implementation under test from the arguments, and selects its scenarios.
///
/// # Errors
///
/// Returns an error if the scenarios are invalid or the implementation cannot be used.
pub(super) fn select_scenarios(args: &Play) -> anyhow::Result<Selection> {
    select_with_probe(args, true)
}

/// Selects the scenarios. If `probe` is true, starts a program under test to detect its dialect.
fn select_with_probe(args: &Play, probe: bool) -> anyhow::Result<Selection> {
    let mut suite = suite_for(args)?;
    enable_sets(&mut suite.catalogue, &args.against);
    let named = args.server.as_deref().map(Implementation::from_argument).transpose().context("--server")?;
    let client = args.client.as_ref().map(|command| Program::new(command, args.ranks));
    let mut client = client.transpose().context("--client")?;
    if let Some(program) = &mut client {
        match args.connection {
            ConnectionMethodArg::Fd => {}
            ConnectionMethodArg::Port => program.connect_by_port(),
            ConnectionMethodArg::Singleton => program.start_alone(std::env::current_exe()?),
        }
    }
    let dialects = dialects(args, named.as_ref(), client.as_ref().filter(|_| probe));
    let selected = select(&suite, args, &dialects)?;
    Ok(Selection { suite, implementation: named, program: client, dialects, selected })
}

impl Selection {
    /// Prepares the run. Returns `None` if the user interrupts the preparation.
    ///
    /// # Errors
    ///
    /// Returns an error if the implementation cannot be started, or the deviations cannot be read.
    pub(super) fn prepare(
        self,
        args: &Play,
        interrupted: &Arc<AtomicBool>,
    ) -> anyhow::Result<Option<PreparedRun>> {
        let Self { suite, implementation: named, program: client, dialects, selected } = self;
        let jobs = side_by_side(args.jobs);
        let mut environment = LaunchEnvironment::new(Arc::clone(interrupted), jobs)?;
        let tracer = Some(environment.agent.clone());
        let implementation = match (named, args.memory || args.client.is_some()) {
            (_, true) => None,
            (None, false) if args.library.is_some() => None,
            (None, false) => Some(Implementation::reference(&environment.binary)),
            (named, false) => named,
        };
        let mut recorded = args.deviations.clone().map(RecordedDeviations::File);
        let mut version = None;
        let (mut strict, mut start) = (args.strict, args.start_timeout);
        let (mut setup, mut teardown) = (None, None);
        let iut = match (client, implementation) {
            (Some(program), _) => Iut::Client(Box::new(program)),
            (None, implementation) if args.library.is_some() => {
                implementation.as_ref().map_or(Ok(()), Implementation::check_commands).context("--server")?;
                version = implementation.as_ref().and_then(|i| i.version.clone());
                library(args, environment, implementation)?
            }
            (None, None) => Iut::Memory(pmi_faults::Config::default()),
            (None, Some(mut implementation)) => {
                if let Some(nodes) = &args.server_nodes {
                    implementation.set_command_nodes(nodes).context("--server-nodes")?;
                }
                set_connection_method(&mut implementation, args.connection)?;
                if let Some(address) = &args.listen {
                    let listen = listen(address, args.agent.as_deref(), &environment, &implementation)?;
                    environment.listen = Some(listen);
                }
                implementation.max_ranks = args.max_ranks.or(implementation.max_ranks);
                implementation.max_nodes = args.max_nodes.or(implementation.max_nodes);
                implementation.check_commands().context("--server")?;
                implementation.play_upstream(&environment.binary, args.family, args.timeout)?;
                if let Err(error) = implementation.try_upstream(interrupted) {
                    if interrupted.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                    return Err(error.into());
                }
                implementation.claimed_capabilities.extend(parse_claims(args)?);
                for notice in implementation.notices.iter().filter(|_| recorded.is_none()) {
                    note(notice);
                }
                recorded = recorded.or_else(|| implementation.deviations.clone());
                start = start.or(implementation.start_timeout);
                version = implementation.version.clone();
                strict = strict.or(implementation.strict);
                (setup, teardown) = (implementation.setup.clone(), implementation.teardown.clone());
                Iut::Processes(Box::new(implementation), environment)
            }
        };
        let connection = iut.connection_method();
        let mut deviations = match &recorded {
            Some(RecordedDeviations::File(path)) => {
                let read = read_deviations(path, version.as_ref(), connection, &suite);
                let deviations = match args.deviations {
                    Some(_) => read?,
                    None => read.context("the profile's deviations")?,
                };
                check_scenarios(path, &deviations, &suite)?;
                deviations
            }
            Some(RecordedDeviations::Builtin(path, text)) => {
                Deviations::parse(path, text, version.as_ref(), connection)?
            }
            None => Deviations::default(),
        };
        deviations.set_selection(&suite, &selected);
        let options = RunOptions {
            jobs,
            limits: ScenarioLimits { step: args.timeout, start, ..ScenarioLimits::default() },
            strict: strict.unwrap_or_default(),
            max_fail: args.max_fail,
            give_up: !args.no_give_up,
            attempts: match (args.repeat, args.retries) {
                (Some(times), _) => AttemptPolicy::Repeat(times),
                (None, Some(more)) => AttemptPolicy::Retry(more),
                (None, None) => AttemptPolicy::Once,
            },
            tracer,
            replay: shell_words::join(replay(args)),
            command: shell_words::join(command(args)),
            dialects,
        };
        let interrupted = Arc::clone(interrupted);
        Ok(Some(PreparedRun { suite, selected, iut, deviations, options, interrupted, setup, teardown }))
    }
}

pub(super) struct PreparedRun {
    suite: Suite,
    selected: Vec<Arc<Scenario>>,
    iut: Iut,
    deviations: Deviations,
    options: RunOptions,
    interrupted: Arc<AtomicBool>,
    setup: Option<String>,
    teardown: Option<String>,
}

impl PreparedRun {
    /// Returns the deviations that are recorded for related implementations.
    pub(super) fn precedents(&self) -> Vec<Deviations> {
        match &self.iut {
            Iut::Processes(implementation, _) => profile::related_deviations(implementation),
            _ => Vec::new(),
        }
    }

    /// Plays the run. Returns the run and the result of the profile's teardown.
    ///
    /// # Errors
    ///
    /// Returns an error if the profile's setup fails.
    pub(super) fn play(mut self, observer: &mut dyn Observer) -> anyhow::Result<(Run, anyhow::Result<()>)> {
        shell(self.setup.as_deref()).context("the profile's setup")?;
        let Self { suite, selected, iut, deviations, options, interrupted, .. } = &mut self;
        let (header, results, end) = run(suite, selected, iut, deviations, options, interrupted, observer);
        let abandoned = match iut {
            Iut::Processes(implementation, _) => implementation.abandoned_steps(),
            _ => None,
        };
        let torn_down = shell(self.teardown.as_deref()).context("the profile's teardown");
        if let Some(notice) = abandoned {
            note(notice);
        }
        let (events, left_out, cut) = Default::default();
        Ok((Run { header, results, events, left_out, cut, end: Some(end) }, torn_down))
    }
}

/// Configures an implementation so that its processes connect as `--connection` specifies.
pub(super) fn set_connection_method(
    implementation: &mut Implementation,
    way: ConnectionMethodArg,
) -> anyhow::Result<()> {
    match way {
        ConnectionMethodArg::Fd => {}
        ConnectionMethodArg::Port => implementation.connect_by_port(),
        ConnectionMethodArg::Singleton => {
            implementation.serve_singleton().context("--connection singleton")?
        }
    }
    Ok(())
}

/// Parses `--listen` and `--agent` into the options of the listener to which agents on other machines relay their connections.
pub(super) fn listen(
    address: &str,
    agent: Option<&Path>,
    environment: &LaunchEnvironment,
    implementation: &Implementation,
) -> anyhow::Result<ListenOptions> {
    if implementation.has_upstream() || implementation.connection_method == ConnectionMethod::Singleton {
        anyhow::bail!(
            "--listen: only a launcher can start processes on other machines; omit this option for a bare proxy or a singleton"
        );
    }
    let agent = agent.unwrap_or(&environment.agent);
    if !agent.is_absolute() || agent.file_name().is_none_or(|name| name != NAME) {
        anyhow::bail!(
            "--agent {}: the path of the agent on the job's machines must be absolute and end with /{NAME}; it may be a link to pmi-conform",
            agent.display()
        );
    }
    let tell = |text: &str| anstream::eprintln!("warning: {text}");
    ListenOptions::parse(address, environment.slots.launches(), agent.to_owned(), tell).context("--listen")
}

/// Records the user's claim that the server supports these operations (if `offered` is true) or lacks them. The runner does not probe these
/// operations.
pub(super) fn claim(server: &mut Implementation, operations: &[String], offered: bool) -> anyhow::Result<()> {
    for word in operations {
        server.claimed_capabilities.insert(parse_capability(word)?, offered);
    }
    Ok(())
}

/// Parses the values of `--has` and `--lacks`. Maps each operation in `--has` to true, and each operation in `--lacks` to false.
fn parse_claims(args: &Play) -> anyhow::Result<BTreeMap<Capability, bool>> {
    let claims = |words: &[String], offered| {
        words.iter().map(|word| Ok((parse_capability(word)?, offered))).collect::<anyhow::Result<Vec<_>>>()
    };
    Ok(claims(&args.has, true)?.into_iter().chain(claims(&args.lacks, false)?).collect())
}

fn library(
    args: &Play,
    environment: LaunchEnvironment,
    server: Option<Implementation>,
) -> anyhow::Result<Iut> {
    let path = args.library.as_ref().context("--library")?;
    let library = Library { server: server.map(Box::new), ..library_at(path, environment.binary)? };
    Ok(Iut::Library(Box::new(library), parse_claims(args)?, environment.interrupted))
}

/// Returns the library at `path`. It is tested under the built-in server unless the caller sets a different server.
pub(super) fn library_at(path: &Path, binary: PathBuf) -> anyhow::Result<Library> {
    // A static binary would load a second C library and crash.
    anyhow::ensure!(
        !cfg!(target_feature = "crt-static"),
        "--library: this pmi-conform is a static binary, which cannot load libraries: build one with cargo install"
    );
    std::fs::metadata(path).with_context(|| format!("--library {}", path.display()))?;
    pmi_runner::party::library::check(path).context("--library")?;
    // The loader searches its library path for a name without a slash, so the path is made absolute.
    let path = std::path::absolute(path)?;
    Ok(Library { path, binary, env: BTreeMap::new(), server: None })
}

/// Returns the dialects in which scenarios are played: those that `--dialect` selects, or else the default. By default, the user's own
/// scenarios, and all scenarios for the built-in server, are played in every dialect. A library is tested in the dialects whose API it
/// exports, and a program in the dialect that it offers. A server is tested in PMI-1 unless its profile specifies a different dialect.
fn dialects(args: &Play, server: Option<&Implementation>, client: Option<&Program>) -> Vec<Dialect> {
    let all = || Dialect::ALL.to_vec();
    match (args.dialect.as_deref(), &args.library) {
        (Some("all"), _) => all(),
        (Some(word), _) => word.parse().into_iter().collect(),
        (None, _) if !args.paths.is_empty() => all(),
        (None, Some(library)) => apis_or_first(library),
        (None, None) if let Some(program) = client => {
            let limits =
                ScenarioLimits { step: args.timeout, start: args.start_timeout, ..ScenarioLimits::default() };
            vec![offered_dialect(program, limits, &AtomicBool::new(false))]
        }
        (None, None) => server.map_or_else(all, |server| vec![server.dialect.unwrap_or_default()]),
    }
}

/// Returns the command line that the user gave, without the options for selection and reports.
fn replay(args: &Play) -> Vec<String> {
    let mut words = vec!["pmi-conform".to_owned()];
    words.extend(args.paths.iter().map(|p| p.display().to_string()));
    words.extend(args.memory.then(|| "--memory".to_owned()));
    let client = ("--client", &args.client);
    for (flag, value) in [("--server", &args.server), ("--server-nodes", &args.server_nodes), client] {
        words.extend(value.iter().flat_map(|v| [flag.to_owned(), v.clone()]));
    }
    words.extend(args.connection.option());
    words.extend(args.listen.iter().flat_map(|l| ["--listen".to_owned(), l.clone()]));
    words.extend(args.agent.iter().flat_map(|a| ["--agent".to_owned(), a.display().to_string()]));
    words.extend(args.library.iter().flat_map(|l| ["--library".to_owned(), l.display().to_string()]));
    words.extend(args.client.iter().flat_map(|_| ["-n".to_owned(), args.ranks.to_string()]));
    words.extend(args.dialect.iter().flat_map(|d| ["--dialect".to_owned(), d.clone()]));
    words.extend(args.against.iter().flat_map(|set| ["--against".to_owned(), set.clone()]));
    words.extend(args.family.iter().flat_map(|f| ["--family".to_owned(), f.name().to_owned()]));
    for (flag, most) in [("--max-ranks", args.max_ranks), ("--max-nodes", args.max_nodes)] {
        words.extend(most.iter().flat_map(|n| [flag.to_owned(), n.to_string()]));
    }
    for (flag, values) in [("--has", &args.has), ("--lacks", &args.lacks)] {
        words.extend((!values.is_empty()).then(|| format!("{flag}={}", values.join(","))));
    }
    // The replay needs these options as well, because they determine which findings are red.
    words.extend(args.deviations.iter().flat_map(|d| ["--deviations".to_owned(), d.display().to_string()]));
    let strict = Strictness::NAMES.into_iter().find(|(_, level)| Some(*level) == args.strict);
    words.extend(strict.map(|(name, _)| format!("--strict={name}")));
    words
}

/// Returns the command line that the user gave, without the options for reports.
fn command(args: &Play) -> Vec<String> {
    let mut words = replay(args);
    for (flag, values) in [("--filter", &args.filter), ("--requirement", &args.requirement)] {
        words.extend(values.iter().flat_map(|value| [flag.to_owned(), value.clone()]));
    }
    words.extend(args.shard.map(|(k, n)| format!("--shard={k}/{n}")));
    for (flag, times) in [("--repeat", args.repeat), ("--retries", args.retries)] {
        words.extend(times.map(|n| format!("{flag}={n}")));
    }
    words
}

fn shell(command: Option<&str>) -> anyhow::Result<()> {
    if let Some(command) = command {
        duct::cmd!("sh", "-c", command).stdin_null().stdout_to_stderr().run()?;
    }
    Ok(())
}

const TERMINAL_NAME: &str = "the terminal report";

/// The terminal output and the reports that are written during the run.
struct ReportWriters {
    terminal: Terminal<Box<dyn Write>>,
    log: Option<LogWriter<Box<dyn Write>>>,
    /// The log's destination, as named in messages.
    log_name: String,
    /// The name of an output, and the error from writing it. Only the first error is kept; it is reported after the run.
    error: Option<(String, io::Error)>,
    /// The events of scenarios that have findings or are in progress; `None` if no report needs them.
    events: Option<BTreeMap<String, Vec<Event>>>,
}

impl ReportWriters {
    fn open(args: &Play) -> anyhow::Result<Self> {
        // If a report goes to standard output, the terminal output goes to standard error.
        let taken = args.report.iter().any(|r| r.file.is_none());
        let choice = match args.color {
            clap::ColorChoice::Always => anstream::ColorChoice::Always,
            clap::ColorChoice::Never => anstream::ColorChoice::Never,
            clap::ColorChoice::Auto if taken => anstream::AutoStream::choice(&io::stderr()),
            clap::ColorChoice::Auto => anstream::AutoStream::choice(&io::stdout()),
        };
        let verbosity = match (args.quiet, args.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        };
        let look = TerminalOptions {
            color: choice != anstream::ColorChoice::Never,
            progress: io::stderr().is_terminal(),
            verbosity,
            log: LOG_OPTION,
        };
        let out: Box<dyn Write> = if taken { Box::new(io::stderr()) } else { Box::new(io::stdout()) };
        let (mut log, mut log_name) = (None, String::new());
        if let Some(spec) = args.report.iter().find(|r| r.format == Format::Ndjson) {
            log_name = spec.destination();
            let out: Box<dyn Write> = match &spec.file {
                None => Box::new(io::stdout()),
                Some(path) => Box::new(io::BufWriter::new(File::create(path).context(log_name.clone())?)),
            };
            log = Some(LogWriter::new(out));
        }
        // Unwritable files are reported before anything is played.
        let is_file = |r: &&ReportSpec| !matches!(r.format, Format::Ndjson | Format::Python);
        let others = args.report.iter().filter(is_file).filter_map(|r| r.file.as_ref());
        for path in others.chain(&args.draft_deviations) {
            File::options()
                .append(true)
                .create(true)
                .open(path)
                .with_context(|| format!("{}: cannot write the file", path.display()))?;
        }
        let events = args.report.iter().any(|r| r.format.needs_events()).then(BTreeMap::new);
        Ok(Self { terminal: Terminal::new(out, look), log, log_name, error: None, events })
    }

    fn keep(&mut self, what: &str, done: io::Result<()>) {
        match done {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                self.error.get_or_insert_with(|| (what.to_owned(), e));
            }
            _ => {}
        }
    }

    fn log(&mut self, write: impl FnOnce(&mut LogWriter<Box<dyn Write>>) -> io::Result<()>) {
        if let Some(log) = &mut self.log {
            let done = write(log);
            let name = std::mem::take(&mut self.log_name);
            self.keep(&name, done);
            self.log_name = name;
        }
    }

    fn finish(mut self, mut run: Run, args: &Play) -> anyhow::Result<()> {
        run.events = self.events.take().unwrap_or_default();
        if let Some(end) = &run.end {
            self.log(|log| log.write(&LogLine::End(end.clone())));
        }
        let done = self.terminal.finish(&run);
        self.keep(TERMINAL_NAME, done);
        for spec in args.report.iter().filter(|r| r.format != Format::Ndjson) {
            write_report(&run, spec.format, Verbosity::Normal, spec.file.as_deref())?;
        }
        match self.error {
            Some((what, error)) => Err(error).with_context(|| format!("{what}: only a part was written")),
            None => Ok(()),
        }
    }
}

impl Observer for ReportWriters {
    fn begin(&mut self, header: &RunHeader) {
        self.log(|log| log.write(&LogLine::Run(header.clone())));
        let done = self.terminal.start(header);
        self.keep(TERMINAL_NAME, done);
    }

    fn event(&mut self, scenario: &str, event: &Event) {
        self.log(|log| log.event(scenario, event));
        if let Some(events) = &mut self.events {
            events.entry(scenario.to_owned()).or_default().push(event.clone());
        }
    }

    fn result(&mut self, result: &ScenarioResult) {
        self.log(|log| log.write(&LogLine::Result(result.clone())));
        if let Some(events) = self.events.as_mut()
            && result.findings.is_empty()
        {
            events.remove(&result.scenario);
        }
        let done = self.terminal.scenario_done(result);
        self.keep(TERMINAL_NAME, done);
    }
}
