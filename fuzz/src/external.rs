//! Target: sessions of a campaign against a server that environment variables select. If the variables are not set, the server is the
//! in-memory reference server.
//!
//! - `PMI_CONFORM_SERVER`: the command, as for `pmi-conform fuzz --server`, but not a bare `hydra_pmi_proxy`.
//! - `PMI_CONFORM_KNOWN`: a file of known buckets, as for `--known`.
//! - `PMI_CONFORM_OUT`: the folder for findings, `pmi-conform-fuzz` by default.
//!
//! Input: the decisions of the generator.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pmi_fuzzer::generate::case_from_bytes;
use pmi_fuzzer::generate::server::scope::SessionFeatures;
use pmi_fuzzer::observe::failure::Failure;
use pmi_fuzzer::observe::transition::{Transition, transitions};
use pmi_fuzzer::session::case::Case;
use pmi_fuzzer::target::server::{Access, ServerTarget};
use pmi_fuzzer::target::{Target, Thoroughness, Tracing};
use pmi_fuzzer::triage::confirm::Examiner;
use pmi_fuzzer::triage::known_failures::KnownFailures;
use pmi_fuzzer::triage::schedule::Schedule;
use pmi_fuzzer::triage::store::{CONFIRMATION_RUNS, FindingOrigin, store};
use pmi_process::trace::tracer;
use pmi_runner::party::server::{Implementation, ImplementationError, LaunchEnvironment};
use pmi_scenario::ast::Capability;

use crate::counters;

/// Maximum duration of a step, as in a campaign.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of consecutive unjudged sessions after which the target gives up.
const MAX_UNPLAYED: u32 = 20;

/// Checks that the server shows no failure that a campaign would detect, except known failures.
pub fn run(data: &[u8]) {
    static EXTERNAL: LazyLock<External> = LazyLock::new(External::of_environment);
    EXTERNAL.run(data);
}

/// Acts as an agent or a tracer if this program was started as one. Launchers start this program as the processes of a session, so this
/// function must be called first.
pub fn be_agent() {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.first().is_some_and(|name| tracer::is_tracer(name)) {
        std::process::exit(tracer::main().into());
    }
    if argv.first().is_some_and(pmi_process::agent::rank::is_agent) {
        std::process::exit(pmi_process::agent::rank::main(argv).into());
    }
}

struct External {
    server: ServerTarget,
    scope: SessionFeatures,
    known: KnownFailures,
    out: PathBuf,
    /// True if progress is printed and findings are stored. This is false for the in-memory server.
    reports: bool,
    reached: Mutex<CampaignProgress>,
}

struct CampaignProgress {
    since: Instant,
    sessions: u64,
    skipped: u32,
    transitions: BTreeSet<Transition>,
    /// Buckets that are aliases of known buckets, and buckets that did not recur.
    settled: BTreeSet<String>,
}

impl External {
    fn of_environment() -> Self {
        let server = std::env::var("PMI_CONFORM_SERVER").ok();
        let (access, scope) = match &server {
            None => (Access::Memory(pmi_faults::Config::default()), SessionFeatures::default()),
            Some(server) => processes(server).unwrap_or_else(|why| panic!("PMI_CONFORM_SERVER: {why}")),
        };
        let suite = pmi_runner::suite::embedded().expect("the suite is sound");
        let known = std::env::var_os("PMI_CONFORM_KNOWN").map(|file| {
            KnownFailures::read(Path::new(&file)).unwrap_or_else(|why| panic!("PMI_CONFORM_KNOWN: {why}"))
        });
        Self {
            server: ServerTarget::new(access, suite, STEP_TIMEOUT).expect("a scratch folder"),
            scope,
            known: known.unwrap_or_default(),
            out: std::env::var_os("PMI_CONFORM_OUT").unwrap_or_else(|| "pmi-conform-fuzz".into()).into(),
            reports: server.is_some(),
            reached: Mutex::new(CampaignProgress {
                since: Instant::now(),
                sessions: 0,
                skipped: 0,
                transitions: BTreeSet::new(),
                settled: BTreeSet::new(),
            }),
        }
    }

    fn run(&self, data: &[u8]) {
        let case = case_from_bytes(&self.scope, data);
        if self.known.avoids(&case.ingredients) {
            return;
        }
        let run = match self.server.play(&case, Thoroughness::Fast, Tracing::Off) {
            Ok(run) if run.observation.unjudged.is_none() || !run.failures.is_empty() => run,
            Ok(run) => return self.unplayed(&run.observation.unjudged.unwrap_or_default()),
            Err(error) => return self.unplayed(&error.to_string()),
        };
        self.note(transitions(&run.observation));
        let new = run.failures.into_iter().find(|failure| !self.is_settled(failure));
        if let Some(failure) = new {
            self.found(&case, &failure);
        }
    }

    fn reached(&self) -> std::sync::MutexGuard<'_, CampaignProgress> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unplayed(&self, why: &str) {
        eprintln!("a session could not be judged: {why}");
        let unplayed = &mut self.reached().skipped;
        *unplayed += 1;
        assert!(*unplayed < MAX_UNPLAYED, "{MAX_UNPLAYED} sessions in a row could not be judged: {why}");
    }

    /// Counts transitions as coverage, and periodically prints the progress.
    fn note(&self, transitions: Vec<Transition>) {
        for transition in &transitions {
            // Each request has two counters: one for the request with its reaction and the number of waiting processes, and one for the
            // request with the exchange before it. With finer counters, every session would count as new.
            let Transition { before, waiting, request, reaction } = transition;
            counters::seen(hash(&(waiting, request, reaction)));
            counters::seen(hash(&(before, request)));
        }
        let mut reached = self.reached();
        reached.sessions += 1;
        reached.skipped = 0;
        reached.transitions.extend(transitions);
        if self.reports && reached.sessions.is_power_of_two() {
            let rate = reached.sessions as f64 / reached.since.elapsed().as_secs_f64();
            let (sessions, transitions) = (reached.sessions, reached.transitions.len());
            eprintln!("{sessions} sessions ({rate:.0}/s), {transitions} transitions");
        }
    }

    /// Returns whether a failure is known, or has already been examined and need not be examined again.
    fn is_settled(&self, failure: &Failure) -> bool {
        let (bucket, place) = (failure.key.to_string(), failure.key.place().map(ToString::to_string));
        self.known.name(&bucket, place.as_deref()).is_some() || self.reached().settled.contains(&bucket)
    }

    fn found(&self, case: &Case, failure: &Failure) {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let schedule = Schedule::new(None);
        let examiner = Examiner { target: &self.server, seed: 0, interrupted: &NEVER, schedule };
        let seen = failure.key.to_string();
        let (failure, case) =
            examiner.root_cause(failure, case).unwrap_or_else(|| (failure.clone(), case.clone()));
        let bucket = failure.key.to_string();
        if self.is_settled(&failure) {
            self.reached().settled.insert(seen);
            return;
        }
        let shown = examiner.confirm(&failure, &case, 0);
        let Some(smallest) = shown.and_then(|shown| examiner.shrink(shown, 0)) else {
            eprintln!(
                "{bucket}: not confirmed, because the failure recurred in too few of {CONFIRMATION_RUNS} more runs: {}",
                failure.description
            );
            self.reached().settled.extend([seen, bucket]);
            return;
        };
        let found = &smallest.finding;
        let stored = if self.reports {
            let server = std::env::var("PMI_CONFORM_SERVER").unwrap_or_default();
            let replay = format!("pmi-conform fuzz --server '{server}'");
            let version = self.server.version();
            let origin = FindingOrigin { command: self.server.command(), version: &version, replay: &replay };
            let (case, events) = (&smallest.case, &smallest.run.observation.events);
            match store(&self.out, found, case, events, smallest.symptom.as_ref(), &origin) {
                Ok(folder) => format!("stored in {}", folder.display()),
                Err(error) => format!("cannot be stored in {}: {error}", self.out.join(&bucket).display()),
            }
        } else {
            "not stored".into()
        };
        panic!("{bucket} ({}), {stored}: {}\n{}", found.label(), found.description, smallest.case.text());
    }
}

/// The reason why the selected server cannot be fuzzed.
#[derive(Debug)]
enum TargetError {
    Implementation(ImplementationError),
    BareProxy,
    Environment(io::Error),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Implementation(error) => error.fmt(f),
            Self::BareProxy => {
                f.write_str("only pmi-conform fuzz supports a bare hydra_pmi_proxy; name its mpiexec here")
            }
            Self::Environment(error) => error.fmt(f),
        }
    }
}

fn processes(server: &str) -> Result<(Access, SessionFeatures), TargetError> {
    let implementation = Implementation::from_argument(server).map_err(TargetError::Implementation)?;
    if implementation.has_upstream() {
        return Err(TargetError::BareProxy);
    }
    let offers = |need| implementation.claimed_capabilities.get(&need) == Some(&true);
    let scope = SessionFeatures {
        spawn: offers(Capability::Spawn),
        names: offers(Capability::Names),
        ..SessionFeatures::default()
    };
    let environment =
        LaunchEnvironment::new(Arc::new(AtomicBool::new(false)), 1).map_err(TargetError::Environment)?;
    Ok((Access::Processes(Box::new(implementation), environment), scope))
}

fn hash(what: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish() as u32
}
