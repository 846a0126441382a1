//! Tests that `--report python=DIR` writes programs that reproduce a finding and that succeed once the fault is fixed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use pmi_test_programs::{FAULTY_MANAGER, FAULTY_PROGRAM};
use rstest::rstest;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn run(script: &Path, command: &[String]) -> (Option<i32>, String) {
    let output = Command::new("python3").arg(script).args(command).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

/// Writes the reproducers of a scenario. Returns the text of their index.
fn write(folder: &Path, scenario: &str, of: [&str; 2]) -> String {
    let mut conform = Command::new(CONFORM);
    conform.args(of).args(["-q", "--filter", &format!("={scenario}"), "--report", "python=scripts"]);
    let output = conform.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    fs::read_to_string(folder.join("scripts/index.txt")).unwrap()
}

fn serve(fault: &str) -> String {
    format!("{CONFORM} serve {fault} --nodes {{nodes}} -n {{ranks}} -- {{agent}}")
}

/// Returns the words of a command that starts the given number of ranks.
fn words(command: &str, ranks: &str, nodes: &str) -> Vec<String> {
    let command = command.replace("{ranks}", ranks).replace("{nodes}", nodes);
    shell_words::split(&command).unwrap()
}

#[rstest]
#[case::wrong_answer("get-missing-rc-zero", "kvs/missing-key[before-any-put]", "1", "1")]
#[case::wrong_value("value-backslash-eaten", "kvs/value[backslash]", "2", "1")]
#[case::two_nodes("mapping-missing", "mapping/two-nodes", "4", "2")]
fn reproduces_a_server_fault(
    #[case] fault: &str,
    #[case] scenario: &str,
    #[case] ranks: &str,
    #[case] nodes: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(&format!("--fault {fault}"));
    let index = write(folder.path(), scenario, ["--server", &server]);
    let names: Vec<&str> = index.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.ends_with(".py")), "{index}");
    for name in names {
        let script = folder.path().join("scripts").join(name);
        assert!(fs::read_to_string(&script).unwrap().lines().count() <= 60);
        let (status, text) = run(&script, &[]);
        assert!(status == Some(1) && text.contains("the symptom occurs"), "{text}");
        let (status, text) = run(&script, &words(&serve(""), ranks, nodes));
        assert!(status == Some(0) && text.contains("the symptom does not occur"), "{text}");
    }
}

/// The launch methods other than PMI_FD: processes that connect through PMI_PORT, and a process to which the manager connects.
#[rstest]
#[case::port(
    "--pmi-port -n {ranks} -- {agent}",
    "port",
    "get-missing-rc-zero",
    "kvs/missing-key[before-any-put]",
    "1"
)]
#[case::port_on_two_ranks(
    "--pmi-port -n {ranks} -- {agent}",
    "port",
    "value-backslash-eaten",
    "kvs/value[backslash]",
    "2"
)]
#[case::singleton(
    "--pmi-args {port} a b {pid}",
    "singleton",
    "get-missing-rc-zero",
    "kvs/missing-key[before-any-put]",
    "1"
)]
fn reproduces_a_fault_without_pmi_fd(
    #[case] options: &str,
    #[case] connection: &str,
    #[case] fault: &str,
    #[case] scenario: &str,
    #[case] ranks: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let serve = |faults: &str| format!("{CONFORM} serve {faults} {options}");
    let server = serve(&format!("--fault {fault}"));
    let mut conform = Command::new(CONFORM);
    conform.args([
        "-q",
        "--server",
        &server,
        "--connection",
        connection,
        "--filter",
        &format!("={scenario}"),
    ]);
    let output = conform.args(["--report", "python=scripts"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let index = fs::read_to_string(folder.path().join("scripts/index.txt")).unwrap();
    let name = index.split_whitespace().next().unwrap();
    let script = folder.path().join("scripts").join(name);
    let (status, text) = run(&script, &[]);
    assert!(status == Some(1) && text.contains("the symptom occurs"), "{index}{text}");
    let (status, text) = run(&script, &words(&serve(""), ranks, "1"));
    assert!(status == Some(0) && text.contains("the symptom does not occur"), "{text}");
}

#[test]
fn reproduces_a_launcher_crash() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("{FAULTY_MANAGER} crash-in-places {{ranks}} {{agent}}");
    let index = write(folder.path(), "kvs/exchange[own-key]", ["--server", &server]);
    let name = index.lines().find(|line| line.contains("iut.no-crash")).unwrap();
    let script = folder.path().join("scripts").join(name.split_whitespace().next().unwrap());
    let (status, text) = run(&script, &[]);
    assert!(status == Some(1) && text.contains("saw: -6"), "{text}");
    let healthy = words(&format!("{FAULTY_MANAGER} none {{ranks}} {{agent}}"), "1", "1");
    let (status, text) = run(&script, &healthy);
    assert_eq!(status, Some(0), "{text}");
}

#[rstest]
#[case::exit_status("rejects-leading-zeros", "lawful/forms[leading-zeros]")]
#[case::hang("polls-instead-of-the-barrier", "lawful/forms[get-after-barrier-only]")]
fn reproduces_a_program_fault(#[case] fault: &str, #[case] scenario: &str) {
    let folder = tempfile::tempdir().unwrap();
    let client = format!("{FAULTY_PROGRAM} {fault}");
    let index = write(folder.path(), &format!("client/{scenario}"), ["--client", &client]);
    for name in index.lines().filter_map(|line| line.split_whitespace().next()) {
        let script = folder.path().join("scripts").join(name);
        let (status, text) = run(&script, &[]);
        assert!(status == Some(1) && text.contains("the symptom occurs"), "{text}");
        let (status, text) = run(&script, &[FAULTY_PROGRAM.to_owned()]);
        assert_eq!(status, Some(0), "{text}");
    }
}
