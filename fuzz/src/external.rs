//! Sessions of a campaign against a server of others, named by variables of the environment; without them against the
//! reference server in memory.
//!
//! - `PMI_CONFORM_SERVER`: the command, as for `pmi-conform fuzz --server`; not a bare `hydra_pmi_proxy`.
//! - `PMI_CONFORM_KNOWN`: a file of known buckets, as for `--known`.
//! - `PMI_CONFORM_OUT`: the folder that findings are stored in, `pmi-conform-fuzz` if not given.
//!
//! Input: the decisions of the generator.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pmi_conform::campaign::arena::{Arena, Pace, Stage, Target, transitions};
use pmi_conform::campaign::generate::{Generated, Scope, decided};
use pmi_conform::campaign::known::Known;
use pmi_conform::campaign::session::Session;
use pmi_conform::campaign::shrink::shrink;
use pmi_conform::campaign::store::{self, Found, TRIES};
use pmi_conform::campaign::symptom::Symptom;
use pmi_conform::lang::ast::Need;
use pmi_conform::launch::{Environment, Implementation};
use pmi_conform::suite::Suite;

use crate::counters;

/// Longest time of a step, as in a campaign.
const WAIT: Duration = Duration::from_secs(1);
/// Most sessions for making a finding smaller.
const SHRINKING: usize = 200;
/// So many sessions that cannot be played in a row mean that none can.
const UNPLAYED: u32 = 20;

/// The server does nothing that the oracles of a campaign know to be wrong, unless it is known.
pub fn run(data: &[u8]) {
    static STAGE: LazyLock<External> = LazyLock::new(External::of_environment);
    STAGE.run(data);
}

/// The processes that a launcher starts for a session run this program as well. To be called first.
pub fn be_agent() {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.first().is_some_and(pmi_conform::agent::is_agent) {
        std::process::exit(pmi_conform::agent::main(argv).into());
    }
}

struct External {
    arena: Arena,
    scope: Scope,
    known: Known,
    out: PathBuf,
    /// Nobody looks at the figures of the server in memory.
    tells: bool,
    reached: Mutex<Reached>,
}

/// What was reached so far.
struct Reached {
    since: Instant,
    sessions: u64,
    unplayed: u32,
    transitions: BTreeSet<String>,
    /// Buckets of which none of several more runs showed anything.
    unconfirmed: BTreeSet<String>,
}

impl External {
    fn of_environment() -> Self {
        let server = std::env::var("PMI_CONFORM_SERVER").ok();
        let (target, scope) = match &server {
            None => (Target::Memory(pmi_reference::Config::default()), Scope::default()),
            Some(server) => processes(server).unwrap_or_else(|why| panic!("PMI_CONFORM_SERVER: {why}")),
        };
        let catalogue = Suite::embedded().expect("the suite is sound").catalogue;
        let known = std::env::var_os("PMI_CONFORM_KNOWN").map(|file| {
            Known::read(Path::new(&file)).unwrap_or_else(|why| panic!("PMI_CONFORM_KNOWN: {why}"))
        });
        Self {
            arena: Arena::new(target, catalogue, WAIT).expect("a scratch folder"),
            scope,
            known: known.unwrap_or_default(),
            out: std::env::var_os("PMI_CONFORM_OUT").unwrap_or_else(|| "pmi-conform-fuzz".into()).into(),
            tells: server.is_some(),
            reached: Mutex::new(Reached {
                since: Instant::now(),
                sessions: 0,
                unplayed: 0,
                transitions: BTreeSet::new(),
                unconfirmed: BTreeSet::new(),
            }),
        }
    }

    fn run(&self, data: &[u8]) {
        let generated = decided(data, self.scope);
        if self.known.avoids(&generated.ingredients) {
            return;
        }
        let verdict = match self.arena.play(&generated.session, Pace::Hasty) {
            Ok(verdict) if verdict.played.unjudged.is_none() || !verdict.symptoms.is_empty() => verdict,
            Ok(verdict) => return self.unplayed(&verdict.played.unjudged.unwrap_or_default()),
            Err(error) => return self.unplayed(&error.to_string()),
        };
        self.book(transitions(&verdict.played));
        let new = verdict.symptoms.into_iter().find(|symptom| !self.is_settled(&symptom.bucket));
        if let Some(symptom) = new {
            self.found(&generated, &symptom);
        }
    }

    fn reached(&self) -> std::sync::MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unplayed(&self, why: &str) {
        eprintln!("a session could not be judged: {why}");
        let unplayed = &mut self.reached().unplayed;
        *unplayed += 1;
        assert!(*unplayed < UNPLAYED, "{UNPLAYED} sessions in a row could not be judged: {why}");
    }

    /// Tells libFuzzer, and now and then who looks on.
    fn book(&self, transitions: Vec<String>) {
        for transition in &transitions {
            // What was answered to how many at once, and what came after what: coarse, for fine ones make every session a
            // new one.
            let (before, after) = transition.split_once(" | ").unwrap_or_default();
            let request = after.split(" | ").nth(1);
            counters::seen(hash(&after));
            counters::seen(hash(&(before, request)));
        }
        let mut reached = self.reached();
        reached.sessions += 1;
        reached.unplayed = 0;
        reached.transitions.extend(transitions);
        if self.tells && reached.sessions.is_power_of_two() {
            let rate = reached.sessions as f64 / reached.since.elapsed().as_secs_f64();
            let (sessions, transitions) = (reached.sessions, reached.transitions.len());
            eprintln!("{sessions} sessions ({rate:.0}/s), {transitions} transitions");
        }
    }

    /// Whether a bucket is known, or was seen and could not be shown again.
    fn is_settled(&self, bucket: &str) -> bool {
        self.known.has(bucket) || self.reached().unconfirmed.contains(bucket)
    }

    fn found(&self, generated: &Generated, symptom: &Symptom) {
        let bucket = &symptom.bucket;
        let again = self.again(&generated.session, bucket);
        if again == 0 {
            eprintln!("{bucket}: seen, and in none of {TRIES} more runs: {}", symptom.what);
            self.reached().unconfirmed.insert(bucket.clone());
            return;
        }
        let minimal = shrink(generated.session.clone(), SHRINKING, true, &mut |candidate| {
            self.shows(candidate, Pace::Hasty, bucket)
        });
        let again_minimal = self.again(&minimal, bucket);
        let found = Found {
            bucket: bucket.clone(),
            what: symptom.what.clone(),
            requirement: symptom.requirement.clone(),
            server: self.arena.label(),
            seed: 0,
            number: 0,
            ingredients: generated.ingredients.iter().cloned().collect(),
            again,
            again_minimal,
            steps: [generated.session.steps.len(), minimal.steps.len()],
            shrinking: SHRINKING,
        };
        let scenario = store::scenario(&found, &minimal);
        let stored = if self.tells { self.store(&found, &minimal) } else { "not stored".into() };
        panic!("{bucket} ({}), {stored}: {}\n{scenario}", found.label(), found.what);
    }

    fn shows(&self, session: &Session, pace: Pace, bucket: &str) -> bool {
        self.arena.play(session, pace).is_ok_and(|v| v.symptoms.iter().any(|s| s.bucket == bucket))
    }

    fn again(&self, session: &Session, bucket: &str) -> u32 {
        (0..TRIES).filter(|_| self.shows(session, Pace::Calm, bucket)).count() as u32
    }

    /// As a campaign does; says where.
    fn store(&self, found: &Found, session: &Session) -> String {
        let folder = self.out.join(&found.bucket);
        let server = std::env::var("PMI_CONFORM_SERVER").unwrap_or_default();
        let replay = format!("pmi-conform fuzz --server '{server}' --replay {}", folder.display());
        let events = self.arena.play(session, Pace::Calm).map(|v| v.played.events).unwrap_or_default();
        match store::store(&folder, found, session, &events, &self.arena, &replay) {
            Ok(()) => format!("stored in {}", folder.display()),
            Err(error) => format!("cannot be stored in {}: {error}", folder.display()),
        }
    }
}

fn processes(server: &str) -> Result<(Target, Scope), String> {
    let implementation = Implementation::from_argument(server).map_err(|e| e.to_string())?;
    if implementation.has_upstream() {
        return Err("a bare hydra_pmi_proxy is for pmi-conform fuzz; name its mpiexec here".into());
    }
    let offers = |need| implementation.claims.get(&need) == Some(&true);
    let scope = Scope { spawn: offers(Need::Spawn), names: offers(Need::Names), ..Scope::default() };
    let environment = Environment::new(Arc::new(AtomicBool::new(false))).map_err(|e| e.to_string())?;
    Ok((Target::Processes(Box::new(implementation), environment), scope))
}

fn hash(what: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish() as u32
}
