//! Tests of bare Hydra proxies: real proxies, and files that are not proxies.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::conform;
use pmi_test_programs::{WITHOUT_PTRACE, peers};
use rstest::rstest;
use tempfile::TempDir;

/// Creates a script with the name of a proxy. The script exists as long as the returned folder. In the script, the function `linger` sleeps
/// for a minute, and then creates a file, which shows that the script was not killed.
fn script(text: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("hydra_pmi_proxy");
    fs::write(&file, format!("#!/bin/sh\nlinger() {{ sleep 60; touch \"$0.lingered\"; }}\n{text}\n"))
        .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, file)
}

/// Returns the number of processes whose command line contains this word.
fn running(word: &str) -> usize {
    let lines =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|p| fs::read(p.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}

#[rstest]
#[case::unknown("exit 0", &[], &["no option names", "with --family"])]
#[case::exits("exit 9", &["--family", "4.2"], &["exited with status 9", "its init record", "5.0.2 (MPICH 5.0.2)"])]
#[case::hangs("linger", &["--family", "3.4"], &["did not send", "within 0.5 s", "3.4 to 4.0.2"])]
#[case::junk("echo some junk >&$HYDI_CONTROL_FD; linger", &["--family", "5.0"], &["expected an init record of 12 bytes", "some junk"])]
#[case::older("printf '\\0\\0\\0\\0' >&$HYDI_CONTROL_FD; linger", &["--family", "4.1"], &["expected an init record of 8 bytes, but received 4 bytes"])]
#[case::newer("printf 'HYD\\0\\0\\0\\0\\0' >&$HYDI_CONTROL_FD; linger", &["--family", "4.2"], &["12 bytes of its init record (received 8"])]
#[case::dies("kill -SEGV $$", &["--family", "4.0.3"], &["died of signal 11 (SIGSEGV)"])]
fn explains_why_a_program_is_not_a_proxy(
    #[case] text: &str,
    #[case] args: &[&str],
    #[case] expected: &[&str],
) {
    let (folder, file) = script(text);
    let args = [&["--server", file.to_str().unwrap(), "--timeout", "0.5"], args].concat();
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 3, "{}", ran.whole());
    for expected in expected {
        assert!(ran.err.contains(expected), "{expected}\n{}", ran.whole());
    }
    assert_eq!(running(file.to_str().unwrap()), 0);
    assert!(!file.with_extension("lingered").exists(), "the script was waited for");
}

#[test]
fn interrupt_leaves_no_processes_running() {
    let (_folder, file) = script("sleep 4242 & wait");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(["--server", file.to_str().unwrap(), "--family", "4.2", "--timeout", "60"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    // Wait for three processes whose command lines contain the file's name: pmi-conform, `hydra-upstream`, and the script itself.
    while running(file.to_str().unwrap()) < 3 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(running(file.to_str().unwrap()), 0);
}

#[test]
fn rejects_invalid_proxy_options_and_families() {
    let (folder, file) = script("exit 0");
    let with_options = format!("{} --pgid 0", file.display());
    for (args, expected) in [
        (vec!["--server", &with_options], "--server takes only the path of hydra_pmi_proxy"),
        (vec!["--server", "./no/hydra_pmi_proxy"], "./no/hydra_pmi_proxy: no such file"),
        (vec!["--server", file.to_str().unwrap(), "--family", "2.0"], "unknown family"),
    ] {
        let ran = conform(folder.path(), &args);
        assert_eq!(ran.status, 2, "{}", ran.whole());
        assert!(ran.err.contains(expected), "{}", ran.whole());
    }
}

fn peer(name: &str) -> PathBuf {
    let proxy = peers().join(name).join("bin/hydra_pmi_proxy");
    assert!(proxy.is_file(), "{}: no such file; see ci/install-peers", proxy.display());
    proxy
}

#[rstest]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn real_proxies_deviate_as_recorded(
    #[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str,
) {
    let version = name.rsplit('-').next().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    let deviations = golden.join(format!("hydra-proxy-{version}")).join("deviations.toml");
    let scratch = TempDir::new().unwrap();
    let args = ["--server", peer(name).to_str().unwrap(), "--deviations", deviations.to_str().unwrap(), "-q"]
        .map(String::from);
    let ran = conform(scratch.path(), &args.each_ref().map(String::as_str));
    assert_eq!(ran.status, 0, "{}", ran.whole());
}

/// A script that starts `mpiexec` as a child hides the exit status of `mpiexec`, but not its death.
#[test]
#[ignore = "needs real launchers (PMI_CONFORM_PEERS) and Linux 6.15"]
fn crash_of_a_launcher_behind_a_script_is_found() {
    let scratch = TempDir::new().unwrap();
    let (script, mpiexec) = (scratch.path().join("launch"), peers().join("mpich-5.0.2/bin/mpiexec.hydra"));
    fs::write(&script, format!("{} -n $1 $2\nexit 0\n", mpiexec.display())).unwrap();
    for wrapper in ["sh", "timeout 60 sh"] {
        let server = format!("{wrapper} {} {{ranks}} {{agent}}", script.display());
        let args = ["--server", &server, "--filter", "=kvs/get-of-nothing"];
        let ran = conform(scratch.path(), &args);
        assert_eq!(ran.status, 1, "{}", ran.whole());
        assert!(ran.out.contains("mpiexec.hydra died of signal 11"), "{}", ran.whole());
    }
}

/// A spawned process connects to the port, and the requests that the proxy forwards for this process are attributed to it.
#[rstest]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn proxy_processes_connect_through_pmi_port(#[values("mpich-4.3.2", "mpich-5.0.2")] name: &str) {
    let proxy = peer(name);
    let args = [
        "--server",
        proxy.to_str().unwrap(),
        "--connection",
        "port",
        "--filter",
        "=spawn/preput[at-once]",
        "--filter",
        "=kvs/exchange[own-key]",
    ];
    let output = conform(Path::new("."), &args);
    assert_eq!(output.status, 0, "{}", output.whole());
    assert!(output.out.contains("2 passed"), "{}", output.whole());
}

#[rstest]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn proxies_support_several_nodes_spawn_and_names(
    #[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str,
) {
    let scratch = TempDir::new().unwrap();
    let mut args = vec!["--server".to_owned(), peer(name).to_str().unwrap().to_owned()];
    for scenario in [
        "barrier/two-nodes[once]",
        "environment/two-nodes",
        "spawn/group[two-processes]",
        "names/found[own-name]",
    ] {
        args.extend(["--filter".to_owned(), format!("={scenario}")]);
    }
    let ran = conform(scratch.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("4 passed"), "{}", ran.whole());
}

/// The response that the scenario sends as the upstream reaches the process. If the proxy forwards a different request than the scenario
/// expects, this is a finding.
#[rstest]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn scenario_checks_and_responds_to_proxy_messages(
    #[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str,
    #[values(true, false)] right: bool,
) {
    let scratch = TempDir::new().unwrap();
    let (passed_on, answer) = if right { ("a", "there") } else { ("b", "elsewhere") };
    let scenario = format!(
        "# The proxy forwards a get of a missing key.\nrequires rfc13.get.value\nneeds upstream\nuse joined\n\
         0 send    cmd=get kvsname=$kvs key=a\nproxy:0 expect[hydra.upstream.requests-kept] cmd=get key={passed_on}\n\
         proxy:0 send    cmd=get_result rc=0 value=there\n0 expect  cmd=get_result rc=ok value={answer}\n"
    );
    fs::write(scratch.path().join("miss.pmi"), scenario).unwrap();
    let args =
        ["--server", peer(name).to_str().unwrap(), "--report", "ndjson=log", "miss.pmi"].map(String::from);
    let ran = conform(scratch.path(), &args.each_ref().map(String::as_str));
    assert_eq!(ran.status, i32::from(!right), "{}", ran.whole());
    let log = fs::read_to_string(scratch.path().join("log")).unwrap();
    assert!(log.contains("from_proxy"), "{log}");
    assert_eq!(log.contains("to_proxy"), right, "{log}");
    assert_eq!(ran.out.contains("hydra.upstream.requests-kept"), !right, "{}", ran.whole());
}

/// These proxies crash on a response without `cmd=`.
#[rstest]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn campaign_as_upstream_finds_proxy_crash(#[values("mpich-4.3.2", "mpich-5.0.2")] name: &str) {
    let scratch = TempDir::new().unwrap();
    let proxy = peer(name);
    let proxy = proxy.to_str().unwrap();
    // The campaign avoids mutations that lead to other known findings.
    let avoid = [
        "token",
        "separator",
        "length",
        "number",
        "count",
        "order",
        "repeat",
        "half",
        "pipeline",
        "close",
        "kvsname",
        "junk",
        "bytes",
    ]
    .map(|mutation| format!("{mutation}:*"));
    let known =
        format!("[[known]]\nbucket = \"rule--*\"\n[[known]]\nbucket = \"hang--*\"\navoid = {avoid:?}\n");
    fs::write(scratch.path().join("known.toml"), known).unwrap();
    let campaign = [
        "fuzz",
        "--server",
        proxy,
        "--seed",
        "4",
        "--sessions",
        "120",
        "--workers",
        "1",
        "--known",
        "known.toml",
    ];
    // The location of the crash must be unknown. Otherwise, a crash that a process's own messages cause would count as
    // the same finding, and only the first of the two would be reported.
    let mut command = Command::new(WITHOUT_PTRACE);
    command.arg(env!("CARGO_BIN_EXE_pmi-conform")).args(campaign).current_dir(scratch.path());
    let output = command.env_remove("PMI_CONFORM_SERVER").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let bucket = "crash--hydra_pmi_proxy--SIGSEGV--upstream-no-command";
    let finding = format!("pmi-conform-fuzz/{bucket}");
    let ran = conform(scratch.path(), &["fuzz", "--server", proxy, "--replay", &finding]);
    assert!(ran.out.ends_with(&format!("{bucket}: 5 of 5\n")), "{}", ran.whole());
    let why = fs::read_to_string(scratch.path().join(&finding).join("no-reproducer.txt")).unwrap();
    assert!(why.contains("acts as the proxy's upstream"), "{why}");
    assert!(!scratch.path().join(&finding).join("reproducer.py").exists());
    // Played as a scenario of the suite, the session shows the same finding.
    conform(scratch.path(), &["fuzz", "--export", "found"]);
    let scenario = format!("found/{bucket}.pmi");
    assert_eq!(conform(scratch.path(), &["scenario", "check", &scenario]).status, 0);
    let ran = conform(scratch.path(), &["--server", proxy, &scenario]);
    assert!(ran.status == 1 && ran.out.contains("died of signal 11"), "{}", ran.whole());
}

#[test]
fn upstream_scenarios_require_a_proxy() {
    let scratch = TempDir::new().unwrap();
    for args in [&["--memory"][..], &[]] {
        let ran = conform(scratch.path(), &[args, &["--filter", "upstream/", "-v"]].concat());
        assert_eq!(ran.status, 4, "{}", ran.whole());
        assert!(ran.out.contains("this scenario needs a bare proxy"), "{}", ran.whole());
    }
}

#[rstest]
#[case::detected_by_the_init_record("debian-mpich-4.0.2", "4.2", "init record")]
#[case::detected_by_the_options("mpich-5.0.2", "4.2", "instead of sending the ids of the processes")]
#[case::detected_by_the_options("mpich-4.3.2", "5.0.2", "instead of sending the ids of the processes")]
#[ignore = "needs real proxies: PMI_CONFORM_PEERS"]
fn reports_wrong_proxy_family(#[case] name: &str, #[case] family: &str, #[case] expected: &str) {
    let scratch = TempDir::new().unwrap();
    let ran = conform(scratch.path(), &["--server", peer(name).to_str().unwrap(), "--family", family]);
    assert_eq!(ran.status, 3, "{}", ran.whole());
    assert!(ran.err.contains(expected) || ran.err.contains("unrecognized argument"), "{}", ran.whole());
}
