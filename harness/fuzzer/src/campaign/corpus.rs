//! The corpus of a campaign: cases that increased the coverage, from which other cases are derived.
//!
//! The corpus is stored in the campaign's folder as scenarios with metadata files, so that a later campaign can begin with it. Cases with a
//! fatal failure are not kept, because cases derived from them would mostly show the same failure.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arbitrary::{Result as Decided, Unstructured};
use pmi_runner::suite::FilesError;
use pmi_scenario::ast::{Expr, ImplementationKind, Piece};
use serde::{Deserialize, Serialize};

use super::frontier::Frontier;
use crate::generate::server::scope::SessionFeatures;
use crate::generate::server::{free, jobs};
use crate::generate::{Generator, systematic};
use crate::mutate::{explore, vary};
use crate::observe::edges::Edges;
use crate::session::WriteError;
use crate::session::case::Case;
use crate::session::decisions::percent;
use crate::session::op::Op;
use crate::session::pieces::{agent, bytes_of};
use crate::session::statement::sent;
use crate::triage::store::{self, ReadError};

/// The name of the corpus folder within the campaign's folder.
pub const FOLDER: &str = "corpus";

/// Maximum number of cases in the corpus. If there are more, the largest cases are removed.
const MAX_CASES: usize = 2000;

/// One in `FREE_SHARE` cases is a free session if free sessions are in scope. The ranks of a free session run without a fixed order.
const FREE_SHARE: u8 = 3;

/// Percentage of cases that are derived from the corpus, unless the corpus is empty.
const CORPUS_PERCENT: u32 = 30;

/// Percentage of cases that are derived from the corpus or from the frontier. The cases in the frontier cover rare edges of the
/// implementation's program.
const EXPLORED_PERCENT: u32 = 65;

/// The cases that increased the coverage. See the module documentation.
#[derive(Debug, Default)]
pub struct Corpus {
    folder: Option<PathBuf>,
    entries: Vec<CorpusEntry>,
    /// Number of cases provided by the user.
    given_count: usize,
}

#[derive(Debug)]
struct CorpusEntry {
    /// The name of the case's file, without the extension.
    name: String,
    case: Case,
    weight: usize,
}

/// The content of a case's metadata file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Metadata {
    ingredients: BTreeSet<String>,
}

/// An error while reading or writing a corpus.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A case of an earlier campaign cannot be read.
    #[error(transparent)]
    Case(#[from] ReadError),
    /// A file that the user provided is not a scenario.
    #[error(transparent)]
    Scenario(#[from] FilesError),
}

impl Corpus {
    /// Reads the corpus of an earlier campaign, if any. The folder is created when the first case is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is invalid.
    pub fn open(folder: &Path) -> Result<Self, CorpusError> {
        let mut corpus = Self { folder: Some(folder.to_owned()), ..Self::default() };
        if !folder.is_dir() {
            return Ok(corpus);
        }
        let listed =
            fs::read_dir(folder).and_then(|all| all.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>());
        let mut files: Vec<PathBuf> =
            listed.map_err(|error| ReadError::File { file: folder.to_owned(), error })?;
        files.retain(|file| file.extension().is_some_and(|e| e == "pmi"));
        files.sort();
        for file in files {
            let mut case = store::read_case(&file)?;
            let metadata_file = file.with_extension("json");
            let metadata: Metadata = serde_json::from_str(&store::read_text(&metadata_file)?)
                .map_err(|error| ReadError::Metadata { file: metadata_file, error })?;
            case.ingredients = metadata.ingredients;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            corpus.insert(name, case);
        }
        Ok(corpus)
    }

    /// Adds cases provided by the user.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be written.
    pub fn add_given(&mut self, cases: &[Case]) -> Result<(), CorpusError> {
        for case in cases {
            self.add(format!("given-{:06}", self.given_count), case.clone())?;
            self.given_count += 1;
        }
        Ok(())
    }

    /// Returns the number of cases.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the corpus is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a case under a name that contains `number`. If the case's file cannot be written, the case is still kept in memory.
    fn keep(&mut self, number: u64, case: &Case) -> Result<(), WriteError> {
        self.add(format!("session-{number:010}"), case.clone())
    }

    fn add(&mut self, name: String, mut case: Case) -> Result<(), WriteError> {
        // Coverage is recorded only for the case's own job, so the earlier job is not needed.
        case.earlier = None;
        case.finish("Covers more than the earlier cases.", None);
        let text = case.text();
        let metadata = Metadata { ingredients: case.ingredients.clone() };
        let evicted = self.insert(name.clone(), case);
        let Some(folder) = &self.folder else { return Ok(()) };
        let files = |name: &str| ["pmi", "json"].map(|ending| folder.join(format!("{name}.{ending}")));
        if let Some(evicted) = &evicted {
            // Errors are ignored, because a remaining file merely gives a later campaign an extra case.
            for file in files(evicted) {
                _ = fs::remove_file(file);
            }
        }
        if evicted.as_ref() == Some(&name) {
            return Ok(());
        }
        let [scenario, metadata_file] = files(&name);
        let write = || {
            fs::create_dir_all(folder)?;
            fs::write(&metadata_file, serde_json::to_string(&metadata)?)?;
            let part = folder.join(".part");
            fs::write(&part, text)?;
            fs::rename(&part, &scenario)
        };
        write().map_err(|error| WriteError { file: scenario.clone(), error })
    }

    /// Inserts a case, and returns the name of the case that had to be removed, if any.
    fn insert(&mut self, name: String, case: Case) -> Option<String> {
        let weight = case.size();
        self.entries.push(CorpusEntry { name, case, weight });
        if self.entries.len() <= MAX_CASES {
            return None;
        }
        // Remove the largest case. Among cases of equal size, remove the last one.
        let largest = (0..self.entries.len()).max_by_key(|i| self.entries[*i].weight)?;
        Some(self.entries.remove(largest).name)
    }

    /// Derives a case from two cases of the corpus. Returns `None` if the corpus is empty or the derived case is out of scope.
    fn vary(&self, scope: SessionFeatures, u: &mut Unstructured<'_>) -> Decided<Option<Case>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        // Prefer the newest cases, which are closest to unreached behaviour.
        let newest = if u.ratio(1, 2)? { self.entries.len() * 3 / 4 } else { 0 };
        let first = u.choose(&self.entries[newest..])?.case.clone();
        self.vary_one(first, scope, u)
    }

    /// Derives a case from `case` and a random case of the corpus. Returns `None` if the derived case is out of scope.
    fn vary_one(
        &self,
        mut case: Case,
        scope: SessionFeatures,
        u: &mut Unstructured<'_>,
    ) -> Decided<Option<Case>> {
        let second = match self.entries.is_empty() {
            true => None,
            // If the drawn case has a different dialect, its messages do not fit into this case, so this case is combined with itself.
            false => Some(&u.choose(&self.entries)?.case)
                .filter(|second| second.scenario.dialect == case.scenario.dialect),
        };
        let second = second.unwrap_or(&case).clone();
        vary(&mut case, &second, u)?;
        Ok(is_in_scope(&case, scope).then_some(case))
    }
}

/// A generator of cases for a server. Some cases are derived from the corpus and from the frontier.
#[derive(Debug)]
pub struct EvolvingGenerator {
    scope: SessionFeatures,
    corpus: Mutex<Corpus>,
    frontier: Mutex<Frontier>,
}

impl EvolvingGenerator {
    /// Creates a generator of cases within `scope`, with an initial corpus.
    pub fn new(scope: SessionFeatures, corpus: Corpus) -> Self {
        Self { scope, corpus: Mutex::new(corpus), frontier: Mutex::default() }
    }

    /// Locks the corpus. A poisoned lock can be ignored, because a panic in another worker leaves the corpus consistent.
    fn corpus(&self) -> MutexGuard<'_, Corpus> {
        self.corpus.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frontier(&self) -> MutexGuard<'_, Frontier> {
        self.frontier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Derives a case from a case in the frontier. Returns `None` if the frontier is empty or the derived case is out of scope.
    fn explore(&self, u: &mut Unstructured<'_>) -> Decided<Option<Case>> {
        let Some(mut case) = self.frontier().choose(u)? else { return Ok(None) };
        if u.ratio(1, 4)? {
            return self.corpus().vary_one(case, self.scope, u);
        }
        explore(&mut case, u)?;
        Ok(is_in_scope(&case, self.scope).then_some(case))
    }
}

impl Generator for EvolvingGenerator {
    fn generate(&self, valid: &mut Unstructured<'_>, mutations: &mut Unstructured<'_>) -> Decided<Case> {
        // These decisions come from `mutations`, so that they do not change the cases that the model generates from `valid`.
        if self.scope.free_ranks > 1 && mutations.ratio(1, FREE_SHARE)? {
            return free::session(self.scope, valid);
        }
        let share = percent(mutations)?;
        if self.scope.mutate {
            let made = match share {
                0..CORPUS_PERCENT => self.corpus().vary(self.scope, mutations)?,
                CORPUS_PERCENT..EXPLORED_PERCENT => self.explore(mutations)?,
                _ => None,
            };
            if let Some(case) = made {
                return Ok(case);
            }
        }
        let case = self.scope.generate(valid, mutations)?;
        jobs::maybe_after_job(self.scope, case, valid)
    }

    fn fixed(&self, number: u64) -> Option<Case> {
        systematic::session(self.scope, number)
    }

    fn keep(&self, number: u64, case: &Case) -> Result<(), WriteError> {
        self.corpus().keep(number, case)
    }

    fn record_edges(&self, case: &Case, edges: &Edges) {
        self.frontier().record_edges(&Case { earlier: None, ..case.clone() }, edges);
    }

    fn kept(&self) -> usize {
        self.corpus().len()
    }
}

fn is_in_scope(case: &Case, scope: SessionFeatures) -> bool {
    let has = |wanted: &dyn Fn(&Piece) -> bool| {
        let sent =
            case.scenario.body.iter().filter_map(|statement| sent(statement, ImplementationKind::Server));
        sent.flatten().flat_map(|line| &line.pieces).any(wanted)
    };
    // The bytes are joined first, because a word may continue in the next piece.
    let sends = |wanted: &dyn Fn(&[u8]) -> bool| {
        let sent =
            case.scenario.body.iter().filter_map(|statement| sent(statement, ImplementationKind::Server));
        sent.flatten().any(|line| wanted(&bytes_of(line)))
    };
    let contains = |text: &[u8], part: &[u8]| memchr::memmem::find(text, part).is_some();
    let of_names = || Op::all(case.scenario.dialect).filter(|op| op.is(&["publish", "lookup", "unpublish"]));
    // Requests for ten or more processes are out of scope, because a server that starts them all would overload the machine.
    let many = |text: &[u8]| {
        memchr::memmem::find_iter(text, b"nprocs=").any(|at| {
            let digits = text[at + 7..].iter().take_while(|b| b.is_ascii_digit()).count();
            digits > 1
        })
    };
    case.ranks() <= scope.ranks
        && case.scenario.nodes <= scope.nodes
        && scope.dialects.has(case.scenario.dialect)
        && case.is_bounded()
        && case.is_sound()
        && (scope.upstream || !case.needs_upstream())
        && (scope.spawn || !has(&|piece| *piece == agent()))
        && (scope.names || !sends(&|text| of_names().any(|op| contains(text, op.name().as_bytes()))))
        && !sends(&many)
        && !has(&|piece| matches!(piece, Piece::Fill(Expr::Number(n)) if *n > 1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::case_from_number;
    use crate::generate::server::scope::DialectChoice;
    use crate::mutate::Mutation;
    use crate::session::decisions::draw_bytes;
    use crate::session::statement::close;
    use crate::session::testing::assert_round_trip;
    use pmi_scenario::ast::Dialect;

    fn corpus(folder: Option<&Path>, cases: u64) -> Corpus {
        let mut corpus = Corpus { folder: folder.map(Path::to_owned), ..Corpus::default() };
        let scope = SessionFeatures { upstream: true, ..SessionFeatures::default() };
        for number in 0..cases {
            corpus.keep(number, &case_from_number(&scope, 3, number)).unwrap();
        }
        corpus
    }

    fn varied(corpus: &Corpus, scope: SessionFeatures, number: u64) -> Option<Case> {
        corpus.vary(scope, &mut Unstructured::new(&draw_bytes(1, number))).unwrap()
    }

    #[test]
    fn derived_sessions_are_sound_and_deterministic() {
        let corpus = corpus(None, 60);
        let scope = SessionFeatures { upstream: true, ..SessionFeatures::default() };
        let mut made = 0;
        let mut mutations = BTreeSet::new();
        for number in 0..1000 {
            let Some(case) = varied(&corpus, scope, number) else { continue };
            made += 1;
            assert!(case.is_sound(), "{number}: {}", case.text());
            assert_eq!(varied(&corpus, scope, number).map(|c| c.scenario), Some(case.scenario.clone()));
            assert_round_trip(&case);
            mutations.extend(case.ingredients.into_iter().filter(|i| i.starts_with("corpus:")));
        }
        assert!(made > 900, "{made}");
        assert_eq!(mutations.len(), Mutation::OF_CASES.len());
    }

    #[test]
    fn pmi2_sessions_are_derived_only_from_pmi2_sessions() {
        let scope = SessionFeatures { dialects: DialectChoice::Any, ..SessionFeatures::default() };
        let mut corpus = Corpus::default();
        for number in 0..80 {
            corpus.keep(number, &case_from_number(&scope, 3, number)).unwrap();
        }
        let scope = SessionFeatures { dialects: DialectChoice::One(Dialect::Pmi2), ..scope };
        let mut spawns = 0;
        for case in (0..800).filter_map(|number| varied(&corpus, scope, number)) {
            assert!(case.is_sound() && case.is_bounded(), "{}", case.text());
            let text = case.text();
            assert!(text.contains("dialect pmi-2") && !text.contains(" kvsname="), "{text}");
            spawns += usize::from(text.contains("cmd=spawn;"));
            assert_round_trip(&case);
        }
        assert!(spawns > 20, "{spawns}");
    }

    #[test]
    fn derives_sessions_only_if_mutation_is_enabled() {
        let is_made = |case: &Case| case.ingredients.iter().any(|i| i.starts_with("corpus:"));
        let share = |mutate| {
            let evolving = EvolvingGenerator::new(
                SessionFeatures { mutate, upstream: true, ..SessionFeatures::default() },
                corpus(None, 30),
            );
            (0..1000).filter(|n| is_made(&case_from_number(&evolving, 1, *n))).count()
        };
        let made = share(true);
        assert!((200..400).contains(&made), "{made}");
        assert_eq!(share(false), 0);
    }

    #[test]
    fn derived_sessions_use_only_enabled_features() {
        let corpus = corpus(None, 200);
        let scope = SessionFeatures { ranks: 2, spawn: false, names: false, ..SessionFeatures::default() };
        let mut made = 0;
        for case in (0..800).filter_map(|n| varied(&corpus, scope, n)) {
            made += 1;
            let text = case.text();
            assert!(
                case.ranks() <= 2 && !text.contains("$agent") && !text.contains("cmd=lookup_name"),
                "{text}"
            );
            assert!(!text.contains("proxy:0"), "{text}");
        }
        assert!(made > 20, "{made}");
    }

    #[test]
    fn reads_corpus_in_order_and_reports_damaged_file() {
        let folder = tempfile::tempdir().unwrap();
        let kept = corpus(Some(folder.path()), 40);
        let read = Corpus::open(folder.path()).unwrap();
        assert_eq!((kept.len(), read.len()), (40, 40));
        for (a, b) in kept.entries.iter().zip(&read.entries) {
            assert_eq!((&a.name, &a.case.ingredients), (&b.name, &b.case.ingredients));
            assert_eq!(a.case.scenario.body, b.case.scenario.body);
        }
        let damaged = folder.path().join("session-0000000007.pmi");
        for text in
            ["# A.\nrequires x\n0 send    cmd=<fill\n", "# A.\nrequires rfc13.put.unique\nlet $x = a\n"]
        {
            fs::write(&damaged, text).unwrap();
            let error = Corpus::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains("session-0000000007.pmi"), "{error}");
        }
        assert!(Corpus::open(&folder.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn full_corpus_drops_the_largest_session() {
        let folder = tempfile::tempdir().unwrap();
        let mut corpus = Corpus { folder: Some(folder.path().to_owned()), ..Corpus::default() };
        let of = |steps: usize| Case::new(ImplementationKind::Server, 1, vec![close(0); steps]);
        for number in 0..MAX_CASES {
            corpus.insert(format!("{number}"), of(2));
        }
        corpus.add("large".into(), of(3)).unwrap();
        assert!(corpus.len() == MAX_CASES && !folder.path().join("large.pmi").exists());
        corpus.add("small".into(), of(1)).unwrap();
        assert!(corpus.len() == MAX_CASES && folder.path().join("small.pmi").exists());
        assert_eq!(corpus.entries.iter().filter(|e| e.case.len() == 2).count(), MAX_CASES - 1);
    }
}
