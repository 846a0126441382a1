//! Tests of the monitor with whole conversations.

use pmi_scenario::requirement::is_advisory;
use rstest::rstest;

use pmi_wire::{Direction, Operation};

use super::state::{MAX_EXCESS_PROCESSES, MIN_LONG_REQUEST, grammar_rule};
use super::*;
use crate::Severity;
use crate::event::{Bytes, HangProof};
use crate::finding::{Finding, PartyKind};
use crate::observation::ObservationKind;

/// Returns the requirements that a server breaks in these lines: the rank, whether the server sends the line, and its text.
fn findings(lines: &[(u32, bool, &str)]) -> Vec<String> {
    let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
    let events = lines.iter().map(|(rank, server, line)| {
        let proc = Proc { group: 0, rank: *rank };
        let bytes = Bytes(format!("{line}\n").into_bytes());
        if *server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    });
    let found = judged(std::iter::once(launched).chain(events));
    found.into_iter().filter(|f| f.party == PartyKind::Server).map(|f| f.requirement).collect()
}

fn judged(events: impl IntoIterator<Item = EventKind>) -> Vec<Finding> {
    let mut monitor = Monitor::new();
    for (kind, seq) in events.into_iter().zip(0..) {
        monitor.observe(&Event::new(seq, kind));
    }
    monitor.take_findings()
}

const JOINED: [(u32, bool, &str); 4] = [
    (0, false, "cmd=init pmi_version=1 pmi_subversion=1"),
    (0, true, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
    (0, false, "cmd=get_my_kvsname"),
    (0, true, "cmd=my_kvsname kvsname=k"),
];

#[test]
fn pipelined_requests_may_be_answered_in_any_order() {
    let barrier = (0, false, "cmd=barrier_in");
    let get = (0, false, "cmd=get_appnum");
    let (out, number) = ((0, true, "cmd=barrier_out"), (0, true, "cmd=appnum appnum=0"));
    let found = |rest: &[(u32, bool, &'static str)]| findings(&[&JOINED, rest].concat());
    let mismatch = "rfc13.wire.response-matches-request";
    assert_eq!(found(&[get, out]), [mismatch]);
    assert_eq!(found(&[barrier, get, number]), Vec::<String>::new());
    // Once all requests have been answered, the monitor is strict again.
    assert_eq!(found(&[barrier, get, number, out, get, out]), [mismatch]);
    // An unrequested response to another process has no excuse.
    assert_eq!(found(&[barrier, barrier, (1, true, "cmd=barrier_out")]), ["rfc13.wire.lock-step"]);
}

#[rstest]
#[case::request("cmd=get kvsname=k key=a", "rfc13.wire.client-sends-requests")]
#[case::request_with_a_tab("cmd=get\tkvsname=k\tkey=a", "rfc13.abnf.pmi1")]
#[case::beginning_of_a_request("cmd=get rc=0 value=v", "rfc13.abnf.pmi1")]
fn malformed_answer_is_not_a_request(#[case] answer: &str, #[case] broken: &str) {
    let said = [(0, false, "cmd=get kvsname=k key=a"), (0, true, answer)];
    assert_eq!(findings(&[&JOINED[..], &said].concat()), [broken]);
}

#[test]
fn odd_request_excuses_only_its_own_answer() {
    let found = |rest: &[(u32, bool, &'static str)]| findings(&[&JOINED, rest].concat());
    let odd = (0, false, "cmd=get_maxes  extra=1");
    let (limits, refused) = (
        (0, true, "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64"),
        (0, true, "cmd=maxes rc=-1"),
    );
    let (name, none) = ((0, false, "cmd=get_my_kvsname"), (0, true, "cmd=my_kvsname rc=-1"));
    assert_eq!(found(&[odd, refused, name, none]), Vec::<String>::new());
    assert_eq!(found(&[odd, limits, name, none]), ["rfc13.abnf.c-kvsname"]);
    // Reading an odd put or lookup is a SHOULD; returning a wrong value is not.
    let put = [(0, false, "cmd=put key=a kvsname=k value=v"), (0, true, "cmd=put_result rc=0")];
    let barrier = [0, 1].map(|rank| (rank, false, "cmd=barrier_in"));
    let out = [0, 1].map(|rank| (rank, true, "cmd=barrier_out"));
    let get = (0, false, "cmd=get kvsname=k key=a");
    let other = [(1, false, JOINED[0].2), (1, true, JOINED[1].2)];
    let got = |answer| found(&[&other[..], &put, &barrier, &out, &[get, (0, true, answer)]].concat());
    assert_eq!(got("cmd=get_result rc=-1"), Vec::<String>::new());
    assert_eq!(got("cmd=get_result rc=0 value=w"), ["rfc13.get.value"]);
    let lookup = [(0, false, "cmd=lookup_name  service=s"), (0, true, "cmd=lookup_result info=fail")];
    assert_eq!(found(&lookup), Vec::<String>::new());
}

#[rstest]
#[case::beyond_an_int("-004294967296", false)]
#[case::error("-1", true)]
fn client_may_read_a_huge_rc_as_success(#[case] rc: &str, #[case] broken: bool) {
    let proc = Proc { group: 0, rank: 0 };
    let asks = |text: &str| EventKind::ToServer { proc, bytes: Bytes(text.into()) };
    let answer = format!("cmd=response_to_init rc={rc} pmi_version=1 pmi_subversion=1\n");
    let found = judged([
        EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 },
        asks("cmd=init pmi_version=1 pmi_subversion=1\n"),
        EventKind::FromServer { proc, bytes: Bytes(answer.into()) },
        asks("cmd=get_maxes\n"),
    ]);
    let early = pmi_scenario::ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS;
    assert_eq!(found.iter().any(|f| f.requirement == early), broken, "{found:?}");
}

/// On a loaded machine, the wait may time out before the server responds.
#[test]
fn silence_states_whether_it_is_proved() {
    let proc = Proc { group: 0, rank: 0 };
    let seen = |proof| {
        let asks =
            EventKind::ToServer { proc, bytes: Bytes(b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec()) };
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let found = judged([launched, asks, EventKind::NoResponse { proc, proof }]);
        found.into_iter().map(|f| f.seen).collect::<Vec<_>>()
    };
    assert_eq!(seen(SilenceProof::Idle), ["silence"]);
    assert_eq!(seen(SilenceProof::Timeout), ["silence (not proved: timed out)"]);
}

#[test]
fn wrong_size_of_one_process_does_not_affect_others() {
    let group = |told: &[u32]| {
        let mut group = MonitoredGroup { size: 3, ..MonitoredGroup::default() };
        told.iter().map(|told| group.record_size(Some(*told))).collect::<Vec<_>>()
    };
    assert_eq!(group(&[3, 3, 3]), [3, 3, 3]);
    // A server may start fewer processes than requested.
    assert_eq!(group(&[2, 2]), [2, 2]);
    // Only one of them received a wrong size.
    assert_eq!(group(&[2, 3, 3]), [2, 3, 3]);
    assert_eq!(group(&[3, 2, 3]), [3, 3, 3]);
    assert_eq!(group(&[9, 3]), [3, 3]);
}

#[test]
fn reports_versions_of_accepted_offers() {
    let told =
        |rank, text: &str| EventKind::FromServer { proc: Proc { group: 0, rank }, bytes: Bytes(text.into()) };
    let taken = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
    let (first, second) = taken.split_at(30);
    let refused = "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=9\n";
    let again = "cmd=response_to_init pmi_version=1 pmi_subversion=1\n";
    let value = "cmd=get_result rc=0 value=cmd=response_to_init pmi_version=7 pmi_subversion=0\n";
    let events = [told(0, &format!("{refused}{again}")), told(1, first), told(1, second), told(2, value)];
    let mut monitor = Monitor::new();
    for (kind, seq) in events.into_iter().zip(0..) {
        monitor.observe(&Event::new(seq, kind));
    }
    assert_eq!(monitor.versions(), ["1.1", "2.0"]);
}

#[test]
fn lost_partial_request_is_the_cause() {
    let proc = Proc { group: 0, rank: 0 };
    let lines = JOINED.map(|(_, server, line)| {
        let bytes = Bytes(format!("{line}\n").into_bytes());
        if server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    });
    let said = |text: &str| EventKind::ToServer { proc, bytes: Bytes(text.into()) };
    let answer = Bytes(b"cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64\n".to_vec());
    let silence = EventKind::NoResponse { proc, proof: SilenceProof::Idle };
    let rest = [
        said("cmd=get_maxes  extra=1\n"),
        EventKind::FromServer { proc, bytes: answer },
        said("cmd=get_my_"),
        said("kvsname\n"),
        silence,
    ];
    let found = judged(lines.into_iter().chain(rest));
    assert_eq!(found.into_iter().map(|f| f.requirement).collect::<Vec<_>>(), ["rfc13.wire.newline"]);
}

#[test]
fn unterminated_messages_have_no_effect() {
    let proc = |rank| Proc { group: 0, rank };
    let said = |rank, text: &str| EventKind::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
    let told = |rank, text: &str| EventKind::FromServer { proc: proc(rank), bytes: Bytes(text.into()) };
    let found = |unended: &str, rest: [EventKind; 2]| {
        let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let joined = [0, 1].into_iter().flat_map(|rank| {
            [
                said(rank, "cmd=init pmi_version=1 pmi_subversion=1\n"),
                told(rank, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"),
                said(rank, "cmd=get_my_kvsname\n"),
                told(rank, "cmd=my_kvsname rc=0 kvsname=k\n"),
            ]
        });
        let end = [said(0, unended), EventKind::ClosedByClient { proc: proc(0) }];
        let found = judged([launched].into_iter().chain(joined).chain(end).chain(rest));
        let found = found.into_iter().filter(|f| f.party == PartyKind::Server);
        found.map(|f| f.requirement).collect::<Vec<_>>()
    };
    let barrier = || [said(1, "cmd=barrier_in\n"), told(1, "cmd=barrier_out rc=0\n")];
    assert_eq!(found("cmd=barrier_in", barrier()), ["rfc13.wire.newline"]);
    assert_eq!(found("cmd=barrier", barrier()), ["rfc13.barrier.all-in-before-any-out"]);
    let get = || [said(1, "cmd=get kvsname=k key=a\n"), told(1, "cmd=get_result rc=0 value=v\n")];
    assert_eq!(found("cmd=put kvsname=k key=a value=v", get()), ["rfc13.wire.newline"]);
    assert_eq!(found("cmd=put kvsname=k key=b value=v", get()), ["rfc13.error.rc-nonzero"]);
}

#[test]
fn client_may_take_an_unexpected_answer() {
    let found = |lines: &[(bool, &str)]| {
        let proc = Proc { group: 0, rank: 0 };
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let events = lines.iter().map(|(server, line)| {
            let bytes = Bytes(format!("{line}\n").into_bytes());
            if *server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
        });
        let found = judged([launched].into_iter().chain(events)).into_iter();
        found.map(|f| (f.party, f.requirement)).collect::<Vec<_>>()
    };
    let (init, taken) = (JOINED[0].2, JOINED[1].2);
    let (ask, limits) = ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=64 keylen_max=32 vallen_max=128");
    let lock_step = "rfc13.wire.lock-step".to_owned();
    let said = [(false, init), (true, taken), (true, limits), (false, ask), (false, "cmd=get_appnum")];
    assert_eq!(found(&said), [(PartyKind::Server, lock_step.clone())]);
    let ahead = [(false, init), (true, taken), (false, ask), (false, "cmd=get_appnum")];
    assert_eq!(found(&ahead), [(PartyKind::Client, lock_step)]);
}

#[test]
fn missing_answers_to_an_offer_cite_its_version() {
    let found = |subversion: &str, closes: bool| {
        let proc = Proc { group: 0, rank: 0 };
        let line = format!("cmd=init pmi_version=1 pmi_subversion={subversion}\n");
        let end = match closes {
            true => EventKind::ClosedByServer { proc },
            false => EventKind::NoResponse { proc, proof: SilenceProof::Idle },
        };
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let found = judged([launched, EventKind::ToServer { proc, bytes: Bytes(line.into()) }, end]);
        found.into_iter().map(|f| f.requirement).collect::<Vec<_>>()
    };
    for closes in [false, true] {
        assert_eq!(found("1", closes), ["rfc13.abnf.c-init"]);
        assert_eq!(found("3", closes), ["rfc13.init.highest-mutual"]);
        // This exceeds the API's int.
        assert_eq!(found("2147483648", closes), Vec::<String>::new());
        assert_eq!(found("0", true), Vec::<String>::new());
    }
}

#[test]
fn server_may_reject_arguments_numbered_from_one() {
    let spawn = |first: u32| {
        format!(
            "mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\narg{first}=a\nargcnt=1\n\
             preput_num=0\ninfo_num=0\nendcmd\n"
        )
    };
    let found = |numbers: &[u32]| {
        let proc = Proc { group: 0, rank: 0 };
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let said = |text: &str| EventKind::ToServer { proc, bytes: Bytes(text.into()) };
        let told = |text: &str| EventKind::FromServer { proc, bytes: Bytes(text.into()) };
        let mut events = vec![
            launched,
            said("cmd=init pmi_version=1 pmi_subversion=1\n"),
            told("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"),
        ];
        for (number, place) in numbers.iter().zip(1..) {
            events.push(said(&spawn(*number)));
            let taken = place < numbers.len();
            events.push(if taken {
                told("cmd=spawn_result rc=0\n")
            } else {
                EventKind::ClosedByServer { proc }
            });
        }
        let found = judged(events).into_iter().filter(|f| f.party == PartyKind::Server);
        found.map(|f| f.requirement).collect::<Vec<_>>()
    };
    assert_eq!(found(&[1]), Vec::<String>::new());
    assert_eq!(found(&[0]), ["rfc13.spawn.arg-indices"]);
    // The server has accepted them before, so their numbers are not the reason.
    assert_eq!(found(&[0, 0]), ["rfc13.wire.lock-step"]);
    assert_eq!(found(&[1, 1]), ["rfc13.wire.lock-step"]);
}

/// A server that has not read the longest put whole takes its rest as the beginning of the next request.
#[rstest]
#[case::longest(19, "rfc13.maxes.honoured")]
#[case::shorter(18, "rfc13.abnf.c-put")]
fn longest_put_explains_the_next_silence(#[case] length: usize, #[case] cited: &str) {
    let proc = Proc { group: 0, rank: 0 };
    let message = |(_, server, line): &(u32, bool, &str)| {
        let bytes = Bytes(format!("{line}\n").into_bytes());
        if *server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    };
    let put = format!("cmd=put kvsname=k key=a value={}", "v".repeat(length));
    let lines = [
        (0, false, "cmd=get_maxes"),
        (0, true, "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=20"),
        (0, false, put.as_str()),
        (0, true, "cmd=put_result rc=0"),
        (0, false, "cmd=put kvsname=k key=b value=w"),
    ];
    let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
    let silence = EventKind::NoResponse { proc, proof: SilenceProof::Idle };
    let events = JOINED.iter().chain(&lines).map(message).chain([silence]);
    let found = judged(std::iter::once(launched).chain(events));
    assert_eq!(found.into_iter().map(|f| f.requirement).collect::<Vec<_>>(), [cited]);
}

#[test]
fn request_out_of_order_excuses_the_barrier() {
    let enters = |rank| (rank, false, "cmd=barrier_in");
    let leaves = |rank| (rank, true, "cmd=barrier_out");
    let init = |rank| {
        let answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
        [(rank, false, "cmd=init pmi_version=1 pmi_subversion=1"), (rank, true, answer)]
    };
    let found = |joined: &[u32], rest: &[(u32, bool, &'static str)]| {
        findings(&[&joined.iter().copied().flat_map(init).collect::<Vec<_>>()[..], rest].concat())
    };
    let early = [enters(0), leaves(0), enters(1)];
    assert_eq!(found(&[0, 1], &early), ["rfc13.barrier.all-in-before-any-out"]);
    // Rank 0 skipped init, so it is unknown whether its barrier counts.
    assert_eq!(found(&[1], &early), Vec::<String>::new());
    // Rank 0 has already finalized.
    let finalizes = [(0, false, "cmd=finalize"), (0, true, "cmd=finalize_ack")];
    assert_eq!(found(&[0, 1], &[&finalizes[..], &early].concat()), Vec::<String>::new());
}

#[test]
fn endless_line_excuses_a_close() {
    let found = |length: usize| {
        let proc = |rank| Proc { group: 0, rank };
        let write = |rank, text: &str| EventKind::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
        let answer = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec();
        let events = [
            EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 },
            write(0, "cmd=init pmi_version=1 pmi_subversion=1\n"),
            EventKind::FromServer { proc: proc(0), bytes: Bytes(answer) },
            write(1, &"x".repeat(length)),
            write(0, "cmd=get_appnum\n"),
            EventKind::ClosedByServer { proc: proc(0) },
        ];
        judged(events).into_iter().map(|f| f.requirement).collect::<Vec<_>>()
    };
    assert_eq!(found(10), ["rfc13.abnf.c-appnum"]);
    assert_eq!(found(MIN_LONG_REQUEST + 1), Vec::<String>::new());
}

#[test]
fn silence_after_a_partial_request_is_only_noted() {
    let proc = |rank| Proc { group: 0, rank };
    let write = |rank, text: &str| EventKind::ToServer { proc: proc(rank), bytes: Bytes(text.into()) };
    let found = |said: &[(u32, &str)], closes: bool| {
        let answer = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        let joined = [0, 1].into_iter().flat_map(|rank| {
            let bytes = Bytes(answer.to_vec());
            let init = write(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
            [init, EventKind::FromServer { proc: proc(rank), bytes }]
        });
        let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
        let said = said.iter().map(|(rank, text)| write(*rank, text));
        let end = closes.then(|| EventKind::ClosedByServer { proc: proc(1) });
        let silence = EventKind::NoResponse { proc: proc(0), proof: SilenceProof::Idle };
        let found = judged([launched].into_iter().chain(joined).chain(said).chain(end).chain([silence]));
        found.into_iter().map(|f| (f.kind, f.max_severity)).collect::<Vec<_>>()
    };
    let held_up = [(Some(ObservationKind::SilenceDuringPartialRequest), Some(Severity::Note))];
    let silence = [(Some(ObservationKind::Silence), None)];
    let get = (0, "cmd=get_maxes\n");
    assert_eq!(found(&[(1, "cmd=ge"), get], false), held_up);
    assert_eq!(found(&[(1, "mcmd=spawn\nnprocs=1\n"), get], false), held_up);
    assert_eq!(found(&[(1, "cmd=ge"), get], true), silence);
    assert_eq!(found(&[(1, "cmd=ge"), (1, "t_appnum\n"), get], false), silence);
    assert_eq!(found(&[(0, "cmd=get_"), (0, "maxes\n")], false), silence);
}

#[test]
fn reports_excess_processes_once() {
    let proc = |group, rank| Proc { group, rank };
    let found = |asks: &str, children: u32| {
        let bytes = Bytes(format!("{asks}\n").into_bytes());
        let asked = EventKind::ToServer { proc: proc(0, 0), bytes };
        let started = |rank| EventKind::Started {
            proc: proc(1, rank),
            env: [("PMI_FD".to_owned(), "3".to_owned())].into(),
            args: Vec::new(),
            bad_fd: None,
        };
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let found = judged([launched, asked].into_iter().chain((0..children).map(started)));
        found.iter().filter(|f| f.requirement == "rfc13.spawn.maxprocs").count()
    };
    let most = MAX_EXCESS_PROCESSES as u32;
    assert_eq!((found("mcmd=spawn", most), found("mcmd=spawn", most + 9)), (0, 1));
    assert_eq!(found("\t nprocs = 500 ", most + 500), 0);
    assert_eq!((found("nprocs=", most), found("nprocs=", most + 9)), (0, 1));
    assert_eq!(found(&format!("nprocs={}", "9".repeat(30)), most + 9), 0);
    assert_eq!((found("nprocs\u{93}500", most + 500), found("nprocs\u{93}500", most + 509)), (0, 1));
}

#[test]
fn invalid_put_may_have_stored_its_value() {
    let found = |rest: &[(u32, bool, &'static str)]| findings(&[&JOINED, rest].concat());
    let (get, got) = ((0, false, "cmd=get kvsname=k key=a"), (0, true, "cmd=get_result rc=0 value=v"));
    assert_eq!(found(&[get, got]), ["rfc13.error.rc-nonzero"]);
    let (put, done) = ((0, false, "cmd=put key=a value=v"), (0, true, "cmd=put_result rc=0"));
    assert_eq!(found(&[put, done, get, got]), Vec::<String>::new());
    // The request may also remain without a response.
    assert_eq!(found(&[put, get, got]), Vec::<String>::new());
}

#[test]
fn invalid_spawn_makes_later_spawn_answers_ambiguous() {
    let spawn = |count: u32| {
        format!(
            "mcmd=spawn\nnprocs={count}\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n\
             info_num=0\nendcmd"
        )
    };
    let (broken, whole) = (spawn(1) + "cmd=get_appnum", spawn(3));
    let found = |rest: &[(u32, bool, &str)]| findings(&[&JOINED, rest].concat());
    let (asked, one) = ((0, false, &*whole), (0, true, "cmd=spawn_result rc=0 errcodes=0"));
    assert_eq!(found(&[asked, one]), ["rfc13.abnf.s-spawn"]);
    assert_eq!(found(&[(0, false, &*broken), asked, one]), Vec::<String>::new());
}

#[test]
fn spawn_with_a_malformed_end_may_be_answered() {
    let ends = |end: &str| {
        format!(
            "mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n\
             info_num=0\n{end}"
        )
    };
    let found = |rest: &[(u32, bool, &str)]| findings(&[&JOINED, rest].concat());
    let (nearly, well) = (ends("endcmd="), ends("endcmd=\nendcmd"));
    let answer = (0, true, "cmd=spawn_result rc=0 errcodes=0");
    assert_eq!(found(&[(0, false, &*nearly), answer]), Vec::<String>::new());
    assert_eq!(found(&[(0, false, &*well), answer]), Vec::<String>::new());
    let unended = ends("info=");
    assert_eq!(found(&[(0, false, &*unended), answer]), ["rfc13.wire.lock-step"]);
}

/// RFC 13 requires the side that detects a protocol error to close the connection and abort.
#[rstest]
#[case::no_tuples(&["complete nonsense"], true)]
#[case::blanks_only(&["  "], true)]
#[case::bytes_without_command(&["\u{e4}=1"], true)]
#[case::control_byte_in_value(&["cmd=get_result rc=0 value=a\u{7}b"], false)]
#[case::other_letters_in_value(&["cmd=get_result rc=0 value=n\u{e4}me"], false)]
#[case::other_letters_in_message(&["cmd=get_result rc=-1 msg=n\u{e4}"], false)]
#[case::carriage_return(&["cmd=get_result rc=0 value=v\r"], false)]
#[case::carriage_return_after_number(&["cmd=get_result rc=0\r"], false)]
#[case::nonsense_after_control_byte(&["cmd=get_result rc=0 value=a\u{7}b", "nonsense"], true)]
fn lenient_client_detects_no_protocol_error(#[case] answers: &[&str], #[case] detects: bool) {
    let proc = Proc { group: 0, rank: 0 };
    let line = |(_, server, line): &(u32, bool, &str)| {
        let bytes = Bytes(format!("{line}\n").into_bytes());
        if *server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    };
    let get = (0, false, "cmd=get kvsname=k key=a");
    let asked = answers.iter().flat_map(|answer| [get, (0, true, *answer)]);
    let said: Vec<_> = JOINED.into_iter().chain(asked).chain([(0, false, "cmd=get_appnum")]).collect();
    let found = judged(said.iter().map(line)).into_iter().filter(|f| f.party == PartyKind::Client);
    let found: Vec<String> = found.map(|f| f.requirement).collect();
    let both: &[&str] = if detects { &["rfc13.error.close", "rfc13.error.abort"] } else { &[] };
    assert_eq!(found, both);
}

#[test]
fn cites_the_cause_of_a_failure() {
    let proc = Proc { group: 0, rank: 0 };
    let cited = |said: &[(bool, &[u8])], closes: bool| {
        let said = said.iter().map(|(server, bytes)| {
            let bytes = Bytes(bytes.to_vec());
            if *server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
        });
        let launched = EventKind::Launched { command: Vec::new(), ranks: 1, nodes: 1 };
        let end = closes.then_some(EventKind::ClosedByServer { proc });
        let found = judged([launched].into_iter().chain(said).chain(end));
        found.into_iter().map(|f| f.requirement).collect::<Vec<_>>()
    };
    let (init, refused) = (b"cmd=init pmi_version=1 pmi_subversion=1\n", b"cmd=response_to_init rc=-1\n");
    assert_eq!(cited(&[(false, init), (true, refused)], false), ["rfc13.abnf.c-init"]);
    // The request was not understood because it came in pieces.
    let pieces: [(bool, &[u8]); 3] = [(false, &init[..9]), (false, &init[9..]), (true, refused)];
    assert_eq!(cited(&pieces, false), ["rfc13.wire.newline"]);

    let joined: [(bool, &[u8]); 2] =
        [(false, init), (true, b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n")];
    let name: [(bool, &[u8]); 2] =
        [(false, b"cmd=get_my_kvsname\n"), (true, "cmd=my_kvsname kvsname=\u{192}1\n".as_bytes())];
    assert_eq!(cited(&[joined, name].concat(), false), ["rfc13.abnf.word"]);

    let name: [(bool, &[u8]); 2] = [(false, b"cmd=get_my_kvsname\n"), (true, b"cmd=my_kvsname kvsname=k\n")];
    let put = |line: &'static [u8]| [(false, line), (true, b"cmd=put_result rc=0\n".as_slice())];
    let barrier: [(bool, &[u8]); 1] = [(false, b"cmd=barrier_in\n")];
    let after = |line| cited(&[&joined[..], &name, &put(line), &barrier].concat(), true);
    assert_eq!(after(b"cmd=put kvsname=k key=a value=cmd\n"), ["rfc13.abnf.c-barrier"]);
    // This barrier is unusual only because of the key that must be distributed.
    assert_eq!(after(b"cmd=put kvsname=k key=cmd value=a\n"), ["rfc13.abnf.word"]);
}

#[rstest]
#[case::whole_mapping("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=(vector,(0,1,2));", &[])]
#[case::form_of_mpich("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=(vector, (0,1,2));", &[])]
#[case::too_few_ranks("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=(vector,(0,1,1));", &["de-facto.mapping.covers-all-ranks"])]
#[case::two_nodes_for_one("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=(vector,(0,2,1));", &["pmi2.common.jobattr.mapping"])]
#[case::mapping_not_found("cmd=info-getjobattr;key=PMI_process_mapping;", "found=FALSE;value=;", &["pmi2.common.jobattr.mapping"])]
#[case::no_mapping("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=none;", &["pmi2.common.jobattr.mapping"])]
#[case::node_of_mpich("cmd=info-getjobattr;key=PMI_process_mapping;", "found=TRUE;value=(vector,[0]x2);", &[])]
#[case::miss("cmd=kvs-get;key=k;", "found=FALSE;", &[])]
#[case::miss_with_value("cmd=kvs-get;key=k;", "found=FALSE;value=v;", &[])]
fn judges_values_of_pmi2(#[case] request: &str, #[case] result: &str, #[case] broken: &[&str]) {
    let proc = Proc { group: 0, rank: 0 };
    let frame = |body: &str| format!("{:>6}{body}", body.len());
    let fullinit = "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;debugged=FALSE;pmiverbose=FALSE;";
    let name = request.split(';').next().unwrap_or_default();
    let said = [
        (false, "cmd=init pmi_version=2 pmi_subversion=0\n".to_owned()),
        (true, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n".to_owned()),
        (false, frame("cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;")),
        (true, frame(fullinit)),
        (false, frame(request)),
        (true, frame(&format!("{name}-response;rc=0;{result}"))),
    ];
    let said = said.map(|(server, text)| {
        let bytes = Bytes(text.into_bytes());
        if server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    });
    let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
    let found: Vec<String> =
        judged([launched].into_iter().chain(said)).into_iter().map(|f| f.requirement).collect();
    assert_eq!(found, broken);
}

/// One job, of which one process speaks PMI-1 and reads the mapping in RFC 13's form, and another speaks PMI-2.
#[rstest]
#[case::form_of_mpich("(vector,[0]x2)", &[])]
#[case::other_for_the_second_request("(vector,[0]x2);|(vector,(0,1,2))", &["pmi2.common.jobattr.mapping"])]
fn each_protocol_has_its_mapping(#[case] mappings: &str, #[case] broken: &[&str]) {
    let frame = |body: &str| format!("{:>6}{body}", body.len());
    let get = "cmd=get kvsname=k key=PMI_process_mapping\n";
    let mut said = vec![
        (1, false, "cmd=init pmi_version=2 pmi_subversion=0\n".to_owned()),
        (1, true, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n".to_owned()),
        (1, false, frame("cmd=fullinit;pmijobid=j;pmirank=1;threaded=FALSE;")),
        (1, true, frame("cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;")),
        (0, false, get.to_owned()),
        (0, true, "cmd=get_result rc=0 value=(vector,(0,1,2))\n".to_owned()),
    ];
    for mapping in mappings.split(";|") {
        said.push((1, false, frame("cmd=info-getjobattr;key=PMI_process_mapping;")));
        let response = format!("cmd=info-getjobattr-response;rc=0;found=TRUE;value={mapping};");
        said.push((1, true, frame(&response)));
    }
    let joined = JOINED.iter().map(|(rank, server, line)| (*rank, *server, format!("{line}\n")));
    let events = joined.chain(said).map(|(rank, server, text)| {
        let (proc, bytes) = (Proc { group: 0, rank }, Bytes(text.into_bytes()));
        if server { EventKind::FromServer { proc, bytes } } else { EventKind::ToServer { proc, bytes } }
    });
    let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 };
    let found = judged(std::iter::once(launched).chain(events));
    let found: Vec<_> =
        found.iter().filter(|f| !is_advisory(&f.requirement)).map(|f| &f.requirement).collect();
    assert_eq!(found, broken);
}

#[test]
fn judges_names_only_if_the_order_is_known() {
    let start = [0, 1].map(|r| {
        [
            (r, false, "cmd=init pmi_version=1 pmi_subversion=1"),
            (r, true, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1"),
        ]
    });
    let publish = (0, false, "cmd=publish_name service=s port=p");
    let published = (0, true, "cmd=publish_result rc=0");
    let unpublish = (1, false, "cmd=unpublish_name service=s");
    let unpublished = (1, true, "cmd=unpublish_result rc=0");
    let found = |rest: &[(u32, bool, &'static str)]| findings(&[&start.concat(), rest].concat());
    assert_eq!(found(&[publish, published, unpublish, unpublished]), Vec::<String>::new());
    assert_eq!(found(&[unpublish, unpublished]), ["rfc13.error.rc-nonzero"]);
    // Both requests were pending at once, so the order in which the server handled them is unknown.
    assert_eq!(found(&[publish, unpublish, unpublished, published]), Vec::<String>::new());
}

const P: Proc = Proc { group: 0, rank: 0 };

/// A partial message proves something only if the process closes its connection by itself and TCP does not lose the rest.
#[rstest]
#[case::by_itself(&[EventKind::ClosedByClient { proc: P }], true)]
#[case::killed(&[EventKind::Ended { proc: P, ours: true }], false)]
#[case::does_not_end(&[EventKind::StillRunning { procs: vec![P], proof: HangProof::Idle }, EventKind::ClosedByClient { proc: P }], false)]
#[case::reset(&[EventKind::LeftUnread { proc: P }, EventKind::ClosedByClient { proc: P }], false)]
fn partial_message_breaks_rule_if_client_closes(#[case] end: &[EventKind], #[case] broken: bool) {
    for (partial, requirement) in
        [("cmd=get_ma", "rfc13.wire.newline"), ("mcmd=spawn\nnprocs=1\n", "rfc13.abnf.c-spawn")]
    {
        let init = b"cmd=init pmi_version=1 pmi_subversion=1\n".to_vec();
        let joined = b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_vec();
        let said = [
            EventKind::ToServer { proc: P, bytes: Bytes(init) },
            EventKind::FromServer { proc: P, bytes: Bytes(joined) },
            EventKind::ToServer { proc: P, bytes: Bytes(partial.into()) },
        ];
        let mut monitor = Monitor::new();
        for kind in said.iter().chain(end) {
            monitor.observe(&Event::new(0, kind.clone()));
        }
        let found = monitor.take_findings().iter().any(|f| f.requirement == requirement);
        assert_eq!(found, broken, "{partial}");
    }
}

#[test]
fn excuses_puts_before_the_kvsname_is_known() {
    let proc = Proc { group: 0, rank: 0 };
    let mut monitor = Monitor::new();
    let lines = [
        ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init pmi_version=1 pmi_subversion=1"),
        ("cmd=put kvsname=k key=a value=1", "cmd=put_result rc=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=k"),
        ("cmd=get kvsname=k key=a", "cmd=get_result rc=0 value=1"),
        ("cmd=put kvsname=k key=a value=2", "cmd=put_result rc=-1"),
    ];
    for (request, response) in lines {
        let bytes = |line: &str| Bytes(format!("{line}\n").into_bytes());
        for kind in [
            EventKind::ToServer { proc, bytes: bytes(request) },
            EventKind::FromServer { proc, bytes: bytes(response) },
        ] {
            monitor.observe(&Event::new(0, kind));
        }
    }
    assert_eq!(monitor.take_findings(), []);
}

/// Returns the requirements that a server breaks: the rank, whether the server sends the body, and the body, or `close` or `silence`.
fn found(ranks: u32, said: &[(u32, bool, &str)]) -> Vec<String> {
    let mut events = vec![EventKind::Launched { command: Vec::new(), ranks, nodes: 1 }];
    let bytes = |text: Vec<u8>| Bytes(text);
    for rank in 0..ranks {
        let proc = Proc { group: 0, rank };
        let offer = b"cmd=init pmi_version=2 pmi_subversion=0\n".to_vec();
        let taken = b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n".to_vec();
        events.push(EventKind::ToServer { proc, bytes: bytes(offer) });
        events.push(EventKind::FromServer { proc, bytes: bytes(taken) });
        let ask = format!("cmd=fullinit;pmijobid=j;pmirank={rank};threaded=FALSE;");
        let tell = format!(
            "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank={rank};size={ranks};appnum=0;rc=0;"
        );
        events.push(EventKind::ToServer { proc, bytes: bytes(framed(&ask)) });
        events.push(EventKind::FromServer { proc, bytes: bytes(framed(&tell)) });
    }
    events.extend(said.iter().map(|(rank, server, text)| {
        let proc = Proc { group: 0, rank: *rank };
        match (*text, server) {
            ("close", _) => EventKind::ClosedByServer { proc },
            ("silence", _) => EventKind::NoResponse { proc, proof: SilenceProof::Idle },
            (text, true) => EventKind::FromServer { proc, bytes: bytes(framed(text)) },
            (text, false) => EventKind::ToServer { proc, bytes: bytes(framed(text)) },
        }
    }));
    let mut monitor = Monitor::new();
    for (kind, seq) in events.into_iter().zip(0..) {
        monitor.observe(&Event::new(seq, kind));
    }
    let findings = monitor.take_findings().into_iter();
    findings.filter(|f| f.party == PartyKind::Server).map(|f| f.requirement).collect()
}

fn framed(body: &str) -> Vec<u8> {
    format!("{:>6}{body}", body.len()).into_bytes()
}

const PUT: [(u32, bool, &str); 2] =
    [(0, false, "cmd=kvs-put;key=k;value=v;"), (0, true, "cmd=kvs-put-response;rc=0;")];
const MISS: &str = "cmd=kvs-get-response;rc=1;";

#[test]
fn fence_makes_earlier_puts_visible() {
    let fence = |rank| [(rank, false, "cmd=kvs-fence;"), (rank, true, "cmd=kvs-fence-response;rc=0;")];
    let get = (1, false, "cmd=kvs-get;key=k;");
    let both = [fence(0)[0], fence(1)[0], fence(0)[1], fence(1)[1]];
    assert_eq!(found(2, &[&PUT[..], &both, &[get, (1, true, MISS)]].concat()), ["pmi2.common.fence.visible"]);
    // Without a fence after the put, the value need not be visible.
    assert!(found(2, &[&PUT[..], &[get, (1, true, MISS)]].concat()).is_empty());
    // Hydra releases rank 1 immediately and holds back its get.
    let early = [&fence(1)[..], &[get], &PUT, &fence(0)].concat();
    let value = (1, true, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
    assert_eq!(found(2, &[&early[..], &[value]].concat()), ["pmi2.draft.fence.blocks"]);
    assert_eq!(
        found(2, &[&fence(1)[..], &[get, (1, true, MISS)], &PUT].concat()),
        ["pmi2.draft.fence.blocks", "pmi2.common.fence.visible"]
    );
}

#[rstest]
// A process may lawfully wait.
#[case(&[(0, false, "cmd=kvs-fence;"), (0, true, "silence")], &[])]
#[case(&[(0, false, "cmd=info-getnodeattr;key=k;wait=TRUE;"), (0, true, "silence")], &[])]
#[case(&[(0, false, "cmd=info-getnodeattr;key=k;"), (0, true, "silence")], &["pmi2.common.answered"])]
#[case(&[(0, false, "cmd=job-getid;"), (0, true, "close")], &["pmi2.common.answered"])]
#[case(&[(0, false, "cmd=finalize;"), (0, true, "silence")], &["pmi2.common.finalize"])]
// After an abort, the server's behaviour is unspecified.
#[case(&[(1, false, "cmd=abort;isworld=TRUE;"), (0, false, "cmd=job-getid;"), (0, true, "close")], &[])]
#[case(&[(0, false, "cmd=job-getid;"), (0, true, "cmd=job-getid-response;jobid=j;")], &["pmi2.common.rc"])]
#[case(&[(0, false, "cmd=job-getid;"), (0, true, "cmd=kvs-fence-response;rc=0;")], &["pmi2.common.response-name"])]
#[case(&[(0, true, "cmd=job-getid-response;jobid=j;rc=0;")], &["pmi2.common.one-response"])]
#[case(&[(0, false, "cmd=job-getid;thrid=7;"), (0, true, "cmd=job-getid-response;jobid=j;rc=0;")], &["pmi2.draft.thrid-echoed"])]
#[case(&[(0, false, "cmd=nonsense;"), (0, true, "cmd=nonsense-response;rc=9;")], &[])]
#[case(&[(0, false, "cmd=kvs-get;key=k;"), (0, true, "cmd=kvs-get-response;rc=0;found=TRUE;value=x;")], &["pmi2.common.get.miss"])]
#[case(&[(0, false, "cmd=kvs-get;key=k;"), (0, true, "cmd=kvs-get-response;rc=0;found=1;")], &["pmi2.common.get.found"])]
#[case(&[(0, false, "cmd=name-lookup;name=n;"), (0, true, "cmd=name-lookup-response;rc=0;port=p;")], &["pmi2.common.names.miss"])]
fn checks_each_answer_against_its_request(#[case] said: &[(u32, bool, &str)], #[case] broken: &[&str]) {
    assert_eq!(found(2, said), broken);
}

const GETALL: (u32, bool, &str) = (0, false, "cmd=kvs-getall;jobid=j;");
const REFUSED: (u32, bool, &str) = (0, true, "cmd=kvs-getall-response;rc=1;");

#[rstest]
#[case(&[GETALL, REFUSED], &[])]
#[case(&[GETALL, (0, true, "silence")], &[])]
#[case(&[GETALL, (0, true, "cmd=kvs-getall-paircount-response;npair=0;"), REFUSED], &[])]
#[case(&[GETALL, REFUSED, REFUSED], &["pmi2.common.one-response"])]
#[case(&[GETALL, (0, true, "cmd=kvs-getall-response;")], &["pmi2.common.rc"])]
#[case(&[GETALL, (0, true, "cmd=kvs-fence-response;rc=0;")], &["pmi2.common.response-name"])]
#[case(&[(0, true, "cmd=auth-response;authinfo=1;")], &["pmi2.common.one-response"])]
// The parts of a longer exchange are not followed.
#[case(&[(0, false, "cmd=kvs-put;key=k;concat=1;"), (0, false, "cmd=concat;concatid=1;value=v;"), PUT[1]], &[])]
#[case(&[(0, false, "cmd=spawn;ncmds=1;preputcount=0;"), (0, false, "cmd=spawn-cmd;maxprocs=1;"), (0, true, "close")], &[])]
fn draft_only_request_has_at_most_one_response(#[case] said: &[(u32, bool, &str)], #[case] broken: &[&str]) {
    assert_eq!(found(1, said), broken);
}

#[test]
fn concurrent_requests_may_be_served_in_any_order() {
    let long = format!("cmd=info-putnodeattr;key={};value=v;", "k".repeat(65));
    let publish =
        [(0, false, "cmd=name-publish;name=n;port=p;"), (0, true, "cmd=name-publish-response;rc=0;")];
    let lookup = (1, false, "cmd=name-lookup;name=n;");
    let hit = (1, true, "cmd=name-lookup-response;rc=0;port=p;");
    let miss = (1, true, "cmd=name-lookup-response;rc=1;");
    assert!(found(2, &[publish[0], lookup, hit, publish[1]]).is_empty());
    assert_eq!(found(2, &[publish[0], publish[1], lookup, miss]), ["pmi2.common.names.lookup"]);
    let put =
        [(0, false, "cmd=info-putnodeattr;key=k;value=v;"), (0, true, "cmd=info-putnodeattr-response;rc=0;")];
    let get = (1, false, "cmd=info-getnodeattr;key=k;");
    let none = (1, true, "cmd=info-getnodeattr-response;found=FALSE;rc=0;");
    assert!(found(2, &[get, put[0], put[1], none]).is_empty());
    assert_eq!(found(2, &[put[0], put[1], get, none]), ["pmi2.common.nodeattr"]);
    // A value that is cut at a doubled semicolon breaks a separate requirement.
    let doubled = [(0, false, "cmd=info-putnodeattr;key=k;value=a;;b;"), put[1]];
    let cut = (1, true, "cmd=info-getnodeattr-response;found=TRUE;value=a;rc=0;");
    assert_eq!(found(2, &[doubled[0], doubled[1], get, cut]), ["pmi2.draft.semicolons"]);
    let refused = (0, true, "cmd=info-putnodeattr-response;rc=1;");
    assert!(found(1, &[(0, false, &long), refused]).is_empty());
    assert_eq!(found(1, &[put[0], refused]), ["pmi2.common.nodeattr"]);
    // One of two pending requests has no thrid, so the server may end the job.
    let both = [(0, false, "cmd=kvs-fence;"), (0, false, "cmd=job-getid;thrid=1;"), (0, true, "close")];
    assert!(found(2, &both).is_empty());
    // Without a thrid, it is unknown which of two requests is answered.
    let two = [
        (0, false, "cmd=info-getnodeattr;thrid=1;key=w;wait=TRUE;"),
        (0, false, "cmd=info-getnodeattr;thrid=2;key=k;"),
        (0, true, "cmd=info-getnodeattr-response;found=FALSE;rc=0;"),
        (0, true, "silence"),
    ];
    assert_eq!(found(1, &two), ["pmi2.draft.thrid-echoed"]);
    let mixed = [two[0], (0, false, "cmd=info-getnodeattr;key=k;"), two[2], two[3]];
    assert!(found(1, &mixed).is_empty());
    // A process that has left does not enter a fence.
    let left = [(1, false, "cmd=finalize;"), (1, true, "cmd=finalize-response;rc=0;")];
    let fence = [(0, false, "cmd=kvs-fence;"), (0, true, "cmd=kvs-fence-response;rc=1;")];
    assert!(found(2, &[left, fence].concat()).is_empty());
    assert_eq!(found(1, &fence), ["pmi2.common.fence"]);
    // One of its threads is in the fence when another enters it.
    let twice = [
        (0, false, "cmd=kvs-fence;thrid=1;"),
        (0, false, "cmd=kvs-fence;thrid=2;"),
        (0, true, "cmd=kvs-fence-response;thrid=2;rc=1;"),
    ];
    assert!(found(2, &twice).is_empty());
    // Alternatively, the process leaves the job in the meantime.
    let leaves = [
        (1, false, "cmd=kvs-fence;"),
        (0, false, "cmd=kvs-fence;thrid=5;"),
        (0, false, "cmd=finalize;"),
        (0, true, "cmd=finalize-response;rc=0;"),
        (1, true, "cmd=kvs-fence-response;rc=1;"),
    ];
    assert!(found(2, &leaves).is_empty());
    // A tuple name may not be this long.
    let long = format!("cmd=job-getid;{}=1;", "k".repeat(65));
    assert!(found(1, &[(0, false, &long), (0, true, "close")]).is_empty());
    let longest = format!("cmd=job-getid;{}=1;", "k".repeat(64));
    assert_eq!(found(1, &[(0, false, &longest), (0, true, "close")]), ["pmi2.common.answered"]);
    // The client claims another rank, and the server may believe it.
    let again = [
        (0, false, "cmd=fullinit;pmijobid=j;pmirank=9;threaded=FALSE;"),
        (0, true, "cmd=fullinit-response;rank=9;size=1;appnum=0;rc=0;"),
    ];
    assert_eq!(found(1, &again), ["pmi2.draft.fullinit.version"]);
    // A type of authentication that the draft does not describe.
    let unknown = "cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;authtype=1;";
    assert!(found(1, &[(0, false, unknown), (0, true, "cmd=fullinit-response;rc=1;")]).is_empty());
    let key = [
        (0, false, "cmd=kvs-put;key=k;value=v;"),
        (0, true, "cmd=kvs-put-response;rc=0;"),
        (0, false, "cmd=kvs-get;key=k;;;"),
        (0, true, "cmd=kvs-get-response;found=TRUE;value=v;rc=0;"),
    ];
    assert!(found(1, &key).is_empty());
    // A server need not support it.
    assert!(found(1, &[(0, false, "cmd=ring;count=1;left=a;right=b;"), (0, true, "close")]).is_empty());
    // A server need not read a request this long.
    let long = format!("cmd=kvs-put;key=k;value={};", "v".repeat(MIN_LONG_REQUEST));
    assert!(
        found(2, &[(0, false, &long), (0, true, "close"), (1, false, "cmd=job-getid;"), (1, true, "close")])
            .is_empty()
    );
}

#[test]
fn threads_may_be_answered_in_any_order() {
    let said = [
        (0, false, "cmd=info-getnodeattr;thrid=1;key=k;wait=TRUE;"),
        (0, false, "cmd=info-putnodeattr;thrid=2;key=k;value=v;"),
        (0, true, "cmd=info-getnodeattr-response;thrid=1;found=TRUE;value=v;rc=0;"),
        (0, true, "cmd=info-putnodeattr-response;thrid=2;rc=0;"),
    ];
    assert!(found(1, &said).is_empty());
}

#[rstest]
#[case::nothing("cmd=get_maxes\n", None)]
#[case::abort("cmd=abort\n", Some(Unspecified::Abort))]
#[case::junk("frob\n", Some(Unspecified::NotARequest))]
#[case::two_at_once("cmd=get_maxes\ncmd=get_appnum\n", Some(Unspecified::OutOfOrder))]
#[case::init_again("cmd=init pmi_version=1 pmi_subversion=1\n", Some(Unspecified::RuleViolation))]
#[case::unknown_key("cmd=get_maxes x=y\n", Some(Unspecified::AmbiguousRequest))]
fn unspecified_behavior_has_a_reason(#[case] text: &str, #[case] reason: Option<Unspecified>) {
    let mut monitor = Monitor::new();
    let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    let joined = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
    for (text, is_server) in [(init, false), (joined, true), (text, false)] {
        let bytes = Bytes(text.into());
        let kind = match is_server {
            true => EventKind::FromServer { proc: P, bytes },
            false => EventKind::ToServer { proc: P, bytes },
        };
        monitor.observe(&Event::new(0, kind));
    }
    assert_eq!(monitor.unspecified(P), reason);
}

#[test]
fn every_operation_has_rules_of_the_grammar() {
    for op in Operation::ALL.into_iter().filter(|op| op.exchange().source.starts_with("RFC 13")) {
        let rules = [Direction::ToServer, Direction::FromServer].map(|from| grammar_rule(from, op));
        assert_eq!(rules, [format!("rfc13.abnf.c-{}", op.rule()), format!("rfc13.abnf.s-{}", op.rule())]);
    }
}

/// Judges a mapping after two processes have started with these variables.
fn mapping_of_two(nodes: u32, started: [(&str, &str); 2], mapping: &str) -> Vec<String> {
    let procs = [0, 1].map(|rank| Proc { group: 0, rank });
    let started = procs.into_iter().zip(started).map(|(proc, (name, value))| EventKind::Started {
        proc,
        env: [(name.to_owned(), value.to_owned())].into(),
        args: Vec::new(),
        bad_fd: None,
    });
    let asks = "cmd=get kvsname=k key=PMI_process_mapping\n";
    let said = [
        (true, "cmd=init pmi_version=1 pmi_subversion=1\n".to_owned()),
        (false, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n".to_owned()),
        (true, "cmd=get_my_kvsname\n".to_owned()),
        (false, "cmd=my_kvsname rc=0 kvsname=k\n".to_owned()),
        (true, asks.to_owned()),
        (false, format!("cmd=get_result rc=0 value={mapping}\n")),
    ];
    let said = said.into_iter().map(|(to_server, text)| {
        let (proc, bytes) = (procs[0], Bytes(text.into()));
        if to_server { EventKind::ToServer { proc, bytes } } else { EventKind::FromServer { proc, bytes } }
    });
    let launched = EventKind::Launched { command: Vec::new(), ranks: 2, nodes };
    let found = judged([launched].into_iter().chain(started).chain(said));
    found.into_iter().filter(|f| f.requirement == "rfc13.mapping.true").map(|f| f.expected).collect()
}

#[rstest]
#[case::apart(1, ["q0", "q1"], "(vector,(0,2,1))", "")]
#[case::not_together(1, ["q0", "q1"], "(vector,(0,1,2))", "rank 0 on q0 and rank 1 on q1, as their environment states")]
#[case::inherited_name(1, ["q0", "q0"], "(vector,(0,2,1))", "the 2 ranks on 1 node(s), as they were started")]
#[case::inherited_name_on_two_nodes(2, ["q0", "q0"], "(vector,(0,2,1))", "")]
#[case::recorded(0, ["q0", "q1"], "(vector,(0,1,2))", "rank 0 on q0 and rank 1 on q1, as their environment states")]
fn judges_mapping_by_reported_nodes(
    #[case] nodes: u32,
    #[case] names: [&str; 2],
    #[case] mapping: &str,
    #[case] expected: &str,
) {
    let found = mapping_of_two(nodes, names.map(|name| ("SLURMD_NODENAME", name)), mapping);
    assert_eq!(found.join(""), expected);
}

#[rstest]
#[case::spread("1", "(vector,(0,2,1))", 0)]
#[case::on_one_node("2", "(vector,(0,2,1))", 1)]
fn does_not_judge_unknown_nodes(#[case] local: &str, #[case] mapping: &str, #[case] broken: usize) {
    assert_eq!(mapping_of_two(1, [("MPI_LOCALNRANKS", local); 2], mapping).len(), broken);
}
