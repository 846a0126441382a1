//! Tests of the command as users see it, with only the built-in reference.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Ran, conform, results};
use pmi_test_programs::side_by_side;
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

/// A scenario that fails, because it expects a value for a key that was not put.
const WRONG: &str = "\
# A get returns the value that was put.
requires rfc13.get.value
ranks 2

use joined
0  send    cmd=put kvsname=$kvs key=a value=1
0  expect  cmd=put_result rc=ok
use barrier
1  send    cmd=get kvsname=$kvs key=a
1  expect  cmd=get_result rc=ok value=2
use finalized
";

const RIGHT: &str = "\
# A process group has a universe size.
requires rfc13.universe.size

use joined
0  send    cmd=get_universe_size
0  expect[rfc13.abnf.s-universe] cmd=universe_size rc=ok size=<uint 1..>
use finalized
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn here(args: &[&str]) -> Ran {
    conform(root(), args)
}

/// Compares text with a snapshot, after replacing all times with the same word.
macro_rules! snapshot {
    ($name:expr, $text:expr) => {
        insta::with_settings!({ filters => vec![
            (r"\b\d+\.\d+(ms|s)\b", "[TIME]"),
            (r"/\S*/pmi-conform-\w+/", "[SCRATCH]/"),
        ]}, { insta::assert_snapshot!($name, $text) })
    };
}

#[rstest]
#[case("--help")]
#[case("-h")]
#[case("doctor --help")]
#[case("interop --help")]
#[case("serve --help")]
#[case("explain --help")]
#[case("fuzz --help")]
#[case("report --help")]
#[case("report compare --help")]
#[case("scenario --help")]
#[case("scenario list --help")]
#[case("suite --help")]
#[case("suite coverage --help")]
fn prints_help_for_each_command(#[case] command: &str) {
    let ran = here(&command.split(' ').collect::<Vec<_>>());
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    snapshot!(format!("help_{}", command.replace(' ', "_").trim_matches('-')), ran.out);
}

/// The short help fits on one screen of 40 lines, and the full help on two.
#[test]
fn short_help_fits_one_screen_and_full_help_fits_two() {
    for (option, most) in [("-h", 40), ("--help", 80)] {
        let lines = here(&[option]).out.lines().count();
        assert!(lines <= most, "{option}: {lines} lines");
    }
}

#[rstest]
#[case(&["judge", "run.ndjson"], "pmi-conform report judge")]
#[case(&["mutants", "--list"], "pmi-conform suite mutants")]
#[case(&["versions"], "pmi-conform doctor --versions")]
#[case(&["--memory", "--list"], "pmi-conform scenario list")]
fn error_names_replacement_of_former_command(#[case] args: &[&str], #[case] new: &str) {
    let ran = here(args);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains(&format!("renamed; use `{new}`")), "{}", ran.err);
}

#[test]
fn reference_conforms_in_memory() {
    let ran = here(&["--memory", "-q"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains(" 0 failed (MUST)") && ran.out.contains(" 0 could not judge"), "{}", ran.out);
    assert!(ran.out.ends_with("exit status 0: conforms\n"), "{}", ran.out);
}

#[test]
fn reports_failure_of_an_in_memory_run() {
    let folder = folder(&[("right.pmi", RIGHT), ("wrong.pmi", WRONG)]);
    let ran = conform(folder.path(), &["--memory", "."]);
    assert_eq!(ran.status, 1);
    snapshot!("failure_in_memory", ran.whole());
}

#[test]
fn reports_failure_of_a_run_with_real_processes() {
    let folder = folder(&[("wrong.pmi", WRONG)]);
    let ran = conform(folder.path(), &["wrong.pmi"]);
    assert_eq!(ran.status, 1);
    // The ranks run concurrently, so the order of their events may vary. The snapshot therefore omits the transcript.
    let transcript = ran.out.find("  last events").unwrap();
    let after = ran.out.find("  play it again").unwrap();
    let steady = format!("{}...\n{}", &ran.out[..transcript], &ran.out[after..]);
    snapshot!("failure_of_processes", steady);
    assert!(ran.out.contains("1 <- cmd=get_result rc=0 value=1\\n"), "{}", ran.out);
}

#[test]
fn suggested_replay_command_repeats_the_failure() {
    let folder = folder(&[("right.pmi", RIGHT), ("wrong.pmi", WRONG)]);
    let again = |options: &[&str]| {
        let ran = conform(folder.path(), &[&["--memory", "."], options].concat());
        ran.out.lines().find_map(|line| line.trim().strip_prefix("play it again: ")).unwrap().to_owned()
    };
    assert_eq!(again(&[]), "pmi-conform . --memory --filter '=wrong'");
    fs::write(folder.path().join("d.toml"), "implementation = \"x\"\n").unwrap();
    let with_file = "pmi-conform . --memory --deviations d.toml --filter '=wrong'";
    assert_eq!(again(&["--deviations", "d.toml"]), with_file);
    let ran = conform(folder.path(), &[".", "--memory", "--filter", "=wrong"]);
    assert_eq!(ran.status, 1);
    assert!(ran.out.contains("1 scenario against"), "{}", ran.out);
}

#[rstest]
#[case("wrong_key", "requires rfc13.get.value\nuse joined\n0  expect  cmd=get_result rc=ok valeu=1\n")]
#[case("undefined_name", "requires rfc13.get.value\nuse joined\n0  send    cmd=get kvsname=$kvs key=$kye\n")]
#[case("unknown_requirement", "requires rfc13.get.valu\nuse joined\nuse finalized\n")]
#[case("unknown_fragment", "requires rfc13.get.value\nuse joind\n")]
fn reports_mistakes_in_scenarios(#[case] name: &str, #[case] text: &str) {
    let folder = folder(&[("mistake.pmi", &format!("# It is wrong.\n{text}"))]);
    let ran = conform(folder.path(), &["--memory", "mistake.pmi"]);
    assert_eq!(ran.status, 2);
    snapshot!(format!("mistake_{name}"), ran.whole());
    let checked = conform(folder.path(), &["scenario", "check", "mistake.pmi"]);
    assert_eq!((checked.status, checked.err), (2, ran.err));
}

#[rstest]
#[case("unknown_launcher", &["--server", "my-pm"], 2)]
#[case("unknown_placeholder", &["--server", "my-pm {rank} {agent}"], 2)]
#[case("unknown_profile", &["--server", "@nobody"], 2)]
#[case("unknown_operation", &["--memory", "--lacks", "spwan"], 2)]
#[case("bad_shard", &["--shard", "4/3"], 2)]
#[case("bad_timeout", &["--timeout", "soon"], 2)]
#[case("bad_report", &["--report", "pdf"], 2)]
#[case("server_in_memory", &["--memory", "--server", "srun"], 2)]
#[case("no_such_file", &["nowhere.pmi"], 2)]
#[case("no_such_command", &["expalin"], 2)]
#[case("unknown_requirement", &["explain", "rfc13.put.uniqe"], 2)]
#[case("unknown_scenario", &["scenario", "show", "kvs/get-of-nothin"], 2)]
#[case("no_launcher", &["--server", "./nowhere/mpiexec", "-q", "-f", "=group/facts[appnum]"], 2)]
#[case("launcher_in_no_path", &["--server", "no-such-pm-here -n {ranks} {agent}"], 2)]
#[case("launcher_not_executable", &["--server", "/etc/passwd {ranks} {agent}"], 2)]
#[case("no_ranks", &["--server", "true {agent}"], 2)]
#[case("no_library", &["--library", "/etc/passwd"], 2)]
#[case("no_report_folder", &["--memory", "--report", "junit=nowhere/report.xml"], 2)]
#[case("two_reports_in_a_file", &["--memory", "--report", "json=same", "--report", "tap=same"], 2)]
#[case("draft_over_a_file", &["--memory", "--draft-deviations", "/etc/passwd"], 2)]
#[case("library_and_client", &["--library", "libpmi.so.0", "--client", "true"], 2)]
#[case("no_such_requirement", &["--memory", "--requirement", "rfc13.put.uniqe"], 2)]
#[case("nothing_selected", &["--memory", "--filter", "no-such-scenario"], 2)]
#[case("one_filter_of_two", &["--memory", "--filter", "barrier/", "--filter", "inti/"], 2)]
#[case("filter_of_another_side", &["--memory", "--filter", "client/plain"], 2)]
#[case("filter_without_pmi2", &["--memory", "--dialect", "pmi-2", "--filter", "kvs/*"], 2)]
#[case("filter_of_another_dialect", &["--server", "sh {ranks} {agent}", "--filter", "pmi2/init/*"], 2)]
#[case("requirement_of_another_side", &["--memory", "--requirement", "rfc13.api.wire"], 2)]
#[case("scenario_as_a_file", &["kvs/exchange[own-key]"], 2)]
#[case("scenarios_as_a_folder", &["barrier/"], 2)]
#[case("program_as_a_scenario", &["/bin/true"], 2)]
#[case("program_as_a_library", &["--library", "/bin/true"], 2)]
#[case("client_not_executable", &["--client", "/etc/passwd"], 2)]
#[case("client_in_no_path", &["--client", "no-such-program-here"], 2)]
#[case("launcher_as_a_client", &["--client", "sh/mpiexec -n 2 ./a.out"], 2)]
#[case("launcher_with_a_number", &["--server", "./nowhere/mpiexec -n 2"], 2)]
#[case("launcher_with_ranks", &["--server", "srun -n {ranks}"], 2)]
#[case("template_without_agent", &["--server", "my-pm -n {ranks}"], 2)]
#[case("unknown_profile_file", &["--server", "@nobody.toml"], 2)]
#[case("part_of_a_profile", &["--server", "@hydra"], 2)]
#[case("nothing_applies", &["--lacks", "names", "-q", "-f", "=names/found[own-name]"], 4)]
fn rejects_invalid_options(#[case] name: &str, #[case] args: &[&str], #[case] status: i32) {
    let ran = conform(TempDir::new().unwrap().path(), args);
    assert_eq!(ran.status, status, "{}", ran.whole());
    snapshot!(format!("cannot_{name}"), ran.whole());
}

/// Every report contains the number of steps that were not judged; -v, JSON and HTML also list the steps.
#[test]
fn lists_steps_that_were_not_judged() {
    let early = "# The server closes the connection.\nrequires rfc13.get.value\n\nuse joined\n\
                 0  send    cmd=get_universe_size\n0  expect  <closes>\n0  send    cmd=get_appnum\n\
                 0  expect  cmd=appnum rc=ok appnum=<uint>\nuse finalized\n";
    let folder = folder(&[("early.pmi", early)]);
    let args =
        ["--memory", "early.pmi", "--report", "json=j", "--report", "html=h", "--report", "ndjson=log"];
    let ran = conform(folder.path(), &args);
    assert!(
        ran.out.contains("not judged: 3 later steps\n") && !ran.out.contains("line 7"),
        "{}",
        ran.whole()
    );
    let verbose = conform(folder.path(), &["--memory", "early.pmi", "-v"]).out;
    let list = "    line 7: 0  send    cmd=get_appnum\n    line 8: 0  expect  cmd=appnum rc=ok appnum=<uint>\n    line 9: use finalized\n";
    assert!(verbose.contains(list), "{verbose}");
    let page = fs::read_to_string(folder.path().join("h")).unwrap();
    assert!(page.contains("line 7: 0  send    cmd=get_appnum<br>"), "{page}");
    let json = fs::read_to_string(folder.path().join("j")).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    let steps = json["results"][0]["unreached_steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[2]["step"]), (3, &"use finalized".into()));
    let again = conform(folder.path(), &["report", "judge", "log", "--format", "json"]).out;
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(&again["results"][0]["unreached_steps"], &json["results"][0]["unreached_steps"]);
}

#[test]
fn rejects_library_without_functions_of_pmi() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).expect("a shared C library");
    for args in [&["--library", libc][..], &["doctor", "--library", libc]] {
        let ran = conform(Path::new("."), args);
        assert_eq!(ran.status, 2, "{}", ran.whole());
        assert!(ran.err.contains("exports no function of PMI"), "{}", ran.whole());
    }
}

#[test]
fn applies_known_deviations_and_drafts_new_ones() {
    let entry = |requirement: &str, scenario: &str, symptom: &str| {
        format!(
            "implementation = \"the reference\"\n\n[[deviation]]\nrequirement = \"{requirement}\"\n\
             scenarios = [\"{scenario}\"]\nsymptom = \"{symptom}\"\nreason = \"for this test\"\n"
        )
    };
    let folder = folder(&[
        ("right.pmi", RIGHT),
        ("wrong.pmi", WRONG),
        ("recorded.toml", &entry("rfc13.get.value", "wrong", "value=1")),
        ("other-symptom.toml", &entry("rfc13.get.value", "wrong", "value=3")),
        ("stale.toml", &entry("rfc13.get.value", "right", "")),
        ("no-requirement.toml", &entry("rfc13.get.valeu", "wrong", "")),
        ("no-scenario.toml", &entry("rfc13.get.value", "gone", "")),
        ("misspelt.toml", "implementation = \"x\"\n[[deviation]]\nrequirment = \"a\"\n"),
    ]);
    for (file, path, status) in [
        ("recorded.toml", ".", 0),
        ("other-symptom.toml", ".", 1),
        ("stale.toml", "right.pmi", 1),
        ("no-requirement.toml", "right.pmi", 2),
        ("no-scenario.toml", "right.pmi", 2),
        ("misspelt.toml", ".", 2),
        ("missing.toml", ".", 2),
    ] {
        let ran = conform(folder.path(), &["--memory", "-q", "--deviations", file, path]);
        assert_eq!(ran.status, status, "{file}: {}", ran.whole());
        snapshot!(format!("deviations_{}", file.trim_end_matches(".toml")), ran.whole());
    }

    // A pattern that also matches scenarios which are not played does not make its entry stale.
    fs::write(folder.path().join("part.toml"), entry("rfc13.get.value", "*r*", "")).unwrap();
    let ran = conform(folder.path(), &["--memory", "-q", "--deviations", "part.toml", "right.pmi"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());

    // The suggested command keeps the deviations file: without it, a recorded finding would be red.
    let ran = conform(folder.path(), &["--memory", "--deviations", "other-symptom.toml", "wrong.pmi"]);
    let again =
        "play it again: pmi-conform wrong.pmi --memory --deviations other-symptom.toml --filter '=wrong'";
    assert!(ran.out.contains(again), "{}", ran.out);

    // For a sensitive deviation, reports contain only the symptom.
    let text = entry("rfc13.get.value", "wrong", "value=1").replace("reason", "sensitive = true\nreason");
    fs::write(folder.path().join("sensitive.toml"), text).unwrap();
    let args = ["--memory", "-v", "--deviations", "sensitive.toml", "--report", "ndjson=log", "wrong.pmi"];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    for text in [&ran.whole(), &log] {
        assert!(text.contains("value=1") && !text.contains("cmd=put"), "{text}");
    }

    // A draft covers the findings and is valid as written; only the reasons are missing.
    let ran = conform(folder.path(), &["--memory", "--repeat", "2", "--draft-deviations", "draft.toml", "."]);
    assert_eq!(ran.status, 1);
    assert!(ran.out.contains("red in 2 of 2 attempts"), "{}", ran.out);
    assert!(ran.out.contains("play it again: "), "{}", ran.out);
    assert_eq!(ran.err, "deviations drafted in draft.toml: 1 entry; add its reason\n");
    snapshot!("draft", fs::read_to_string(folder.path().join("draft.toml")).unwrap());
    let ran = conform(folder.path(), &["--memory", "-q", "--deviations", "draft.toml", "."]);
    assert_eq!(
        (ran.status, ran.err.as_str()),
        (0, "warning: draft.toml: 1 entry has no reason; add its reason\n")
    );
    // A draft must not overwrite an existing file.
    let both = ["--memory", "--deviations", "draft.toml", "--draft-deviations", "draft.toml", "."];
    assert_eq!(conform(folder.path(), &both).status, 2);
}

/// The server has a fault in its first launch only.
#[test]
fn intermittent_finding_is_flaky_and_can_be_recorded() {
    let folder = folder(&[
        ("wrong.pmi", &WRONG.replace("value=2", "value=1")),
        (
            "pm",
            "#!/bin/sh\nmkdir once 2>/dev/null && set -- --fault get-missing-rc-zero \"$@\"\nexec pmi-conform serve \"$@\"\n",
        ),
        (
            "missing.pmi",
            "# A get of a key that no process has put fails.\nrequires rfc13.get.value\n\nuse joined\n0  send    cmd=get kvsname=$kvs key=nothing\n0  expect  cmd=get_result rc=fail\nuse finalized\n",
        ),
    ]);
    let binary = Path::new(env!("CARGO_BIN_EXE_pmi-conform")).parent().unwrap();
    let path = format!("PATH={}:{}", binary.display(), std::env::var("PATH").unwrap());
    let server = format!("env {path} sh ./pm -n {{ranks}} {{agent}}");
    let play = |more: &[&str]| {
        let _ = fs::remove_dir(folder.path().join("once"));
        conform(folder.path(), &[&["--server", &server, "missing.pmi", "-j", "1"], more].concat())
    };
    assert_eq!(play(&["-q"]).status, 1);
    let ran = play(&["--retries", "2", "--report", "ndjson=log", "--report", "junit=junit.xml"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("FLAKY  missing") && ran.out.contains(" 1 flaky"), "{}", ran.out);
    assert!(ran.out.contains("red in 1 of 2 attempts"), "{}", ran.out);
    assert!(ran.out.contains("play it again (red in 1 of 2 attempts, so it may pass): "), "{}", ran.out);
    assert!(fs::read_to_string(folder.path().join("junit.xml")).unwrap().contains("<flakyFailure"));

    let ran = play(&["--repeat", "3", "-q", "--draft-deviations", "draft.toml"]);
    assert_eq!(ran.status, 1, "the worst attempt must count: {}", ran.whole());
    let draft = fs::read_to_string(folder.path().join("draft.toml")).unwrap();
    assert!(draft.contains("sometimes = true") && draft.contains("from 3 runs"), "{draft}");
    let known = ["-q", "--deviations", "draft.toml"];
    assert_eq!(
        (
            play(&known).status,
            conform(folder.path(), &[&["--server", &server, "missing.pmi"], &known[..]].concat()).status
        ),
        (0, 0)
    );
}

/// Launches on several nodes use a different command. If that command does not work, the command for a single node may still work.
#[test]
fn one_node_scenario_runs_if_two_node_launches_fail() {
    let twice = RIGHT.replace("universe.size\n", "universe.size\nranks 2\nnodes 2\n");
    let folder = folder(&[("z.pmi", RIGHT)]);
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        fs::write(folder.path().join(name).with_extension("pmi"), &twice).unwrap();
    }
    let server = format!("{} serve -n {{ranks}} {{agent}}", env!("CARGO_BIN_EXE_pmi-conform"));
    let args = ["--server", &server, "--server-nodes", "false {ranks} {nodes} {agent}", "."];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 3, "{}", ran.whole());
    assert!(ran.out.contains("1 passed") && ran.out.contains(" 7 could not judge"), "{}", ran.out);
    assert!(ran.out.contains("COULD NOT JUDGE not tried"), "{}", ran.out);
}

#[test]
fn scenario_file_given_twice_is_listed_once() {
    let folder = folder(&[("right.pmi", RIGHT), ("other.pmi", RIGHT)]);
    let ran = conform(folder.path(), &["scenario", "list", "--memory", "right.pmi", "./right.pmi", "."]);
    let names: Vec<&str> = ran.out.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!((ran.status, names), (0, vec!["other", "right"]), "{}", ran.err);
}

#[test]
fn summary_of_empty_run_names_the_protocol() {
    let folder = folder(&[("right.pmi", RIGHT)]);
    let log = conform(folder.path(), &["--memory", "-q", "--report", "ndjson=log", "right.pmi"]);
    assert_eq!(log.status, 0, "{}", log.whole());
    let ran = conform(folder.path(), &["--memory", "--dialect", "pmi-1.1", "--rerun-failed", "log"]);
    assert_eq!(ran.status, 4, "{}", ran.whole());
    assert!(ran.out.contains(", pmi-1.1: 0 scenarios against"), "{}", ran.out);
}

#[test]
fn error_names_the_unwritable_report_file() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    // The function `conform` would judge the log again, which fails for an incomplete log, so this test starts the command directly.
    let args = ["--memory", "-q", "-f", "=kvs/exchange[own-key]", "--report", "ndjson=/dev/full"];
    let ran = Command::new(env!("CARGO_BIN_EXE_pmi-conform")).args(args).output().unwrap();
    let received = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{received}");
    assert!(received.contains("/dev/full: only a part was written"), "{received}");
}

fn listed(args: &[&str]) -> Vec<String> {
    let ran = here(&[&["scenario", "list"], args].concat());
    assert_eq!(ran.status, 0, "{}", ran.whole());
    ran.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
fn selects_scenarios_by_shard_filter_and_requirement() {
    let all = listed(&[]);
    assert!(all.len() >= 100);
    // The suite is ordered by protocol, and within a protocol by chapter.
    let places = ["environment/", "init/", "kvs/", "barrier/", "abort/", "pmi2/init/", "pmi2/abort/"];
    let places = places.map(|folder| all.iter().position(|name| name.starts_with(folder)).unwrap());
    assert!(places.is_sorted() && places[0] == 0, "{places:?}");

    let shards: Vec<_> = ["1/3", "2/3", "3/3"].iter().map(|shard| listed(&["--shard", shard])).collect();
    assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), all.len());
    assert_eq!(shards.iter().flatten().collect::<BTreeSet<_>>(), all.iter().collect());

    assert_eq!(listed(&["-f", "=group/facts[appnum]"]), ["group/facts[appnum]"]);
    assert_eq!(
        listed(&["-f", "in-a-row[one-r", "-f", "=group/facts[appnum]"]),
        ["group/facts[appnum]", "barrier/in-a-row[one-rank]", "pmi2/barrier/in-a-row[one-rank]"]
    );
    assert!(listed(&["-f", "kvs/*"]).iter().all(|name| name.starts_with("kvs/")));
    assert!(listed(&["--requirement", "rfc13.put.unique"]).contains(&"kvs/same-key[twice]".to_owned()));
}

#[test]
fn compares_two_runs() {
    let folder = folder(&[("a.pmi", RIGHT), ("b.pmi", WRONG), ("c.pmi", RIGHT)]);
    for (log, scenario) in [("one", "a.pmi"), ("two", "b.pmi")] {
        conform(folder.path(), &["--memory", "--report", &format!("ndjson={log}"), scenario, "c.pmi"]);
    }
    fs::write(folder.path().join("b.pmi"), WRONG.replace("value=2", "value=1")).unwrap();
    conform(folder.path(), &["--memory", "--report", "ndjson=mended", "b.pmi", "c.pmi"]);
    let same = conform(folder.path(), &["report", "compare", "one", "one"]);
    assert_eq!(same.status, 0, "{}", same.whole());
    assert!(same.out.contains("2 the same, 0 different"), "{}", same.whole());
    // A scenario that was played in only one of the runs is not a difference.
    let apart = conform(folder.path(), &["report", "compare", "-v", "one", "two"]);
    assert_eq!(apart.status, 0, "{}", apart.whole());
    assert!(apart.out.contains("played only before: a\n\nplayed only after: b\n"), "{}", apart.whole());
    for (before, after, any, new) in [("two", "mended", 1, 0), ("mended", "two", 1, 1)] {
        assert_eq!(conform(folder.path(), &["report", "compare", before, after]).status, any);
        assert_eq!(
            conform(folder.path(), &["report", "compare", "--fail-on", "new", before, after]).status,
            new
        );
    }
    let json = conform(folder.path(), &["report", "compare", "--json", "mended", "two"]);
    assert_eq!(json.status, 1, "{}", json.whole());
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["changed"][0]["scenario"], &json["changed"][0]["worse"]), (&"b".into(), &true.into()));
    let none = conform(folder.path(), &["report", "compare", "one", "nowhere"]);
    assert_eq!(none.status, 2, "{}", none.whole());
}

#[test]
fn reruns_failed_scenarios() {
    let also = WRONG.replace("value=2", "value=3");
    let folder = folder(&[("right.pmi", RIGHT), ("wrong.pmi", WRONG), ("wrong-too.pmi", &also)]);
    let ran = conform(folder.path(), &["--memory", "-q", "--report", "ndjson=run.ndjson", "."]);
    assert_eq!(ran.status, 1);
    let ran = conform(folder.path(), &["scenario", "list", "--rerun-failed", "run.ndjson", "."]);
    let names: Vec<_> = ran.out.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(names, ["wrong", "wrong-too"]);

    let args = ["--memory", "-j1", "--max-fail", "1", "--report", "ndjson=cut.ndjson", "."];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 1);
    assert!(!ran.out.contains("wrong-too"), "{}", ran.out);
}

#[test]
fn writes_reports_in_several_formats() {
    let folder = folder(&[("right.pmi", RIGHT), ("wrong.pmi", WRONG)]);
    let formats = ["ndjson", "json", "junit", "tap", "markdown"];
    let specs: Vec<String> = formats.iter().map(|f| format!("--report={f}=run.{f}")).collect();
    let mut args = vec!["--memory", "."];
    args.extend(specs.iter().map(String::as_str));
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 1);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();

    for line in read("run.ndjson").lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
    let json: Value = serde_json::from_str(&read("run.json")).unwrap();
    assert!(json.is_object());
    let junit = quick_junit::Report::deserialize_from_str(&read("run.junit")).unwrap();
    assert_eq!((junit.tests, junit.failures), (2, 1));
    let tap = read("run.tap");
    let results: Vec<_> = tap.lines().filter(|l| l.starts_with("ok ") || l.starts_with("not ok ")).collect();
    assert!(tap.starts_with("TAP version 14\n") && tap.contains("\n1..2\n"), "{tap}");
    assert_eq!(results, ["ok 1 - right", "not ok 2 - wrong"]);
    snapshot!("report_markdown", read("run.markdown"));

    // Reports that are rendered from the log are the same as those that the run wrote.
    for format in formats {
        let again = conform(folder.path(), &["report", "run.ndjson", "--format", format]);
        assert_eq!((again.status, again.err.as_str()), (0, ""));
        assert_eq!(again.out, read(&format!("run.{format}")), "{format}");
    }
    // The index of causes is at the beginning of a rendered report, and at the end of the run's output.
    let again = conform(folder.path(), &["report", "run.ndjson"]);
    let index = |text: &str| {
        let begin = text.find("causes\n").unwrap();
        let end = begin + text[begin..].find("\n\n").unwrap() + 2;
        (begin, text[begin..end].to_owned(), [&text[..begin], &text[end..]].concat())
    };
    let ((first, rendered, rest), (last, shown, same)) = (index(&again.out), index(&ran.out));
    assert_eq!((rendered, rest), (shown, same));
    assert!(
        first < again.out.find("  FAIL  wrong").unwrap() && last > ran.out.find("  FAIL  wrong").unwrap()
    );

    // If a report is written to standard output, nothing else is written there.
    let ran = conform(folder.path(), &["--memory", "--report", "json", "."]);
    serde_json::from_str::<Value>(&ran.out).unwrap();
    assert!(ran.err.contains("1 failed"), "{}", ran.err);
}

fn timeless(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("time_us");
            map.values_mut().for_each(timeless);
        }
        Value::Array(list) => list.iter_mut().for_each(timeless),
        _ => {}
    }
}

/// Returns the log of a run that must be green.
fn written(args: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &[&["-q", "--report", "ndjson=run.ndjson"], args].concat());
    assert_eq!(ran.status, 0, "{}", ran.whole());
    fs::read_to_string(folder.path().join("run.ndjson")).unwrap()
}

fn log(args: &[&str]) -> Vec<Value> {
    let mut lines: Vec<Value> =
        written(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter_mut().for_each(timeless);
    lines
}

#[test]
fn in_memory_runs_are_deterministic() {
    // Replace each time with `|`, because times differ between runs. The rest of the logs must be identical.
    let log = |jobs| {
        let text = written(&["--memory", jobs]);
        let mut parts = text.split("\"time_us\":");
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |all, part| all + "|" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    let (one, two) = (log("-j1"), log("-j2"));
    let differ = one.lines().zip(two.lines()).find(|(one, two)| one != two);
    assert!(one == two, "the logs of two runs in memory differ: {differ:?}");
}

#[test]
fn runs_with_processes_have_reproducible_findings() {
    // Processes run concurrently, so the order of independent events may vary, but the findings must not.
    let found = |args: &[&str]| -> Vec<Value> {
        let mut lines = results(&written(args));
        for line in &mut lines {
            timeless(line);
            let line = line.as_object_mut().unwrap();
            line.remove("last_events");
            // If a rank dies, another process's end may be observed before or after that death, so the recorded exit may vary.
            line.remove("exit");
            for finding in line.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten() {
                finding["finding"].as_object_mut().unwrap().remove("seq");
            }
        }
        lines
    };
    let mut all = found(&["-j4"]);
    let name = |line: &Value| line["scenario"].as_str().unwrap().to_owned();
    // The rows of a table differ only in their values, so only one row of each table is played again.
    let mut tables = BTreeSet::new();
    all.retain(|line| tables.insert(name(line).split('[').next().map(str::to_owned)));
    let filters: Vec<String> = all.iter().map(|line| format!("={}", name(line))).collect();
    let again = filters.iter().flat_map(|filter| ["--filter", filter]);
    assert_eq!(found(&["-j2"].into_iter().chain(again).collect::<Vec<_>>()), all);
}

#[test]
fn prints_completions_for_each_shell() {
    for (shell, mark) in
        [("bash", "_pmi__conform()"), ("zsh", "#compdef pmi-conform"), ("fish", "complete -c")]
    {
        let ran = here(&["completions", shell]);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        assert!(ran.out.contains(mark) && ran.out.contains("draft-deviations"), "{shell}: {}", ran.out);
    }
}

#[test]
fn writes_man_pages() {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &["man", "pages/man1"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let page = fs::read_to_string(folder.path().join("pages/man1/pmi-conform.1")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
    for command in ["serve", "explain", "suite-coverage", "report"] {
        assert!(folder.path().join(format!("pages/man1/pmi-conform-{command}.1")).is_file(), "{command}");
    }
}

#[test]
fn printed_schema_covers_every_log_line_type() {
    let ran = here(&["schema"]);
    let schema: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(schema["$schema"].is_string());
    for kind in ["run", "event", "result", "end"] {
        assert!(ran.out.contains(&format!("\"const\": \"{kind}\"")), "{kind}");
    }
}

#[test]
fn explains_an_operation_in_each_protocol() {
    for word in ["put", "kvs-put", "put_result", "PMI2_KVS_Put"] {
        let ran = here(&["explain", word]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        let named = [
            "PMI-1: put  (RFC 13, put)",
            "PMI-2: kvs-put",
            "kvsname: ",
            "at most keylen_max",
            "kvs-put-response",
        ];
        for text in named {
            assert!(ran.out.contains(text), "{word}: {text} is missing in\n{}", ran.out);
        }
    }
}

#[test]
fn stored_wireshark_plugin_is_current() {
    let stored = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/wireshark/pmi.lua");
    let written = here(&["explain", "wireshark"]).out;
    assert!(
        written == fs::read_to_string(stored).unwrap(),
        "run `pmi-conform explain wireshark >ci/wireshark/pmi.lua`"
    );
}

#[test]
fn explanation_of_a_rule_lists_its_requirements() {
    let ran = here(&["explain", "get.value"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    for id in ["rfc13.get.value: ", "pmi2.common.get.value: "] {
        assert!(ran.out.contains(id), "{}", ran.out);
    }
}

#[test]
fn explains_all_rows_of_a_table() {
    let ran = here(&["explain", "environment/launcher"]);
    for text in [
        "  A launcher starts its processes in the same way",
        "rfc13.env.pmi-rank: ",
        "rfc13.env.pmi-spawned: ",
    ] {
        assert!(ran.out.contains(text), "{}", ran.whole());
    }
    let ran = here(&["explain", "environment/launcher[hundred-descriptors]"]);
    assert!(ran.out.starts_with("environment/launcher[hundred-descriptors]\n"), "{}", ran.whole());
    assert!(!ran.out.contains("rfc13.env.pmi-spawned"), "{}", ran.whole());
}

#[test]
fn shows_a_scenario_in_each_dialect() {
    let ran = here(&["scenario", "show", "--dialect", "pmi-1.1", "kvs/exchange[own-key]"]);
    assert!(
        ran.out.contains("0  send    cmd=put kvsname=$kvs key=addr value=10.0.0.1/4242\n"),
        "{}",
        ran.whole()
    );
    let ran = here(&["scenario", "show", "--dialect", "pmi-2", "kvs/exchange[own-key]"]);
    for text in ["0  send    cmd=kvs-put key=addr value=10.0.0.1/4242\n", "fragment pmi2-joined\n"] {
        assert!(ran.out.contains(text), "{}", ran.whole());
    }
    let ran = here(&["scenario", "show", "--dialect", "pmi-2", "maxes/limits"]);
    assert_eq!(ran.status, 2, "{}", ran.whole());
}

#[rstest]
#[case::row(&["port/strays[junk]", "--dialect", "pmi-1.1"], "let $said = GET<sp>/<sp>HTTP/1.0")]
#[case::last_row(&["port/strays[without-id]", "--dialect", "pmi-1.1"], "port/strays[without-id]\n")]
#[case::table(&["port/strays"], "row junk")]
#[case::fragment(&["fragments/joined"], "use init")]
#[case::unknown_row(&["port/strays[unknown]"], "unknown scenario or fragment port/strays[unknown]")]
fn scenario_show_prints_the_named_row_or_fragment(#[case] args: &[&str], #[case] text: &str) {
    let ran = here(&[&["scenario", "show"], args].concat());
    assert!(ran.whole().contains(text), "{}", ran.whole());
}

#[test]
fn lists_and_explains_requirements() {
    let ran = here(&["explain", "requirements", "--json"]);
    let list: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    for requirement in &list {
        let id = requirement["id"].as_str().unwrap();
        for scenario in requirement["scenarios"].as_array().unwrap() {
            assert!(scenario.as_str().unwrap().contains('/'), "{id}");
        }
    }
    assert_eq!(here(&["explain", "requirements"]).out.lines().count(), list.len());
    let ran = here(&["explain", "rfc13.universe.size"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    snapshot!("explain", ran.out);
}

#[test]
fn suite_has_no_warnings() {
    let ran = here(&["scenario", "check"]);
    assert_eq!(ran.status, 0);
    assert!(ran.out.ends_with(" 0 warnings\n"), "{}", ran.out);
}

#[test]
fn suite_is_formatted() {
    let ran = here(&["scenario", "fmt", "--check", "scenarios"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, ""), "run `pmi-conform scenario fmt scenarios`");
}

#[test]
fn fmt_restores_the_canonical_format() {
    let messy = RIGHT.replace("0  send    ", "0       send    ");
    let folder = folder(&[("messy.pmi", &messy)]);
    assert_eq!(conform(folder.path(), &["scenario", "fmt", "--check", "."]).status, 1);
    assert_eq!(conform(folder.path(), &["scenario", "fmt", "."]).status, 0);
    assert_eq!(fs::read_to_string(folder.path().join("messy.pmi")).unwrap(), RIGHT);
    assert_eq!(conform(folder.path(), &["scenario", "fmt", "--check", "."]).status, 0);
}

#[test]
fn reference_passes_the_exported_suite() {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &["scenario", "export", "suite"]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let names = |args: &[&str]| {
        let ran = conform(folder.path(), args);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.whole());
        ran.out
    };
    assert_eq!(names(&["scenario", "list", "suite"]), names(&["scenario", "list"]));
    names(&["--memory", "-q", "suite"]);
    assert!(folder.path().join("suite/rfc13.toml").is_file());
}

#[test]
fn serve_runs_a_program() {
    let ran = here(&["serve", "-n", "2", "--", "sh", "-c", "echo $PMI_RANK of $PMI_SIZE; exit $PMI_RANK"]);
    let mut lines: Vec<_> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 2", "1 of 2"], "{}", ran.whole());
    assert_eq!(ran.status, 1);
}

/// The server acknowledges a spawn but starts no process.
#[test]
fn acknowledged_operation_counts_as_supported() {
    let conform = env!("CARGO_BIN_EXE_pmi-conform");
    let server = format!("{conform} serve --fault spawn-starts-nothing -n {{ranks}} {{agent}}");
    let ran = here(&["--server", &server, "--timeout", "1", "-f", "=spawn/kvs[separate]"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(!ran.out.contains("not applicable"), "{}", ran.whole());
}

#[test]
fn strict_level_determines_the_exit_code() {
    // This launcher exits with status 0 even if the job is aborted.
    let server = format!(
        "sh -c '{} serve \"$@\"; exit 0' sh -n {{ranks}} {{agent}}",
        env!("CARGO_BIN_EXE_pmi-conform")
    );
    let profile = |strict: &str| format!("name = \"says success\"\ncommand = '''{server}'''\n{strict}\n");
    let folder = folder(&[("p.toml", &profile("")), ("strict.toml", &profile("strict = \"de-facto\""))]);
    let red = "a de facto requirement is broken, and --strict=de-facto counts it";
    for (profile, strict, status) in [
        ("@p", None, 0),
        ("@p", Some("--strict"), 0),
        ("@p", Some("--strict=should"), 0),
        ("@p", Some("--strict=de-facto"), 1),
        ("@strict", None, 1),
        ("@strict", Some("--strict=must"), 0),
    ] {
        let mut args = vec!["--server", profile, "-v", "-f", "=abort/alone", "--report", "ndjson=log"];
        args.extend(strict);
        let ran = conform(folder.path(), &args);
        assert_eq!(ran.status, status, "{profile} {strict:?}: {}", ran.whole());
        // A finding that makes the run red is shown and counted as a failure.
        let (label, count) = if status == 1 { ("FAIL", "1 failed (de facto)") } else { ("note", "1 noted") };
        let shown = format!("{label} de-facto.abort.job-fails");
        assert!(ran.out.contains(&shown) && ran.out.contains(count), "{}", ran.whole());
        assert_eq!(ran.out.contains(red), status == 1, "{}", ran.whole());
    }
    // The last run used `must`. `judge` and `report` accept a different level for its log.
    for (strict, status) in [(None, 0), (Some("--strict"), 0), (Some("--strict=de-facto"), 1)] {
        let ran = |command: &[&str]| {
            let args = [command, &["log"]].concat().into_iter().chain(strict);
            conform(folder.path(), &args.collect::<Vec<_>>())
        };
        let (judged, reported) = (ran(&["report", "judge"]), ran(&["report"]));
        assert_eq!((judged.status, reported.status), (status, 0), "{strict:?}: {}", judged.whole());
        for ran in [judged, reported] {
            assert_eq!(ran.out.contains(red), status == 1, "{strict:?}: {}", ran.whole());
        }
    }
    assert_eq!(here(&["--strict=most"]).status, 2);
    // A draft of deviations includes a finding that is red only because of the strict level.
    let draft = ["--server", "@strict", "-q", "-f", "=abort/alone", "--draft-deviations", "draft.toml"];
    conform(folder.path(), &draft);
    let draft = fs::read_to_string(folder.path().join("draft.toml")).unwrap();
    assert!(draft.contains("de-facto.abort.job-fails"), "{draft}");
}

#[test]
fn all_reports_state_the_same_numbers() {
    let deviations = "implementation = \"the reference\"\n[[deviation]]\nrequirement = \"rfc13.get.value\"\n\
                      scenarios = [\"wrong\"]\nreason = \"for this test\"\n";
    let folder = folder(&[("right.pmi", RIGHT), ("wrong.pmi", WRONG), ("d.toml", deviations)]);
    let args =
        ["--memory", "--deviations", "d.toml", "--report", "ndjson=log", "--report", "json=run.json", "."];
    let ran = conform(folder.path(), &args);
    assert!(ran.out.contains("1 passed, 0 failed (MUST), 1 known, 0 could not judge"), "{}", ran.whole());
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let end = |text: &str| read(text)["end"].clone();
    let played = end(&fs::read_to_string(folder.path().join("run.json")).unwrap());
    assert_eq!((&played["counts"], &played["deviations"]), (&serde_json::json!({ "pass": 1 }), &1.into()));
    // Change the log so that the durations of the scenarios add up to more than the duration of the run, as they do if scenarios run
    // concurrently.
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let slow = |line: &str| {
        let mut line = read(line);
        if line["type"] == "result" {
            line["time_us"] = 40_000_000.into();
        }
        line.to_string() + "\n"
    };
    fs::write(folder.path().join("slow"), log.lines().map(slow).collect::<String>()).unwrap();
    let judged =
        conform(folder.path(), &["report", "judge", "slow", "--deviations", "d.toml", "--format", "json"]);
    for figure in ["counts", "deviations", "time_us"] {
        assert_eq!(end(&judged.out)[figure], played[figure], "{figure}: {}", judged.whole());
    }
}

#[test]
fn error_printed_at_job_end_counts_as_logged() {
    let played = |last: &str| {
        let serve = env!("CARGO_BIN_EXE_pmi-conform");
        let server = format!("sh -c '{serve} serve \"$@\" 2>/dev/null; {last}' sh -n {{ranks}} {{agent}}");
        here(&["--server", &server, "--strict", "-f", "=errors/logged"])
    };
    let (late, never) = (played("sleep 1; echo a client broke the protocol >&2; exit 1"), played("exit 1"));
    assert_eq!((late.status, never.status), (0, 1), "{}{}", late.whole(), never.whole());
    assert!(never.out.contains("FAIL rfc13.error.log (SHOULD)"), "{}", never.whole());
}

#[test]
fn refused_operation_counts_as_unsupported() {
    let server =
        format!("{} serve --vary names-refused -n {{ranks}} {{agent}}", env!("CARGO_BIN_EXE_pmi-conform"));
    let ran = here(&["--server", &server, "-f", "=names/found[own-name]"]);
    assert_eq!(ran.status, 4, "{}", ran.whole());
    assert!(ran.out.contains("the server lacks names: when probed, it answered"), "{}", ran.whole());
}

/// A server that never responds to requests for an operation lacks the operation. Only the scenario about the missing response is red.
#[rstest]
#[case("names-publish-no-answer", "pmi-1.1", "=names/found[own-name]", "=names/answered-when-not-served")]
#[case("spawn-no-answer", "pmi-1.1", "=spawn/kvs[separate]", "=spawn/answered-when-not-served")]
#[case("spawn-no-answer", "pmi-2", "=pmi2/spawn/programs[one]", "=pmi2/spawn/answered-when-not-served")]
fn unanswered_operation_causes_a_single_failure(
    #[case] fault: &str,
    #[case] dialect: &str,
    #[case] needs: &str,
    #[case] needs_nothing: &str,
) {
    let server =
        format!("{} serve --fault {fault} -n {{ranks}} {{agent}}", env!("CARGO_BIN_EXE_pmi-conform"));
    let ran = here(&["--server", &server, "--dialect", dialect, "-f", needs, "-f", needs_nothing]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.out.contains("when probed, it did not answer"), "{}", ran.whole());
    assert!(ran.out.contains(" 1 not applicable"), "{}", ran.whole());
}

/// A client that offers 1.2 also supports 1.1, so a server must not refuse the offer. A client that offers 3.0 need not support 1.1.
#[rstest]
#[case::subversion("init/first-offer[subversion-2]", 1)]
#[case::version("init/first-offer[version-3]", 0)]
fn server_may_refuse_a_higher_major_version(#[case] scenario: &str, #[case] status: i32) {
    let conform = env!("CARGO_BIN_EXE_pmi-conform");
    let server = format!("{conform} serve --fault init-refuses-higher -n {{ranks}} {{agent}}");
    let ran = here(&["--server", &server, "-f", &format!("={scenario}")]);
    assert_eq!(ran.status, status, "{}", ran.whole());
    assert_eq!(ran.out.contains(" 1 noted"), status == 0, "{}", ran.whole());
}

/// Returns one line for each event of a scenario, without values that vary between runs.
fn transcript(name: &str) -> String {
    let describe = |what: &Value| -> String {
        let (kind, data) = what.as_object().unwrap().iter().next().unwrap();
        let proc = data.get("proc").map(|p| match p["group"].as_u64() {
            Some(0) => format!(" {}", p["rank"]),
            group => format!(" {}:{}", group.unwrap(), p["rank"]),
        });
        let proc = proc.unwrap_or_default();
        match data.get("bytes").or_else(|| data.get("line")) {
            Some(bytes) => format!("{kind}{proc} {}", bytes.as_str().unwrap()),
            None => {
                let mut rest = data.clone();
                rest.as_object_mut().unwrap().remove("proc");
                format!("{kind}{proc} {rest}")
            }
        }
    };
    log(&["--memory", "--filter", &format!("={name}")])
        .iter()
        .filter(|line| line["type"] == "event")
        // Expectations are omitted, because the scenario's file contains them.
        .filter(|line| ["expected", "nothing"].iter().all(|word| line["event"]["what"].get(word).is_none()))
        .map(|line| describe(&line["event"]["what"]) + "\n")
        .collect()
}

/// Golden transcripts of the self-check. They reveal every change in how a scenario is played and in how the reference responds.
#[rstest]
fn golden_transcripts_are_unchanged(
    #[values(
        "abort/exit-code",
        "barrier/absent-rank[twice-by-one-of-two]",
        "death/killed-while-waiting",
        "environment/variables[group]",
        "errors/unknown-command",
        "finalize/acknowledged",
        "init/version-lower",
        "kvs/exchange[own-key]",
        "mapping/two-nodes",
        "names/parent-and-child",
        "spawn/programs[one-write]",
        "wire/split-once"
    )]
    name: &str,
) {
    insta::with_settings!({
        snapshot_path => "../../../golden/reference",
        prepend_module_to_snapshot => false,
        description => name,
    }, {
        insta::assert_snapshot!(name.replace(['/', '['], "_").replace(']', ""), transcript(name));
    });
}

#[test]
fn plays_pmi2_scenarios_only_if_selected() {
    let serve =
        |fault| format!("{} serve --fault {fault} -n {{ranks}} {{agent}}", env!("CARGO_BIN_EXE_pmi-conform"));
    let first_only = format!("{} none {{ranks}} {{agent}}", pmi_test_programs::FAULTY_MANAGER);
    let (draft, common) = (serve("fullinit-no-version"), serve("fullinit-rank-zero"));
    for (server, options, status, shows) in [
        (&draft, &["--dialect", "pmi-2"][..], 0, "note pmi2.draft.fullinit.version"),
        (&draft, &["--dialect", "pmi-2", "--against", "pmi2-draft"], 1, "FAIL pmi2.draft.fullinit.version"),
        (&common, &["--dialect", "all"], 1, "FAIL pmi2.common.fullinit.rank"),
        // By default, only PMI-1 is played.
        (&common, &[], 0, "1 passed"),
        (
            &first_only,
            &["--dialect", "all"],
            0,
            "the server does not support PMI-2: when offered version 2.0",
        ),
        (&first_only, &["--dialect", "pmi-2"], 1, "FAIL pmi2.common.version"),
    ] {
        // A pattern that matches no played scenario is rejected, so each case names only the scenarios that it plays.
        let filters = match options {
            [] => &["-f", "=group/facts[appnum]"][..],
            [_, "pmi-2", ..] => &["-f", "=pmi2/init/fullinit"],
            _ => &["-f", "=pmi2/init/fullinit", "-f", "=group/facts[appnum]"],
        };
        let args: Vec<&str> =
            ["-v", "--server", server].iter().chain(filters).chain(options).copied().collect();
        let ran = here(&args);
        assert_eq!((ran.status, ran.out.contains(shows)), (status, true), "{options:?}: {}", ran.whole());
    }
}

#[test]
fn probe_of_pmi12_is_repeated_after_a_failed_start() {
    let folder = folder(&[]);
    let script = "test -e started && exec \"$0\" \"$@\"; touch started; exit 9";
    let server = format!("sh -c '{script}' {} none {{ranks}} {{agent}}", pmi_test_programs::FAULTY_MANAGER);
    let ran = conform(folder.path(), &["-v", "--server", &server, "--filter", "=pmi12/again"]);
    assert!(folder.path().join("started").exists(), "{}", ran.whole());
    assert!(ran.status == 4 && ran.out.contains("the server lacks pmi-1.2: when probed"), "{}", ran.whole());
}

/// The agent waits for the process manager to connect, and reports if it does not. The report arrives even if the wait exceeds the time
/// limit of a step.
#[test]
fn manager_must_connect_to_its_singleton() {
    side_by_side(&["0.3", "3"], |patience| {
        let folder = folder(&[]);
        let server = ["--server", "sleep 1000 {port} {pid}", "--connection", "singleton"];
        let limits = ["--timeout", "2", "--start-timeout", patience];
        let ran =
            conform(folder.path(), &[&server[..], &limits, &["--filter", "=singleton/joined"]].concat());
        assert_eq!(ran.status, 1, "{}", ran.whole());
        assert!(ran.out.contains("FAIL singleton.connects"), "{}", ran.whole());
        assert!(ran.out.contains("0 could not judge"), "{}", ran.whole());
    });
}

/// A process manager may spread processes over nodes if the scenario does not request a placement. The processes report their nodes.
#[rstest]
#[case::mapping_is_judged("=mapping/two-ranks", "pmi-1.1", "1 passed, 0 failed (MUST), 0 could not judge")]
#[case::wrong_mapping("=mapping/two-ranks", "wrong", "FAIL rfc13.mapping.true (valid input)")]
#[case::attributes_are_not(
    "=pmi2/nodeattr/put-get",
    "pmi-2",
    "placed 2 processes on 2 nodes (node-0, node-1)"
)]
fn judges_placement_by_the_reported_nodes(
    #[case] scenario: &str,
    #[case] dialect: &str,
    #[case] shown: &str,
) {
    let (nodes, dialect) = if dialect == "wrong" { ("1", "pmi-1.1") } else { ("2", dialect) };
    let spread = r#"sh -c 'SLURMD_NODENAME=node-$PMI_RANK exec "$0"'"#;
    let server = format!(
        "{} serve -n {{ranks}} --nodes {nodes} {spread} {{agent}}",
        env!("CARGO_BIN_EXE_pmi-conform")
    );
    let args = ["--server", &server, "--dialect", dialect, "--filter", scenario];
    let ran = conform(Path::new("."), &args);
    assert!(ran.out.contains(shown), "{}", ran.whole());
}
