//! Tests that the tables of `pmi-conform doctor --versions` show the real behaviour of a server, a program or a library.

mod common;

use std::path::Path;

use common::conform;
use pmi_test_programs::{CLIENT, side_by_side};
use serde_json::Value;

/// Returns the table cells for a server with this fault and for this offer: the response, and the behaviour after the response.
fn cell(fault: &str, offered: &str) -> (String, String) {
    let server =
        format!("{} serve --fault {fault} -n {{ranks}} {{agent}}", env!("CARGO_BIN_EXE_pmi-conform"));
    let ran =
        conform(Path::new("."), &["doctor", "--versions", "--json", "--server", &server, "--timeout", "2"]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let table: Value = serde_json::from_str(&ran.out).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["offered"] == offered).unwrap();
    (row["answered"].as_str().unwrap().to_owned(), row["then"].as_str().unwrap().to_owned())
}

/// The table cell for an offer of 1.1 that is answered without a newline.
const ANSWER_WITHOUT_NEWLINE: &str =
    "\"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\" without a newline (rfc13.wire.newline)";

#[test]
fn versions_table_shows_the_responses_of_a_server() {
    let cells = [
        ("init-version-higher", "1.1", "1.2", Some("goes on")),
        ("init-version-2", "0.9", "refused (rc=-1)", None),
        ("init-refused", "1.1", "refused (rc=-1)", None),
        ("init-no-answer", "1.1", "silent", Some("-")),
        ("no-newline", "1.1", ANSWER_WITHOUT_NEWLINE, Some("-")),
    ];
    side_by_side(&cells, |&(fault, offered, answer, then)| {
        let (answered, came) = cell(fault, offered);
        assert_eq!((&answered[..], then.map(|_| &came[..])), (answer, then));
    });
}

#[test]
fn versions_table_shows_the_reactions_of_a_program() {
    let here = Path::new(".");
    let ran = conform(here, &["doctor", "--versions", "--json", "--client", CLIENT]);
    assert_eq!(ran.status, 0, "{}", ran.whole());
    let table: Value = serde_json::from_str(&ran.out).unwrap();
    let then = |answer: &str| {
        let rows = table["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["answered"] == answer).unwrap();
        assert_eq!(row["offered"], "1.1");
        row["then"].as_str().unwrap().to_owned()
    };
    assert!(then("1.1").starts_with("goes on"), "{}", then("1.1"));
    // According to RFC 13, a refused client cannot continue.
    assert!(!then("refused (rc=-1)").contains("goes on"), "{}", then("refused (rc=-1)"));
    assert_eq!(then("no answer"), "waits forever");
}

#[test]
fn missing_manager_is_a_usage_error() {
    let ran =
        conform(Path::new("."), &["doctor", "--versions", "--server", "/nowhere/pm -n {ranks} {agent}"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
}
