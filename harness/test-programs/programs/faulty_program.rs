//! An independent program that speaks PMI, for the tests of `--client`. Without arguments, it behaves correctly. With the name of a fault
//! or a variation, it has that fault or variation (`faulty-program NAME`).
//!
//! It shares no code with the harness, so that tests can detect wrong assumptions in the harness. It puts a key, enters the barrier, gets
//! the keys of all ranks, and prints them with everything else that it has received.

use std::collections::BTreeMap;
use std::env;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, exit};

use rustix::process::{Signal, getpid, kill_process};

use super::selected_faults::{is_prefix_selected, is_selected, variable, wait_for_ever};

const LINE_MAX: usize = 8 * 1024;

pub(super) fn crash(signal: Signal) -> ! {
    // Rust's handler for stack overflows may catch the first signal and then uninstall itself, so the signal is sent twice.
    for _ in 0..2 {
        _ = kill_process(getpid(), signal);
    }
    wait_for_ever()
}

/// Crashes if this fault is selected and `met` is true.
pub(super) fn crash_if(fault: &str, met: bool) {
    if met && is_selected(fault) {
        crash(Signal::SEGV);
    }
}

/// Waits forever if this fault is selected and `met` is true.
pub(super) fn wait_if(fault: &str, met: bool) {
    if met && is_selected(fault) {
        wait_for_ever();
    }
}

/// Fails for the given reason if this fault is selected and `met` is true.
pub(super) fn fail_if(fault: &str, met: bool, what: &str) {
    if met && is_selected(fault) {
        fail(what);
    }
}

/// Prints the reason, and exits because the connection can no longer be used.
pub(super) fn fail(what: &str) -> ! {
    let name = env::args().next().unwrap_or_default();
    eprintln!("{}: {what}", name.rsplit('/').next().unwrap_or_default());
    if is_selected("aborts-itself") {
        std::process::abort();
    }
    if is_selected("leaves-a-process-when-it-fails") {
        // The runner kills all processes in this process group, so the shell gets a separate group.
        let mut shell = Command::new("sh");
        let started = shell.args(["-c", "sleep 60 >/dev/null 2>&1 &"]).process_group(0).status();
        started.expect("sh can be started");
    }
    exit(1)
}

pub(super) fn lost() -> ! {
    if is_selected("waits-after-close") {
        wait_for_ever();
    }
    if is_selected("spins-after-close") {
        loop {
            std::hint::spin_loop();
        }
    }
    if is_selected("well-after-close") || is_selected("groups-well-after-close") {
        exit(0);
    }
    if is_selected("crashes-after-close") {
        crash(Signal::SEGV);
    }
    fail("the connection has ended")
}

/// If one of the faults below is selected, acts like a program that is linked with a different implementation's library. That library finds
/// no process manager, so each process runs alone.
pub(super) fn goes_alone() {
    let last = || variable("PMI_RANK", fail) + 1 == variable("PMI_SIZE", fail);
    if is_selected("goes-alone") || is_selected("last-goes-alone") && last() {
        println!("rank 0 of 1");
        exit(0);
    }
    let is_open = |fd: &str| fd.parse::<u32>().is_ok() && Path::new("/proc/self/fd").join(fd).exists();
    if is_selected("continues-alone") && !env::var("PMI_FD").is_ok_and(|fd| is_open(&fd)) {
        println!("rank 0 of 1");
        exit(0);
    }
}

pub(super) type Tuples = BTreeMap<String, String>;

pub(super) struct Pmi {
    socket: UnixStream,
    buffer: Vec<u8>,
    pub(super) kvsname: String,
    keylen_max: usize,
    vallen_max: usize,
}

/// Returns the descriptor in PMI_FD.
pub(super) fn descriptor() -> i32 {
    let text = env::var("PMI_FD").unwrap_or_default();
    match () {
        () if is_selected("assumes-fd-3") => 3,
        () if is_selected("one-digit-fd") => text[..1].parse().unwrap_or(0),
        () if is_selected("fd-in-a-byte") => i32::from(text.parse::<i32>().unwrap_or(0) as u8),
        () if is_selected("crashes-on-bad-fd") && text.parse::<i32>().is_err() => crash(Signal::BUS),
        () => text.parse().unwrap_or_else(|_| fail("PMI_FD is not a number")),
    }
}

impl Pmi {
    pub(super) fn connect() -> Self {
        let fd = descriptor();
        // SAFETY: RFC 13 requires PMI_FD to name a descriptor that was opened for this process, and nothing else in this process owns it.
        let socket = unsafe { UnixStream::from_raw_fd(fd) };
        Self { socket, buffer: Vec::new(), kvsname: String::new(), keylen_max: 64, vallen_max: 1024 }
    }

    pub(super) fn send(&mut self, request: &str) {
        let end = if is_selected("ends-lines-with-cr-lf") { "\r\n" } else { "\n" };
        let line = format!("{request}{end}");
        if is_selected("writes-bytewise") {
            for byte in line.bytes() {
                if self.socket.write_all(&[byte]).is_err() {
                    lost();
                }
            }
        } else if self.socket.write_all(line.as_bytes()).is_err() {
            lost();
        }
    }

    fn line(&mut self) -> Vec<u8> {
        let mut fresh = 0;
        loop {
            if let Some(at) = self.buffer[fresh..].iter().position(|b| *b == b'\n') {
                let at = fresh + at;
                let mut line: Vec<u8> = self.buffer.drain(..=at).collect();
                line.pop();
                if line.is_empty() && is_selected("passes-over-empty-lines") {
                    fresh = 0;
                    continue;
                }
                crash_if("crashes-on-long-lines", line.len() > 900);
                if line.len() > 900 && is_selected("overruns-a-buffer") {
                    eprintln!("*** buffer overflow detected ***: terminated");
                    std::process::abort();
                }
                crash_if("read-longer-second", self.buffer.len() > line.len() + 1);
                return line;
            }
            if self.buffer.len() > LINE_MAX {
                fail("the line is too long");
            }
            fresh = self.buffer.len();
            let mut chunk = [0; 4096];
            let room = if is_selected("reads-bytewise") { 1 } else { chunk.len() };
            match self.socket.read(&mut chunk[..room]) {
                Ok(0) if !self.buffer.is_empty() && is_selected("waits-for-the-newline") => wait_for_ever(),
                Ok(0) | Err(_) => {
                    wait_if("close-behind-equals", self.buffer.ends_with(b"="));
                    lost()
                }
                Ok(n) => {
                    wait_if("piece-short", !self.buffer.is_empty() && n < 4);
                    wait_if("piece-12", self.buffer.len() == 12);
                    crash_if("piece-behind-blank", self.buffer.ends_with(b" "));
                    self.buffer.extend_from_slice(&chunk[..n]);
                }
            }
            if is_selected("takes-a-read-for-a-message") && !self.buffer.ends_with(b"\n") {
                self.buffer.push(b'\n');
            }
        }
    }

    /// Reads the next response, and returns it even if its `rc` reports a failure.
    fn response(&mut self, cmd: &str) -> Tuples {
        let mut line = self.line();
        if is_selected("takes-any-byte") {
            line.pop_if(|byte| *byte == b'\r');
        }
        if line.is_empty() && is_selected("takes-an-empty-line") {
            return Tuples::new();
        }
        let good = |b: &u8| matches!(b, b'\t' | 32..=126);
        if !line.iter().all(good) && !is_selected("takes-any-byte") {
            fail("a message contains a byte that is not allowed");
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        if !line.contains('=') {
            if is_selected("takes-junk-for-success") {
                return Tuples::new();
            }
            if is_selected("passes-over-junk") {
                return self.response(cmd);
            }
        }
        let tuples = split(&line, cmd);
        let named = tuples.get("cmd").is_some_and(|c| c == cmd);
        if !named && !is_selected("takes-any-answer") {
            if is_selected("passes-over-other-answers") {
                return self.response(cmd);
            }
            fail(&format!("no answer: {}", &line[..line.len().min(200)]));
        }
        let known =
            ["cmd", "rc", "msg", "value", "size", "appnum", "kvsname", "pmi_version", "pmi_subversion"];
        crash_if("key-long", tuples.keys().any(|key| key.len() >= 64));
        crash_if("tuples-32", tuples.len() >= 32);
        crash_if("msg-100", tuples.get("msg").is_some_and(|msg| msg.len() == 100));
        if is_selected("maxes-backwards")
            && let (Some(key), Some(value)) = (line.find("keylen_max="), line.find("vallen_max="))
            && value < key
        {
            wait_for_ever();
        }
        crash_if("msg-64", tuples.get("msg").is_some_and(|msg| msg.len() >= 64));
        let known = |k: &String| known.contains(&k.as_str()) || k.ends_with("len_max") || k == "kvsname_max";
        crash_if("crashes-at-keys-of-others", ["key", "service"].iter().any(|key| tuples.contains_key(*key)));
        fail_if("wants-the-command-first", !line.starts_with("cmd="), "the command is not the first tuple");
        fail_if("rejects-other-keys", !tuples.keys().all(known), "unknown key");
        fail_if(
            "counts-on-the-order",
            line.contains("rc=") && !line.starts_with(&format!("cmd={cmd} rc=")),
            "rc is not the second tuple",
        );
        tuples
    }

    pub(super) fn ask(&mut self, request: &str, cmd: &str) -> Tuples {
        self.send(request);
        self.response(cmd)
    }

    /// Makes a request that must succeed, and returns the response.
    pub(super) fn must(&mut self, request: &str, cmd: &str) -> Tuples {
        let answer = self.ask(request, cmd);
        if !succeeded(&answer) && !is_selected("ignores-failures") {
            if is_selected("aborts-by-request") {
                self.send("cmd=abort");
                self.line();
            }
            fail(&format!("{request} has failed"));
        }
        answer
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let answer = self.ask(&format!("cmd=get kvsname={} key={key}", self.kvsname), "get_result");
        if !succeeded(&answer) && !is_selected("takes-values-of-failures") {
            return None;
        }
        let value = answer.get("value").cloned();
        if value.is_none() && is_selected("invents-missing-values") {
            return Some(key.replacen('k', "v", 1));
        }
        Some(value.unwrap_or_else(|| fail("success without a value")))
    }
}

/// Enters two PMI-1.2 barriers at the same time. The server may release them in any order.
fn barriers_of_groups(pmi: &mut Pmi, rank: usize, size: usize) {
    let others = |other: &usize| *other != rank || !is_selected("groups-without-itself");
    let list: Vec<String> = (0..size).filter(others).map(|other| other.to_string()).collect();
    let list = if is_selected("groups-odd-form") { "ALL".to_owned() } else { list.join(",") };
    let second = if is_selected("groups-tag-twice") { 42 } else { 7 };
    let mut open = vec![42, second];
    // A single write contains both requests, so the first barrier is certainly incomplete when the second request arrives.
    pmi.send(&format!("cmd=barrier_in group={list}:42\ncmd=barrier_in group=WORLD:{second}"));
    while !open.is_empty() {
        let out = pmi.response("barrier_out");
        let tag =
            out.get("tag").map_or(0, |tag| tag.parse().unwrap_or_else(|_| fail("the tag is not a number")));
        match open.iter().position(|other| *other == tag) {
            _ if !succeeded(&out) => fail("the barrier of a group has failed"),
            Some(at) => drop(open.remove(at)),
            None => fail("barrier_out without a barrier"),
        }
    }
}

fn split(line: &str, cmd: &str) -> Tuples {
    let mut tuples = Tuples::new();
    let mut rest = line;
    while !rest.is_empty() {
        fail_if("one-blank-only", rest.starts_with([' ', '\t']), "more than one blank");
        rest = if is_selected("knows-no-tabs") {
            rest.trim_start_matches(' ')
        } else {
            rest.trim_start_matches([' ', '\t'])
        };
        if rest.is_empty() {
            break;
        }
        let Some((key, after)) = rest.split_once('=') else { fail("no tuple") };
        // In MPICH 3.4 and 4.0, other tuples may follow `msg=success`, so this value ends at the next blank.
        let short = key == "msg" && after.starts_with("success ") && !is_selected("reads-on-in-messages");
        let to_end = !short
            && matches!((key, cmd), ("msg", _) | ("value", "get_result"))
            && !is_selected("reads-on-in-messages");
        let blank = |c: char| c == ' ' || (c == '\t' && !is_selected("knows-no-tabs"));
        let end = if to_end { None } else { after.find(blank) };
        let (value, next) = end.map_or((after, ""), |at| (&after[..at], &after[at + 1..]));
        if tuples.insert(key.to_owned(), value.to_owned()).is_some() && !is_selected("reads-on-in-messages") {
            fail("a key occurs twice");
        }
        rest = next;
    }
    tuples
}

pub(super) fn succeeded(answer: &Tuples) -> bool {
    match answer.get("rc") {
        None => !is_selected("wants-rc"),
        Some(rc) if is_selected("compares-rc-as-text") => rc == "0",
        Some(rc) if is_selected("knows-minus-one-only") => rc != "-1",
        // With this fault, only the lowest eight bits count, as in an exit status.
        Some(rc) if is_selected("rc-of-a-byte") => rc.parse::<i64>().is_ok_and(|rc| rc & 0xff == 0),
        Some(rc) => rc.parse::<i64>().unwrap_or_else(|_| fail("rc is not a number")) == 0,
    }
}

pub(super) fn number(answer: &Tuples, key: &str) -> usize {
    let Some(text) = answer.get(key) else {
        if is_selected("ignores-failures")
            || is_selected("takes-junk-for-success")
            || is_selected("takes-an-empty-line")
            || is_selected("takes-any-answer")
        {
            return 1024;
        }
        fail(&format!("{key} is missing"))
    };
    let parsed = match text.strip_prefix('0').filter(|rest| !rest.is_empty()) {
        Some(_) if is_selected("rejects-leading-zeros") => None,
        _ => text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit())),
    };
    parsed.unwrap_or_else(|| fail(&format!("{key} is not a number")))
}

/// Returns the node of each rank, from the process mapping.
pub(super) fn nodes(mapping: &str, size: usize) -> Option<Vec<usize>> {
    let inside = mapping.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut all = Vec::new();
    for block in inside.split("),(") {
        let numbers: Vec<usize> =
            block.trim_matches(['(', ')']).split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let [first, count, each] = numbers[..] else { return None };
        crash_if("believes-any-mapping", count > 1_000_000);
        for node in (first..first.saturating_add(count)).take(size) {
            all.extend(std::iter::repeat_n(node, each.min(size)));
        }
    }
    all.truncate(size);
    (all.len() == size).then_some(all)
}

pub(crate) fn main() {
    goes_alone();
    let mut pmi = Pmi::connect();
    crash_if("crashes-on-odd-spawned", env::var("PMI_SPAWNED").is_ok_and(|text| text.parse::<u8>().is_err()));
    let (rank, size) = (variable("PMI_RANK", fail), variable("PMI_SIZE", fail));
    if is_selected("asks-before-init") {
        pmi.must("cmd=get_maxes", "maxes");
    }
    let offered = if is_prefix_selected("groups") { 2 } else { 1 };
    let version = pmi.must(&format!("cmd=init pmi_version=1 pmi_subversion={offered}"), "response_to_init");
    if is_selected("init-twice") {
        pmi.must("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    }
    if !is_selected("ignores-failures")
        && number(&version, "pmi_version") != 1
        && !is_selected("continues-in-any-version")
    {
        fail("unsupported version");
    }
    if is_selected("runs-ahead") {
        // A single write sends both requests. Otherwise, the server might answer the first before the second is sent.
        pmi.send("cmd=get_maxes\ncmd=get_appnum");
        pmi.response("maxes");
        pmi.response("appnum");
    }
    if !is_selected("asks-no-limits") {
        let maxes = pmi.must("cmd=get_maxes", "maxes");
        crash_if("takes-limits-for-signed", maxes.get("keylen_max").is_some_and(|n| n.starts_with('-')));
        (pmi.keylen_max, pmi.vallen_max) = (number(&maxes, "keylen_max"), number(&maxes, "vallen_max"));
        fail_if("needs-small-limits", pmi.vallen_max > 20_000, "vallen_max is too large");
        if is_selected("asserts-small-limits") && pmi.vallen_max > 4096 {
            std::process::abort();
        }
    }
    let name = pmi.must("cmd=get_my_kvsname", "my_kvsname");
    pmi.kvsname = name.get("kvsname").cloned().unwrap_or_else(|| fail("success without a name"));
    crash_if("crashes-on-odd-names", pmi.kvsname.contains('='));
    if is_selected("lowers-the-kvsname") {
        pmi.kvsname.make_ascii_lowercase();
    }
    if is_selected("cuts-the-kvsname") {
        pmi.kvsname.truncate(64);
    }
    crash_if("crashes-on-long-names", pmi.kvsname.len() > 256);
    let universe = pmi.ask("cmd=get_universe_size", "universe_size");
    if is_selected("divides-by-the-universe") && universe.get("size").is_some_and(|size| size == "0") {
        crash(Signal::FPE);
    }
    fail_if("needs-the-universe", !succeeded(&universe), "no universe size");
    let appnum = pmi.ask("cmd=get_appnum", "appnum");
    fail_if(
        "numbers-in-sixteen-bits",
        appnum.get("appnum").is_some_and(|n| n.parse::<u16>().is_err()),
        "appnum is not a number",
    );
    let mapping = pmi.get("PMI_process_mapping");
    fail_if("needs-a-mapping", mapping.as_ref().is_none_or(String::is_empty), "no mapping");
    if is_selected("prints-what-it-is-told") {
        let size = universe.get("size").map_or("unknown", |size| size);
        println!("universe {size} mapping {}", mapping.as_deref().unwrap_or("unknown"));
    }
    let placed = mapping.and_then(|mapping| nodes(&mapping, size));
    fail_if(
        "counts-on-the-mapping",
        placed.as_ref().is_some_and(|nodes| nodes.iter().any(|n| *n >= size)),
        "unknown node",
    );

    let (key, value) = match () {
        () if is_selected("ignores-limits") => {
            (format!("the-address-of-the-process-number-{rank}"), "v".repeat(64))
        }
        () if is_selected("same-key-for-all") => ("addr".to_owned(), format!("v{rank}")),
        () => (format!("k{rank}"), format!("v{rank}")),
    };
    if !is_selected("ignores-limits") && (key.len() >= pmi.keylen_max || value.len() >= pmi.vallen_max) {
        fail("the limits are too small for the key or the value");
    }
    let put = |pmi: &mut Pmi| {
        pmi.ask(&format!("cmd=put kvsname={} key={key} value={value}", pmi.kvsname), "put_result")
    };
    if is_selected("gets-before-the-barrier") {
        match rank {
            0 if pmi.get("k1").is_none() => fail("a value is missing"),
            0 => {}
            _ => std::thread::sleep(std::time::Duration::from_millis(200)),
        }
    }
    let answer = put(&mut pmi);
    let is_failure_ignored =
        is_selected("ignores-failures") || is_selected("same-key-for-all") || is_selected("ignores-limits");
    if !succeeded(&answer) && !is_failure_ignored {
        fail("the put has failed");
    }
    if is_selected("puts-twice") {
        put(&mut pmi);
    }
    if is_selected("puts-a-reserved-key") {
        pmi.ask(&format!("cmd=put kvsname={} key=PMI_card{rank} value=v", pmi.kvsname), "put_result");
    }
    if is_selected("puts-a-control-character") {
        pmi.ask(&format!("cmd=put kvsname={} key=bell{rank} value=\u{7}", pmi.kvsname), "put_result");
    }
    let wanted = |other: usize| match () {
        () if is_selected("ignores-limits") => format!("the-address-of-the-process-number-{other}"),
        () if is_selected("same-key-for-all") => "addr".to_owned(),
        () => format!("k{other}"),
    };
    if is_selected("polls-instead-of-the-barrier") {
        for other in 0..size {
            while pmi.get(&wanted(other)).is_none() {}
        }
    }
    let barrier = pmi.ask("cmd=barrier_in", "barrier_out");
    if !succeeded(&barrier) && !is_selected("takes-a-failed-barrier-for-passed") {
        if is_selected("waits-after-a-failed-barrier") {
            wait_for_ever();
        }
        fail("the barrier has failed");
    }
    let speaks_groups = offered == 2 || is_selected("offers-less-than-it-speaks");
    let groups =
        speaks_groups && version.get("pmi_subversion").is_some_and(|n| n.parse().is_ok_and(|n: u32| n >= 2));
    if groups || is_selected("groups-after-1-1") {
        barriers_of_groups(&mut pmi, rank, size);
    }
    let mut all = Vec::new();
    for other in 0..size {
        match pmi.get(&wanted(other)) {
            Some(value) => all.push(value),
            None if is_selected("ignores-failures") || is_selected("takes-a-failed-barrier-for-passed") => {
                all.push("?".to_owned())
            }
            None => fail("a value is missing"),
        }
    }
    if is_selected("uses-another-kvs") {
        pmi.ask("cmd=get kvsname=mine key=k0", "get_result");
    }
    println!("rank {rank} of {size}: {}", all.join(" "));
    if is_selected("prints-its-pid") {
        println!("{}", std::process::id());
    }
    if is_selected("leaves-without-finalize") {
        exit(0);
    }
    if is_selected("aborts-instead-of-finalizing") {
        pmi.send("cmd=abort exitcode=0");
        exit(0);
    }
    if is_selected("leaves-without-the-answer-to-finalize") {
        pmi.send("cmd=finalize");
        exit(0);
    }
    let last = pmi.ask("cmd=finalize", "finalize_ack");
    if !succeeded(&last) {
        fail("finalize has failed");
    }
    if is_selected("speaks-after-finalize") {
        pmi.send("cmd=get_maxes");
        pmi.line();
    }
    if is_selected("ends-badly") {
        exit(3);
    }
    while is_selected("prints-endlessly") {
        println!("at work");
    }
    if is_selected("never-ends") {
        wait_for_ever();
    }
}
