//! A program of ten rounds that speaks PMI and has a rare bug, to measure how soon campaigns find it: `planted-program [NAME]`. Without a
//! name, it behaves correctly. It sends and reads messages through [faulty_program], which also contains some of the bugs.
//!
//! [faulty_program]: super::faulty_program

use rustix::process::Signal;

use super::faulty_program::{Pmi, Tuples, crash, crash_if, fail, nodes, number, succeeded, wait_if};
use super::selected_faults::{check_names, is_selected, variable, wait_for_ever};

/// The number of rounds. In each round, all ranks put a key, enter the barrier, and read the key of another rank.
const ROUNDS: usize = 10;

pub(crate) fn main() {
    check_names(fail);
    let mut pmi = Pmi::connect();
    let (rank, size) = (variable("PMI_RANK", fail), variable("PMI_SIZE", fail));
    let (keylen_max, vallen_max) = joined(&mut pmi);
    looked_around(&mut pmi, size);
    let mut refused = 0;
    for round in 1..=ROUNDS {
        let name = |rank: usize| format!("r{round}-{rank}");
        let value = format!("{rank}-of-{round}");
        if name(rank).len() >= keylen_max || value.len() >= vallen_max {
            fail("the limits are too small for the key or the value");
        }
        let put = format!("cmd=put kvsname={} key={} value={value}", pmi.kvsname, name(rank));
        if !succeeded(&pmi.ask(&put, "put_result")) {
            crash_if("put-refused-last", size > 2 && rank == size - 1);
            fail("the put has failed");
        }
        if !succeeded(&pmi.ask("cmd=barrier_in", "barrier_out")) {
            crash_if("barrier-9-refused", round == 9);
            fail("the barrier has failed");
        }
        let get = format!("cmd=get kvsname={} key={}", pmi.kvsname, name((rank + 1) % size));
        let mut answer = pmi.ask(&get, "get_result");
        if !succeeded(&answer) {
            // The request is repeated once, because the value may not be available yet.
            refused += 1;
            crash_if("get-7-refused", round == 7);
            answer = pmi.ask(&get, "get_result");
        }
        if !succeeded(&answer) {
            refused += 1;
            if is_selected("get-refused-twice") && refused == 2 {
                // The C library's message makes the abort count as a crash. Without it, the abort is an allowed reaction to an error.
                eprintln!("free(): double free detected in tcache 2");
                crash(Signal::ABORT);
            }
            fail("a value is missing");
        }
        read(&answer);
    }
    if rank == 0 {
        named(&mut pmi);
    }
    let last = pmi.ask("cmd=finalize", "finalize_ack");
    if !succeeded(&last) {
        if is_selected("finalize-refused-again") && last.get("rc").is_some_and(|rc| !rc.starts_with('-')) {
            pmi.ask("cmd=finalize", "finalize_ack");
        }
        fail("finalize has failed");
    }
}

/// Initializes, and requests the limits and the name of the keyval space. Returns the maximum lengths of a key and a value.
fn joined(pmi: &mut Pmi) -> (usize, usize) {
    let version = pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    let positive = version.get("rc").is_some_and(|rc| !rc.starts_with('-'));
    if !(succeeded(&version) || is_selected("init-refused-positive") && positive) {
        fail("no common version");
    }
    let maxes = pmi.must("cmd=get_maxes", "maxes");
    let limits = ["keylen_max", "vallen_max", "kvsname_max"].map(|key| number(&maxes, key));
    if is_selected("keylen-8") && limits[0] < 8
        || is_selected("vallen-16m") && limits[1] >= 16 << 20
        || is_selected("kvsname-max-31") && limits[2] >= 1 << 31
    {
        crash(Signal::SEGV);
    }
    let name = pmi.must("cmd=get_my_kvsname", "my_kvsname");
    pmi.kvsname = name.get("kvsname").cloned().unwrap_or_else(|| fail("success without a name"));
    if is_selected("kvsname-64") && pmi.kvsname.len() >= 64
        || is_selected("kvsname-47") && pmi.kvsname.len() == 47
    {
        crash(Signal::SEGV);
    }
    (limits[0], limits[1])
}

/// Requests the universe size, the application number and the process mapping.
fn looked_around(pmi: &mut Pmi, size: usize) {
    let universe = pmi.ask("cmd=get_universe_size", "universe_size");
    crash_if("universe-absent", succeeded(&universe) && !universe.contains_key("size"));
    let appnum = pmi.ask("cmd=get_appnum", "appnum");
    if is_selected("appnum-negative")
        && succeeded(&appnum)
        && appnum.get("appnum").is_some_and(|n| n.starts_with("-"))
    {
        crash(Signal::SEGV);
    }
    let get = format!("cmd=get kvsname={} key=PMI_process_mapping", pmi.kvsname);
    let answer = pmi.ask(&get, "get_result");
    let Some(mapping) = answer.get("value").filter(|_| succeeded(&answer)) else { return };
    crash_if("mapping-9-blocks", mapping.matches('(').count() > 9);
    let mut placed = nodes(mapping, size).unwrap_or_default();
    placed.dedup();
    let blocks = placed.len();
    placed.sort_unstable();
    placed.dedup();
    wait_if("mapping-overlap", placed.len() < blocks);
}

/// Checks the response to a get.
fn read(answer: &Tuples) {
    let Some(value) = answer.get("value") else {
        crash_if("rc-of-a-byte", answer.get("rc").is_some_and(|rc| rc != "0"));
        fail("success without a value")
    };
    if is_selected("value-256") && value.len() == 256
        || is_selected("value-77") && value.len() == 77
        || is_selected("value-backquote") && value.contains('`')
        || is_selected("value-tilde-first") && value.starts_with('~')
        || is_selected("value-longest") && value.len() == 1023
        || is_selected("value-empty") && value.is_empty()
        || is_selected("value-equals-first") && value.starts_with('=')
        || is_selected("value-percent") && value.contains('%')
        || is_selected("value-blank-last") && value.ends_with(' ')
    {
        crash(Signal::SEGV);
    }
}

/// Uses the manager's name service, if any.
fn named(pmi: &mut Pmi) {
    if !succeeded(&pmi.ask("cmd=publish_name service=planted port=tag#0$port#4242$", "publish_result")) {
        return;
    }
    let found = pmi.ask("cmd=lookup_name service=planted", "lookup_result");
    let length = found.get("port").map_or(0, String::len);
    if is_selected("lookup-128") && length >= 128 || is_selected("lookup-83") && length == 83 {
        crash(Signal::SEGV);
    }
    if !succeeded(&pmi.ask("cmd=unpublish_name service=planted", "unpublish_result")) {
        if is_selected("unpublish-refused") {
            wait_for_ever();
        }
        fail("cannot unpublish the name");
    }
}
