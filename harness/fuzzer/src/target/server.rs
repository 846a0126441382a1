//! A server under test, which is launched afresh for each case.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use pmi_faults::Config;
use pmi_judge::earlier_names::{EarlierNames, is_found};
use pmi_judge::event::EventKind;
use pmi_process::observe::tree::remaining_processes;
use pmi_runner::party::server::{Implementation, LaunchEnvironment, ServerParty, SilenceTimes};
use pmi_runner::party::{MemoryParty, ScenarioLimits};
use pmi_scenario::ast::Dialect;
use pmi_scenario::suite::Suite;
use pmi_wire::Framing;

use super::command::{output_of, plain};
use super::{CaseRun, LaunchCounts, Target, Thoroughness, Tracing, append_events, traced};
use crate::generate::server::jobs::publish_and_lookup;
use crate::observe::edges::Maps;
use crate::observe::failure::Failure;
use crate::observe::observation::Observation;
use crate::observe::oracle::server::{death_likelihood, failures};
use crate::observe::proxy_status::{self, ProxyStatus};
use crate::session::case::Case;
use crate::target::play::play;

/// The waiting times for a silent server in a campaign. A failure that is detected with these short times is confirmed with the usual
/// times.
const FAST_SILENCE: SilenceTimes =
    SilenceTimes { idle: Duration::ZERO, starved: Duration::from_millis(6), rounds: 2, accepts_polls: true };

/// In a thorough play, a job may take `END_FACTOR` times the usual limit of a step to end, because launchers may sleep before they exit.
const END_FACTOR: u32 = 8;

/// A silence is accepted after `SILENCE_FACTOR` times the duration of the slowest response, but not before [`MIN_SILENCE`].
const SILENCE_FACTOR: u32 = 30;
/// The minimum duration of a silence. See [`SILENCE_FACTOR`].
const MIN_SILENCE: Duration = Duration::from_millis(60);

/// The way to reach a server.
pub enum Access {
    /// The in-memory reference server.
    Memory(Config),
    /// A server that runs as real processes.
    Processes(Box<Implementation>, LaunchEnvironment),
}

/// A server under test.
pub struct ServerTarget {
    access: Access,
    /// The command as the user would write it.
    command: Vec<String>,
    suite: Suite,
    wait: Duration,
    /// The duration of the slowest recent response, in microseconds.
    slowest: AtomicU64,
    /// The script that reports how Hydra's proxies ended, if the kernel does not report it.
    proxy_status: Option<ProxyStatus>,
    /// The edge maps, if coverage was requested.
    maps: Option<Maps>,
    /// The names that the jobs played so far have published.
    names: Mutex<EarlierNames>,
    names_outlive_jobs: OnceLock<bool>,
    launched: Mutex<LaunchCounts>,
}

/// The time limits of a case.
#[derive(Clone, Copy)]
struct CaseTimeouts {
    pace: Thoroughness,
    limits: ScenarioLimits,
    /// Maximum time for the job to end after the last step.
    ending: Duration,
}

impl ServerTarget {
    /// Prepares a server. A step of a case may take at most `wait`, or twice `wait` in a thorough play.
    ///
    /// # Errors
    ///
    /// Returns an error if a scratch folder cannot be created.
    pub fn new(mut access: Access, suite: Suite, wait: Duration) -> io::Result<Self> {
        let command = match &access {
            Access::Memory(_) => Vec::new(),
            Access::Processes(implementation, _) => implementation.template().to_vec(),
        };
        let proxy_status = match &mut access {
            Access::Processes(implementation, environment) if !environment.kernel_reports_exits => {
                proxy_status::install(implementation)?
            }
            Access::Memory(_) | Access::Processes(..) => None,
        };
        let (slowest, maps) = (AtomicU64::new(0), None);
        let (names, keeps_names, launched) = (Mutex::default(), OnceLock::new(), Mutex::default());
        Ok(Self {
            access,
            command,
            suite,
            wait,
            slowest,
            proxy_status,
            maps,
            names,
            names_outlive_jobs: keeps_names,
            launched,
        })
    }

    /// Makes the target measure the coverage of the server's program.
    pub fn with_edges(self) -> Self {
        Self { maps: Some(Maps::default()), ..self }
    }

    /// Returns how long a silence must last to be accepted if the server's state is unknown. This is many times the duration of the slowest
    /// response.
    fn fast_wait(&self) -> Duration {
        let slowest = Duration::from_micros(self.slowest.load(Ordering::Relaxed));
        (slowest * SILENCE_FACTOR).max(MIN_SILENCE).min(self.wait)
    }

    /// Plays one job to its end. Returns the observation, and the processes that the launcher has left behind.
    fn launch(
        &self,
        case: &Case,
        times: CaseTimeouts,
        tracing: Tracing,
    ) -> io::Result<(Observation, Vec<String>)> {
        let CaseTimeouts { pace, limits, ending } = times;
        match &self.access {
            Access::Memory(config) => {
                let pmi2 = config.pmi2 || case.scenario.dialect.framing() == Framing::Frames;
                let nodes = case.scenario.nodes;
                let mut party = MemoryParty::launch(Config { pmi2, nodes, ..config.clone() }, case.ranks());
                Ok((play(case, &self.suite, &mut party, Vec::new(), limits, ending), Vec::new()))
            }
            Access::Processes(implementation, environment) => {
                let play = || -> io::Result<_> {
                    let (ranks, nodes) = (case.ranks(), case.scenario.nodes);
                    let (mut party, command) =
                        ServerParty::launch(implementation, ranks, nodes, limits.step, environment)?;
                    party.set_in_turn(!case.scenario.is_free);
                    if pace == Thoroughness::Fast {
                        party.set_silence_times(FAST_SILENCE);
                    }
                    let mut seen = play(case, &self.suite, &mut party, command, limits, ending);
                    // The first death is the cause of the others. A process that was terminated, or that wrote to a dead process, did not
                    // die first.
                    seen.crashed =
                        party.deaths().into_iter().chain(seen.crashed).min_by_key(death_likelihood);
                    // If a script wraps the proxy, a launcher that kills its proxy kills only the script's shell, so remaining processes
                    // prove nothing.
                    let finds_leftovers = seen.exit.is_some() && self.proxy_status.is_none();
                    let left =
                        if finds_leftovers { remaining_processes(|| party.leftovers()) } else { Vec::new() };
                    Ok((seen, left))
                };
                let (played, traces) = traced(tracing, &environment.agent, play);
                let (mut seen, left) = played?;
                append_events(&mut seen.events, traces);
                self.count(&seen);
                Ok((seen, left))
            }
        }
    }

    /// Counts a launched job and its processes.
    fn count(&self, seen: &Observation) {
        let started =
            seen.events.iter().filter(|event| matches!(event.kind, EventKind::Started { .. })).count();
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        launched.jobs += 1;
        launched.processes += started as u64;
    }

    fn names(&self) -> MutexGuard<'_, EarlierNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a job can look up names that an earlier job published. This is checked only once, with a unique name.
    fn names_outlive_jobs(&self, dialect: Dialect, times: CaseTimeouts) -> bool {
        *self.names_outlive_jobs.get_or_init(|| {
            let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
            let name = format!("of-job-{}-{since}", std::process::id());
            let finds = |case: Case| {
                let (seen, _) = self.launch(&case, times, Tracing::Off).ok()?;
                Some(is_found(&seen.events))
            };
            let [publishes, looks_up] = publish_and_lookup(dialect, &name);
            finds(publishes).is_some() && finds(looks_up) == Some(true)
        })
    }

    /// Removes findings about names that another job may have left published, since RFC 13 does not define the lifetime of names. The names
    /// are those of the earlier job, or of all jobs so far if names outlive jobs.
    fn drop_excused(&self, seen: &mut Observation, earlier: Option<&Observation>, times: CaseTimeouts) {
        let mut left = EarlierNames::default();
        earlier.iter().for_each(|earlier| left.record(&earlier.events));
        seen.findings = left.without_excused(&seen.findings, &seen.events);
        let others = self.names().without_excused(&seen.findings, &seen.events);
        if others.len() < seen.findings.len() && self.names_outlive_jobs(seen.dialect, times) {
            seen.findings = others;
        }
        let mut names = self.names();
        earlier.into_iter().chain([&*seen]).for_each(|job| names.record(&job.events));
    }
}

impl Target for ServerTarget {
    fn launched(&self) -> Option<LaunchCounts> {
        let launched = || *self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(self.access, Access::Processes(..)).then(launched)
    }

    fn plays_at_once(&self, workers: usize) -> usize {
        match &self.access {
            Access::Memory(_) => workers,
            Access::Processes(_, environment) => environment.slots.launches(),
        }
    }

    fn play(&self, case: &Case, pace: Thoroughness, tracing: Tracing) -> io::Result<CaseRun> {
        let (wait, ending) = match pace {
            Thoroughness::Thorough => (2 * self.wait, END_FACTOR * self.wait),
            Thoroughness::Fast => (self.fast_wait(), self.fast_wait()),
        };
        let (upstream, start) = match &self.access {
            Access::Memory(_) => (false, None),
            Access::Processes(implementation, _) => {
                (implementation.has_upstream(), implementation.start_timeout)
            }
        };
        let limits = ScenarioLimits { step: wait, start, ..ScenarioLimits::default() };
        if let Access::Processes(implementation, _) = &self.access
            && let Some(why) = implementation.capacity_problem(case.scenario.ranks, case.scenario.nodes)
        {
            return Err(io::Error::other(format!("the session cannot be played: {why}")));
        }
        if case.needs_upstream() && !upstream {
            return Err(io::Error::other(
                "in this session, pmi-conform acts as the upstream of a proxy, so --server must be a bare hydra_pmi_proxy",
            ));
        }
        let times = CaseTimeouts { pace, limits, ending };
        // The failures of the earlier job are ignored, because they belong to a different case.
        let earlier = case.earlier.as_ref().map(|earlier| self.launch(earlier, times, Tracing::Off));
        let earlier = earlier.transpose()?.map(|(seen, _)| seen);
        // The coverage of the earlier job does not count.
        let ((mut seen, left), edges) = match &self.maps {
            Some(maps) => {
                let (played, edges) = maps.watch(|| self.launch(case, times, tracing))?;
                (played?, Some(edges))
            }
            None => (self.launch(case, times, tracing)?, None),
        };
        seen.edges = edges;
        self.drop_excused(&mut seen, earlier.as_ref(), times);
        let slowest = seen.slowest_response.as_micros() as u64;
        // The value decays slowly, and thus reflects only recent slow phases of the machine.
        let _ = self
            .slowest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |s| Some(slowest.max(s - s / 64)));
        let mut failures = failures(&seen, &self.suite.catalogue);
        if !left.is_empty() && seen.crashed.is_none() {
            failures.push(Failure::leak("the launcher", &left));
        }
        Ok(CaseRun { observation: seen, failures })
    }

    fn command(&self) -> &[String] {
        &self.command
    }

    fn version(&self) -> String {
        let launcher = plain(&self.command).first().cloned().unwrap_or_default();
        format!("{launcher}: {}\n", output_of(&launcher, &["--version"]))
    }

    fn label(&self) -> String {
        match &self.access {
            Access::Memory(_) => "the in-memory reference server".into(),
            Access::Processes(implementation, _) => implementation.label.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pmi_faults::{Behaviour, faults, variations};

    use super::*;
    use crate::generate::case_from_number;
    use crate::generate::server::scope::{DialectChoice, SessionFeatures};

    /// Returns the first failure in the first `cases` PMI-2 cases, with the number of its case.
    fn found(behaviour: Behaviour, cases: u64, mutate: bool) -> Option<(u64, Failure)> {
        let suite = pmi_runner::suite::embedded().unwrap();
        let config = Config { wrapper: behaviour, ..Config::default() };
        let server = ServerTarget::new(Access::Memory(config), suite, Duration::from_secs(1)).unwrap();
        let scope = SessionFeatures {
            dialects: DialectChoice::One(Dialect::Pmi2),
            mutate,
            ..SessionFeatures::default()
        };
        (0..cases).find_map(|number| {
            let run =
                server.play(&case_from_number(&scope, 1, number), Thoroughness::Fast, Tracing::Off).unwrap();
            assert_eq!(run.observation.unjudged, None, "{number}");
            run.failures.into_iter().next().map(|failure| (number, failure))
        })
    }

    #[test]
    fn pmi2_variations_cause_no_failures() {
        assert_eq!(found(Behaviour::default(), 150, true), None);
        for variation in variations() {
            assert_eq!(found(variation.behaviour(), 3, true), None, "{}", variation.name);
        }
    }

    #[test]
    fn finds_requirements_broken_by_pmi2_faults() {
        for name in [
            "frame-length-too-short",
            "kvsname-per-rank",
            "put-lost",
            "value-cut-at-1000",
            "kvs-get-believes-hint",
            "barrier-opens-once",
            "nodeattr-wait-at-once",
            "names-other-port",
        ] {
            let fault = faults().find(|fault| fault.name == name).unwrap();
            let (_, failure) = found(fault.behaviour(), 120, false).unwrap_or_else(|| panic!("{name}"));
            let broken = failure.requirement.unwrap_or_default();
            assert!(fault.breaks.contains(&&*broken), "{name}: {broken}");
        }
    }
}
