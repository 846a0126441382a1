//! Tests that `fuzz` finds, distinguishes and minimizes bugs that were planted in a server, and reports no findings for a correct server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pmi_test_programs::{
    FAULTY_MANAGER, FAULTY_PMI2_PROGRAM, FAULTY_PROGRAM, PLANTED_PMI2_PROGRAM, PLANTED_PROGRAM, PMI2_CLIENT,
    SMALL_MANAGER, SMALL_MANAGER_SOURCE, SMALL_MANAGER_WITH_EDGES, WITHOUT_PTRACE,
    kernel_reports_foreign_exits, side_by_side,
};
use rstest::rstest;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn faulty_manager(fault: &str) -> String {
    format!("{FAULTY_MANAGER} {fault} {{ranks}} {{agent}}")
}

/// Returns the command that starts the reference with a rare fault. `options` contains the name of the fault, and may contain further
/// options.
fn rarely_faulty(options: &str) -> String {
    format!("{CONFORM} serve --fault {options} --nodes {{nodes}} -n {{ranks}} -- {{agent}}")
}

fn fuzz(folder: &Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::new(CONFORM);
    command.arg("fuzz").args(args).current_dir(folder).stdin(Stdio::null());
    command.env_remove("PMI_CONFORM_SERVER");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text)
}

/// The location at which the manager with the fault `crash` dies.
const CRASH: &str = "crash--faulty-manager--SIGABRT--in-build_script_main-faulty_manager-Fault-handle";

/// Runs the script of a finding, with the words of `command` as arguments. Returns whether the symptom occurs.
fn reproduces(script: &Path, command: &[String]) -> bool {
    let output = Command::new("python3").arg(script).args(command).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    match output.status.code() {
        Some(1) if text.contains("the symptom occurs") => true,
        Some(0) if text.contains("the symptom does not occur") => false,
        other => panic!("{other:?}: {text}"),
    }
}

/// Returns the number of ranks in the scenario of a finding.
fn ranks_of(finding: &Path) -> String {
    let text = fs::read_to_string(finding.join("scenario.pmi")).unwrap();
    let ranks = text.lines().find_map(|line| line.strip_prefix("ranks "));
    ranks.unwrap_or("1").to_owned()
}

fn found(out: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(out)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.join("finding.json").is_file())
        .collect();
    found.sort();
    found
}

fn names(found: &[PathBuf]) -> Vec<String> {
    found.iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// The rare fault never occurs in the first job of a server. Without a state file, every job is the first one.
#[rstest]
#[case("pmi-1.1")]
#[case("pmi-2")]
fn fault_that_never_occurs_causes_no_findings(#[case] dialect: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = rarely_faulty("job-waiting");
    let campaign = ["--server", &server, "--dialect", dialect, "--seed", "1", "--sessions", "100"];
    let (status, text) = fuzz(folder.path(), &campaign);
    assert_eq!(status, 0, "{text}");
}

#[test]
fn finds_rare_server_bugs_in_few_sessions() {
    let cases = [
        ("value-256", "pmi-1.1", "1", "40", "rule--rfc13.get.value--get"),
        ("value-backslash", "pmi-1.1", "1", "20", "rule--rfc13.get.value--get"),
        ("barrier-6", "pmi-1.1", "1", "40", "hang--rfc13.barrier.generic--barrier_in"),
        ("name-first", "pmi-1.1", "1", "150", "rule--rfc13.publish.lookup--lookup_name"),
        ("spawn-second-job", "pmi-1.1", "2", "50", "rule--rfc13.kvsname.distinct--get_my_kvsname"),
        ("attribute-two", "pmi-2", "1", "40", "hang--pmi2.common.nodeattr.wait--"),
    ];
    side_by_side(&cases, |&(bug, dialect, seed, sessions, bucket)| {
        check_rare_bug(bug, dialect, ["--seed", seed, "--sessions", sessions], bucket);
    });
}

fn check_rare_bug(bug: &str, dialect: &str, extent: [&str; 4], bucket: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = rarely_faulty(bug);
    let of_server = ["--server", &server, "--dialect", dialect, "--timeout", "2", "--lacks", "pmi-1.2"];
    let (status, text) = fuzz(folder.path(), &[&of_server[..], &extent, &["--workers", "1"]].concat());
    assert_eq!(status, 1, "{text}");
    let all = names(&found(&folder.path().join("pmi-conform-fuzz")));
    assert!(all.iter().any(|name| name.starts_with(bucket)), "{text}");
}

#[test]
fn replays_finding_with_its_earlier_job() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let server = rarely_faulty(&format!("job-value --state {}", state.display()));
    let of_server = ["--server", &server, "--timeout", "2", "--lacks", "pmi-1.2"];
    let campaign = ["--seed", "1", "--sessions", "40", "--workers", "1"];
    let (status, text) = fuzz(folder.path(), &[&of_server[..], &campaign].concat());
    let bucket = "rule--rfc13.get.value--get";
    let finding = folder.path().join("pmi-conform-fuzz").join(bucket);
    assert!(status == 1 && text.contains("deterministic, after an earlier job"), "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(finding.join("finding.json")).unwrap()).unwrap();
    assert_eq!(
        (&report["needs_earlier_job"], &report["again_minimal"]),
        (&true.into(), &5.into()),
        "{report}"
    );
    let earlier = fs::read_to_string(finding.join("earlier.pmi")).unwrap();
    assert!(earlier.contains("cmd=put") && !earlier.contains("cmd=get "), "{earlier}");

    // Remove the state that earlier jobs have left. The finding then occurs with both jobs, but not with the second job alone.
    let afresh = || {
        if state.exists() {
            fs::remove_file(&state).unwrap();
        }
    };
    let replay = |path: &Path| {
        afresh();
        fuzz(folder.path(), &[&of_server[..], &["--replay", path.to_str().unwrap()]].concat())
    };
    let (status, text) = replay(&finding);
    assert!(status == 1 && text.ends_with(&format!("{bucket}: 5 of 5\n")), "{text}");
    let (status, text) = replay(&finding.join("scenario.pmi"));
    assert!(status == 0 && text.ends_with(": 0 of 5\n"), "{text}");
    let why = fs::read_to_string(finding.join("no-reproducer.txt")).unwrap();
    assert!(why.starts_with("the finding occurs only after an earlier job"), "{why}");
    // A scenario is a single job, so this finding is not exported.
    let (status, text) = fuzz(folder.path(), &["--export", "exported"]);
    assert!(status == 0 && text.starts_with("wrote 0 scenarios to exported\nskipped 1 finding"), "{text}");
}

/// If a server accepts 1.2, sessions contain barriers for parts of a group. Several of them may be open at the same time, and their tags
/// are arbitrary. Violations of the `mpich-1.2` requirements count only with `--against mpich-1.2`.
#[test]
fn finds_bugs_in_group_barriers() {
    // With these seeds, the first generated session finds the bug. This matters because later sessions depend on the corpus, which differs
    // between campaigns.
    let cases = [
        ("group-tag-of-sixteen-bits", ["2", "40"], "rule--mpich-1.2.barrier.tag--"),
        ("group-one-at-a-time", ["29", "12"], "hang--mpich-1.2.barrier.several-open--"),
    ];
    side_by_side(&cases, |&(fault, extent, bucket)| check_barrier_bug(fault, extent, bucket));
}

fn check_barrier_bug(fault: &str, extent: [&str; 2], bucket: &str) {
    let (status, found, text) = with_groups(&format!("--fault {fault}"), extent, &["--against", "mpich-1.2"]);
    assert!(status == 1 && found.iter().any(|name| name.starts_with(bucket)), "{text}");
}

#[test]
fn reference_has_no_group_barrier_bugs() {
    let (status, found, text) = with_groups("", ["6", "50"], &["--against", "mpich-1.2"]);
    assert_eq!((status, found.len()), (0, 0), "{text}");
    let (_, found, text) = with_groups("--fault group-one-at-a-time", ["6", "25"], &["--lacks", "pmi-1.2"]);
    assert!(!found.iter().any(|name| name.contains("mpich-1.2")), "{text}");
}

/// Runs a campaign with this seed and number of sessions against the reference, with or without a fault. Returns the exit status, the
/// findings and the output.
fn with_groups(fault: &str, [seed, sessions]: [&str; 2], more: &[&str]) -> (i32, Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("{CONFORM} serve {fault} -n {{ranks}} -- {{agent}}");
    let campaign = ["--seed", seed, "--sessions", sessions, "--workers", "1", "--lacks", "spawn"];
    let (status, text) = fuzz(folder.path(), &[&["--server", &server][..], &campaign, more].concat());
    (status, names(&found(&folder.path().join("pmi-conform-fuzz"))), text)
}

#[test]
fn campaign_finds_and_reproduces_server_bug() {
    let cases = [
        ("crash", "7", "40", CRASH),
        // With other seeds, a free session may find the bug first, and that finding does not recur in every run.
        ("swap", "7", "60", "rule--rfc13.get.value--get"),
        ("hang", "4", "60", "hang--rfc13.abnf.c-put--put"),
    ];
    side_by_side(&cases, |&(fault, seed, sessions, bucket)| {
        check_planted_bug(fault, ["--seed", seed, "--sessions", sessions], bucket);
    });
}

/// Returns the number of replay runs that show the finding, and the total number of runs. There are five runs, or up to a hundred for a
/// free session, in which the order of messages varies.
fn replayed(text: &str, bucket: &str) -> (u32, u32) {
    let counts = text.lines().last().and_then(|line| line.strip_prefix(bucket)?.strip_prefix(": "));
    let (shown, runs) =
        counts.and_then(|counts| counts.split_once(" of ")).unwrap_or_else(|| panic!("{text}"));
    (shown.parse().unwrap(), runs.parse().unwrap())
}

fn check_planted_bug(fault: &str, extent: [&str; 4], bucket: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = faulty_manager(fault);
    let in_one_order = ["--server", &server, "--workers", "1", "--valid", "--timeout", "5"];
    let campaign = [&in_one_order[..], &extent].concat();
    let (status, text) = fuzz(folder.path(), &campaign);
    let out = folder.path().join("pmi-conform-fuzz");
    let all = found(&out);
    assert_eq!(status, 1, "{text}");
    assert!(names(&all).contains(&bucket.to_owned()), "{text}");
    let finding = out.join(bucket);
    for file in ["scenario.pmi", "reproducer.py", "transcript.ndjson", "versions.txt", "command.txt"] {
        assert!(finding.join(file).is_file(), "{file}: {text}");
    }
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(finding.join("finding.json")).unwrap()).unwrap();
    assert_eq!(report["again_minimal"], 5, "{report}");
    // For `hang`, a hundred puts and their responses must remain.
    let most = if fault == "hang" { 300 } else { 20 };
    assert!(report["steps"][1].as_u64().unwrap() <= most, "{report}");

    let (status, text) = fuzz(folder.path(), &["--server", &server, "--replay", finding.to_str().unwrap()]);
    assert_eq!(status, 1, "{text}");
    let (shown, runs) = replayed(&text, bucket);
    assert!(runs >= 5 && 2 * shown > runs, "{text}");
    // Without the bug, the finding does not occur.
    let healthy = faulty_manager("none");
    let (status, text) = fuzz(folder.path(), &["--server", &healthy, "--replay", finding.to_str().unwrap()]);
    assert_eq!((status, replayed(&text, bucket).0), (0, 0), "{text}");

    // The script reproduces the finding without pmi-conform.
    let script = finding.join("reproducer.py");
    let healthy_words = shell_words::split(&healthy.replace("{ranks}", &ranks_of(&finding))).unwrap();
    assert!((0..5).any(|_| reproduces(&script, &[])), "{}", fs::read_to_string(&script).unwrap());
    assert!(!reproduces(&script, &healthy_words));

    // Played as a scenario of the suite, the session shows the same finding.
    let exported = folder.path().join("exported");
    let (status, text) = fuzz(folder.path(), &["--export", exported.to_str().unwrap()]);
    assert_eq!(status, 0, "{text}");
    let scenario = exported.join(format!("{bucket}.pmi"));
    let play = |server: &str| {
        let mut conform = Command::new(CONFORM);
        conform.args(["--server", server, scenario.to_str().unwrap()]).stdin(Stdio::null());
        let output = conform.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A finding that needs a particular interleaving does not occur in every run; without the bug, it never occurs.
    let runs: Vec<_> = (0..5).map(|_| play(&server)).collect();
    assert!(runs.iter().any(|(status, _)| *status == Some(1)), "{runs:?}");
    assert!(runs.iter().all(|(status, _)| [Some(0), Some(1)].contains(status)), "{runs:?}");
    let (status, text) = play(&healthy);
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn finds_memory_leak_in_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = faulty_manager("leak");
    let campaign = ["--server", &server, "--seed", "1", "--sessions", "10", "--valid", "--timeout", "5"];
    let (status, text) = fuzz(folder.path(), &campaign);
    assert_eq!(
        (status, names(&found(&folder.path().join("pmi-conform-fuzz")))),
        (1, vec!["memory--faulty-manager".into()]),
        "{text}"
    );
    for (server, shows) in [(server, true), (faulty_manager("none"), false)] {
        let (status, text) = fuzz(
            folder.path(),
            &["--server", &server, "--replay", "pmi-conform-fuzz/memory--faulty-manager"],
        );
        // On a busy machine, some replays miss the leak, because the memory is measured before the server has allocated it. One replay that
        // shows the leak is enough.
        assert_eq!(!text.ends_with("memory--faulty-manager: 0 of 5\n"), shows, "{text}");
        assert_eq!(status, i32::from(shows), "{text}");
    }
}

/// A session that crashes the faulty manager. The crash depends on the order of the steps, which a minimized session need not preserve.
const GET_BESIDE_A_BARRIER: &str = "\
# A get of a key that no process has put is refused even while another process waits in a barrier.
requires rfc13.get.value
ranks 2

use joined
1  send    cmd=get kvsname=$kvs key=a
1  expect  cmd=get_result rc=fail
0  send    cmd=barrier_in
0  expect  <silence>
1  send    cmd=get kvsname=$kvs key=a
1  expect  cmd=get_result rc=fail
1  send    cmd=barrier_in
*  expect  cmd=barrier_out rc=ok
";

#[test]
fn detects_crash_even_if_the_launcher_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("sh -c '\"$@\"; exit 0' sh {}", faulty_manager("crash"));
    let campaign = ["--server", &server, "--seed", "2", "--sessions", "40", "--valid", "--timeout", "5"];
    let (status, text) = fuzz(folder.path(), &campaign);
    let bucket = CRASH;
    let all = names(&found(&folder.path().join("pmi-conform-fuzz")));
    let kernel_reports = kernel_reports_foreign_exits();
    assert_eq!(all.contains(&bucket.to_owned()), kernel_reports, "{status} {text}");
    if kernel_reports {
        fs::write(folder.path().join("crash.pmi"), GET_BESIDE_A_BARRIER).unwrap();
        let mut suite = Command::new(CONFORM);
        suite.args(["--server", &server, "crash.pmi"]).current_dir(folder.path()).stdin(Stdio::null());
        let output = suite.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.code() == Some(1) && text.contains("faulty-manager died of signal 6"),
            "{text}"
        );
    }
}

/// Runs some sessions against a manager that crashes in one of several functions. Returns the names of the findings and the output.
fn crashes_in_places(within: &[&str], more: &[&str]) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = faulty_manager("crash-in-places");
    let mut command = Command::new(within.first().unwrap_or(&CONFORM));
    command.args(within.get(1..).unwrap_or_default());
    command.args(["fuzz", "--server", &server, "--seed", "1", "--sessions", "120", "--valid", "-n", "1"]);
    // With one worker, the sessions depend on the seed alone.
    command.args(["--workers", "1"]);
    command.args(more).current_dir(folder.path()).stdin(Stdio::null()).env_remove("PMI_CONFORM_SERVER");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (names(&found(&folder.path().join("pmi-conform-fuzz"))), text)
}

#[test]
fn crash_bucket_is_named_after_the_crashing_function() {
    let (all, text) = crashes_in_places(&[], &[]);
    let places: Vec<&str> = all.iter().filter_map(|name| name.rsplit("--").next()).collect();
    let functions = ["keep_even", "keep_odd", "tell_number"];
    // Crashes in different functions are different findings, even after the same request. Crashes in the same function are a single
    // finding, even after different requests.
    assert!(
        places.len() == 3 && functions.iter().zip(&places).all(|(name, place)| place.ends_with(name)),
        "{all:?} {text}"
    );
    assert!(text.contains("::faulty_manager::keep_even\n"), "{text}");
}

#[test]
fn crash_bucket_names_last_request_without_ptrace() {
    let (all, text) = crashes_in_places(&[WITHOUT_PTRACE, CONFORM], &[]);
    let bucket = "crash--faulty-manager--SIGABRT--put".to_owned();
    assert!(all.contains(&bucket) && !all.iter().any(|name| name.contains("--in-")), "{all:?} {text}");
    let why = "crash location unknown: ptrace failed: Operation not permitted";
    assert!(text.contains(why), "{text}");
}

#[test]
fn replay_of_upstream_session_requires_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# A.\nrequires rfc13.error.close\nneeds upstream\n\nproxy:0  send    cmd=get_result\n";
    fs::write(folder.path().join("s.pmi"), text).unwrap();
    let (status, text) = fuzz(folder.path(), &["--replay", "s.pmi"]);
    assert!(status == 2 && text.contains("must be a bare hydra_pmi_proxy"), "{status}: {text}");
}

#[test]
fn skips_known_findings_and_resumes_campaign() {
    let folder = tempfile::tempdir().unwrap();
    let server = faulty_manager("crash");
    fs::write(folder.path().join("known.toml"), "[[known]]\nbucket = \"crash--faulty-manager--*\"\n")
        .unwrap();
    let known = ["--server", &server, "--seed", "2", "--sessions", "40", "--valid", "--known", "known.toml"];
    let (status, text) = fuzz(folder.path(), &known);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("known  crash--faulty-manager--SIGABRT--get"), "{text}");
    // An existing folder is not overwritten.
    let (status, text) = fuzz(folder.path(), &known);
    assert!(status == 2 && text.contains("continue it with --resume"), "{text}");
    // Any of the ten further sessions can crash the manager again, so this command needs `--known` too.
    let resumed = ["--server", &server, "--sessions", "10", "--valid", "--known", "known.toml", "--resume"];
    let (status, text) = fuzz(folder.path(), &resumed);
    assert!(status == 0 && text.contains("seed 2, from session 40"), "{text}");
}

fn pmi_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|e| e == "pmi")).collect()
}

#[test]
fn corpus_grows_and_damaged_session_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let go = |args: &[&str]| fuzz(folder.path(), &[&["--seed", "1", "--timeout", "5"][..], args].concat());
    let corpus = folder.path().join("pmi-conform-fuzz/corpus");
    let kept = || pmi_files(&corpus).len();
    let (status, text) = go(&["--sessions", "40"]);
    let first = kept();
    assert!(status == 0 && first > 10 && text.contains(&format!("corpus {first}, ")), "{first}: {text}");
    let (status, text) = go(&["--sessions", "40", "--resume"]);
    assert!(status == 0 && kept() > first, "{text}");
    // Another campaign can use the corpus.
    let (_, text) = go(&["--sessions", "1", "--corpus", "pmi-conform-fuzz/corpus", "--out", "other"]);
    let all = pmi_files(&folder.path().join("other/corpus")).len();
    assert!(all >= kept(), "{all}: {text}");
    fs::write(folder.path().join("none.pmi"), "# A.\nrequires rfc13.put.unique\n*  send    cmd=put\n")
        .unwrap();
    let (status, text) = go(&["--corpus", "none.pmi", "--out", "third"]);
    assert!(
        status == 2 && text.contains("no session for this implementation (1 scenario skipped);"),
        "{text}"
    );
    let damaged = pmi_files(&corpus).remove(0);
    fs::write(&damaged, "0 send    <").unwrap();
    let (status, text) = go(&["--resume"]);
    assert!(status == 2 && text.contains(damaged.file_name().unwrap().to_str().unwrap()), "{status}: {text}");
}

#[test]
fn minimized_corpus_keeps_coverage_and_finds_bug() {
    let folder = tempfile::tempdir().unwrap();
    let go = |args: &[&str]| fuzz(folder.path(), &[&["--timeout", "5"][..], args].concat());
    for (seed, out) in [("1", "one"), ("2", "two")] {
        let (status, text) = go(&["--seed", seed, "--sessions", "30", "--out", out]);
        assert_eq!(status, 0, "{text}");
    }
    let both = ["--corpus", "one", "--corpus", "two"];
    let (status, text) = go(&[&both[..], &["--minimize-corpus", "small"]].concat());
    let files = |name: &str| pmi_files(&folder.path().join(name)).len();
    let (small, all) = (files("small"), files("one/corpus") + files("two/corpus"));
    assert!(status == 0 && 0 < small && small < all, "{small} of {all}: {text}");
    assert!(text.contains(&format!("{small} of {all} sessions")), "{text}");
    // `--minimize-corpus` does not add the sessions to an existing corpus.
    let (status, text) = go(&[&both[..], &["--minimize-corpus", "small"]].concat());
    assert!(status == 2 && text.contains("small: already contains a corpus"), "{text}");
    // The small corpus covers at least 95 % of the transitions that the large corpus covers.
    let transitions = |out: &str| {
        let text = fs::read_to_string(folder.path().join(out).join("campaign.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&text).unwrap();
        (state["sessions"].as_u64().unwrap(), state["transitions"].as_array().unwrap().len())
    };
    for (of, out) in [(&both[..], "all-again"), (&["--corpus", "small"], "small-again")] {
        let (status, text) = go(&[of, &["--only-corpus", "--workers", "1", "--out", out]].concat());
        assert_eq!(status, 0, "{text}");
    }
    let (of_all, of_small) = (transitions("all-again"), transitions("small-again"));
    assert_eq!((of_all.0, of_small.0), (all as u64, small as u64));
    assert!(of_small.1 * 20 >= of_all.1 * 19, "{of_all:?} {of_small:?}");
    // Replaying the corpus against a faulty server finds the fault, with the usual reports and exit status.
    let server = format!("{CONFORM} serve --fault get-missing-rc-zero -n {{ranks}} {{agent}}");
    let args = [
        "--server",
        &server,
        "--corpus",
        "small",
        "--only-corpus",
        "--out",
        "faulty",
        "--report",
        "json=r.json",
        "--report",
        "junit=r.xml",
        "--report",
        "html=r.html",
    ];
    let (status, text) = go(&args);
    assert_eq!(status, 1, "{text}");
    for file in ["r.json", "r.xml"] {
        let report = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(report.contains("rfc13.error.rc-nonzero"), "{report}");
    }
    let junit = fs::read_to_string(folder.path().join("r.xml")).unwrap();
    assert!(
        junit.contains("<failure message=\"rfc13.error.rc-nonzero: ")
            && junit.contains("type=\"rfc13.error.rc-nonzero\""),
        "{junit}"
    );
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    for part in [
        "new finding",
        "found</dt><dd>after ",
        "class=\"met\"",
        "rule--rfc13.error.rc-nonzero--get",
        "--replay",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn finds_nothing_in_the_reference_server() {
    let folder = tempfile::tempdir().unwrap();
    let reports = ["json=r.json", "sarif=r.sarif", "junit=r.xml", "html=r.html"].map(|to| ["--report", to]);
    let (status, text) = fuzz(
        folder.path(),
        &[&["--seed", "1", "--sessions", "150", "--timeout", "5"][..], reports.as_flattened()].concat(),
    );
    assert_eq!(status, 0, "{text}");
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(folder.path().join(name)).unwrap()).unwrap()
    };
    let report = read("r.json");
    let played = report["sessions"].as_u64().unwrap() + report["left_out"].as_u64().unwrap();
    assert_eq!(played, 150, "{report}");
    assert_eq!(report["found"], serde_json::json!([]), "{text}");
    // Some sessions follow an earlier job, and some jobs have several processes.
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("jobs") > count("sessions") && count("processes") > count("jobs"), "{report}");
    assert_eq!(read("r.sarif")["runs"][0]["results"], serde_json::json!([]));
    let junit = fs::read_to_string(folder.path().join("r.xml")).unwrap();
    // An unconfirmed finding is reported as a skipped test case.
    let cases = 1 + junit.matches("<skipped").count();
    let tests = format!("tests=\"{cases}\"");
    assert!(junit.contains(&tests) && junit.contains("name=\"the campaign\""), "{junit}");
    assert!(!junit.contains("<failure") && !junit.contains("<error"), "{junit}");
    let page = fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("Nothing new was found") && page.contains("transitions of the model in"), "{page}");
}

#[test]
fn campaign_finds_and_reproduces_pmi2_server_bug() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |fault: &str| format!("{CONFORM} serve {fault} -n {{ranks}} -- {{agent}}");
    let server = serve("--fault nodeattr-wait-at-once");
    let args = ["--server", &server, "--dialect", "pmi-2"];
    let (status, text) =
        fuzz(folder.path(), &[&args[..], &["--seed", "1", "--sessions", "120", "--valid"]].concat());
    assert_eq!(status, 1, "{text}");
    let bucket = "rule--pmi2.common.nodeattr.wait--info-getnodeattr";
    let finding = folder.path().join("pmi-conform-fuzz").join(bucket);
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(finding.join("finding.json")).unwrap()).unwrap();
    assert!(report["again_minimal"] == 5 && report["steps"][1].as_u64().unwrap() <= 5, "{report}");

    // The script reproduces the symptom of the finding without pmi-conform.
    assert!(reproduces(&finding.join("reproducer.py"), &[]));
    for (server, wanted) in [(&server, (1, "5 of 5")), (&serve(""), (0, "0 of 5"))] {
        let (status, text) =
            fuzz(folder.path(), &["--server", server, "--replay", finding.to_str().unwrap()]);
        assert_eq!(
            (status, text.ends_with(&format!("{bucket}: {}\n", wanted.1))),
            (wanted.0, true),
            "{text}"
        );
        let mut suite = Command::new(CONFORM);
        suite.args(["--server", server, "--dialect", "pmi-2"]).arg(finding.join("scenario.pmi"));
        let output = suite.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(wanted.0), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn finds_nothing_in_the_reference_in_either_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let (status, text) =
        fuzz(folder.path(), &["--dialect", "all", "--seed", "1", "--sessions", "120", "--timeout", "5"]);
    let kept = pmi_files(&folder.path().join("pmi-conform-fuzz/corpus"));
    let of_pmi2 = |file: &&PathBuf| fs::read_to_string(file).unwrap().contains("\ndialect pmi-2\n");
    let both = kept.iter().any(|file| of_pmi2(&file)) && !kept.iter().all(|file| of_pmi2(&file));
    assert_eq!((status, both), (0, true), "{text}");
}

#[test]
fn finds_rare_program_bugs_in_few_sessions() {
    let cases = [
        (PLANTED_PROGRAM, "value-256", "60", "crash--client--SIGSEGV--"),
        (PLANTED_PROGRAM, "piece-short", "40", "hang--client--"),
        (
            PLANTED_PROGRAM,
            "init-refused-positive",
            "300",
            "rule--client--rfc13.init.complete-before-others--",
        ),
        (PLANTED_PMI2_PROGRAM, "frame-1000", "40", "crash--client--SIGSEGV--"),
    ];
    side_by_side(&cases, |&(program, bug, sessions, bucket)| {
        check_rare_program_bug(program, bug, sessions, bucket)
    });
}

fn check_rare_program_bug(program: &str, bug: &str, sessions: &str, bucket: &str) {
    let folder = tempfile::tempdir().unwrap();
    let client = format!("{program} {bug}");
    let campaign = ["--seed", "1", "--sessions", sessions, "--workers", "1"];
    let (status, text) = fuzz(folder.path(), &[&["--client", &client, "-n", "2"][..], &campaign].concat());
    let all = names(&found(&folder.path().join("pmi-conform-fuzz")));
    assert!(status == 1 && all.iter().any(|name| name.starts_with(bucket)), "{all:?} {text}");
}

fn faulty_program(fault: &str) -> String {
    format!("{FAULTY_PROGRAM} {fault}")
}

fn faulty_pmi2_program(fault: &str) -> String {
    format!("{FAULTY_PMI2_PROGRAM} {fault}")
}

#[test]
fn campaign_finds_and_reproduces_program_bug() {
    type Program = fn(&str) -> String;
    let cases: [(Program, &str, &str, &str, &str, &str); 6] = [
        (faulty_program, "crashes-after-close", "2", "1", "40", "crash--client--SIGSEGV--"),
        (faulty_program, "believes-any-mapping", "2", "5", "600", "crash--client--SIGSEGV--in-"),
        (
            faulty_program,
            "ignores-failures",
            "2",
            // Several sessions of this campaign show the bug, each of them in most runs but not in all.
            "8",
            "90",
            "rule--client--rfc13.init.complete-before-others--init-refused",
        ),
        (faulty_program, "waits-after-close", "1", "3", "15", "hang--client--"),
        (faulty_pmi2_program, "crashes-at-an-empty-body", "1", "1", "100", "crash--client--SIGSEGV--"),
        (faulty_pmi2_program, "crashes-after-close", "2", "1", "40", "crash--client--SIGSEGV--"),
    ];
    side_by_side(&cases, |&(program, fault, ranks, seed, sessions, bucket)| {
        check_program_bug(program, fault, ranks, seed, sessions, bucket)
    });
}

fn check_program_bug(
    program: fn(&str) -> String,
    fault: &str,
    ranks: &str,
    seed: &str,
    sessions: &str,
    bucket: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let client = program(fault);
    let of_client = ["--client", &client, "-n", ranks, "--timeout", "0.5"];
    let (status, text) =
        fuzz(folder.path(), &[&of_client[..], &["--seed", seed, "--sessions", sessions]].concat());
    assert_eq!(status, 1, "{text}");
    let all = found(&folder.path().join("pmi-conform-fuzz"));
    let report_of = |finding: &Path| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(finding.join("finding.json")).unwrap()).unwrap()
    };
    let is_reproducible = |p: &&PathBuf| report_of(p)["again_minimal"] == 5;
    let finding =
        all.iter().filter(is_reproducible).find(|p| names(&[p.to_path_buf()])[0].starts_with(bucket));
    let finding = finding.unwrap_or_else(|| panic!("{text}"));
    for file in ["scenario.pmi", "transcript.ndjson", "versions.txt", "command.txt"] {
        assert!(finding.join(file).is_file(), "{file}: {text}");
    }
    let script = finding.join("reproducer.py");
    assert!(reproduces(&script, &[]), "{}", fs::read_to_string(&script).unwrap());
    let steps = report_of(finding)["steps"][1].as_u64().unwrap();
    assert!(steps <= 4, "too many steps are left: {steps}");

    let name = names(std::slice::from_ref(finding)).remove(0);
    for (client, wanted) in [(&client, (1, "5 of 5")), (&program(""), (0, "0 of 5"))] {
        let (status, text) =
            fuzz(folder.path(), &["--client", client, "--replay", finding.to_str().unwrap()]);
        assert_eq!((status, text.ends_with(&format!("{name}: {}\n", wanted.1))), (wanted.0, true), "{text}");
    }
    // Exported as a scenario, the session passes `scenario check` and shows the same finding.
    let (status, text) = fuzz(folder.path(), &["--export", "exported"]);
    assert_eq!(status, 0, "{text}");
    let scenario = folder.path().join(format!("exported/{name}.pmi"));
    for (words, wanted) in
        [(vec!["scenario", "check"], 0), (vec!["--client", &client], 1), (vec!["--client", &program("")], 0)]
    {
        let output = Command::new(CONFORM).args(words).arg(&scenario).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(wanted), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn finds_processes_that_a_program_leaves_running() {
    let folder = tempfile::tempdir().unwrap();
    let client = faulty_program("leaves-a-process-when-it-fails");
    let (status, text) =
        fuzz(folder.path(), &["--client", &client, "-n", "2", "--seed", "1", "--sessions", "5"]);
    assert_eq!(status, 1, "{text}");
    assert!(folder.path().join("pmi-conform-fuzz/leak--sleep/finding.json").is_file(), "{text}");
}

#[rstest]
#[case(faulty_program(""))]
#[case(faulty_pmi2_program(""))]
#[case(PLANTED_PROGRAM.to_owned())]
#[case(PLANTED_PMI2_PROGRAM.to_owned())]
fn finds_nothing_in_a_correct_program(#[case] program: String) {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--client", &program, "--seed", "1", "--sessions", "150", "--report", "json=r.json"];
    let (status, text) = fuzz(folder.path(), &args);
    assert_eq!(status, 0, "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("r.json")).unwrap()).unwrap();
    assert_eq!((&report["sessions"], &report["unjudged"]), (&150.into(), &0.into()), "{report}");
}

#[rstest]
#[case(&["--client", PMI2_CLIENT, "--dialect", "pmi-1.1"], "the program fails although its server does nothing unusual")]
#[case(&["--client", FAULTY_PROGRAM, "--dialect", "pmi-2"], "the program uses PMI-1")]
#[case(&["--client", "/bin/true"], "the program fails although its server does nothing unusual")]
#[case(&["--client", "/nonexistent/program"], "--client")]
#[case(&["--library", "/bin/true"], "--library: /bin/true: a program, not a shared library")]
#[case(&["--library", "/nonexistent/lib.so"], "--library /nonexistent/lib.so")]
fn rejects_targets_that_cannot_be_tested(#[case] args: &[&str], #[case] expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (status, text) = fuzz(folder.path(), args);
    assert_eq!((status, text.contains(expected)), (2, true), "{text}");
}

/// Runs a campaign against a build of the small process manager. Returns the exit status, the output and the report.
fn small_manager(manager: &str) -> (i32, String, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("{manager} -n {{ranks}} {{agent}}");
    let campaign = ["--server", &server, "--seed", "1", "--workers", "1", "--sessions", "60"];
    let reports = ["--report", "json=r.json", "--report", "html=r.html"];
    let (status, text) = fuzz(folder.path(), &[&campaign[..], &reports].concat());
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let report: serde_json::Value = serde_json::from_str(&read("r.json")).unwrap();
    let reached = report["edges"].as_u64().unwrap();
    let page = read("r.html");
    assert_eq!(page.contains(&format!("{reached} edges of the program in ")), reached > 0, "{page}");
    (status, text, report)
}

const NOT_INSTRUMENTED: &str = "note: the server has no edge coverage";

#[test]
fn campaign_uses_coverage_of_instrumented_server() {
    let (status, text, report) = small_manager(SMALL_MANAGER_WITH_EDGES);
    assert_eq!(status, 0, "{text}");
    assert!(report["edges"].as_u64().unwrap() > 60, "{report}");
    assert!(text.contains(" edges, corpus") && !text.contains(NOT_INSTRUMENTED), "{text}");
}

#[test]
fn warns_once_about_missing_instrumentation() {
    let (status, text, report) = small_manager(SMALL_MANAGER);
    assert_eq!((status, &report["edges"]), (0, &serde_json::json!(0)), "{text}");
    assert_eq!(text.matches(NOT_INSTRUMENTED).count(), 1, "{text}");
    assert!(!text.contains(" edges, corpus"), "{text}");
    // The built-in process manager has no edges to count.
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = fuzz(folder.path(), &["--seed", "1", "--sessions", "5"]);
    assert!(!text.contains(NOT_INSTRUMENTED), "{text}");
}

#[test]
fn pause_of_the_parent_stops_the_manager() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# The manager is stopped for a moment, and answers afterwards.
requires rfc13.get.value
ranks 2
schedule free

use joined
*  send    put key=from-$rank value=$rank
*  expect  ok
0  P: pause parent
1  send    get key=from-1
1  expect  ok value=1
use finalized
J: logs
";
    for (text, passes) in [(text.to_owned(), true), (text.replace("0  P: pause parent\n", ""), false)] {
        fs::write(folder.path().join("pause.pmi"), text).unwrap();
        let server = format!("{SMALL_MANAGER} -n {{ranks}} {{agent}}");
        let mut command = Command::new(CONFORM);
        command.args(["--server", &server, "--lacks", "spawn,names", "pause.pmi"]).current_dir(folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.success(), passes, "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Uses the real AFL++, if it is installed.
#[test]
fn campaign_uses_coverage_of_afl_compiled_server() {
    let folder = tempfile::tempdir().unwrap();
    let manager = folder.path().join("small-manager-of-afl");
    let mut compiler = Command::new("afl-clang-fast");
    compiler.args(["-o".as_ref(), manager.as_os_str()]).arg(SMALL_MANAGER_SOURCE);
    match compiler.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: afl-clang-fast is not installed (Debian package afl++)");
        }
        compiled => {
            let compiled = compiled.unwrap();
            assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
            let (status, text, report) = small_manager(manager.to_str().unwrap());
            assert_eq!(status, 0, "{text}");
            assert!(report["edges"].as_u64().unwrap() > 60, "{report}");
            assert!(!text.contains(NOT_INSTRUMENTED), "{text}");
        }
    }
}
