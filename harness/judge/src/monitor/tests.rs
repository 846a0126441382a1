//! Tests of the monitor with whole conversations.

use pmi_scenario::requirement::is_advisory;
use rstest::rstest;

use pmi_wire::{Direction, Operation};

use super::state::{MAX_EXCESS_PROCESSES, MIN_LONG_REQUEST, grammar_rule};
use super::*;
use crate::Severity;
use crate::event::HangProof;
use crate::finding::{Finding, PartyKind};
use crate::observation::ObservationKind;
use crate::testing::{INITS, NAMES, P, cited, event, events, joined, launched, numbered, spawn, started};

fn judged(events: impl IntoIterator<Item = EventKind>) -> Vec<Finding> {
    let mut monitor = Monitor::new();
    numbered(events).iter().for_each(|event| monitor.observe(event));
    monitor.take_findings()
}

/// Returns the requirements that either side breaks in a job with these lines.
fn all(ranks: u32, lines: &[&str]) -> Vec<String> {
    cited(judged([launched(ranks, 1)].into_iter().chain(events(lines))))
}

/// Returns the requirements that the server breaks in a job of two ranks with these lines.
fn findings(lines: &[&str]) -> Vec<String> {
    let found = judged([launched(2, 1)].into_iter().chain(events(lines)));
    cited(found.into_iter().filter(|f| f.party == PartyKind::Server))
}

/// Returns the requirements that the server breaks in the lines `rest`, after rank 0 has received the keyval space name.
fn after_joining(rest: &[&str]) -> Vec<String> {
    findings(&joined(1, rest))
}

#[test]
fn pipelined_requests_may_be_answered_in_any_order() {
    let (barrier, get) = ("0 > cmd=barrier_in", "0 > cmd=get_appnum");
    let (out, number) = ("0 < cmd=barrier_out", "0 < cmd=appnum appnum=0");
    let mismatch = "rfc13.wire.response-matches-request";
    assert_eq!(after_joining(&[get, out]), [mismatch]);
    assert_eq!(after_joining(&[barrier, get, number]), Vec::<String>::new());
    // Once all requests have been answered, the monitor reports wrong responses again.
    assert_eq!(after_joining(&[barrier, get, number, out, get, out]), [mismatch]);
    // Pipelined requests of one process do not allow an unrequested response to another process.
    assert_eq!(after_joining(&[barrier, barrier, "1 < cmd=barrier_out"]), ["rfc13.wire.lock-step"]);
}

#[rstest]
#[case::request("0 < cmd=get kvsname=k key=a", "rfc13.wire.client-sends-requests")]
#[case::request_with_a_tab("0 < cmd=get\tkvsname=k\tkey=a", "rfc13.abnf.pmi1")]
#[case::beginning_of_a_request("0 < cmd=get rc=0 value=v", "rfc13.abnf.pmi1")]
fn malformed_response_is_not_a_request(#[case] answer: &str, #[case] broken: &str) {
    assert_eq!(after_joining(&["0 > cmd=get kvsname=k key=a", answer]), [broken]);
}

#[test]
fn unusual_request_excuses_only_its_response() {
    let odd = "0 > cmd=get_maxes  extra=1";
    let limits = "0 < cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64";
    let (name, none) = ("0 > cmd=get_my_kvsname", "0 < cmd=my_kvsname rc=-1");
    assert_eq!(after_joining(&[odd, "0 < cmd=maxes rc=-1", name, none]), Vec::<String>::new());
    assert_eq!(after_joining(&[odd, limits, name, none]), ["rfc13.abnf.c-kvsname"]);
    // Accepting an unusual put or lookup is only a SHOULD, but returning a wrong value breaks a MUST.
    let got = |answer| {
        let put = ["0 > cmd=put key=a kvsname=k value=v", "0 < cmd=put_result rc=0"];
        let barrier =
            ["0 > cmd=barrier_in", "1 > cmd=barrier_in", "0 < cmd=barrier_out", "1 < cmd=barrier_out"];
        let get = ["0 > cmd=get kvsname=k key=a", answer];
        after_joining(&[&INITS[1][..], &put, &barrier, &get].concat())
    };
    assert_eq!(got("0 < cmd=get_result rc=-1"), Vec::<String>::new());
    assert_eq!(got("0 < cmd=get_result rc=0 value=w"), ["rfc13.get.value"]);
    let lookup = ["0 > cmd=lookup_name  service=s", "0 < cmd=lookup_result info=fail"];
    assert_eq!(after_joining(&lookup), Vec::<String>::new());
}

#[rstest]
#[case::beyond_an_int("0 < cmd=response_to_init rc=-004294967296 pmi_version=1 pmi_subversion=1", false)]
#[case::error("0 < cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1", true)]
fn client_may_read_a_huge_rc_as_success(#[case] answer: &str, #[case] broken: bool) {
    let found = all(1, &[INITS[0][0], answer, "0 > cmd=get_maxes"]);
    let early = pmi_scenario::ids::RFC13_INIT_COMPLETE_BEFORE_OTHERS;
    assert_eq!(found.iter().any(|id| id == early), broken, "{found:?}");
}

/// A server that shortens keys returns the value for the shortened key, so the finding mentions the put of the longer
/// key.
#[test]
fn finding_mentions_a_put_of_a_longer_key() {
    let put = ["0 > cmd=put kvsname=k key=abcdef value=v", "0 < cmd=put_result rc=0"];
    let get = ["0 > cmd=get kvsname=k key=abc", "0 < cmd=get_result rc=0 value=v"];
    let expected = |lines: &[&str]| {
        let events = events(
            &[&INITS[0][..], &["0 > cmd=get_my_kvsname", "0 < cmd=my_kvsname kvsname=k"], lines].concat(),
        );
        let found = judged([launched(1, 1)].into_iter().chain(events));
        found.into_iter().map(|f| f.expected).collect::<Vec<_>>()
    };
    let unknown = "an error, since no process has put the key \"abc\"";
    assert_eq!(expected(&get), [unknown]);
    assert_eq!(
        expected(&[put, get].concat()),
        [format!("{unknown}, only a key of 6 bytes that begins with it")]
    );
}

/// On a loaded machine, the wait may time out before the server responds, so a timeout does not prove a silence.
#[test]
fn silence_finding_states_whether_it_is_proved() {
    let seen = |proof| {
        let found = judged([launched(1, 1), event(INITS[0][0]), EventKind::NoResponse { proc: P, proof }]);
        found.into_iter().map(|f| f.seen).collect::<Vec<_>>()
    };
    assert_eq!(seen(SilenceProof::Idle), ["silence"]);
    assert_eq!(seen(SilenceProof::Timeout), ["silence (not proved: timed out)"]);
}

#[test]
fn wrong_size_of_one_process_does_not_affect_others() {
    let group = |sizes: &[u32]| {
        let mut group = MonitoredGroup { size: 3, ..MonitoredGroup::default() };
        sizes.iter().map(|size| group.record_size(Some(*size))).collect::<Vec<_>>()
    };
    assert_eq!(group(&[3, 3, 3]), [3, 3, 3]);
    // A server may start fewer processes than requested.
    assert_eq!(group(&[2, 2]), [2, 2]);
    // Only one of the processes received a wrong size.
    assert_eq!(group(&[2, 3, 3]), [2, 3, 3]);
    assert_eq!(group(&[3, 2, 3]), [3, 3, 3]);
    assert_eq!(group(&[9, 3]), [3, 3]);
    // The first process received size 1, but a second process starts.
    assert_eq!(group(&[1, 1]), [1, 3]);
}

#[test]
fn reports_versions_of_accepted_offers() {
    let mut monitor = Monitor::new();
    let lines = [
        "0 < cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=9",
        "0 < cmd=response_to_init pmi_version=1 pmi_subversion=1",
        "1 <| cmd=response_to_init pmi_versi",
        "1 < on=2 pmi_subversion=0 rc=0",
        "2 < cmd=get_result rc=0 value=cmd=response_to_init pmi_version=7 pmi_subversion=0",
    ];
    numbered(events(&lines)).iter().for_each(|event| monitor.observe(event));
    assert_eq!(monitor.versions(), ["1.1", "2.0"]);
}

#[test]
fn lost_partial_request_explains_the_silence() {
    let rest = [
        "0 > cmd=get_maxes  extra=1",
        "0 < cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64",
        "0 >| cmd=get_my_",
        "0 > kvsname",
        "0 silence",
    ];
    assert_eq!(all(2, &joined(1, &rest)), ["rfc13.wire.newline"]);
}

/// The server may have lost the entry of any process that sent it in several writes.
#[rstest]
#[case::in_pieces(&["1 >| cmd=barr", "1 > ier_in"], "rfc13.wire.newline")]
#[case::whole(&["1 > cmd=barrier_in"], "rfc13.barrier.released")]
#[case::answered(&["1 >| cmd=get_ma", "1 > xes", "1 < cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=64", "1 > cmd=barrier_in"], "rfc13.barrier.released")]
fn barrier_entry_in_pieces_explains_the_silence_of_other_processes(
    #[case] entry: &[&str],
    #[case] broken: &str,
) {
    let rest = [&["0 > cmd=barrier_in"], entry, &["0 silence"]].concat();
    assert_eq!(all(2, &joined(2, &rest)), [broken]);
}

#[rstest]
#[case("0 >| cmd=barrier_in", ["1 > cmd=barrier_in", "1 < cmd=barrier_out rc=0"], "rfc13.wire.newline")]
#[case("0 >| cmd=barrier", ["1 > cmd=barrier_in", "1 < cmd=barrier_out rc=0"], "rfc13.barrier.all-in-before-any-out")]
#[case("0 >| cmd=put kvsname=k key=a value=v", ["1 > cmd=get kvsname=k key=a", "1 < cmd=get_result rc=0 value=v"], "rfc13.wire.newline")]
#[case("0 >| cmd=put kvsname=k key=b value=v", ["1 > cmd=get kvsname=k key=a", "1 < cmd=get_result rc=0 value=v"], "rfc13.error.rc-nonzero")]
fn acting_on_an_unterminated_request_is_a_violation(
    #[case] unended: &str,
    #[case] exchange: [&str; 2],
    #[case] broken: &str,
) {
    assert_eq!(findings(&joined(2, &[unended, "0 leaves", exchange[0], exchange[1]])), [broken]);
}

/// A response to an incomplete request is reported as early, not as unrequested.
#[rstest]
#[case::known_response(
    "0 >| cmd=get_maxes pad=x",
    "0 < cmd=maxes rc=0 kvsname_max=64 keylen_max=32 vallen_max=128"
)]
#[case::unknown_response("0 >| cmd=maxima", "0 < cmd=maxima rc=-1")]
fn response_before_the_newline_is_reported_as_early(#[case] unended: &str, #[case] answer: &str) {
    assert_eq!(after_joining(&[unended, answer]), ["rfc13.wire.newline"]);
    assert_eq!(after_joining(&[answer]), ["rfc13.wire.lock-step"]);
}

#[test]
fn client_may_accept_an_unexpected_response() {
    let found = |rest: &[&str]| {
        let found = judged([launched(1, 1)].into_iter().chain(events(&[&INITS[0], rest].concat())));
        found.into_iter().map(|f| (f.party, f.requirement)).collect::<Vec<_>>()
    };
    let limits = "0 < cmd=maxes rc=0 kvsname_max=64 keylen_max=32 vallen_max=128";
    let lock_step = "rfc13.wire.lock-step".to_owned();
    let requests = ["0 > cmd=get_maxes", "0 > cmd=get_appnum"];
    assert_eq!(found(&[&[limits][..], &requests].concat()), [(PartyKind::Server, lock_step.clone())]);
    assert_eq!(found(&requests), [(PartyKind::Client, lock_step)]);
}

#[rstest]
#[case("1", "closed", &["rfc13.abnf.c-init"])]
#[case("1", "silence", &["rfc13.abnf.c-init"])]
#[case("3", "closed", &["rfc13.init.highest-mutual"])]
#[case("3", "silence", &["rfc13.init.highest-mutual"])]
// A version that does not fit into the API's `int` is not judged. A server may reject version 1.0.
#[case("2147483648", "closed", &[])]
#[case("2147483648", "silence", &[])]
#[case("0", "closed", &[])]
fn offered_version_determines_the_broken_requirement(
    #[case] subversion: &str,
    #[case] end: &str,
    #[case] broken: &[&str],
) {
    let offer = format!("0 > cmd=init pmi_version=1 pmi_subversion={subversion}");
    assert_eq!(all(1, &[&offer, &format!("0 {end}")]), broken);
}

/// The arguments of each spawn request are numbered from the corresponding value in `numbers`. The server accepts all
/// requests but the last, and then closes the connection.
#[rstest]
#[case(&[1], &[])]
#[case(&[0], &["rfc13.spawn.arg-indices"])]
// The server has accepted the same numbering before, so the numbering is not the reason for the close.
#[case(&[0, 0], &["rfc13.wire.lock-step"])]
#[case(&[1, 1], &["rfc13.wire.lock-step"])]
fn server_may_reject_arguments_numbered_from_one(#[case] numbers: &[u32], #[case] broken: &[&str]) {
    let ends =
        numbers.iter().map(|first| format!("arg{first}=a\nargcnt=1\npreput_num=0\ninfo_num=0\nendcmd"));
    let spawns: Vec<String> = ends.map(|end| format!("0 > {}", spawn(1, &end))).collect();
    let mut lines = INITS[0].to_vec();
    lines.extend(spawns.iter().flat_map(|spawn| [spawn, "0 < cmd=spawn_result rc=0"]));
    *lines.last_mut().unwrap() = "0 closed";
    let found = judged([launched(1, 1)].into_iter().chain(events(&lines)));
    assert_eq!(cited(found.into_iter().filter(|f| f.party == PartyKind::Server)), broken);
}

/// A server that does not read the longest put completely treats the rest as the beginning of the next request.
#[rstest]
#[case::longest(19, "rfc13.maxes.honoured")]
#[case::shorter(18, "rfc13.abnf.c-put")]
fn longest_put_explains_a_later_silence(#[case] length: usize, #[case] cited: &str) {
    let put = format!("0 > cmd=put kvsname=k key=a value={}", "v".repeat(length));
    let lines = [
        "0 > cmd=get_maxes",
        "0 < cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=20",
        &put,
        "0 < cmd=put_result rc=0",
        "0 > cmd=put kvsname=k key=b value=w",
        "0 silence",
    ];
    assert_eq!(all(1, &joined(1, &lines)), [cited]);
}

#[test]
fn barrier_in_at_the_wrong_time_excuses_barrier_out() {
    let early = ["0 > cmd=barrier_in", "0 < cmd=barrier_out", "1 > cmd=barrier_in"];
    let both = INITS.concat();
    assert_eq!(findings(&[&both[..], &early].concat()), ["rfc13.barrier.all-in-before-any-out"]);
    // Rank 0 has skipped init, so it is unknown whether its barrier counts.
    assert_eq!(findings(&[&INITS[1][..], &early].concat()), Vec::<String>::new());
    // Rank 0 has already finalized.
    let finalizes = ["0 > cmd=finalize", "0 < cmd=finalize_ack"];
    assert_eq!(findings(&[&both[..], &finalizes, &early].concat()), Vec::<String>::new());
}

#[test]
fn endless_line_excuses_a_close() {
    let found = |length: usize| {
        let long = format!("1 >| {}", "x".repeat(length));
        all(2, &[&INITS[0][..], &[&long, "0 > cmd=get_appnum", "0 closed"]].concat())
    };
    assert_eq!(found(10), ["rfc13.abnf.c-appnum"]);
    assert_eq!(found(MIN_LONG_REQUEST + 1), Vec::<String>::new());
}

#[test]
fn silence_after_a_partial_request_is_only_a_note() {
    let found = |messages: &[&str]| {
        let lines = [&INITS.concat()[..], messages, &["0 silence"]].concat();
        let found = judged([launched(2, 1)].into_iter().chain(events(&lines)));
        found.into_iter().map(|f| (f.kind, f.max_severity)).collect::<Vec<_>>()
    };
    let held_up = [(Some(ObservationKind::SilenceDuringPartialRequest), Some(Severity::Note))];
    let silence = [(Some(ObservationKind::Silence), None)];
    let (half, get) = ("1 >| cmd=ge", "0 > cmd=get_maxes");
    assert_eq!(found(&[half, get]), held_up);
    assert_eq!(found(&["1 > mcmd=spawn\nnprocs=1", get]), held_up);
    assert_eq!(found(&[half, get, "1 closed"]), silence);
    assert_eq!(found(&[half, "1 > t_appnum", get]), silence);
    assert_eq!(found(&["0 >| cmd=get_", "0 > maxes"]), silence);
}

#[test]
fn reports_excess_processes_once() {
    let found = |request: &str, children: u32| {
        let spawn = [launched(1, 1), event(&format!("0 > {request}"))];
        let child = |rank| started(Proc { group: 1, rank }, &[("PMI_FD", "3")]);
        let found = judged(spawn.into_iter().chain((0..children).map(child)));
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
    let (get, got) = ("0 > cmd=get kvsname=k key=a", "0 < cmd=get_result rc=0 value=v");
    assert_eq!(after_joining(&[get, got]), ["rfc13.error.rc-nonzero"]);
    let (put, done) = ("0 > cmd=put key=a value=v", "0 < cmd=put_result rc=0");
    assert_eq!(after_joining(&[put, done, get, got]), Vec::<String>::new());
    // The result is the same if the put is not answered.
    assert_eq!(after_joining(&[put, get, got]), Vec::<String>::new());
}

const NO_FIELDS: &str = "argcnt=0\npreput_num=0\ninfo_num=0\n";

#[test]
fn invalid_spawn_makes_later_responses_ambiguous() {
    let request = |nprocs, end: &str| format!("0 > {}", spawn(nprocs, &format!("{NO_FIELDS}endcmd{end}")));
    let (broken, whole) = (request(1, "cmd=get_appnum"), request(3, ""));
    let one = "0 < cmd=spawn_result rc=0 errcodes=0";
    assert_eq!(after_joining(&[&whole, one]), ["rfc13.abnf.s-spawn"]);
    assert_eq!(after_joining(&[&broken, &whole, one]), Vec::<String>::new());
}

#[rstest]
#[case("endcmd=", &[])]
#[case("endcmd=\nendcmd", &[])]
#[case("info=", &["rfc13.wire.lock-step"])]
fn spawn_with_a_malformed_end_may_be_answered(#[case] end: &str, #[case] broken: &[&str]) {
    let request = format!("0 > {}", spawn(1, &format!("{NO_FIELDS}{end}")));
    assert_eq!(after_joining(&[&request, "0 < cmd=spawn_result rc=0 errcodes=0"]), broken);
}

/// RFC 13 requires the side that detects a protocol error to close the connection and abort. A client with a lenient
/// parser may accept invalid bytes in a message, and then detects no error.
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
fn client_may_accept_invalid_bytes_but_not_nonsense(#[case] answers: &[&str], #[case] detects: bool) {
    let answers: Vec<String> = answers.iter().map(|answer| format!("0 < {answer}")).collect();
    let exchanges = answers.iter().flat_map(|answer| ["0 > cmd=get kvsname=k key=a", answer]);
    let lines: Vec<&str> = exchanges.chain(["0 > cmd=get_appnum"]).collect();
    let found = judged(events(&joined(1, &lines))).into_iter().filter(|f| f.party == PartyKind::Client);
    let both: &[&str] = if detects { &["rfc13.error.close", "rfc13.error.abort"] } else { &[] };
    assert_eq!(cited(found), both);
}

#[rstest]
#[case(&["0 > cmd=init pmi_version=1 pmi_subversion=1", "0 < cmd=response_to_init rc=-1"], "rfc13.abnf.c-init")]
// The server is assumed to refuse the request because it was sent in several writes.
#[case(&["0 >| cmd=init ", "0 > pmi_version=1 pmi_subversion=1", "0 < cmd=response_to_init rc=-1"], "rfc13.wire.newline")]
#[case(&[INITS[0][0], INITS[0][1], NAMES[0][0], "0 < cmd=my_kvsname kvsname=\u{192}1"], "rfc13.abnf.word")]
#[case(&[INITS[0][0], INITS[0][1], NAMES[0][0], NAMES[0][1], "0 > cmd=put kvsname=k key=a value=cmd",
    "0 < cmd=put_result rc=0", "0 > cmd=barrier_in", "0 closed"], "rfc13.abnf.c-barrier")]
// This barrier is unusual only because of the key that the manager must distribute.
#[case(&[INITS[0][0], INITS[0][1], NAMES[0][0], NAMES[0][1], "0 > cmd=put kvsname=k key=cmd value=a",
    "0 < cmd=put_result rc=0", "0 > cmd=barrier_in", "0 closed"], "rfc13.abnf.word")]
fn cites_the_cause_of_a_failure(#[case] lines: &[&str], #[case] cited: &str) {
    assert_eq!(all(1, lines), [cited]);
}

const INITS_2: [&str; 2] = [
    "0 > cmd=init pmi_version=2 pmi_subversion=0",
    "0 < cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0",
];

#[rstest]
#[case::whole_mapping("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=(vector,(0,1,2));", &[])]
#[case::form_of_mpich("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=(vector, (0,1,2));", &[])]
#[case::too_few_ranks("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=(vector,(0,1,1));", &["de-facto.mapping.covers-all-ranks"])]
#[case::two_nodes_for_one("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=(vector,(0,2,1));", &["pmi2.common.jobattr.mapping"])]
#[case::mapping_not_found("info-getjobattr", "key=PMI_process_mapping", "found=FALSE;value=;", &["pmi2.common.jobattr.mapping"])]
#[case::no_mapping("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=none;", &["pmi2.common.jobattr.mapping"])]
#[case::node_of_mpich("info-getjobattr", "key=PMI_process_mapping", "found=TRUE;value=(vector,[0]x2);", &[])]
#[case::miss("kvs-get", "key=k", "found=FALSE;", &[])]
#[case::miss_with_value("kvs-get", "key=k", "found=FALSE;value=v;", &[])]
fn judges_results_of_pmi2_responses(
    #[case] name: &str,
    #[case] key: &str,
    #[case] result: &str,
    #[case] broken: &[&str],
) {
    let [request, answer] =
        [format!("0 >> cmd={name};{key};"), format!("0 << cmd={name}-response;rc=0;{result}")];
    let joins = [
        "0 >> cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;",
        "0 << cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;debugged=FALSE;pmiverbose=FALSE;",
    ];
    assert_eq!(all(2, &[&INITS_2[..], &joins, &[&request, &answer]].concat()), broken);
}

/// A process that repeats an unusable PMI_RANK from its environment is not to blame, but a process that sends a different invalid rank is.
#[rstest]
#[case::repeated("-1", &[])]
#[case::other("many", &["pmi2.common.request-complete"])]
fn client_may_repeat_an_unusable_pmi_rank(#[case] sent: &str, #[case] broken: &[&str]) {
    let env = started(P, &[("PMI_FD", "3"), ("PMI_RANK", "-1"), ("PMI_SIZE", "1")]);
    let lines = [
        "0 > cmd=init pmi_version=2 pmi_subversion=0".to_owned(),
        "0 < cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0".to_owned(),
        format!("0 >> cmd=fullinit;pmirank={sent};threaded=FALSE;"),
    ];
    let found = judged([launched(1, 1), env].into_iter().chain(events(&lines)));
    assert_eq!(cited(found.into_iter().filter(|finding| finding.party == PartyKind::Client)), broken);
}

/// In this job, one process uses PMI-1 and receives the mapping in RFC 13's form, and the other uses PMI-2.
#[rstest]
#[case::form_of_mpich(&["(vector,[0]x2)"], &[])]
#[case::other_for_the_second_request(&["(vector,[0]x2)", "(vector,(0,1,2))"], &["pmi2.common.jobattr.mapping"])]
fn each_protocol_has_its_own_mapping_form(#[case] mappings: &[&str], #[case] broken: &[&str]) {
    let answer = |mapping| format!("1 << cmd=info-getjobattr-response;rc=0;found=TRUE;value={mapping};");
    let answers: Vec<String> = mappings.iter().map(answer).collect();
    let mut lines = vec![
        "1 > cmd=init pmi_version=2 pmi_subversion=0",
        "1 < cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0",
        "1 >> cmd=fullinit;pmijobid=j;pmirank=1;threaded=FALSE;",
        "1 << cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;",
        "0 > cmd=get kvsname=k key=PMI_process_mapping",
        "0 < cmd=get_result rc=0 value=(vector,(0,1,2))",
    ];
    lines.extend(
        answers.iter().flat_map(|answer| ["1 >> cmd=info-getjobattr;key=PMI_process_mapping;", answer]),
    );
    let found: Vec<_> = all(2, &joined(1, &lines)).into_iter().filter(|id| !is_advisory(id)).collect();
    assert_eq!(found, broken);
}

#[test]
fn judges_name_requests_only_if_their_order_is_known() {
    let publish = "0 > cmd=publish_name service=s port=p";
    let published = "0 < cmd=publish_result rc=0";
    let unpublish = "1 > cmd=unpublish_name service=s";
    let unpublished = "1 < cmd=unpublish_result rc=0";
    let found = |rest: &[&str]| findings(&[&INITS.concat(), rest].concat());
    assert_eq!(found(&[publish, published, unpublish, unpublished]), Vec::<String>::new());
    assert_eq!(found(&[unpublish, unpublished]), ["rfc13.error.rc-nonzero"]);
    // Both requests were pending at the same time, so the order in which the server handled them is unknown.
    assert_eq!(found(&[publish, unpublish, unpublished, published]), Vec::<String>::new());
}

/// A partial message is a violation only if the process itself closes its connection and TCP does not lose the rest of
/// the message.
#[rstest]
#[case::by_itself(&[EventKind::ClosedByClient { proc: P }], true)]
#[case::killed(&[EventKind::Ended { proc: P, ours: true }], false)]
#[case::does_not_end(&[EventKind::StillRunning { procs: vec![P], proof: HangProof::Idle }, EventKind::ClosedByClient { proc: P }], false)]
#[case::reset(&[EventKind::LeftUnread { proc: P }, EventKind::ClosedByClient { proc: P }], false)]
fn client_must_complete_its_message_before_closing(#[case] end: &[EventKind], #[case] broken: bool) {
    for (partial, requirement) in
        [("0 >| cmd=get_ma", "rfc13.wire.newline"), ("0 > mcmd=spawn\nnprocs=1", "rfc13.abnf.c-spawn")]
    {
        let lines = events(&[&INITS[0][..], &[partial]].concat());
        let found = judged(lines.iter().chain(end).cloned());
        assert_eq!(found.iter().any(|f| f.requirement == requirement), broken, "{partial}");
    }
}

#[test]
fn excuses_puts_before_the_kvsname_is_known() {
    let lines = [
        "0 > cmd=put kvsname=k key=a value=1",
        "0 < cmd=put_result rc=0",
        NAMES[0][0],
        NAMES[0][1],
        "0 > cmd=get kvsname=k key=a",
        "0 < cmd=get_result rc=0 value=1",
        "0 > cmd=put kvsname=k key=a value=2",
        "0 < cmd=put_result rc=-1",
    ];
    assert_eq!(judged(events(&[&INITS[0][..], &lines].concat())), []);
}

/// Returns the requirements that a PMI-2 server breaks in a job of `ranks` ranks with these lines.
fn found(ranks: u32, lines: &[&str]) -> Vec<String> {
    let joins = (0..ranks).flat_map(|rank| {
        let [asks, answers] = INITS_2.map(|line| line.replacen('0', &rank.to_string(), 1));
        let fullinit = format!("{rank} >> cmd=fullinit;pmijobid=j;pmirank={rank};threaded=FALSE;");
        let response = format!(
            "{rank} << cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank={rank};size={ranks};appnum=0;rc=0;"
        );
        [asks, answers, fullinit, response]
    });
    let joins: Vec<String> = joins.collect();
    let found = judged([launched(ranks, 1)].into_iter().chain(events(&joins)).chain(events(lines)));
    cited(found.into_iter().filter(|f| f.party == PartyKind::Server))
}

const PUT: [&str; 2] = ["0 >> cmd=kvs-put;key=k;value=v;", "0 << cmd=kvs-put-response;rc=0;"];
const MISS: &str = "1 << cmd=kvs-get-response;rc=1;";

#[test]
fn fence_makes_earlier_puts_visible() {
    let fence = [
        ["0 >> cmd=kvs-fence;", "0 << cmd=kvs-fence-response;rc=0;"],
        ["1 >> cmd=kvs-fence;", "1 << cmd=kvs-fence-response;rc=0;"],
    ];
    let get = "1 >> cmd=kvs-get;key=k;";
    let both = [fence[0][0], fence[1][0], fence[0][1], fence[1][1]];
    assert_eq!(found(2, &[&PUT[..], &both, &[get, MISS]].concat()), ["pmi2.common.fence.visible"]);
    // Without a fence after the put, the value need not be visible.
    assert!(found(2, &[&PUT[..], &[get, MISS]].concat()).is_empty());
    // Like Hydra, the server releases rank 1 before rank 0 enters the fence, and delays the response to rank 1's get.
    let early = [&fence[1][..], &[get], &PUT, &fence[0]].concat();
    let value = "1 << cmd=kvs-get-response;rc=0;found=TRUE;value=v;";
    assert_eq!(found(2, &[&early[..], &[value]].concat()), ["pmi2.draft.fence.blocks"]);
    assert_eq!(
        found(2, &[&fence[1][..], &[get, MISS], &PUT].concat()),
        ["pmi2.draft.fence.blocks", "pmi2.common.fence.visible"]
    );
}

#[rstest]
// A fence, and a get of an attribute with `wait=TRUE`, may remain unanswered.
#[case(&["0 >> cmd=kvs-fence;", "0 silence"], &[])]
#[case(&["0 >> cmd=info-getnodeattr;key=k;wait=TRUE;", "0 silence"], &[])]
#[case(&["0 >> cmd=info-getnodeattr;key=k;", "0 silence"], &["pmi2.common.answered"])]
#[case(&["0 >> cmd=job-getid;", "0 closed"], &["pmi2.common.answered"])]
#[case(&["0 >> cmd=finalize;", "0 silence"], &["pmi2.common.finalize"])]
// After an abort, the server's behaviour is unspecified.
#[case(&["1 >> cmd=abort;isworld=TRUE;", "0 >> cmd=job-getid;", "0 closed"], &[])]
#[case(&["0 >> cmd=job-getid;", "0 << cmd=job-getid-response;jobid=j;"], &["pmi2.common.rc"])]
#[case(&["0 >> cmd=job-getid;", "0 << cmd=kvs-fence-response;rc=0;"], &["pmi2.common.response-name"])]
#[case(&["0 >|     14cmd=job", "0 >| -getid;", "0 << cmd=kvs-fence-response;rc=0;"], &["pmi2.common.any-fragmentation"])]
#[case(&["0 >> cmd=kvs-fence;", "1 >|     14cmd=kvs", "1 >| -fence;", "0 silence"], &["pmi2.common.any-fragmentation"])]
#[case(&["0 >| 14    cmd=job-getid;", "0 silence"], &["pmi2.common.frame"])]
#[case(&["0 >> cmd=kvs-fence;", "1 >> cmd=kvs-fence;", "0 silence"], &["pmi2.common.fence"])]
#[case(&["0 << cmd=job-getid-response;jobid=j;rc=0;"], &["pmi2.common.one-response"])]
#[case(&["0 >> cmd=job-getid;thrid=7;", "0 << cmd=job-getid-response;jobid=j;rc=0;"], &["pmi2.draft.thrid-echoed"])]
#[case(&["0 >> cmd=job-getid;thrid=7;", "0 << cmd=job-getid-response;thrid=8;jobid=j;rc=0;"], &["pmi2.common.thrid"])]
#[case(&["0 >> cmd=job-getid;thrid=\t;", "0 << cmd=job-getid-response;thrid=;jobid=j;rc=0;"], &["pmi2.draft.thrid-echoed"])]
#[case(&["0 >> cmd=nonsense;", "0 << cmd=nonsense-response;rc=9;"], &[])]
#[case(&["0 >> cmd=kvs-get;key=k;", "0 << cmd=kvs-get-response;rc=0;found=TRUE;value=x;"], &["pmi2.common.get.miss"])]
#[case(&["0 >> cmd=kvs-get;key=k;", "0 << cmd=kvs-get-response;rc=0;found=1;"], &["pmi2.common.get.found"])]
// A refused put of a reserved key does not change the server's value.
#[case(&["0 >> cmd=kvs-put;key=PMI_k;value=v;", "0 << cmd=kvs-put-response;rc=1;", "0 >> cmd=kvs-get;key=PMI_k;", "0 << cmd=kvs-get-response;rc=0;found=TRUE;value=x;"], &[])]
#[case(&["0 >> cmd=name-lookup;name=n;", "0 << cmd=name-lookup-response;rc=0;port=p;"], &["pmi2.common.names.miss"])]
fn checks_each_response_against_its_request(#[case] lines: &[&str], #[case] broken: &[&str]) {
    assert_eq!(found(2, lines), broken);
}

const GETALL: &str = "0 >> cmd=kvs-getall;jobid=j;";
const REFUSED: &str = "0 << cmd=kvs-getall-response;rc=1;";

#[rstest]
#[case(&[GETALL, REFUSED], &[])]
#[case(&[GETALL, "0 silence"], &[])]
#[case(&[GETALL, "0 << cmd=kvs-getall-paircount-response;npair=0;", REFUSED], &[])]
#[case(&[GETALL, REFUSED, REFUSED], &["pmi2.common.one-response"])]
#[case(&[GETALL, "0 << cmd=kvs-getall-response;"], &["pmi2.common.rc"])]
#[case(&[GETALL, "0 << cmd=kvs-fence-response;rc=0;"], &["pmi2.common.response-name"])]
#[case(&["0 << cmd=auth-response;authinfo=1;"], &["pmi2.common.one-response"])]
// The monitor does not track exchanges that consist of several requests.
#[case(&["0 >> cmd=kvs-put;key=k;concat=1;", "0 >> cmd=concat;concatid=1;value=v;", PUT[1]], &[])]
#[case(&["0 >> cmd=spawn;ncmds=1;preputcount=0;", "0 >> cmd=spawn-cmd;maxprocs=1;", "0 closed"], &[])]
fn draft_only_request_has_at_most_one_response(#[case] lines: &[&str], #[case] broken: &[&str]) {
    assert_eq!(found(1, lines), broken);
}

#[test]
fn concurrent_requests_may_be_served_in_any_order() {
    let long = format!("0 >> cmd=info-putnodeattr;key={};value=v;", "k".repeat(65));
    let publish = ["0 >> cmd=name-publish;name=n;port=p;", "0 << cmd=name-publish-response;rc=0;"];
    let lookup = "1 >> cmd=name-lookup;name=n;";
    let hit = "1 << cmd=name-lookup-response;rc=0;port=p;";
    let miss = "1 << cmd=name-lookup-response;rc=1;";
    assert!(found(2, &[publish[0], lookup, hit, publish[1]]).is_empty());
    assert_eq!(found(2, &[publish[0], publish[1], lookup, miss]), ["pmi2.common.names.lookup"]);
    let second = "0 >> cmd=name-publish;name=n;port=q;";
    assert_eq!(
        found(2, &[publish[0], publish[1], second, publish[1], lookup, hit]),
        ["pmi2.common.names.lookup"]
    );
    assert!(found(2, &[second, publish[1], publish[0], publish[1], lookup, hit]).is_empty());
    let refused = "0 << cmd=name-publish-response;rc=1;";
    assert!(found(2, &[publish[0], publish[1], second, refused, lookup, hit]).is_empty());
    let put = ["0 >> cmd=info-putnodeattr;key=k;value=v;", "0 << cmd=info-putnodeattr-response;rc=0;"];
    let get = "1 >> cmd=info-getnodeattr;key=k;";
    let none = "1 << cmd=info-getnodeattr-response;found=FALSE;rc=0;";
    assert!(found(2, &[get, put[0], put[1], none]).is_empty());
    assert_eq!(found(2, &[put[0], put[1], get, none]), ["pmi2.common.nodeattr"]);
    // Cutting a value at a doubled semicolon breaks a separate requirement.
    let doubled = ["0 >> cmd=info-putnodeattr;key=k;value=a;;b;", put[1]];
    let cut = "1 << cmd=info-getnodeattr-response;found=TRUE;value=a;rc=0;";
    assert_eq!(found(2, &[doubled[0], doubled[1], get, cut]), ["pmi2.draft.semicolons"]);
    let refused = "0 << cmd=info-putnodeattr-response;rc=1;";
    assert!(found(1, &[&long, refused]).is_empty());
    assert_eq!(found(1, &[put[0], refused]), ["pmi2.common.nodeattr"]);
    // One of the two pending requests has no thrid, so the server may abort the job.
    let both = ["0 >> cmd=kvs-fence;", "0 >> cmd=job-getid;thrid=1;", "0 closed"];
    assert!(found(2, &both).is_empty());
    // Without a thrid in the response, it is unknown which of the two requests is answered.
    let two = [
        "0 >> cmd=info-getnodeattr;thrid=1;key=w;wait=TRUE;",
        "0 >> cmd=info-getnodeattr;thrid=2;key=k;",
        "0 << cmd=info-getnodeattr-response;found=FALSE;rc=0;",
        "0 silence",
    ];
    assert_eq!(found(1, &two), ["pmi2.draft.thrid-echoed"]);
    let mixed = [two[0], "0 >> cmd=info-getnodeattr;key=k;", two[2], two[3]];
    assert!(found(1, &mixed).is_empty());
    // Rank 1 has finalized, so it will not enter the fence, and the fence may fail.
    let left = ["1 >> cmd=finalize;", "1 << cmd=finalize-response;rc=0;"];
    let fence = ["0 >> cmd=kvs-fence;", "0 << cmd=kvs-fence-response;rc=1;"];
    assert!(found(2, &[left, fence].concat()).is_empty());
    assert_eq!(found(1, &fence), ["pmi2.common.fence"]);
    // Two threads of rank 0 are in the fence at the same time.
    let twice = [
        "0 >> cmd=kvs-fence;thrid=1;",
        "0 >> cmd=kvs-fence;thrid=2;",
        "0 << cmd=kvs-fence-response;thrid=2;rc=1;",
    ];
    assert!(found(2, &twice).is_empty());
    // Rank 0 finalizes while it is in the fence.
    let leaves = [
        "1 >> cmd=kvs-fence;",
        "0 >> cmd=kvs-fence;thrid=5;",
        "0 >> cmd=finalize;",
        "0 << cmd=finalize-response;rc=0;",
        "1 << cmd=kvs-fence-response;rc=1;",
    ];
    assert!(found(2, &leaves).is_empty());
    // The key of the tuple is longer than the draft allows.
    let long = format!("0 >> cmd=job-getid;{}=1;", "k".repeat(65));
    assert!(found(1, &[&long, "0 closed"]).is_empty());
    let longest = format!("0 >> cmd=job-getid;{}=1;", "k".repeat(64));
    assert_eq!(found(1, &[&longest, "0 closed"]), ["pmi2.common.answered"]);
    // The client claims a rank other than its own, and the server may accept this rank.
    let again = [
        "0 >> cmd=fullinit;pmijobid=j;pmirank=9;threaded=FALSE;",
        "0 << cmd=fullinit-response;rank=9;size=1;appnum=0;rc=0;",
    ];
    assert_eq!(found(1, &again), ["pmi2.draft.fullinit.version"]);
    // The draft does not describe this type of authentication.
    let unknown = "0 >> cmd=fullinit;pmijobid=j;pmirank=0;threaded=FALSE;authtype=1;";
    assert!(found(1, &[unknown, "0 << cmd=fullinit-response;rc=1;"]).is_empty());
    let key = [
        "0 >> cmd=kvs-put;key=k;value=v;",
        "0 << cmd=kvs-put-response;rc=0;",
        "0 >> cmd=kvs-get;key=k;;;",
        "0 << cmd=kvs-get-response;found=TRUE;value=v;rc=0;",
    ];
    assert!(found(1, &key).is_empty());
    // A server need not support the ring.
    assert!(found(1, &["0 >> cmd=ring;count=1;left=a;right=b;", "0 closed"]).is_empty());
    // A server need not read a request of more than MIN_LONG_REQUEST bytes.
    let long = format!("0 >> cmd=kvs-put;key=k;value={};", "v".repeat(MIN_LONG_REQUEST));
    assert!(found(2, &[&long, "0 closed", "1 >> cmd=job-getid;", "1 closed"]).is_empty());
}

#[test]
fn thread_requests_may_be_answered_in_any_order() {
    let lines = [
        "0 >> cmd=info-getnodeattr;thrid=1;key=k;wait=TRUE;",
        "0 >> cmd=info-putnodeattr;thrid=2;key=k;value=v;",
        "0 << cmd=info-getnodeattr-response;thrid=1;found=TRUE;value=v;rc=0;",
        "0 << cmd=info-putnodeattr-response;thrid=2;rc=0;",
    ];
    assert!(found(1, &lines).is_empty());
}

#[rstest]
#[case::nothing("0 > cmd=get_maxes", None)]
#[case::abort("0 > cmd=abort", Some(Unspecified::Abort))]
#[case::junk("0 > frob", Some(Unspecified::NotARequest))]
#[case::two_at_once("0 > cmd=get_maxes\ncmd=get_appnum", Some(Unspecified::OutOfOrder))]
#[case::init_again("0 > cmd=init pmi_version=1 pmi_subversion=1", Some(Unspecified::RuleViolation))]
#[case::unknown_key("0 > cmd=get_maxes x=y", Some(Unspecified::AmbiguousRequest))]
fn monitor_states_why_behaviour_is_unspecified(#[case] line: &str, #[case] reason: Option<Unspecified>) {
    let mut monitor = Monitor::new();
    let lines = events(&[&INITS[0][..], &[line]].concat());
    numbered(lines).iter().for_each(|event| monitor.observe(event));
    assert_eq!(monitor.unspecified(P), reason);
}

#[test]
fn every_operation_has_grammar_rules() {
    for op in Operation::ALL.into_iter().filter(|op| op.exchange().source.starts_with("RFC 13")) {
        let rules = [Direction::ToServer, Direction::FromServer].map(|from| grammar_rule(from, op));
        assert_eq!(rules, [format!("rfc13.abnf.c-{}", op.rule()), format!("rfc13.abnf.s-{}", op.rule())]);
    }
}

/// Judges a mapping after two processes have started with these variables. Returns the expected behaviour that each finding states.
fn mapping_of_two(nodes: u32, env: [(&str, &str); 2], mapping: &str) -> Vec<String> {
    let starts = (0..).zip(env).map(|(rank, variable)| started(Proc { group: 0, rank }, &[variable]));
    let answer = format!("0 < cmd=get_result rc=0 value={mapping}");
    let lines = events(&joined(1, &["0 > cmd=get kvsname=k key=PMI_process_mapping", &answer]));
    let found = judged([launched(2, nodes)].into_iter().chain(starts).chain(lines));
    found.into_iter().filter(|f| f.requirement == "rfc13.mapping.true").map(|f| f.expected).collect()
}

#[rstest]
#[case::apart(1, ["q0", "q1"], "(vector,(0,2,1))", "")]
#[case::not_together(1, ["q0", "q1"], "(vector,(0,1,2))", "rank 0 on q0 and rank 1 on q1, according to their environment")]
#[case::inherited_name(1, ["q0", "q0"], "(vector,(0,2,1))", "the 2 ranks on 1 node, where they were started")]
#[case::inherited_name_on_two_nodes(2, ["q0", "q0"], "(vector,(0,2,1))", "")]
#[case::recorded(0, ["q0", "q1"], "(vector,(0,1,2))", "rank 0 on q0 and rank 1 on q1, according to their environment")]
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
fn judges_mapping_only_if_nodes_are_known(#[case] local: &str, #[case] mapping: &str, #[case] broken: usize) {
    assert_eq!(mapping_of_two(1, [("MPI_LOCALNRANKS", local); 2], mapping).len(), broken);
}

#[test]
fn process_that_aborts_need_not_finalize() {
    assert_eq!(all(1, &joined(1, &["0 > cmd=abort", "0 leaves"])), Vec::<String>::new());
    assert_eq!(all(1, &joined(1, &["0 leaves"])), ["rfc13.abnf.c-finalize"]);
}

#[test]
fn counting_spawn_blocks_from_zero_is_only_noted() {
    let spawn = spawn(1, "argcnt=0\npreput_num=0\ninfo_num=0\nendcmd").replace("sofar=1", "sofar=0");
    let lines = joined(1, &[]).into_iter().map(String::from).chain([format!("0 > {spawn}")]);
    let found = judged([launched(1, 1)].into_iter().chain(events(&lines.collect::<Vec<_>>())));
    let found: Vec<_> = found.into_iter().map(|f| (f.requirement, f.max_severity)).collect();
    assert_eq!(found, [("rfc13.abnf.c-spawn".to_owned(), Some(Severity::Note))]);
}
