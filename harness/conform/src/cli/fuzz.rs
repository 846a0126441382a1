//! `fuzz`: campaigns, and what becomes of their findings.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use pmi_conform::campaign::arena::{Arena, Pace, Stage, Target};
use pmi_conform::campaign::corpus::{self, Corpus, Sessions};
use pmi_conform::campaign::differ::Differential;
use pmi_conform::campaign::generate::Scope;
use pmi_conform::campaign::input::Input;
use pmi_conform::campaign::known::Known;
use pmi_conform::campaign::ordeal::trial::{Subject, Trial};
use pmi_conform::campaign::ordeal::{Ordeal, library, program};
use pmi_conform::campaign::session::Session;
use pmi_conform::campaign::state::State;
use pmi_conform::campaign::store::{self, Found, TRIES};
use pmi_conform::campaign::{Options, Outcome, Progress, Source, Watch, run};
use pmi_conform::client::Program;
use pmi_conform::lang::ast::Need;
use pmi_conform::launch::{Environment, Implementation, need};
use pmi_conform::library::Library;
use pmi_conform::suite::Suite;
use serde_json::json;

use super::args::{Fuzz, FuzzFormat};
use super::{UNJUDGED, say, told};

pub(super) fn fuzz(args: &Fuzz) -> anyhow::Result<u8> {
    if let Some(folder) = &args.export {
        return export(&args.out, folder);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    if args.client.is_some() || args.library.is_some() {
        return trial(args, &interrupted);
    }
    let (arena, scope) = stage(args, &interrupted)?;
    campaign(args, &*arena, &interrupted, |seed| Ok(Box::new(Sessions::new(seed, scope, corpus(args)?))))
}

/// A campaign against a program or a library: what is drawn is what its server says.
fn trial(args: &Fuzz, interrupted: &Arc<AtomicBool>) -> anyhow::Result<u8> {
    let subject = match (&args.client, &args.library) {
        (Some(command), _) => {
            let program = Program::new(command, args.ranks);
            Subject::Program(Box::new(program.map_err(|what| anyhow::anyhow!("--client: {what}"))?))
        }
        (None, Some(path)) => Subject::Library(Box::new(library_at(path)?)),
        (None, None) => anyhow::bail!("--client or --library"),
    };
    let suite = Suite::embedded().map_err(told)?;
    let is_program = matches!(subject, Subject::Program(_));
    let mut trial = Trial::new(subject, suite, args.timeout, Arc::clone(interrupted));
    let (ranks, changed) = (args.ranks, !args.valid);
    if !is_program {
        let wire = trial.asks().map_err(anyhow::Error::msg)?;
        if !wire {
            note(
                "it says nothing on PMI_FD, so that there is nothing to answer: calls of one process are drawn",
            )?;
        }
        let scope = library::Scope { ranks, change: changed, wire };
        return campaign(args, &trial, interrupted, |seed| {
            Ok(Box::new(move |number| library::generate(seed, number, scope)))
        });
    }
    let traces =
        if args.replay.is_some() { Vec::new() } else { trial.traces(ranks).map_err(anyhow::Error::msg)? };
    if interrupted.load(Ordering::Relaxed) {
        return Ok(130);
    }
    let traces = &traces;
    campaign(args, &trial, interrupted, |seed| {
        Ok(Box::new(move |number| program::generate(seed, number, traces, changed)))
    })
}

fn note(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "note: {text}")
}

fn library_at(path: &Path) -> anyhow::Result<Library> {
    std::fs::metadata(path).with_context(|| format!("--library {}", path.display()))?;
    // Without a slash, the loader would look elsewhere.
    let path = std::path::absolute(path)?;
    let binary =
        std::env::current_exe().context("cannot find this program's own file, which loads the library")?;
    Ok(Library { path, binary, env: Default::default(), server: None })
}

/// Runs a campaign, or plays a finding again. `source` has the sessions of a seed.
fn campaign<'a, I: Input>(
    args: &Fuzz,
    arena: &dyn Stage<I>,
    interrupted: &AtomicBool,
    source: impl FnOnce(u64) -> anyhow::Result<Box<dyn Source<I> + 'a>>,
) -> anyhow::Result<u8> {
    if let Some(path) = &args.replay {
        return replay(arena, path, interrupted);
    }
    let state = match State::read(&args.out).map_err(anyhow::Error::msg)? {
        Some(_) if !args.resume => anyhow::bail!(
            "{} holds a campaign: --resume goes on with it, --out takes another folder",
            args.out.display()
        ),
        Some(state) if args.seed.is_some_and(|seed| seed != state.seed) => {
            anyhow::bail!("the campaign in {} has seed {}", args.out.display(), state.seed)
        }
        Some(state) => state,
        None => State { seed: args.seed.unwrap_or_else(draw_seed), ..State::default() },
    };
    let known = args.known.as_deref().map(Known::read).transpose().map_err(anyhow::Error::msg)?;
    let time = args.time.or_else(|| args.sessions.is_none().then_some(Duration::from_secs(60)));
    let options = Options {
        seed: state.seed,
        sessions: args.sessions,
        time,
        workers: args.workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        out: args.out.clone(),
        known: known.unwrap_or_default(),
        replay: command_line(args),
    };
    let shown = Shown::new();
    shown.line(&format!("{}, seed {}, from session {}", arena.label(), state.seed, state.next));
    let outcome = run(arena, &*source(options.seed)?, &options, state, interrupted, &shown);
    shown.bar.finish_and_clear();
    let status = status(&outcome);
    for (format, file) in &args.report {
        let text = match format {
            FuzzFormat::Json => json_report(arena, &options, &outcome),
            FuzzFormat::Sarif => sarif(&options, &outcome),
        };
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    say(&summary(&outcome, args))?;
    Ok(status)
}

/// The sessions from which others are made: those of the campaign's folder, and those that the user gives.
fn corpus(args: &Fuzz) -> anyhow::Result<Corpus> {
    let mut corpus = Corpus::open(&args.out.join(corpus::FOLDER)).map_err(anyhow::Error::msg)?;
    if let Some(folder) = &args.corpus {
        let others = corpus.import(folder).map_err(anyhow::Error::msg)?;
        anyhow::ensure!(
            !corpus.is_empty(),
            "{}: none of the {others} scenarios is a session, made of single steps of single ranks of a server's",
            folder.display()
        );
    }
    Ok(corpus)
}

/// The server under test, or several, and what may be asked of all of them.
fn stage(args: &Fuzz, interrupted: &Arc<AtomicBool>) -> anyhow::Result<(Box<dyn Stage>, Scope)> {
    if args.differential.is_empty() {
        let (arena, scope) = arena(args, args.server.as_deref(), interrupted)?;
        return Ok((Box::new(arena), scope));
    }
    let mut all = Vec::new();
    let mut common = Scope { ranks: args.ranks, mutate: !args.valid, ..Scope::default() };
    for server in &args.differential {
        let (arena, scope) = arena(args, Some(server), interrupted)?;
        common.spawn &= scope.spawn;
        common.names &= scope.names;
        all.push(arena);
    }
    Ok((Box::new(Differential::new(all)), common))
}

fn arena(args: &Fuzz, server: Option<&str>, interrupted: &Arc<AtomicBool>) -> anyhow::Result<(Arena, Scope)> {
    let environment = Environment::new(Arc::clone(interrupted))?;
    let mut implementation = match server {
        None => Implementation::reference(&environment.binary),
        Some(server) => Implementation::from_argument(server).with_context(|| server.to_owned())?,
    };
    implementation.play_upstream(&environment.binary, args.family, Duration::from_secs(5))?;
    implementation.try_upstream(interrupted)?;
    for (words, offered) in [(&args.has, true), (&args.lacks, false)] {
        for word in words {
            implementation.claims.insert(need(word)?, offered);
        }
    }
    let offers = |need| implementation.claims.get(&need) == Some(&true);
    let scope = Scope {
        ranks: args.ranks,
        spawn: offers(Need::Spawn),
        names: offers(Need::Names),
        mutate: !args.valid,
        upstream: implementation.has_upstream(),
    };
    let catalogue = Suite::embedded().map_err(told)?.catalogue;
    let target = Target::Processes(Box::new(implementation), environment);
    let arena = Arena::new(target, catalogue, args.timeout).context("a scratch folder")?;
    Ok((arena, scope))
}

fn draw_seed() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_millis() as u64)
}

/// The command line that reaches the same implementation.
fn command_line(args: &Fuzz) -> String {
    let mut words = vec!["pmi-conform".to_owned(), "fuzz".into()];
    if !args.differential.is_empty() {
        words.push("--differential".into());
        words.extend(args.differential.iter().cloned());
    }
    words.extend(args.server.iter().flat_map(|s| ["--server".to_owned(), s.clone()]));
    words.extend(args.client.iter().flat_map(|c| ["--client".to_owned(), c.clone()]));
    words.extend(args.library.iter().flat_map(|l| ["--library".to_owned(), l.display().to_string()]));
    words.extend(args.family.iter().flat_map(|f| ["--family".to_owned(), f.name().to_owned()]));
    shell_words::join(words)
}

fn status(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome { interrupted: true, .. } => 130,
        Outcome { found, .. } if !found.is_empty() => 1,
        Outcome { progress, .. } if progress.sessions == 0 => UNJUDGED,
        _ => 0,
    }
}

/// Shows a campaign on standard error.
struct Shown {
    bar: ProgressBar,
    terminal: bool,
}

impl Shown {
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
            // Where stderr is gone, nobody is left to tell.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

impl Watch for Shown {
    fn progress(&self, progress: &Progress) {
        let text = progress_line(progress);
        if self.terminal {
            self.bar.set_message(text);
        } else if progress.time.as_secs().is_multiple_of(10) {
            self.line(&text);
        }
    }

    fn found(&self, found: &Found) {
        self.line(&format!("new: {} ({})\n     {}", found.bucket, found.label(), found.what));
    }

    fn trouble(&self, what: &str) {
        self.line(&format!("error: {what}"));
    }
}

fn progress_line(progress: &Progress) -> String {
    let seconds = progress.time.as_secs_f64().max(0.001);
    let silence = progress.silence.map_or(String::new(), |s| format!(", silence in {s:.1?}"));
    format!(
        "{:.0} s: {} sessions ({:.0}/s), {:.0} requests/s, {} left out, {} transitions, corpus {}, buckets: {} new, {} known{silence}",
        seconds,
        progress.sessions,
        progress.sessions as f64 / seconds,
        progress.requests as f64 / seconds,
        progress.skipped,
        progress.transitions,
        progress.corpus,
        progress.new.len(),
        progress.known.len(),
    )
}

fn summary(outcome: &Outcome, args: &Fuzz) -> String {
    let progress = &outcome.progress;
    let mut text = format!("{}\n", progress_line(progress));
    for found in &outcome.found {
        let seen = progress.new.get(&found.bucket).copied().unwrap_or(0);
        text += &format!("  new    {:60} {:14} seen {seen} times\n", found.bucket, found.label());
    }
    for (bucket, seen) in &progress.known {
        text += &format!("  known  {bucket:60} {:14} seen {seen} times\n", "");
    }
    for (bucket, seen) in &progress.unconfirmed {
        text += &format!(
            "  not confirmed  {bucket}: seen {seen} times, and in at most one of {TRIES} more runs each\n"
        );
    }
    if progress.unjudged.0 > 0 {
        text += &format!("  {} sessions could not be judged: {}\n", progress.unjudged.0, progress.unjudged.1);
    }
    if !outcome.found.is_empty() {
        text += &format!("Findings are in {}.\n", args.out.display());
    }
    text
}

/// Plays a finding, or a session in a scenario file, again.
fn replay<I: Input>(arena: &dyn Stage<I>, path: &Path, interrupted: &AtomicBool) -> anyhow::Result<u8> {
    let (bucket, session) = if path.is_dir() {
        let (found, session) = store::read(path).map_err(anyhow::Error::msg)?;
        (Some(found.bucket), session)
    } else {
        (None, store::read_session(path).map_err(anyhow::Error::msg)?)
    };
    let mut shown = 0;
    for run in 1..=TRIES {
        let verdict = arena.play(&session, Pace::Calm)?;
        if interrupted.load(Ordering::Relaxed) {
            return Ok(130);
        }
        if let Some(why) = &verdict.played.unjudged {
            say(&format!("run {run}: could not be judged: {why}\n"))?;
        }
        for symptom in &verdict.symptoms {
            say(&format!("run {run}: {}\n       {}\n", symptom.bucket, symptom.what))?;
        }
        let fits = |b: &str| bucket.as_deref().is_none_or(|wanted| wanted == b);
        shown += u32::from(verdict.symptoms.iter().any(|s| fits(&s.bucket)));
    }
    let what = bucket.as_deref().unwrap_or("something is wrong");
    say(&format!("{what}: {shown} of {TRIES}\n"))?;
    Ok(u8::from(shown > 0))
}

/// Makes suite scenarios of findings.
fn export(out: &Path, folder: &Path) -> anyhow::Result<u8> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut written = 0;
    let copy = |finding: &Path| -> Result<(String, String), String> {
        // Whom a finding is about is written in its scenario.
        if let Ok((found, session)) = store::read::<Session>(finding) {
            return Ok((store::scenario(&found, &session), found.bucket));
        }
        let (found, ordeal) = store::read::<Ordeal>(finding)?;
        Ok((store::scenario(&found, &ordeal), found.bucket))
    };
    let entries = std::fs::read_dir(out).with_context(|| out.display().to_string())?;
    let mut folders: Vec<_> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join(store::FINDING).is_file()).collect();
    folders.sort();
    for finding in folders {
        let (text, bucket) = copy(&finding).map_err(anyhow::Error::msg)?;
        let file = folder.join(format!("{bucket}.pmi"));
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        written += 1;
    }
    say(&format!("{written} scenarios written to {}\n", folder.display()))?;
    Ok(0)
}

fn json_report<I>(arena: &dyn Stage<I>, options: &Options, outcome: &Outcome) -> String {
    let progress = &outcome.progress;
    let report = json!({
        "format": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "server": arena.label(),
        "command": arena.command(),
        "seed": options.seed,
        "workers": options.workers,
        "seconds": progress.time.as_secs_f64(),
        "sessions": progress.sessions,
        "left_out": progress.skipped,
        "requests": progress.requests,
        "transitions": progress.transitions,
        "corpus": progress.corpus,
        "growth_max_bytes": progress.growth,
        "silence_median_us": progress.silence.map(|s| s.as_micros() as u64),
        "found": outcome.found,
        "seen": {"new": progress.new, "known": progress.known, "not_confirmed": progress.unconfirmed},
        "unjudged": progress.unjudged.0,
        "interrupted": outcome.interrupted,
    });
    format!("{report:#}\n")
}

fn sarif(options: &Options, outcome: &Outcome) -> String {
    let rules: Vec<_> =
        outcome.found.iter().map(|f| json!({"id": f.bucket, "shortDescription": {"text": f.what}})).collect();
    let results: Vec<_> = outcome
        .found
        .iter()
        .map(|f| {
            let uri = options.out.join(&f.bucket).join(store::SCENARIO);
            json!({
                "ruleId": f.bucket,
                "level": "error",
                "message": {"text": format!("{} ({})", f.what, f.label())},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri.to_string_lossy()}}}],
                "partialFingerprints": {"bucket/v1": f.bucket},
            })
        })
        .collect();
    let report = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "pmi-conform fuzz", "version": env!("CARGO_PKG_VERSION"), "rules": rules}},
            "results": results,
        }],
    });
    format!("{report:#}\n")
}
