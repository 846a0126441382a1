//! Tests of `pmi-conform record` as a user runs it, under our own process manager and under real process managers.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ran, conform};
use pmi_test_programs::{
    CLIENT, FAULTY_PROGRAM, PMI2_CLIENT, kernel_reports_foreign_exits, mpi_program, peers,
};
use rstest::rstest;
use tempfile::TempDir;

const BIN: &str = env!("CARGO_BIN_EXE_pmi-conform");

/// Records a job into the subfolder `out`.
fn record(folder: &Path, ranks: &str, command: &[&str]) -> Ran {
    let args = [&["record", "-o", "out", "--", BIN, "serve", "-n", ranks, "--", "{tap}"], command].concat();
    conform(folder, &args)
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A recording yields a scenario for the process manager and a scenario for the program. Each party passes its own scenario.
#[test]
fn recorded_scenarios_pass_against_both_parties() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "2", &[CLIENT, "exchange"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    plays(folder.path());
    for args in
        [&["scenario", "check", "out/client.pmi"][..], &["scenario", "fmt", "--check", "out/client.pmi"]]
    {
        let ran = conform(folder.path(), args);
        assert_eq!(ran.status, 0, "{}", ran.whole());
    }
    let program = format!("{CLIENT} exchange");
    let ran = conform(folder.path(), &["--client", &program, "out/client.pmi"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("1 passed"), "{}", ran.whole());
    // The scenario sets the recorded limits. With a lower limit, the program's value is too long.
    let script = fs::read_to_string(folder.path().join("out/client.pmi")).unwrap();
    fs::write(folder.path().join("out/client.pmi"), script.replace("vallen_max=1024", "vallen_max=8"))
        .unwrap();
    let ran = conform(folder.path(), &["--client", &program, "out/client.pmi"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
}

/// Checks the scenario of the last recording: it must be complete and formatted, and our process manager must pass it.
fn plays(folder: &Path) {
    for args in [
        &["scenario", "check", "out/server.pmi"][..],
        &["scenario", "fmt", "--check", "out/server.pmi"],
        &["out/server.pmi"],
    ] {
        let ran = conform(folder, args);
        assert_eq!(ran.status, 0, "{args:?}\n{}{}", ran.whole(), script(folder));
    }
}

fn script(folder: &Path) -> String {
    fs::read_to_string(folder.join("out/server.pmi")).unwrap()
}

/// A client must not close the connection before it has read the response to finalize. `record` reports a violation in the same way as
/// `--client`.
#[test]
fn reports_close_before_the_finalize_response() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "2", &[FAULTY_PROGRAM, "leaves-without-the-answer-to-finalize"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.err.contains("FAIL rfc13.wire.lock-step (MUST)"), "{}", ran.whole());
    assert!(ran.err.contains("seen      closed without reading the answer"), "{}", ran.whole());
    // The message names an option of `record`.
    assert!(ran.err.contains("left out; see the log (record -o DIR)"), "{}", ran.whole());
    let ran = record(folder.path(), "2", &[FAULTY_PROGRAM]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
}

#[rstest]
#[case::exchange(&["exchange"], 0)]
#[case::status(&["quit", "1", "3"], 0)]
#[case::exits(&["exit", "1", "3"], 1)]
#[case::dies(&["die", "0"], 1)]
#[case::aborts(&["abort", "1", "7"], 0)]
fn tap_does_not_change_the_job(#[case] mode: &[&str], #[case] code: i32) {
    let folder = TempDir::new().unwrap();
    let plain = conform(folder.path(), &[&["serve", "-n", "3", "--", CLIENT], mode].concat());
    let taped = record(folder.path(), "3", &[&[CLIENT], mode].concat());
    assert_eq!(taped.status, code, "{}", taped.whole());
    assert_eq!(sorted(&taped.out), sorted(&plain.out));
    assert!(taped.err.contains(&format!("the job: exit status {}", plain.status)), "{}", taped.whole());
    assert!(taped.err.contains("the process manager: no findings"), "{}", taped.whole());
    plays(folder.path());
}

#[test]
fn records_many_ranks() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "64", &[CLIENT, "exchange"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.err.contains("64 processes in 1 group"), "{}", ran.whole());
    plays(folder.path());
}

#[test]
fn records_spawned_processes() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "2", &[CLIENT, "spawn", "2", CLIENT, "child"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.err.contains("4 processes in 2 groups"), "{}", ran.whole());
    assert_eq!(ran.out.matches("Value(").count(), 2, "{}", ran.whole());
    let script = script(folder.path());
    assert!(script.contains("execname=$agent"), "{script}");
    assert!(script.contains("expect[rfc13.spawn.preput] cmd=get_result rc=ok value="), "{script}");
    // The log contains the original bytes from the program.
    let log = fs::read_to_string(folder.path().join("out/session.ndjson")).unwrap();
    assert!(log.contains(&format!("execname={CLIENT}")), "{log}");
    plays(folder.path());
}

/// A PMI-2 session is recorded from its init line to its last frame, and the recording can be played against a process manager.
#[rstest]
#[case::exchange(&["exchange"], 0)]
#[case::draft(&["draft"], 0)]
#[case::leaves(&["leave", "1", "3"], 1)]
#[case::aborts(&["abort", "1"], 0)]
fn records_and_plays_pmi2_session(#[case] mode: &[&str], #[case] code: i32) {
    let folder = TempDir::new().unwrap();
    let plain = conform(folder.path(), &[&["serve", "-n", "3", "--", PMI2_CLIENT], mode].concat());
    let taped = record(folder.path(), "3", &[&[PMI2_CLIENT], mode].concat());
    assert_eq!(taped.status, code, "{}", taped.whole());
    assert_eq!(sorted(&taped.out), sorted(&plain.out));
    assert!(taped.err.contains(&format!("the job: exit status {}", plain.status)), "{}", taped.whole());
    assert!(taped.err.contains("the process manager: no findings"), "{}", taped.whole());
    assert!(script(folder.path()).contains("\ndialect pmi-2\n"), "{}", script(folder.path()));
    let log = fs::read_to_string(folder.path().join("out/session.ndjson")).unwrap();
    assert!(log.contains("A recorded session in PMI-2."), "{log}");
    plays(folder.path());
    if mode == ["exchange"] {
        for args in
            [&["scenario", "check", "out/client.pmi"][..], &["scenario", "fmt", "--check", "out/client.pmi"]]
        {
            let ran = conform(folder.path(), args);
            assert_eq!(ran.status, 0, "{}", ran.whole());
        }
    }
}

/// A recording of a fence that releases processes early, as Hydra's does, can also be played against a process manager whose fence waits
/// for all processes.
#[test]
fn plays_recording_of_a_fence_that_releases_early() {
    let folder = TempDir::new().unwrap();
    let serve =
        ["serve", "-n", "4", "--vary", "fence-at-once", "--vary", "length-left", "--vary", "miss-by-rc"];
    let args = [&["record", "-o", "out", "--", BIN], &serve[..], &["--", "{tap}", PMI2_CLIENT]].concat();
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(script(folder.path()).contains("expect[pmi2.common.fence.visible]"), "{}", script(folder.path()));
    plays(folder.path());
}

/// The reports name the party that broke a requirement, and the requirement's id, which names the document.
#[test]
fn names_the_response_after_which_a_client_gives_up() {
    let folder = TempDir::new().unwrap();
    let serve = ["serve", "-n", "2", "--vary", "short-fullinit", "--", "{tap}", PMI2_CLIENT, "strict"];
    let args = [&["record", "-v", "-o", "out", "--", BIN], &serve[..]].concat();
    let ran = conform(folder.path(), &args);
    assert!(ran.err.contains("the job: exit status 3"), "{}", ran.whole());
    for expected in ["pmi2.draft.fullinit.version", "after an answer that breaks pmi2.draft.fullinit.version"]
    {
        assert!(ran.err.contains(expected), "{expected}\n{}", ran.whole());
    }
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let judged =
        conform(folder.path(), &["report", "judge", "out/session.ndjson", "--against", "pmi2-draft"]);
    assert_eq!(judged.status, 1, "{}", judged.whole());
    assert!(judged.out.contains("FAIL pmi2.draft.fullinit.version"), "{}", judged.whole());
    let (program, serve) = (format!("{PMI2_CLIENT} strict"), format!("{BIN} serve -n {{ranks}}"));
    let managers = ["", " --vary short-fullinit"].map(|extra| format!("{serve}{extra} -- {{program}}"));
    let args = ["interop", "--program", &program, "--manager", &managers[0], "--manager", &managers[1]];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    for expected in [
        format!("{program}  ok  exit 3\n"),
        "note  the process manager: pmi2.draft.fullinit.version".to_owned(),
    ] {
        assert!(ran.out.contains(&expected), "{expected}\n{}", ran.whole());
    }
}

/// Compatibility is derived from the logs of the program and the process manager, without running either of them again.
#[test]
fn logs_of_both_parties_determine_compatibility() {
    let folder = TempDir::new().unwrap();
    for (name, vary) in [("works", &[][..]), ("fails", &["--vary", "short-fullinit"][..])] {
        let serve = [&["record", "-o", name, "--", BIN, "serve", "-n", "2"], vary].concat();
        conform(folder.path(), &[&serve[..], &["--", "{tap}", PMI2_CLIENT, "strict"]].concat());
        let server = [&[BIN, "serve", "-n", "{ranks}"], vary, &["--", "{agent}"]].concat().join(" ");
        let report = format!("ndjson={name}.ndjson");
        let judge = ["--server", &server, "--dialect", "pmi-2", "--filter", "pmi2/init", "--report", &report];
        conform(folder.path(), &judge);
    }
    let (works, fails) = ("works/session.ndjson", "fails/session.ndjson");
    let compare = |client: &[&str], server: &str, rest: &[&str]| {
        let client: Vec<&str> = client.iter().flat_map(|log| ["--client-log", log]).collect();
        conform(folder.path(), &[&["interop"], &client[..], &["--server-log", server], rest].concat())
    };
    let ran = compare(&[works, fails], "fails.ndjson", &[]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    let expected = "BREAKS   pmi-2  response to fullinit: ";
    assert!(ran.out.contains(expected), "{}", ran.whole());
    // A field that was present in a successful session is not necessarily needed.
    let ran = compare(&[works], "fails.ndjson", &["--json"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let answer = rows.iter().find(|row| row["command"] == "fullinit" && row["sender"] == "server").unwrap();
    assert_eq!(answer["fit"], "unknown");
    assert!(answer["fields"].as_array().unwrap().contains(&"pmi-version".into()), "{answer}");
    let ran = compare(&[works, fails], "works.ndjson", &[]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
}

#[test]
fn records_processes_spawned_in_pmi2() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "2", &[PMI2_CLIENT, "spawn", "2", PMI2_CLIENT, "child"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.err.contains("4 processes in 2 groups"), "{}", ran.whole());
    assert_eq!(ran.out.matches("hello").count(), 2, "{}", ran.whole());
    let script = script(folder.path());
    assert!(script.contains("subcmd=$agent"), "{script}");
    assert!(
        script.contains("expect[pmi2.common.spawn.preput] cmd=kvs-get-response rc=0 value=hello"),
        "{script}"
    );
    // The log contains the original bytes from the program.
    let log = fs::read_to_string(folder.path().join("out/session.ndjson")).unwrap();
    assert!(log.contains(&format!("subcmd={PMI2_CLIENT};")), "{log}");
    plays(folder.path());
}

#[test]
fn blames_a_faulty_process_manager() {
    let folder = TempDir::new().unwrap();
    let serve = [BIN, "serve", "-n", "2", "--fault", "env-spawned-zero", "--", "{tap}", CLIENT];
    let ran = conform(folder.path(), &[&["record", "--"], &serve[..]].concat());
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.err.contains("the process manager: failed"), "{}", ran.whole());
    assert!(ran.err.contains("the program: no findings"), "{}", ran.whole());
}

/// For each rank, a shell between `serve` and the tap acts as the process manager of a node. It crashes after its program has ended.
#[test]
fn process_manager_crash_is_reported_first() {
    if !kernel_reports_foreign_exits() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let dies = ["sh", "-c", "\"$@\"; kill -SEGV $$", "sh", "{tap}", CLIENT];
    let ran = conform(folder.path(), &[&["record", "--", BIN, "serve", "-n", "2", "--"], &dies[..]].concat());
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.err.contains("CRASHED  session"), "{}", ran.whole());
    let first = ran.err.lines().find(|line| line.starts_with("  FAIL ")).unwrap_or_default();
    assert_eq!(first, "  FAIL iut.no-crash: sh died of signal 11", "{}", ran.whole());
}

#[test]
fn blames_a_faulty_program() {
    let folder = TempDir::new().unwrap();
    let ran = record(folder.path(), "2", &[CLIENT, "junk", "1"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.err.contains("by        the client, rank 1"), "{}", ran.whole());
    assert!(ran.err.contains("the process manager: no findings"), "{}", ran.whole());
    assert!(ran.err.contains("the program: failed"), "{}", ran.whole());
}

#[test]
fn report_renders_a_recording() {
    let folder = TempDir::new().unwrap();
    record(folder.path(), "2", &[CLIENT]);
    let ran = conform(folder.path(), &["report", "out/session.ndjson", "--format", "tap"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("ok 1 - session"), "{}", ran.out);
}

#[test]
fn tap_does_not_change_the_program_environment() {
    // The script prints its number of open sockets, its blocked and ignored signals, its environment, directory and arguments, and then
    // its standard input, which only rank 0 receives.
    let look = "ls -l /proc/self/fd | grep -c socket; grep Sig[BI] /proc/self/status; env | sort | grep -v ^_=; pwd; echo \
                \"$0\" \"$@\"; cat";
    let folder = TempDir::new().unwrap();
    let out = |args: &[&str]| {
        let mut child = Command::new(BIN)
            .args(args)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"from stdin").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let program = ["sh", "-c", look, "a name", "an argument"];
    let plain = out(&[&["serve", "-n", "1", "--"], &program[..]].concat());
    let taped = out(&[&["record", "--", BIN, "serve", "-n", "1", "--", "{tap}"], &program[..]].concat());
    assert!(plain.contains("from stdin"), "{plain}");
    assert_eq!(taped, plain);
}

#[test]
fn tap_forwards_signals_and_exit_status() {
    let folder = TempDir::new().unwrap();
    let command = ["record", "--", "{tap}", "sh", "-c", "kill -9 $$"];
    let ran = conform(folder.path(), &command);
    assert!(ran.err.contains("the job: killed by signal 9"), "{}", ran.whole());
    // A signal to the tap is forwarded to the program.
    let script = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = Command::new(BIN)
        .args(["record", "--", "{tap}", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got it");
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("the job: exit status 5"));
    assert_eq!(output.status.into_raw() >> 8, 3);
}

/// A process manager whose process connects to a port. It starts that process with the rest of its command line, and looks up its answers
/// to requests in a table.
const PORT_MANAGER: &str = r#"
import os, socket, subprocess, sys
listener = socket.create_server(("127.0.0.1", 0))
port = "127.0.0.1:%d" % listener.getsockname()[1]
child = subprocess.Popen(sys.argv[1:], env=dict(os.environ, PMI_PORT=port, PMI_ID="0"))
stream, _ = listener.accept()
answers = {
    "initack": "cmd=initack rc=0\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0",
    "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "finalize": "cmd=finalize_ack rc=0",
}
for line in stream.makefile():
    print("server got", line.strip(), flush=True)
    stream.sendall((answers[line.split()[0][4:]] + "\n").encode())
print("server saw the end", flush=True)
sys.exit(child.wait())
"#;

const PORT_PROGRAM: &str = r#"
import os, socket, sys
host, port = os.environ["PMI_PORT"].rsplit(":", 1)
stream = socket.create_connection((host, int(port)))
lines = stream.makefile()
stream.sendall(("cmd=initack pmiid=%s\n" % os.environ["PMI_ID"]).encode())
for _ in range(4):
    lines.readline()
for request in "cmd=init pmi_version=1 pmi_subversion=1", "cmd=finalize":
    stream.sendall((request + "\n").encode())
    print("client got", lines.readline().strip(), flush=True)
sys.exit(6)
"#;

#[test]
fn tap_records_connection_through_pmi_port() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [("manager.py", PORT_MANAGER), ("program.py", PORT_PROGRAM)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let command =
        |tap: &[&'static str]| [&["python3", "manager.py"], tap, &["python3", "program.py"]].concat();
    let plain = command(&[]);
    let plain = Command::new(plain[0]).args(&plain[1..]).current_dir(&folder).output().unwrap();
    let ran = conform(folder.path(), &[&["record", "-o", "out", "--"], &command(&["{tap}"])[..]].concat());
    assert_eq!(plain.status.code(), Some(6));
    assert!(ran.err.contains("the job: exit status 6"), "{}", ran.whole());
    assert_eq!(sorted(&ran.out), sorted(&String::from_utf8(plain.stdout).unwrap()));
    // RFC 13 does not describe the handshake, and its rules about PMI_FD do not apply to a process with a port.
    assert!(!ran.err.contains("rfc13.env"), "{}", ran.whole());
    let log = fs::read_to_string(folder.path().join("out/session.ndjson")).unwrap();
    assert!(
        log.contains(r#""greeted""#),
        "the handshake on PMI_PORT should be logged as a separate event: {log}"
    );
    assert!(ran.err.contains("the program: no findings"), "{}", ran.whole());
    assert!(!script(folder.path()).contains("initack"));
    plays(folder.path());
}

/// A second program that connects to the port before the recorded program does, and sends the same first message.
const STRANGER: &str = r#"
import os, socket, time
while not os.path.exists("port"):
    time.sleep(0.001)
host, port = open("port").read().rsplit(":", 1)
stream = socket.create_connection((host, int(port)))
stream.sendall(b"cmd=initack pmiid=0\n")
try:
    answer = stream.recv(1)
except ConnectionResetError:
    answer = b""
print("stranger", "served" if answer else "sent away", flush=True)
open("gone", "w").close()
"#;

#[test]
fn tap_rejects_a_foreign_connection_to_its_port() {
    let folder = TempDir::new().unwrap();
    let manager = PORT_MANAGER
        .replace("stream, _ =", "stranger = subprocess.Popen([sys.executable, 'stranger.py'])\nstream, _ =");
    let waits = "import os, time\nopen('part', 'w').write(os.environ['PMI_PORT'])\nos.rename('part', 'port')\n\
                 while not os.path.exists('gone'): time.sleep(0.001)\n";
    let program = format!("{waits}{PORT_PROGRAM}");
    for (name, text) in [("manager.py", &*manager), ("program.py", &program), ("stranger.py", STRANGER)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let command = ["record", "-o", "out", "--", "python3", "manager.py", "{tap}", "python3", "program.py"];
    let ran = conform(folder.path(), &command);
    assert!(ran.out.contains("stranger sent away"), "{}", ran.whole());
    assert!(ran.out.contains("client got cmd=finalize_ack rc=0"), "{}", ran.whole());
    assert!(ran.err.contains("the program: no findings"), "{}", ran.whole());
    assert!(ran.err.contains("the job: exit status 6"), "{}", ran.whole());
}

/// A process manager that kills the recorder, its parent process, before it answers `barrier_in`.
const KILLING_MANAGER: &str = r#"
import os, signal, socket, subprocess, sys
ours, theirs = socket.socketpair()
env = dict(os.environ, PMI_FD=str(theirs.fileno()), PMI_RANK="0", PMI_SIZE="1")
child = subprocess.Popen(sys.argv[1:], env=env, pass_fds=[theirs.fileno()])
theirs.close()
recorder = os.getppid()
for line in ours.makefile():
    print("server got", line.strip(), flush=True)
    if line.startswith("cmd=barrier_in"):
        os.kill(recorder, signal.SIGKILL)
        while os.getppid() == recorder:
            pass
    ours.sendall((line.split()[0] + "_answer\n").encode())
print("server saw the end", flush=True)
sys.exit(child.wait())
"#;

const ASKING_PROGRAM: &str = r#"
import os, socket
stream = socket.socket(fileno=int(os.environ["PMI_FD"]))
lines = stream.makefile()
for request in "cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=barrier_in", "cmd=get_appnum", "cmd=finalize":
    stream.sendall((request + "\n").encode())
    print("client got", lines.readline().strip(), flush=True)
"#;

#[test]
fn job_survives_death_of_its_recorder() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [("manager.py", KILLING_MANAGER), ("program.py", ASKING_PROGRAM)] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let command = ["record", "--", "python3", "manager.py", "{tap}", "python3", "program.py"];
    let ran = Command::new(BIN).args(command).current_dir(&folder).output().unwrap();
    assert_eq!(ran.status.into_raw(), 9, "the recorder was killed");
    let out = String::from_utf8(ran.stdout).unwrap();
    let (server, client): (Vec<&str>, Vec<&str>) = out.lines().partition(|line| line.starts_with("server"));
    let requests =
        ["init pmi_version=1 pmi_subversion=1", "get_maxes", "barrier_in", "get_appnum", "finalize"];
    let mut expected = requests.map(|request| format!("server got cmd={request}")).to_vec();
    expected.push("server saw the end".into());
    assert_eq!(server, expected, "each request must arrive exactly once");
    let answered = requests.map(|r| format!("client got cmd={}_answer", r.split(' ').next().unwrap()));
    assert_eq!(client, answered);
}

#[test]
fn interop_tests_each_program_with_each_manager() {
    let folder = TempDir::new().unwrap();
    let serve = |extra: &str| format!("{BIN} serve -n {{ranks}} {extra} -- {{program}}");
    let (good, bad) = (serve(""), serve("--fault env-spawned-zero"));
    let (exchange, quits) = (CLIENT.to_owned(), format!("{CLIENT} quit 0 3"));
    let args =
        ["interop", "--program", &exchange, "--program", &quits, "--manager", &good, "--manager", &bad];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    for expected in [
        format!("{exchange}           ok      manager breaks 1 MUST\n"),
        format!("{quits}  exit 3  exit 3, manager breaks 1 MUST\n"),
        "FAIL  the process manager: rfc13.env.pmi-spawned (MUST)".to_owned(),
        format!("in        {exchange} under B, {quits} under B\n"),
    ] {
        assert!(ran.out.contains(&expected), "{expected}\n{}", ran.whole());
    }
    let ran = conform(folder.path(), &["interop", "--program", &exchange, "--manager", &good, "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["cells"][0]["exit"]["code"], 0);
    assert_eq!(json["cells"][0]["verdict"], "pass");
    assert_eq!(json["cells"][0]["versions"], serde_json::json!(["1.1"]));
    // The pages show these results together with others.
    fs::write(folder.path().join("met.json"), &ran.out).unwrap();
    let ran = conform(folder.path(), &["report", "matrix", "--interop", "met.json", "-o", "pages"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let shown = fs::read_to_string(folder.path().join("pages/RESULTS.md")).unwrap();
    assert!(shown.contains("| ok (1.1) |"), "{shown}");
    let ran = conform(folder.path(), &["report", "matrix", "--interop", "pages/RESULTS.md", "-o", "pages"]);
    assert!(
        ran.status == 2 && ran.err.contains("pages/RESULTS.md: not the output of `interop --json`"),
        "{}",
        ran.whole()
    );
}

#[test]
fn interop_ends_hanging_job_after_the_timeout() {
    let folder = TempDir::new().unwrap();
    let manager = format!("{BIN} serve -n {{ranks}} -- {{program}}");
    let program = "sh -c 'trap \"\" TERM INT; setsid sleep 4711 & sleep 4711'";
    let args = ["interop", "--program", program, "--manager", &manager, "--timeout", "1"];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.out.contains("  hangs"), "{}", ran.whole());
    let lines =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    assert_eq!(lines.filter(|line| line.starts_with(b"sleep\x004711")).count(), 0);
}

#[rstest]
#[case::unknown_launcher(&["my-launcher", "./a.out"], 2, "write {tap} before it")]
#[case::not_started(&["true", "{tap}"], 3, "the launcher did not start {tap}")]
#[case::no_launcher(&["/nowhere/mpiexec", "{tap}", "a"], 2, "cannot start \"/nowhere/mpiexec\"")]
#[case::no_program(&["{tap}", "/nowhere/a.out"], 3, "the program never started: cannot start /nowhere/a.out")]
#[case::no_program_with_connection(&[BIN, "serve", "{tap}", "/nowhere/a.out"], 3, "the program never started: cannot start /nowhere/a.out")]
#[case::silent(&["{tap}", "true"], 3, "sent no PMI message: the process manager did not set PMI_FD for its processes")]
#[case::without_pmi(&[BIN, "serve", "{tap}", "true"], 3, "as in a program without a PMI library")]
#[case::no_messages(&[BIN, "serve", "{tap}", "true"], 3, "the program: not judged: no message was sent")]
fn explains_why_nothing_was_recorded(#[case] command: &[&str], #[case] code: i32, #[case] expected: &str) {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &[&["record", "--"], command].concat());
    assert_eq!(ran.status, code, "{}", ran.whole());
    assert!(ran.err.contains(expected), "{}", ran.whole());
}

#[rstest]
#[ignore = "needs PMI_CONFORM_PEERS, a folder made by ci/install-peers, and a C compiler"]
fn records_mpi_program_that_spawns_processes(#[values("mpich-4.3.2", "mpich-5.0.2")] name: &str) {
    let bin = peers().join(name).join("bin");
    let folder = TempDir::new().unwrap();
    mpi_program(&bin.join("mpicc"), "spawn", folder.path());
    let launcher = bin.join("mpiexec.hydra");
    let launcher = launcher.to_str().unwrap();
    let plain = Command::new(launcher).args(["-n", "2", "./spawn"]).current_dir(&folder).output().unwrap();
    let ran = conform(folder.path(), &["record", "-o", "out", "--", launcher, "-n", "2", "{tap}", "./spawn"]);
    assert!(ran.err.contains("4 processes in 2 groups"), "{}", ran.whole());
    assert!(ran.err.contains("the job: exit status 0"), "{}", ran.whole());
    assert_eq!(sorted(&ran.out), sorted(&String::from_utf8(plain.stdout).unwrap()));
    plays(folder.path());
    for args in [["--server", launcher, "out/server.pmi"], ["--client", "./spawn", "out/client.pmi"]] {
        let ran = conform(folder.path(), &args);
        assert_eq!(ran.status, 0, "{}", ran.whole());
    }
}
