//! A program under test that speaks PMI.
//!
//! It is started under the reference process manager (`serve`), which a scenario makes unusual or hostile. An arbitrary program
//! cannot be told which requests to make: a scenario says what the server does at which request, and what the program must
//! come to. The monitor judges every request meanwhile.

mod actor;
mod script;
mod stage;
mod verdict;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::interpret::walk::Fragments;
use crate::interpret::{EventSink, Recorder};
use crate::party::Limits;
use crate::process::{procfs, tree};
use crate::serve::job::{Job, Manner};
use crate::serve::launch::Program as Executable;
use pmi_judge::event::{Exit, What};
use pmi_judge::verdict::Verdict;
use pmi_judge::{Judge, Outcome, Side};
use pmi_scenario::ast::Scenario;
use pmi_wire::Proc;

use actor::{Actor, Why};
use script::Script;
use stage::Stage;

/// Why a program that never makes a request has nothing to do with what is said to it.
pub const NO_SUCH_REQUEST: &str = "the program makes no such request";

/// A program under test.
#[derive(Debug)]
pub struct Program {
    /// As the user gave it.
    pub label: String,
    /// The program and its arguments.
    command: Vec<OsString>,
    /// Number of processes where a scenario does not say how many.
    ranks: u32,
    /// Whether somebody asks what is left of it, which takes time to tell.
    finds_left: bool,
    /// What plain runs came to, by number of processes.
    plain: Mutex<HashMap<u32, Arc<OnceLock<Plain>>>>,
}

/// What the program does where nothing is unusual.
#[derive(Debug)]
struct Plain {
    /// Standard output of each process; `None` if it is not the same each time.
    output: Option<BTreeMap<Proc, Vec<u8>>>,
    /// Why it cannot be a measure: a program that fails is told of by the scenarios that ask no more than that it ends well.
    failed: Option<(Verdict, String)>,
}

/// One job that is over.
struct Played<'a> {
    actors: BTreeMap<Proc, Actor>,
    aborts: Vec<(Proc, String)>,
    spoke: bool,
    recorder: Recorder<'a>,
    done: io::Result<()>,
    /// Names of processes that are left when all have ended by themselves.
    left: Vec<String>,
}

impl Program {
    /// Reads a command line.
    ///
    /// # Errors
    ///
    /// It has no words, cannot be split into words, or names no program that is there.
    pub fn new(command: &str, ranks: u32) -> Result<Self, String> {
        let words = shell_words::split(command)
            .map_err(|e| format!("\"{command}\" cannot be split into words: {e}"))?;
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let executable = Executable::new(&words).map_err(|e| e.to_string())?;
        executable.resolve().map_err(|e| e.to_string())?;
        Ok(Self {
            label: command.to_owned(),
            command: words,
            ranks,
            finds_left: false,
            plain: Mutex::default(),
        })
    }

    /// Has every run tell which processes it has left: [`Outcome::left`].
    pub fn find_left(&mut self) {
        self.finds_left = true;
    }

    /// The file that is executed, if it is there.
    pub fn path(&self) -> Option<PathBuf> {
        Executable::new(&self.command).ok()?.resolve().ok()
    }

    /// Starts it under a scenario's server and waits for its end.
    fn start<'a>(
        &self,
        script: &'a Script,
        ranks: u32,
        limits: Limits,
        interrupted: &'a AtomicBool,
        mut recorder: Recorder<'a>,
    ) -> Played<'a> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        tree::become_subreaper();
        let mark = format!("client-{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        recorder.record(What::Launched { command, ranks, nodes: script.config.nodes });
        let stage = Stage::new(script, recorder, limits, interrupted, mark.clone());
        let job = Job::new(stage, self.command.clone(), Manner::Captured);
        let (done, stage) = match job {
            Ok(job) => job.run(ranks),
            Err((error, stage)) => (Err(error), stage),
        };
        let by_themselves =
            self.finds_left && done.is_ok() && stage.actors.values().all(|actor| !actor.was_ended());
        let names = || tree::orphans(&mark).into_iter().filter_map(procfs::name).collect();
        let left = if by_themselves { tree::left_over(names) } else { Vec::new() };
        tree::end_orphans_of(&mark);
        Played {
            left,
            aborts: stage.aborts.into_iter().collect(),
            spoke: stage.received > 0,
            actors: stage.actors.into_iter().collect(),
            recorder: stage.recorder,
            done: done.map(drop),
        }
    }

    /// What plain runs come to; two are made, since output that changes from run to run is no measure.
    fn plain(&self, ranks: u32, limits: Limits, interrupted: &AtomicBool) -> Arc<OnceLock<Plain>> {
        let cell =
            Arc::clone(self.plain.lock().unwrap_or_else(PoisonError::into_inner).entry(ranks).or_default());
        cell.get_or_init(|| {
            let first = self.plain_run(ranks, limits, interrupted);
            match first {
                Err(why) => Plain { output: None, failed: Some(why) },
                Ok(output) => {
                    let again = self.plain_run(ranks, limits, interrupted);
                    Plain { output: again.is_ok_and(|again| again == output).then_some(output), failed: None }
                }
            }
        });
        cell
    }

    fn plain_run(
        &self,
        ranks: u32,
        limits: Limits,
        interrupted: &AtomicBool,
    ) -> Result<BTreeMap<Proc, Vec<u8>>, (Verdict, String)> {
        let script = Script::plain();
        let mut sink = ();
        let recorder = Recorder::new(&mut sink, Judge::watching(Side::Client));
        let played = self.start(&script, ranks, limits, interrupted, recorder);
        played.done.map_err(|e| (Verdict::Unjudged, e.to_string()))?;
        if !played.spoke {
            return Err((Verdict::Unjudged, silent(&played.actors)));
        }
        let bad =
            played.actors.iter().find(|(_, actor)| actor.exit != Some(Exit::Code(0)) || actor.was_ended());
        match bad {
            Some((p, actor)) => {
                let why = format!(
                    "the program does not end well where nothing is unusual ({}), so nothing can be held against it here",
                    verdict::end_of(*p, actor)
                );
                Err((Verdict::NotApplicable, why))
            }
            None if played.actors.values().any(|a| a.output_cut) => Ok(BTreeMap::new()),
            None => Ok(played.actors.into_iter().map(|(p, actor)| (p, actor.output)).collect()),
        }
    }
}

/// Why a program that wrote nothing to PMI_FD cannot be judged.
fn silent(actors: &BTreeMap<Proc, Actor>) -> String {
    let ends: Vec<String> = actors.iter().take(1).map(|(p, actor)| verdict::end_of(*p, actor)).collect();
    format!(
        "no process wrote anything to PMI_FD ({}): is it a program that speaks PMI-1, as MPICH's do?",
        ends.join(", ")
    )
}

/// Plays a scenario against a program.
///
/// # Errors
///
/// The scenario does not apply or cannot be judged: which of the two, and why.
pub fn play(
    program: &Program,
    scenario: &Scenario,
    fragment: Fragments<'_>,
    limits: Limits,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Result<Outcome, (Verdict, String)> {
    let ranks = if scenario.serving.sized { scenario.ranks } else { program.ranks };
    let script = match Script::new(scenario, fragment) {
        Ok(script) => script,
        Err(error) => return Ok(verdict::wrong(error)),
    };
    let measure = script.is_unusual() || script.compares();
    let plain = measure.then(|| program.plain(ranks, limits, interrupted));
    let plain = plain.as_ref().and_then(|cell| cell.get());
    if let Some(why) = plain.and_then(|plain| plain.failed.clone()) {
        return Err(why);
    }
    let requires = scenario.requires.iter().map(|r| r.value.clone()).collect();
    let recorder = Recorder::new(sink, Judge::new(Side::Client, requires));
    let played = program.start(&script, ranks, limits, interrupted, recorder);
    let reached = played.actors.values().any(|actor| actor.fired > 0);
    if let Some(line) = script.first_trigger().filter(|_| !reached && played.done.is_ok())
        && !interrupted.load(Ordering::Relaxed)
    {
        let text = scenario.source.text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let wanted = text.split_once("C:").map_or(text, |(_, wanted)| wanted).trim();
        let wanted = wanted.trim_start_matches("<every> ");
        return Err((Verdict::NotApplicable, format!("{NO_SUCH_REQUEST}: {wanted}")));
    }
    Ok(verdict::outcome(&script, played, plain, interrupted.load(Ordering::Relaxed)))
}
