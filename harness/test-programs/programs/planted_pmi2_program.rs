//! A program of ten rounds that speaks PMI-2 and has a rare bug, to measure how soon campaigns find it: `planted-pmi2-program [NAME]`.
//! Without a name, it behaves correctly. It sends and reads messages through [faulty_pmi2_program], which also contains some of the bugs.
//!
//! [faulty_pmi2_program]: super::faulty_pmi2_program

use rustix::process::Signal;

use super::faulty_pmi2_program::Pmi;
use super::faulty_program::{Tuples, crash, crash_if, fail, wait_if};
use super::selected_faults::{check_names, is_selected, variable};

/// The number of rounds. In each round, all ranks put a key, enter the fence, and read the key of another rank.
const ROUNDS: usize = 10;

pub(crate) fn main() {
    check_names(fail);
    let rank = variable("PMI_RANK", fail);
    let mut pmi = Pmi::connect();
    pmi.negotiate();
    let response = pmi.must("fullinit", &format!("pmijobid=job;pmirank={rank};threaded=FALSE;"));
    let size = response.get("size").and_then(|size| size.parse().ok());
    let size: usize = size.unwrap_or_else(|| fail("no size"));
    if size == 0 {
        if is_selected("size-zero") {
            crash(Signal::SEGV);
        }
        fail("the group is empty");
    }
    let job = pmi.must("job-getid", "").remove("jobid").unwrap_or_else(|| fail("no jobid"));
    crash_if("jobid-64", job.len() >= 64);
    pmi.send("cmd=info-getjobattr;key=PMI_process_mapping;");
    let mapping = pmi.response("info-getjobattr");
    wait_if("attribute-refused", refused(&mapping));
    for round in 1..=ROUNDS {
        pmi.must("kvs-put", &format!("key=r{round}-{rank};value={rank} of {round};"));
        pmi.send("cmd=kvs-fence;");
        if refused(&pmi.response("kvs-fence")) {
            crash_if("fence-9-refused", round == 9);
            fail("the fence has failed");
        }
        let of = (rank + 1) % size;
        let value = pmi.value("kvs-get", &format!("jobid={job};srcid={of};key=r{round}-{of};"));
        crash_if("get-7-refused", value.is_none() && round == 7);
        let value = value.unwrap_or_else(|| fail("a value is missing"));
        if is_selected("value-1024") && value.len() == 1024
            || is_selected("value-77") && value.len() == 77
            || is_selected("value-del") && value.contains('\x7f')
        {
            crash(Signal::SEGV);
        }
    }
    pmi.must("finalize", "");
}

fn refused(answer: &Tuples) -> bool {
    answer.get("rc").is_some_and(|rc| rc != "0")
}
