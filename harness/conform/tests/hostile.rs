//! Tests with implementations that crash, hang, flood, fork or leave processes behind. Such an implementation must affect only one scenario,
//! not the whole run, and none of its processes may survive.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use pmi_test_programs::{CASES, HOSTILE_MANAGER, side_by_side};

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn hostile(mode: &str) -> String {
    format!("{HOSTILE_MANAGER} {mode} {{ranks}} {{agent}}")
}

/// Returns a command that runs shell commands and then the reference process manager.
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
    assert_eq!(left, Vec::<PathBuf>::new(), "scratch folders are left");
    let log = log + &String::from_utf8_lossy(&output.stderr);
    Run { verdicts, log, status: output.status.code().unwrap_or(-1) }
}

fn run(args: &[&str]) -> Run {
    let scratch = tempfile::tempdir().unwrap();
    let output = command(scratch.path(), args).output().unwrap();
    read(scratch.path(), &output)
}

/// Options for tests in which every wait lasts until the timeout, because silence cannot be proved. The start timeout is longer, because
/// processes may be slow to start.
const SHORT_TIMEOUTS: [&str; 4] = ["--timeout", "1", "--start-timeout", "20"];

fn one(server: &str) -> Run {
    run(&["--server", server, "--filter", "=group/facts[appnum]", "--timeout", "20"])
}

/// Returns the processes that sleep for this number of seconds.
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

/// Returns a duration for `sleep`, in seconds, that no other process uses.
fn unique_sleep(salt: u32) -> String {
    format!("86400.{}{salt}", std::process::id())
}

#[test]
fn reports_crashes_during_and_after_startup() {
    for server in ["sh -c 'kill -SEGV $$' {ranks} {agent}".to_owned(), hostile("crash")] {
        let run = one(&server);
        assert_eq!((run.only(), run.status), ("crashed", 1), "{}", run.log);
        assert!(run.log.contains("died of signal"), "{}", run.log);
    }
}

/// A process manager that dies when it receives an offer counts as lacking the offered version. Only the scenario about the offer is red.
#[test]
fn crash_on_a_version_offer_is_reported_once() {
    let needs_version = ["pmi12/again", "pmi2/init/fullinit"];
    let filters =
        ["-f", "=init/first-offer[subversion-2]", "-f", "=pmi12/again", "-f", "=pmi2/init/fullinit"];
    let server = hostile("crash");
    let run = run(&[&["--server", &server, "--dialect", "all", "--timeout", "20"][..], &filters].concat());
    assert_eq!(
        (run.verdicts["init/first-offer[subversion-2]"].as_str(), run.status),
        ("crashed", 1),
        "{}",
        run.log
    );
    for name in needs_version {
        assert_eq!(run.verdicts[name], "not_applicable", "{}", run.log);
    }
    assert!(run.log.contains("closed the connection, and "), "{}", run.log);
}

#[test]
fn unanswered_request_fails_the_scenario() {
    let run = run(&["--server", &hostile("silent"), "--filter", "=init/version-equal", "--timeout", "20"]);
    assert_eq!((run.only(), run.status), ("fail", 1), "{}", run.log);
}

#[test]
fn polling_server_fails_only_after_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("polls.pmi");
    let text = "# A server that polls.
requires rfc13.wire.lock-step
ranks 1

0  send    cmd=init pmi_version=1 pmi_subversion=1
0  expect  cmd=response_to_init rc=ok
0  expect  <silence>
0  expect  <one of>
     pass: <silence>
     pass: <closes>
0  send    cmd=get_appnum
0  expect  cmd=appnum rc=ok
";
    fs::write(&scenario, text).unwrap();
    let scenario = scenario.to_str().unwrap();
    let run = run(&["--server", &hostile("polls"), "--timeout", "2", scenario]);
    assert_eq!((run.only(), run.status), ("fail", 1), "{}", run.log);
    let proofs: Vec<&str> = run.log.split(r#""nothing":{"proof":""#).skip(1).collect();
    let proofs: Vec<&str> = proofs.iter().map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(proofs, ["polled", "polled", "timeout"], "{}", run.log);
}

#[test]
fn wait_with_socket_timeout_does_not_prove_silence() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("late.pmi");
    let text = "# A late answer.
requires rfc13.abnf.s-init
ranks 1

0  send    cmd=init pmi_version=1 pmi_subversion=1
0  expect  cmd=response_to_init rc=ok
";
    fs::write(&scenario, text).unwrap();
    let run = run(&["--server", &hostile("late"), "--timeout", "20", scenario.to_str().unwrap()]);
    assert_eq!((run.only(), run.status), ("pass", 0), "{}", run.log);
}

#[test]
fn sleeping_and_noisy_servers_fail() {
    side_by_side(&["hang", "noise"], |mode| {
        let server = hostile(mode);
        let run =
            run(&[&["--server", &server, "--filter", "=init/version-equal"], &SHORT_TIMEOUTS[..]].concat());
        assert_eq!((run.only(), run.status), ("fail", 1), "{mode}: {}", run.log);
    });
}

#[test]
fn names_the_rank_whose_request_was_not_read() {
    let server = format!("python3 {CASES}/one_rank_after_another.py -n {{ranks}} {{agent}}");
    let run = run(&[
        "--server",
        &server,
        "--filter",
        "=barrier/every-order[two-ranks-either-first]",
        "--timeout",
        "20",
    ]);
    assert_eq!((run.only(), run.status), ("fail", 1), "{}", run.log);
    assert!(run.log.contains("request not read: the data from rank 1 is still in its socket"), "{}", run.log);
    assert!(run.log.contains(r#"{"not_read":{"proc":{"group":0,"rank":1}}}"#), "{}", run.log);
    assert!(!run.log.contains("has read everything"), "{}", run.log);
}

/// The unread request is the only reported cause, regardless of the scenario.
#[test]
fn unread_request_breaks_only_one_requirement() {
    let server = format!("python3 {CASES}/one_rank_after_another.py -n {{ranks}} {{agent}}");
    let scenarios = [
        "=init/every-rank",
        "=init/written[leading-zeros]",
        "=init/version-lower",
        "=wire/every-request-split",
    ];
    let filters = scenarios.iter().flat_map(|scenario| ["--filter", *scenario]);
    let args: Vec<&str> = ["--server", &server, "--timeout", "20"].into_iter().chain(filters).collect();
    let run = run(&args);
    assert_eq!(run.verdicts.len(), scenarios.len(), "{}", run.log);
    let results = run.log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    for result in results.filter(|line| line["type"] == "result") {
        let cited = result["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["finding"]["requirement"].as_str().unwrap());
        assert_eq!(cited.collect::<Vec<_>>(), ["rfc13.wire.lock-step"], "{result}");
    }
}

/// A start timeout that is shorter than the agent's wait for the response does not hide the broken requirement.
#[test]
fn unanswered_initack_breaks_a_requirement() {
    let server = format!("{CONFORM} serve --pmi-port --fault initack-unanswered -n {{ranks}} {{agent}}");
    let args = ["--server", &server, "--connection", "port", "--filter", "=kvs/exchange[own-key]"];
    let run = run(&[&args[..], &["--start-timeout", "1"]].concat());
    assert_eq!((run.only(), run.status), ("fail", 1), "{}", run.log);
    assert!(run.log.contains("pmi-port.answered"), "{}", run.log);
}

#[test]
fn manager_that_starts_only_small_jobs_fails() {
    let server = after("if [ {ranks} -gt 2 ]; then echo pm: out of slots >&2; exit 1; fi;");
    let filter = ["--filter", "=barrier/every-order[five-ranks-last-in-first]", "--timeout", "20"];
    let run = run(&[&["--server", &server], &filter[..]].concat());
    assert_eq!((run.only(), run.status), ("fail", 1), "{}", run.log);
    assert!(run.log.contains("iut.starts") && run.log.contains("pm: out of slots"), "{}", run.log);
}

/// Every job of this manager conforms if it runs alone, but concurrent jobs share a single barrier count.
#[test]
fn retries_do_not_hide_interference() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("count");
    let play = |jobs: &str, more: &[&str]| {
        let server = format!(
            "python3 {CASES}/shared_barrier_count.py {} {jobs} -n {{ranks}} {{agent}}",
            state.display()
        );
        let args = [
            "--server",
            &server,
            "--filter",
            "=barrier/in-a-row[fifty-in-a-row]",
            "--timeout",
            "20",
            "-j",
            jobs,
        ];
        run(&[&args[..], &["--filter", "=barrier/in-a-row[two-hundred-in-a-row]"], more].concat())
    };
    let alone = play("1", &[]);
    assert_eq!(alone.status, 0, "{}", alone.log);
    fs::remove_file(folder.path().join("count.jobs")).unwrap();
    let beside = play("2", &["--retries", "2"]);
    assert_eq!(beside.status, 1, "{}", beside.log);
    let results = beside.log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let findings: Vec<serde_json::Value> = results
        .filter(|line| line["type"] == "result")
        .flat_map(|result| result["findings"].as_array().unwrap().clone())
        .map(|judged| judged["finding"].clone())
        .collect();
    assert!(!findings.is_empty(), "{}", beside.log);
    for finding in findings {
        assert_eq!(finding["requirement"], "iut.jobs-apart", "{finding}");
        let seen = finding["seen"].as_str().unwrap();
        assert!(seen.contains("alongside barrier/"), "{seen}");
    }
    assert!(beside.log.contains(r#""beside":[{"scenario":"barrier/"#), "{}", beside.log);
}

#[test]
fn reports_flood_and_junk_without_bloating_the_log() {
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
fn missing_or_wrong_descriptor_breaks_a_requirement() {
    for (mode, requirement) in [("no-fd", "rfc13.env.pmi-fd"), ("wrong-fd", "rfc13.connection.preconnected")]
    {
        let run = one(&hostile(mode));
        assert_eq!((run.only(), run.status), ("fail", 1), "{mode}: {}", run.log);
        assert!(run.log.contains(requirement), "{mode}: {}", run.log);
    }
}

#[test]
fn agents_report_without_their_name_or_environment() {
    // The process manager exits at the first request. The runner sends a request only after all agents have reported, so this failure shows
    // that they have.
    let run = one(&hostile("renamed"));
    assert_eq!(run.only(), "fail", "{}", run.log);
}

#[test]
fn reports_and_kills_background_processes() {
    let sleep = unique_sleep(1);
    let server = format!("sh -c '(sleep {sleep} &) ; exit 0' {{ranks}} {{agent}}");
    let run = one(&server);
    assert_eq!((run.only(), run.status), ("unjudged", 3), "{}", run.log);
    assert!(run.log.contains("went into the background"), "{}", run.log);
    assert_eq!(sleeping(&sleep), Vec::<String>::new());
}

#[test]
fn kills_processes_left_by_a_manager() {
    let sleep = unique_sleep(2);
    // The first `sleep` has a clean environment and its own session, so only its parent identifies it.
    let server = after(&format!("env -i PATH=\"$PATH\" setsid sleep {sleep} & sleep {sleep} &"));
    for jobs in ["1", "2"] {
        let run = run(&["--server", &server, "--filter", "group/", "-j", jobs, "--timeout", "20"]);
        assert_eq!(run.status, 0, "{}", run.log);
        assert_eq!(sleeping(&sleep), Vec::<String>::new());
    }
}

/// A manager whose launcher hands its jobs to a daemon. The test starts this daemon, so the daemon is not a descendant of pmi-conform. Each
/// job continues after its processes have ended.
struct Daemon {
    folder: tempfile::TempDir,
    process: Child,
    /// Number of seconds for which the job sleeps after its processes have ended. The launcher sleeps for the same time after it has handed
    /// the job to the daemon.
    sleep: String,
}

impl Daemon {
    fn start(salt: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sleep = unique_sleep(salt);
        let launcher = format!(
            "cd {}; trap 'echo told to end; exit 7' TERM\n\
             echo 'echo $$ >job.pid; {CONFORM} serve -n '$2' -- '$3'; exec sleep {sleep}' >$1\n\
             echo $1 >jobs; sleep {sleep} & wait",
            folder.path().display(),
        );
        fs::write(folder.path().join("launcher"), launcher).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "mkfifo jobs; while read job <jobs; do setsid sh ./$job & done"]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        while !folder.path().join("jobs").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { folder, process, sleep }
    }

    /// Plays a scenario that passes. Returns the run and the reports about the job's end.
    fn run(&self, cancel: &str) -> (Run, Vec<serde_json::Value>) {
        let launcher = self.folder.path().join("launcher");
        let profile = self.folder.path().join("profile.toml");
        let command = format!("command = 'sh {} {{job}} {{ranks}} {{agent}}'", launcher.display());
        fs::write(&profile, format!("name = 'x'\n{command}\n{cancel}\n")).unwrap();
        let server = format!("@{}", profile.display());
        let run =
            run(&[&["--server", &server, "--filter", "=group/facts[appnum]"], &SHORT_TIMEOUTS[..]].concat());
        let lines = run.log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let what = lines.filter(|line| line["type"] == "event").map(|line| line["event"]["what"].clone());
        let is_ending =
            |what: &serde_json::Value| what["job_stays"].is_object() || what["job_ending"].is_object();
        let ending = what.filter(is_ending).collect();
        (run, ending)
    }

    fn cancel(&self) -> String {
        format!("test -e {0}/{{job}} && kill $(cat {0}/job.pid)", self.folder.path().display())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn sends_sigterm_to_the_launcher_of_a_lingering_job() {
    let daemon = Daemon::start(4);
    let (run, ending) = daemon.run("");
    assert_eq!((run.only(), run.status), ("note", 0), "{}", run.log);
    assert!(run.log.contains("de-facto.job.ends"), "{}", run.log);
    assert_eq!(ending[0]["job_stays"]["names"], serde_json::json!(["sh", "sleep"]), "{ending:?}");
    assert_eq!(ending[1]["job_ending"]["asked"]["exit"]["code"], 7, "{ending:?}");
    assert_eq!(ending[2]["job_ending"]["killed"]["names"], serde_json::json!(["sleep"]), "{ending:?}");
    assert!(run.log.contains("told to end"), "{}", run.log);
    // If the runner could terminate the daemon's part of the job, the test of `cancel` would prove nothing.
    assert_eq!(sleeping(&daemon.sleep).len(), 1);
    let end =
        Command::new("sh").args(["-c", "kill $(cat job.pid)"]).current_dir(daemon.folder.path()).status();
    assert!(end.unwrap().success());
}

#[test]
fn deviations_apply_to_a_rebuilt_manager() {
    let folder = tempfile::TempDir::new().unwrap();
    let source = include_str!("../../test-programs/c/crashes-at-a-line.c");
    let builds = [("one", ""), ("two", "// One line more.\n")].map(|(name, more)| {
        let file = folder.path().join(name);
        fs::write(file.with_extension("c"), format!("{more}{source}")).unwrap();
        let built = Command::new("cc").arg("-g").arg("-o").arg(&file).arg(file.with_extension("c")).status();
        assert!(built.unwrap().success());
        file
    });
    let server = |file: &Path| format!("{} -n {{ranks}} {{agent}}", file.display());
    let draft = folder.path().join("draft.toml");
    let only = ["--filter", "=kvs/get-of-nothing"];
    let drafted =
        run(&[&["--server", &server(&builds[0]), "--draft-deviations", draft.to_str().unwrap()][..], &only]
            .concat());
    assert_eq!((drafted.only(), drafted.status), ("crashed", 1), "{}", drafted.log);
    let text = fs::read_to_string(&draft).unwrap();
    let symptom = text.lines().find_map(|line| line.strip_prefix("symptom = ")).unwrap();
    assert!(["\"signal 11 (in fn_get)\"", "\"signal 11\""].contains(&symptom), "{text}");
    let rebuilt =
        run(&[&["--server", &server(&builds[1]), "--deviations", draft.to_str().unwrap()][..], &only]
            .concat());
    assert_eq!((rebuilt.only(), rebuilt.status), ("crashed", 0), "{}", rebuilt.log);
}

#[test]
fn cancels_job_with_the_command_in_the_profile() {
    let daemon = Daemon::start(5);
    let (run, ending) = daemon.run(&format!("cancel = '{}'", daemon.cancel()));
    assert_eq!((run.only(), run.status), ("note", 0), "{}", run.log);
    assert_eq!(ending[2]["job_ending"]["cancelled"]["exit"]["code"], 0, "{ending:?}");
    assert_eq!(sleeping(&daemon.sleep), Vec::<String>::new());
}

#[test]
fn gives_up_on_launcher_that_starts_nothing() {
    let filter = ["--filter", "init/", "--filter", "maxes/"];
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
fn verdicts_do_not_depend_on_parallelism() {
    let filter = ["--filter", "group/", "--filter", "init/version", "--filter", "barrier/in-a-row[one-rank]"];
    for server in [after(":;"), hostile("junk")] {
        let play = |jobs: &str| run(&[&filter[..], &["--server", &server, "-j", jobs]].concat());
        let (alone, two) = (play("1"), play("2"));
        assert_eq!((alone.verdicts, alone.status), (two.verdicts, two.status));
    }
}

#[test]
fn exit_code_reflects_the_type_of_failure() {
    for (args, status) in [
        (&["--filter", "=group/facts[appnum]"][..], 0),
        (&["--filter", "=group/facts[appnum]", "--server", "pm {rank} {agent}"], 2),
        (&["/no/such/scenario.pmi"], 2),
        (&["--filter", "=group/facts[appnum]", "--server", "/no/such/manager {ranks} {agent}"], 2),
        (&["--filter", "=group/facts[appnum]", "--server", "false {ranks} {agent}"], 3),
        (&["--filter", "no such scenario"], 2),
        (&["--filter", "=names/found[own-name]", "--lacks", "names"], 4),
    ] {
        let run = run(args);
        assert_eq!(run.status, status, "{args:?}: {}", run.log);
    }
}

#[test]
fn ctrl_c_ends_the_run_and_its_processes() {
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

/// With `--connection port`, scenarios are played over connections that the processes open themselves, and scenarios about PMI_FD are not
/// played.
#[test]
fn processes_may_connect_through_pmi_port() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmi-conform"));
    let output = command
        .args([
            "--connection",
            "port",
            "-v",
            "-f",
            "port/",
            "-f",
            "environment/",
            "-f",
            "kvs/exchange[one-puts-all-read]",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("pass  port/spawned"), "{text}");
    assert!(text.contains("pass  pmi2/kvs/exchange[one-puts-all-read]"), "{text}");
    assert!(text.contains("not applicable  environment/variables[group]"), "{text}");
}
