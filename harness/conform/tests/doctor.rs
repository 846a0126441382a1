//! Tests that `doctor` reports what works, what is missing and what prevents judging, and that `init` begins with the same checks.

mod common;

use std::path::Path;

use common::conform;
use pmi_test_programs::{CASES, FAULTY_PROGRAM, HOSTILE_MANAGER};
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

/// Returns the exit status of `doctor`, the name, state and text of each step, and the whole report.
fn examined(args: &[&str]) -> (i32, Vec<(String, String, String)>, Value) {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &[&["doctor", "--json"], args].concat());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.whole()));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let steps = report["steps"].as_array().unwrap().iter();
    let steps = steps.map(|s| (text(&s["what"]), text(&s["state"]), text(&s["seen"]))).collect();
    (ran.status, steps, report)
}

fn serve(options: &str) -> String {
    format!("{CONFORM} serve {options} -n {{ranks}} {{agent}}")
}

#[test]
fn reports_supported_and_missing_operations() {
    let (status, steps, report) = examined(&["--server", &serve("--vary names-refused")]);
    let state = |what: &str| steps.iter().find(|s| s.0 == what).map(|s| s.1.as_str());
    assert_eq!((status, &report["fit"]), (0, &true.into()), "{steps:?}");
    for what in ["started", "connection", "version", "session", "spawn", "silence"] {
        assert_eq!(state(what), Some("works"), "{what}: {steps:?}");
    }
    assert_eq!((state("two nodes"), state("names")), (Some("lacks"), Some("lacks")));
    let profile = report["profile"].as_str().unwrap();
    assert!(profile.contains("lacks = [\"names\"]") && profile.contains("offers = [\"spawn\"]"), "{profile}");
}

#[test]
fn examines_pmi2_only_manager_in_pmi2() {
    let server = format!("python3 {CASES}/pmi2_only.py -n {{ranks}} {{agent}}");
    let (status, steps, report) = examined(&["--server", &server, "--timeout", "20"]);
    let state = |what: &str| steps.iter().find(|s| s.0 == what).map(|s| s.1.as_str());
    assert_eq!((status, &report["fit"]), (0, &true.into()), "{steps:?}");
    for what in ["version", "session", "silence"] {
        assert_eq!(state(what), Some("works"), "{what}: {steps:?}");
    }
    let profile = report["profile"].as_str().unwrap();
    assert!(profile.contains("dialect = \"pmi-2\"\n"), "{profile}");
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &["doctor", "--server", &server, "--timeout", "20"]);
    assert!(ran.out.contains("the server accepts only PMI-2; pass --dialect pmi-2"), "{}", ran.whole());
    assert!(ran.out.ends_with("--dialect pmi-2\n"), "{}", ran.whole());
    // The profile selects the dialect.
    std::fs::write(folder.path().join("mine.toml"), profile).unwrap();
    let ran = conform(folder.path(), &["--server", "@mine", "-f", "=pmi2/kvs/exchange[own-key]"]);
    assert!(ran.out.contains("1 passed"), "{}", ran.whole());
}

/// A version above the client's offer, or a version followed by a carriage return, is not reported as supported by the server.
#[rstest]
#[case("init-version-2", "odd", "a higher version than the client offers")]
#[case("cr-before-newline", "fails", "end with a carriage return")]
fn reports_invalid_version_responses(#[case] fault: &str, #[case] state: &str, #[case] remedy: &str) {
    let (_, steps, report) = examined(&["--server", &serve(&format!("--fault {fault}"))]);
    let version = steps.iter().find(|step| step.0 == "version").unwrap();
    assert_eq!(version.1, state, "{steps:?}");
    assert!(report.to_string().contains(remedy), "{report}");
}

#[test]
fn reports_a_launcher_that_keeps_running() {
    let server = format!("sh -c '\"$@\"; sleep 100' sh {}", serve(""));
    let (_, steps, _) = examined(&["--server", &server, "--timeout", "5"]);
    let session = steps.iter().find(|step| step.0 == "session").unwrap();
    assert!(session.1 == "odd" && session.2.contains("the launcher keeps running"), "{steps:?}");
}

/// A process manager whose event loop wakes up on a timer does not count as busy. `doctor` reports that its silence cannot be proved.
#[test]
fn reports_manager_that_polls_with_a_long_timer() {
    let polls = "import subprocess, sys, time\np = subprocess.Popen(sys.argv[1:])\nwhile p.poll() is None: time.sleep(0.2)";
    let server = format!("python3 -c '{polls}' {}", serve(""));
    let (status, steps, _) = examined(&["--server", &server, "--timeout", "20"]);
    let silence = steps.iter().find(|step| step.0 == "silence").unwrap();
    assert_eq!((status, silence.1.as_str()), (0, "odd"), "{steps:?}");
    assert!(silence.2.contains("processes wake periodically"), "{steps:?}");
}

/// An operation is not reported as supported if requests for it get no response.
#[test]
fn doctor_reports_unanswered_operation_as_missing() {
    let server = format!("python3 {CASES}/threads_without_spawn.py -n {{ranks}} {{agent}}");
    let (status, steps, report) = examined(&["--server", &server, "--timeout", "20"]);
    assert_eq!(status, 0, "{steps:?}");
    for what in ["spawn", "names"] {
        let step = steps.iter().find(|step| step.0 == what).unwrap();
        assert_eq!((step.1.as_str(), step.2.as_str()), ("lacks", "when probed, the server did not answer"));
    }
    let profile = report["profile"].as_str().unwrap();
    assert!(profile.contains("lacks = [\"spawn\", \"names\"]") && !profile.contains("offers"), "{profile}");
}

/// The session that `doctor` plays includes finalize, so a missing response to finalize is reported.
#[test]
fn session_step_reports_a_missing_finalize_ack() {
    let (_, steps, _) = examined(&["--server", &serve("--fault finalize-no-answer"), "--timeout", "5"]);
    let step = steps.iter().find(|step| step.0 == "session").unwrap();
    assert_eq!(step.1, "odd", "{steps:?}");
    assert!(step.2.contains("rfc13.finalize.ack: expected"), "{}", step.2);
}

/// A response that lacks only its newline is not reported as silence.
#[test]
fn shows_response_without_a_newline() {
    let (_, steps, _) = examined(&["--server", &serve("--fault no-newline"), "--timeout", "5"]);
    let step = steps.iter().find(|step| step.0 == "version").unwrap();
    let expected = "to 1.1: \"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\" without a newline (rfc13.wire.newline)";
    assert!(step.2.starts_with(expected), "{}", step.2);
}

/// The drafted text is a valid profile for the same implementation.
#[test]
fn server_option_accepts_suggested_profile() {
    let server = serve("--nodes {nodes} --vary names-refused");
    let (_, _, report) = examined(&["--server", &server]);
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("mine.toml"), report["profile"].as_str().unwrap()).unwrap();
    let args = [
        "--server",
        "@mine",
        "-f",
        "=names/found[own-name]",
        "-f",
        "=mapping/two-nodes",
        "-f",
        "=kvs/exchange[own-key]",
    ];
    let ran = conform(folder.path(), &args);
    assert!(ran.out.contains("2 passed") && ran.out.contains(" 1 not applicable"), "{}", ran.whole());
}

/// A manager that needs more time to start than a step allows gets the time that its profile specifies.
#[test]
fn profile_sets_the_start_timeout() {
    let folder = TempDir::new().unwrap();
    let slow = "test -e seen || (touch seen; sleep 3); exec \"$@\"";
    let profile =
        format!("name = 'slow'\nstart-timeout = 600\ncommand = '''sh -c '{slow}' slow {}'''\n", serve(""));
    std::fs::write(folder.path().join("slow.toml"), profile).unwrap();
    let ran = conform(folder.path(), &["doctor", "--server", "@slow", "--timeout", "2"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
}

#[rstest]
#[case::nothing_starts("false {ranks} {agent}", "started")]
#[case::no_connection("sh -c 'for i in $(seq $0); do $1 & done; wait' {ranks} {agent}", "connection")]
#[case::no_version("{HOSTILE_MANAGER} silent {ranks} {agent}", "version")]
fn stops_after_the_first_failed_step(#[case] server: &str, #[case] fails: &str) {
    let server = server.replace("{HOSTILE_MANAGER}", HOSTILE_MANAGER);
    let (status, steps, _) = examined(&["--server", &server, "--timeout", "20"]);
    let last = steps.last().unwrap();
    assert_eq!((status, last.0.as_str(), last.1.as_str()), (1, fails, "fails"), "{steps:?}");
    assert!(steps[..steps.len() - 1].iter().all(|step| step.1 != "fails"), "{steps:?}");
}

#[test]
fn detects_connection_through_pmi_port() {
    let (status, steps, _) = examined(&["--server", &serve("--pmi-port")]);
    assert_eq!(status, 0, "{steps:?}");
    assert_eq!((steps[1].1.as_str(), steps[1].2.as_str()), ("odd", "PMI_PORT is set, but PMI_FD is not"));
    let (status, steps, _) = examined(&["--server", &serve("--pmi-port"), "--connection", "port"]);
    assert_eq!(status, 0, "{steps:?}");
    assert!(steps.iter().any(|step| step.2 == "PMI_PORT"), "{steps:?}");
}

#[test]
fn examines_programs_and_libraries() {
    let (status, steps, _) = examined(&["--client", FAULTY_PROGRAM]);
    assert_eq!(status, 0, "{steps:?}");
    assert!(steps.iter().any(|step| step.0 == "requests" && step.2.contains("get_maxes")), "{steps:?}");
    let (status, steps, _) = examined(&["--client", "true"]);
    assert_eq!((status, steps[0].0.as_str()), (1, "speaks PMI"), "{steps:?}");
    let ran = conform(Path::new("."), &["doctor", "--server", "no-such-manager {ranks} {agent}"]);
    assert_eq!(ran.status, 2, "{}", ran.whole());
}

/// A get of another rank's value breaks a requirement if there is no barrier between the put and the get, regardless of the response.
#[test]
fn reports_missing_barrier_in_a_program() {
    let (_, steps, _) = examined(&["--client", &format!("{FAULTY_PROGRAM} gets-before-the-barrier")]);
    let end = steps.last().unwrap();
    let named =
        end.2.contains("rfc13.put.visible-after-barrier") && end.2.contains("no barrier between the put");
    assert!(end.1 != "works" && named, "{steps:?}");
}

/// The files that `init` writes are valid, and the drafted deviations cover the findings.
#[test]
fn init_writes_valid_files_and_overwrites_none() {
    let folder = TempDir::new().unwrap();
    let server = serve("--fault get-missing-rc-zero --vary names-refused");
    let filters = [
        "-f",
        "kvs/missing-key[before-any-put]",
        "-f",
        "=kvs/exchange[own-key]",
        "-f",
        "=names/found[own-name]",
    ];
    let init = |more: &[&str]| {
        let options = ["init", "--server", &server, "--repeat", "2", "-j1", "--lacks", "spawn"];
        conform(folder.path(), &[&options[..], &filters, more].concat())
    };
    let ran = init(&["--ci", "both"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(
        ran.out.contains("1 entry; add its reason")
            && ran.out.contains("next: pmi-conform --server @pmi-conform.toml --retries 3 --filter 'kvs/missing-key[before-any-put]' "),
        "{}",
        ran.out
    );
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    let profile = read("pmi-conform.toml");
    assert!(profile.contains("lacks = [\"spawn\", \"names\"]"), "{profile}");
    let known = read("pmi-conform-deviations.toml");
    assert!(known.contains("requirement = \"rfc13.error.rc-nonzero\""), "{known}");
    let ran = conform(folder.path(), &[&["--server", "@pmi-conform.toml", "-q"], &filters[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("1 known") && ran.out.contains("1 not applicable"), "{}", ran.out);

    // The lines of the CI files that contain these keys are the same as in the sample repository, except for the name of the profile and
    // the filters.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/example");
    for (ours, sample, keys) in [
        (
            ".github/workflows/pmi-conform.yml",
            "github.yml",
            &["uses:", "server:", "on:", "persist-credentials:", "args:", "--retries"][..],
        ),
        (".gitlab/pmi-conform.yml", "gitlab-ci.yml", &["remote:", "extends:", "PMI_SERVER:", "PMI_ARGS:"]),
    ] {
        let sample =
            std::fs::read_to_string(root.join(sample)).unwrap().replace("@manager.toml", "@pmi-conform.toml");
        let lines = |text: &str| -> Vec<String> {
            let code = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            code.filter(|line| keys.iter().any(|key| line.contains(key))).map(str::to_owned).collect()
        };
        let written = read(ours);
        assert_eq!(lines(&written.replace(" --filter=", "\n--filter=")), lines(&sample), "{ours}");
        assert_eq!(written.matches("--filter=").count(), 3, "{written}");
        assert!(!lines(&sample).is_empty());
    }

    std::fs::remove_file(folder.path().join("pmi-conform.toml")).unwrap();
    let ran = init(&["--ci", "none"]);
    assert_eq!(ran.status, 2, "{}", ran.whole());
    assert!(ran.err.contains("pmi-conform-deviations.toml: already exists"), "{}", ran.err);
    assert!(!folder.path().join("pmi-conform.toml").exists());
    assert_eq!(read("pmi-conform-deviations.toml"), known);
}

#[test]
fn init_writes_nothing_if_launch_fails() {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &["init", "--server", "false {ranks} {agent}"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.out.contains("FAILS  started"), "{}", ran.out);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
