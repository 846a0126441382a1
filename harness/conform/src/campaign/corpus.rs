//! The sessions that got further than those before them, from which others are made.
//!
//! They lie in the campaign's folder as scenarios, so that a later campaign can begin with them. Sessions that end a
//! server are not kept: whatever were made of them would end it too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::dice::Dice;

use super::generate::{Generated, Scope, generate};
use super::input::Input;
use super::mutate;
use super::session::{Answer, Base, Length, Line, Piece, Says, Session, Step};
use super::{Source, store};
use crate::lang::Diagnostic;
use crate::lang::ast::UnderTest;
use crate::suite::{self, SuiteError};

/// The folder in the campaign's.
pub const FOLDER: &str = "corpus";

/// Most sessions that are kept; the largest go first.
const MOST: usize = 2000;

/// Most steps of a session that is made of others.
const STEPS: usize = 400;

/// Of a hundred sessions so many are made of others, once there are some.
const SHARE: u32 = 30;

/// Before the ingredients in a file's comment.
const MADE_OF: &str = "Got further than those before it. Made of: ";

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    folder: Option<PathBuf>,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// Its file.
    name: String,
    session: Session,
    ingredients: BTreeSet<String>,
    weight: usize,
}

impl Corpus {
    /// Reads what an earlier campaign has left in its folder, if anything. `folder` is made when something is kept.
    ///
    /// # Errors
    ///
    /// A file cannot be read or holds something else; the message names it.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let mut corpus = Self { folder: Some(folder.to_owned()), entries: Vec::new() };
        if !folder.is_dir() {
            return Ok(corpus);
        }
        let listed =
            fs::read_dir(folder).and_then(|all| all.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>());
        let mut files: Vec<PathBuf> = listed.map_err(|e| format!("{}: {e}", folder.display()))?;
        files.retain(|file| file.extension().is_some_and(|e| e == "pmi"));
        files.sort();
        for file in files {
            let (session, summary) = store::read_scenario(&file)?;
            let words = summary.strip_prefix(MADE_OF).unwrap_or_default().trim_end_matches('.');
            let ingredients = words.split(' ').filter(|w| w.contains(':')).map(str::to_owned).collect();
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            corpus.insert(name, session, ingredients);
        }
        Ok(corpus)
    }

    /// Adds the sessions among the scenarios in a folder, and says how many scenarios are none.
    ///
    /// # Errors
    ///
    /// A file cannot be read or is no scenario; the message names it.
    pub fn import(&mut self, folder: &Path) -> Result<usize, String> {
        let files = suite::scenario_files(&[folder.to_owned()]).map_err(|error| match error {
            SuiteError::Other(text) => text,
            SuiteError::Diagnostics(all) => told(&all),
        })?;
        let mut others = 0;
        for (number, (name, source)) in files.into_iter().enumerate() {
            let scenario = crate::lang::parse(source, &name).map_err(|errors| told(&errors))?;
            match Session::from_scenario(&scenario) {
                Ok(session) if scenario.tests == UnderTest::Server && session.is_sound() => {
                    self.add(format!("given-{number:06}.pmi"), session, BTreeSet::new())?;
                }
                _ => others += 1,
            }
        }
        Ok(others)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps the session of this number.
    ///
    /// # Errors
    ///
    /// Its file cannot be written; the message names it. It is kept in memory all the same.
    fn keep(&mut self, number: u64, generated: &Generated<Session>) -> Result<(), String> {
        let name = format!("session-{number:010}.pmi");
        self.add(name, generated.session.clone(), generated.ingredients.clone())
    }

    fn add(&mut self, name: String, session: Session, ingredients: BTreeSet<String>) -> Result<(), String> {
        let words: Vec<&str> = ingredients.iter().map(String::as_str).collect();
        let text = session.to_scenario(&format!("{MADE_OF}{}.", words.join(" ")), &[store::NO_CRASH]);
        let evicted = self.insert(name.clone(), session, ingredients);
        let Some(folder) = &self.folder else { return Ok(()) };
        if let Some(evicted) = &evicted {
            // Who finds it later reads one session too many.
            _ = fs::remove_file(folder.join(evicted));
        }
        if evicted.as_ref() == Some(&name) {
            return Ok(());
        }
        let part = folder.join(".part");
        let write = fs::create_dir_all(folder)
            .and_then(|()| fs::write(&part, text))
            .and_then(|()| fs::rename(&part, folder.join(&name)));
        write.map_err(|e| format!("{}: {e}", folder.join(&name).display()))
    }

    /// The name of what had to go.
    fn insert(&mut self, name: String, session: Session, ingredients: BTreeSet<String>) -> Option<String> {
        let weight = session.weight();
        self.entries.push(Entry { name, session, ingredients, weight });
        if self.entries.len() <= MOST {
            return None;
        }
        // Of equals the last.
        let largest = (0..self.entries.len()).max_by_key(|i| self.entries[*i].weight)?;
        Some(self.entries.remove(largest).name)
    }

    /// Makes a session of those that there are, if it is this number's turn.
    fn vary(&self, seed: u64, number: u64, scope: Scope) -> Option<Generated<Session>> {
        // The seed's own sessions stay as they are, whether others stand between them or not.
        let mut rng = super::generate::rng(seed ^ 0x636f_7270_7573, number);
        if self.entries.is_empty() || !scope.mutate || rng.u32(0..100) >= SHARE {
            return None;
        }
        let first = &self.entries[rng.usize(..self.entries.len())];
        let second = &self.entries[rng.usize(..self.entries.len())];
        let mut session = first.session.clone();
        let mut ingredients = first.ingredients.clone();
        for _ in 0..rng.usize(1..3) {
            let change = Change::ALL[rng.usize(..Change::ALL.len())];
            change.make(&mut session, &second.session, &mut rng);
            ingredients.insert(format!("corpus:{}", change.name()));
            if change == Change::Splice {
                ingredients.extend(second.ingredients.iter().cloned());
            }
        }
        mend(&mut session);
        fits(&session, scope).then_some(Generated { session, ingredients })
    }
}

/// Sessions of a seed for a server, and what is made of those that got further than others.
pub struct Sessions {
    seed: u64,
    scope: Scope,
    corpus: Mutex<Corpus>,
}

impl Sessions {
    /// Sessions of a seed within a scope; `corpus` is what there is to begin with.
    pub fn new(seed: u64, scope: Scope, corpus: Corpus) -> Self {
        Self { seed, scope, corpus: Mutex::new(corpus) }
    }

    /// A panic elsewhere leaves nothing half done in it.
    fn corpus(&self) -> MutexGuard<'_, Corpus> {
        self.corpus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source<Session> for Sessions {
    fn make(&self, number: u64) -> Generated<Session> {
        let varied = self.corpus().vary(self.seed, number, self.scope);
        varied.unwrap_or_else(|| generate(self.seed, number, self.scope))
    }

    fn got_further(&self, number: u64, generated: &Generated<Session>) -> Result<(), String> {
        self.corpus().keep(number, generated)
    }

    fn kept(&self) -> usize {
        self.corpus().len()
    }
}

fn told(errors: &[Diagnostic]) -> String {
    errors.iter().map(|e| e.render(false)).collect::<Vec<_>>().join("\n")
}

/// A way in which a session is made of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The beginning of one and the end of another.
    Splice,
    /// Some steps of another in the middle.
    Insert,
    Drop,
    Again,
    Swap,
    /// Another rank does it.
    Rank,
    /// Other bytes, separators or lengths in a message.
    Line,
    Junk,
    /// A step's newline is left out or not.
    Partial,
    Close,
}

impl Change {
    const ALL: [Self; 10] = [
        Self::Splice,
        Self::Insert,
        Self::Drop,
        Self::Again,
        Self::Swap,
        Self::Rank,
        Self::Line,
        Self::Junk,
        Self::Partial,
        Self::Close,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::Insert => "insert",
            Self::Drop => "drop",
            Self::Again => "again",
            Self::Swap => "swap",
            Self::Rank => "rank",
            Self::Line => "line",
            Self::Junk => "junk",
            Self::Partial => "partial",
            Self::Close => "close",
        }
    }

    fn make(self, session: &mut Session, other: &Session, rng: &mut Dice<'_>) {
        let run = |steps: &[Step], rng: &mut Dice<'_>| {
            let from = rng.usize(..=steps.len());
            from..(from + rng.usize(1..8)).min(steps.len())
        };
        let ranks = session.ranks.max(1);
        let steps = &mut session.steps;
        let at = rng.usize(..=steps.len());
        match self {
            Self::Splice => {
                steps.truncate(at);
                steps.extend_from_slice(&other.steps[rng.usize(..=other.steps.len())..]);
                session.ranks = session.ranks.max(other.ranks);
            }
            Self::Insert => {
                let some = other.steps[run(&other.steps, rng)].to_vec();
                steps.splice(at..at, some);
                session.ranks = session.ranks.max(other.ranks);
            }
            Self::Drop => drop(steps.drain(run(steps, rng))),
            Self::Again => {
                let some = steps[run(steps, rng)].to_vec();
                let times = if rng.u32(0..8) == 0 { 20 } else { 1 };
                (0..times).for_each(|_| drop(steps.splice(at..at, some.clone())));
            }
            Self::Swap if !steps.is_empty() => {
                let (a, b) = (rng.usize(..steps.len()), rng.usize(..steps.len()));
                steps.swap(a, b);
            }
            Self::Junk => {
                let step =
                    Step::Write { rank: rng.u32(..ranks), lines: vec![mutate::junk(rng)], partial: false };
                steps.insert(at, step);
            }
            Self::Close => steps.insert(at, Step::Close { rank: rng.u32(..ranks) }),
            Self::Rank | Self::Line | Self::Partial | Self::Swap => {
                let writes: Vec<usize> = (0..steps.len()).filter(|i| steps[*i].lines().is_some()).collect();
                if let Some(i) = writes.get(rng.usize(..writes.len().max(1))) {
                    self.change_write(&mut steps[*i], ranks, rng);
                }
            }
        }
        session.steps.truncate(STEPS);
    }

    fn change_write(self, step: &mut Step, ranks: u32, rng: &mut Dice<'_>) {
        match (self, &mut *step) {
            (Self::Rank, Step::Write { rank, .. }) => *rank = rng.u32(..ranks),
            (Self::Partial, Step::Write { partial, .. })
            | (Self::Partial, Step::Upstream { says: Says::Words { partial, .. }, .. }) => *partial ^= true,
            _ => {
                let Some(lines) = step.lines_mut().filter(|lines| !lines.is_empty()) else { return };
                let i = rng.usize(..lines.len());
                change_line(&mut lines[i], rng);
            }
        }
    }
}

fn change_line(line: &mut Line, rng: &mut Dice<'_>) {
    match rng.u32(0..3) {
        0 => mutate::separator(line, rng),
        1 => mutate::bytes(line, rng),
        _ => {
            let at = rng.usize(..=line.len());
            line.insert(at, Piece::Fill(mutate::any_length(rng)));
            line.retain(|piece| *piece != Piece::Fill(Length::of(0)));
        }
    }
}

/// Makes a session one that can be played: what is spoken of exists, and what need not come is not waited for.
fn mend(session: &mut Session) {
    session.realign();
    let (mut kvs, mut limits, mut passed) = (false, false, 0);
    session.steps.retain_mut(|step| {
        match step {
            Step::Join => (kvs, limits) = (true, true),
            Step::Await { answer, .. } => match answer {
                Answer::Due(pmi_wire::Operation::Kvsname) => kvs = true,
                Answer::Due(pmi_wire::Operation::Maxes) => limits = true,
                _ => *answer = Answer::Perhaps,
            },
            Step::Passed { .. } => passed += 1,
            Step::Upstream { to, says } => {
                let least = to.unwrap_or(u32::from(*says == Says::Usual));
                if passed < least {
                    return false;
                }
            }
            _ => {}
        }
        if let Some(lines) = step.lines_mut() {
            mutate::stand_in(lines, kvs, limits);
        }
        true
    });
}

/// Whether a session asks only for what may be asked for.
fn fits(session: &Session, scope: Scope) -> bool {
    let has = |wanted: &dyn Fn(&Piece) -> bool| {
        session.steps.iter().filter_map(Step::lines).flatten().flatten().any(wanted)
    };
    let names = |piece: &Piece| match piece {
        Piece::Bytes(bytes) => {
            memchr::memmem::find(bytes, b"lish_name").is_some()
                || memchr::memmem::find(bytes, b"lookup_name").is_some()
        }
        _ => false,
    };
    // A server does well to believe how many processes it is to start, and a machine would not like it.
    let many = |piece: &Piece| match piece {
        Piece::Bytes(bytes) => memchr::memmem::find_iter(bytes, b"nprocs=").any(|at| {
            let digits = bytes[at + 7..].iter().take_while(|b| b.is_ascii_digit()).count();
            digits > 1
        }),
        _ => false,
    };
    session.ranks <= scope.ranks
        && session.is_sound()
        && (scope.upstream || !session.needs_upstream())
        && (scope.spawn || !has(&|piece| *piece == Piece::Agent))
        && (scope.names || !has(&names))
        && !has(&many)
        && !has(&|piece| matches!(piece, Piece::Fill(Length { base: Base::Zero, plus }) if *plus > 1 << 20))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::generate::generate;
    use super::*;
    use crate::lang::ast::Source;

    fn corpus(folder: Option<&Path>, sessions: u64) -> Corpus {
        let mut corpus = Corpus { folder: folder.map(Path::to_owned), entries: Vec::new() };
        let scope = Scope { upstream: true, ..Scope::default() };
        for number in 0..sessions {
            corpus.keep(number, &generate(3, number, scope)).unwrap();
        }
        corpus
    }

    #[test]
    fn what_is_made_of_others_depends_on_seed_number_and_them_alone_and_is_sound() {
        let corpus = corpus(None, 60);
        let scope = Scope { upstream: true, ..Scope::default() };
        let mut made = 0;
        let mut changes = BTreeSet::new();
        for number in 0..3000 {
            let Some(generated) = corpus.vary(1, number, scope) else { continue };
            made += 1;
            let session = generated.session;
            assert!(session.is_sound(), "{number}: {session:?}");
            assert_eq!(corpus.vary(1, number, scope).map(|g| g.session), Some(session.clone()));
            let text = session.to_scenario("Varied.", &["rfc13.error.close"]);
            let source = Arc::new(Source { path: "x.pmi".into(), text: text.clone() });
            let scenario =
                crate::lang::parse(source, "x").unwrap_or_else(|e| panic!("{number}: {e:?}\n{text}"));
            assert_eq!(Session::from_scenario(&scenario), Ok(session), "{number}\n{text}");
            changes.extend(generated.ingredients.into_iter().filter(|i| i.starts_with("corpus:")));
        }
        assert!((600..1000).contains(&made), "{made}");
        assert_eq!(changes.len(), Change::ALL.len());
        assert!((0..300).all(|n| corpus.vary(1, n, Scope { mutate: false, ..scope }).is_none()));
    }

    #[test]
    fn nothing_is_asked_for_that_is_out_of_scope() {
        let corpus = corpus(None, 200);
        let scope = Scope { ranks: 2, spawn: false, names: false, mutate: true, upstream: false };
        let mut made = 0;
        for session in (0..2000).filter_map(|n| corpus.vary(1, n, scope)).map(|g| g.session) {
            made += 1;
            let text = session.to_scenario("Varied.", &[]);
            assert!(
                session.ranks <= 2 && !text.contains("${agent}") && !text.contains("cmd=lookup_name"),
                "{text}"
            );
            assert!(!text.contains("proxy:0"), "{text}");
        }
        assert!(made > 20, "{made}");
    }

    #[test]
    fn it_is_read_again_in_the_same_order_and_what_is_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let kept = corpus(Some(folder.path()), 40);
        let read = Corpus::open(folder.path()).unwrap();
        assert_eq!((kept.len(), read.len()), (40, 40));
        for (a, b) in kept.entries.iter().zip(&read.entries) {
            assert_eq!((&a.name, &a.session, &a.ingredients), (&b.name, &b.session, &b.ingredients));
        }
        let damaged = folder.path().join("session-0000000007.pmi");
        for text in ["# A.\nrequires x\n0 C: cmd=<fill\n", "# A.\nrequires rfc13.put.unique\nlet $x = a\n"] {
            fs::write(&damaged, text).unwrap();
            let error = Corpus::open(folder.path()).unwrap_err();
            assert!(error.contains("session-0000000007.pmi"), "{error}");
        }
        assert!(Corpus::open(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn the_largest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut corpus = Corpus { folder: Some(folder.path().to_owned()), entries: Vec::new() };
        let of = |steps: usize| Session { ranks: 1, steps: vec![Step::Close { rank: 0 }; steps] };
        for number in 0..MOST {
            corpus.insert(format!("{number}"), of(2), BTreeSet::new());
        }
        corpus.add("large.pmi".into(), of(3), BTreeSet::new()).unwrap();
        assert!(corpus.len() == MOST && !folder.path().join("large.pmi").exists());
        corpus.add("small.pmi".into(), of(1), BTreeSet::new()).unwrap();
        assert!(corpus.len() == MOST && folder.path().join("small.pmi").exists());
        assert_eq!(corpus.entries.iter().filter(|e| e.session.steps.len() == 2).count(), MOST - 1);
    }

    #[test]
    fn the_suite_holds_sessions() {
        let folder = tempfile::tempdir().unwrap();
        suite::Suite::export(folder.path()).unwrap();
        let mut corpus = Corpus::default();
        let others = corpus.import(folder.path()).unwrap();
        assert!(corpus.len() > 10 && others > 10, "{} {others}", corpus.len());
        fs::write(folder.path().join("broken.pmi"), "0 X: y\n").unwrap();
        assert!(corpus.import(folder.path()).unwrap_err().contains("broken.pmi"));
    }
}
