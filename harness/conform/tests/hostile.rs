//! Implementations that crash, hang, flood, fork away or leave things behind cost one scenario, never the run; and
//! nothing is left of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pmi_test_programs::HOSTILE_MANAGER;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn hostile(mode: &str) -> String {
    format!("{HOSTILE_MANAGER} {mode} {{ranks}} {{agent}}")
}

/// The reference process manager after some lines of shell.
fn after(shell: &str) -> String {
    format!("sh -c '{shell} exec {CONFORM} serve -n {{ranks}} -- {{agent}}'")
}

struct Run {
    verdicts: BTreeMap<String, String>,
    log: String,
    status: i32,
}

impl Run {
    fn only(&self) -> &str {
        assert_eq!(self.verdicts.len(), 1, "{}", self.log);
        self.verdicts.values().next().unwrap()
    }
}

fn command(scratch: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(CONFORM);
    command.args(args).args(["--report", "ndjson"]).env("TMPDIR", scratch).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("PMI_CONFORM_SERVER").env_remove("PMI_CONFORM_TIMEOUT");
    command
}

fn read(scratch: &Path, output: &Output) -> Run {
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut verdicts = BTreeMap::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["type"] == "result" {
            let verdict = line["verdict"].as_str().unwrap().to_owned();
            verdicts.insert(line["scenario"].as_str().unwrap().to_owned(), verdict);
        }
    }
    let left: Vec<PathBuf> = fs::read_dir(scratch).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "scratch is left");
    let log = log + &String::from_utf8_lossy(&output.stderr);
    Run { verdicts, log, status: output.status.code().unwrap_or(-1) }
}

fn run(args: &[&str]) -> Run {
    let scratch = tempfile::tempdir().unwrap();
    let output = command(scratch.path(), args).output().unwrap();
    read(scratch.path(), &output)
}

fn one(server: &str) -> Run {
    run(&["--server", server, "--filter", "=group/appnum", "--timeout", "20"])
}

/// Processes that sleep for so long.
fn sleeping(seconds: &str) -> Vec<String> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(|n| n.parse::<u32>().is_ok()))
        .filter_map(|e| fs::read(e.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.starts_with("sleep ") && line.contains(seconds))
        .collect()
}

/// A number of seconds that no other process sleeps.
fn unique_sleep(salt: u32) -> String {
    format!("86400.{}{salt}", std::process::id())
}

#[test]
fn a_crash_is_a_crash_at_the_start_and_later() {
    for server in ["sh -c 'kill -SEGV $$' {ranks} {agent}".to_owned(), hostile("crash")] {
        let run = one(&server);
        assert_eq!((run.only(), run.status), ("crashed", 1), "{}", run.log);
        assert!(run.log.contains("died of signal"), "{}", run.log);
    }
}

#[test]
fn who_never_answers_has_hung() {
    let run = run(&["--server", &hostile("silent"), "--filter", "=init/version-equal", "--timeout", "20"]);
    assert_eq!((run.only(), run.status), ("hung", 1), "{}", run.log);
}

#[test]
fn who_sleeps_has_hung_and_so_has_who_only_makes_noise() {
    for mode in ["hang", "noise"] {
        let run = run(&["--server", &hostile(mode), "--filter", "=init/version-equal", "--timeout", "4"]);
        assert_eq!((run.only(), run.status), ("hung", 1), "{mode}: {}", run.log);
    }
}

#[test]
fn floods_and_junk_fail_and_are_cut() {
    for (mode, requirement) in [
        ("flood", "rfc13.wire.newline"),
        ("flood-lines", "rfc13.wire.response-matches-request"),
        ("junk", "rfc13.wire.tuples"),
    ] {
        let run = one(&hostile(mode));
        assert_eq!((run.only(), run.status), ("fail", 1), "{mode}");
        assert!(run.log.contains(requirement), "{mode}");
        assert!(run.log.len() < 64 << 20, "{mode}: a log of {} bytes", run.log.len());
    }
}

#[test]
fn a_missing_descriptor_is_told_as_such() {
    for (mode, requirement) in [("no-fd", "rfc13.env.pmi-fd"), ("wrong-fd", "rfc13.connection.preconnected")]
    {
        let run = one(&hostile(mode));
        assert_eq!((run.only(), run.status), ("fail", 1), "{mode}: {}", run.log);
        assert!(run.log.contains(requirement), "{mode}: {}", run.log);
    }
}

#[test]
fn agents_know_themselves_without_name_and_environment() {
    // The process manager ends at the first request; that there was one shows that all agents have reported.
    let run = one(&hostile("renamed"));
    assert_eq!(run.only(), "fail", "{}", run.log);
}

#[test]
fn who_forks_away_is_told_so_and_is_ended() {
    let sleep = unique_sleep(1);
    let server = format!("sh -c '(sleep {sleep} &) ; exit 0' {{ranks}} {{agent}}");
    let run = one(&server);
    assert_eq!((run.only(), run.status), ("unjudged", 3), "{}", run.log);
    assert!(run.log.contains("went into the background"), "{}", run.log);
    assert_eq!(sleeping(&sleep), Vec::<String>::new());
}

#[test]
fn what_a_good_manager_leaves_behind_is_ended() {
    let sleep = unique_sleep(2);
    // With its environment cleaned and a session of its own, only the parent gives it away.
    let server = after(&format!("env -i PATH=\"$PATH\" setsid sleep {sleep} & sleep {sleep} &"));
    for jobs in ["1", "2"] {
        let run = run(&["--server", &server, "--filter", "group/", "-j", jobs, "--timeout", "20"]);
        assert_eq!(run.status, 0, "{}", run.log);
        assert_eq!(sleeping(&sleep), Vec::<String>::new());
    }
}

#[test]
fn who_starts_nothing_is_given_up_on_alike_side_by_side() {
    let filter = ["--filter", "init/", "--filter", "mapping/"];
    let server = ["--server", "true {ranks} {agent}"];
    let runs: Vec<Run> =
        ["1", "2"].iter().map(|jobs| run(&[&filter[..], &server, &["-j", jobs]].concat())).collect();
    assert_eq!(runs[0].verdicts, runs[1].verdicts);
    for run in &runs {
        assert_eq!(run.status, 3, "{}", run.log);
        assert!(run.verdicts.values().all(|v| v == "unjudged"));
        let tried = run.log.lines().filter(|l| l.contains("\"type\":\"result\"") && l.contains("not tried"));
        assert_eq!(tried.count(), run.verdicts.len() - 5, "{}", run.log);
    }
    let all = run(&[&filter[..], &server, &["--no-give-up"]].concat());
    assert!(!all.log.contains("not tried"), "{}", all.log);
}

#[test]
fn verdicts_do_not_depend_on_how_many_are_played_side_by_side() {
    let filter = ["--filter", "group/", "--filter", "init/version", "--filter", "barrier/one-rank"];
    for server in [after(":;"), hostile("junk")] {
        let play = |jobs: &str| run(&[&filter[..], &["--server", &server, "-j", jobs]].concat());
        let (alone, two) = (play("1"), play("2"));
        assert_eq!((alone.verdicts, alone.status), (two.verdicts, two.status));
    }
}

#[test]
fn exit_codes() {
    for (args, status) in [
        (&["--filter", "=group/appnum"][..], 0),
        (&["--filter", "=group/appnum", "--server", "pm {rank} {agent}"], 2),
        (&["/no/such/scenario.pmi"], 2),
        (&["--filter", "=group/appnum", "--server", "/no/such/manager {ranks} {agent}"], 3),
        (&["--filter", "no such scenario"], 4),
    ] {
        let run = run(args);
        assert_eq!(run.status, status, "{args:?}: {}", run.log);
    }
}

#[test]
fn ctrl_c_ends_the_run_and_everything_in_it() {
    let sleep = unique_sleep(3);
    let server = format!("sh -c 'sleep {sleep} & wait' {{ranks}} {{agent}}");
    let scratch = tempfile::tempdir().unwrap();
    let child: Child =
        command(scratch.path(), &["--server", &server, "-j", "2", "--timeout", "600"]).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while sleeping(&sleep).is_empty() {
        assert!(Instant::now() < patience, "the manager was not started");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let run = read(scratch.path(), &child.wait_with_output().unwrap());
    assert_eq!(run.status, 130, "{}", run.log);
    assert!(run.verdicts.is_empty(), "{}", run.log);
    assert_eq!(sleeping(&sleep), Vec::<String>::new());
}
