//! Tests that all measurements are present, and that failures to measure are reported. No test asserts a duration.

use std::process::{Command, Output};

use pmi_test_programs::HOSTILE_MANAGER;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn measure(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(CONFORM).arg("measure").args(["--rounds", "2"]).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn measures_each_phase_for_each_rank_count() {
    let (status, report, _) = measure(&["--ranks", "4,1,2", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let measured = report[0]["measured"].as_array().unwrap();
    let ranks: Vec<u64> = measured.iter().map(|of| of["ranks"].as_u64().unwrap()).collect();
    assert_eq!((status, ranks), (0, vec![1, 2, 4]));
    for of in measured {
        let seconds = of["seconds"].as_object().unwrap();
        assert_eq!(seconds.len(), 12);
        assert!(seconds.values().all(|took| took.as_f64().unwrap() > 0.0), "{of}");
        assert!(of["memory"].as_u64().unwrap() > 0);
        assert!(of["requests_per_second"].as_f64().unwrap() > 0.0);
        // Each value has 64 bytes, and its key takes additional memory.
        assert!(of["memory_per_key"].as_f64().unwrap() > 64.0, "{of}");
    }
    assert_eq!(report[0]["growth"].as_object().unwrap().len(), 12);
    assert!(report[0]["memory_per_rank"].is_number());
}

#[test]
fn measures_pmi2_without_excluded_operations() {
    let (status, report, error) =
        measure(&["--ranks", "2", "--dialect", "pmi-2", "--lacks", "spawn,names", "--json"]);
    assert_eq!(status, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let seconds = report[0]["measured"][0]["seconds"].as_object().unwrap();
    let mut names: Vec<&str> = seconds.keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected =
        ["end", "fence", "first-fence", "get-missing", "get-other", "get-own", "init", "put", "start"];
    assert_eq!(names, expected);
    // All measurements also work in PMI-2.
    let (status, report, error) = measure(&["--ranks", "2", "--dialect", "pmi-2"]);
    assert_eq!(status, 0, "{error}");
    assert!(["publish", "lookup", "spawn"].iter().all(|name| report.contains(name)), "{report}");
}

#[test]
fn omits_refused_and_reports_unanswered_operations() {
    let faulty = |fault: &str| format!("{CONFORM} serve --fault {fault} -n {{ranks}} -- {{agent}}");
    let (status, report, error) =
        measure(&["--server", &faulty("names-second-publish-refused"), "--ranks", "2"]);
    assert_eq!(status, 0, "{error}");
    assert!(
        !report.contains("publish |") && !report.contains("lookup |") && report.contains("spawn |"),
        "{report}"
    );
    let silent = faulty("spawn-no-answer");
    let (status, _, error) = measure(&["--server", &silent, "--ranks", "2", "--timeout", "5"]);
    assert_eq!(status, 3);
    assert!(error.contains("spawn with 2 ranks: no response"), "{error}");
    let (status, report, error) = measure(&["--server", &silent, "--ranks", "2", "--lacks", "spawn"]);
    assert_eq!(status, 0, "{error}");
    assert!(report.contains("lookup") && !report.contains("spawn |"), "{report}");
}

#[test]
fn page_has_a_plot_for_each_measurement() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let report = format!("html={}", page.display());
    let (status, _, error) = measure(&["--ranks", "1,2,4", "--report", &report]);
    assert_eq!(status, 0, "{error}");
    let text = std::fs::read_to_string(page).unwrap();
    // There is a plot for each phase, and there are plots for requests and memory. Each plot has a point for each number of ranks.
    assert_eq!((text.matches("<svg").count(), text.matches("<circle").count()), (14, 3 * 14));
    let (status, _, error) = measure(&["--report", "pdf=x"]);
    assert_eq!(status, 2);
    assert!(error.contains("use html=FILE"), "{error}");
}

#[test]
fn compares_managers_on_several_nodes() {
    let serve = format!("{CONFORM} serve -n {{ranks}} --nodes {{nodes}} -- {{agent}}");
    let (status, report, error) =
        measure(&["--server", &serve, "--server", &serve, "--ranks", "2", "--nodes", "2"]);
    assert_eq!(status, 0, "{error}");
    let (first, second) = report.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
    assert!(!first.contains("x)") && second.matches("x)").count() >= 9, "{report}");
}

#[test]
fn exceeded_budget_fails_the_run() {
    let (status, _, error) = measure(&["--ranks", "2", "--budget", "barrier=0", "--budget", "end=1000"]);
    assert_eq!(status, 1);
    assert_eq!(error.matches("over the budget").count(), 1, "{error}");
    assert!(error.contains("barrier with 2 ranks"), "{error}");
    let (status, _, error) = measure(&["--budget", "barier=1"]);
    assert_eq!(status, 2);
    assert!(error.contains("the phases are start, init, first-barrier"), "{error}");
}

#[test]
fn reports_phase_that_cannot_be_measured() {
    for (mode, expected) in [
        ("silent", "init with 1 rank: no response"),
        ("crash", "init with 1 rank: "),
        ("no-fd", "no connection"),
    ] {
        let server = format!("{HOSTILE_MANAGER} {mode} {{ranks}} {{agent}}");
        let (status, _, error) = measure(&["--server", &server, "--ranks", "1", "--timeout", "5"]);
        assert_eq!(status, 3, "{mode}: {error}");
        assert!(error.contains(expected), "{mode}: {error}");
    }
    // Several jobs with one process each do not form a job with several ranks, and neither do processes that share a rank.
    for (wrong, expected) in [("PMI_SIZE=1", "PMI_SIZE=1"), ("PMI_RANK=0", "two processes have PMI_RANK=0")] {
        let server = format!("{CONFORM} serve -n {{ranks}} -- env {wrong} {{agent}}");
        let (status, _, error) = measure(&["--server", &server, "--ranks", "1,2"]);
        assert_eq!(status, 3, "{wrong}: {error}");
        assert!(error.contains("start with 2 ranks: ") && error.contains(expected), "{wrong}: {error}");
    }
    // The results of the other server, and of the phases before the failure, are printed.
    let (good, faulty) = (
        format!("{CONFORM} serve -n {{ranks}} -- {{agent}}"),
        format!("{CONFORM} serve --fault get-missing-silent -n {{ranks}} -- {{agent}}"),
    );
    let (status, report, error) =
        measure(&["--server", &good, "--server", &faulty, "--ranks", "2", "--timeout", "5", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let seconds = |server: usize| report[server]["measured"][0]["seconds"].as_object().unwrap();
    assert_eq!(status, 3, "{error}");
    assert!(error.contains("get-missing with 2 ranks: no response"), "{error}");
    assert!(seconds(0).contains_key("end") && seconds(1).contains_key("get-own"), "{report}");
    assert!(!seconds(1).contains_key("get-missing"), "{report}");
    assert!(report[1]["measured"][0]["requests_per_second"].is_null(), "{report}");
    let (status, _, error) = measure(&["--server", "mpiexec-that-is-not-there {ranks} {agent}"]);
    assert_eq!(status, 2, "{error}");
}

/// A soak test finds a race that needs concurrent requests from two ranks.
#[test]
fn soak_samples_the_manager_and_detects_a_race() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let report = format!("html={}", page.display());
    let soak = |server: &str, more: &[&str]| {
        let mut command = Command::new(CONFORM);
        command.args(["measure", "--server", server, "--ranks", "4", "--soak", "2", "--requests", "4000"]);
        let Output { status, stdout, stderr } = command.args(more).output().unwrap();
        (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
    };
    for dialect in ["pmi-1.1", "pmi-2"] {
        let serve = format!("{CONFORM} serve -n {{ranks}} -- {{agent}}");
        let (status, report) = soak(&serve, &["--dialect", dialect, "--json", "--report", &report]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let samples = report[0]["soak"]["samples"].as_array().unwrap();
        assert_eq!((status, report[0]["soak"]["findings"].as_array().unwrap().len()), (0, 0), "{report}");
        assert!(samples.iter().all(|sample| sample["descriptors"].as_u64().unwrap() > 4), "{report}");
        let requests = |at: usize| samples[at]["requests"].as_u64().unwrap();
        assert!(requests(0) == 0 && requests(samples.len() - 1) > 0, "{report}");
        let text = std::fs::read_to_string(&page).unwrap();
        assert_eq!((text.matches("<svg").count(), text.matches("<circle").count()), (2, 2 * samples.len()));
    }
    let serve = format!("{CONFORM} serve --fault race-get-half -n {{ranks}} -- {{agent}}");
    let (status, report) = soak(&serve, &[]);
    assert!(status == 1 && report.contains("rfc13.get.value: expected"), "{report}");
}
