use std::sync::Arc;

use rstest::rstest;

use super::Inputs;
use super::classify;
use super::{replies as telling, requests};
use crate::ast::{Dialect, Source};
use crate::suite::Suite;
use crate::{Behaviours, UnderTest, parse};

fn inputs() -> Inputs {
    Inputs::of(UnderTest::Server, Dialect::Pmi1).expect("the table of the suite can be read")
}

#[rstest]
#[case("cmd=put kvsname=k key=a value=b", "key", &["plain"])]
#[case("cmd=put kvsname=k value=b", "key", &["missing"])]
#[case("cmd=put kvsname=k key= value=b", "key", &["empty"])]
#[case("cmd=put kvsname=k key= a value=b", "key", &["blank-in-front"])]
#[case("cmd=put kvsname=k key=a b value=c", "key", &["blank-inside"])]
#[case("cmd=put kvsname=k key=a  value=b", "key", &["plain"])]
#[case("cmd=put kvsname=k key=rc=0 value=b", "key", &["equals", "like-keyword"])]
#[case("cmd=put kvsname=k key=a=b value=b", "key", &["equals"])]
#[case("cmd=put kvsname=k key=PMI_process_mapping value=b", "key", &["reserved"])]
#[case("cmd=put kvsname=k key=a key=b value=c", "key", &["plain", "repeated"])]
#[case("cmd=put kvsname=k key=caf\u{e9} value=b", "key", &["not-ascii"])]
#[case("cmd=put kvsname=k key=a value= b c ", "value", &["blank-behind", "blank-in-front", "blank-inside"])]
#[case("cmd=put kvsname=k key=a value=b cmd=get", "value", &["blank-inside", "equals", "like-keyword"])]
#[case("cmd=put kvsname=k key=a value=b\\c;\"d\"", "value", &["backslash", "quote", "semicolon"])]
#[case("cmd=put kvsname=k key=a value=b\tc", "value", &["tab"])]
#[case("cmd=put kvsname=k key=a value=b\u{7}", "value", &["control"])]
#[case("cmd=init pmi_version=0 pmi_subversion=1", "pmi_version", &["zero"])]
#[case("cmd=init pmi_version=01 pmi_subversion=1", "pmi_version", &["leading-zeros"])]
#[case("cmd=init pmi_version=-1 pmi_subversion=1", "pmi_version", &["negative"])]
#[case("cmd=init pmi_version=2147483647 pmi_subversion=1", "pmi_version", &["plain"])]
#[case("cmd=init pmi_version=2147483648 pmi_subversion=1", "pmi_version", &["huge"])]
#[case("cmd=init pmi_version=1x pmi_subversion=1", "pmi_version", &["not-a-number"])]
fn a_value_has_its_kinds(#[case] line: &str, #[case] argument: &str, #[case] expected: &[&str]) {
    let request = classify::line(line.as_bytes(), &inputs()).expect("it is a request");
    let kinds: Vec<&str> =
        request.kinds.iter().filter(|(name, _)| name == argument).map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, expected);
}

#[rstest]
#[case(62, "plain")]
#[case(63, "longest")]
#[case(64, "one-more")]
#[case(503, "plain")]
#[case(504, "far-too-long")]
fn a_key_is_as_long_as_the_limit_lets_it_be(#[case] length: usize, #[case] kind: &str) {
    let line = format!("cmd=get kvsname=k key={}", "x".repeat(length));
    let request = classify::line(line.as_bytes(), &inputs()).expect("it is a request");
    assert!(request.kinds.iter().any(|(name, found)| name == "key" && *found == kind));
}

#[rstest]
#[case("cmd=get kvsname=k key=a", &[])]
#[case("cmd=get key=a kvsname=k", &["order"])]
#[case("key=a cmd=get kvsname=k", &["command-not-first", "order"])]
#[case("cmd=get kvsname=k key=a colour=blue", &["extra"])]
#[case("cmd=get  kvsname=k key=a", &["blanks"])]
#[case("cmd=get kvsname=k key=a ", &["blanks"])]
#[case("cmd=put kvsname=k key=a value=b  c=d", &[])]
fn tuples_have_their_order(#[case] line: &str, #[case] expected: &[&str]) {
    let request = classify::line(line.as_bytes(), &inputs()).expect("it is a request");
    assert_eq!(request.framing.iter().copied().collect::<Vec<_>>(), expected);
}

/// A suite that plays nothing.
fn fragments() -> Suite {
    Suite::without_scenarios(Behaviours::default()).expect("the fragments can be read")
}

/// The cells of a scenario, with a `?` where the connection may have ended before.
fn played(body: &str) -> Vec<String> {
    let text = format!("# A test.\nrequires rfc13.get.value\n{body}");
    let source = Arc::new(Source { path: "test.pmi".to_owned(), text });
    let scenario = parse(source, "test").expect("the scenario can be read");
    let suite = fragments();
    requests::played(&scenario, &suite, &inputs())
        .into_iter()
        .map(|played| if played.sure { played.cell } else { format!("{}?", played.cell) })
        .collect()
}

#[rstest]
#[case::before_init("0 C: cmd=get_appnum\n", "get_appnum/state/before-init")]
#[case::after_init("use init\n0 C: cmd=get_appnum\n", "get_appnum/state/after-init")]
#[case::after_put(
    "use joined\n0 C: cmd=put kvsname=$kvs key=a value=b\n0 C: cmd=abort\n",
    "abort/state/after-put"
)]
#[case::after_barrier("use init\nuse barrier\n0 C: cmd=abort\n", "abort/state/after-barrier")]
#[case::after_refusal(
    "use joined\n0 C: cmd=get kvsname=$kvs key=a\n0 S: cmd=get_result rc=fail\n0 C: cmd=get_appnum\n",
    "get_appnum/state/after-refusal"
)]
#[case::after_finalize("use init\nuse finalized\n0 C: cmd=abort\n", "abort/state/after-finalize")]
#[case::spawned("use joined\nuse spawned(n=2)\nchild:1 C: cmd=abort\n", "abort/state/in-spawned-group")]
#[case::other_rank("ranks 2\nuse init\n1 C: cmd=get_appnum\n", "get_appnum/place/other-rank")]
#[case::other_node("ranks 2\nnodes 2\nuse init\n1 C: cmd=get_appnum\n", "get_appnum/place/other-node")]
#[case::whose(
    "ranks 2\nuse joined\n0 C: cmd=put kvsname=$kvs key=a value=b\n1 C: cmd=get kvsname=$kvs key=a\n",
    "get/place/of-other-rank"
)]
#[case::a_dozen_times("use init\nrepeat 12\n  use barrier\nend\n", "barrier_in/times/dozen")]
#[case::the_same_key(
    "use joined\n0 C: cmd=put kvsname=$kvs key=a value=b\n0 C: cmd=put kvsname=$kvs key=a value=c\n",
    "put/times/same-twice"
)]
#[case::bytewise("use init\n0 C: <bytewise> cmd=get_appnum\n", "get_appnum/framing/bytewise")]
#[case::split("use init\n0 C: cmd=get_<|>appnum\n", "get_appnum/framing/split")]
#[case::newline_apart("use init\n0 C: cmd=get_appnum<|>\n", "get_appnum/framing/newline-apart")]
#[case::several("use init\n0 C: cmd=get_appnum\n     cmd=get_maxes\n", "get_maxes/framing/several")]
#[case::by_the_announced_limit(
    "use joined\n0 C: cmd=get kvsname=$kvs key=<fill $keylen_max-1>\n",
    "get.key/kind/longest"
)]
#[case::where_it_may_have_ended(
    "use init\n0 C: cmd=get\n0 S: <one of>\n      pass: <closes>\n      pass: cmd=get_result\n0 C: cmd=get_appnum\n",
    "get_appnum/state/after-init?"
)]
fn a_scenario_plays_a_cell(#[case] body: &str, #[case] cell: &str) {
    let played = played(body);
    assert!(played.iter().any(|p| p == cell), "{cell} is not among {played:#?}");
}

#[rstest]
#[case::once_is_not_twice("use init\nuse barrier\n", "barrier_in/times/twice")]
#[case::other_keys(
    "use joined\n0 C: cmd=put kvsname=$kvs key=a value=b\n0 C: cmd=put kvsname=$kvs key=b value=b\n",
    "put/times/same-twice"
)]
#[case::half_a_message("use init\n0 C: <partial> cmd=get_appnum\n", "get_appnum/state/after-init")]
#[case::in_one_write("use init\n0 C: cmd=get_appnum\n", "get_appnum/framing/split")]
fn a_scenario_does_not_play_a_cell(#[case] body: &str, #[case] cell: &str) {
    let played = played(body);
    assert!(!played.iter().any(|p| p == cell), "{cell} is among {played:#?}");
}

#[test]
fn a_word_that_nothing_is_ever_found_to_be_is_an_error() {
    let table = include_str!("../../scenarios/inputs.toml").replace("\nbytewise = ", "\nbitwise = ");
    assert!(Inputs::parse(UnderTest::Server, Dialect::Pmi1, &table).is_err());
}

#[test]
fn an_exclusion_of_no_cell_is_an_error() {
    let table = include_str!("../../scenarios/inputs.toml").to_owned();
    let strange = table.clone() + "\n[[excluded]]\ncells = [\"put/times/thrice\"]\nwhy = \"there is none\"\n";
    assert!(
        Inputs::parse(UnderTest::Server, Dialect::Pmi1, &table)
            .expect("it is a table")
            .cells(&fragments())
            .is_ok()
    );
    assert!(
        Inputs::parse(UnderTest::Server, Dialect::Pmi1, &strange)
            .expect("it is a table")
            .cells(&fragments())
            .is_err()
    );
}

fn replies() -> Inputs {
    Inputs::of(UnderTest::Library, Dialect::Pmi1).expect("the table of the suite can be read")
}

#[rstest]
#[case("cmd=put_result rc=0", "rc", &["zero"])]
#[case("cmd=put_result rc=-004294967296", "rc", &["huge", "leading-zeros", "negative"])]
#[case("cmd=put_result rc=+0", "rc", &["zero"])]
#[case("cmd=put_result rc=fine", "rc", &["not-a-number"])]
#[case("cmd=put_result rc=", "rc", &["empty"])]
#[case("cmd=put_result", "rc", &["missing"])]
#[case("cmd=put_result rc=0 rc=-1", "rc", &["negative", "repeated", "zero"])]
#[case("cmd=spawn_result rc=0 errcodes=0,-1", "errcodes", &["negative"])]
#[case("cmd=spawn_result rc=0 errcodes=0, 0", "errcodes", &["blank-inside", "not-a-number"])]
#[case("cmd=get_result rc=0 value=x rc=-1", "value", &["blank-inside", "equals", "like-keyword"])]
#[case("cmd=lookup_result rc=-1 msg=no rc=0 here", "msg", &["blank-inside", "equals", "like-keyword"])]
fn a_value_of_a_reply_has_its_kinds(#[case] line: &str, #[case] key: &str, #[case] expected: &[&str]) {
    let reply = classify::line(line.as_bytes(), &replies()).expect("it is a reply");
    let kinds: Vec<&str> = reply
        .kinds
        .iter()
        .filter(|(name, _)| name == key)
        .map(|(_, kind)| *kind)
        .filter(|k| *k != "plain")
        .collect();
    assert_eq!(kinds, expected);
}

/// The cells that a scenario for libraries plays.
fn told(body: &str) -> Vec<String> {
    let text = format!("# A test.\nrequires rfc13.get.value\ntests library\n{body}");
    let source = Arc::new(Source { path: "test.pmi".to_owned(), text });
    let scenario = parse(source, "test").expect("the scenario can be read");
    telling::played(&scenario, &fragments(), &replies()).into_iter().map(|played| played.cell).collect()
}

const GET: &str = "0 C: cmd=get key=k\n";
const SPAWN: &str =
    "0 A: PMI_Spawn_multiple(2, \"a|b\", NULL, \"2|1\", NULL, NULL, 0, NULL, &errors[9]) = any\n";

#[rstest]
#[case::refused("0 S: cmd=get_result rc=-1\n", "get_result/outcome/refused")]
#[case::refused_with_msg("0 S: cmd=get_result rc=1 msg=rc=0\n", "get_result/outcome/refused-with-msg")]
#[case::refused_with_a_value("0 S: cmd=get_result rc=-1 value=v\n", "get_result/outcome/refused-with-values")]
#[case::without_a_value("0 S: cmd=get_result rc=0\n", "get_result/outcome/without-values")]
#[case::nothing_said("0 S: cmd=get_result\n", "get_result/outcome/nothing-said")]
#[case::without_rc("0 S: cmd=get_result value=v\n", "get_result/outcome/without-rc")]
#[case::closed("0 S: <close>\n", "get_result/instead/closed")]
#[case::unfinished("0 S: <partial> cmd=get_res\n0 S: <close>\n", "get_result/framing/unfinished")]
#[case::never("0 S: <nothing>\n", "get_result/instead/never")]
#[case::garbage("0 S: what?\n", "get_result/instead/garbage")]
#[case::empty("0 S: <empty>\n", "get_result/instead/empty-line")]
#[case::no_command("0 S: rc=0 value=v\n", "get_result/instead/no-command")]
#[case::other("0 S: cmd=put_result rc=0\n", "get_result/instead/other-reply")]
#[case::back("0 S: cmd=get kvsname=k key=k\n", "get_result/instead/request-back")]
#[case::twice("0 S: cmd=get_result rc=-1\n0 S: cmd=get_result rc=-1\n", "get_result/instead/twice")]
#[case::unasked("0 S: cmd=get_result rc=-1\n0 S: cmd=barrier_out\n", "barrier_out/instead/unasked")]
#[case::several("0 S: cmd=get_result rc=-1\n      cmd=get_result rc=-1\n", "get_result/framing/several")]
#[case::cr_lf("0 S: cmd=get_result rc=-1<0x0d>\n", "get_result/framing/cr-lf")]
#[case::known("0 S: cmd=get_result key=k rc=-1\n", "get_result/framing/extra-known")]
#[case::long("0 S: cmd=get_result rc=0 value=<fill 10000>\n", "get_result/framing/long")]
fn a_scenario_for_libraries_plays_a_cell(#[case] said: &str, #[case] cell: &str) {
    let played = told(&format!("{GET}{said}"));
    assert!(played.iter().any(|p| p == cell), "{cell} is not among {played:#?}");
}

#[rstest]
#[case::as_asked("0,0,0", "as-asked")]
#[case::fewer("0,0", "fewer")]
#[case::more("0,0,0,0", "more")]
fn error_codes_are_as_many_as_processes_or_not(#[case] codes: &str, #[case] word: &str) {
    let played = told(&format!("0 C: mcmd=spawn\n0 S: cmd=spawn_result rc=0 errcodes={codes}\n{SPAWN}"));
    let counts: Vec<_> = played.iter().filter(|cell| cell.starts_with("spawn_result/count/")).collect();
    assert_eq!(counts, [&format!("spawn_result/count/{word}")]);
}

#[test]
fn calls_are_counted_and_variables_are_told() {
    let played = told("0 P: set PMI_RANK=-1\nrepeat 12\n  0 A: PMI_Barrier() = any\nend\n");
    for cell in ["barrier_out/times/dozen", "environment.PMI_RANK/kind/negative"] {
        assert!(played.iter().any(|p| p == cell), "{cell} is not among {played:#?}");
    }
    assert!(!played.iter().any(|p| p == "barrier_out/times/hundreds"));
}

fn pmi2(tests: UnderTest) -> Inputs {
    Inputs::of(tests, Dialect::Pmi2).expect("the table of the suite can be read")
}

#[rstest]
#[case("cmd=kvs-put;key=k;value=v;", "value", &["plain"])]
#[case("cmd=kvs-put;key=k;value=a;;b;", "value", &["semicolon"])]
#[case("cmd=kvs-put;key=k;value= a b ;", "value", &["blank-behind", "blank-in-front", "blank-inside"])]
#[case("cmd=kvs-put;key=k;value=a\nb\0;", "value", &["control", "newline", "nul"])]
#[case("cmd=kvs-put;key=k;value=rc=1;", "value", &["equals", "like-keyword"])]
#[case("cmd=kvs-put;key=infokeycount;value=v;", "key", &["reserved"])]
#[case("cmd=kvs-put;value=v;", "key", &["missing"])]
#[case("cmd=info-getnodeattr;key=k;wait=true;", "wait", &["lower-case"])]
#[case("cmd=info-getnodeattr;key=k;wait=1;", "wait", &["not-a-boolean"])]
#[case("cmd=kvs-get;srcid=-01;key=k;", "srcid", &["leading-zeros", "negative"])]
#[case("cmd=spawn;ncmds=1;preputcount=0;subcmd=a;maxprocs=1;argc=2;argv0=;argv1=b;", "argvN", &["empty", "plain"])]
#[case("cmd=spawn;ncmds=0;preputcount=1;", "ppkeyN", &["missing"])]
#[case("cmd=job-getid;thrid=7;thrid=8;", "thrid", &["plain", "repeated"])]
fn a_value_in_a_frame_has_its_kinds(#[case] body: &str, #[case] argument: &str, #[case] expected: &[&str]) {
    let request = classify::body(body.as_bytes(), &pmi2(UnderTest::Server));
    let request = request.expect("it is a message").expect("it is a request");
    let kinds: Vec<&str> =
        request.kinds.iter().filter(|(name, _)| name == argument).map(|(_, kind)| *kind).collect();
    assert_eq!(kinds, expected);
}

#[rstest]
#[case("cmd=kvs-put;key=k;value=v;", &[], &[])]
#[case("cmd=kvs-put;value=v;key=k;", &["order"], &[])]
#[case("key=k;cmd=kvs-put;value=v;", &["command-not-first"], &[])]
#[case("cmd=kvs-put;thrid=1;key=k;value=v;", &["thrid"], &[])]
#[case("cmd=kvs-put;key=k;value=v;thrid=1;", &["thrid-later"], &[])]
#[case("cmd=kvs-put;key=k;value=v;colour=blue;", &["extra"], &[])]
#[case("cmd=kvs-put;key=k;value=v;infokey7=x;", &["extra", "extra-known"], &[])]
#[case("cmd=name-lookup;name=n;infokeycount=1;", &[], &["fewer"])]
#[case("cmd=name-lookup;name=n;infokeycount=0;infokey0=a;infoval0=b;", &[], &["more"])]
#[case("cmd=spawn;ncmds=2;preputcount=0;subcmd=a;argc=1;argv0=x;subcmd=b;argc=1;argv0=y;", &[], &["as-asked"])]
fn tuples_of_a_frame_have_their_order_and_number(
    #[case] body: &str,
    #[case] framing: &[&str],
    #[case] counts: &[&str],
) {
    let request = classify::body(body.as_bytes(), &pmi2(UnderTest::Server));
    let request = request.expect("it is a message").expect("it is a request");
    assert_eq!(request.framing.iter().copied().collect::<Vec<_>>(), framing);
    assert_eq!(request.counts.iter().copied().collect::<Vec<_>>(), counts);
}

/// The cells that a scenario of PMI-2 plays.
fn played_in_frames(tests: UnderTest, body: &str) -> Vec<String> {
    let inputs = pmi2(tests);
    let whom = if tests == UnderTest::Server { "" } else { "tests library\n" };
    let text = format!("# A test.\nrequires pmi2.common.answered\n{whom}dialect pmi-2\n{body}");
    let source = Arc::new(Source { path: "test.pmi".to_owned(), text });
    let scenario = parse(source, "test").expect("the scenario can be read");
    let played = match tests {
        UnderTest::Server => requests::played(&scenario, &fragments(), &inputs),
        _ => telling::played(&scenario, &fragments(), &inputs),
    };
    played.into_iter().map(|played| played.cell).collect()
}

#[rstest]
#[case::before_the_line("0 C: cmd=job-getid\n", "job-getid/state/before-init")]
#[case::before_fullinit("use pmi2-offered\n0 C: cmd=job-getid\n", "job-getid/state/before-fullinit")]
#[case::after_fullinit("use pmi2-joined\n0 C: cmd=job-getid\n", "job-getid/state/after-init")]
#[case::after_a_put(
    "use pmi2-joined\n0 C: cmd=kvs-put key=k value=v\n0 C: cmd=kvs-get key=k\n",
    "kvs-get/state/after-put"
)]
#[case::after_a_fence(
    "use pmi2-joined\nuse pmi2-barrier\n0 C: cmd=job-getid\n",
    "job-getid/state/after-fence"
)]
#[case::while_waiting(
    "use pmi2-joined\n0 C: cmd=info-getnodeattr thrid=1 key=k wait=TRUE\n0 C: cmd=job-getid thrid=2\n",
    "job-getid/state/while-waiting"
)]
#[case::spawned(
    "use pmi2-joined\nuse pmi2-spawned(n=2)\nchild:1 C: cmd=job-getid\n",
    "job-getid/state/in-spawned-group"
)]
#[case::whose(
    "ranks 2\nuse pmi2-joined\n0 C: cmd=info-putnodeattr key=k value=v\n1 C: cmd=info-getnodeattr key=k\n",
    "info-getnodeattr/place/of-other-rank"
)]
#[case::nobodys("use pmi2-joined\nuse pmi2-barrier\n0 C: cmd=kvs-get key=k\n", "kvs-get/miss/after-fence")]
#[case::padded("0 C: <bytes> 14<sp><sp><sp><sp>cmd=job-getid;\n", "job-getid/framing/length-left")]
#[case::zeros("0 C: <bytes> 000014cmd=job-getid;\n", "job-getid/framing/length-zeros")]
#[case::cut_length("0 C: <bytes> 0000<|>14cmd=job-getid;\n", "job-getid/framing/header-split")]
#[case::length_apart("0 C: <bytes> 000014<|>cmd=job-getid;\n", "job-getid/framing/header-apart")]
#[case::end_apart("0 C: cmd=job-getid<|>\n", "job-getid/framing/terminator-apart")]
#[case::bytewise("0 C: <bytewise> cmd=job-getid\n", "job-getid/framing/bytewise")]
#[case::negative("0 C: <bytes> <sp><sp><sp>-14cmd=job-getid;\n", "frame/malformed/length-negative")]
#[case::short("0 C: <bytes> 000005cmd=job-getid;\n", "frame/malformed/length-short")]
#[case::long("0 C: <bytes> 000099cmd=job-getid;\n0 S: <silence>\n", "frame/malformed/length-long")]
#[case::cut("0 C: <bytes> 000014cmd=job\n0 C: <close>\n", "frame/malformed/cut-in-body")]
#[case::unended("0 C: <body> cmd=job-getid\n", "frame/malformed/no-terminator")]
#[case::semicolon("0 C: <body> ;\n", "frame/malformed/lone-semicolon")]
#[case::no_tuple("0 C: <body> cmd;\n", "frame/malformed/no-equals")]
#[case::no_command("0 C: <body> key=k;\n", "frame/malformed/no-command")]
#[case::line("0 C: <line> cmd=get_maxes\n", "frame/malformed/line")]
fn a_scenario_of_pmi_2_plays_a_cell(#[case] body: &str, #[case] cell: &str) {
    let played = played_in_frames(UnderTest::Server, body);
    assert!(played.iter().any(|p| p == cell), "{cell} is not among {played:#?}");
}

#[rstest]
#[case::waits_are_no_misses(
    "0 C: cmd=info-getnodeattr key=k wait=TRUE\n",
    "info-getnodeattr/miss/before-init"
)]
#[case::hits_are_no_misses(
    "use pmi2-joined\n0 C: cmd=kvs-put key=k value=v\n0 C: cmd=kvs-get key=k\n",
    "kvs-get/miss/after-put"
)]
#[case::answered_is_not_waiting(
    "use pmi2-joined\n0 C: cmd=job-getid\n0 S: cmd=job-getid-response\n0 C: cmd=job-getid\n",
    "job-getid/state/while-waiting"
)]
#[case::half("0 C: <bytes> 000014cmd=job\n", "job-getid/state/before-init")]
#[case::behind_what_is_no_frame(
    "0 C: <bytes> 000005cmd=k;    14cmd=job-getid;\n",
    "job-getid/state/before-init"
)]
fn a_scenario_of_pmi_2_does_not_play_a_cell(#[case] body: &str, #[case] cell: &str) {
    let played = played_in_frames(UnderTest::Server, body);
    assert!(!played.iter().any(|p| p == cell), "{cell} is among {played:#?}");
}

#[rstest]
#[case::not_found("cmd=kvs-get-response;rc=0;found=FALSE;", "kvs-get-response/outcome/not-found")]
#[case::found("cmd=kvs-get-response;rc=0;found=TRUE;value=v;", "kvs-get-response/outcome/with-rc")]
#[case::refused("cmd=kvs-get-response;rc=1;errmsg=no;", "kvs-get-response/outcome/refused-with-msg")]
#[case::rc_last("cmd=kvs-get-response;found=TRUE;value=v;rc=0;", "kvs-get-response/framing/rc-last")]
#[case::other("cmd=kvs-put-response;rc=0;", "kvs-get-response/instead/other-reply")]
#[case::back("cmd=kvs-get;key=k;", "kvs-get-response/instead/request-back")]
#[case::garbage("cmd=nonsense;", "kvs-get-response/instead/garbage")]
#[case::unended("cmd=kvs-get-response;rc=0", "kvs-get-response/instead/no-terminator")]
fn a_scenario_of_pmi_2_for_libraries_plays_a_cell(#[case] said: &str, #[case] cell: &str) {
    let played = played_in_frames(UnderTest::Library, &format!("0 C: cmd=kvs-get\n0 S: <body> {said}\n"));
    assert!(played.iter().any(|p| p == cell), "{cell} is not among {played:#?}");
}
