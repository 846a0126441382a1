//! Tests of PMI libraries under test: our own library has no findings, and for each of many faulty libraries, a finding cites the broken
//! requirement.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use pmi_faults::catalogue;
use pmi_faults::external::UNBREAKABLE_BY_LIBRARIES;
use pmi_judge::deviations::Deviations;
use pmi_judge::event::Event;
use pmi_judge::log_judge::LogJudge;
use pmi_judge::verdict::{RunHeader, ScenarioResult, Strictness, Verdict};
use pmi_judge::{PartyKind, is_reached_by_valid_input};
use pmi_runner::iut::Iut;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::Library;
use pmi_runner::party::server::Implementation;
use pmi_runner::run::{Observer, RunOptions, run};
use pmi_scenario::ImplementationKind;
use pmi_scenario::ast::{Capability, Dialect, Scenario};
use pmi_scenario::requirement::BoundParty;
use pmi_scenario::suite::Suite;
use pmi_test_programs::{
    CRASHING_LIBRARY, FAULTY_LIBRARY, FAULTY_PMI2_LIBRARY, LIBRARY_OF_ANOTHER_NAME,
    LIBRARY_OF_ANOTHER_VERSION, LIBRARY_PROGRAM, LIBRARY_WITH_FEWER_FUNCTIONS, LIBRARY_WITH_MORE_FUNCTIONS,
    PMI2_CLIENT, PMI2_LIBRARY_PROGRAM, PMI2_LIBRARY_WITH_FEWER_FUNCTIONS, peers,
};
use rstest::rstest;
use rustix::process::Signal;

/// A faulty library, and the requirements that it breaks.
type Fault = (&'static str, &'static [&'static str]);

/// Variations of the faulty library that RFC 13 allows. If all of them are selected, no scenario may have a finding.
const LAWFUL: &str = "lawful-put-late,lawful-clique-reversed,lawful-slow,lawful-for-ever-initialized";

/// Variations of the faulty PMI-2 library that the PMI-2 header allows.
const PMI2_LAWFUL: &str = "lawful-abort-core";

/// Faults of the library file itself: its functions, its name and its version.
const FILES: &[Fault] = &[
    (PMI2_LIBRARY_WITH_FEWER_FUNCTIONS, &["pmi2.common.api.functions"]),
    (LIBRARY_WITH_MORE_FUNCTIONS, &["rfc13.api.no-other-functions"]),
    (
        LIBRARY_WITH_FEWER_FUNCTIONS,
        &[
            "rfc13.api.all-functions",
            "rfc13.api.optional-defined",
            "rfc13.api.kvs-destroy",
            "rfc13.api.kvs-iter-first",
            "rfc13.api.kvs-iter-next",
        ],
    ),
    (LIBRARY_OF_ANOTHER_VERSION, &["rfc13.api.soname-zero"]),
    (LIBRARY_OF_ANOTHER_NAME, &["rfc13.api.name-libpmi"]),
];

/// Number of scenarios that are played before the test checks whether the fault has been found.
const BATCH_SIZE: usize = 4;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("library");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Our own libraries for PMI-1 and PMI-2, which cargo has built next to this test, because the test depends on their crates.
static OWN: LazyLock<[PathBuf; 2]> = LazyLock::new(|| {
    let test = std::env::current_exe().unwrap();
    ["pmi", "pmi2"].map(|target| {
        let built = test.with_file_name(format!("lib{target}.so"));
        // Programs search for a library with this name.
        let own = folder().join(format!("lib{target}.so.0"));
        let part = folder().join(format!("lib{target}.so.0.{}", std::process::id()));
        std::fs::copy(&built, &part).unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        std::fs::rename(part, &own).unwrap();
        own
    })
});

fn own(dialect: Dialect) -> &'static Path {
    &OWN[usize::from(dialect == Dialect::Pmi2)]
}

/// Returns all library scenarios of a dialect, except those for libraries that work without a process manager. Our libraries need a process
/// manager.
fn all(suite: &Suite, dialect: Dialect) -> Vec<Arc<Scenario>> {
    suite
        .testing(ImplementationKind::Library)
        .filter(|s| s.dialect == dialect && !needs_to_be_alone(s))
        .cloned()
        .collect()
}

fn needs_to_be_alone(scenario: &Scenario) -> bool {
    scenario.needs.iter().any(|need| need.value == Capability::Standalone)
}

/// Prefixes and suffixes of the names of rows in which the process manager breaks the grammar or sends an unrequested response.
const INVALID: [(&str, &str); 15] = [
    ("thrid", ""),
    ("", "huge"),
    ("", "no-number"),
    ("", "no-numbers"),
    ("", "no-boolean"),
    ("found-empty", ""),
    ("", "twice"),
    ("", "latin"),
    ("", "one-more"),
    ("", "garbage"),
    ("", "no-command"),
    ("", "other-reply"),
    ("", "request-back"),
    ("unasked", ""),
    ("no-value", ""),
];

/// An observer that collects the scenarios whose input is valid.
#[derive(Default)]
struct ValidScenarios {
    names: Vec<String>,
    events: Vec<Event>,
}

impl Observer for ValidScenarios {
    fn begin(&mut self, _: &RunHeader) {}

    fn event(&mut self, _: &str, event: &Event) {
        self.events.push(event.clone());
    }

    fn result(&mut self, result: &ScenarioResult) {
        if is_reached_by_valid_input(&std::mem::take(&mut self.events), PartyKind::Library, None) {
            self.names.push(result.scenario.clone());
        }
    }
}

/// A finding in a scenario with an invalid response is not marked as reached by valid input.
#[rstest]
#[case(Dialect::Pmi1, 100)]
#[case(Dialect::Pmi2, 150)]
fn invalid_response_does_not_count_as_valid_input(#[case] dialect: Dialect, #[case] least: usize) {
    let suite = pmi_runner::suite::embedded().unwrap();
    let invalid = |name: &str| {
        let row = name.split_once('[').and_then(|(_, row)| row.trim_end_matches(']').rsplit('.').next());
        // In these rows, any text is valid. A message (and in PMI-1, a value) extends to the end of the line, and the length of a port is
        // not limited.
        let any_text = ["/reasons[", "/odd[get.", "/texts[lookup."].iter().any(|part| name.contains(part));
        let of_replies = name.contains("/replies/") && !any_text;
        let is_one = |row: &str| INVALID.iter().any(|(a, b)| row.starts_with(a) && row.ends_with(b));
        of_replies && row.is_some_and(is_one)
    };
    let selected: Vec<_> = all(&suite, dialect).into_iter().filter(|s| invalid(&s.name)).collect();
    assert!(selected.len() >= least, "{}", selected.len());
    let (path, env) = (own(dialect).to_owned(), BTreeMap::new());
    let binary = env!("CARGO_BIN_EXE_pmi-conform").into();
    let library = Library { path, binary, env, server: None };
    let target = Iut::Library(Box::new(library), BTreeMap::new(), Arc::default());
    let options = RunOptions { jobs: 1, ..RunOptions::unreported(ScenarioLimits::default()) };
    let mut valid = ValidScenarios::default();
    let none = &mut Deviations::default();
    run(&suite, &selected, &target, none, &options, &AtomicBool::new(false), &mut valid);
    assert_eq!(valid.names, Vec::<String>::new());
}

/// An observer that judges every scenario again, only from its events, and compares the results.
struct JudgesAgain<'a> {
    suite: &'a Suite,
    header: Option<RunHeader>,
    events: Vec<Event>,
}

impl Observer for JudgesAgain<'_> {
    fn begin(&mut self, header: &RunHeader) {
        self.header = Some(header.clone());
    }

    fn event(&mut self, _: &str, event: &Event) {
        let stored = serde_json::to_string(event).unwrap();
        self.events.push(serde_json::from_str(&stored).unwrap());
    }

    fn result(&mut self, result: &ScenarioResult) {
        let header = self.header.as_ref().expect("a run has begun");
        let events = std::mem::take(&mut self.events);
        let deviations = &mut Deviations::default();
        let mut judge = LogJudge::new(header, self.suite, Strictness::Must);
        events.into_iter().for_each(|event| judge.event(&result.scenario, event));
        let mut again = judge.result(result, deviations);
        // The log truncates long lines, so these events are not compared.
        again.last_events.clone_from(&result.last_events);
        assert!(again == *result, "{}: {:?} {:?}", result.scenario, result.findings, again.findings);
    }
}

fn judge(suite: &Suite, selected: &[Arc<Scenario>], path: &Path, fault: &str) -> Vec<ScenarioResult> {
    judge_under(suite, selected, path, fault, None)
}

fn judge_under(
    suite: &Suite,
    selected: &[Arc<Scenario>],
    path: &Path,
    fault: &str,
    server: Option<Box<Implementation>>,
) -> Vec<ScenarioResult> {
    let dialect = selected.first().map_or(Dialect::Pmi1, |scenario| scenario.dialect);
    let env = BTreeMap::from([
        ("LIBRARY_FAULT".to_owned(), fault.to_owned()),
        ("GOOD_LIBRARY".to_owned(), own(dialect).display().to_string()),
    ]);
    let library =
        Library { path: path.into(), binary: env!("CARGO_BIN_EXE_pmi-conform").into(), env, server };
    let target = Iut::Library(Box::new(library), BTreeMap::new(), Arc::default());
    let options = RunOptions { jobs: 4, ..RunOptions::unreported(ScenarioLimits::default()) };
    let interrupted = AtomicBool::new(false);
    let mut again = JudgesAgain { suite, header: None, events: Vec::new() };
    run(suite, selected, &target, &mut Deviations::default(), &options, &interrupted, &mut again).1
}

/// Judges a library under our own process manager.
fn under_serve(suite: &Suite, scenarios: &[Arc<Scenario>], path: &Path, fault: &str) -> Vec<ScenarioResult> {
    let binary = env!("CARGO_BIN_EXE_pmi-conform");
    let server = Implementation::from_argument(&format!("{binary} serve -n {{ranks}} {{agent}}")).unwrap();
    judge_under(suite, scenarios, path, fault, Some(Box::new(server)))
}

/// Returns one row for each file and each distinct list of requirements that the file's rows test. The other rows
/// differ only in the messages that a library receives, not in the results of its calls.
fn one_of_each(scenarios: &[Arc<Scenario>]) -> Vec<Arc<Scenario>> {
    let mut samples = BTreeSet::new();
    let is_first = |s: &&Arc<Scenario>| {
        let requirements: Vec<_> = s.requires.iter().map(|id| id.value.clone()).collect();
        samples.insert((s.name.split('[').next().map(str::to_owned), requirements))
    };
    scenarios.iter().filter(is_first).cloned().collect()
}

fn testing(suite: &Suite, requirements: &[&str]) -> Vec<Arc<Scenario>> {
    let tests = |s: &&Arc<Scenario>| s.requires.iter().any(|r| requirements.contains(&r.value.as_str()));
    suite.testing(ImplementationKind::Library).filter(tests).cloned().collect()
}

fn clean(results: &[ScenarioResult]) {
    let bad: Vec<String> = results
        .iter()
        .filter(|r| r.verdict != Verdict::Pass)
        .map(|r| format!("{} {:?} {:?} {:?}", r.scenario, r.verdict, r.reason, r.findings.first()))
        .collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn reference_and_valid_libraries_pass() {
    let suite = pmi_runner::suite::embedded().unwrap();
    for (dialect, library, valid) in
        [(Dialect::Pmi1, FAULTY_LIBRARY, LAWFUL), (Dialect::Pmi2, FAULTY_PMI2_LIBRARY, PMI2_LAWFUL)]
    {
        let all = all(&suite, dialect);
        assert!(all.len() >= 60, "{}", all.len());
        clean(&judge(&suite, &all, own(dialect), ""));
        clean(&judge(&suite, &one_of_each(&all), library.as_ref(), valid));
    }
}

#[test]
fn scenarios_detect_each_library_fault() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let mut survivors: Vec<String> = Vec::new();
    let mut shown: BTreeSet<&str> = BTreeSet::new();
    let mut try_one = |name: &str, path: &Path, breaks: &[&'static str]| {
        let (mut results, mut cited) = (Vec::new(), BTreeSet::new());
        // Scenarios whose name contains the first word of the fault are likely to find it, so they come first.
        let word = name.split('-').next().unwrap_or(name);
        let mut likely = testing(&suite, breaks);
        likely.sort_by_key(|scenario| !scenario.name.contains(word));
        for scenarios in likely.chunks(BATCH_SIZE) {
            let played = judge(&suite, scenarios, path, name);
            cited.extend(played.iter().flat_map(|r| &r.findings).map(|f| f.finding.requirement.clone()));
            results.extend(played);
            if breaks.iter().all(|id| cited.contains(*id)) {
                break;
            }
        }
        let missed: Vec<&&str> = breaks.iter().filter(|id| !cited.contains(**id)).collect();
        if missed.len() == breaks.len() {
            let unjudged: Vec<&String> = results.iter().filter_map(|r| r.reason.as_ref()).collect();
            survivors.push(format!("{name}: {missed:?} not among {cited:?}; {unjudged:?}"));
        }
        shown.extend(breaks.iter().copied().filter(|id| cited.contains(*id)));
    };
    for (library, breaks) in FILES {
        try_one("", library.as_ref(), breaks);
    }
    for fault in &catalogue().library_faults {
        for (library, dialect) in [(FAULTY_LIBRARY, Dialect::Pmi1), (FAULTY_PMI2_LIBRARY, Dialect::Pmi2)] {
            fault
                .kills_in(dialect.framing())
                .for_each(|kill| try_one(fault.name, library.as_ref(), kill.requirements));
        }
    }
    assert!(survivors.is_empty(), "survive:\n{}", survivors.join("\n"));
    let without: Vec<&str> = suite
        .catalogue
        .iter()
        .filter(|r| r.needs_fault(BoundParty::Library))
        .map(|r| r.id.as_str())
        .filter(|id| UNBREAKABLE_BY_LIBRARIES.iter().all(|r| r.id != *id))
        .filter(|id| !shown.contains(id))
        .collect();
    assert!(without.is_empty(), "no fault shows that these requirements are tested: {without:?}");
}

#[rstest]
#[case::pmi1(Dialect::Pmi1, FAULTY_LIBRARY, 3)]
#[case::pmi2(Dialect::Pmi2, FAULTY_PMI2_LIBRARY, 1)]
fn judges_singletons_if_the_library_supports_them(
    #[case] dialect: Dialect,
    #[case] library: &str,
    #[case] scenarios: usize,
) {
    let suite = pmi_runner::suite::embedded().unwrap();
    let alone: Vec<_> =
        suite.testing(ImplementationKind::Library).filter(|s| needs_to_be_alone(s)).cloned().collect();
    let alone: Vec<_> = alone.into_iter().filter(|s| s.dialect == dialect).collect();
    assert_eq!(alone.len(), scenarios);
    clean(&judge(&suite, &alone, library.as_ref(), "lawful-alone"));
    // Our libraries need a process manager, so these scenarios do not apply to them.
    for result in judge(&suite, &alone, own(dialect), "") {
        assert_eq!(result.verdict, Verdict::NotApplicable, "{result:?}");
        assert!(result.reason.unwrap_or_default().contains("the library lacks alone: when probed"));
    }
}

/// RFC 13: a library SHOULD provide all functions. A scenario that calls a missing function does not apply.
#[rstest]
#[case(Dialect::Pmi1, LIBRARY_WITH_FEWER_FUNCTIONS, "PMI_Publish_name", &["library/object/file[all-functions]",
"library/object/file[optional-functions]"])]
#[case(Dialect::Pmi2, PMI2_LIBRARY_WITH_FEWER_FUNCTIONS, "PMI2_Job_Disconnect", &["pmi2/library/object/functions"])]
fn missing_functions_are_reported_once(
    #[case] dialect: Dialect,
    #[case] library: &str,
    #[case] lacks: &str,
    #[case] report: &[&str],
) {
    let suite = pmi_runner::suite::embedded().unwrap();
    let results = judge(&suite, &one_of_each(&all(&suite, dialect)), library.as_ref(), "");
    let why = format!("the library has no function {lacks}");
    assert!(results.iter().any(|r| r.reason.as_ref() == Some(&why)));
    let found: Vec<&str> =
        results.iter().filter(|r| !r.findings.is_empty()).map(|r| r.scenario.as_str()).collect();
    assert_eq!(found, report);
    let applies = results.iter().filter(|r| r.findings.is_empty() && r.verdict != Verdict::NotApplicable);
    clean(&applies.cloned().collect::<Vec<_>>());
}

/// RFC 13: a library SHOULD implement the wire protocol. A library with a different protocol cannot be initialized without its manager.
#[test]
fn library_without_its_manager_is_not_judged() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let all = one_of_each(&all(&suite, Dialect::Pmi1));
    let results = judge(&suite, &all, FAULTY_LIBRARY.as_ref(), "lawful-foreign");
    let found: Vec<String> = results.iter().filter(|r| !r.findings.is_empty()).map(red).collect();
    assert_eq!(found, ["library/init/asks-first Warn: rfc13.api.wire"]);
    let unjudged: BTreeSet<_> =
        results.iter().filter(|r| r.verdict == Verdict::Unjudged).map(|r| r.reason.clone()).collect();
    assert_eq!(unjudged.len(), 1, "{unjudged:?}");
    let why = unjudged.into_iter().flatten().next().unwrap();
    assert!(why.contains("PMI_FD") && why.contains("PMI_FAIL") && why.contains("--server"), "{why}");
    assert!(results.iter().all(|r| r.verdict != Verdict::NotApplicable));
    assert!(
        results.iter().any(|r| r.scenario == "library/object/file[soname]" && r.verdict == Verdict::Pass)
    );
    // `serve` is not the library's own process manager, so the library cannot be judged under `serve` either.
    let results = under_serve(&suite, &all, FAULTY_LIBRARY.as_ref(), "lawful-foreign");
    assert!(results.iter().all(|r| r.findings.is_empty()));
    let fails = |r: &&ScenarioResult| r.reason.as_ref().is_some_and(|why| why.contains("fails under"));
    assert!(results.iter().filter(fails).all(|r| r.verdict == Verdict::Unjudged));
    assert!(results.iter().any(|r| fails(&r)));
}

/// The arguments that make our own server start the ranks without a connection to the server.
const WITHOUT_FD: &str = "serve -n {ranks} env -u PMI_FD {agent}";

/// A library whose processes do not find their process manager breaks no requirement, because each process is then a separate job.
#[rstest]
#[case::uses_another_manager(
    "lawful-other-manager",
    "serve -n {ranks} {agent}",
    "PMI_Barrier returns on rank 0 before the other rank has called it, and the library sends nothing on PMI_FD"
)]
#[case::rank_0_of_1("lawful-alone", WITHOUT_FD, "each of the 2 processes is rank 0 of 1")]
fn singletons_under_a_manager_are_not_judged(
    #[case] fault: &str,
    #[case] server: &str,
    #[case] evidence: &str,
) {
    let suite = pmi_runner::suite::embedded().unwrap();
    let server = format!("{} {server}", env!("CARGO_BIN_EXE_pmi-conform"));
    let manager = Some(Box::new(Implementation::from_argument(&server).unwrap()));
    let all = one_of_each(&all(&suite, Dialect::Pmi1));
    let results = judge_under(&suite, &all, FAULTY_LIBRARY.as_ref(), fault, manager);
    let found: Vec<String> = results.iter().filter(|r| !r.findings.is_empty()).map(red).collect();
    assert_eq!(found, Vec::<String>::new());
    let unjudged = results.iter().filter(|r| r.verdict == Verdict::Unjudged);
    let why: BTreeSet<_> = unjudged.map(|r| r.reason.clone().unwrap()).collect();
    assert_eq!(why.len(), 1, "{why:?}");
    assert!(why.first().unwrap().contains(evidence), "{why:?}");
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_pmi-conform"));
    doctor.args(["doctor", "--library", FAULTY_LIBRARY, "--server", &server]);
    let out = doctor.env("LIBRARY_FAULT", fault).env("GOOD_LIBRARY", own(Dialect::Pmi1)).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.code() == Some(1) && text.contains(evidence), "{text}");
}

/// `--server` already names the process manager, so the advice names the option with which the process manager offers the wire protocol.
#[test]
fn suggests_the_option_that_avoids_singletons() {
    let folder = tempfile::tempdir().unwrap();
    let srun = folder.path().join("srun");
    let serve = format!("{} serve", env!("CARGO_BIN_EXE_pmi-conform"));
    std::fs::write(&srun, format!("#!/bin/sh\nexec {serve} \"$1\" \"$2\" env -u PMI_FD \"$3\"\n")).unwrap();
    std::fs::set_permissions(&srun, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = format!("{} -n {{ranks}} {{agent}}", srun.display());
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_pmi-conform"));
    doctor.args(["doctor", "--library", FAULTY_LIBRARY, "--server", &server]);
    let library =
        [("LIBRARY_FAULT", "lawful-alone".as_ref()), ("GOOD_LIBRARY", own(Dialect::Pmi1).as_os_str())];
    let out = doctor.envs(library).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("pass --mpi=pmi2 to srun to enable the wire protocol"), "{text}");
    assert!(!text.contains("with --server"), "{text}");
}

/// Formats a scenario, its verdict, and the requirements that its findings cite.
fn red(result: &ScenarioResult) -> String {
    let cited: Vec<&str> = result.findings.iter().map(|f| f.finding.requirement.as_str()).collect();
    format!("{} {:?}: {}", result.scenario, result.verdict, cited.join(" "))
}

#[rstest]
#[case::without_its_manager("lawful-foreign", None, 1, "fails", Some("no manager of this implementation"))]
#[case::under_another_manager(
    "lawful-foreign",
    Some("serve"),
    1,
    "fails",
    Some("no manager of this implementation")
)]
#[case::under_a_manager("", Some("serve"), 0, "works", None)]
#[case::against_the_harness("", None, 0, "works", None)]
fn doctor_examines_a_library(
    #[case] fault: &str,
    #[case] server: Option<&str>,
    #[case] status: i32,
    #[case] state: &str,
    #[case] printed: Option<&str>,
) {
    let binary = env!("CARGO_BIN_EXE_pmi-conform");
    let mut command = Command::new(binary);
    command.args(["doctor", "--json", "--library", FAULTY_LIBRARY]);
    if let Some(server) = server {
        command.arg("--server").arg(format!("{binary} {server} -n {{ranks}} {{agent}}"));
    }
    command.env("LIBRARY_FAULT", fault).env("GOOD_LIBRARY", own(Dialect::Pmi1));
    let out = command.output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let step = report["steps"].as_array().unwrap().last().unwrap();
    assert_eq!((out.status.code(), step["state"].as_str()), (Some(status), Some(state)), "{report}");
    let seen = step["seen"].as_str().unwrap();
    assert!(seen.contains(printed.unwrap_or_default()), "{report}");
}

#[test]
fn reports_library_crash_under_a_manager() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let results =
        under_serve(&suite, &testing(&suite, &["rfc13.api.get-size"]), CRASHING_LIBRARY.as_ref(), "");
    assert!(
        results.iter().all(|r| r.verdict == Verdict::Crashed),
        "{:?}",
        results.iter().map(red).collect::<Vec<_>>()
    );
    let seen: BTreeSet<&str> =
        results.iter().flat_map(|r| &r.findings).map(|f| f.finding.seen.as_str()).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["the library, in PMI_Init, died of signal 11"]);
}

/// Hydra kills the other ranks as soon as the connection of the dying rank closes.
#[test]
#[ignore = "needs PMI_CONFORM_PEERS, a folder made by ci/install-peers"]
fn exits_caused_by_a_crash_are_not_reported() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let mut barrier = testing(&suite, &["rfc13.barrier.all-in-before-any-out"]);
    barrier.retain(|scenario| scenario.name == "library/barrier/calls[all-in]");
    let server = format!("{}/mpich-5.0.2/bin/mpiexec.hydra -n {{ranks}} {{agent}}", peers().display());
    let server = Some(Box::new(Implementation::from_argument(&server).unwrap()));
    let results = judge_under(&suite, &barrier, FAULTY_LIBRARY.as_ref(), "last-rank-dies-slowly", server);
    let seen: Vec<&str> = results.iter().flat_map(|r| &r.findings).map(|f| f.finding.seen.as_str()).collect();
    assert_eq!(seen, ["the library, in PMI_Barrier, died of signal 11"]);
}

#[test]
fn library_that_never_leaves_a_barrier_fails() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let barrier = testing(&suite, &["de-facto.api.alone.barrier"]);
    let played = judge(&suite, &barrier, FAULTY_LIBRARY.as_ref(), "alone-barrier-for-ever");
    assert_eq!(played.iter().map(|r| r.verdict).collect::<Vec<_>>(), [Verdict::Fail]);
}

#[test]
fn crash_affects_only_one_scenario() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let selected = testing(&suite, &["rfc13.api.init.spawned", "rfc13.api.soname-zero"]);
    let results = judge(&suite, &selected, CRASHING_LIBRARY.as_ref(), "");
    let of = |name: &str| results.iter().find(|r| r.scenario == name).unwrap();
    assert_eq!(of("library/init/spawned").verdict, Verdict::Crashed);
    let findings = &of("library/init/spawned").findings;
    assert!(findings.iter().any(|f| f.finding.seen.contains("in PMI_Init")), "{findings:?}");
    assert_eq!(of("library/object/file[soname]").verdict, Verdict::Pass);
}

#[test]
fn tolerated_library_failures_are_not_red() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let of = |scenario: &str, fault: &str| {
        let selected: Vec<_> =
            suite.testing(ImplementationKind::Library).filter(|s| s.name == scenario).cloned().collect();
        let result = judge(&suite, &selected, FAULTY_LIBRARY.as_ref(), fault).remove(0);
        let cited =
            result.findings.iter().map(|f| f.finding.requirement.clone()).collect::<Vec<_>>().join(" ");
        (result.verdict, cited)
    };
    // With this fault, the library kills its process with SIGPIPE after any failure. This counts as a crash unless the harness has closed
    // the connection.
    let (verdict, cited) = of("library/replies/closed[get]", "dies-of-a-closed-connection");
    assert_eq!((verdict, cited.as_str()), (Verdict::Note, "de-facto.client.exits"));
    assert_eq!(of("library/replies/fails[get.refused]", "dies-of-a-closed-connection").0, Verdict::Crashed);
    // Spawn is optional for a process manager, so a library that is judged without one need not support spawn either.
    assert_eq!(of("library/spawn/calls[plain]", "lacks-spawn").0, Verdict::NotApplicable);
    // RFC 13 does not require PMI_Init to reject a null pointer, so the finding is only a note.
    assert_eq!(of("library/init/null", "init-null").0, Verdict::Note);
}

#[test]
fn detects_crash_on_invalid_environment() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let selected: Vec<_> = testing(&suite, &["rfc13.api.return-codes"])
        .into_iter()
        .filter(|s| s.name.contains("pmi-rank"))
        .collect();
    let results = judge(&suite, &selected, FAULTY_LIBRARY.as_ref(), "crashes-on-odd-rank");
    let crashed: Vec<&str> =
        results.iter().filter(|r| r.verdict == Verdict::Crashed).map(|r| r.scenario.as_str()).collect();
    assert_eq!(
        crashed,
        ["library/replies/env-pmi-rank[negative]", "library/replies/env-pmi-rank[no-number]"]
    );
}

#[test]
fn judges_library_under_a_process_manager() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let under_serve =
        |scenarios: &[Arc<Scenario>], path: &Path, fault: &str| under_serve(&suite, scenarios, path, fault);
    for (dialect, least) in [(Dialect::Pmi1, 65), (Dialect::Pmi2, 20)] {
        let results = under_serve(&one_of_each(&all(&suite, dialect)), own(dialect), "");
        let passed = results.iter().filter(|r| r.verdict == Verdict::Pass).count();
        let apply = results.iter().filter(|r| r.verdict != Verdict::NotApplicable).count();
        assert!(passed >= least, "{passed}");
        assert_eq!(passed, apply, "{:?}", results.iter().find(|r| !r.findings.is_empty()));
    }
    // These faults have an effect only between ranks, after a process has died, or without a scripted response.
    for (library, fault, id) in [
        (FAULTY_LIBRARY, "barrier-at-once", "rfc13.barrier.all-in-before-any-out"),
        (FAULTY_LIBRARY, "put-second-lost", "rfc13.put.visible-after-barrier"),
        (FAULTY_LIBRARY, "abort-mute", "rfc13.abort.stderr"),
        (FAULTY_LIBRARY, "commit-is-a-barrier", "rfc13.api.kvs-commit.local"),
        (FAULTY_LIBRARY, "get-short", "rfc13.api.kvs-get.errors"),
        (FAULTY_LIBRARY, "get-up-to-equals-sign", "rfc13.get.value"),
        (FAULTY_LIBRARY, "get-wears-out", "rfc13.api.kvs-get"),
        (FAULTY_LIBRARY, "my-name-cut", "rfc13.api.kvs-get-my-name.errors"),
        (FAULTY_LIBRARY, "lookup-up-to-equals-sign", "rfc13.lookup.port"),
        (FAULTY_PMI2_LIBRARY, "get-length-positive", "pmi2.common.api.kvs-get.length"),
        (FAULTY_PMI2_LIBRARY, "get-up-to-256", "pmi2.common.api.kvs-get"),
        (FAULTY_PMI2_LIBRARY, "get-misses-are-empty", "pmi2.common.api.kvs-get.miss"),
        (FAULTY_PMI2_LIBRARY, "buffers-ignored", "pmi2.common.api.buffers"),
        (FAULTY_PMI2_LIBRARY, "abort-returns", "pmi2.common.api.abort"),
    ] {
        let results = under_serve(&testing(&suite, &[id]), library.as_ref(), fault);
        assert!(results.iter().flat_map(|r| &r.findings).any(|f| f.finding.requirement == id), "{fault}");
    }
}

/// A process manager selected with `--server` does not vary its responses.
#[test]
fn variations_do_not_apply_under_a_process_manager() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let is_varied = |s: &&Arc<Scenario>| s.name == "library/lawful[bytewise]";
    let selected: Vec<_> = suite.testing(ImplementationKind::Library).filter(is_varied).cloned().collect();
    let results = under_serve(&suite, &selected, own(Dialect::Pmi1), "");
    assert_eq!(results.iter().map(|r| r.verdict).collect::<Vec<_>>(), [Verdict::NotApplicable]);
}

/// A scenario that expects all ranks on one node does not apply if a launcher spreads them.
#[test]
fn one_node_scenario_requires_ranks_on_one_node() {
    let suite = pmi_runner::suite::embedded().unwrap();
    let binary = env!("CARGO_BIN_EXE_pmi-conform");
    let spread = r#"sh -c 'SLURMD_NODENAME=node-$((PMI_RANK / 2)) exec "$0"'"#;
    let server = format!("{binary} serve -n {{ranks}} {spread} {{agent}}");
    let names = [
        "library/clique/mapping[one-node]",
        "library/clique/mapping[alone]",
        "library/exchange/puts[all-to-all]",
    ];
    let selected: Vec<_> =
        suite.testing(ImplementationKind::Library).filter(|s| names.contains(&&*s.name)).cloned().collect();
    let server = Some(Box::new(Implementation::from_argument(&server).unwrap()));
    let results = judge_under(&suite, &selected, own(Dialect::Pmi1), "", server);
    let of = |name: &str| results.iter().find(|r| r.scenario == name).unwrap();
    assert_eq!(of("library/clique/mapping[one-node]").verdict, Verdict::NotApplicable);
    let why = of("library/clique/mapping[one-node]").reason.as_deref();
    assert_eq!(why, Some("the process manager placed 3 processes on 2 nodes (node-0, node-1)"));
    for name in ["library/clique/mapping[alone]", "library/exchange/puts[all-to-all]"] {
        assert_eq!(of(name).verdict, Verdict::Pass, "{}", red(of(name)));
    }
}

fn assert_program_output(command: &mut Command, libraries: &Path) {
    // Put our own libraries first in the loader's path, because the loader would otherwise find the system's libraries.
    LazyLock::force(&OWN);
    let path = std::env::join_paths([folder().as_path(), libraries]).unwrap();
    let out = command.env("LD_LIBRARY_PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let all: Vec<String> = (0..3).map(|rank| format!("rank {rank} of 3, 3 here, spawned 0")).collect();
    assert_eq!(lines, all, "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success());
}

#[test]
fn c_program_runs_under_serve() {
    let serve = ["serve", "-n", "3"];
    assert_program_output(
        Command::new(env!("CARGO_BIN_EXE_pmi-conform")).args(serve).arg(LIBRARY_PROGRAM),
        &folder(),
    );
    let serve = ["serve", "-n", "3"];
    assert_program_output(
        Command::new(env!("CARGO_BIN_EXE_pmi-conform")).args(serve).arg(PMI2_LIBRARY_PROGRAM),
        &folder(),
    );
}

/// Judges a program with our own libraries. Returns the exit status, and each scenario that is not green, with the requirements that its
/// findings cite.
fn judge_program(program: &str, name: &str, more: &[&str]) -> (Option<i32>, Vec<String>) {
    LazyLock::force(&OWN);
    let log = folder().join(format!("{name}.ndjson"));
    let out = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(["--client", program, "--report", &format!("ndjson={}", log.display())])
        .args(more)
        .env("LD_LIBRARY_PATH", folder())
        .output()
        .unwrap();
    let lines = std::fs::read_to_string(log).unwrap();
    let results = lines.lines().filter_map(|line| serde_json::from_str::<ScenarioResult>(line).ok());
    let red = results.filter(|result| !result.findings.is_empty()).map(|result| {
        let cited: Vec<&str> = result.findings.iter().map(|f| f.finding.requirement.as_str()).collect();
        format!("{}: {}", result.scenario, cited.join(" "))
    });
    (out.status.code(), red.collect())
}

#[test]
fn program_that_offers_version_2_is_judged_in_pmi2() {
    let (status, red) = judge_program(PMI2_LIBRARY_PROGRAM, "program", &[]);
    assert_eq!((status, red), (Some(0), Vec::new()));
    // This program sends PMI-2 frames regardless of the response to its offer.
    let (status, red) = judge_program(PMI2_CLIENT, "client", &["--filter", "pmi2/client/refused/init"]);
    assert_eq!(status, Some(1));
    let cited = |line: &String| match line.contains("[lower]") {
        true => line.ends_with(": rfc13.init.highest-mutual"),
        false => line.contains("pmi2.common.first-line"),
    };
    assert!(red.len() == 3 && red.iter().all(cited), "{red:?}");
}

#[test]
#[ignore = "needs PMI_CONFORM_PEERS"]
fn c_program_runs_under_real_managers() {
    let mut tried = 0;
    for peer in std::fs::read_dir(peers()).unwrap().flatten() {
        let mpiexec = peer.path().join("bin/mpiexec.hydra");
        if mpiexec.exists() {
            tried += 1;
            // Intel's mpiexec.hydra finds its own libraries only through LD_LIBRARY_PATH.
            assert_program_output(
                Command::new(mpiexec).args(["-n", "3"]).arg(LIBRARY_PROGRAM),
                &peer.path().join("lib"),
            );
        }
    }
    assert!(tried > 0, "no peer has an mpiexec.hydra");
    // Slurm's mpi/pmi2 also serves PMI-1. This part runs only if there is a Slurm cluster.
    let cluster = Command::new("srun").args(["-n", "1", "true"]).stderr(Stdio::null()).status();
    if cluster.is_ok_and(|status| status.success()) {
        let srun = ["--mpi=pmi2", "--overcommit", "-n", "3"];
        assert_program_output(Command::new("srun").args(srun).arg(LIBRARY_PROGRAM), &folder());
    }
}

/// A library rejects an unknown fault or variation. Otherwise, a test that misspells a name would judge a correct library.
#[rstest]
#[case(FAULTY_LIBRARY, LAWFUL, None)]
#[case(FAULTY_LIBRARY, "", None)]
#[case(FAULTY_LIBRARY, "lawful-put-late,lawful-slo", Some("lawful-slo"))]
#[case(FAULTY_LIBRARY, "get-overruns", Some("get-overruns"))]
#[case(FAULTY_PMI2_LIBRARY, PMI2_LAWFUL, None)]
#[case(FAULTY_PMI2_LIBRARY, "get-overrun", Some("get-overrun"))]
fn unknown_library_fault_aborts_the_process(
    #[case] library: &str,
    #[case] faults: &str,
    #[case] unknown: Option<&str>,
) {
    let out = Command::new("/bin/true").env("LD_PRELOAD", library).env("LIBRARY_FAULT", faults).output();
    let out = out.unwrap();
    let expected = unknown.map(|name| format!("LIBRARY_FAULT: this library has no fault {name}\n"));
    assert_eq!(out.status.signal(), unknown.map(|_| Signal::ABORT.as_raw()), "{faults}");
    assert_eq!(String::from_utf8_lossy(&out.stderr), expected.unwrap_or_default());
}

fn fuzz(folder: &Path, dialect: Dialect, library: &str, fault: &str, more: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(["fuzz", "--library", library])
        .args(more)
        .env("LIBRARY_FAULT", fault)
        .env("GOOD_LIBRARY", own(dialect))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[rstest]
#[case(Dialect::Pmi1, FAULTY_LIBRARY, "get-overrun", "30", "rule--library--rfc13.api.kvs-get--")]
#[case(Dialect::Pmi1, FAULTY_LIBRARY, "get-fits", "30", "rule--library--rfc13.api.kvs-get--")]
#[case(Dialect::Pmi1, FAULTY_LIBRARY, "get-second-equals", "300", "rule--library--rfc13.api.kvs-get--")]
#[case(Dialect::Pmi2, FAULTY_PMI2_LIBRARY, "put-semicolon-last", "100", "crash--library--SIGABRT--")]
#[case(Dialect::Pmi2, FAULTY_PMI2_LIBRARY, "array-behind", "40", "rule--library--pmi2.common.api.buffers--")]
fn campaign_finds_and_reproduces_library_fault(
    #[case] dialect: Dialect,
    #[case] library: &str,
    #[case] fault: &str,
    #[case] sessions: &str,
    #[case] wanted: &str,
) {
    let scratch = tempfile::tempdir().unwrap();
    let fuzz = |fault: &str, more: &[&str]| fuzz(scratch.path(), dialect, library, fault, more);
    let (status, text) = fuzz(fault, &["--seed", "1", "--sessions", sessions]);
    assert_eq!(status, Some(1), "{text}");
    let found = std::fs::read_dir(scratch.path().join("pmi-conform-fuzz")).unwrap();
    let names: Vec<String> = found.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    let bucket = names.iter().find(|name| name.starts_with(wanted));
    let bucket = bucket.unwrap_or_else(|| panic!("{text}"));
    let folder = format!("pmi-conform-fuzz/{bucket}");
    for (fault, status, times) in [(fault, 1, 5), ("", 0, 0)] {
        let (seen, text) = fuzz(fault, &["--replay", &folder]);
        assert_eq!(
            (seen, text.ends_with(&format!("{bucket}: {times} of 5\n"))),
            (Some(status), true),
            "{text}"
        );
    }
}

#[rstest]
#[case(Dialect::Pmi1, FAULTY_LIBRARY)]
#[case(Dialect::Pmi2, FAULTY_PMI2_LIBRARY)]
fn campaign_finds_nothing_in_a_correct_library(#[case] dialect: Dialect, #[case] library: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let campaign = ["--seed", "1", "--sessions", "200"];
    let (status, text) = fuzz(scratch.path(), dialect, library, "", &campaign);
    assert_eq!(status, Some(0), "{text}");
}
