//! Tests with agents that relay the connections of their processes to the runner, as agents on other machines do. `ci/judge-elsewhere`
//! tests the relay with processes on a simulated second machine, which has a separate network.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

use common::{Ran, conform, results};
use pmi_test_programs::HOSTILE_MANAGER;
use rstest::rstest;
use serde_json::Value;
use tempfile::TempDir;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

/// The verdict and the findings of each scenario of a run.
type Found = BTreeMap<String, (String, Vec<String>)>;

fn play(folder: &Path, args: &[&str]) -> (Found, Ran) {
    let ran = conform(folder, &[args, &["--report", "ndjson=log"]].concat());
    let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = results(&log).into_iter().map(|result| {
        let findings = result["findings"].as_array().unwrap().iter();
        let found = findings.map(|judged| word(&judged["finding"]["requirement"])).collect();
        (word(&result["scenario"]), (word(&result["verdict"]), found))
    });
    (found.collect(), ran)
}

/// Plays the same scenarios with and without the relay, and checks that the results are equal. Returns the results.
fn play_with_and_without_relay(args: &[&str]) -> Found {
    let folder = TempDir::new().unwrap();
    let (plain, ran) = play(folder.path(), args);
    assert!(!plain.is_empty(), "{}", ran.whole());
    let (relayed, ran) = play(folder.path(), &[args, &["--listen", "127.0.0.1"]].concat());
    let other: Vec<_> = relayed.iter().filter(|(name, found)| plain.get(*name) != Some(found)).collect();
    assert!(other.is_empty() && relayed.len() == plain.len(), "{other:?}\n{}", ran.whole());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    let header: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(header["relayed"], true, "{header}");
    relayed
}

/// Returns the command that starts the reference process manager, with an option that makes it break the protocol or exit.
fn serve(option: &str) -> String {
    format!("{CONFORM} serve -n {{ranks}} {option} -- {{agent}}")
}

/// These scenarios depend on properties that the relay could change: the number and order of bytes, how they are split across writes, and
/// how many processes there are and how they exit. Over a relay, silence cannot be proved, so the runner waits until the timeout.
#[rstest]
#[case::conversation("5", &["kvs/many*", "kvs/exchange*", "kvs/value*", "maxes/*", "mapping/*", "environment/*"])]
#[case::ends("2", &["abort/*", "death/*", "finalize/*"])]
#[case::spawns("5", &["spawn/arg*", "spawn/many-groups", "spawn/programs*", "pmi2/spawn/programs[one]", "pmi2/spawn/programs[own-arguments]", "pmi2/spawn/programs[arguments-of-all-kinds]"])]
fn relay_does_not_change_verdicts(#[case] patience: &str, #[case] filters: &[&str]) {
    let filters = filters.iter().flat_map(|filter| ["--filter", filter]);
    let limits = ["--timeout", patience, "--start-timeout", "20"];
    let found = play_with_and_without_relay(&limits.into_iter().chain(filters).collect::<Vec<_>>());
    assert!(found.values().all(|(verdict, _)| verdict == "pass" || verdict == "note"), "{found:?}");
}

#[test]
fn relays_connections_made_through_pmi_port() {
    play_with_and_without_relay(&["--connection", "port", "--filter", "kvs/exchange*", "--filter", "port/*"]);
}

#[test]
fn detects_faults_through_the_relay() {
    let found =
        play_with_and_without_relay(&["--server", &serve("--fault put-lost"), "--filter", "kvs/exchange*"]);
    assert!(found.values().any(|(verdict, _)| verdict == "fail"), "{found:?}");
}

#[rstest]
#[case::crash("crash", "crashed")]
#[case::silent("silent", "fail")]
#[case::flood("flood", "fail")]
#[case::flood_of_lines("flood-lines", "fail")]
#[case::junk("junk", "fail")]
#[case::no_fd("no-fd", "fail")]
#[case::wrong_fd("wrong-fd", "fail")]
fn relay_preserves_verdicts_on_hostile_managers(#[case] mode: &str, #[case] verdict: &str) {
    let server = format!("{HOSTILE_MANAGER} {mode} {{ranks}} {{agent}}");
    let found = play_with_and_without_relay(&[
        "--server",
        &server,
        "--filter",
        "=init/version-equal",
        "--timeout",
        "2",
    ]);
    assert_eq!(found.values().map(|(verdict, _)| &verdict[..]).collect::<Vec<_>>(), [verdict]);
}

#[test]
fn relay_supports_agents_started_through_a_shell() {
    let server = format!("sh -c 'exec {CONFORM} serve -n {{ranks}} -- {{agent}}'");
    play_with_and_without_relay(&["--server", &server, "--filter", "=group/facts[appnum]"]);
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn rejects_and_reports_connections_without_a_token() {
    let folder = TempDir::new().unwrap();
    let port = free_port();
    // One connection sends junk, one sends a different token, one sends nothing (like an agent that is killed early), and one does not
    // finish its line. The first two must be rejected before the job begins.
    let strangers = format!(
        "connect() {{ exec {{to}}<>/dev/tcp/127.0.0.1/{port}; }}
         connect; echo junk >&$to; cat <&$to
         connect; echo \"{{\\\"token\\\":\\\"guessed\\\"}}\" >&$to; cat <&$to
         connect
         connect; head -c 100000 /dev/zero >&$to
         exec {CONFORM} serve -n \"$@\""
    );
    let script = folder.path().join("manager");
    fs::write(&script, strangers).unwrap();
    let server = format!("bash {} {{ranks}} -- {{agent}}", script.display());
    let listen = format!("127.0.0.1:{port}");
    let (found, ran) = play(
        folder.path(),
        &["--server", &server, "--filter", "=group/facts[appnum]", "--listen", &listen, "-j", "1"],
    );
    assert_eq!(found["group/facts[appnum]"].0, "pass", "{}", ran.whole());
    let warnings = ran.err.matches("without the token of this launch and was rejected").count();
    assert_eq!(warnings, 3, "{}", ran.whole());
}

#[test]
fn unreachable_runner_makes_spawn_not_applicable() {
    // The launcher does not pass on the variable that contains the runner's address.
    let folder = TempDir::new().unwrap();
    let server = format!("env -u CONFORM_RELAY {}", serve(""));
    let (found, ran) = play(
        folder.path(),
        &[
            "--server",
            &server,
            "--filter",
            "=spawn/arguments-from-one",
            "--listen",
            "127.0.0.1",
            "--has",
            "spawn",
            "--timeout",
            "2",
        ],
    );
    assert_eq!(found["spawn/arguments-from-one"].0, "not_applicable", "{}", ran.whole());
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("no spawned process connected to the address"), "{log}");
}

#[rstest]
#[case::unspecified_address(&["--listen", "0.0.0.0"], "write the address at which other machines reach this machine")]
#[case::few_ports(&["--listen", "127.0.0.1:47000", "-j", "2"], "127.0.0.1:47000-47003")]
#[case::agent(&["--listen", "127.0.0.1", "--agent", "pmi-conform-agent"], "must be absolute")]
#[case::name(&["--listen", "127.0.0.1", "--agent", "/usr/bin/true"], "end with /pmi-conform-agent")]
#[case::singleton(&["--listen", "127.0.0.1", "--connection", "singleton"], "a bare proxy or a singleton")]
#[case::no_listen(&["--agent", "/usr/bin/pmi-conform-agent"], "--listen")]
fn rejects_invalid_relay_options(#[case] args: &[&str], #[case] expected: &str) {
    let folder = TempDir::new().unwrap();
    let ran = conform(folder.path(), &[args, &["--filter", "=group/facts[appnum]"]].concat());
    assert_eq!(ran.status, 2, "{}", ran.whole());
    assert!(ran.err.contains(expected), "{}", ran.whole());
}

#[test]
fn campaign_runs_over_relayed_connections() {
    let folder = TempDir::new().unwrap();
    let server = serve("");
    let args =
        ["--server", &server, "--listen", "127.0.0.1", "--sessions", "20", "--seed", "1", "--workers", "1"];
    let ran = conform(folder.path(), &[&["fuzz"], &args[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.err.contains("the agents relay the connections"), "{}", ran.whole());
}
