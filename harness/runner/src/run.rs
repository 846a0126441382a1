//! A run: the selected scenarios, each against a fresh launch, several at a time, results in the order of the suite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use pmi_reference::Config;

use crate::interpret::EventSink;
use crate::interpret::library::play as play_library;
use crate::interpret::play;
use crate::interpret::program;
use crate::party::library::{Library, apis};
use crate::party::program::Program;
use crate::party::server::{Environment, Implementation, ServerParty};
use crate::party::{Limits, MemoryParty};
use crate::process::trace;
use pmi_judge::attempts::Repetitions;
use pmi_judge::crash::{Of, of_crash};
use pmi_judge::deviations::Deviations;
use pmi_judge::event::{Event, What};
use pmi_judge::result::{self, Ran};
use pmi_judge::verdict::{LOG_FORMAT, RunEnd, RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{LINE_LIMIT, Outcome, Side, Unjudged};
use pmi_scenario::ast::{
    Action, Dialect, Kind, Need, Piece, ProcessAction, Role, Scenario, Source, Step, Template,
};
use pmi_scenario::signature;
use pmi_scenario::suite::Suite;
use pmi_wire::pmi2::{self, Semicolons};
use pmi_wire::{
    Body, Connection, Direction, Framed, Framing, HEADER, Message as Line, Proc, Response, ValueReading,
    Version, WayIn,
};

/// After so many scenarios in a row without a sign of life, the rest is not tried.
const LIFELESS: usize = 5;

/// What is under test.
pub enum Target {
    /// The reference server in memory.
    Memory(Config),
    /// Real processes.
    Processes(Box<Implementation>, Environment),
    /// A PMI library; optional operations that are said to be there or to lack; set when the run is to end at once.
    Library(Box<Library>, BTreeMap<Need, bool>, Arc<AtomicBool>),
    /// A program that speaks PMI, under the reference server.
    Client(Box<Program>),
}

impl Target {
    /// How the processes of its jobs come to their connections.
    pub fn way_in(&self) -> WayIn {
        match self {
            Self::Processes(implementation, _) => implementation.way_in,
            Self::Client(program) => program.way_in(),
            Self::Memory(_) | Self::Library(..) => WayIn::Fd,
        }
    }

    /// Whether the processes of its jobs relay their connections.
    pub fn is_relayed(&self) -> bool {
        matches!(self, Self::Processes(_, environment) if environment.listen.is_some())
    }

    /// Scenarios that may have been begun at the same time, whether they are at work or wait.
    fn plays_at_once(&self, options: &Options) -> usize {
        match self {
            Self::Processes(_, environment) => environment.slots.launches(),
            Self::Memory(_) | Self::Library(..) | Self::Client(_) => options.jobs,
        }
    }
}

/// How often a scenario is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tries {
    /// Once.
    #[default]
    Once,
    /// So many times; the worst attempt counts.
    Repeat(u32),
    /// Again up to so many times while it is red; what is not red in the end is flaky.
    Retry(u32),
}

impl Tries {
    /// The most attempts.
    fn most(self) -> u32 {
        match self {
            Self::Once => 1,
            Self::Repeat(times) => times.max(1),
            Self::Retry(more) => more.saturating_add(1),
        }
    }
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Launches side by side.
    pub jobs: usize,
    /// Bounds of a scenario.
    pub limits: Limits,
    /// What is red.
    pub strict: Strictness,
    /// Stop after so many red scenarios.
    pub max_fail: Option<usize>,
    /// Stop trying where the implementation shows no sign of life.
    pub give_up: bool,
    /// How often a scenario is played.
    pub tries: Tries,
    /// Our own program, which plays a scenario once more after a crash and looks where that happens; nobody looks if there is none.
    pub tracer: Option<PathBuf>,
    /// The command that plays one scenario again, up to its name.
    pub replay: String,
    /// The command that runs all of it again.
    pub command: String,
    /// The protocols that are asked for, which the header tells where nothing is selected.
    pub dialects: Vec<Dialect>,
}

impl Options {
    /// For a run that is not reported: one scenario after the other, all of them.
    pub fn uncounted(limits: Limits) -> Self {
        Self {
            jobs: 1,
            limits,
            strict: Strictness::Must,
            max_fail: None,
            give_up: false,
            tries: Tries::Once,
            tracer: None,
            replay: String::new(),
            command: String::new(),
            dialects: Vec::new(),
        }
    }
}

/// Is told what happens, in the order of the suite.
pub trait Observer {
    /// Before the first scenario.
    fn begin(&mut self, header: &RunHeader);
    /// An event of a scenario.
    fn event(&mut self, scenario: &str, event: &Event);
    /// A scenario is done.
    fn result(&mut self, result: &ScenarioResult);
}

/// What the implementation offers, and how that is known.
#[derive(Default)]
struct Offers {
    /// Optional operations, by the dialect in which they are asked for.
    needs: BTreeMap<(Dialect, Need), (bool, String)>,
    /// Why what is said in a dialect does not apply.
    unspoken: BTreeMap<Dialect, String>,
    /// Why a library cannot be judged by what we say to it: it does not speak the wire protocol.
    wireless: Option<String>,
}

enum Message {
    Events(usize, Vec<Event>),
    Done(usize, Box<(Outcome, Duration)>),
    /// It was played more than once, or might have been.
    Tried(usize, Box<Tried>),
    Skipped(usize, Box<(Verdict, String)>),
}

/// What several attempts came to.
struct Tried {
    result: ScenarioResult,
    /// Of the attempt that counts.
    events: Vec<Event>,
    /// In the last attempt, there was no sign of life.
    lifeless: bool,
    /// The scenario has a mistake.
    mistake: bool,
    interrupted: bool,
}

/// Passes events on, many at a time: whoever is woken for each takes time from the scenario.
struct Channel<'a> {
    index: usize,
    sender: &'a mpsc::Sender<Message>,
    events: Vec<Event>,
    /// What they carry.
    bytes: usize,
}

/// Most events that wait to be passed on, and most bytes that they carry.
const BATCH: (usize, usize) = (1024, 1 << 20);

impl Channel<'_> {
    fn flush(&mut self) {
        self.bytes = 0;
        let events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            // The receiver only goes away when the run is over.
            let _ = self.sender.send(Message::Events(self.index, events));
        }
    }
}

impl EventSink for Channel<'_> {
    fn event(&mut self, event: &Event) {
        self.bytes += event.what.bytes().map_or(0, <[u8]>::len);
        self.events.push(event.clone());
        if self.events.len() >= BATCH.0 || self.bytes >= BATCH.1 {
            self.flush();
        }
    }
}

/// Plays the scenarios and judges them.
pub fn run(
    suite: &Suite,
    selected: &[Arc<Scenario>],
    target: &Target,
    deviations: &mut Deviations,
    options: &Options,
    interrupted: &AtomicBool,
    observer: &mut dyn Observer,
) -> (RunHeader, Vec<ScenarioResult>, RunEnd) {
    let start = Instant::now();
    let label = match target {
        Target::Memory(_) => "the reference server in memory".to_owned(),
        Target::Processes(implementation, _) => implementation.label.clone(),
        Target::Library(library, ..) => {
            let under = library.server.as_ref().map(|s| format!(" under {}", s.label)).unwrap_or_default();
            format!("the library {}{under}", library.path.display())
        }
        Target::Client(program) => program.label.clone(),
    };
    let header = RunHeader {
        format: LOG_FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        server: label,
        implementation: deviations.implementation().map(str::to_owned),
        implementation_version: match target {
            Target::Processes(implementation, _) => implementation.version.as_ref().map(ToString::to_string),
            Target::Memory(_) | Target::Library(..) | Target::Client(_) => None,
        },
        command: options.command.clone(),
        against: suite.catalogue.judged_by().into_iter().map(str::to_owned).collect(),
        dialect: match dialects(selected) {
            none if none.is_empty() => options.dialects.iter().copied().collect(),
            spoken => spoken,
        }
        .iter()
        .map(Dialect::to_string)
        .collect::<Vec<_>>()
        .join(" and "),
        connection: target.way_in(),
        relayed: target.is_relayed(),
        under_test: match target {
            Target::Memory(_) | Target::Processes(..) => Some(Side::Server),
            Target::Library(..) => Some(Side::Library),
            Target::Client(_) => Some(Side::Client),
        },
        selected: selected.len(),
        strict: options.strict,
    };
    observer.begin(&header);
    let offers = offers(suite, selected, target, options);
    let mut results = Vec::new();
    // Scenarios that were played when the user ended the run.
    let mut cut = BTreeSet::new();
    let mut scenario_errors = false;
    let stop = AtomicBool::new(false);
    // A launch on several nodes has a command of its own, which tells nothing of the other.
    let kind = |index: usize| usize::from(selected[index].nodes > 1);
    let dead = [AtomicBool::new(false), AtomicBool::new(false)];
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..target.plays_at_once(options).clamp(1, selected.len().max(1)) {
            let sender = sender.clone();
            let (stop, dead, next, offers) = (&stop, &dead, &next, &offers);
            let mut known = deviations.clone();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !interrupted.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = selected.get(index) else { break };
                    let mut sink = Channel { index, sender: &sender, events: Vec::new(), bytes: 0 };
                    let play = |sink: &mut dyn EventSink| {
                        let once = |sink: &mut dyn EventSink| {
                            play_scenario(suite, scenario, target, offers, options, interrupted, sink)
                        };
                        let (mut outcome, time) = once(sink)?;
                        if let Some(tracer) = options.tracer.as_deref().filter(|_| outcome.crashed.is_some())
                        {
                            look_into(&mut outcome, tracer, || drop(once(&mut ())), sink);
                        }
                        Ok((outcome, time))
                    };
                    let message = if dead[kind(index)].load(Ordering::Relaxed) {
                        Err((Verdict::Unjudged, not_tried()))
                    } else if options.tries == Tries::Once {
                        play(&mut sink).map(|done| Message::Done(index, Box::new(done)))
                    } else {
                        let mut play = || play(&mut ());
                        let tried = try_often(suite, scenario, options, &mut known, &mut play);
                        tried.map(|tried| Message::Tried(index, Box::new(tried)))
                    };
                    let message =
                        message.unwrap_or_else(|skipped| Message::Skipped(index, Box::new(skipped)));
                    sink.flush();
                    if sender.send(message).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut order = InOrder::default();
        let mut red = 0;
        let enough = |red| options.max_fail.is_some_and(|max| red >= max);
        // Judged in the order of the suite, so that the verdicts do not depend on how many are played side by side.
        let mut lifeless = [0; 2];
        // What a program fails to do for want of a plain run costs nothing to say, and others tell why.
        let gives_up = options.give_up && !matches!(target, Target::Client(_));
        let gave_up = |lifeless: [usize; 2], kind: usize| gives_up && lifeless[kind] >= LIFELESS;
        for message in receiver {
            order.take(message, |message| {
                // Workers may be further already; what they found does not count, so that the cut is the same in
                // every run.
                if enough(red) {
                    return;
                }
                let result = match message {
                    Message::Events(index, _) if gave_up(lifeless, kind(index)) => return,
                    Message::Done(index, _) | Message::Tried(index, _) | Message::Skipped(index, _)
                        if gave_up(lifeless, kind(index)) =>
                    {
                        skip(&selected[index], Verdict::Unjudged, not_tried(), options)
                    }
                    Message::Events(index, _) if deviations.are_sensitive_in(&selected[index].name) => return,
                    Message::Events(index, events) => {
                        return events.iter().for_each(|event| observer.event(&selected[index].name, event));
                    }
                    Message::Done(index, done) => {
                        let (outcome, time) = *done;
                        count_lifeless(&mut lifeless[kind(index)], outcome.lifeless);
                        scenario_errors |= outcome.scenario_error.is_some();
                        if outcome.unjudged == Some(Unjudged::Interrupted) {
                            cut.insert(selected[index].name.clone());
                        }
                        judged(suite, &selected[index], outcome, time, options, deviations)
                    }
                    Message::Tried(index, tried) => {
                        let Tried { result, events, lifeless: none, mistake, interrupted } = *tried;
                        count_lifeless(&mut lifeless[kind(index)], none);
                        scenario_errors |= mistake;
                        if interrupted {
                            cut.insert(result.scenario.clone());
                        }
                        if !deviations.are_sensitive_in(&result.scenario) {
                            events.iter().for_each(|event| observer.event(&result.scenario, event));
                        }
                        deviations.note(&result);
                        result
                    }
                    Message::Skipped(index, skipped) => {
                        // What could not be launched counts, what does not apply says nothing.
                        lifeless[kind(index)] += usize::from(skipped.0 == Verdict::Unjudged);
                        skip(&selected[index], skipped.0, skipped.1, options)
                    }
                };
                red += usize::from(result.is_red(options.strict));
                observer.result(&result);
                results.push(result);
            });
            for (kind, dead) in dead.iter().enumerate() {
                dead.store(gave_up(lifeless, kind), Ordering::Relaxed);
            }
            if enough(red) {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
    });
    // A scenario that was cut short by Ctrl-C says nothing.
    let interrupted = interrupted.load(Ordering::Relaxed);
    if interrupted {
        results.retain(|r: &ScenarioResult| !cut.contains(&r.scenario));
    }
    let ran = Ran {
        selected: selected.len(),
        interrupted,
        scenario_errors,
        strict: options.strict,
        time: start.elapsed(),
    };
    let end = result::of_run(suite, &results, deviations, ran);
    (header, results, end)
}

/// Counts scenarios in a row without a sign of life.
fn count_lifeless(number: &mut usize, lifeless: bool) {
    *number = if lifeless { *number + 1 } else { 0 };
}

/// The result of a scenario that was played.
fn judged(
    suite: &Suite,
    scenario: &Scenario,
    outcome: Outcome,
    time: Duration,
    options: &Options,
    deviations: &mut Deviations,
) -> ScenarioResult {
    let mut blank = blank(scenario, options);
    blank.time_us = time.as_micros() as u64;
    let quote = |line| quote(&scenario.source, line);
    result::of_scenario(blank, outcome, &suite.catalogue, quote, deviations, options.strict)
}

/// Looks where the crash of an outcome happens, by playing its scenario once more. What else comes of that does not count.
fn look_into(outcome: &mut Outcome, tracer: &Path, again: impl FnOnce(), sink: &mut dyn EventSink) {
    let Some((name, signal)) = &outcome.crashed else { return };
    let ((), told) = trace::traced(tracer, again);
    let events: Vec<Event> =
        (outcome.events.len() as u64..).zip(told).map(|(seq, what)| Event::new(seq, what)).collect();
    let of = Of::party(outcome.under_test, name);
    let is_wanted = |event: &Event| match &event.what {
        What::Backtrace(trace) => {
            of_crash(&events, of, *signal).is_some_and(|wanted| std::ptr::eq(wanted, &**trace))
        }
        what => matches!(what, What::Untraced { .. }),
    };
    let Some(index) = events.iter().position(is_wanted) else { return };
    let time_us = outcome.events.last().map_or(0, |event| event.time_us);
    let seq = outcome.events.len() as u64;
    let event = Event { seq, time_us, ..events[index].clone() };
    sink.event(&event);
    outcome.events.push(event);
}

/// Plays a scenario as often as the options say. The events of the attempt that counts are told in the end: a log has one play of
/// each scenario.
fn try_often(
    suite: &Suite,
    scenario: &Scenario,
    options: &Options,
    deviations: &mut Deviations,
    play: &mut dyn FnMut() -> Result<(Outcome, Duration), (Verdict, String)>,
) -> Result<Tried, (Verdict, String)> {
    let retry = matches!(options.tries, Tries::Retry(_));
    let mut attempts = Repetitions::new(options.strict);
    let mut events = Vec::new();
    let (mut lifeless, mut mistake, mut interrupted) = (false, false, false);
    for _ in 0..options.tries.most() {
        let (outcome, time) = match play() {
            Ok(played) => played,
            // It applied when it was played first.
            Err(_) if attempts.played() > 0 => break,
            Err(skipped) => return Err(skipped),
        };
        lifeless = outcome.lifeless;
        mistake |= outcome.scenario_error.is_some();
        interrupted = outcome.unjudged == Some(Unjudged::Interrupted);
        if interrupted && attempts.played() > 0 {
            break;
        }
        let of_this_one = outcome.events.clone();
        let result = judged(suite, scenario, outcome, time, options, deviations);
        let red = result.is_red(options.strict);
        if attempts.add(result) {
            events = of_this_one;
        }
        if (retry && !red) || mistake || interrupted {
            break;
        }
    }
    let result = attempts.finish(retry).ok_or_else(|| (Verdict::Unjudged, not_tried()))?;
    Ok(Tried { result, events, lifeless, mistake, interrupted })
}

/// A line of a scenario, by its number; those that stand in no file have none.
fn quote(source: &Source, line: usize) -> String {
    let text = line.checked_sub(1).and_then(|before| source.text.lines().nth(before));
    text.unwrap_or_default().to_owned()
}

fn not_tried() -> String {
    format!(
        "not tried: there was no sign of life in {LIFELESS} scenarios in a row before this one (--no-give-up tries all)"
    )
}

/// Brings what several workers report into the order of the suite.
#[derive(Default)]
struct InOrder {
    next: usize,
    waiting: BTreeMap<usize, Vec<Message>>,
}

impl InOrder {
    fn take(&mut self, message: Message, mut tell: impl FnMut(Message)) {
        let (index, last) = match &message {
            Message::Events(index, _) => (*index, false),
            Message::Done(index, _) | Message::Tried(index, _) | Message::Skipped(index, _) => (*index, true),
        };
        if index != self.next {
            self.waiting.entry(index).or_default().push(message);
            return;
        }
        tell(message);
        let mut finished = last;
        while finished {
            self.next += 1;
            finished = false;
            for message in self.waiting.remove(&self.next).unwrap_or_default() {
                finished |= !matches!(message, Message::Events(..));
                tell(message);
            }
        }
    }
}

/// Plays one scenario, or says why not.
fn play_scenario(
    suite: &Suite,
    scenario: &Scenario,
    target: &Target,
    offers: &Offers,
    options: &Options,
    interrupted: &AtomicBool,
    sink: &mut dyn EventSink,
) -> Result<(Outcome, Duration), (Verdict, String)> {
    if let Some(why) = offers.unspoken.get(&scenario.dialect) {
        return Err((Verdict::NotApplicable, why.clone()));
    }
    for need in &scenario.needs {
        if let Some((false, why)) = offers.needs.get(&(scenario.dialect, need.value)) {
            return Err((Verdict::NotApplicable, why.clone()));
        }
    }
    if let (Some(why), Target::Library(library, ..)) = (&offers.wireless, target)
        && wants_wire(suite, scenario, library.server.is_some())
    {
        return Err((Verdict::NotApplicable, why.clone()));
    }
    if let Target::Library(library, ..) = target
        && library.server.is_some()
        && scenario.nodes > 1
    {
        return Err((Verdict::NotApplicable, "its process manager is asked for one node only".to_owned()));
    }
    let start = Instant::now();
    let fragment = |name: &str| suite.fragment(name);
    let outcome = match target {
        Target::Memory(config) => {
            let config = config_for(scenario, config);
            let mut party = MemoryParty::launch(config, scenario.ranks);
            play(scenario, &fragment, Vec::new(), &mut party, options.limits, sink)
        }
        Target::Client(program)
            if program.way_in() == WayIn::Singleton && is_not_for_one(suite, scenario) =>
        {
            let why = "it is about several processes, or their environment, and the program is started alone (--connection singleton)";
            return Err((Verdict::NotApplicable, why.to_owned()));
        }
        Target::Client(program) => {
            program::play(program, scenario, &fragment, options.limits, interrupted, sink)
        }
        Target::Processes(implementation, environment) => {
            if let Some(why) = implementation.lacks_room(scenario.ranks, scenario.nodes) {
                return Err((Verdict::NotApplicable, why));
            }
            match ServerParty::launch(implementation, scenario.ranks, scenario.nodes, environment) {
                Ok((mut party, command)) => {
                    play(scenario, &fragment, command, &mut party, options.limits, sink)
                }
                Err(error) => return Err((Verdict::Unjudged, error.to_string())),
            }
        }
        Target::Library(library, _, interrupted) => {
            play_library(scenario, &fragment, library, options.limits, interrupted, sink)
        }
    };
    Ok((outcome, start.elapsed()))
}

/// Whether a scenario for programs cannot be played with one that is started without a process manager.
fn is_not_for_one(suite: &Suite, scenario: &Scenario) -> bool {
    let sets = |step: &Step| matches!(step.action, Action::Process(ProcessAction::Env(..)));
    let several = scenario.serving.sized && scenario.ranks > 1 || scenario.nodes > 1;
    several || suite.steps(&scenario.body).any(sets)
}

/// How the reference server is set up for a scenario.
pub(crate) fn config_for(scenario: &Scenario, config: &Config) -> Config {
    let pmi2 = scenario.dialect == Dialect::Pmi2;
    let needs = |wanted| scenario.needs.iter().any(|need| need.value == wanted);
    let (pmi12, keyval_spaces) = (needs(Need::Pmi12), needs(Need::KeyvalSpaces));
    let way_in = match (needs(Need::Port), needs(Need::Singleton)) {
        (true, _) => WayIn::Port,
        (false, true) => WayIn::Singleton,
        (false, false) => WayIn::Fd,
    };
    Config { nodes: scenario.nodes, pmi2, pmi12, keyval_spaces, way_in, ..config.clone() }
}

/// Finds out which optional operations there are: by what is claimed, else by asking for one.
fn offers(suite: &Suite, selected: &[Arc<Scenario>], target: &Target, options: &Options) -> Offers {
    let mut offers = Offers::default();
    let needs: BTreeSet<(Dialect, Need)> =
        selected.iter().flat_map(|s| s.needs.iter().map(|n| (s.dialect, n.value))).collect();
    let upstream = matches!(target, Target::Processes(implementation, _) if implementation.has_upstream());
    let way_in = target.way_in();
    let why = "it needs a proxy whose upstream we play (--server ./hydra_pmi_proxy)".to_owned();
    for (_, dialect) in Dialect::NAMES {
        offers.needs.insert((dialect, Need::Upstream), (upstream, why.clone()));
        let is = match way_in {
            WayIn::Fd => "its processes have PMI_FD",
            WayIn::Port => "its processes have PMI_PORT",
            WayIn::Singleton => "it serves a process that it has not started",
        };
        let ways = [
            (Need::Fd, WayIn::Fd, "fd"),
            (Need::Port, WayIn::Port, "port"),
            (Need::Singleton, WayIn::Singleton, "singleton"),
        ];
        for (need, way, word) in ways {
            offers.needs.insert((dialect, need), (way == way_in, format!("{is} (--connection {word})")));
        }
    }
    let claims = match target {
        Target::Memory(_) | Target::Client(_) => return offers,
        Target::Processes(implementation, _) => &implementation.claims,
        Target::Library(_, claims, _) => claims,
    };
    if let Target::Library(library, ..) = target
        && let Some(server) = &library.server
    {
        let why = format!("what the process manager says is not ours to arrange: it is {}", server.label);
        offers.wireless = Some(why);
    } else if let Target::Library(library, ..) = target
        && is_wireless(suite, apis(&library.path).first().copied().unwrap_or_default(), target, options)
    {
        offers.wireless = Some(
            "it does not speak the wire protocol: it initializes itself, enters a barrier and says nothing on PMI_FD; so \
             there is no process manager for it here"
                .to_owned(),
        );
    }
    let both = dialects(selected).len() > 1;
    if both
        && matches!(target, Target::Processes(..))
        && let Some(seen) = speaks_no_pmi2(suite, target, options)
    {
        let why = format!(
            "it does not speak PMI-2: offered version 2.0, it answered {seen}; --dialect pmi-2 makes it a duty"
        );
        offers.unspoken.insert(Dialect::Pmi2, why);
    }
    for (dialect, need) in needs {
        if offers.unspoken.contains_key(&dialect) {
            continue;
        }
        if need.is_way_in() {
            continue;
        }
        let word = need.word();
        let offer = match claims.get(&need) {
            Some(true) | None if need == Need::Spawn && loses_spawned(suite, dialect, target, options) => {
                (false, LOST.to_owned())
            }
            Some(true) => (true, String::new()),
            Some(false) => (false, format!("it is said to lack {word}")),
            None if upstream && need.is_extra() => (false, PASSED_ON.to_owned()),
            None if need == Need::SpawnCmd => (false, UNASKED.to_owned()),
            None => match lacking(suite, dialect, need, target, options) {
                None => (true, String::new()),
                Some(seen) if need.is_extra() => (
                    false,
                    format!(
                        "it does not offer {word}: asked once, it answered {seen}; --has {word} makes it a duty"
                    ),
                ),
                Some(seen) => (
                    false,
                    format!("it lacks {word}: asked once, it answered {seen}; --has {word} makes it a duty"),
                ),
            },
        };
        offers.needs.insert((dialect, need), offer);
    }
    offers
}

/// Spawns, names and what only the draft of PMI-2 has, as far as a server offers them in a protocol: what it claims, else what it does
/// where it is asked once.
pub fn offered_operations(
    suite: &Suite,
    dialect: Dialect,
    target: &Target,
    options: &Options,
) -> BTreeSet<Need> {
    let Target::Processes(implementation, _) = target else { return BTreeSet::new() };
    let offers = |need: &Need| match implementation.claims.get(need) {
        _ if *need == Need::Spawn && loses_spawned(suite, dialect, target, options) => false,
        Some(offered) => *offered,
        None if implementation.has_upstream() || *need == Need::SpawnCmd => false,
        None => asked_for(suite, dialect, *need, target, options).is_some_and(|(outcome, refused)| {
            // What comes to no answer is as good as refused: every session that asks for it would be about that.
            let went_wrong = outcome.hung || outcome.unreached > 0 || outcome.crashed.is_some();
            refused.is_none() && !went_wrong && outcome.unjudged.is_none()
        }),
    };
    let wanted = |need: &Need| match need {
        Need::Spawn | Need::Names => true,
        Need::KeyvalSpaces => false,
        Need::Pmi12 => dialect == Dialect::Pmi1,
        need => dialect == Dialect::Pmi2 && need.is_extra(),
    };
    Need::NAMES.into_iter().map(|(_, need)| need).filter(wanted).filter(offers).collect()
}

/// Asks for an optional operation; how it was refused, if it was.
fn lacking(
    suite: &Suite,
    dialect: Dialect,
    need: Need,
    target: &Target,
    options: &Options,
) -> Option<String> {
    asked_for(suite, dialect, need, target, options)?.1
}

/// Asks for an optional operation: what became of that, and how it was refused, if it was. `None` where it cannot be asked for.
pub(crate) fn asked_for(
    suite: &Suite,
    dialect: Dialect,
    need: Need,
    target: &Target,
    options: &Options,
) -> Option<(Outcome, Option<String>)> {
    let (text, request): (_, &[u8]) = match (target, need, dialect) {
        // Known without asking.
        (_, Need::Upstream | Need::Fd | Need::Port | Need::Singleton | Need::SpawnCmd, _) => return None,
        // What a library under a process manager of its own spawns is judged in no scenario.
        (Target::Library(library, ..), Need::Spawn | Need::Alone, _) if library.server.is_some() => {
            return None;
        }
        (Target::Library(..), Need::Names, Dialect::Pmi1) => {
            (include_str!("probes/library-names.pmi"), b"cmd=publish_name")
        }
        (Target::Library(..), Need::Spawn, Dialect::Pmi1) => {
            (include_str!("probes/library-spawn.pmi"), b"mcmd=spawn")
        }
        (Target::Library(..), Need::Names, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-names.pmi"), b"cmd=name-publish")
        }
        (Target::Library(..), Need::Spawn, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-spawn.pmi"), b"cmd=spawn")
        }
        (_, Need::Names, Dialect::Pmi1) => (include_str!("probes/names.pmi"), b"cmd=publish_name"),
        (_, Need::Spawn, Dialect::Pmi1) => (include_str!("probes/spawn.pmi"), b"mcmd=spawn"),
        (_, Need::Names, Dialect::Pmi2) => (include_str!("probes/pmi2-names.pmi"), b"cmd=name-publish"),
        (_, Need::Spawn, Dialect::Pmi2) => (include_str!("probes/pmi2-spawn.pmi"), b"cmd=spawn"),
        (Target::Library(..), Need::Alone, Dialect::Pmi1) => {
            (include_str!("probes/library-alone.pmi"), b"cmd=init")
        }
        (Target::Library(..), Need::Alone, Dialect::Pmi2) => {
            (include_str!("probes/library-pmi2-alone.pmi"), b"cmd=init")
        }
        (_, Need::Alone, _) => return None,
        // What a library may ask for is told by what it exports.
        (Target::Library(..), Need::Pmi12 | Need::KeyvalSpaces, _) => return None,
        (_, Need::Pmi12, _) => (include_str!("probes/pmi12.pmi"), b"cmd=init"),
        (_, Need::KeyvalSpaces, _) => (include_str!("probes/keyval-spaces.pmi"), b"cmd=create_kvs"),
        (_, Need::Concat, _) => (include_str!("probes/pmi2-concat.pmi"), b"cmd=concat"),
        (_, Need::Auth, _) => (include_str!("probes/pmi2-auth.pmi"), b"cmd=fullinit"),
        (_, Need::JobConnect, _) => (include_str!("probes/pmi2-job-connect.pmi"), b"cmd=job-connect"),
        (_, Need::KvsGetall, _) => (include_str!("probes/pmi2-kvs-getall.pmi"), b"cmd=kvs-getall"),
    };
    // What cannot be asked is told by the scenarios themselves.
    let (outcome, _) = play_probe(suite, text, target, options)?.ok()?;
    let refused = match target {
        // Who asks the process manager has it. One that asks nothing has no say in how that is done.
        Target::Library(..) => failed_call(&outcome).filter(|_| !asks(&outcome, request)),
        _ => refusal(&outcome, need, request),
    };
    Some((outcome, refused))
}

/// Why a bare proxy is not asked for what only the draft has.
const PASSED_ON: &str =
    "a proxy passes on what it does not know, and the upstream that would answer is played by us";

/// Why nobody is asked for a spawn whose programs come in messages of their own.
const UNASKED: &str = "it is not asked whether it offers spawn-cmd: Hydra starts processes without end where a spawn does not say how many; \
     --has spawn-cmd makes it a duty";

/// Why spawns are not judged where processes relay their connections and none that is spawned finds its way to us.
const LOST: &str = "not judged here: asked once, the server takes a spawn, and no spawned process comes to the address that is told to it by its \
     environment and its program's path";

/// Whether a server that relays takes a request to spawn, and no process comes of it: whether it started one cannot be seen.
fn loses_spawned(suite: &Suite, dialect: Dialect, target: &Target, options: &Options) -> bool {
    target.is_relayed()
        && asked_for(suite, dialect, Need::Spawn, target, options).is_some_and(|(outcome, refused)| {
            let comes = |e: &Event| matches!(e.what, What::Started { proc, .. } if proc.group > 0);
            refused.is_none() && outcome.crashed.is_none() && !outcome.events.iter().any(comes)
        })
}

/// How a server answered an offer of PMI-2, if not by taking it.
fn speaks_no_pmi2(suite: &Suite, target: &Target, options: &Options) -> Option<String> {
    let (outcome, _) = play_probe(suite, include_str!("probes/pmi2.pmi"), target, options)?.ok()?;
    refusal(&outcome, Need::Spawn, b"cmd=init")
}

/// The dialects of these scenarios.
fn dialects(selected: &[Arc<Scenario>]) -> BTreeSet<Dialect> {
    selected.iter().map(|s| s.dialect).collect()
}

/// Whether a request that begins like this was sent.
fn asks(outcome: &Outcome, request: &[u8]) -> bool {
    let begins = |bytes: &[u8]| {
        bytes.starts_with(request) || bytes.get(HEADER..).is_some_and(|body| body.starts_with(request))
    };
    let is_asked = |event: &Event| matches!(&event.what, What::ToServer { bytes, .. } if begins(&bytes.0));
    outcome.events.iter().any(is_asked)
}

/// How a server refused the request that begins like this: by an answer that is no success, or by ending the connection.
/// Silence, a crash, and a promise that is not kept are no refusals; but of what nobody has to have, silence is one.
fn refusal(outcome: &Outcome, need: Need, request: &[u8]) -> Option<String> {
    let mut connections: BTreeMap<Proc, Connection> = BTreeMap::new();
    let mut asked = None;
    for event in &outcome.events {
        let (proc, direction, bytes) = match &event.what {
            What::ToServer { proc, bytes } => (*proc, Direction::ToServer, &bytes.0),
            What::FromServer { proc, bytes } => (*proc, Direction::FromServer, &bytes.0),
            What::ClosedByServer { proc } | What::Ended { proc, ours: false }
                if asked == Some(*proc) && outcome.crashed.is_none() =>
            {
                return Some("the end of the connection".to_owned());
            }
            What::NoAnswer { proc, .. } if asked == Some(*proc) && need.is_extra() => {
                return Some("nothing".to_owned());
            }
            _ => continue,
        };
        let connection = connections.entry(proc).or_insert_with(|| Connection::new(LINE_LIMIT));
        connection.push(direction, bytes);
        while let Some(message) = connection.next(direction) {
            let Ok(Framed { framing, text }) = message else { continue };
            match direction {
                Direction::ToServer if text.starts_with(request) => asked = Some(proc),
                Direction::FromServer if asked == Some(proc) => {
                    let granted = match framing {
                        Framing::Lines if need == Need::KeyvalSpaces => {
                            Line::parse(text, ValueReading::ToEndOfLine)
                                .is_ok_and(|m| m.cmd() == Some(b"newkvs") && m.get("kvsname").is_some())
                        }
                        Framing::Lines => Response::parse(text, ValueReading::ToEndOfLine)
                            .is_ok_and(|r| r.is_success() && takes_offer(need, request, &r)),
                        Framing::Frames if need == Need::Auth => {
                            pmi2::Part::parse(text, Semicolons::Plain).is_some()
                        }
                        Framing::Frames => {
                            pmi2::Part::parse(text, Semicolons::Plain).is_some()
                                || pmi2::Response::parse(text, Semicolons::Plain)
                                    .is_ok_and(|r| r.is_success())
                        }
                    };
                    return (!granted).then(|| format!("\"{}\"", text.escape_ascii()));
                }
                _ => {}
            }
        }
    }
    None
}

/// Whether an answer to init takes the version that was offered; answers to other requests offer nothing.
fn takes_offer(need: Need, request: &[u8], response: &Response<'_>) -> bool {
    match &response.body {
        Body::Init(used) if need == Need::Pmi12 => used.is_some_and(Version::has_group_barriers),
        Body::Init(used) if request == b"cmd=init" => used.is_some_and(|version| version.version == 2),
        _ => true,
    }
}

/// What the last call returned, if that was an error.
fn failed_call(outcome: &Outcome) -> Option<String> {
    let returned = outcome.events.iter().rev().find_map(|event| match &event.what {
        What::Returned { function, returned, .. } => Some((function, returned.result)),
        _ => None,
    });
    let (function, result) = returned.filter(|(_, result)| *result != 0)?;
    let code = signature::function(function).map_or_else(|| result.to_string(), |f| f.result_name(result));
    Some(format!("{code} from {function}"))
}

/// Whether a library does its work without a word on its PMI_FD. One that crashes, hangs or fails is no such library.
fn is_wireless(suite: &Suite, api: Dialect, target: &Target, options: &Options) -> bool {
    let probe = match api {
        Dialect::Pmi1 => include_str!("probes/library-wire.pmi"),
        Dialect::Pmi2 => include_str!("probes/library-pmi2-wire.pmi"),
    };
    let done = play_probe(suite, probe, target, options);
    matches!(done, Some(Ok((outcome, _))) if outcome.crashed.is_none()
        && outcome.unjudged.is_none()
        && outcome.findings.is_empty()
        && !outcome.events.iter().any(|e| matches!(e.what, What::ToServer { .. })))
}

/// Plays a scenario of our own.
pub(crate) fn play_probe(
    suite: &Suite,
    text: &str,
    target: &Target,
    options: &Options,
) -> Option<Result<(Outcome, Duration), (Verdict, String)>> {
    let source = Arc::new(Source { path: "probe".into(), text: text.into() });
    let scenario = pmi_scenario::parse(source, "probe").ok()?;
    Some(play_scenario(
        suite,
        &scenario,
        target,
        &Offers::default(),
        options,
        &AtomicBool::new(false),
        &mut (),
    ))
}

/// What the scenarios test that are about whether a library speaks the wire protocol.
const WIRE: [&str; 2] = ["rfc13.api.wire", "pmi2.common.api.wire"];

/// Whether a library's scenario can only be played where the library talks to us: it has ranks that have to find each other,
/// or says what the process manager does. That there is no wire is for the scenario to find that tests for it.
fn wants_wire(suite: &Suite, scenario: &Scenario, served: bool) -> bool {
    // That there is no process manager needs none.
    let removed =
        |value: &Template| !served && matches!(value.pieces.as_slice(), [Piece::Typed(Kind::Absent)]);
    let arranged = |step: &Step| {
        matches!(step.role, Role::Client | Role::Server)
            || matches!(&step.action, Action::Process(ProcessAction::Env(_, value)) if !removed(value))
    };
    let tested = !served && scenario.requires.iter().any(|r| WIRE.contains(&r.value.as_str()));
    !tested && (!served && scenario.ranks > 1 || suite.steps(&scenario.body).any(arranged))
}

/// Whether the reference server, as it is set up, lacks an optional operation.
pub(crate) fn lacks(suite: &Suite, need: Need, config: &Config, limits: Limits) -> bool {
    lacking(suite, Dialect::Pmi1, need, &Target::Memory(config.clone()), &Options::uncounted(limits))
        .is_some()
}

fn skip(scenario: &Scenario, verdict: Verdict, reason: String, options: &Options) -> ScenarioResult {
    ScenarioResult { verdict, reason: Some(reason), ..blank(scenario, options) }
}

/// The result of a scenario that came to nothing yet.
fn blank(scenario: &Scenario, options: &Options) -> ScenarioResult {
    ScenarioResult {
        scenario: scenario.name.clone(),
        summary: scenario.summary(),
        verdict: Verdict::Pass,
        deviates_as_recorded: false,
        findings: Vec::new(),
        reason: None,
        negotiated: Vec::new(),
        exit: None,
        requires: scenario.requires.iter().map(|r| r.value.clone()).collect(),
        time_us: 0,
        replay: format!("{} --filter '={}'", options.replay, scenario.name),
        path: scenario.source.path.clone(),
        unreached: 0,
        last_events: Vec::new(),
        attempts: None,
    }
}
