//! An independent program that speaks PMI-2, for the tests of `--client`. Without arguments, it behaves correctly. With the name of a fault
//! or a variation, it has that fault or variation (`faulty-pmi2-program NAME`).
//!
//! It shares no code with the harness, so that tests can detect wrong assumptions in the harness. It puts a key, enters the fence, gets the
//! keys of all ranks and an attribute of its node, and prints them.

use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::process::exit;

use super::faulty_program::{Tuples, crash_if, descriptor, fail, fail_if, goes_alone, lost, wait_if};
use super::selected_faults::{is_selected, variable, wait_for_ever};

const BODY_MAX: usize = 64 * 1024;

pub(super) struct Pmi {
    socket: UnixStream,
}

impl Pmi {
    pub(super) fn connect() -> Self {
        let fd = descriptor();
        // SAFETY: PMI_FD names a descriptor that was opened for this process, and nothing else in this process owns it.
        Self { socket: unsafe { UnixStream::from_raw_fd(fd) } }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        let size = if is_selected("writes-bytewise") { 1 } else { bytes.len() };
        for piece in bytes.chunks(size.max(1)) {
            if self.socket.write_all(piece).is_err() {
                lost();
            }
        }
    }

    pub(super) fn send(&mut self, body: &str) {
        let body =
            if is_selected("leaves-out-the-last-semicolon") { body.trim_end_matches(';') } else { body };
        let frame = match () {
            () if is_selected("writes-no-length") => body.to_owned(),
            () if is_selected("writes-the-length-in-hex") => format!("{:#06x}{body}", body.len()),
            () if is_selected("pads-on-the-right") => format!("{:<6}{body}", body.len()),
            () if is_selected("pads-with-zeros") => format!("{:06}{body}", body.len()),
            () => format!("{:>6}{body}", body.len()),
        };
        self.write(frame.as_bytes());
    }

    /// Reads exactly `count` bytes, in as many reads as necessary.
    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut all = vec![0; count];
        let mut filled = 0;
        while filled < count {
            match self.socket.read(&mut all[filled..]) {
                Ok(0) | Err(_) => lost(),
                Ok(n) => filled += n,
            }
            wait_if("header-2", count == 6 && filled == 2);
            wait_if("header-4", count == 6 && filled == 4);
            wait_if("body-but-one", count > 6 && filled + 1 == count);
            if is_selected("takes-a-read-for-all") {
                break;
            }
        }
        all
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = Vec::new();
        while line.len() < 1000 {
            match self.take(1)[0] {
                b'\n' => return String::from_utf8_lossy(&line).into_owned(),
                byte => line.push(byte),
            }
        }
        fail("the line is too long")
    }

    fn body(&mut self) -> String {
        let header = self.take(6);
        let text = String::from_utf8_lossy(&header).into_owned();
        let digits = match () {
            () if is_selected("reads-padding-on-the-left-only") => text.trim_start(),
            () => text.trim(),
        };
        crash_if("crashes-at-a-negative-length", digits.starts_with('-'));
        fail_if("takes-leading-zeros-for-octal", digits.starts_with('0'), "the length has a leading zero");
        let length: usize = digits.parse().unwrap_or_else(|_| fail("the length is not a number"));
        if length > BODY_MAX {
            fail("the message is too long");
        }
        crash_if("crashes-at-an-empty-body", length == 0);
        crash_if("frame-1000", length >= 1000);
        String::from_utf8_lossy(&self.take(length)).into_owned()
    }

    pub(super) fn negotiate(&mut self) {
        self.write(b"cmd=init pmi_version=2 pmi_subversion=0\n");
        let line = self.line();
        let tuple = |key: &str| line.split(' ').find_map(|tuple| tuple.strip_prefix(key)).map(str::to_owned);
        let taken = tuple("rc=").is_none_or(|rc| rc == "0") && tuple("pmi_version=").as_deref() == Some("2");
        if tuple("cmd=").as_deref() != Some("response_to_init") || !(taken || is_selected("ignores-failures"))
        {
            fail("version 2 is refused");
        }
    }

    /// Reads the response to a command, and returns it even if its `rc` reports a failure.
    pub(super) fn response(&mut self, command: &str) -> Tuples {
        let body = self.body();
        if !body.ends_with(';') {
            fail("the message does not end with a semicolon");
        }
        let mut tuples = Tuples::new();
        crash_if("semicolons-four", body.contains(";;;;"));
        for (number, tuple) in body.split_terminator(';').enumerate() {
            let Some((key, value)) = tuple.split_once('=') else {
                if is_selected("passes-over-junk") {
                    return self.response(command);
                }
                fail("the message contains a word that is not a tuple")
            };
            if number == 1 && is_selected("wants-rc-last") && key == "rc" && body.matches('=').count() > 2 {
                fail("rc is not the last key");
            }
            if number == 0 && key != "cmd" {
                fail("cmd is not the first key");
            }
            let known = ["cmd", "rc", "rank", "size", "appnum", "jobid", "found", "flag", "value", "errmsg"];
            let versions = ["pmi-version", "pmi-subversion", "debugged", "pmiverbose", "thrid"];
            fail_if("rejects-other-keys", !known.contains(&key) && !versions.contains(&key), "unknown key");
            fail_if("takes-errmsg-for-failure", key == "errmsg", value);
            fail_if("looks-for-rc-anywhere", key.ends_with("rc") && value != "0", body.as_str());
            crash_if("errmsg-64", key == "errmsg" && value.len() >= 64);
            tuples.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let expected = format!("{command}-response");
        if tuples.get("cmd") != Some(&expected) && !is_selected("takes-any-answer") {
            fail(&format!("no answer to {command}"));
        }
        if !tuples.contains_key("rc") {
            fail("no rc");
        }
        tuples
    }

    /// Makes a request that must succeed, and returns the response.
    pub(super) fn must(&mut self, command: &str, rest: &str) -> Tuples {
        self.send(&format!("cmd={command};{rest}"));
        let answer = self.response(command);
        let rc = answer.get("rc").map_or("0", String::as_str);
        let succeeded = match () {
            () if is_selected("knows-minus-one-only") => rc != "-1",
            () => rc.parse::<i64>().unwrap_or_else(|_| fail("rc is not a number")) == 0,
        };
        if !succeeded && !is_selected("ignores-failures") {
            fail(&format!("{command} has failed"));
        }
        answer
    }

    /// Requests a value. Returns `None` if the server refuses the request or has no value.
    pub(super) fn value(&mut self, command: &str, rest: &str) -> Option<String> {
        self.send(&format!("cmd={command};{rest}"));
        let answer = self.response(command);
        let found = answer.get("found").or(answer.get("flag"));
        let there = found.is_none_or(|found| found.eq_ignore_ascii_case("true"));
        let failed = answer.get("rc").is_some_and(|rc| rc != "0");
        match answer.get("value") {
            _ if failed => None,
            value if is_selected("takes-a-miss-for-a-value") => Some(value.cloned().unwrap_or_default()),
            value => value.filter(|_| there).cloned(),
        }
    }
}

pub(crate) fn main() {
    goes_alone();
    let mut pmi = Pmi::connect();
    let rank = variable("PMI_RANK", fail);
    if is_selected("fullinit-in-the-place-of-init") {
        pmi.send("cmd=fullinit;pmijobid=job;pmirank=0;threaded=FALSE;");
    }
    pmi.negotiate();
    if is_selected("asks-before-fullinit") {
        pmi.must("job-getid", "");
    }
    let threaded = if is_selected("threaded-yes") { "yes" } else { "FALSE" };
    let told_rank = if is_selected("tells-another-rank") { rank + 1 } else { rank };
    let fullinit = format!("pmijobid=job;pmirank={told_rank};threaded={threaded};");
    let response = pmi.must("fullinit", &fullinit);
    if is_selected("says-fullinit-twice") {
        pmi.must("fullinit", &fullinit);
    }
    let number = |key: &str| -> usize {
        let value = response.get(key).and_then(|value| value.parse().ok());
        value.unwrap_or_else(|| {
            if is_selected("ignores-failures") { 1 } else { fail(&format!("{key} is missing")) }
        })
    };
    let (own, size) = (number("rank"), number("size"));
    fail_if("needs-a-version", !response.contains_key("pmi-version"), "no pmi-version");
    crash_if("wants-an-application-number", response.get("appnum").is_some_and(|n| n.starts_with('-')));
    let job = pmi.must("job-getid", "").get("jobid").cloned();
    let job =
        job.unwrap_or_else(|| if is_selected("ignores-failures") { "j".into() } else { fail("no jobid") });
    fail_if("rejects-odd-jobs", job.contains([' ', '=']), "the job id is not a word");
    if is_selected("asks-twice-at-once") {
        let body = "cmd=job-getid;";
        let frame = format!("{:>6}{body}", body.len());
        pmi.write(frame.repeat(2).as_bytes());
        pmi.response("job-getid");
        pmi.response("job-getid");
    }
    pmi.value("info-getjobattr", "key=PMI_process_mapping;");
    if is_selected("has-a-dot-in-a-key") {
        pmi.must("job-getid", "x.y=1;");
    }
    let key = |rank: usize| match is_selected("puts-long-keys") {
        true => format!("{}-{rank}", "k".repeat(70)),
        false if is_selected("has-a-blank-in-a-key") => format!("addr {rank}"),
        false => format!("addr-{rank}"),
    };
    let value = match () {
        () if is_selected("does-not-double-semicolons") => format!("host;{rank}"),
        () => format!("host-{rank}:port a"),
    };
    if is_selected("gets-before-the-barrier") {
        match own {
            0 if pmi.value("kvs-get", &format!("key={};", key(1))).is_none() => fail("a value is missing"),
            0 => {}
            _ => std::thread::sleep(std::time::Duration::from_millis(200)),
        }
    }
    match is_selected("puts-without-a-value") {
        true => pmi.must("kvs-put", &format!("key={};", key(own))),
        false => pmi.must("kvs-put", &format!("key={};value={value};", key(own))),
    };
    if own == 0 {
        pmi.must("info-putnodeattr", "key=there;value=yes;");
    }
    pmi.must("kvs-fence", "");
    let mut all = Vec::new();
    for other in 0..size {
        let jobid = if is_selected("gets-without-a-job") { String::new() } else { format!("jobid={job};") };
        match pmi.value("kvs-get", &format!("{jobid}srcid=-1;key={};", key(other))) {
            Some(value) => all.push(value),
            None if is_selected("ignores-failures") => all.push("?".to_owned()),
            None => fail("a value is missing"),
        }
    }
    // Only rank 0 puts and gets an attribute, so that no process waits forever for another process.
    if own == 0 {
        let there = pmi.value("info-getnodeattr", "key=there;wait=TRUE;");
        all.push(there.unwrap_or_else(|| {
            if is_selected("ignores-failures") { "?".into() } else { fail("no attribute") }
        }));
    }
    println!("rank {own} of {size}: {}", all.join(" "));
    if is_selected("leaves-without-finalize") {
        exit(0);
    }
    pmi.must("finalize", "");
    if is_selected("speaks-after-finalize") {
        pmi.send("cmd=job-getid;");
        pmi.body();
    }
    if is_selected("ends-badly") {
        exit(3);
    }
    if is_selected("never-ends") {
        wait_for_ever();
    }
}
