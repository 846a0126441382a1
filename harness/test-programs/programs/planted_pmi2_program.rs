//! A program of ten rounds that speaks PMI-2 and has one rare bug, to measure how soon campaigns find it: `planted-pmi2-program [NAME]`;
//! `--list` prints the bugs. Without a bug it behaves correctly. It sends and reads messages through [faulty_pmi2_program], which also
//! contains some of its bugs.
//!
//! [faulty_pmi2_program]: super::faulty_pmi2_program

use super::chosen::{is, lists, variable, wait_for_ever};
use super::faulty_pmi2_program::{Pmi, Tuples, crash, fail};

/// Names of all bugs, and the effect of each. Real programs have had similar ones.
const BUGS: &[(&str, &str)] = &[
    ("frame-1000", "a frame of 1000 bytes or more is written behind a buffer (PMI-2)"),
    ("header-2", "a header is never read to its end if its first piece has two bytes (PMI-2)"),
    ("body-but-one", "a frame of which one byte is missing is never read to its end (PMI-2)"),
    ("semicolons-four", "two semicolons in a row, which are four on the wire, crash (PMI-2)"),
    ("errmsg-64", "an errmsg of 64 bytes or more is written behind a buffer (PMI-2)"),
    ("jobid-64", "the id of a job of 64 bytes or more has no NUL (PMI-2)"),
    ("size-zero", "a group of no processes is a divisor (PMI-2)"),
    ("fence-9-refused", "the ninth fence is counted in a table of eight where it is refused (PMI-2)"),
    ("value-1024", "a value as long as may be, 1024 bytes, is written behind a buffer (PMI-2)"),
    ("value-77", "a value of exactly 77 bytes is written with its NUL behind a buffer (PMI-2)"),
    ("value-del", "a value with the byte 127 is none, and what is none is read (PMI-2)"),
    ("header-4", "a header is never read to its end if its first piece has four bytes (PMI-2)"),
    ("get-7-refused", "the get of the seventh round is counted in a table of six where it fails (PMI-2)"),
    ("attribute-refused", "an attribute that is refused, rather than not found, is waited for (PMI-2)"),
];

/// Rounds in which all ranks put a key, meet, and read the key of another rank.
const ROUNDS: usize = 10;

pub(crate) fn main() {
    if lists(BUGS, fail) {
        return;
    }
    let rank = variable("PMI_RANK", fail);
    let mut pmi = Pmi::connect();
    pmi.negotiate();
    let told = pmi.must("fullinit", &format!("pmijobid=job;pmirank={rank};threaded=FALSE;"));
    let size = told.get("size").and_then(|size| size.parse().ok());
    let size: usize = size.unwrap_or_else(|| fail("no size"));
    if size == 0 {
        if is("size-zero") {
            crash();
        }
        fail("nobody is there");
    }
    let job = pmi.must("job-getid", "").remove("jobid").unwrap_or_else(|| fail("no jobid"));
    if is("jobid-64") && job.len() >= 64 {
        crash();
    }
    pmi.send("cmd=info-getjobattr;key=PMI_process_mapping;");
    let mapping = pmi.response("info-getjobattr");
    if is("attribute-refused") && refused(&mapping) {
        wait_for_ever();
    }
    for round in 1..=ROUNDS {
        pmi.must("kvs-put", &format!("key=r{round}-{rank};value={rank} of {round};"));
        pmi.send("cmd=kvs-fence;");
        if refused(&pmi.response("kvs-fence")) {
            if is("fence-9-refused") && round == 9 {
                crash();
            }
            fail("the fence has failed");
        }
        let of = (rank + 1) % size;
        let value = pmi.value("kvs-get", &format!("jobid={job};srcid={of};key=r{round}-{of};"));
        if value.is_none() && is("get-7-refused") && round == 7 {
            crash();
        }
        let value = value.unwrap_or_else(|| fail("a value is missing"));
        if is("value-1024") && value.len() == 1024
            || is("value-77") && value.len() == 77
            || is("value-del") && value.contains('\x7f')
        {
            crash();
        }
    }
    pmi.must("finalize", "");
}

fn refused(answer: &Tuples) -> bool {
    answer.get("rc").is_some_and(|rc| rc != "0")
}
