//! Tests of `pmi-conform serve` as a user runs it, with real processes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pmi_test_programs::{CLIENT, FAULTY_PROGRAM, mpi_program, peers};
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn serve(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmi-conform"));
    command.arg("serve").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = serve(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn run_client(ranks: &str, args: &[&str]) -> (i32, String, String) {
    run(&[&["-n", ranks, "--", CLIENT], args].concat())
}

fn shell(ranks: &str, script: &str) -> (i32, String, String) {
    run(&["-n", ranks, "--", "sh", "-c", script])
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[rstest]
fn ranks_exchange_values(#[values("1", "4", "64")] ranks: &str) {
    assert_eq!(run_client(ranks, &["exchange"]), (0, String::new(), String::new()));
}

/// A process runs alone if its library does not find our server. The server warns about such processes.
#[rstest]
#[case::all("goes-alone", "3 of 3 processes")]
#[case::one("last-goes-alone", "1 of 3 processes")]
fn warns_about_processes_that_run_as_singletons(#[case] fault: &str, #[case] expected: &str) {
    let (_, out, error) = run(&["-n", "3", "--", FAULTY_PROGRAM, fault]);
    assert!(out.contains("rank 0 of 1"), "{out}");
    assert!(
        error.contains(expected) || fault.starts_with("last") && error.contains("protocol error"),
        "{error}"
    );
    // A job of one process causes no warning, because the process is rank 0 of 1 with or without our server.
    let (status, _, error) = run(&["-n", "1", "--", FAULTY_PROGRAM, fault]);
    assert_eq!((status, error.as_str()), (0, ""));
}

/// A program that connects through PMI_PORT, requests the mapping, and prints the host on which it was launched.
const ELSEWHERE: &str = r#"
import os, socket, sys
host, port = os.environ["PMI_PORT"].rsplit(":", 1)
stream = socket.create_connection((host, int(port))).makefile("rwb", buffering=0)
stream.write(b"cmd=initack pmiid=%s\n" % os.environ["PMI_ID"].encode())
told = [stream.readline() for _ in range(4)]
def ask(line):
    stream.write(line + b"\n")
    return stream.readline()
ask(b"cmd=init pmi_version=1 pmi_subversion=1")
name = ask(b"cmd=get_my_kvsname").split(b"kvsname=")[1].strip()
places = ask(b"cmd=get kvsname=%s key=PMI_process_mapping" % name).split(b"value=")[1].strip()
ask(b"cmd=finalize")
words = os.environ["PMI_ID"], os.environ["LAUNCHED_ON"], places.decode(), "PMI_FD" in os.environ, os.getcwd(), sys.argv[1:]
# One write, because several processes share the output.
os.write(1, (" ".join(map(str, words)) + "\n").encode())
"#;

#[test]
fn launch_command_starts_processes_on_hosts() {
    let folder = tempfile::Builder::new().prefix("it's a folder ").tempdir().unwrap();
    fs::write(folder.path().join("a b.py"), ELSEWHERE).unwrap();
    let launch = "env LAUNCHED_ON={host} sh -c {command}";
    let odd = ["$HOME; echo `x`", "", "*"];
    let command = ["-n", "4", "--hosts", "one,two", "--launch", launch, "--", "python3", "a b.py"];
    let output = serve(&[&command[..], &odd].concat()).current_dir(folder.path()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{out}");
    let here = folder.path().canonicalize().unwrap();
    let line = |rank: u32, host: &str| {
        format!("{rank} {host} (vector,(0,2,2)) False {} ['$HOME; echo `x`', '', '*']", here.display())
    };
    let expected = [line(0, "one"), line(1, "one"), line(2, "two"), line(3, "two")];
    assert_eq!(sorted(&out), expected);
}

#[test]
fn failed_launch_ends_the_job() {
    let launch = r#"sh -c 'test {host} != two && exec sh -c "$0"; exit 7' {command}"#;
    let job = ["-n", "2", "--hosts", "one,two", "--launch", launch, "--", "sleep", "1000"];
    let (status, _, error) = run(&job);
    assert_eq!(status, 7, "{error}");
    assert!(error.contains("rank 1 of group 0: the command that starts this process failed"), "{error}");
    for (launch, expected) in
        [("ssh {host}", "{command} is missing"), ("no-such-shell {host} {command}", "not found")]
    {
        let (status, _, error) = run(&["--hosts", "one", "--launch", launch, "--", "true"]);
        assert!(status == 2 && error.contains(expected), "{status} {error}");
    }
}

#[test]
fn serves_1024_ranks() {
    assert_eq!(run_client("1024", &["neighbours", "3"]), (0, String::new(), String::new()));
}

#[test]
fn raises_the_soft_descriptor_limit() {
    let script = "ulimit -Sn 100; exec \"$@\"";
    let bin = env!("CARGO_BIN_EXE_pmi-conform");
    let rank = "if [ $PMI_RANK = 90 ]; then ulimit -n; fi";
    let output = Command::new("sh")
        .args(["-c", script, "sh", bin, "serve", "-n", "100", "--", "sh", "-c", rank])
        .output()
        .unwrap();
    // The rank gets the limit that the user set, and not the limit that the server raised for itself.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "100\n");
    assert!(output.status.success());
}

#[test]
fn reports_a_hard_descriptor_limit_that_is_too_low() {
    let bin = env!("CARGO_BIN_EXE_pmi-conform");
    let output = Command::new("sh")
        .args(["-c", "ulimit -n 100; exec \"$@\"", "sh", bin, "serve", "-n", "100", "--", "true"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("100 processes need 264 file descriptors, but only 100 are allowed"), "{stderr}");
    assert!(!output.status.success());
}

#[test]
fn sets_the_pmi_environment() {
    let mut command = serve(&["-n", "2", "--", "sh", "-c", "echo $PMI_RANK $PMI_SIZE $PMI_SPAWNED$PMI_ID"]);
    let output = command.env("PMI_SPAWNED", "1").env("PMI_ID", "7").output().unwrap();
    assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), ["0 2", "1 2"]);
}

#[test]
fn rank_inherits_only_its_own_connection() {
    // The script prints the descriptor number of every open socket of a rank.
    let script = r#"for fd in /proc/$$/fd/*; do case $(readlink $fd) in socket:*) echo ${fd##*/} $PMI_FD;; esac; done"#;
    let (status, stdout, _) = shell("8", script);
    assert_eq!(status, 0);
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 8, "{stdout}");
    assert!(lines.iter().all(|line| line.split_once(' ').is_some_and(|(fd, own)| fd == own)), "{stdout}");
}

#[test]
fn rank_0_inherits_stdin() {
    let mut command = serve(&["-n", "3", "--", "sh", "-c", "echo $PMI_RANK $(cat)"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(sorted(&String::from_utf8(output.stdout).unwrap()), ["0 hello", "1", "2"]);
}

#[rstest]
#[case::all_succeed("exit 0", 0)]
#[case::one_fails("[ $PMI_RANK != 2 ] || exit 7", 7)]
#[case::killed_by_a_signal("[ $PMI_RANK != 1 ] || kill -TERM $$", 143)]
fn ranks_determine_the_exit_status(#[case] script: &str, #[case] status: i32) {
    assert_eq!(shell("3", script).0, status);
}

#[test]
fn first_failed_rank_sets_the_exit_status() {
    // The other ranks exit after rank 0 has been reaped.
    let script = r#"
        if [ $PMI_RANK = 0 ]; then echo $$ >$DIR/new; mv $DIR/new $DIR/first; exit 5; fi
        patience=3000
        until [ -e $DIR/first ] && [ ! -e /proc/$(cat $DIR/first) ]; do
            sleep 0.01
            : $((patience -= 1))
            [ $patience != 0 ] || break
        done
        exit 6"#;
    let dir = tempfile::tempdir().unwrap();
    let status = serve(&["-n", "3", "--", "sh", "-c", script]).env("DIR", dir.path()).status().unwrap();
    assert_eq!(status.code(), Some(5));
}

#[rstest]
#[case::after_finalize(&["quit", "2", "9"], 9, "")]
#[case::without_finalize(
    &["exit", "1", "7"], 7,
    "pmi-conform serve: rank 1 of group 0: protocol error: connection closed without finalize (exited with status 7)\n",
)]
#[case::success_without_finalize(
    &["exit", "1", "0"], 1,
    "pmi-conform serve: rank 1 of group 0: protocol error: connection closed without finalize (exited with status 0)\n",
)]
#[case::killed(
    &["die", "0"], 134,
    "pmi-conform serve: rank 0 of group 0: protocol error: connection closed without finalize (killed by signal 6)\n",
)]
#[case::closed_and_alive(
    &["leave", "1"], 1,
    "pmi-conform serve: rank 1 of group 0: protocol error: connection closed without finalize\n",
)]
#[case::protocol_error(
    &["junk", "2"], 1,
    "pmi-conform serve: rank 2 of group 0: protocol error: \
     byte 0x1b at offset 10 is neither space, tab nor visible ASCII: \"cmd=ju\\tnk \\x1b[31m\"\n",
)]
#[case::abort(&["abort", "1", "5"], 5, "pmi-conform serve: rank 1 of group 0: abort requested\n")]
#[case::abort_with_status_256(
    &["abort", "1", "256"], 1,
    "pmi-conform serve: rank 1 of group 0: abort requested\n",
)]
#[case::abort_with_success(&["abort", "1", "0"], 0, "pmi-conform serve: rank 1 of group 0: abort requested\n")]
fn failing_rank_aborts_the_job(#[case] args: &[&str], #[case] status: i32, #[case] log: &str) {
    // A process that was not killed would print a line.
    assert_eq!(run_client("3", args), (status, String::new(), log.to_owned()));
}

#[test]
fn stops_reading_from_rank_that_does_not_read() {
    assert_eq!(run_client("1", &["flood", "1000000"]), (0, "held back\n".to_owned(), String::new()));
    assert_eq!(run_client("2", &["flood", "100"]).0, 0);
}

#[test]
fn reports_missing_program() {
    let (status, _, stderr) = run(&["-n", "2", "--", "no-such-program"]);
    assert_eq!(stderr, "pmi-conform serve: no-such-program: program not found\n");
    assert_ne!(status, 0);
}

#[test]
fn spawns_processes() {
    let (status, stdout, stderr) = run_client("2", &["spawn", "3", CLIENT, "child"]);
    let child = format!("Value({:?})", b"hello child");
    assert_eq!(
        sorted(&stdout),
        ["Spawned { errcodes: Some([0, 0, 0]), jobid: None }", &child, &child, &child]
    );
    assert_eq!((status, &*stderr), (0, ""));
}

#[test]
fn spawned_process_sets_the_exit_status() {
    assert_eq!(run_client("2", &["spawn", "2", "sh", "-c", "exit $((PMI_RANK * 4 + PMI_SPAWNED - 1))"]).0, 4);
}

#[test]
fn reports_spawn_of_a_missing_program() {
    let (status, stdout, stderr) = run_client("2", &["spawn", "2", "./no-such-program"]);
    assert!(stdout.starts_with("Failed { operation: \"spawn\"") && stdout.contains("[1, 1]"), "{stdout}");
    assert!(
        stderr.contains("rank 0 of group 0: spawn failed: ./no-such-program: program not found"),
        "{stderr}"
    );
    assert_eq!(status, 0);
}

/// Waits until a script has created `n` files that are named after process ids. Returns the processes.
fn pids(dir: &Path, n: usize) -> Vec<Pid> {
    let start = Instant::now();
    loop {
        let files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        if files.len() == n {
            let parse = |name: &std::ffi::OsString| name.to_str().unwrap().parse().unwrap();
            return files.iter().map(|name| Pid::from_raw(parse(name)).unwrap()).collect();
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the processes do not start");
        sleep(Duration::from_millis(5));
    }
}

/// Asserts that these processes are gone. Killed orphans are reaped by init, which may take a moment.
fn assert_gone(pids: &[Pid]) {
    let start = Instant::now();
    for pid in pids {
        let gone = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            test_kill_process(*pid).is_err() || stat.contains(") Z ")
        };
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(10), "{pid} was left behind");
            sleep(Duration::from_millis(5));
        }
    }
}

/// The beginning of a script that gives each rank two processes, a shell and a `sleep`. It creates a file named after each process id.
const FAMILY: &str = "touch $DIR/$$; sleep 600 & touch $DIR/$!; ";

#[rstest]
#[case::interrupted(Signal::INT, 130)]
#[case::terminated(Signal::TERM, 143)]
#[case::hung_up(Signal::HUP, 129)]
fn signal_terminates_all_processes(#[case] signal: Signal, #[case] status: i32) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = serve(&["-n", "3", "--", "sh", "-c", &format!("{FAMILY} wait")]);
    let mut child = command.env("DIR", dir.path()).stderr(Stdio::null()).spawn().unwrap();
    let pids = pids(dir.path(), 6);
    kill_process(Pid::from_child(&child), signal).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(status));
    assert_gone(&pids);
}

#[test]
fn kills_descendants_of_ended_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = serve(&["-n", "3", "--", "sh", "-c", FAMILY]);
    assert!(command.env("DIR", dir.path()).status().unwrap().success());
    assert_gone(&pids(dir.path(), 6));
}

/// Tests with real MPI programs, compiled with the installed versions of MPICH.
mod mpi {
    use super::*;

    /// Returns the MPI compilers, and for each, whether its library can spawn processes.
    fn compilers() -> Vec<(PathBuf, bool)> {
        let mut compilers = vec![];
        for name in ["mpich-4.3.2", "mpich-5.0.2"] {
            compilers.push((peers().join(name).join("bin/mpicc"), true));
        }
        // Debian's library (4.0.2, ch4:ucx) refuses to spawn under any process manager.
        compilers.push(("/usr/bin/mpicc.mpich".into(), false));
        compilers.retain(|(mpicc, _)| mpicc.exists());
        assert!(!compilers.is_empty(), "no mpicc");
        compilers
    }

    #[rstest]
    #[case::hello("hello", 3, false)]
    #[case::names("names", 2, false)]
    #[case::spawn("spawn", 2, true)]
    #[ignore = "needs MPICH: PMI_CONFORM_PEERS=DIR"]
    fn mpi_program_runs_under_serve(#[case] name: &str, #[case] lines: usize, #[case] spawns: bool) {
        let dir = tempfile::tempdir().unwrap();
        for (mpicc, _) in compilers().into_iter().filter(|(_, can_spawn)| *can_spawn || !spawns) {
            let program = mpi_program(&mpicc, name, dir.path());
            for (ranks, nodes) in [(lines, 1), (4, 2)] {
                let (ranks_arg, nodes_arg) = (ranks.to_string(), nodes.to_string());
                let (status, stdout, stderr) =
                    run(&["-n", &ranks_arg, "--nodes", &nodes_arg, "--", program.to_str().unwrap()]);
                let expected = ranks + if spawns { 2 } else { 0 };
                assert_eq!((status, stdout.lines().count()), (0, expected), "{}: {stderr}", mpicc.display());
            }
        }
    }
}

/// Reads `lines` lines from a connection, or fewer if the connection ends or is silent for 10 seconds.
fn receive(stream: &mut std::net::TcpStream, lines: usize) -> String {
    use std::io::Read;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut text, mut byte) = (String::new(), [0]);
    while text.lines().count() < lines || !text.ends_with('\n') {
        match stream.read(&mut byte) {
            Ok(1) => text.push(char::from(byte[0])),
            _ => break,
        }
    }
    text
}

/// A running process requests a process manager and spawns another process. The server detects the end of the running process from the end
/// of its connection, not from its process id.
#[test]
fn serves_singleton_that_requests_a_manager() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let own = std::process::id().to_string();
    let mut manager =
        serve(&["--pmi-args", &port, "default_interface", "default_key", &own]).spawn().unwrap();
    let (mut process, _) = listener.accept().unwrap();
    let mut ask = |message: &str| {
        process.write_all(message.as_bytes()).unwrap();
        receive(&mut process, 1)
    };
    assert_eq!(ask(""), "cmd=singinit authtype=none\n");
    let response = ask("cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none\n");
    let kvsname =
        response.trim_end().strip_prefix("cmd=singinit_info versionok=yes stdio=no kvsname=").unwrap();
    ask("cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_eq!(ask("cmd=get_my_kvsname\n"), format!("cmd=my_kvsname rc=0 kvsname={kvsname}\n"));
    assert_eq!(ask("cmd=barrier_in\n"), "cmd=barrier_out rc=0\n");
    let spawn = "mcmd=spawn\nnprocs=1\nexecname=sh\ntotspawns=1\nspawnssofar=1\nargcnt=2\narg1=-c\narg2=test -n \"$PMI_FD\"\n\
                 preput_num=0\ninfo_num=0\nendcmd\n";
    assert!(ask(spawn).starts_with("cmd=spawn_result rc=0"));
    assert_eq!(ask("cmd=finalize\n"), "cmd=finalize_ack rc=0\n");
    drop(process);
    assert_eq!(manager.wait().unwrap().code(), Some(0));
}

/// The server gives up on a process that does not respond correctly.
#[test]
fn gives_up_on_a_process_that_sends_no_singinit() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let own = std::process::id().to_string();
    for message in ["", "hello\n", "cmd=init pmi_version=1 pmi_subversion=1\n"] {
        let mut manager = serve(&["--pmi-args", &port, "i", "k", &own]).spawn().unwrap();
        let (mut process, _) = listener.accept().unwrap();
        assert_eq!(receive(&mut process, 1), "cmd=singinit authtype=none\n");
        process.write_all(message.as_bytes()).unwrap();
        drop(process);
        assert_eq!(manager.wait().unwrap().code(), Some(1), "{message}");
    }
}

/// Any process can connect to the port. The server accepts only the ids of the job's processes, and each id only once. Other connections
/// have no effect.
#[test]
fn port_accepts_each_process_once() {
    use std::io::{BufRead, BufReader};
    use std::net::TcpStream;
    let mut command =
        serve(&["-n", "1", "--pmi-port", "--", "sh", "-c", "echo $PMI_PORT ${PMI_FD-none}; cat"]);
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_suffix(" none").expect("no PMI_FD beside PMI_PORT").to_owned();
    let connect = |message: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(message.as_bytes()).unwrap();
        stream
    };
    let silent = connect("");
    let half = connect("cmd=initack pmi");
    for wrong in
        ["hello\n", "cmd=initack pmiid=1\n", "cmd=initack\n", "cmd=init pmi_version=1 pmi_subversion=1\n"]
    {
        assert_eq!(receive(&mut connect(wrong), 1), "", "{wrong}");
    }
    // The line is too long, so the server closes the connection, and the write may fail.
    let mut flood = TcpStream::connect(&address).unwrap();
    let _ = flood.write_all(&[b'x'; 4096]);
    assert_eq!(receive(&mut flood, 1), "");
    // The first request may directly follow the initack.
    let mut process = connect("cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\n");
    let messages = receive(&mut process, 5);
    assert_eq!(
        messages.lines().collect::<Vec<_>>()[1..4],
        ["cmd=set size=1", "cmd=set rank=0", "cmd=set debug=0"]
    );
    assert!(messages.ends_with("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"), "{messages}");
    assert_eq!(receive(&mut connect("cmd=initack pmiid=0\n"), 1), "", "a process must not connect twice");
    process.write_all(b"cmd=finalize\n").unwrap();
    assert_eq!(receive(&mut process, 1), "cmd=finalize_ack rc=0\n");
    drop((silent, half, job.stdin.take()));
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

/// Even if there are more stray connections than descriptors, a later process can connect.
#[test]
fn stray_connections_do_not_exhaust_descriptors() {
    const PROGRAM: &str = r#"
import os, resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
host, port = os.environ["PMI_PORT"].rsplit(":", 1)
strangers = [socket.create_connection((host, int(port))) for _ in range(200)]
stream = socket.create_connection((host, int(port)))
lines = stream.makefile()
for request, answers in ("initack pmiid=0", 4), ("init pmi_version=1 pmi_subversion=1", 1), ("finalize", 1):
    stream.sendall(("cmd=" + request + "\n").encode())
    for _ in range(answers):
        print(lines.readline().split()[0])
"#;
    let bin = env!("CARGO_BIN_EXE_pmi-conform");
    let output = Command::new("sh")
        .args(["-c", "ulimit -Sn 100; exec \"$@\"", "sh", bin, "serve", "-n", "1", "--pmi-port", "--"])
        .args(["python3", "-c", PROGRAM])
        .output()
        .unwrap();
    let received = String::from_utf8_lossy(&output.stdout);
    assert!(received.ends_with("cmd=response_to_init\ncmd=finalize_ack\n"), "{output:?}");
    assert!(output.status.success());
}

/// A process whose port cannot be reached is not a member of the job, and is not terminated with the job.
#[test]
fn leaves_unreachable_process_running() {
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let (status, _, error) = run(&["--pmi-args", &port, "i", "k", &process.id().to_string()]);
    assert_eq!(status, 2);
    assert!(error.contains(&format!("port {port}: ")), "{error}");
    assert!(process.try_wait().unwrap().is_none());
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The job of a process that requested a process manager ends with that process, even if the server has closed the connection. No other
/// event reports the end of this job.
#[test]
fn singleton_job_ends_with_its_process() {
    let mut named = Command::new("sleep").arg("1000").spawn().unwrap();
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut manager = serve(&["--pmi-args", &port, "i", "k", &named.id().to_string()]).spawn().unwrap();
    let (mut process, _) = listener.accept().unwrap();
    receive(&mut process, 1);
    process.write_all(b"cmd=singinit pmi_version=1 pmi_subversion=1 stdio=no authtype=none\n").unwrap();
    receive(&mut process, 1);
    // The server aborts the job, because `get_maxes` is not allowed before `init`.
    process.write_all(b"cmd=get_maxes\n").unwrap();
    assert_ne!(manager.wait().unwrap().code(), Some(0));
    named.wait().unwrap();
}
