//! Tests of programs under test: the correct program and its variations pass, and each fault is found by a scenario that tests the broken
//! requirement.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use common::{Ran, conform, results};
use pmi_runner::interpret::program::offered_dialect;
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::program::Program;
use pmi_scenario::ast::Dialect;
use pmi_test_programs::{CLIENT, FAULTY_PMI2_PROGRAM, FAULTY_PROGRAM, mpi_program, peers};
use rstest::rstest;
use tempfile::TempDir;

/// The result of a run: for each scenario, the verdict and the cited requirements.
struct Found {
    ran: Ran,
    scenarios: BTreeMap<String, (String, Vec<String>)>,
}

/// Judges a program. `patience` is the maximum time for which the program may show no activity. No test asserts a
/// duration. A short value saves time in tests that must find a fault.
fn judge(command: &str, patience: &str, args: &[&str]) -> Found {
    let scratch = TempDir::new().unwrap();
    let log = scratch.path().join("log");
    let report = format!("ndjson={}", log.display());
    let fixed = ["--client", command, "--timeout", patience, "--report", &report];
    let ran = conform(scratch.path(), &[&fixed[..], args].concat());
    let mut scenarios = BTreeMap::new();
    for result in results(&std::fs::read_to_string(&log).unwrap_or_default()) {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let findings = result["findings"].as_array().unwrap().iter();
        let cited = findings.map(|f| text(&f["finding"]["requirement"])).collect();
        scenarios.insert(text(&result["scenario"]), (text(&result["verdict"]), cited));
    }
    Found { ran, scenarios }
}

fn faulty(fault: &str) -> String {
    format!("{FAULTY_PROGRAM} {fault}")
}

/// The result of the program without a fault, which passes every scenario.
static CLEAN: LazyLock<Found> = LazyLock::new(|| judge(&faulty(""), "20", &[]));

/// Returns filters that select one row of each scenario file. For a product (a scenario that is played once for each row of a table), they
/// select one row of the scenario for each row of the table. The omitted rows of a scenario differ only in the server's behaviour, to which
/// conforming programs may react differently.
fn one_of_each() -> Vec<String> {
    let mut samples = BTreeSet::new();
    let mut names = CLEAN.scenarios.keys().cloned().collect::<Vec<_>>();
    names.retain(|name| {
        // Keep only the first of the scenarios whose names differ only in ROW. A scenario from a file with rows is named `FILE[ROW]`. A
        // scenario that is played for each row of a table is named `FILE[ROW-OF-TABLE.ROW]`.
        let sample = name.rsplit_once('.').or_else(|| name.split_once('['));
        samples.insert(sample.map_or_else(|| name.clone(), |(sample, _)| sample.to_owned()))
    });
    names.into_iter().flat_map(|name| ["--filter".to_owned(), format!("={name}")]).collect()
}

fn passes(found: &Found, at_least: usize) {
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
    let odd: Vec<_> = found
        .scenarios
        .iter()
        .filter(|(_, (verdict, _))| !matches!(&**verdict, "pass" | "not_applicable"))
        .collect();
    assert!(odd.is_empty(), "{odd:?}\n{}", found.ran.whole());
    let played = found.scenarios.values().filter(|(verdict, _)| verdict == "pass").count();
    assert!(played >= at_least, "only {played} scenarios apply");
}

/// A program that prints the received data passes, regardless of the mapping and the universe size in that data.
#[test]
fn program_that_prints_received_data_passes() {
    let filters =
        ["mapping", "universe", "client/replies/texts[get."].map(|part| ["--filter", part]).concat();
    let found =
        judge(&faulty("prints-what-it-is-told"), "20", &[&["--strict=de-facto"], &filters[..]].concat());
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
    assert!(found.scenarios.values().filter(|(verdict, _)| verdict == "pass").count() > 60);
}

#[test]
fn correct_program_passes_all_scenarios() {
    passes(&CLEAN, 250);
}

/// An invalid PMI_FD that the scenario sets counts as invalid input, and the report shows the variables.
#[rstest]
#[case::file("file", "PMI_FD=0")]
#[case::not_open("not-open", "PMI_FD=1021")]
#[case::word("word", "PMI_FD=seven")]
fn invalid_descriptor_counts_as_invalid_input(#[case] row: &str, #[case] variable: &str) {
    let client = format!("sh -c 'test \"$PMI_FD\" = 3 || kill -SEGV $$; exec {FAULTY_PROGRAM}'");
    let found = judge(&client, "20", &["--filter", &format!("=client/environment/alone[{row}]")]);
    let text = found.ran.whole();
    assert!(text.contains("FAIL iut.no-crash: rank ") && text.contains("died of signal 11"), "{text}");
    assert!(text.contains(&format!("started with {variable} PMI_RANK=0 PMI_SIZE=2 without")), "{text}");
    assert!(!text.contains("input     valid") && !text.contains("(valid input)"), "{text}");
}

/// Neither variation breaks a MUST. A program that calls `abort()` has no exit status, and RFC 13 does not specify how to react to a
/// response whose version the client did not offer.
#[rstest]
#[case::aborts("aborts-itself", "closed/at[maxes]", "de-facto.client.exits")]
#[case::any_version("continues-in-any-version", "replies/init-values[too-high]", "rfc13.init.highest-mutual")]
fn program_variation_causes_only_a_note(
    #[case] variation: &str,
    #[case] scenario: &str,
    #[case] cited: &str,
) {
    let filters = one_of_each();
    let named = format!("=client/{scenario}");
    let filters: Vec<&str> = filters.iter().map(String::as_str).chain(["--filter", &named]).collect();
    let found = judge(&faulty(variation), "20", &filters);
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
    let (verdict, all) = &found.scenarios[&format!("client/{scenario}")];
    assert_eq!((&**verdict, &all[..]), ("note", &[cited.to_owned()][..]));
}

/// A program exits successfully without finalize. Only the plain scenarios report this; all other scenarios judge the program as usual.
#[test]
fn only_plain_scenarios_report_missing_finalize() {
    const FLAW: &str = "rfc13.abnf.c-finalize";
    let filters = one_of_each();
    let reversed = ["--filter", "=client/lawful/forms[order-reversed]"];
    let filters: Vec<&str> = filters.iter().map(String::as_str).chain(reversed).collect();
    let found = judge(&faulty("leaves-without-finalize,counts-on-the-order"), "20", &filters);
    for (name, (verdict, cited)) in &found.scenarios {
        let plain = name.starts_with("client/plain/") && verdict != "pass";
        assert_eq!(cited.iter().any(|id| id == FLAW), plain, "{name}\n{}", found.ran.whole());
        // Scenarios about the response to finalize do not apply to this program.
        if !name.contains("finalize") {
            let applies = CLEAN.scenarios[name].0 != "not_applicable";
            assert_eq!(verdict != "not_applicable", applies, "{name}\n{}", found.ran.whole());
        }
    }
    let (_, cited) = &found.scenarios["client/lawful/forms[order-reversed]"];
    assert_eq!(cited[..], ["rfc13.parser.order"]);
}

/// The finding names the response after which the program fails.
#[test]
fn failed_program_is_reported_with_the_last_response() {
    let args = ["-v", "--filter", "=client/lawful/numbers[universe-refused]"];
    let found = judge(&faulty("needs-the-universe"), "20", &args);
    let seen = "exit status 1, after cmd=get_universe_size was answered with \"cmd=universe_size rc=-1\"";
    assert!(found.ran.out.contains(seen), "{}", found.ran.whole());
}

/// A program whose main thread ends long before the process does, because another thread is still working.
const LAST_THREAD: &str = r#"
import ctypes, os, socket, threading, time
pmi = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")
def ask(request):
    print(request, file=pmi, flush=True)
    pmi.readline()
def work():
    time.sleep(0.3)
    ask("cmd=barrier_in")
    ask("cmd=finalize")
    os._exit(0)
ask("cmd=init pmi_version=1 pmi_subversion=1")
if os.environ["PMI_RANK"] == "0":
    work()
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"#;

/// A program that requests an abort after a failed init, but then sends another request.
const GOES_ON: &str = r#"
import os, socket, time
pmi = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")
def ask(request):
    print(request, file=pmi, flush=True)
    return pmi.readline()
if "rc=0" not in ask("cmd=init pmi_version=1 pmi_subversion=1"):
    ask("cmd=abort exitcode=1")
    time.sleep(0.3)
ask("cmd=get_maxes")
ask("cmd=barrier_in")
ask("cmd=finalize")
"#;

/// After a program has requested an abort, it has time to exit on its own. Otherwise, the verdict would depend on when the program is
/// killed.
#[test]
fn request_after_an_abort_is_always_reported() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("goes-on.py");
    std::fs::write(&program, GOES_ON).unwrap();
    let command = format!("python3 {}", program.display());
    let name = "client/replies/wrong[init.empty-line]";
    let found = judge(&command, "20", &["--filter", &format!("={name}")]);
    let (_, cited) = &found.scenarios[name];
    assert!(cited.iter().any(|id| id == "rfc13.init.complete-before-others"), "{}", found.ran.whole());
}

#[test]
fn process_without_main_thread_is_not_idle() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("threads.py");
    std::fs::write(&program, LAST_THREAD).unwrap();
    let command = format!("python3 {}", program.display());
    let found = judge(&command, "20", &["--filter", "=client/plain/runs[ends-well]"]);
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
}

/// For each fault, a finding cites a requirement that the fault breaks. Variations cause no findings.
#[rstest]
#[case::pmi1("pmi-1.1", FAULTY_PROGRAM)]
#[case::pmi2("pmi-2", FAULTY_PMI2_PROGRAM)]
fn scenarios_detect_all_program_faults(#[case] dialect: &str, #[case] program: &str) {
    let scratch = TempDir::new().unwrap();
    let program = format!("{program} {{fault}}");
    // Programs with faults spend most of their time waiting, so several of them can run at the same time.
    let args = ["suite", "mutants", "--client", &program, "--dialect", dialect, "--jobs", "4"];
    let ran = conform(scratch.path(), &args);
    assert!(ran.status == 0 && ran.out.ends_with("score 100 %\n"), "{}", ran.whole());
}

/// A program that only prints has the same time limit as a program that does nothing.
#[test]
fn endless_output_is_reported_as_a_timeout() {
    let found = judge(&faulty("prints-endlessly"), "1", &["--filter", "=client/plain/runs[ends-well]"]);
    let text = found.ran.whole();
    assert!(text.contains("nothing but output for "), "{text}");
}

fn faulty_pmi2(fault: &str) -> String {
    format!("{FAULTY_PMI2_PROGRAM} {fault}")
}

/// The result of the PMI-2 program without a fault, which passes every scenario.
static CLEAN_PMI2: LazyLock<Found> = LazyLock::new(|| judge(&faulty_pmi2(""), "20", &[]));

#[test]
fn correct_pmi2_program_passes_all_scenarios() {
    passes(&CLEAN_PMI2, 80);
}

#[test]
fn program_without_pmi_is_not_judged() {
    let found = judge("true", "20", &["-q"]);
    assert_eq!(found.ran.status, 3, "{}", found.ran.whole());
    assert!(found.ran.out.contains("is this a PMI program"), "{}", found.ran.whole());
}

/// If the processes of a program run as singletons, the program may not speak PMI at all, so it is not judged. The
/// report states this and cites the requirement. A program with a single process is not reported.
#[rstest]
#[case::pmi1(faulty("goes-alone"))]
#[case::pmi2(faulty_pmi2("goes-alone"))]
fn reports_processes_that_run_as_singletons(#[case] program: String) {
    let found = judge(&program, "20", &["--filter", "client/plain/*"]);
    assert_eq!(found.ran.status, 3, "{}", found.ran.whole());
    let of = |name: &str| (found.scenarios[name].0.as_str(), found.scenarios[name].1.len());
    assert_eq!(of("client/plain/runs[joins]"), ("unjudged", 1), "{}", found.ran.whole());
    assert_eq!(of("client/plain/runs[one-rank]"), ("unjudged", 0), "{}", found.ran.whole());
    assert!(found.scenarios["client/plain/runs[joins]"].1.iter().all(|id| id == "de-facto.client.joins"));
    assert!(found.ran.out.contains("rank 0 of 1"), "{}", found.ran.whole());
}

/// The process learns its rank and size only from the response to its initack.
#[test]
fn judges_program_that_connects_through_pmi_port() {
    let by_port = ["-n", "3", "--connection", "port"];
    let found = judge(CLIENT, "20", &by_port);
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
    assert_eq!(found.scenarios["client/plain/runs[ends-well]"].0, "pass", "{}", found.ran.whole());
    // Scenarios about PMI_FD do not apply to a connection through PMI_PORT.
    assert_eq!(found.scenarios["client/lawful/fd[10]"].0, "not_applicable", "{}", found.ran.whole());
    // This program supports only PMI_FD.
    let found =
        judge(&faulty(""), "20", &[&by_port[..], &["--filter", "plain/runs[ends-well]", "-q"]].concat());
    assert_ne!(found.ran.status, 0, "{}", found.ran.whole());
}

#[test]
fn missing_program_is_a_usage_error() {
    let found = judge("./nowhere --fast", "20", &[]);
    assert_eq!(found.ran.status, 2);
    assert!(found.ran.err.contains("nowhere"), "{}", found.ran.whole());
}

/// Processes that a program leaves running are gone after the program has been judged.
#[test]
fn client_run_leaves_no_process_running() {
    let mark = format!("{}", 900_000 + std::process::id());
    let command = format!("sh -c 'setsid sleep {mark} & exec {}'", faulty(""));
    let found = judge(&command, "20", &["--filter", "plain"]);
    assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
    let left = Command::new("pgrep").args(["-f", &format!("^sleep {mark}")]).output().unwrap();
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
}

#[rstest]
#[ignore = "needs PMI_CONFORM_PEERS, a folder made by ci/install-peers"]
fn mpi_program_deviates_as_recorded(
    #[values("debian-mpich-4.0.2", "mpich-4.3.2", "mpich-5.0.2")] name: &str,
) {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let scratch = TempDir::new().unwrap();
    let program = mpi_program(&peers().join(name).join("bin/mpicc"), "hello", scratch.path());
    let deviations = root.join("golden").join(format!("client-{name}")).join("deviations.toml");
    // Only `ci/judge-clients` plays the other scenarios, because under a hostile server, the results of two processes vary between runs.
    let args =
        ["-q", "--filter", "plain/", "--filter", "lawful/", "--deviations", deviations.to_str().unwrap()];
    let found = judge(program.to_str().unwrap(), "10", &args);
    assert_eq!(found.ran.status, 0, "{name}\n{}", found.ran.whole());
}

#[test]
fn interrupt_stops_the_probe() {
    let program = Program::new(CLIENT, 2).unwrap();
    // The interrupted probe kills the program before its first message. Without an offer, PMI-1 is assumed.
    assert_eq!(offered_dialect(&program, ScenarioLimits::default(), &AtomicBool::new(true)), Dialect::Pmi1);
}

/// A program that is started without a process manager and starts one. Its first argument selects correct behaviour or an error.
const ALONE: &str = r#"
import os, socket, subprocess, sys
how = sys.argv[1]
def manager(words):
    listener = socket.create_server(("127.0.0.1", 0))
    port = str(listener.getsockname()[1])
    process = subprocess.Popen(["mpiexec", "-pmi_args", port, "default_interface", "default_key"] + words)
    stream, _ = listener.accept()
    return process, stream, stream.makefile()
if how == "never":
    sys.exit(0)
if how == "short":
    subprocess.run(["mpiexec", "-pmi_args", "1", "default_interface"])
process, stream, lines = manager([str(os.getpid())])
def ask(request):
    stream.sendall((request + "\n").encode())
    return lines.readline()
if "authtype=none" not in lines.readline():
    sys.exit(1)
told = ask("cmd=singinit pmi_version=1 pmi_subversion=1 stdio=%s authtype=none" % ("maybe" if how == "unclear" else "yes"))
if "versionok=yes" not in told or "kvsname=" not in told:
    sys.exit(1)
if how == "twice":
    manager([str(os.getpid())])
ask("cmd=init pmi_version=1 pmi_subversion=1")
name = ask("cmd=get_my_kvsname").split("kvsname=")[1]
if told.split("kvsname=")[1] != name:
    sys.exit(1)
ask("cmd=barrier_in")
if how == "halves":
    # The system holds the second half back until the first is acknowledged, and that may take 40 ms.
    stream.sendall(b"cmd=get_my_kv")
    stream.sendall(b"sname\n")
    lines.readline()
ask("cmd=finalize")
# It ends when there is nothing left to manage.
lines.close()
stream.close()
sys.exit(process.wait())
"#;

#[rstest]
#[case::good("good", None)]
#[case::halves("halves", None)]
#[case::unclear("unclear", Some("singleton.client.answers"))]
#[case::short("short", Some("singleton.client.arguments"))]
#[case::twice("twice", Some("singleton.client.once"))]
fn judges_singleton_that_starts_a_process_manager(#[case] how: &str, #[case] breaks: Option<&str>) {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("alone.py");
    std::fs::write(&program, ALONE).unwrap();
    let command = format!("python3 {} {how}", program.display());
    let found = judge(&command, "5", &["--connection", "singleton", "--filter", "client/singleton"]);
    let cited: BTreeSet<&str> =
        found.scenarios.values().flat_map(|(_, ids)| ids).map(String::as_str).collect();
    let ours = found.scenarios.keys().filter(|name| name.starts_with("client/singleton")).count();
    assert_eq!(ours, 5, "{}", found.ran.whole());
    match breaks {
        None => {
            assert_eq!(found.ran.status, 0, "{}", found.ran.whole());
            assert!(found.scenarios["client/singleton"].0 == "pass", "{}", found.ran.whole());
        }
        Some(id) => {
            assert_eq!(found.ran.status, 1, "{}", found.ran.whole());
            assert!(cited.contains(id), "{cited:?} {}", found.ran.whole());
        }
    }
}

/// A second process manager exits if the process does not need it.
#[test]
fn unneeded_process_manager_exits() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("alone.py");
    let last = "    manager([str(os.getpid())])\n";
    assert!(ALONE.contains(last));
    // When the process starts the second process manager, the first one already serves the process, so the second one exits.
    let waits = "    other, second, _ = manager([str(os.getpid())])\n    \
                 second.sendall(b\"cmd=singinit pmi_version=1 pmi_subversion=1 stdio=no authtype=none\\n\")\n    \
                 other.wait()\n";
    std::fs::write(&program, ALONE.replace(last, waits)).unwrap();
    let command = format!("python3 {} twice", program.display());
    let found = judge(&command, "5", &["--connection", "singleton", "--filter", "=client/singleton"]);
    assert_eq!(found.ran.status, 1, "{}", found.ran.whole());
    assert!(!found.ran.out.contains("iut.no-hang"), "{}", found.ran.whole());
    assert!(found.ran.out.contains("singleton.client.once"), "{}", found.ran.whole());
}

/// A program that never requests a process manager remains unconnected, and no finding is reported.
#[test]
fn program_need_not_start_a_process_manager() {
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("alone.py");
    std::fs::write(&program, ALONE).unwrap();
    let command = format!("python3 {} never", program.display());
    let found = judge(&command, "5", &["--connection", "singleton", "--filter", "=client/singleton"]);
    assert_eq!(found.ran.status, 3, "{}", found.ran.whole());
    assert!(!found.ran.out.contains("started a process manager"), "{}", found.ran.whole());
}

/// A program that sends nothing may not speak PMI at all, so its failure to exit is reported, but not as a finding. The runner waits for as
/// long as `--start-timeout` allows.
#[test]
fn silent_program_is_not_judged() {
    let found =
        judge("sleep 1000", "600", &["--start-timeout", "1", "--filter", "client/plain/runs[ends-well]"]);
    assert_eq!(found.ran.status, 3, "{}", found.ran.whole());
    // The message continues with the time limit, which is longer on a busy machine.
    let expected =
        "no process sent a message to the process manager (rank 0 did not end: nothing sent or printed for ";
    assert!(found.ran.out.contains(expected), "{}", found.ran.out);
    assert!(!found.ran.out.contains("FAIL"), "{}", found.ran.out);
    let verdict = &found.scenarios["client/plain/runs[ends-well]"];
    assert_eq!((verdict.0.as_str(), verdict.1.len()), ("unjudged", 0));
}
