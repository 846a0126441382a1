//! Tests that `report bisect` finds the version that introduced or fixed a finding.

mod common;

use common::conform;
use serde_json::Value;
use tempfile::TempDir;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn serve(options: &str) -> String {
    format!("{CONFORM} serve {options} -n {{ranks}} {{agent}}")
}

#[test]
fn names_versions_that_introduce_and_fix_violations() {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (serve(""), serve("--fault get-missing-rc-zero"));
    let bisect = |servers: [&str; 3], more: &[&str]| {
        let servers = servers.iter().flat_map(|server| ["--server", server]);
        let filters = ["--filter", "kvs/missing-key[before-any-put]", "--filter", "kvs/exchange[own-key]"];
        let args: Vec<&str> = ["report", "bisect"]
            .into_iter()
            .chain(servers)
            .chain(filters)
            .chain(more.iter().copied())
            .collect();
        conform(folder.path(), &args)
    };
    let ran = bisect([&good, &bad, &good], &["--json"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    let turns = report["turns"].as_array().unwrap().iter();
    let turns: Vec<_> = turns.map(|t| (&t["version"], &t["becomes"], &t["requirement"])).collect();
    let id = "rfc13.error.rc-nonzero".into();
    assert_eq!(
        turns,
        [(&1.into(), &"introduced".into(), &id), (&2.into(), &"fixed".into(), &id)],
        "{report:#}"
    );
    assert_eq!(report["turns"][0]["scenarios"], serde_json::json!(["kvs/missing-key[before-any-put]"]));

    // Fixed findings, and findings that every version has, do not make the command fail.
    let ran = bisect([&bad, &bad, &good], &[]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("fixed in 3") && !ran.out.contains("introduced in"), "{}", ran.out);
    let ran = bisect([&bad, &bad, &bad], &["-v"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    assert!(ran.out.contains("broken by every version: rfc13.error.rc-nonzero"), "{}", ran.out);
}

#[test]
fn bisects_stored_runs() {
    let folder = TempDir::new().unwrap();
    for (log, options) in [("one", ""), ("two", "--fault get-missing-rc-zero")] {
        let server = serve(options);
        let report = format!("ndjson={log}");
        conform(
            folder.path(),
            &["--server", &server, "-q", "-f", "kvs/missing-key[before-any-put]", "--report", &report],
        );
    }
    let ran = conform(folder.path(), &["report", "bisect", "1.0=one", "2.0=two"]);
    assert_eq!(ran.status, 1, "{}", ran.whole());
    assert!(ran.out.contains("introduced in 2  2.0\n  FAIL rfc13.error.rc-nonzero"), "{}", ran.out);
    for (args, expected) in [
        (&["report", "bisect", "one"][..], "at least two versions"),
        (&["report", "bisect", "one", "nowhere"], "nowhere"),
        (&["report", "bisect", "one", "two", "--filter", "x"], "cannot be used with"),
    ] {
        let ran = conform(folder.path(), args);
        assert!(ran.status == 2 && ran.err.contains(expected), "{}", ran.whole());
    }
}

#[test]
fn reports_version_that_cannot_be_judged() {
    let folder = TempDir::new().unwrap();
    let good = serve("");
    let args = [
        "report",
        "bisect",
        "--server",
        &good,
        "--server",
        "false {ranks} {agent}",
        "-f",
        "kvs/exchange[own-key]",
    ];
    let ran = conform(folder.path(), &args);
    assert_eq!(ran.status, 3, "{}", ran.whole());
    assert!(
        ran.err.contains("false {ranks} {agent}: no scenario could be judged: the launcher ended"),
        "{}",
        ran.err
    );
}
