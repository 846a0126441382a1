//! The suite: scenarios, fragments and requirements, which are embedded in the binary or provided by the user.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use include_dir::{Dir, include_dir};

use crate::ast::{Dialect, Each, Scenario, SourceFile, Span, Statement, Step, TableRow};
use crate::diag::DiagnosticSink;
use crate::requirement::{Catalogue, CatalogueError};
use crate::{
    Behaviours, Diagnostic, Env, ImplementationKind, check, layout, order, parse, spell, table, visit,
};
use spell::{References, spell};
use table::RequestWords;

static EMBEDDED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// The file name extension of scenario files.
pub const EXTENSION: &str = "pmi";

/// The reason why a suite cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// Invalid scenario files.
    #[error("{}", .0.iter().map(|mistake| mistake.render(false)).collect::<Vec<_>>().join("\n"))]
    Diagnostics(Vec<Diagnostic>),
    /// An invalid catalogue.
    #[error("{}: {error}", file.display())]
    Catalogue {
        /// The file of the catalogue.
        file: PathBuf,
        /// The error in the file.
        error: CatalogueError,
    },
}

/// Scenarios with the fragments and requirements to which they refer.
#[derive(Debug, Clone, Default)]
pub struct Suite {
    /// The scenarios, in the order in which they are listed, played and reported.
    pub scenarios: Vec<Arc<Scenario>>,
    /// The scenarios to check: every file in each of its dialects. Rows are expanded only if the file cannot be checked otherwise.
    files: Vec<Arc<Scenario>>,
    fragments: BTreeMap<String, Arc<Scenario>>,
    /// The rows of the fragments that are tables.
    tables: BTreeMap<String, Arc<[TableRow]>>,
    /// The requirements.
    pub catalogue: Catalogue,
    behaviours: Behaviours,
}

/// Returns the files of the embedded suite, with their paths within the suite.
pub fn embedded_files() -> &'static [(&'static Path, &'static [u8])] {
    static EMBEDDED_FILES: LazyLock<Vec<(&Path, &[u8])>> = LazyLock::new(|| {
        let mut all = Vec::new();
        add_files(&EMBEDDED, &mut all);
        all.sort_unstable();
        all
    });
    &EMBEDDED_FILES
}

fn add_files(dir: &'static Dir<'_>, all: &mut Vec<(&'static Path, &'static [u8])>) {
    all.extend(dir.files().map(|file| (file.path(), file.contents())));
    dir.dirs().for_each(|dir| add_files(dir, all));
}

/// Loads only the embedded requirements, for commands that play no scenarios.
///
/// # Errors
///
/// Returns an error if the embedded requirements are invalid, which the tests of this crate rule out.
pub fn embedded_catalogue() -> Result<Catalogue, SuiteError> {
    let mut catalogue = Catalogue::default();
    for (path, bytes) in embedded_files() {
        if path.extension().is_some_and(|e| e == "toml") {
            let at = |error| SuiteError::Catalogue { file: path.to_path_buf(), error };
            catalogue.add(&String::from_utf8_lossy(bytes)).map_err(at)?;
        }
    }
    Ok(catalogue)
}

/// The parsed head of an embedded scenario file, and the file's text.
struct EmbeddedScenario {
    path: &'static Path,
    /// The path without its extension.
    name: String,
    text: &'static str,
    tests: ImplementationKind,
    /// The names of the scenarios in the file.
    names: Vec<String>,
}

/// All embedded scenario files. Reading only their heads takes a tenth of the time that parsing all of them would take.
static FILES: LazyLock<Vec<EmbeddedScenario>> = LazyLock::new(|| {
    let is_scenario =
        |path: &Path| path.extension().is_some_and(|e| e == EXTENSION) && !path.starts_with("fragments");
    // Many files share a table, so each table is read once.
    let mut tables: BTreeMap<&str, EmbeddedTable> = BTreeMap::new();
    embedded_files()
        .iter()
        .filter(|(path, _)| is_scenario(path))
        .map(|(path, bytes)| {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let head = layout::head(text);
            let name = path.with_extension("").display().to_string();
            let named: Vec<Dialect> = head.dialects.iter().filter_map(|word| word.parse().ok()).collect();
            let dialects = if named.is_empty() { vec![Dialect::default()] } else { named };
            let mut names = Vec::new();
            for dialect in &dialects {
                let name = spell::name_in(&name, dialects[0], *dialect);
                let rows = match &head.each {
                    Some((table, but)) => {
                        let table = tables.entry(*table).or_insert_with(|| EmbeddedTable::new(table));
                        table.names(*dialect, but, &head)
                    }
                    None => (head.rows.iter().filter(|row| row.is_in(*dialect)))
                        .map(|row| row.name.to_owned())
                        .collect(),
                };
                match rows.is_empty() {
                    true => names.push(name),
                    false => names.extend(rows.iter().map(|row| Scenario::name_of_row(&name, row))),
                }
            }
            EmbeddedScenario {
                name,
                path,
                text,
                tests: head.tests.unwrap_or(ImplementationKind::Server),
                names,
            }
        })
        .collect()
});

/// The names of an embedded table's rows, with the words of each row.
struct EmbeddedTable {
    rows: [Vec<RequestWords<'static>>; 2],
    /// The words of all rows in all dialects, without duplicates.
    known: Vec<&'static str>,
}

impl EmbeddedTable {
    fn new(table: &str) -> Self {
        let rows = Dialect::ALL.map(|dialect| embedded_rows(dialect, table));
        let known = table::distinct(rows.iter().flatten().flat_map(|row| row.words.iter().copied()));
        Self { rows, known }
    }

    /// Returns the names of all combinations of a table row and a file row in a dialect.
    fn names(&self, dialect: Dialect, but: &[&str], file: &layout::Head<'_>) -> Vec<String> {
        let rows = &self.rows[dialect as usize];
        let name = |(row, of_file): (usize, Option<usize>)| {
            table::name(rows[row].name, of_file.map(|place| file.rows[place].name))
        };
        table::pair_rows(dialect, rows, &self.known, but, file).into_iter().map(name).collect()
    }
}

fn embedded_rows(dialect: Dialect, table: &str) -> Vec<RequestWords<'static>> {
    if table == Each::REQUEST {
        return table::of_requests(dialect).iter().map(RequestWords::from).collect();
    }
    let embedded = |name: String| {
        let path = Path::new("fragments").join(name).with_extension(EXTENSION);
        EMBEDDED.get_file(path)?.contents_utf8()
    };
    let text = embedded(spell::dialect_prefix(dialect, "-") + table).or_else(|| embedded(table.to_owned()));
    let head = layout::head(text.unwrap_or_default());
    let of_all = head.let_names();
    let words = |row: &layout::HeadRow<'static>| [row.words(), of_all.clone()].concat();
    let own = head.rows.iter().filter(|row| row.is_in(dialect));
    own.map(|row| RequestWords { name: row.name, words: words(row) }).collect()
}

impl EmbeddedScenario {
    /// Returns whether `fits` accepts the name of at least one scenario in this file.
    fn has_scenario(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.names.iter().any(|name| fits(name))
    }
}

impl Suite {
    /// Loads the embedded suite. `behaviours` are the behaviours of the reference server.
    ///
    /// # Errors
    ///
    /// Returns an error if the embedded suite is invalid, which the tests of this crate rule out.
    pub fn embedded(behaviours: Behaviours) -> Result<Self, SuiteError> {
        Self::embedded_part(behaviours, |_, _| true)
    }

    /// Loads the part of the embedded suite for which `wanted` returns true, given the kind of implementation under test and the name of a
    /// scenario. Files without such scenarios are not parsed.
    ///
    /// # Errors
    ///
    /// Returns an error if the embedded suite is invalid, which the tests of this crate rule out.
    pub fn embedded_part(
        behaviours: Behaviours,
        wanted: impl Fn(ImplementationKind, &str) -> bool,
    ) -> Result<Self, SuiteError> {
        let mut suite = Self::without_scenarios(behaviours)?;
        let files = FILES.iter().filter(|file| file.has_scenario(|name| wanted(file.tests, name)));
        let read = |file: &EmbeddedScenario| {
            (file.name.clone(), source(file.path, Path::new("scenarios"), file.text.to_owned()))
        };
        // The remaining checks are left to the tests, because here they would make every start of the command take 50 % longer.
        let wrong = suite.add(files.map(read).collect());
        suite.scenarios.retain(|scenario| wanted(scenario.tests, &scenario.name));
        suite.or_diagnostics(wrong)
    }

    /// Loads named scenario files, together with the embedded fragments and requirements. A file in a folder `fragments` is a fragment.
    ///
    /// # Errors
    ///
    /// Returns an error if a file contains a mistake, or if the embedded requirements are invalid.
    pub fn of_files(
        files: Vec<(String, Arc<SourceFile>)>,
        behaviours: Behaviours,
    ) -> Result<Self, SuiteError> {
        let mut suite = Self::without_scenarios(behaviours)?;
        let (fragments, scenarios): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(name, _)| name.rsplit('/').nth(1).is_some_and(|folder| folder == "fragments"));
        let fragments = fragments
            .into_iter()
            .map(|(name, s)| (name.rsplit('/').next().unwrap_or_default().to_owned(), s))
            .collect();
        suite.add_fragments(fragments)?;
        let mut wrong = suite.add(scenarios);
        wrong.extend(suite.diagnose());
        wrong.retain(Diagnostic::is_error);
        suite.or_diagnostics(wrong)
    }

    fn or_diagnostics(self, wrong: Vec<Diagnostic>) -> Result<Self, SuiteError> {
        if wrong.is_empty() { Ok(self) } else { Err(SuiteError::Diagnostics(wrong)) }
    }

    pub(super) fn without_scenarios(behaviours: Behaviours) -> Result<Self, SuiteError> {
        let mut suite = Self { behaviours, catalogue: embedded_catalogue()?, ..Self::default() };
        let mut fragments = Vec::new();
        for (path, bytes) in embedded_files() {
            if path.starts_with("fragments") {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                fragments.push((name, source(path, Path::new("scenarios"), text)));
            }
        }
        suite.add_fragments(fragments)?;
        Ok(suite)
    }

    fn add_fragments(&mut self, sources: Vec<(String, Arc<SourceFile>)>) -> Result<(), SuiteError> {
        let mut wrong = Vec::new();
        let mut read = Vec::new();
        for (name, source) in sources {
            match parse(source, &format!("fragments/{name}")) {
                Ok(fragment) => read.push(fragment),
                Err(errors) => wrong.extend(errors),
            }
        }
        let name = |path: String| path.rsplit('/').next().unwrap_or_default().to_owned();
        let new = read.iter().flat_map(|fragment| fragment.dialects().map(|d| name(fragment.name_in(d))));
        let names: HashSet<String> = self.fragments.keys().cloned().chain(new).collect();
        let references = References {
            catalogue: &self.catalogue,
            has_fragment: &|name| names.contains(name),
            rows: &|_| Arc::default(),
        };
        for fragment in &read {
            for one in fragment.dialects().map(|dialect| spell(fragment, dialect, &references)) {
                match one {
                    Ok(one) => {
                        let name = name(one.name.clone());
                        if !one.rows.is_empty() {
                            self.tables.insert(name.clone(), table::of_fragment(&one));
                        }
                        self.fragments.insert(name, Arc::new(one));
                    }
                    Err(errors) => wrong.extend(errors),
                }
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(SuiteError::Diagnostics(wrong)) }
    }

    /// Adds scenarios and returns the errors found in them, including duplicate names.
    fn add(&mut self, sources: Vec<(String, Arc<SourceFile>)>) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        for (name, source) in sources {
            match parse(source, &name) {
                Ok(scenario) => self.add_file(&scenario).unwrap_or_else(|errors| wrong.extend(errors)),
                Err(errors) => wrong.extend(errors),
            }
        }
        self.scenarios.sort_by_cached_key(|scenario| order::sort_key(&scenario.name));
        for pair in self.scenarios.windows(2).filter(|pair| pair[0].name == pair[1].name) {
            let mut diagnostics = DiagnosticSink::new(Arc::clone(&pair[1].source));
            let message = format!("`{}` is also a scenario of {}", pair[1].name, pair[0].source.path);
            diagnostics.error(Span::default(), message).help("rename one of the files");
            wrong.extend(diagnostics.finish());
        }
        wrong
    }

    fn add_file(&mut self, scenario: &Scenario) -> Result<(), Vec<Diagnostic>> {
        for dialect in scenario.dialects() {
            let one = Arc::new(self.spell_in(scenario, dialect)?);
            let played = one.expand_rows();
            self.scenarios.extend(played.iter().cloned());
            // If the words of the rows are part of the text, only the scenarios of the rows can be checked, not the file itself.
            match one.is_product() {
                true => self.files.extend(played),
                false => self.files.push(one),
            }
        }
        Ok(())
    }

    /// Parses a scenario that is not part of the suite, and returns it in the first dialect of its head, or `None` if it has a mistake.
    pub fn spelled(&self, source: Arc<SourceFile>, name: &str) -> Option<Scenario> {
        let scenario = parse(source, name).ok()?;
        self.spell_in(&scenario, scenario.dialect).ok()
    }

    fn spell_in(&self, scenario: &Scenario, dialect: Dialect) -> Result<Scenario, Vec<Diagnostic>> {
        let has_fragment = |name: &str| self.fragments.contains_key(name);
        let rows = |name: &str| self.tables.get(name).cloned().unwrap_or_default();
        let references = References { catalogue: &self.catalogue, has_fragment: &has_fragment, rows: &rows };
        spell(scenario, dialect, &references)
    }

    /// Returns all diagnostics for the scenarios, including warnings.
    pub fn diagnose(&self) -> Vec<Diagnostic> {
        let fragment_names: Vec<String> = self.fragments.keys().cloned().collect();
        let requirement_names: Vec<String> = self.catalogue.iter().map(|r| r.id.clone()).collect();
        let env = Env {
            fragments: &|name| self.fragment(name),
            requirement_ids: &|id| self.catalogue.get(id).is_some(),
            fragment_names: &fragment_names,
            requirement_names: &requirement_names,
            behaviours: &self.behaviours,
        };
        let mut all: Vec<Diagnostic> = Vec::new();
        for diagnostic in self.files.iter().flat_map(|scenario| check(scenario, &env)) {
            // A mistake that occurs in several dialects is reported once.
            if all.iter().all(|other| *other != diagnostic) {
                all.push(diagnostic);
            }
        }
        all
    }

    /// Returns the scenarios for one kind of implementation.
    pub fn testing(&self, kind: ImplementationKind) -> impl Iterator<Item = &Arc<Scenario>> {
        self.scenarios.iter().filter(move |s| s.tests == kind)
    }

    /// Returns the behaviours of the reference server that scenarios may select.
    pub fn behaviours(&self) -> &Behaviours {
        &self.behaviours
    }

    /// Returns whether `fits` accepts the name of at least one scenario in this suite or in the embedded suite.
    pub fn has(&self, fits: impl Fn(&str) -> bool) -> bool {
        self.names().any(fits)
    }

    /// Returns the names of the scenarios in this suite and in the embedded suite. A name that is in both suites occurs twice.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let embedded = FILES.iter().flat_map(|file| file.names.iter().map(|name| &**name));
        self.scenarios.iter().map(|scenario| &*scenario.name).chain(embedded)
    }

    /// Returns the fragment with this name.
    pub fn fragment(&self, name: &str) -> Option<Arc<Scenario>> {
        self.fragments.get(name).cloned()
    }

    /// Returns the steps of a body, with each `use` replaced by the steps of its fragment.
    pub fn steps<'a>(&'a self, body: &'a [Statement]) -> impl Iterator<Item = &'a Step> {
        visit::steps_with(body, |name| self.fragments.get(name).map_or(&[], |fragment| &fragment.body))
    }
}

fn source(path: &Path, root: &Path, text: String) -> Arc<SourceFile> {
    Arc::new(SourceFile { path: root.join(path).display().to_string(), text })
}
