//! What is wrong with what was seen, and the bucket it belongs in: who, what, after which kind of message.

use std::collections::HashSet;

use pmi_wire::{Operation, Request, ValueReading};

use super::drive::{Growth, Played};
use crate::event::{Proc, SilenceProof, What};
use crate::judge::monitor::{END, HELD_UP, SILENCE};
use crate::judge::{Finding, Severity};
use crate::requirement::Catalogue;

/// Something that an implementation should not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symptom {
    /// Symptoms of one bucket are taken for the same; usable as a folder's name.
    pub bucket: String,
    /// In words.
    pub what: String,
    /// The requirement that is broken, if the monitor knows it.
    pub requirement: Option<String>,
}

/// The bucket of answers that are missing while the server may wait for the rest of what another process says.
pub(super) const BEHIND_A_HALF: &str = "behind-a-half-said-request";

/// No process of a server's may grow by more in one session, however much it was sent. Sessions rarely send more than some
/// hundred kilobytes; Hydra's processes grow by less than two megabytes in them.
pub(super) const GROWTH: u64 = 256 << 20;
/// Nor by more than this and ...
const GROWTH_BASE: u64 = 32 << 20;
/// ... so many bytes for each that it was sent: what is kept costs headers, copies and tables that double.
const GROWTH_FACTOR: u64 = 64;

/// A message with more keys is told by that alone, whatever it asks: RFC 13's have five at most.
const MANY_KEYS: usize = 20;

/// Signals by which processes are told to end: HUP, INT, KILL, TERM. Who dies of them has not crashed.
const ORDERS: [i32; 4] = [1, 2, 9, 15];

/// SIGPIPE.
const BROKEN_PIPE: i32 = 13;

/// How likely it is that a process died since another had: 0 for the least.
pub(super) fn consequence((_, signal): &(String, i32)) -> u8 {
    match *signal {
        signal if ORDERS.contains(&signal) => 2,
        BROKEN_PIPE => 1,
        _ => 0,
    }
}

/// Everything that is wrong, the worst first, one of each bucket.
pub fn symptoms(played: &Played, catalogue: &Catalogue) -> Vec<Symptom> {
    let mut all = Vec::new();
    let last = last_action(played);
    let crashed = played.crashed.as_ref().filter(|(_, signal)| !ORDERS.contains(signal));
    if let Some((name, signal)) = crashed {
        let name = program_in(name);
        let signal_name = signal_hook::low_level::signal_name(*signal).unwrap_or("signal");
        // Whose connection was gone when it wrote says little of what came last.
        let parts = ["crash", name, signal_name, &last];
        let parts = if *signal == BROKEN_PIPE { &parts[..3] } else { &parts };
        all.push(symptom(parts, format!("{name} died of signal {signal} ({signal_name}) after {last}")));
    } else if let Some((name, what)) = dying_words(played) {
        all.push(symptom(&["crash", &name, &slug(&what), &last], format!("{name}: {what}, after {last}")));
    }
    if played.flood {
        all.push(symptom(&["flood", &last], format!("it sends without end after {last}")));
    }
    // It was stopped for that, and owes all that it might have done since.
    let swollen = played.is_swollen();
    if let Some(proof) = played.stays.filter(|_| all.is_empty() && !swollen) {
        let how = match proof {
            SilenceProof::Idle => "its processes wait for ever",
            SilenceProof::Timeout => "its processes are at work or wait for a time",
        };
        let what = format!("the job does not end after all of its processes have: {how}; last came {last}");
        all.push(symptom(&["stays", &last], what));
    }
    let over = !all.is_empty() || swollen;
    if let Some(Growth { name, bytes, sent }) = played.growth.as_ref().filter(|g| is_too_much(g)) {
        let what = format!("{name} has grown by {} MiB in a session that sent it {sent} bytes", bytes >> 20);
        all.push(symptom(&["memory", name], what));
    }
    let fails = |finding: &&Finding| {
        let severity = catalogue.get(&finding.requirement).map_or(Severity::Fail, |r| r.severity());
        // Who is held up by half a request is of interest to a campaign, though the judge only notes it.
        let at_most = finding.at_most.filter(|_| finding.seen != HELD_UP);
        at_most.map_or(severity, |most| severity.min(most)) == Severity::Fail
    };
    let failures: Vec<&Finding> = played.findings.iter().filter(fails).collect();
    // A server that ends the program at one request owes the others that wait their answers as well.
    let lost = || failures.iter().filter(|f| f.seen == END);
    let end = lost().map(|f| f.seq).min();
    let waited = |f: &Finding| asked_at(played, f).filter(|at| end.is_some_and(|end| (*at as u64) < end));
    let first = lost().filter_map(|f| waited(f)).min();
    for finding in &failures {
        if finding.seen == END && waited(finding).is_some_and(|at| Some(at) != first) {
            continue;
        }
        // Who is dead does not answer.
        if over && [SILENCE, HELD_UP, END].contains(&finding.seen.as_str()) {
            continue;
        }
        let held_up = finding.seen == HELD_UP;
        let kind =
            answer_kind(&finding.seen).unwrap_or_else(|| kind_before(played, finding.proc, finding.seq));
        let silent = finding.seen == SILENCE;
        let mut found = if held_up {
            let what = format!("{kind} is not answered while a request of another process is half said");
            symptom(&["hang", BEHIND_A_HALF], what)
        } else {
            let what =
                format!("{}: expected {}; seen: {}", finding.requirement, finding.expected, finding.seen);
            symptom(&[if silent { "hang" } else { "rule" }, &finding.requirement, &kind], what)
        };
        found.requirement = Some(finding.requirement.clone());
        all.push(found);
    }
    let mut seen = HashSet::new();
    all.retain(|s| seen.insert(s.bucket.clone()));
    all
}

fn is_too_much(growth: &Growth) -> bool {
    growth.bytes > GROWTH.min(GROWTH_BASE.saturating_add(GROWTH_FACTOR.saturating_mul(growth.sent)))
}

pub(super) fn symptom(parts: &[&str], what: String) -> Symptom {
    let bucket = parts.iter().map(|p| slug(p)).collect::<Vec<_>>().join("--");
    Symptom { bucket, what, requirement: None }
}

/// A leak of processes, found after the end of who has started them.
pub(super) fn leak(starter: &str, names: &[String]) -> Symptom {
    let mut distinct = names.to_vec();
    distinct.dedup();
    symptom(
        &["leak", &distinct.join("-")],
        format!("processes are left when {starter} has ended: {}", names.join(", ")),
    )
}

/// A text of letters, digits and `.-_`, not too long.
pub fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '.' || c == '_' {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= 60 {
            break;
        }
    }
    out.trim_matches('-').to_owned()
}

/// `the launcher, mpiexec,` and the like.
fn program_in(name: &str) -> &str {
    name.split(", ").nth(1).unwrap_or(name).trim_matches(',')
}

/// What a program says when it dies for a reason of its own. Hydra's `assert (...) failed` is none: it is how Hydra
/// logs any error.
fn dying_words(played: &Played) -> Option<(String, String)> {
    const SIGNS: [&str; 10] = [
        "Assertion",
        "buffer overflow detected",
        "stack smashing detected",
        "free():",
        "malloc():",
        "realloc():",
        "corrupted",
        "Segmentation fault",
        "panicked at",
        "Sanitizer",
    ];
    let lines = || {
        played.events.iter().filter_map(|event| match &event.what {
            What::Output { line, .. } => Some(String::from_utf8_lossy(&line.0)),
            _ => None,
        })
    };
    let told = lines().find_map(|text| {
        let (name, signal) = text.strip_prefix(super::witness::MARK)?.split_once(' ')?;
        let signal = signal.trim().parse().ok().and_then(signal_hook::low_level::signal_name)?;
        Some((name.to_owned(), signal.to_owned()))
    });
    told.or_else(|| {
        let line = lines().find(|text| SIGNS.iter().any(|sign| text.contains(sign)))?;
        Some(("output".to_owned(), mask(&line)))
    })
}

/// A message without what differs from run to run: addresses, process ids, host names in brackets.
fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut bracket = false;
    for word in text.split_whitespace() {
        bracket |= word.starts_with('[');
        let ends = word.ends_with(']');
        let hex = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let numeric = hex.starts_with("0x") || (hex.len() > 3 && hex.bytes().all(|b| b.is_ascii_digit()));
        if !bracket && !numeric {
            let short = word.rsplit('/').next().unwrap_or(word);
            out += short;
            out.push(' ');
        }
        bracket &= !ends;
    }
    out.truncate(out.floor_char_boundary(100));
    out.trim().to_owned()
}

/// The kind of the last thing that we did before the implementation showed that something was wrong.
fn last_action(played: &Played) -> String {
    let trouble = played.events.iter().position(|e| {
        matches!(
            e.what,
            What::ClosedByServer { .. }
                | What::Ended { ours: false, .. }
                | What::Crashed { .. }
                | What::JobExited { .. }
        )
    });
    // That we let everything go at the end is no doing of the session's.
    let events = &played.events[..trouble.map_or(played.steps_done, |at| at.min(played.steps_done))];
    for event in events.iter().rev() {
        match &event.what {
            What::ToServer { bytes, .. } => return kind(&bytes.0),
            What::ToProxy { text, scripted: true, .. } => return super::upstream::kind(&text.0),
            What::ClosedByUpstream { .. } => return "upstream-close".into(),
            What::ClosedByClient { .. } => return "close".into(),
            What::Ended { ours: true, .. } => return "exit".into(),
            _ => {}
        }
    }
    "start".into()
}

/// The command of a response that a finding shows.
fn answer_kind(seen: &str) -> Option<String> {
    let name = seen.strip_prefix("\"cmd=")?.split([' ', '"']).next()?;
    Some(Operation::from_response_cmd(name.as_bytes())?.request_cmd().to_owned())
}

/// When the process that a finding is about last said something before it: the event's place.
fn asked_at(played: &Played, finding: &Finding) -> Option<usize> {
    let before = &played.events[..played.events.len().min(finding.seq as usize)];
    before.iter().rposition(|e| matches!(e.what, What::ToServer { proc, .. } if finding.proc == Some(proc)))
}

/// The kind of the last request of a process before an event; `pipelined` if others had no answer yet.
fn kind_before(played: &Played, proc: Option<Proc>, seq: u64) -> String {
    let events = &played.events[..played.events.len().min(seq as usize)];
    let mut last = None;
    let mut requests = 0;
    for event in events.iter().rev() {
        match &event.what {
            What::ToServer { proc: by, bytes } if proc.is_none_or(|p| p == *by) => {
                requests += bytes.0.split(|b| *b == b'\n').filter(|line| line.starts_with(b"cmd=")).count();
                last.get_or_insert_with(|| kind(&bytes.0));
            }
            What::FromServer { proc: to, .. } | What::NoAnswer { proc: to, .. } if proc == Some(*to) => break,
            _ => {}
        }
    }
    if requests > 1 { "pipelined".into() } else { last.unwrap_or_else(|| "start".into()) }
}

/// What kind of message a write ends with.
pub fn kind(bytes: &[u8]) -> String {
    let text = bytes.strip_suffix(b"\n");
    let partial = text.is_none();
    let last = text.unwrap_or(bytes).rsplit(|b| *b == b'\n').next().unwrap_or_default();
    if partial {
        return "partial".into();
    }
    let word = |prefix: &[u8]| -> Option<Vec<u8>> {
        let rest = last.strip_prefix(prefix)?;
        Some(rest.split(|b| !b.is_ascii_graphic()).next().unwrap_or_default().to_vec())
    };
    let spawning = bytes.split(|b| *b == b'\n').any(|l| l.starts_with(b"mcmd="));
    if spawning || last == b"endcmd" {
        return "spawn".into();
    }
    if last.split(u8::is_ascii_whitespace).filter(|word| word.contains(&b'=')).count() > MANY_KEYS {
        return "many-keys".into();
    }
    let Some(cmd) = word(b"cmd=") else { return "no-command".into() };
    let Some(op) = Operation::from_request_cmd(&cmd) else { return "unknown-command".into() };
    match Request::parse(last, ValueReading::ToEndOfLine) {
        Ok(_) => op.request_cmd().to_owned(),
        Err(_) => format!("bad-{}", op.request_cmd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bytes, Event};
    use crate::judge::Monitor;

    #[test]
    fn growth_is_too_much_beyond_both_bounds() {
        let grown = |mib: u64, sent| is_too_much(&Growth { name: "s".into(), bytes: mib << 20, sent });
        assert!(!grown(32, 0) && grown(33, 0));
        assert!(!grown(90, 1 << 20) && grown(97, 1 << 20));
        assert!(!grown(256, u64::MAX) && grown(257, u64::MAX));
    }

    #[test]
    fn who_asked_first_is_named_where_the_program_is_ended() {
        let proc = |rank| Proc { group: 0, rank };
        let asks = |rank, text: &str| What::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
        let joined = [0, 1].into_iter().flat_map(|rank| {
            let bytes = Bytes(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec());
            let init = asks(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
            [init, What::FromServer { proc: proc(rank), bytes }]
        });
        let launched = What::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let rest = [
            asks(0, "cmd=get_appnum\n"),
            asks(1, "cmd=get_universe_size\n"),
            What::ClosedByServer { proc: proc(1) },
            What::ClosedByServer { proc: proc(0) },
        ];
        let whats = std::iter::once(launched).chain(joined).chain(rest);
        let events: Vec<_> = whats.zip(0..).map(|(what, seq)| Event { seq, time_us: 0, what }).collect();
        let mut monitor = Monitor::new();
        events.iter().for_each(|event| monitor.observe(event));
        let mut played = Played { events, findings: monitor.take_findings(), ..Played::default() };
        assert_eq!(played.findings.len(), 2);
        let buckets = |played: &Played| -> Vec<String> {
            symptoms(played, &Catalogue::default()).into_iter().map(|s| s.bucket).collect()
        };
        assert_eq!(buckets(&played), ["rule--rfc13.abnf.c-appnum--get_appnum"]);
        played.findings.retain(|found| found.proc == Some(proc(1)));
        assert_eq!(buckets(&played), ["rule--rfc13.abnf.c-universe--get_universe_size"]);
    }

    #[test]
    fn kinds_of_messages() {
        for (bytes, expected) in [
            ("cmd=put kvsname=k key=a value=b\n", "put"),
            ("cmd=put kvsname=k\n", "bad-put"),
            ("cmd=put kvsname=k", "partial"),
            ("cmd=get kvsname=k key=a\ncmd=barrier_in\n", "barrier_in"),
            ("mcmd=spawn\nnprocs=1\nendcmd\n", "spawn"),
            ("cmd=frob\n", "unknown-command"),
            ("\n", "no-command"),
            (&format!("cmd=get_maxes{}\n", " x=1".repeat(MANY_KEYS)), "many-keys"),
        ] {
            assert_eq!(kind(bytes.as_bytes()), expected, "{bytes}");
        }
    }

    #[test]
    fn a_wrong_answer_is_told_by_its_own_command() {
        assert_eq!(answer_kind("\"cmd=universe_size rc=0 size=-1\"").as_deref(), Some("get_universe_size"));
        assert_eq!(answer_kind("\"cmd=finalize_ack\""), Some("finalize".into()));
        for other in ["silence", "PMI_RANK=1", "\"cmd=other\""] {
            assert_eq!(answer_kind(other), None, "{other}");
        }
    }

    #[test]
    fn buckets_do_not_depend_on_the_run() {
        let a = mask("[mpiexec@host-1] control_cb (proxy/cb.c:280): assert (!closed) failed");
        let b = mask("[mpiexec@other] control_cb (/build/17/proxy/cb.c:280): assert (!closed) failed");
        assert_eq!(a, b);
        assert!(a.contains("assert (!closed) failed"), "{a}");
        assert_eq!(
            mask("*** free(): invalid pointer: 0x00007f *** 12345"),
            "*** free(): invalid pointer: ***"
        );
        assert_eq!(slug("assert (!closed) failed/x"), "assert-closed-failed-x");
        assert_eq!(program_in("the launcher, hydra_pmi_proxy,"), "hydra_pmi_proxy");
    }
}
