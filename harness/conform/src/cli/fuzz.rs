//! `fuzz`: runs campaigns, minimizes corpora, and replays and exports findings.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use pmi_fuzzer::campaign::corpus::{self, Corpus, EvolvingGenerator};
use pmi_fuzzer::campaign::state::CampaignState;
use pmi_fuzzer::campaign::stored::StoredCases;
use pmi_fuzzer::campaign::{CampaignError, CampaignOptions, CampaignSummary, Progress, Reporter, run};
use pmi_fuzzer::generate::Generator;
use pmi_fuzzer::generate::library::api::LibraryGenerator;
use pmi_fuzzer::generate::program::ProgramGenerator;
use pmi_fuzzer::generate::server::free;
use pmi_fuzzer::generate::server::scope::{DialectChoice, SessionFeatures};
use pmi_fuzzer::observe::failure::Failure;
use pmi_fuzzer::session::case::Case;
use pmi_fuzzer::target::differential::Differential;
use pmi_fuzzer::target::program::{ClientKind, ClientTarget};
use pmi_fuzzer::target::server::{Access, ServerTarget};
use pmi_fuzzer::target::{Target, Thoroughness, Tracing};
use pmi_fuzzer::triage::known_failures::KnownFailures;
use pmi_fuzzer::triage::store::{self, CONFIRMATION_RUNS, FREQUENCY_RUNS, StoredFinding};
use pmi_process::slots::Slots;
use pmi_runner::iut::{Iut, Prober};
use pmi_runner::optional_operations::offered_operations;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::{Library, apis_or_first, exports};
use pmi_runner::party::program::Program;
use pmi_runner::party::server::{Implementation, LaunchEnvironment};
use pmi_scenario::ast::{Capability, Dialect};

use super::args::{Fuzz, side_by_side};
use super::exit::{INTERRUPTED, UNJUDGED};
use super::output::{note, print};
use super::play::{claim, ends_on_signals, library_at};
use super::read::suite_against;
use super::select::under_test;
use crate::report::{RELAYED_NOTE, campaign_text, count, progress_line, times};

pub(super) fn fuzz(args: &Fuzz) -> anyhow::Result<u8> {
    if let Some(folder) = &args.export {
        return export(&args.out, folder);
    }
    let interrupted = ends_on_signals()?;
    if args.client.is_some() || args.library.is_some() {
        return client(args, &interrupted);
    }
    let (target, scope) = target(args, &interrupted)?;
    if let Some(folder) = &args.minimize_corpus {
        return minimize(args, &*target, folder, &interrupted);
    }
    campaign(args, &*target, &interrupted, || Ok(Box::new(EvolvingGenerator::new(scope, corpus(args)?))))
}

/// Runs a campaign against a program or a library. The cases of the campaign vary the server's responses.
fn client(args: &Fuzz, interrupted: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let subject = match (&args.client, &args.library) {
        (Some(command), _) => {
            ClientKind::Program(Box::new(Program::new(command, args.ranks).context("--client")?))
        }
        (None, Some(path)) => ClientKind::Library(Box::new(library_at(path, std::env::current_exe()?)?)),
        (None, None) => anyhow::bail!("name a program with --client, or a library with --library"),
    };
    let suite = suite_against(&args.against)?;
    let library = match &subject {
        ClientKind::Program(_) => None,
        ClientKind::Library(library) => {
            Some((apis(library, selected_dialects(args))?, exports(&library.path)))
        }
    };
    let dialect = match selected_dialects(args) {
        Some(DialectChoice::One(dialect)) => Some(dialect),
        _ => None,
    };
    let binary = std::env::current_exe().context("cannot find pmi-conform's own executable")?;
    let mut client =
        ClientTarget::new(subject, dialect, suite, args.timeout, binary, Arc::clone(interrupted));
    let (ranks, mutate) = (args.ranks, !args.valid);
    if let Some((apis, functions)) = library {
        let ring = functions.iter().any(|name| name == "PMIX_Ring");
        let mut all = Vec::new();
        for dialect in apis {
            let wire = client.has_requests(dialect)?;
            if !wire {
                note(
                    "the library sends nothing on PMI_FD, so the campaign only calls its functions in a single process",
                );
            }
            all.push(LibraryGenerator { dialect, has_ring: ring, ranks, mutate, uses_wire: wire });
        }
        return campaign(args, &client, interrupted, || Ok(Box::new(all)));
    }
    let traces = if args.replay.is_some() { Vec::new() } else { client.traces(ranks)? };
    if interrupted.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    campaign(args, &client, interrupted, || Ok(Box::new(ProgramGenerator { traces, mutate })))
}

/// Returns the APIs that the campaign covers: those that the library exports and `--dialect` selects.
fn apis(library: &Library, spoken: Option<DialectChoice>) -> anyhow::Result<Vec<Dialect>> {
    let all = apis_or_first(&library.path);
    let wanted: Vec<Dialect> =
        all.iter().copied().filter(|dialect| spoken.is_none_or(|spoken| spoken.has(*dialect))).collect();
    let titles = all.iter().map(|dialect| dialect.title()).collect::<Vec<_>>().join(" and ");
    anyhow::ensure!(!wanted.is_empty(), "--dialect: {} has only the API of {titles}", library.path.display());
    Ok(wanted)
}

/// Runs a campaign with the cases of a generator or of a stored corpus, or replays a finding.
fn campaign(
    args: &Fuzz,
    target: &dyn Target,
    interrupted: &AtomicBool,
    generator: impl FnOnce() -> anyhow::Result<Box<dyn Generator>>,
) -> anyhow::Result<u8> {
    if let Some(path) = &args.replay {
        return replay(target, path, interrupted);
    }
    let stored = args.only_corpus.then(|| stored(args)).transpose()?;
    let state = match CampaignState::read(&args.out)? {
        Some(_) if !args.resume => anyhow::bail!(
            "{}: contains a campaign; continue it with --resume, or name a different folder with --out",
            args.out.display()
        ),
        Some(state) if args.seed.is_some_and(|seed| seed != state.seed) => {
            anyhow::bail!(
                "--seed: the campaign in {} has seed {}; omit this option to resume it",
                args.out.display(),
                state.seed
            )
        }
        Some(state) => state,
        None => CampaignState { seed: args.seed.unwrap_or_else(random_seed), ..CampaignState::default() },
    };
    let known = args.known.as_deref().map(KnownFailures::read).transpose()?;
    let sessions = stored.as_ref().map(|stored| stored.cases().len() as u64).or(args.sessions);
    let time = args.time.or_else(|| sessions.is_none().then_some(Duration::from_secs(60)));
    let options = CampaignOptions {
        seed: state.seed,
        sessions,
        time,
        workers: side_by_side(args.workers),
        valid: args.valid,
        out: args.out.clone(),
        known: known.unwrap_or_default(),
        replay: command_line(args),
    };
    let shown = ProgressDisplay::new();
    shown.line(&format!("{}, seed {}, from session {}", target.label(), state.seed, state.next));
    let generator = match stored {
        Some(stored) => Box::new(stored),
        None => generator()?,
    };
    let campaign = run(target, &*generator, &options, state, interrupted, &shown);
    shown.bar.finish_and_clear();
    let status = exit_status(&campaign);
    for (format, file) in &args.report {
        let text = format.report(target, &options, &campaign)?;
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    if let Some(file) = &args.draft_known {
        let entries = KnownFailures::draft(&campaign.found)?;
        let head = format!(
            "# Drafted from the campaign in {} with seed {}. State for each entry why it is accepted and where it was reported.\n",
            args.out.display(),
            options.seed
        );
        std::fs::write(file, format!("{head}\n{entries}")).with_context(|| file.display().to_string())?;
    }
    print(&campaign_text(&campaign, &args.out))?;
    Ok(status)
}

/// Opens the corpus of the campaign, and adds the sessions from `--corpus`.
fn corpus(args: &Fuzz) -> anyhow::Result<Corpus> {
    let mut corpus = Corpus::open(&args.out.join(corpus::FOLDER))?;
    if !args.corpus.is_empty() {
        corpus.add_given(stored(args)?.cases())?;
    }
    Ok(corpus)
}

fn stored(args: &Fuzz) -> anyhow::Result<StoredCases> {
    let tests = under_test(args.client.as_deref(), args.library.as_deref());
    let stored = StoredCases::read(&args.corpus, tests)?;
    let folders: Vec<String> = args.corpus.iter().map(|folder| folder.display().to_string()).collect();
    anyhow::ensure!(
        !stored.cases().is_empty(),
        "{}: no session for this implementation ({} skipped); each step of a session must belong to a single rank",
        folders.join(", "),
        count(stored.other_count(), "scenario")
    );
    Ok(stored)
}

/// Writes to `folder` a small subset of the `--corpus` sessions that has the same coverage and the same findings.
fn minimize(args: &Fuzz, target: &dyn Target, folder: &Path, interrupted: &AtomicBool) -> anyhow::Result<u8> {
    let mut corpus = Corpus::open(folder)?;
    anyhow::ensure!(
        corpus.is_empty(),
        "{}: already contains a corpus; name a different folder",
        folder.display()
    );
    let stored = stored(args)?;
    let kept = stored.minimized(target, interrupted)?;
    if interrupted.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    let kept: Vec<Case> = kept.into_iter().cloned().collect();
    corpus.add_given(&kept)?;
    let all = stored.cases().len();
    print(&format!("wrote {} of {all} sessions to {}\n", kept.len(), folder.display()))?;
    Ok(if kept.is_empty() { UNJUDGED } else { 0 })
}

/// Returns the servers under test, and the features that sessions may use because every server supports them.
fn target(args: &Fuzz, interrupted: &Arc<AtomicBool>) -> anyhow::Result<(Box<dyn Target>, SessionFeatures)> {
    if args.differential.is_empty() {
        let (server, scope) = server(args, args.server.as_deref(), interrupted)?;
        return Ok((Box::new(server), scope));
    }
    let mut all = Vec::new();
    let spoken = selected_dialects(args).unwrap_or_default();
    let mut common: Option<SessionFeatures> = None;
    for command in &args.differential {
        let (server, scope) = server(args, Some(command), interrupted)?;
        common = Some(match common {
            None => SessionFeatures { dialects: spoken, upstream: false, ..scope },
            Some(common) => SessionFeatures {
                spawn: common.spawn && scope.spawn,
                names: common.names && scope.names,
                pmi12: common.pmi12 && scope.pmi12,
                nodes: common.nodes.min(scope.nodes),
                ..common
            },
        });
        all.push(server);
    }
    Ok((Box::new(Differential::new(all)), common.unwrap_or_default()))
}

fn server(
    args: &Fuzz,
    command: Option<&str>,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<(ServerTarget, SessionFeatures)> {
    let workers = side_by_side(args.workers);
    let mut environment = LaunchEnvironment::new(Arc::clone(interrupted), workers)?;
    // Use idle time for additional launches, unless launches are relayed, because each relayed launch needs a separate port.
    if args.listen.is_none() {
        environment.slots = Slots::with_idle_filling(workers);
    }
    let mut implementation = match command {
        None => Implementation::reference(&environment.binary),
        Some(command) => {
            let named = Implementation::from_argument(command).with_context(|| command.to_owned())?;
            named.check_commands().with_context(|| command.to_owned())?;
            named
        }
    };
    if implementation.deviations.is_some() && args.known.is_none() {
        note("the profile's deviations do not apply to campaigns; use --known FILE for known failures");
    }
    super::play::set_connection_method(&mut implementation, args.connection)?;
    if let Some(address) = &args.listen {
        let agent = args.agent.as_deref();
        let listen = super::play::listen(address, agent, &environment, &implementation)?;
        environment.listen = Some(listen);
        note(RELAYED_NOTE);
    }
    implementation.play_upstream(&environment.binary, args.family, Duration::from_secs(5))?;
    implementation.try_upstream(interrupted)?;
    claim(&mut implementation, &args.has, true)?;
    claim(&mut implementation, &args.lacks, false)?;
    let suite = suite_against(&args.against)?;
    let spoken =
        selected_dialects(args).or(implementation.dialect.map(DialectChoice::One)).unwrap_or_default();
    let limits = ScenarioLimits {
        step: args.timeout,
        start: implementation.start_timeout,
        ..ScenarioLimits::default()
    };
    let iut = Iut::Processes(Box::new(implementation), environment);
    let prober = Prober { suite: &suite, iut: &iut, limits };
    let offered: Vec<(Dialect, BTreeSet<Capability>)> = spoken
        .dialects()
        // A replay needs no probes, because the case already contains its requests.
        .filter(|_| args.replay.is_none())
        .map(|dialect| (dialect, offered_operations(prober, dialect)))
        .collect();
    let offers = |need| offered.iter().all(|(_, needs)| needs.contains(&need));
    let Iut::Processes(implementation, environment) = iut else {
        anyhow::bail!("fuzz requires a server that runs as a process; pass its command with --server");
    };
    let scope = SessionFeatures {
        dialects: spoken,
        ranks: args.ranks,
        free_ranks: free_ranks(args, &implementation),
        nodes: if implementation.capacity_problem(2, 2).is_none() && !implementation.has_upstream() {
            2
        } else {
            1
        },
        spawn: offers(Capability::Spawn),
        names: offers(Capability::Names),
        pmi12: offered.iter().any(|(_, needs)| needs.contains(&Capability::Pmi12)),
        mutate: !args.valid,
        upstream: implementation.has_upstream(),
    };
    let access = Access::Processes(implementation, environment);
    let server = ServerTarget::new(access, suite, args.timeout).context("cannot create a scratch folder")?;
    // The built-in server is not instrumented for edge coverage.
    Ok((if command.is_some() { server.with_edges() } else { server }, scope))
}

/// Returns the maximum number of ranks in a free session, in which the messages of different ranks have no fixed order. The number 0
/// disables free sessions.
fn free_ranks(args: &Fuzz, implementation: &Implementation) -> u32 {
    // A free session needs two ranks. A bare proxy cannot play a free session, because the harness answers some of the proxy's requests in
    // a fixed order.
    if args.ranks < 2 || implementation.has_upstream() {
        return 0;
    }
    let fits = |ranks: &u32| implementation.capacity_problem(*ranks, 1).is_none();
    free::RANKS.into_iter().rev().find(fits).unwrap_or(0)
}

/// Returns the protocols that `--dialect` selects.
fn selected_dialects(args: &Fuzz) -> Option<DialectChoice> {
    let word = args.dialect.as_deref()?;
    Some(word.parse().map_or(DialectChoice::Any, DialectChoice::One))
}

fn random_seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_millis() as u64)
}

/// Returns the command line that tests the same implementation again.
fn command_line(args: &Fuzz) -> String {
    let mut words = vec!["pmi-conform".to_owned(), "fuzz".into()];
    if !args.differential.is_empty() {
        words.push("--differential".into());
        words.extend(args.differential.iter().cloned());
    }
    words.extend(args.server.iter().flat_map(|s| ["--server".to_owned(), s.clone()]));
    words.extend(args.client.iter().flat_map(|c| ["--client".to_owned(), c.clone()]));
    words.extend(args.library.iter().flat_map(|l| ["--library".to_owned(), l.display().to_string()]));
    words.extend(args.dialect.iter().flat_map(|d| ["--dialect".to_owned(), d.clone()]));
    words.extend(args.against.iter().flat_map(|set| ["--against".to_owned(), set.clone()]));
    words.extend(args.connection.option());
    words.extend(args.listen.iter().flat_map(|l| ["--listen".to_owned(), l.clone()]));
    words.extend(args.agent.iter().flat_map(|a| ["--agent".to_owned(), a.display().to_string()]));
    words.extend(args.family.iter().flat_map(|f| ["--family".to_owned(), f.name().to_owned()]));
    shell_words::join(words)
}

fn exit_status(campaign: &CampaignSummary) -> u8 {
    match campaign {
        CampaignSummary { interrupted: true, .. } => INTERRUPTED,
        CampaignSummary { found, .. } if !found.is_empty() => 1,
        CampaignSummary { progress, .. } if progress.sessions == 0 => UNJUDGED,
        _ => 0,
    }
}

/// The progress display of a campaign on standard error.
struct ProgressDisplay {
    bar: ProgressBar,
    terminal: bool,
}

impl ProgressDisplay {
    fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { bar, terminal }
    }

    fn line(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else {
            // A failure to write to standard error is ignored, because it cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

impl Reporter for ProgressDisplay {
    fn progress(&self, progress: &Progress) {
        let text = progress_line(progress);
        if self.terminal {
            self.bar.set_message(text);
        } else if progress.time.as_secs().is_multiple_of(10) {
            self.line(&text);
        }
    }

    fn not_instrumented(&self) {
        self.line(
            "note: the server has no edge coverage, so the corpus keeps only sessions that reach a new transition of the protocol model; to add edge coverage, build the server with afl-clang-fast",
        );
    }

    fn found(&self, found: &StoredFinding) {
        let unseen = found.untraced.as_ref().map(|why| format!("\n     crash location unknown: {why}"));
        let unseen = unseen.unwrap_or_default();
        self.line(&format!("new: {} ({})\n     {}{unseen}", found.bucket, found.label(), found.description));
    }

    fn error(&self, what: &CampaignError) {
        self.line(&format!("error: {what}"));
    }
}

/// Replays a finding, or a case in a scenario file.
fn replay(target: &dyn Target, path: &Path, interrupted: &AtomicBool) -> anyhow::Result<u8> {
    let (found, case) = if path.is_dir() {
        let (found, case) = store::read(path)?;
        (Some(found), case)
    } else {
        (None, store::read_case(path)?)
    };
    // A backtrace would change the key of a crash, so a finding that was stored without a backtrace is replayed without a tracer.
    let tracing = match &found {
        Some(found) if found.backtrace.is_none() => Tracing::Off,
        _ => Tracing::On,
    };
    let (mut shown, mut elsewhere) = (0, 0);
    let runs = if case.scenario.is_free { FREQUENCY_RUNS } else { CONFIRMATION_RUNS };
    for number in 1..=runs {
        let run = target.play(&case, Thoroughness::Thorough, tracing)?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(INTERRUPTED);
        }
        if let Some(why) = &run.observation.unjudged {
            print(&format!("run {number} could not be judged: {why}\n"))?;
        }
        for failure in &run.failures {
            print(&format!("run {number}: {}\n       {}\n", failure.key, failure.description))?;
        }
        let fits =
            |failure: &Failure| found.as_ref().is_none_or(|found| found.bucket == failure.key.to_string());
        let is_near = |failure: &Failure| found.as_ref().is_some_and(|found| found.is_same_crash(failure));
        if run.failures.iter().any(fits) {
            shown += 1;
        } else if run.failures.iter().any(is_near) {
            elsewhere += 1;
        }
    }
    let what = found.as_ref().map_or("any failure", |found| found.bucket.as_str());
    let more = match elsewhere {
        0 => String::new(),
        // The contents of uninitialized memory differ between runs, so the crash location may differ too.
        n => format!("; killed {} by the same signal at a different code location", times(n)),
    };
    print(&format!("{what}: {shown} of {runs}{more}\n"))?;
    Ok(u8::from(shown + elsewhere > 0))
}

/// Copies the scenarios of findings to a folder.
fn export(out: &Path, folder: &Path) -> anyhow::Result<u8> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let entries = std::fs::read_dir(out).with_context(|| out.display().to_string())?;
    let mut folders: Vec<_> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join(store::FINDING).is_file()).collect();
    folders.sort();
    let (mut written, mut left_out) = (0, 0);
    for finding in &folders {
        let (found, case) = store::read(finding)?;
        if found.needs_earlier_job {
            // A scenario is a single job, so a finding that needs an earlier job is skipped.
            left_out += 1;
            continue;
        }
        written += 1;
        let file = folder.join(format!("{}.pmi", found.bucket));
        std::fs::write(&file, case.text()).with_context(|| file.display().to_string())?;
    }
    let mut text = format!("wrote {} to {}\n", count(written, "scenario"), folder.display());
    if left_out > 0 {
        text += &format!(
            "skipped {} (an earlier job is needed); use --replay instead\n",
            count(left_out, "finding")
        );
    }
    print(&text)?;
    Ok(0)
}
