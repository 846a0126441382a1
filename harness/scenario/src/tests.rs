use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use insta::assert_snapshot;
use rstest::rstest;

use pmi_wire::protocol;

use super::requirement::{Level, Severity};
use super::scope::Scope;
use super::suite::Suite;
use super::visit::steps as steps_of;
use super::{ast::*, *};

fn parsed(name: &str, text: &str) -> Result<Scenario, Vec<Diagnostic>> {
    parse(Arc::new(SourceFile { path: format!("{name}.pmi"), text: text.to_owned() }), name)
}

const JOINED: &str = "\
# The process has joined: init, get_maxes and get_my_kvsname.
* send    cmd=init pmi_version=1 pmi_subversion=1
* expect  cmd=response_to_init rc=ok pmi_version=1 pmi_subversion=1
* send    cmd=get_maxes
* expect  cmd=maxes rc=ok kvsname_max=$kvsname_max:uint keylen_max=$keylen_max:uint vallen_max=$vallen_max:uint
* send    cmd=get_my_kvsname
* expect  cmd=my_kvsname rc=ok kvsname=$kvs:word
";
#[test]
fn pmijobid_defaults_to_job() {
    let mut scope = Scope::default();
    assert_eq!(scope.var("pmijobid"), Ok(b"job".to_vec()));
    scope.set_job_id(Some(b"4711.0"));
    assert_eq!(scope.var("pmijobid"), Ok(b"4711.0".to_vec()));
}

/// Returns the quoted strings in a source file, excluding its test module.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("mod tests {").next().unwrap_or_default();
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
}

/// No document states requirements for the control protocol of proxies.
#[test]
fn proxy_requirements_are_de_facto() {
    let catalogue = suite::embedded_catalogue().unwrap();
    let duties: Vec<_> = catalogue.iter().filter(|r| r.id.starts_with("hydra.upstream.")).collect();
    assert!(duties.iter().all(|duty| duty.level == Level::DeFacto), "{duties:?}");
    let severity = |id: &str| catalogue.get(id).unwrap().severity();
    assert_eq!(severity("hydra.upstream.barrier-once"), Severity::Fail);
    assert_eq!(severity("hydra.upstream.lost"), Severity::Note);
}

/// Every requirement id in the sources must be in the catalogue. The ids `iut.*` are constants of the judge.
#[test]
fn sources_cite_only_existing_requirements() {
    let catalogue = suite::embedded_catalogue().unwrap();
    let sets: BTreeSet<&str> =
        catalogue.iter().filter_map(|r| r.id.split_once('.')).map(|(set, _)| set).collect();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()];
    let (mut unknown, mut files) = (Vec::new(), 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "snapshots", "target"].contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let is_id = |word: &&str| {
                    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
                    word.split_once('.').is_some_and(|(set, rest)| sets.contains(set) && !rest.is_empty())
                        && !word.ends_with(['.', '-'])
                        && word.chars().all(allowed)
                };
                let is_known = |id: &&str| {
                    let group = format!("{id}.");
                    catalogue.get(id).is_some() || catalogue.iter().any(|r| r.id.starts_with(&group))
                };
                let missing = quoted(&text).filter(is_id).filter(|id| !is_known(id));
                unknown.extend(missing.map(|id| format!("{}: {id}", path.display())));
            }
        }
    }
    assert!(files > 100, "{files}");
    assert_eq!(unknown, Vec::<String>::new());
}

const FINALIZED: &str =
    "# The process leaves.\n* send    cmd=finalize\n* expect  cmd=finalize_ack rc=ok\n* send    <close>\n";

fn fragment(name: &str) -> Option<Arc<Scenario>> {
    let text = match name {
        "joined" => JOINED,
        "finalized" => FINALIZED,
        "spawn" => {
            "# Spawns.\ntakes n=1 program\n0 send    mcmd=spawn\n  nprocs=$n\n  execname=$program\n  endcmd\n0 expect  cmd=spawn_result rc=ok\nchild$n:* P: starts\n"
        }
        "demanding" => {
            "# Needs a sixth rank, a value and a child.\n5 send    cmd=put kvsname=$kvs key=$kay value=1\nchild:0 P: starts\n"
        }
        "pmi2-joined" => {
            "# Joins.\ndialect pmi-2\n* send    cmd=fullinit\n* expect  cmd=fullinit-response rc=0\n"
        }
        "pmi2-fence" => {
            "# Waits.\ndialect pmi-2\n* send    cmd=kvs-fence\n* expect  cmd=kvs-fence-response rc=0\n"
        }
        "ping" => "# Uses pong.\nuse pong\n",
        "pong" => "# Uses ping.\nuse ping\n",
        _ => return None,
    };
    parsed(&format!("fragments/{name}"), text).ok().map(Arc::new)
}

fn checked(scenario: &Scenario) -> Vec<Diagnostic> {
    let ids = ["rfc13.put.unique", "rfc13.get.value", "rfc13.error.close"].map(str::to_owned);
    let fragments = ["joined", "finalized", "demanding", "ping", "pong"].map(str::to_owned);
    let known = |id: &str| !id.contains("unknown") && !id.contains("uniqe");
    let behaviours =
        Behaviours { variations: || vec!["order-reversed", "two-blanks"], faults: || vec!["some-fault"] };
    let env = Env {
        fragments: &fragment,
        requirement_ids: &known,
        fragment_names: &fragments,
        requirement_names: &ids,
        behaviours: &behaviours,
    };
    check(scenario, &env)
}

/// Returns the rendered diagnostics for a scenario file.
fn mistakes(text: &str) -> String {
    let diagnostics = match parsed("kvs/test", text) {
        Err(diagnostics) => diagnostics,
        Ok(scenario) => checked(&scenario),
    };
    diagnostics.iter().map(|d| d.render(false)).collect::<Vec<_>>().join("\n\n")
}

/// Returns the diagnostics for steps of an otherwise correct scenario.
fn steps(steps: &str) -> String {
    mistakes(&format!("# It holds.\nrequires rfc13.put.unique\nranks 4\nuse joined\n{steps}\n"))
}

/// Returns the one-line forms of the diagnostics for the steps of an otherwise correct scenario.
fn brief(text: &str) -> Vec<String> {
    let text = format!("# It holds.\nrequires rfc13.put.unique\nranks 4\nuse joined\n{text}\n");
    let diagnostics = match parsed("t", &text) {
        Err(diagnostics) => diagnostics,
        Ok(scenario) => checked(&scenario),
    };
    diagnostics.iter().map(ToString::to_string).collect()
}

fn guide() -> Vec<(usize, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/README.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        // The packaged crate does not contain the guide.
        return Vec::new();
    };
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            None if line == "```pmi" => open = Some((number + 2, String::new())),
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some((_, block)) => {
                block.push_str(line);
                block.push('\n');
            }
            None => {}
        }
    }
    blocks
}

#[test]
fn guide_examples_are_valid_and_formatted() {
    let blocks = guide();
    for (line, block) in &blocks {
        let scenario = match parsed("example", block) {
            Ok(scenario) => scenario,
            Err(diagnostics) => panic!("README.md:{line}: {}", diagnostics[0].render(false)),
        };
        assert_eq!(&print(&scenario), block, "README.md:{line}");
        let behaviours =
            Behaviours { variations: || vec!["order-reversed", "two-blanks"], ..Behaviours::default() };
        match Suite::of_files(vec![("example".to_owned(), Arc::clone(&scenario.source))], behaviours) {
            Ok(suite) => assert_eq!(suite.diagnose(), [], "README.md:{line}"),
            Err(error) => panic!("README.md:{line}: {error}"),
        }
    }
    assert!(blocks.is_empty() || blocks.len() >= 8);
}

#[rstest]
#[case::ragged(
    "#  A b.\n\n\n\n#c\nrequires   a.b   c.d    # two\nranks  2\nuse    x    # why\n0   send    cmd=a   b=c\n1,0   expect[a.b] cmd=d\n\n\n* expect  <one of>\n  pass: <closes>\n  fail[a.b]:cmd=x\n      cmd=y\n  # c\n  note: <empty>\n\n\n"
)]
#[case::nested(
    "# A.\nrepeat 2 # o\n     0-3 send    a\n      # in\n          b\n     repeat $i+1   as   $j\n   child2:*   P:  has  A=b  c\n   end\nend\nJ:  exits   0\n"
)]
#[case::modes(
    "0 send    <bytewise>   <partial>   a  b\n0 send    \n a\n b\n0 P:   has   arguments   a  b \n0 A: F( 1,\"a  b\" )  = X  a=b\nlet   $x   =  a  b   # c\nlet $y =\n"
)]
#[case::braces(
    "row a x={b  c} y=<0x7b>d z={}\nrow b x={ e} y={f={g h} i}\n0 A: F()  = X a={b c}   d=<0x7b>e f={}\n0 A: = X a={<0x7b> b}\n"
)]
#[case::empty("\n\n  \n")]
fn formatting_keeps_the_meaning_and_is_stable(#[case] text: &str) {
    let first = parsed("t", text).unwrap_or_else(|d| panic!("{}", d[0].render(false)));
    let once = print(&first);
    let second = parsed("t", &once).unwrap_or_else(|d| panic!("{once}\n{}", d[0].render(false)));
    assert_eq!(first, second, "{once}");
    assert_eq!(print(&second), once);
}

#[rstest]
fn formatting_keeps_process_steps(
    #[values(
        "starts",
        "has A=b",
        "set A=b",
        "has arguments a",
        "is ended",
        "ends",
        "exits any",
        "exits nonzero|same",
        "prints the same",
        "exit 3",
        "kill 9",
        "wait 2",
        "pause",
        "pause parent"
    )]
    step: &str,
) {
    let heads = ["", "tests client\n", "tests library\n"];
    let steps: Vec<_> =
        heads.iter().filter_map(|head| parsed("t", &format!("# A.\n{head}\n0 P: {step}\n")).ok()).collect();
    assert!(!steps.is_empty());
    for first in steps {
        let printed = print(&first);
        assert_eq!(parsed("t", &printed).as_ref(), Ok(&first), "{printed}");
    }
}

#[test]
fn formatting_aligns_roles_and_keeps_comments() {
    let text = "# A.\nrequires a   # b\n\n\nrepeat 2\n0 send    mcmd=spawn\n # c\n nprocs=1\n1,2  expect  <one of>\n   pass: <closes>\nend\nJ: exits 0";
    assert_snapshot!(print(&parsed("t", text).unwrap()));
}

#[test]
fn parses_a_heading_and_steps_of_several_roles() {
    let text = "\
# First line,
# second line.
requires a.b c.d
needs spawn names
ranks 4
nodes 2
2,0-1 send    <bytewise> <partial> key=$kvs v=<fill $n-1>$$<<<0x0a>é
child2:* expect[c.d] cmd=maxes rc=ok size=$size2:uint port=$host:42 x=<uint 1..$n*2>
0 P: kill 9
J: exits nonzero
0 A: PMI_KVS_Get($n, \"a b\", NULL, &value[64]) = PMI_SUCCESS value=<word>
";
    let tree = parsed("t", text).unwrap();
    let steps: Vec<String> = tree.body.iter().map(|statement| format!("{statement:?}")).collect();
    let head =
        format!("{}\n{:?} {:?}", tree.summary(), (tree.ranks, tree.nodes), (&tree.requires, &tree.needs));
    insta::with_settings!({ filters => [(r", span: Span \{ start: \d+, end: \d+ \}", "")] }, {
        assert_snapshot!(format!("{head}\n{}", steps.join("\n")));
    });
}

#[test]
fn parser_splits_messages_into_tuples() {
    let show = |line: &str| {
        let text = format!("0 expect  {line}");
        let scenario = parsed("t", &text).unwrap();
        let Statement::Step(Step { action: StepAction::Message { lines, .. }, .. }) = &scenario.body[0]
        else {
            panic!()
        };
        let show = |t: &Template| t.literal().unwrap_or_else(|| format!("{:?}", t.pieces));
        lines[0].message_fields().iter().map(|f| format!("{}|{}", f.key, show(&f.value))).collect::<Vec<_>>()
    };
    assert_eq!(show("cmd=maxes  rc=0 "), ["cmd|maxes", "rc|0"]);
    assert_eq!(show("cmd=get_result rc=0 value=a rc=ok"), ["cmd|get_result", "rc|0", "value|a rc=ok"]);
    assert_eq!(show("cmd=x value=a b=c"), ["cmd|x", "value|a", "b|c"]);
    assert_eq!(show("cmd=x msg=a b=c"), ["cmd|x", "msg|a b=c"]);
    assert_eq!(show("cmd=x a=b<sp>c=d"), ["cmd|x", "a|b c=d"]);
    assert_eq!(show("preput_val_0=a b rc=ok"), ["preput_val_0|a b rc=ok"]);
    assert_eq!(show("endcmd"), ["|endcmd"]);
    assert_eq!(show("rc=ok size=<uint>"), ["rc|[Typed(RcOk)]", "size|[Typed(Uint(None, None))]"]);
    assert_eq!(show("a=1 rc=fail"), ["a|1", "rc|[Typed(RcFail)]"]);
    assert_eq!(show("rc=okay rc=<any> xrc=ok"), ["rc|okay", "rc|[Typed(Any)]", "xrc|ok"]);
    assert_eq!(show("port=a=b"), ["port|a=b"]);
}

#[rstest]
#[case::keyword("reqires a", "cannot begin a head line")]
#[case::keyword_of_nothing("requires", "after the first step")]
#[case::late_head("ranks 2", "`ranks` after the first step")]
#[case::let_without_equals("let $x", "`let` without `=`")]
#[case::let_without_name("let x = 1", "expected a `$name`")]
#[case::let_capture("let $x = $y:word", "a `let` value cannot contain a matcher")]
#[case::let_reserved("let $rank = 1", "bound by the runner")]
#[case::repeat_open("repeat 2\n0 send    cmd=abort", "`repeat` without `end`")]
#[case::end_alone("end", "`end` without `repeat`")]
#[case::repeat_none("repeat 0\nend", "0 times")]
#[case::repeat_many("repeat 1000000000\nend", "1000000000 times")]
#[case::repeat_shadows("repeat 2 as $kvs\nend", "already bound")]
#[case::use_nothing("use", "needs the name of a fragment")]
#[case::use_path("use ../x", "invalid fragment name")]
#[case::no_rank("send    cmd=init", "without ranks")]
#[case::no_role("0 cmd=init", "without a role")]
#[case::job_with_rank("0 J: exits 0", "has no ranks")]
#[case::blank_in_ranks("0, 1 send    cmd=init", "a space in a list of ranks")]
#[case::downwards("2-0 send    cmd=init", "must be ascending")]
#[case::group_one("child1:0 P: starts", "is `child`")]
#[case::rank_twice("0,1,0-2 P: starts", "rank 0 is named twice")]
#[case::neither_rc_nor_value("0 send    ", "an empty step")]
#[case::more_after_close("0 send    <close>\n   cmd=x", "takes no further lines")]
#[case::more_after_process("0 P: starts\n   cmd=x", "takes no further lines")]
#[case::indented_step("0 send    cmd=init\n  0 expect  cmd=response_to_init", "indented like a further line")]
#[case::one_of_nothing("0 expect  <one of>", "without outcomes")]
#[case::one_of_nested("0 expect  <one of>\n  pass: <one of>", "within `<one of>`")]
#[case::no_verdict("0 expect  <one of>\n  close", "without a verdict")]
#[case::one_of_in_a_sent_message("0 send    <one of>\n  pass: <closes>", "cannot be sent")]
#[case::silent_client("0 send    <nothing>", "a step that sends cannot contain `<nothing>`")]
#[case::lone_angle("0 send    a=<b", "`<` without `>`")]
#[case::lone_dollar("0 send    a=$ b", "`$` without a name")]
#[case::lone_brace("0 send    a=${b", "without a name and `}`")]
#[case::bad_byte("0 send    a=<0x1>", "two hexadecimal digits")]
#[case::tab("0 send    a=\tb", "an invisible character")]
#[case::tab_indent("0 send    a=b\n\tc=d", "a tab as indentation")]
#[case::carriage_return("0 send    a=b\r", "carriage return")]
#[case::form_argument("0 expect  rc=<word 3>", "takes no argument")]
#[case::uint_bounds("0 expect  rc=<uint 3>", "bounds are written")]
#[case::huge_number("0 send    a=<fill 99999999999999999999>", "the largest number is")]
#[case::huge_fill("0 send    a=<fill 999999999>", "the range is")]
#[case::expr_end("0 send    a=<calc 1 2>", "expected an operator")]
#[case::expr_open("0 send    a=<calc (1>", "operator or `)`")]
#[case::expr_empty("0 send    a=<calc >", "expected a number")]
#[case::cut_expected("0 expect  cmd=maxes<|> rc=ok", "this step reads")]
#[case::junk_expected("0 expect  cmd=maxes msg=<junk 3>", "not expected")]
#[case::mode_expected("0 expect  <bytewise> cmd=maxes rc=ok", "a step that reads cannot contain")]
#[case::absent_alone("0 expect  cmd=maxes size=a<absent>", "stand alone")]
#[case::capture_sent("0 send    cmd=get key=$x:word", "a step that sends cannot contain a capture")]
#[case::absent_sent("0 send    cmd=get key=<absent>", "a step that sends cannot contain a matcher")]
#[case::request_expected("0 expect  cmd=get rc=ok", "`get` is a request")]
#[case::no_tuple("0 expect  clsoe", "not a `key=value` tuple")]
#[case::job_status("J: exits nonzro", "an exit status is")]
#[case::process_word("0 P: strats", "unknown word `strats`")]
#[case::status("0 P: exit 256", "from 0 to 255")]
#[case::signal("0 P: kill 0", "from 1 to 64")]
#[case::env("0 P: has A", "a variable without `=`")]
#[case::env_name("0 P: has A-B=1", "invalid name of an environment")]
#[case::call_open("0 A: PMI_Barrier(", "closing `)`")]
#[case::call_text("0 A: PMI_Abort(1, \"a)", "closing `\"`")]
#[case::call_name("0 A: PMI_Barier()", "no function `PMI_Barier`")]
#[case::call_result("0 A: PMI_Barrier() = PMI_SUCESS", "no function returns")]
#[case::call_no_result("0 A: PMI_Barrier() =", "without a result")]
#[case::call_junk("0 A: PMI_Barrier() x", "expected `= RESULT`")]
#[case::call_out("0 A: PMI_Get_rank(&rank) = PMI_SUCCESS size=3", "no output argument `size`")]
#[case::call_out_form("0 A: PMI_Get_rank(&rank) = PMI_SUCCESS rank", "expected `name=VALUE`")]
#[case::call_out_name("0 A: PMI_Get_rank(&1)", "written `&name`")]
#[case::open_brace("0 A: PMI_Get_rank(&rank) = PMI_SUCCESS rank={1{2 size={3}", "`{` without `}`")]
#[case::late_variable("0 send    a=$x\n0 expect  cmd=appnum appnum=$x:uint", "`$x` is not bound")]
#[case::rank_outside_a_role("let $x = $rank", "in a step without a rank")]
#[case::counter_outside("repeat 2 as $i\nend\n0 send    a=$i", "`$i` is not bound")]
#[case::only_sometimes(
    "0 expect  <one of>\n pass: cmd=maxes rc=$x:int\n pass: <empty>\n0 send    a=$x",
    "`$x` is not bound"
)]
#[case::spawn_undeclared("0 send    mcmd=spawn\n   endcmd", "without `needs spawn`")]
#[case::names_undeclared("0 send    cmd=lookup_name service=a", "without `needs names`")]
#[case::child_two("needs spawn", "after the first step")]
fn checker_reports_each_mistake(#[case] text: &str, #[case] expected: &str) {
    let diagnostics = brief(text);
    assert!(diagnostics.iter().any(|line| line.contains(expected)), "{diagnostics:#?}");
}

#[rstest]
#[case::bound_in_all(
    "0 expect  <one of>\n pass: cmd=maxes rc=$x:int\n fail: cmd=maxes\n pass: <closes>\n0 send    a=$x"
)]
#[case::left_to_right("0 expect  cmd=maxes keylen_max=$a:uint vallen_max=<uint $a..>")]
#[case::junk_sent("0 send    <junk 10>\n0 send    blah\n0 send    <empty>\n0 send    rc=ok x=rc=fail")]
#[case::unknown_command("0 send    cmd=frobnicate\n0 expect  <closes>")]
#[case::unlike_any("0 expect  cmd=whatever_else rc=fail")]
#[case::every_outcome_passes(
    "0 send    cmd=get_appnum\n0 expect  <one of>\n pass: cmd=<any>\n pass: <closes>\n pass: <empty>\n pass: <silence>"
)]
fn checker_accepts_valid_scenarios(#[case] text: &str) {
    assert_eq!(brief(text), [""; 0]);
}

#[test]
fn diagnostic_names_line_and_column() {
    assert_eq!(
        brief("0 send    a=é$x\n0 send    cmd=gte"),
        ["t.pmi:5:14: `$x` is not bound", "t.pmi:6:15: warning: unknown command `gte` in PMI-1"]
    );
}

#[test]
fn library_scenario_expects_requests_from_the_library() {
    let text = "# A.\nrequires a\ntests library\n0 expect  cmd=init pmi_version=$v:uint\n0 send    cmd=response_to_init rc=ok pmi_version=$v\n0 expect  <one of>\n  pass: <closes>\n0 send    <nothing>\n";
    assert_eq!(checked(&parsed("t", text).unwrap()), []);
    let of_server = text.replace("tests library\n", "").replace("<nothing>", "<silence>");
    let of_server = of_server.replace("expect", "wait").replace("send", "expect").replace("wait", "send");
    assert_eq!(checked(&parsed("t", &of_server).unwrap()).len(), 2);
}

#[test]
fn client_scenarios_describe_the_server() {
    let head = "# A.\nrequires rfc13.put.unique\ntests client\n";
    let text = "vary order-reversed two-blanks\nserve keylen_max=32 delay=5\n\
                0 P: set PMI_FD=<calc 7 + $rank>\n0 expect  <every> cmd=get key=<word>\n0 send    <right>\n0 send    <close>\n0 P: exits nonzero|same\n0 P: prints the same\n";
    let scenario = parsed("t", &format!("{head}{text}")).unwrap();
    assert_eq!(checked(&scenario), []);
    assert_eq!(scenario.server_setup.variations.len(), 2);
    let of_proxy = mistakes(&format!("{head}proxy:0 expect  cmd=get_maxes\n"));
    assert!(of_proxy.contains("a scenario that tests a client has no proxy"), "{of_proxy}");
    assert_snapshot!(mistakes(&format!("{head}serve keylen=3 delay=x\n")));
    assert_snapshot!(mistakes(&format!(
        "{head}vary order-revrsed\nfault nosuch\n\
         0 expect  <closes>\n0 expect  <one of>\n  pass: <closes>\n0 send    <nothing>\n0 send    <every> cmd=maxes\n0 P: kill 3\n0 P: starts\n0 A: PMI_Init(&s)\n"
    )));
}

/// Compares the diagnostics of a scenario file with the snapshot `name`.
#[rstest]
#[case(
    "rejects_server_settings_in_server_scenarios",
    "# A.\nrequires rfc13.put.unique\nvary rc-absent\nserve delay=5\n0 send    <every> cmd=get_maxes\n0 expect  <right>\n0 P: exits nonzero|same\n"
)]
#[case("rejects_misspelt_keyword", "# A.\nreqires rfc13.put.unique\n")]
#[case("rejects_misspelt_need", "# A.\nneeds spwan\n")]
#[case("rejects_unknown_requirement", "# A.\nrequires rfc13.put.uniqe\n")]
#[case("rejects_file_without_a_head", "0 send    cmd=init\n")]
#[case(
    "rejects_scenario_without_positive_control",
    "# A.\nrequires rfc13.put.unique\n0 send    cmd=put\n0 expect  cmd=put_result rc=fail\n"
)]
fn checker_reports_mistakes_in_files(#[case] name: &str, #[case] text: &str) {
    assert_snapshot!(name, mistakes(text));
}

/// Compares the diagnostics of steps in an otherwise correct scenario with the snapshot `name`.
#[rstest]
#[case("rejects_unknown_fragment", "use joind")]
#[case("rejects_unbound_variable", "0 send    cmd=get kvsname=$kvsnam key=<fill $keylen-1>")]
#[case("rejects_unknown_type", "0 expect  cmd=appnum appnum=$n:unit port=<wrd>")]
#[case("rejects_unknown_role_and_group", "0 c: cmd=init\nchlid:0 P: starts")]
#[case("rejects_unknown_key_and_response", "0 expect  cmd=put_reslt rc=ok vallen_mx=<uint>")]
#[case(
    "rejects_proxy_steps_without_a_proxy",
    "proxy:0 expect  cmd=get\nproxy:0 A: PMI_Barrier()\nproxy:4 send    <right>"
)]
#[case(
    "rejects_impossible_upstream_steps",
    "proxy:0 send    <to first> cmd=get_result\nproxy:0 send    <nothing>\nproxy:0 send    <to 1> <close>"
)]
#[case("rejects_missing_rank_and_group", "0,4 send    cmd=abort\nchild:0 P: starts")]
#[case("rejects_misspelt_verdict", "0 expect  <one of>\n     pas: <closes>\n     fail: <silence>")]
#[case("misspelt_command_is_only_a_warning", "0 send    cmd=gte kvsname=$kvs key=a")]
#[case("rejects_matcher_in_a_sent_message", "0 send    cmd=get kvsname=$kvs key=<word>")]
fn checker_reports_mistakes_in_steps(#[case] name: &str, #[case] text: &str) {
    assert_snapshot!(name, steps(text));
}

#[test]
fn checks_fragments_where_they_are_used() {
    let lone = fragment("demanding").unwrap();
    assert!(lone.is_fragment());
    assert_eq!(checked(&lone), []);
    assert_snapshot!(steps("use demanding"));
    let ping = fragment("ping").unwrap();
    assert_eq!(checked(&ping)[0].message, "fragment `pong`: fragment `ping` uses itself");
}

#[test]
fn checks_arguments_of_fragments() {
    assert_eq!(checked(&fragment("spawn").unwrap()), []);
    let text = "# A.\nrequires a\nneeds spawn\nuse spawn(program=$agent)\nuse spawn(n=2, program=<fill 3>)\n";
    assert_eq!(checked(&parsed("t", text).unwrap()), []);
    assert_snapshot!(steps("use spawn\nuse spawn(program=a, program=b, prog=$nosuch)\n0 send    a=$n"));
    assert_snapshot!(steps("use spawn(program)\nuse spawn(n=1"));
}

#[test]
fn argument_keeps_only_inner_spaces() {
    let formatted =
        |text: &str| print(&parsed("t", &format!("# A.\nrequires a\n\nuse spawn({text})\n")).unwrap());
    let expected = formatted("program=a (b), n=<sp>1");
    assert_eq!(formatted("program = a (b) ,n= <sp>1 "), expected);
    assert!(expected.ends_with("use spawn(program=a (b), n=<sp>1)\n"), "{expected}");
}

#[test]
fn each_row_becomes_a_scenario() {
    let text = "# A.\nrequires a\nrow blank   value=a<sp>b  other=\nrow plain value=b other=<fill 3>\n\nuse joined\n0 send    cmd=put value=$value\n";
    let table = parsed("kvs/t", text).unwrap();
    assert_eq!(checked(&table), []);
    let table = Arc::new(table);
    let names: Vec<String> = table.expand_rows().iter().map(|s| s.name.clone()).collect();
    assert_eq!(names, ["kvs/t[blank]", "kvs/t[plain]"]);
    assert_snapshot!(print(&table) + "----\n" + &print(&table.expand_rows()[0]));
    assert_snapshot!(mistakes(
        "# A.\nrequires a\ntakes x\nrow a x=1\nrow a y=1\nrow c x=$z:word\nuse joined\n"
    ));
    assert_snapshot!(mistakes("# A.\nrow B x=1\nrow a x\n"));
}

#[test]
fn lists_requests_that_the_scenario_answers() {
    let text = "# A.\nneeds upstream\nproxy:0 expect  cmd=get key=a\nrepeat 2\n  proxy:0 expect  <one of>\n    pass: mcmd=spawn\n    \
                note: <silence>\nend\n0 expect  cmd=lookup_result\n";
    assert_eq!(parsed("t", text).unwrap().answers(), ["get", "spawn"]);
}

#[test]
fn proxy_may_forward_one_of_several_requests() {
    let either = "# It holds.\nrequires rfc13.get.value\nneeds upstream\n\nuse joined\nproxy:0  expect  <one of>\n            \
                  pass: cmd=get\n            pass: mcmd=spawn\n            pass: <silence>\n";
    assert_eq!(mistakes(either), "");
}

#[rstest]
#[case::unused("0 expect  cmd=my_kvsname rc=ok kvsname=$name:word", true)]
#[case::compared("0 expect  cmd=my_kvsname rc=ok kvsname=$name:word\n0 P: has PMI_NAME=$name", false)]
#[case::same_for_all("*  expect  cmd=my_kvsname rc=ok kvsname=$name:word", false)]
#[case::outcome(
    "0 expect  <one of>\n     pass: cmd=my_kvsname rc=ok kvsname=$name:word\n     pass: <closes>",
    true
)]
fn warns_about_an_unused_capture(#[case] expects: &str, #[case] warns: bool) {
    let text = format!(
        "# A.\nrequires rfc13.get.value\nranks 2\n*  send    cmd=init\n*  expect  cmd=response_to_init rc=ok\n*  send    cmd=get_my_kvsname\n{expects}\n"
    );
    let found: Vec<_> = checked(&parsed("t", &text).unwrap()).into_iter().map(|d| d.message).collect();
    let expected = warns.then(|| "`$name` is never compared or sent".to_owned());
    assert_eq!(found, Vec::from_iter(expected));
}

#[test]
fn parser_limits_nesting_depth_and_size() {
    let deep = format!("{}0 send    a=1\n{}", "repeat 2\n".repeat(100_000), "end\n".repeat(100_000));
    assert!(parsed("t", &deep).is_err());
    for expr in ["(".repeat(100_000), "1+".repeat(100_000), format!("1{}", "*1".repeat(100_000))] {
        assert!(parsed("t", &format!("0 send    a=<calc {expr}>")).is_err());
    }
}

#[test]
fn parser_never_panics() {
    // Take lines that use most of the language, try every prefix of each line, and replace characters at every position.
    let blocks: String = guide().into_iter().map(|(_, block)| block).collect();
    let lines: BTreeSet<&str> = blocks.lines().filter(|line| line.is_ascii()).collect();
    let judge = |text: &str| match parsed("t", text) {
        Ok(scenario) => {
            checked(&scenario).iter().for_each(|d| drop(d.render(false)));
            let once = print(&scenario);
            let again = parsed("t", &once).unwrap_or_else(|d| panic!("{text}\n----\n{once}\n{}", d[0]));
            assert_eq!(scenario, again, "{text}");
        }
        Err(diagnostics) => diagnostics.iter().for_each(|d| drop(d.render(false))),
    };
    let odd = ["$", "<", ">", "\"", "é", ":", "[", "]", " ", "=", "#", "(", "\n", "\t", ",", "\n  "];
    for line in lines {
        for at in 0..=line.len() {
            judge(&line[..at]);
            // To save time, only two replacements are tried at each position. The choice depends on the position and the line length, so
            // every replacement is tried somewhere.
            for with in [odd[at % odd.len()], odd[(at * 7 + line.len()) % odd.len()]] {
                judge(&format!("{}{with}{}", &line[..at], &line[(at + 1).min(line.len())..]));
            }
        }
    }
    // Combine lines of different kinds with wrong indentation.
    let all: Vec<&str> = blocks.lines().collect();
    for (step, indent) in [(7, ""), (11, "   "), (13, " ")] {
        for start in 0..all.len() {
            let pick = |n: usize| all[(start + n * step) % all.len()];
            judge(&format!("{}\n{indent}{}\n  {}\n{}", pick(0), pick(1), pick(2), pick(3)));
        }
    }
}

#[test]
fn span_of_a_mistake_covers_multibyte_characters() {
    let text = "ranks 1\n\n0  A: PMI_Init(\u{694}x) = PMI_SUCCESS\n";
    let mistakes = parsed("kvs/s", text).unwrap_err();
    let marked: Vec<&str> = mistakes.iter().map(|m| &text[m.span.start..m.span.end]).collect();
    assert_eq!(marked, ["\u{694}"]);
}

/// Returns the files of the suite, including fragments, with their names.
fn suite() -> Vec<(String, Arc<SourceFile>)> {
    let file = |(path, bytes): &(&Path, &[u8])| {
        let name = path.with_extension("").display().to_string();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        path.extension()
            .is_some_and(|e| e == suite::EXTENSION)
            .then(|| (name, Arc::new(SourceFile { path: path.display().to_string(), text })))
    };
    suite::embedded_files().iter().filter_map(file).collect()
}

/// A scenario that is shared by PMI-1 and PMI-2 must not cite RFC 13 as its reason in PMI-2.
#[test]
fn shared_pmi2_scenarios_do_not_mention_rfc13() {
    let whole = Suite::embedded(Behaviours::default()).expect("the embedded suite is valid");
    let is_shared = |s: &&Arc<Scenario>| s.name.starts_with("pmi2/") && !s.source.path.contains("pmi2/");
    let summaries: Vec<String> = whole.scenarios.iter().filter(is_shared).map(|s| s.summary()).collect();
    assert!(summaries.len() > 100);
    for summary in summaries {
        assert!(!summary.contains("RFC 13") && summary.len() > 10, "{summary}");
    }
}

/// Loading a part of the suite reads only the heads of unwanted files. The result must equal the complete suite after filtering.
#[test]
fn partially_loaded_suite_equals_the_filtered_suite() {
    let names = |suite: &Suite| suite.scenarios.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    let part = |wanted: &dyn Fn(ImplementationKind, &str) -> bool| {
        Suite::embedded_part(Behaviours::default(), wanted).expect("the embedded suite is valid")
    };
    let whole = Suite::embedded(Behaviours::default()).expect("the embedded suite is valid");
    for kind in [ImplementationKind::Server, ImplementationKind::Client, ImplementationKind::Library] {
        let of_kind: Vec<String> = whole.testing(kind).map(|s| s.name.clone()).collect();
        assert_eq!(names(&part(&|tests, _| tests == kind)), of_kind);
    }
    let all = names(&whole);
    // Take every seventh scenario, so that only some rows of a table are selected.
    let some: BTreeSet<&str> = all.iter().step_by(7).map(String::as_str).collect();
    let in_order: Vec<&String> = all.iter().filter(|name| some.contains(name.as_str())).collect();
    assert_eq!(names(&part(&|_, name| some.contains(name))).iter().collect::<Vec<_>>(), in_order);
    let none = part(&|_, _| false);
    assert!(none.scenarios.is_empty() && all.iter().all(|name| none.has(|other| other == name)));
    let tables = all.iter().filter_map(|name| name.split_once('[')).map(|(table, _)| table);
    assert!(tables.into_iter().all(|table| !none.has(|other| other == table)));
}

#[test]
fn suite_files_are_formatted() {
    for (name, source) in suite() {
        let scenario = parse(Arc::clone(&source), &name).unwrap();
        assert_eq!(print(&scenario), source.text, "{name}");
    }
}

fn suite_of(files: &[(&str, &str)]) -> Result<Suite, suite::SuiteError> {
    let file = |(name, text): &(&str, &str)| {
        ((*name).to_owned(), Arc::new(SourceFile { path: format!("{name}.pmi"), text: (*text).to_owned() }))
    };
    Suite::of_files(files.iter().map(file).collect(), Behaviours::default())
}

/// Returns the steps of the scenario `name`, spelled in the scenario's dialect.
fn spelled_as(name: &str, steps: &str) -> String {
    let text = format!("# A.\nrequires get.value\ndialect pmi-1.1 pmi-2\n\n{steps}");
    let suite = suite_of(&[("a", &text)]).unwrap_or_else(|error| panic!("{error}"));
    let scenario =
        suite.scenarios.iter().find(|scenario| scenario.name == name).expect("the scenario is played");
    print(scenario).rsplit_once("\n\n").expect("there are steps").1.to_owned()
}

#[rstest]
#[case::put(
    "0  send    put key=k value=two words\n0  expect  ok\n",
    "0  send    cmd=put kvsname=$kvs key=k value=two words\n0  expect  cmd=put_result rc=ok\n",
    "0  send    cmd=kvs-put key=k value=two<sp>words\n0  expect  cmd=kvs-put-response rc=ok\n"
)]
#[case::miss(
    "0  send    barrier\n0  expect  ok\n0  send    get key=k\n0  expect  miss\n",
    "0  send    cmd=barrier_in\n0  expect  cmd=barrier_out rc=ok\n\
     0  send    cmd=get kvsname=$kvs key=k\n0  expect  cmd=get_result rc=fail\n",
    "0  send    cmd=kvs-fence\n0  expect  cmd=kvs-fence-response rc=ok\n0  send    cmd=kvs-get key=k\n0  expect  <one of>\n           pass: cmd=kvs-get-response rc=ok value=<absent>\n           \
     pass: cmd=kvs-get-response rc=fail\n"
)]
#[case::success_has_the_value(
    "0  send    get key=k\n0  expect  ok\n",
    "0  send    cmd=get kvsname=$kvs key=k\n0  expect  cmd=get_result rc=ok\n",
    "0  send    cmd=kvs-get key=k\n0  expect  cmd=kvs-get-response rc=ok value=<any>\n"
)]
#[case::port(
    "0  send    lookup service=s\n0  expect  ok port=p\n",
    "0  send    cmd=lookup_name service=s\n0  expect  cmd=lookup_result rc=ok port=p\n",
    "0  send    cmd=name-lookup infokeycount=0 name=s\n0  expect  <one of>\n           \
     pass: cmd=name-lookup-response rc=ok value=p\n           pass: cmd=name-lookup-response rc=ok port=p\n"
)]
#[case::attribute(
    "0  send    get-job-attribute key=PMI_process_mapping\n0  expect  ok value=<mapping>\n",
    "0  send    cmd=get kvsname=$kvs key=PMI_process_mapping\n0  expect  cmd=get_result rc=ok value=<mapping>\n",
    "0  send    cmd=info-getjobattr key=PMI_process_mapping\n0  expect  cmd=info-getjobattr-response rc=ok value=<mapping>\n"
)]
#[case::other_request(
    "0  send    barrier\n0  send    put key=k value=v\n0  expect  barrier answer\n",
    "0  send    cmd=barrier_in\n0  send    cmd=put kvsname=$kvs key=k value=v\n0  expect  cmd=barrier_out\n",
    "0  send    cmd=kvs-fence\n0  send    cmd=kvs-put key=k value=v\n0  expect  cmd=kvs-fence-response\n"
)]
#[case::spawn(
    "0  send    spawn nprocs=2 arg0=a arg1=two<sp>words\n           preput_key_0=k preput_val_0=v\n0  expect  ok\n",
    "0  send    mcmd=spawn\n           nprocs=2\n           execname=$agent\n           totspawns=1\n           spawnssofar=1\n           \
     arg<calc $first_argument>=a\n           arg<calc $first_argument+1>=two<sp>words\n           argcnt=2\n           preput_num=1\n           \
     preput_key_0=k\n           preput_val_0=v\n           info_num=0\n           endcmd\n0  expect  cmd=spawn_result rc=ok\n",
    "0  send    cmd=spawn ncmds=1 preputcount=1 ppkey0=k ppval0=v subcmd=$agent maxprocs=2 argc=2 argv0=a argv1=two<sp>words \
     infokeycount=0\n0  expect  cmd=spawn-response rc=ok\n"
)]
#[case::spawn_of_two_programs(
    "0  send    spawn nprocs=1 argcnt=7\n           nprocs=2 execname=/x info_key_0=k info_val_0=v\n",
    "0  send    mcmd=spawn\n           nprocs=1\n           execname=$agent\n           totspawns=2\n           spawnssofar=1\n           argcnt=7\n           \
     preput_num=0\n           info_num=0\n           endcmd\n           \
     mcmd=spawn\n           nprocs=2\n           execname=/x\n           totspawns=2\n           spawnssofar=2\n           argcnt=0\n           \
     preput_num=0\n           info_num=1\n           info_key_0=k\n           info_val_0=v\n           endcmd\n",
    "0  send    cmd=spawn ncmds=2 preputcount=0 subcmd=$agent maxprocs=1 argc=7 infokeycount=0 \
     subcmd=/x maxprocs=2 argc=0 infokeycount=1 infokey0=k infoval0=v\n"
)]
fn translates_operations_into_each_dialect(#[case] steps: &str, #[case] lines: &str, #[case] frames: &str) {
    let bind = "let $kvs = a\n";
    assert_eq!(spelled_as("a", &(bind.to_owned() + steps)), bind.to_owned() + lines);
    assert_eq!(spelled_as("pmi2/a", &(bind.to_owned() + steps)), bind.to_owned() + frames);
}

#[test]
fn rules_become_requirements_of_the_dialect() {
    let text = "# A.\nrequires put.accepted rfc13.abnf.s-put get.value\ndialect pmi-1.1 pmi-2\n\nuse joined\n\
                0  send    put key=k value=v\n0  expect[get.value] <one of>\n      pass: ok\n      note[rfc13.value.empty]: fail\n";
    let suite = suite_of(&[("a", text)]).unwrap_or_else(|error| panic!("{error}"));
    let required: Vec<Vec<&str>> = suite
        .scenarios
        .iter()
        .map(|scenario| scenario.requires.iter().map(|id| id.value.as_str()).collect())
        .collect();
    let in_pmi1 = vec!["rfc13.abnf.c-put", "rfc13.abnf.s-put", "rfc13.get.value"];
    assert_eq!(required, [vec!["pmi2.common.put", "pmi2.common.get.value"], in_pmi1]);
    let outcomes = |scenario: &Scenario| {
        visit::steps(&scenario.body).map(|step| step.action.outcomes().count()).last().unwrap_or(0)
    };
    assert_eq!(suite.scenarios.iter().map(|s| outcomes(s)).collect::<Vec<_>>(), [1, 2]);
}

#[rstest]
#[case::operation("0  send    maxes\n0  expect  ok\n", "PMI-2 has no operation `maxes`")]
#[case::field(
    "0  send    put kvsname=k key=k value=v\n0  expect  ok\n",
    "in PMI-2, `put` has no field `kvsname`"
)]
#[case::field_of_spawn("0  send    spawn nproc=2\n0  expect  ok\n", "in PMI-1, `spawn` has no field `nproc`")]
#[case::rule(
    "0  send    barrier\n0  expect[rfc13.value.empty] ok\n",
    "PMI-2 has no requirement for the rule `rfc13.value.empty`"
)]
#[case::gap("0  send    spawn arg0=a arg2=b\n0  expect  ok\n", "`arg2` without `arg1`")]
#[case::gap_in_pairs(
    "0  send    spawn preput_key_1=a preput_val_1=b\n0  expect  ok\n",
    "`preput_key_1` without `preput_key_0`"
)]
#[case::response_without_request("0  expect  ok\n", "a response without a request")]
#[case::no_response("0  send    abort\n0  expect  ok\n", "`abort` has no response")]
fn rejects_steps_that_a_dialect_cannot_express(#[case] steps: &str, #[case] message: &str) {
    let text = format!("# A.\nrequires get.value\ndialect pmi-1.1 pmi-2\n\nuse joined\n{steps}");
    let error = suite_of(&[("a", &text)]).expect_err("the steps cannot be spelled").to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn row_values_set_headings_outcomes_and_citations() {
    let text = "# A.\nrequires $cites\n\n# The first,\n# in two lines.\nrow a cites={rfc13.get.value rfc13.abnf.s-get} how=rfc13.get.value\n\
                row b cites=rfc13.error.rc-nonzero noted={cmd=get_result rc=fail}\n\nuse joined\n\
                0  send    cmd=get kvsname=$kvs key=k\n0  expect[$how] <one of>\n      pass: cmd=get_result rc=ok\n      \
                note[$how]: $noted\n";
    let suite = suite_of(&[("a", text)]).unwrap_or_else(|error| panic!("{error}"));
    let shown = |name: &str| {
        let scenario =
            suite.scenarios.iter().find(|scenario| scenario.name == name).expect("the scenario is played");
        let step = visit::steps(&scenario.body).last().expect("there are steps");
        (
            scenario.summary(),
            scenario.requires.len(),
            step.action.outcomes().count(),
            step.cites.clone().map(|id| id.value),
        )
    };
    let cited = Some("rfc13.get.value".to_owned());
    assert_eq!(shown("a[a]"), ("The first, in two lines.".to_owned(), 2, 1, cited));
    assert_eq!(shown("a[b]"), ("A.".to_owned(), 1, 2, None));
    let both = text
        .replace("requires $cites", "requires $cites\ndialect pmi-1.1 pmi-2")
        .replace("cmd=get kvsname=$kvs key=k", "get key=k");
    let both = both
        .replace("rfc13.get.value rfc13.abnf.s-get", "get.value rfc13.abnf.s-get")
        .replace("how=rfc13.get.value", "how=get.miss");
    let both =
        both.replace("cmd=get_result rc=ok", "ok").replace("cites=rfc13.error.rc-nonzero", "cites=get.miss");
    let suite = suite_of(&[("a", &both)]).unwrap_or_else(|error| panic!("{error}"));
    let scenario =
        suite.scenarios.iter().find(|scenario| scenario.name == "pmi2/a[a]").expect("the scenario is played");
    let ids: Vec<&str> = scenario.requires.iter().map(|id| id.value.as_str()).collect();
    let cited = visit::steps(&scenario.body).last().and_then(|step| step.cites.clone()).map(|id| id.value);
    assert_eq!((ids, cited.as_deref()), (vec!["pmi2.common.get.value"], Some("pmi2.common.get.miss")));
    let scenario =
        suite.scenarios.iter().find(|scenario| scenario.name == "a[b]").expect("the scenario is played");
    let outcomes = visit::steps(&scenario.body).last().expect("there are steps").action.outcomes();
    let refused = outcomes.last().and_then(|outcome| outcome.lines()[0].pieces.last().cloned());
    assert_eq!(refused, Some(Piece::Typed(ValueType::RcFail)));
    let printed = print(&parsed("a", text).expect("the text is valid"));
    assert!(printed.contains("# in two lines.\nrow a "), "{printed}");
    assert_eq!(print(&parsed("a", &printed).expect("the text is valid")), printed);
}

#[test]
fn row_or_dialect_may_have_its_own_values_and_steps() {
    let text = "# A.\nrequires put.accepted get.value\ndialect pmi-1.1 pmi-2\nin pmi-1.1  id=rfc13.abnf.s-put name=one\n\
                in pmi-2    name=two\nrow a\nrow b  dialect=pmi-2\n\nuse joined\nonly a\n  0  send    put key=$name value=v\n\
                \x20 0  expect[$id] ok\nend\nrepeat 2\n  only b pmi-2\n    0  send    get key=$name\n    0  expect[get.value] miss\n  end\n\
                end\nonly pmi-1.1\n  0  P: exit 0\nend\n";
    let suite = suite_of(&[("a", text)]).unwrap_or_else(|error| panic!("{error}"));
    let shown = |name: &str| {
        let scenario =
            suite.scenarios.iter().find(|scenario| scenario.name == name).expect("the scenario is played");
        print(scenario).split_once("use ").map(|(_, steps)| steps.replace("  ", "")).unwrap_or_default()
    };
    let names: Vec<&str> = suite.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names, ["pmi2/a[a]", "pmi2/a[b]", "a[a]"]);
    let put = "0sendcmd=put kvsname=$kvs key=one value=v\n0expect[rfc13.abnf.s-put] cmd=put_result rc=ok\n";
    assert_eq!(shown("a[a]"), format!("joined\n{put}repeat 2\nend\n0P: exit 0\n"));
    let put = "0sendcmd=kvs-put key=two value=v\n0expectcmd=kvs-put-response rc=ok\n";
    let get = "0sendcmd=kvs-get key=two\n0expect[pmi2.common.get.value] <one of>\n";
    for (name, put) in [("pmi2/a[a]", put), ("pmi2/a[b]", "")] {
        let steps = shown(name);
        assert!(steps.starts_with(&format!("pmi2-joined\n{put}repeat 2\n{get}")), "{steps}");
        assert!(!steps.contains("only") && !steps.contains("exit"), "{steps}");
    }
    let printed = print(&parsed("a", text).expect("the text is valid"));
    assert_eq!(print(&parsed("a", &printed).expect("the text is valid")), printed);
    assert_eq!(
        parsed("a", &printed).expect("the text is valid"),
        parsed("a", text).expect("the text is valid")
    );
}

#[rstest]
#[case::unknown("only c\nend\n", "`c` is neither a row nor a dialect of this scenario")]
#[case::other_dialect("only pmi-2\nend\n", "`pmi-2` is neither a row nor a dialect of this scenario")]
#[case::nameless("only\nend\n", "`only` needs the name of a row or dialect")]
#[case::open("only a\n", "`only` without `end`")]
#[case::unknown_dialect("in pmi-3 x=1\n", "unknown dialect `pmi-3`")]
fn rejects_blocks_for_unknown_rows_and_dialects(#[case] line: &str, #[case] message: &str) {
    let text = format!("# A.\nrequires rfc13.get.value\nrow a\n{line}");
    let error = suite_of(&[("a", &text)]).expect_err("the text is invalid").to_string();
    assert!(error.contains(message), "{error}");
}

#[test]
fn each_request_is_combined_with_each_row() {
    let text = "# A.\nrequires de-facto.client.exits\ntests client\ndialect pmi-1.1 pmi-2\neach request but finalize\n\
                row no-rc  reply=cmd=$response\nrow empty  reply=\n\n\
                *  expect  cmd=$request\n*  send    <bytes> $reply\n*  P: exits any\n";
    let suite = suite_of(&[("a", text)]).unwrap_or_else(|error| panic!("{error}"));
    let named = |name: &str| suite.scenarios.iter().find(|scenario| scenario.name == name);
    for (name, request) in
        [("a[barrier.empty]", "cmd=barrier_in"), ("pmi2/a[barrier.no-rc]", "cmd=kvs-fence")]
    {
        let scenario = named(name).unwrap_or_else(|| panic!("{name} is not played"));
        assert!(print(scenario).contains(&format!("*  expect  {request}\n")), "{}", print(scenario));
    }
    for absent in ["a[finalize.empty]", "a[abort.empty]", "a[spawn.empty]", "pmi2/a[authenticate.empty]"] {
        assert!(named(absent).is_none(), "{absent}");
    }
    assert_eq!(suite.diagnose(), []);
}

#[test]
fn rows_are_combined_with_matching_table_rows() {
    let table = "# Two functions.\nrow appnum call={PMI_Get_appnum(&appnum)} asks=get_appnum response=appnum values=appnum=3\n\
                 row barrier call={PMI_Barrier() = PMI_SUCCESS} asks=barrier_in response=barrier_out ready=library-ready\n\n\
                 let $errors = rfc13.api.return-codes rfc13.error.log\nlet $ready =\n";
    let text = "# A.\nrequires $errors\ntests library\neach two\nrow by-rc answer={cmd=$response rc=-1}\n\
                row values answer={cmd=$response rc=-1 $values}\n\nuse $ready\n0  expect  cmd=$asks\n0  send    $answer\n\
                0  A: $call\n";
    let suite = suite_of(&[("fragments/two", table), ("a", text)]).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<_> = suite.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names, ["a[appnum.by-rc]", "a[appnum.values]", "a[barrier.by-rc]"]);
    let printed: Vec<String> = suite.scenarios.iter().map(|scenario| print(scenario)).collect();
    let head = "# A.\nrequires rfc13.api.return-codes rfc13.error.log\ntests library\n\n";
    let appnum =
        "0  expect  cmd=get_appnum\n0  send    cmd=appnum rc=-1 appnum=3\n0  A: PMI_Get_appnum(&appnum)\n";
    assert_eq!(printed[1], format!("{head}{appnum}"));
    let barrier = "use library-ready\n0  expect  cmd=barrier_in\n0  send    cmd=barrier_out rc=-1\n0  A: PMI_Barrier() = PMI_SUCCESS\n";
    assert_eq!(printed[2], format!("{head}{barrier}"));
    let of_no_table = text.replace("each two", "each three");
    let error = suite_of(&[("a", &of_no_table)]).expect_err("there is no such table").to_string();
    assert!(error.contains("there is no table `three`"), "{error}");
}

/// Returns the operations of a dialect that a known function of the C API requests.
fn operations(dialect: Dialect, is_known: impl Fn(&str) -> bool) -> BTreeSet<&'static str> {
    let exchanges = protocol::documented_exchanges(dialect.framing()).iter();
    let exchanges =
        exchanges.filter(|e| e.response.is_some() && e.functions.iter().any(|name| is_known(name)));
    exchanges.map(|exchange| exchange.operation).collect()
}

#[rstest]
#[case(Dialect::Pmi1, "library/replies/fails")]
#[case(Dialect::Pmi2, "pmi2/library/replies/fails")]
#[case(Dialect::Pmi1, "client/replies/refused")]
#[case(Dialect::Pmi2, "pmi2/client/refused/at")]
fn suite_covers_refusal_of_every_request(#[case] dialect: Dialect, #[case] file: &str) {
    let suite = Suite::embedded(Behaviours::default()).unwrap_or_else(|error| panic!("{error}"));
    let refused: BTreeSet<&str> = suite
        .scenarios
        .iter()
        .filter_map(|s| s.name.strip_prefix(file)?.split(['[', '.', ']']).nth(1))
        .collect();
    let is_library = file.contains("library");
    let all = operations(dialect, |name| !is_library || signature::function(name).is_some());
    // A library may cache puts, or lack PMIX_Ring. A program may ignore the answer to its last request.
    let exceptions = ["put", "ring", "finalize"];
    let missing: Vec<_> =
        all.iter().filter(|name| !refused.contains(*name) && !exceptions.contains(name)).collect();
    assert_eq!(missing, Vec::<&&str>::new());
}

#[rstest]
#[case(Dialect::Pmi1)]
#[case(Dialect::Pmi2)]
fn suite_requests_every_server_operation(#[case] dialect: Dialect) {
    let suite = Suite::embedded(Behaviours::default()).unwrap_or_else(|error| panic!("{error}"));
    let of_dialect = suite.testing(ImplementationKind::Server).filter(|scenario| scenario.dialect == dialect);
    let bodies: Vec<String> = of_dialect
        .flat_map(|s| {
            suite
                .steps(&s.body)
                .filter(|step| step.role == Role::Client)
                .flat_map(|step| step.action.lines())
                .map(Template::to_string)
                .collect::<Vec<_>>()
        })
        .collect();
    let asks =
        |request: &str| bodies.iter().any(|line| line.split(['=', ' ', ';']).any(|word| word == request));
    let all = protocol::documented_exchanges(dialect.framing())
        .iter()
        .filter(|exchange| exchange.omission().is_none());
    // No known server supports the first two operations, and only Slurm supports the ring.
    let exceptions = ["job-connect", "job-disconnect", "ring"];
    let missing: Vec<_> =
        all.map(|e| e.request).filter(|request| !asks(request) && !exceptions.contains(request)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn rejects_duplicate_scenario_names() {
    let shared = "# A.\nrequires get.value\ndialect pmi-1.1 pmi-2\n\nuse joined\n";
    let other = "# A.\nrequires pmi2.common.get.value\ndialect pmi-2\n\nuse joined\n";
    let error = suite_of(&[("a", shared), ("pmi2/a", other)]).expect_err("both are pmi2/a").to_string();
    assert!(error.contains("`pmi2/a` is also a scenario of"), "{error}");
}

/// Byte strings that could be parsed as syntax.
const SYNTAX: [&[u8]; 26] = [
    b"cmd=get",
    b"rc=ok",
    b" rc=fail",
    b" ",
    b"  ",
    b"<",
    b"$",
    b"$kvs",
    b"#",
    b" #",
    b"close",
    b"partial ",
    b"to 1 ",
    b"J: exit",
    b"0 send    a",
    b"\"",
    b"\t",
    b"\n",
    b"\xff",
    b"\xc3\xa9",
    b"=",
    b":uint",
    b"one of",
    b"one  of",
    b"\0",
    b"x",
];

/// Returns a body that contains this text wherever the language allows text.
fn body_with(text: &[u8]) -> Vec<Statement> {
    let value = || Template::value(text);
    let name = |name: &str| name.to_owned().into();
    let step = |role, action| -> Statement {
        let ranges = vec![(0, 2), (5, 5), (4, 4)];
        let target = StepTarget::Ranks { group: 0, set: RankSet::Ranges(ranges) };
        let cites = Some("rfc13.put.unique".to_owned().into());
        Statement::Step(Step { target, role, cites, action, span: Span::default() })
    };
    let number = || Expr::Number(3);
    let pieces = [
        Piece::Var("kvs".into()),
        Piece::Capture("x".into(), ValueType::Word),
        Piece::Calc(number()),
        Piece::Char(number()),
        Piece::Fill(number()),
        Piece::Junk(number()),
        Piece::Cut,
        Piece::Typed(ValueType::Uint(None, Some(number()))),
        Piece::Typed(ValueType::Any),
        Piece::Typed(ValueType::Empty),
        Piece::Typed(ValueType::Absent),
    ];
    let mixed = |line: Template| pieces.iter().fold(line, |line, piece| line.with(piece.clone()).bytes(text));
    let lines = vec![Template::line(text), mixed(Template::line(text))];
    let message = StepAction::Message { mode: WriteMode::default(), lines };
    let alternative =
        Alternative { grade: Grade::Fail, cites: None, action: message.clone(), span: Span::default() };
    let call = Call {
        function: Some(name("PMI_F")),
        args: vec![Arg::Text(value()), Arg::Number(number()), Arg::Out(name("v"), Some(number()))],
        result: Some(name("any")),
        outs: vec![(name("v"), value())],
    };
    vec![
        Statement::Let { name: name("n"), value: value() },
        Statement::Use { name: name("joined"), with: vec![(name("n"), value())] },
        Statement::Repeat {
            count: number(),
            var: Some(name("i")),
            body: vec![step(Role::Client, message)],
            span: Span::default(),
            end: Span::default(),
        },
        step(Role::Process, StepAction::Process(ProcessAction::Env(name("A"), value()))),
        step(Role::Process, StepAction::Process(ProcessAction::Args(value()))),
        step(Role::Server, StepAction::OneOf(vec![alternative; 2])),
        step(Role::Api, StepAction::Call(call)),
    ]
}

#[test]
fn values_that_contain_syntax_round_trip() {
    for text in SYNTAX.iter().flat_map(|first| SYNTAX.map(|second| [first, second].concat())) {
        let mut scenario = Scenario::new("t", "It holds.", &["rfc13.put.unique"]);
        scenario.body = body_with(&text);
        let values = vec![("n".to_owned().into(), Template::value(&text))];
        scenario.rows.push(TableRow { name: "a".to_owned().into(), values });
        let default = Some(Template::value(&text));
        scenario.parameters = vec![Parameter { name: "n".to_owned().into(), default }];
        let printed = print(&scenario);
        let again = parsed("t", &printed).unwrap_or_else(|d| panic!("{printed}\n{}", d[0].render(false)));
        assert_eq!(scenario, again, "{printed}");
        assert_eq!(print(&again), printed);
    }
}

#[test]
fn printed_expressions_keep_their_grouping() {
    const OPERATORS: [BinOp; 4] = [BinOp::Add, BinOp::Sub, BinOp::Mul, BinOp::Rem];
    let n = || Box::new(Expr::Var("n".to_owned().into()));
    let binary = |left, operator, right| Box::new(Expr::Binary(left, operator, right));
    for (one, other) in OPERATORS.iter().flat_map(|one| OPERATORS.map(|other| (*one, other))) {
        for count in [binary(binary(n(), one, n()), other, n()), binary(n(), one, binary(n(), other, n()))] {
            let mut scenario = Scenario::new("t", "It holds.", &["rfc13.put.unique"]);
            let (span, end) = (Span::default(), Span::default());
            scenario.body = vec![Statement::Repeat { count: *count, var: None, body: Vec::new(), span, end }];
            assert_eq!(parsed("t", &print(&scenario)).as_ref(), Ok(&scenario));
        }
    }
}

#[test]
fn visitor_visits_and_changes_every_template() {
    struct Count(usize, usize);
    impl<'a> visit::Visitor<'a> for Count {
        fn template(&mut self, text: &'a Template) {
            self.0 += 1;
            visit::template(self, text);
        }
        fn expr(&mut self, _: &'a Expr) {
            self.1 += 1;
        }
    }
    struct Clear;
    impl<'a> visit::VisitorMut<'a> for Clear {
        fn template(&mut self, text: &'a mut Template) {
            text.pieces = vec![Piece::Cut];
        }
    }
    let text = "# A.\nlet $a = <calc 1>\nrepeat 2\n0 send    a\n  b=<fill 3>\n0 expect  <one of>\n  pass: x=$y:uint\n  fail: z=<uint 1..2>\nend\n\
                0 P: has A=1\n0 A: F(\"a\", 3, &b[4]) = any b=c\n";
    let mut scenario = parsed("t", text).unwrap();
    let mut count = Count(0, 0);
    visit::body(&mut count, &scenario.body);
    assert_eq!((count.0, count.1), (8, 7));
    visit::body_mut(&mut Clear, &mut scenario.body);
    assert_snapshot!(print(&scenario));
}

#[test]
fn guide_lists_every_fragment() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/README.md");
    // The packaged crate does not contain the guide.
    let Ok(text) = std::fs::read_to_string(path) else { return };
    for (name, _) in suite() {
        if let Some(name) = name.strip_prefix("fragments/") {
            assert!(text.contains(&format!("`{name}`")) || text.contains(&format!("`{name}(")), "{name}");
        }
    }
}

/// Returns the bytes that a scenario of a dialect writes for these steps.
fn written(dialect: &str, steps: &str) -> Vec<String> {
    let scenario = parsed("t", &format!("# A.\ndialect {dialect}\nlet $v = a;b\n{steps}")).unwrap();
    let mut scope = Scope::of(&scenario);
    scope.set("v", b"a;b".to_vec());
    let writes = steps_of(&scenario.body).flat_map(|step| match &step.action {
        StepAction::Message { mode, lines } => scope.message(*mode, lines).unwrap(),
        _ => Vec::new(),
    });
    writes.map(|bytes| bytes.escape_ascii().to_string()).collect()
}

#[rstest]
#[case("0 send    cmd=kvs-put key=k   value=$v", &["    29cmd=kvs-put;key=k;value=a;;b;"])]
#[case("0 send    cmd=x v=a<sp>b<0x0a>", &["    13cmd=x;v=a b\\n;"])]
#[case("0 send    cmd=init pmi_version=2 pmi_subversion=0", &["cmd=init pmi_version=2 pmi_subversion=0\\n"])]
#[case("0 send    cmd=fi<|>nalize x=1<|>", &["    17cmd=fi", "nalize;x=1", ";"])]
#[case("0 send    <line> cmd=get_maxes", &["cmd=get_maxes\\n"])]
#[case("0 send    <body> cmd=a b;;", &["     9cmd=a b;;"])]
#[case("0 send    <bytes>   -1x", &["-1x"])]
#[case("0 send    <partial> cmd=a\n0 send    <bytes> ;", &["     6cmd=a", ";"])]
#[case("0 send    cmd=a\n     cmd=b", &["     6cmd=a;     6cmd=b;"])]
fn pmi2_messages_are_frames_by_default(#[case] steps: &str, #[case] writes: &[&str]) {
    assert_eq!(written("pmi-2", steps), writes);
}

#[test]
fn pmi1_messages_may_be_framed() {
    assert_eq!(written("pmi-1.1", "0 send    <body> cmd=a;\n0 send    cmd=b"), ["     6cmd=a;", "cmd=b\\n"]);
}

#[test]
fn fragment_must_match_the_scenario_dialect() {
    let scenario = parsed("t", "# A.\nrequires a\ndialect pmi-2\nuse joined\n").unwrap();
    let messages: Vec<String> = checked(&scenario).into_iter().map(|d| d.message).collect();
    assert!(
        messages.contains(&"fragment `joined` is for dialect pmi-1.1, not pmi-2".to_owned()),
        "{messages:?}"
    );
}
