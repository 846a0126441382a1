use std::collections::BTreeMap;
use std::io::{self, Write};

use rstest::rstest;

use super::log::LogError;
use super::*;
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::event::{Bytes, Event, EventKind, Exit, SilenceProof};
use pmi_judge::verdict::{JudgedFinding, LOG_FORMAT, StaleDeviation, Strictness, Verdict};
use pmi_judge::{Finding, PartyKind, Severity};
use pmi_scenario::requirement::Level;
use pmi_wire::Proc;

/// Characters that have a special meaning in some format: terminal escapes, and ends of lines, rows, documents and directives.
const HOSTILE: &str = "\x1b[31m\0\r\n| <b>&]]> # `x` */_ \\ --- ...\u{9b}2J\u{202e}\u{ffff}\u{7f} @all é";

fn proc(group: u32, rank: u32) -> Proc {
    Proc { group, rank }
}

fn bytes(text: &str) -> Bytes {
    Bytes(text.as_bytes().to_vec())
}

pub(super) fn result(scenario: &str, verdict: Verdict) -> ScenarioResult {
    ScenarioResult {
        scenario: scenario.to_owned(),
        summary: "What must hold.".to_owned(),
        verdict,
        time_us: 1500,
        replay: format!("pmi-conform {scenario}"),
        path: format!("scenarios/{scenario}.pmi"),
        ..ScenarioResult::default()
    }
}

pub(super) fn judged(requirement: &str, severity: Severity, expected: &str, seen: &str) -> JudgedFinding {
    let level = match severity {
        Severity::Note => Level::DeFacto,
        Severity::Warn => Level::Should,
        Severity::Fail => Level::Must,
    };
    JudgedFinding {
        finding: Finding {
            proc: Some(proc(0, 1)),
            seq: 5,
            line: 12,
            ..Finding::new(requirement, PartyKind::Server, expected, seen)
        },
        level: Some(level),
        severity,
        text: "What the requirement says.".to_owned(),
        help: "How it is read.".to_owned(),
        valid_input: severity == Severity::Fail,
        step: "0  expect  cmd=get_result rc=ok value=1".to_owned(),
        deviation: None,
    }
}

fn events() -> Vec<Event> {
    let facts = [
        EventKind::Launched { command: vec!["mpiexec".to_owned()], ranks: 2, nodes: 1 },
        EventKind::Started { proc: proc(0, 0), env: BTreeMap::new(), args: Vec::new(), bad_fd: None },
        EventKind::Started {
            proc: proc(0, 1),
            env: BTreeMap::new(),
            args: Vec::new(),
            bad_fd: Some("a file".to_owned()),
        },
        EventKind::ToServer { proc: proc(0, 1), bytes: bytes("cmd=get kvsname=k key=a\n") },
        EventKind::Output { proc: None, stderr: true, line: bytes("server: \x1b[31mtrouble") },
        EventKind::FromServer { proc: proc(0, 1), bytes: bytes("cmd=get_result rc=1 msg=none\n") },
        EventKind::FromServer { proc: proc(1, 0), bytes: Bytes(vec![b'\xff'; 400]) },
        EventKind::NoResponse { proc: proc(0, 0), proof: SilenceProof::Idle },
        EventKind::ClosedByServer { proc: proc(0, 0) },
        EventKind::ClosedByClient { proc: proc(0, 1) },
        EventKind::Ended { proc: proc(2, 3), ours: false },
        EventKind::Crashed { name: "hydra\x1b[2J".to_owned(), signal: 11 },
        EventKind::JobExited { exit: Exit::Code(3) },
    ];
    let times = (0..).zip(facts);
    times.map(|(seq, kind)| Event { time_us: seq * 10, ..Event::new(seq, kind) }).collect()
}

/// Returns a run with a scenario of every verdict, with deviations and hostile text.
pub(super) fn run() -> Run {
    let mut failed = result("get/value", Verdict::Fail);
    failed.findings = vec![
        judged(
            "rfc13.get.value",
            Severity::Fail,
            "cmd=get_result rc=ok value=b",
            r#""cmd=get_result rc=1 msg=none""#,
        ),
        judged("rfc13.init.version-used", Severity::Note, "pmi_version=1", "pmi_version=2"),
    ];
    failed.exit = Some(Exit::Code(3));
    failed.last_events = events();

    let mut long = result("get/long", Verdict::Fail);
    let same = "x".repeat(500);
    long.findings = vec![judged("rfc13.get.value", Severity::Fail, &format!("{same}a"), &format!("{same}b"))];

    let mut hostile = result(&format!("hostile/{HOSTILE}"), Verdict::Fail);
    hostile.findings = vec![judged(HOSTILE, Severity::Fail, HOSTILE, HOSTILE)];
    hostile.findings[0].text = HOSTILE.to_owned();
    hostile.findings[0].finding.line = 0;
    hostile.findings[0].finding.proc = Some(proc(1, 0));

    let mut known = result("put/long", Verdict::Fail);
    known.deviates_as_recorded = true;
    known.findings = vec![judged("rfc13.put.limits", Severity::Fail, "rc=ok", "rc=-1")];
    known.findings[0].deviation = Some(format!("issue 12 {HOSTILE}"));

    let mut warned = result("init/rc", Verdict::Warn);
    warned.findings = vec![judged("rfc13.init.rc", Severity::Warn, "rc=0", "rc=1")];
    let mut noted = result("init/version", Verdict::Note);
    noted.findings =
        vec![judged("rfc13.init.version-used", Severity::Note, "pmi_version=1", "pmi_version=2")];

    let mut crashed = result("abort/crash", Verdict::Crashed);
    crashed.findings = vec![judged("crash", Severity::Fail, "lives", "killed by signal 11")];
    crashed.findings[0].level = None;
    crashed.findings[0].finding.proc = None;
    crashed.findings[0].text = String::new();
    crashed.exit = Some(Exit::Signal(11));

    let mut lacking = result("spawn/one", Verdict::NotApplicable);
    lacking.reason = Some(format!("needs spawn {HOSTILE}"));
    let mut unjudged = result("spawn/two", Verdict::Unjudged);
    unjudged.reason = Some("rank 1 did not report".to_owned());

    let results = vec![
        result("top", Verdict::Pass),
        result("get/absent", Verdict::Pass),
        failed,
        long,
        hostile,
        known,
        warned,
        noted,
        crashed,
        result("abort/hang", Verdict::Hung),
        lacking,
        unjudged,
    ];
    let counts = pmi_judge::result::counts(&results);
    let header = RunHeader {
        format: LOG_FORMAT,
        version: "0.1.0".to_owned(),
        server: format!("./pm {HOSTILE}"),
        command: format!("pmi-conform --server './pm {HOSTILE}'"),
        dialect: "pmi-1.1".to_owned(),
        selected: results.len(),
        ..RunHeader::default()
    };
    let end = RunEnd {
        counts,
        deviations: 1,
        stale: vec![StaleDeviation {
            file: "deviations.toml".to_owned(),
            line: 3,
            requirement: format!("rfc13.put.limits {HOSTILE}"),
            kept: vec!["put/short".to_owned(), "put/none".to_owned()],
            is_whole: true,
        }],
        unfinished: 0,
        interrupted: false,
        exit_code: 1,
        time_us: 3_200_000,
    };
    Run {
        header,
        results,
        events: BTreeMap::new(),
        left_out: BTreeMap::new(),
        cut: Vec::new(),
        end: Some(end),
    }
}

fn rendered(run: &Run, format: Format) -> String {
    let mut out = Vec::new();
    render(run, format, Verbosity::Normal, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the log of a run that a crash cut off: one scenario, `get/value`, has started, and another has not.
fn torn() -> String {
    let mut run = run();
    run.header.selected = 4;
    run.results.truncate(2);
    run.events.insert("get/value".to_owned(), events());
    run.cut = vec!["get/value".to_owned()];
    run.end = None;
    rendered(&run, Format::Ndjson) + r#"{"type":"result","scenario":"get/val"#
}

fn read(text: &str) -> Result<Run, LogError> {
    read_log("run.ndjson", text.as_bytes(), KeptEvents::All)
}

#[rstest]
fn renders_a_run_in_every_format(
    #[values(
        Format::Ndjson,
        Format::Json,
        Format::Junit,
        Format::Tap,
        Format::Markdown,
        Format::Terminal,
        Format::Sequence,
        Format::Github,
        Format::CodeQuality
    )]
    format: Format,
) {
    let text = rendered(&run(), format);
    let harmful = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{ffff}".contains(c));
    assert_eq!(text.find(harmful), None);
    insta::assert_snapshot!(format!("{format:?}").to_lowercase(), text);
}

/// A keyval space name with markup and template syntax.
const SCRIPT: &str = "<script>alert('kvs')</script>\" onload=\"alert(1)\" --> {{ 1 }} {% x %}";

/// Returns a run in which all untrusted text is a script.
fn scripted() -> Run {
    let mut run = run();
    run.header.server = SCRIPT.to_owned();
    run.header.implementation = Some(SCRIPT.to_owned());
    run.header.command = SCRIPT.to_owned();
    for result in &mut run.results {
        (result.summary, result.path, result.replay) =
            (SCRIPT.to_owned(), SCRIPT.to_owned(), SCRIPT.to_owned());
        result.scenario += SCRIPT;
        result.reason = Some(SCRIPT.to_owned());
        result.requires = vec![SCRIPT.to_owned()];
        for judged in &mut result.findings {
            let finding = &mut judged.finding;
            finding.requirement += SCRIPT;
            (finding.expected, finding.seen) = (SCRIPT.to_owned(), SCRIPT.to_owned());
            (judged.text, judged.step) = (SCRIPT.to_owned(), SCRIPT.to_owned());
        }
        for event in &mut result.last_events {
            if let Some(sent) = event.kind.bytes_mut() {
                *sent = format!("cmd=my_kvsname kvsname={SCRIPT}\n").into_bytes();
            }
        }
    }
    run
}

#[test]
fn html_page_escapes_content_and_loads_nothing() {
    let page = rendered(&scripted(), Format::Html);
    assert_eq!(page.matches("<script").count(), 1, "our own");
    assert!(!page.contains("onload=\"") && !page.contains("alert('"));
    assert!(page.contains("kvsname=&lt;script&gt;alert"), "the chart shows the name");
    assert!(
        page.contains("content=\"default-src 'none'; "),
        "the policy must keep unescaped content from loading anything"
    );
    for fetched in ["src=", "@import", "url(", "rel=\"stylesheet", "srcset", "<iframe", "<object", "fetch("] {
        assert!(!page.contains(fetched), "{fetched}");
    }
}

#[test]
fn html_page_ids_are_unique_and_links_resolve() {
    let page = rendered(&run(), Format::Html);
    let values = |key: &str| -> Vec<String> {
        let key = format!(" {key}=\"");
        let all = page.split(&key).skip(1);
        all.map(|rest| rest.split('"').next().unwrap().replace("&#x2f;", "/")).collect()
    };
    let ids = values("id");
    let once: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(ids.len(), once.len());
    let within: Vec<String> =
        values("href").iter().filter_map(|href| Some(href.strip_prefix('#')?.to_owned())).collect();
    let lost: Vec<&String> = within.iter().filter(|to| !to.contains('=') && !ids.contains(to)).collect();
    assert!(lost.is_empty() && within.len() > 20, "{lost:?} of {within:?}");
}

#[test]
fn html_page_with_many_failures_stays_small() {
    let mut run = run();
    let failed = run.results[2].clone();
    let many = |n: u32| {
        let mut result = ScenarioResult { scenario: format!("many/{n}"), ..failed.clone() };
        // The names consist of letters, because findings that differ only in numbers are merged into a single cause.
        let name: String = n.to_string().chars().map(|c| char::from(b'a' + c as u8 - b'0')).collect();
        result.findings[0].finding.seen = format!("{name} {}", "<>&\"'".repeat(100));
        result.last_events = (0..4).flat_map(|_| events()).collect();
        result
    };
    run.results = (0..1000).map(many).collect();
    let page = rendered(&run, Format::Html);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.contains("The chart is left out to keep the page small"));
    assert!(page.contains("findings left out to keep the page small"));
    assert!(page.contains("scenario:many&#x2f;999"), "the table must contain all scenarios");
}

#[rstest]
#[case(Verbosity::Quiet)]
#[case(Verbosity::Verbose)]
fn verbosity_changes_the_terminal_report(#[case] verbosity: Verbosity) {
    let mut out = Vec::new();
    Terminal::new(&mut out, TerminalOptions { color: false, progress: false, verbosity, log: LOG_OPTION })
        .whole(&run())
        .unwrap();
    insta::assert_snapshot!(format!("{verbosity:?}").to_lowercase(), String::from_utf8(out).unwrap());
}

#[test]
fn colour_does_not_change_the_text() {
    let look =
        TerminalOptions { color: true, progress: false, verbosity: Verbosity::Normal, log: LOG_OPTION };
    let mut out = Vec::new();
    let mut terminal = Terminal::new(&mut out, look);
    terminal.scenario_done(&run().results[2]).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap().replace('\x1b', "ESC"));

    let mut out = Vec::new();
    Terminal::new(&mut out, look).whole(&run()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let plain = text.split('\x1b').map(|piece| match piece.split_once('m') {
        Some((code, rest)) if code.starts_with('[') => rest,
        _ => piece,
    });
    assert_eq!(plain.collect::<String>(), rendered(&run(), Format::Terminal));
}

/// The message of a failed assertion ends with the condition, after a path.
#[test]
fn shortened_crash_text_keeps_the_failed_assertion() {
    let mut run = run();
    let crash = run.results.iter_mut().find(|r| r.verdict == Verdict::Crashed).unwrap();
    let path = "../".repeat(60);
    let seen = format!("the proxy died of signal 6: pmi: {path}pmi.c:7: parse: Assertion `tokens' failed.");
    let finding = &mut crash.findings[0].finding;
    (finding.requirement, finding.seen) = (NO_CRASH.to_owned(), seen);
    for format in [Format::Markdown, Format::Github] {
        let text = rendered(&run, format);
        let mut crashes = text.match_indices("signal 6").map(|(at, _)| text[at..].find("tokens"));
        assert!(crashes.any(|length| length.is_some_and(|length| length < path.len())), "{text}");
    }
}

#[test]
fn compared_texts_are_cut_at_the_same_offset() {
    let (same, kept) = ("x".repeat(500), "x".repeat(98));
    let (left, right) = text::window(&(same.clone() + "ab"), &same, 100);
    assert_eq!(left, format!("...{kept}ab (502 characters)"));
    assert_eq!(right, format!("...{kept} (500 characters)"));
    assert_eq!(text::window("ab", "abc", 10), ("ab".to_owned(), "abc".to_owned()));
    let stated = format!("\"{same}\" ... (1023 bytes)");
    assert_eq!(text::window(&stated, "", 4).0, "\"xxx... (1023 bytes)");
    assert_eq!(text::window("b", "aaaaaa", 3), ("b".to_owned(), "aaa... (6 characters)".to_owned()));
}

#[test]
fn reports_limit_repeated_findings_and_events() {
    let mut run = run();
    run.results.truncate(3);
    let findings = &mut run.results[2].findings;
    *findings = vec![findings[0].clone(); 1000];
    let many = (0..100).flat_map(|_| events());
    run.results[2].last_events = (0..).zip(many).map(|(seq, event)| Event { seq, ..event }).collect();
    for (format, limit) in
        [(Format::Terminal, 200), (Format::Junit, 200), (Format::Tap, 200), (Format::Markdown, 80)]
    {
        assert!(rendered(&run, format).lines().count() < limit, "{format:?}");
    }
}

#[test]
fn log_round_trips() {
    let mut run = run();
    run.events.insert("get/value".to_owned(), events());
    let log = rendered(&run, Format::Ndjson);
    assert_eq!(read(&log).unwrap(), run);
    // Other programs may write the log with extra spaces, and with the type at the end of a line.
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let other: String = lines.map(|line| format!(" {line}\n")).collect();
    assert_eq!(read(&other).unwrap(), run);
    run.events.clear();
    for log in [&log, &other] {
        assert_eq!(read_log("run.ndjson", log.as_bytes(), KeptEvents::Nothing).unwrap(), run);
    }
}

#[test]
fn log_reader_keeps_first_and_last_events_of_a_flood() {
    let mut run = run();
    run.results.truncate(1);
    let many = (0..20_000).map(|seq| Event::new(seq, EventKind::SituationReached { proc: proc(0, 0) }));
    run.events.insert("top".to_owned(), many.collect());
    let log = rendered(&run, Format::Ndjson);
    let read = read_log("run.ndjson", log.as_bytes(), KeptEvents::FirstAndLast).unwrap();
    let (kept, left_out) = (&read.events["top"], read.left_out["top"]);
    assert!(kept.len() < 10_000 && kept.len() + left_out == 20_000, "{} and {left_out}", kept.len());
    assert_eq!((kept[0].seq, kept[kept.len() - 1].seq), (0, 19_999));
}

#[test]
fn discards_events_of_scenarios_without_findings() {
    let (mut run, mut left) = (run(), 0);
    for result in &run.results {
        let event = Event::new(0, EventKind::SituationReached { proc: proc(0, 0) });
        run.events.insert(result.scenario.clone(), vec![event]);
        left += usize::from(!result.findings.is_empty());
    }
    let log = rendered(&run, Format::Ndjson);
    let read = read_log("run.ndjson", log.as_bytes(), KeptEvents::FirstAndLastOfFindings).unwrap();
    assert!(left > 0 && left < run.results.len());
    assert_eq!(read.events.len(), left);
}

#[test]
fn counts_unfinished_scenarios_of_a_truncated_log() {
    let run = read(&torn()).unwrap();
    assert_eq!(run.results.len(), 2);
    assert_eq!(run.cut, ["get/value"]);
    assert_eq!(run.unfinished(), 2);
    for format in [Format::Junit, Format::Tap, Format::Markdown, Format::Terminal] {
        insta::assert_snapshot!(format!("torn_{format:?}").to_lowercase(), rendered(&run, format));
    }
}

#[test]
fn reads_a_log_truncated_at_any_byte() {
    let log = torn();
    let first = log.find('\n').unwrap();
    for at in first..log.len() {
        assert!(read_log("log", &log.as_bytes()[..at], KeptEvents::Nothing).is_ok(), "cut at byte {at}");
    }
    assert!(matches!(read(&log[..first / 2]), Err(LogError::Empty { .. })));
}

#[test]
fn each_invalid_log_has_its_own_error_message() {
    let log = rendered(&run(), Format::Ndjson);
    let (first, rest) = log.split_once('\n').unwrap();
    let future = r#"{"type":"run","format":99,"all":"new"}"#;
    let errors = [
        String::new(),
        "a\x1b line\n".to_owned(),
        rest.to_owned(),
        future.to_owned() + "\n",
        format!("{first}\n{{\"type\":\"results\"}}\n{rest}"),
        format!("{first}\n{first}\n"),
        format!("{log}{}\n", rest.lines().next().unwrap()),
    ]
    .map(|text| read(&text).unwrap_err().to_string());
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn log_writer_flushes_after_each_result() {
    struct Counted<'a>(&'a mut usize);
    impl Write for Counted<'_> {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            *self.0 += 1;
            Ok(())
        }
    }
    let mut flushed = 0;
    let mut log = LogWriter::new(Counted(&mut flushed));
    for event in events() {
        log.event("a", &event).unwrap();
    }
    log.write(&LogLine::Result(result("a", Verdict::Pass))).unwrap();
    assert_eq!(flushed, 1);
}

#[test]
fn junit_report_parses_and_states_correct_counts() {
    let report = quick_junit::Report::deserialize_from_str(&rendered(&run(), Format::Junit)).unwrap();
    // There is a test case for each result, and one for the stale deviation.
    assert_eq!(report.tests, run().results.len() + 1);
    assert_eq!((report.failures, report.errors), (3, 4));
    let skipped: usize = report.test_suites.iter().map(|suite| suite.skipped).sum();
    assert_eq!(skipped, 1);
    let known = report.test_suites.iter().flat_map(|s| &s.test_cases).find(|c| c.name.as_str() == "long");
    assert!(known.is_some());
}

/// Checks what a TAP reader would check: the number and the order of the test points, and that each diagnostic block is closed.
#[rstest]
#[case::whole(run())]
#[case::torn(read(&torn()).unwrap())]
#[case::empty(Run { results: Vec::new(), header: RunHeader { selected: 0, ..run().header }, end: None, ..run() })]
fn tap_report_contains_the_planned_test_points(#[case] run: Run) {
    let tap = rendered(&run, Format::Tap);
    let plan = tap.lines().find_map(|line| line.strip_prefix("1..")).unwrap().parse().unwrap();
    let points = tap.lines().filter_map(|line| line.strip_prefix("not ok ").or(line.strip_prefix("ok ")));
    let numbers: Vec<usize> = points.map(|p| p.split_once(" - ").unwrap().0.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=plan).collect::<Vec<_>>());
    let count = |wanted| tap.lines().filter(|line| *line == wanted).count();
    assert_eq!(count("  ---"), count("  ..."));
    assert!(plan > 0, "an empty run must not be green");
}

#[rstest]
#[case(0, 0, "deviates only as recorded")]
#[case(2, 0, "the command line or a scenario is invalid")]
#[case(3, 0, "the harness could not judge")]
#[case(4, 0, "nothing ran")]
#[case(130, 3, "interrupted; 3 scenarios without a result")]
fn explains_exit_codes_in_words(#[case] exit_code: i32, #[case] unfinished: usize, #[case] words: &str) {
    let mut run = run();
    run.end = run.end.map(|end| RunEnd { exit_code, unfinished, ..end });
    assert_eq!(tally::meaning(&run), format!("exit status {exit_code}: {words}"));
}

#[test]
fn strict_run_fails_on_should_violations() {
    let mut run = run();
    run.results.retain(|r| r.verdict == Verdict::Warn);
    run.header.selected = 1;
    run.end = run.end.map(|end| RunEnd { stale: Vec::new(), ..end });
    assert!(!rendered(&run, Format::Tap).contains("not ok"));
    assert!(!rendered(&run, Format::Junit).contains("<failure"));
    run.set_strict(Strictness::Should);
    assert!(rendered(&run, Format::Tap).contains("not ok 1 - init/rc"));
    assert!(rendered(&run, Format::Junit).contains("<failure"));
    assert!(rendered(&run, Format::Terminal).contains("a SHOULD is broken, and --strict counts it"));
}

#[test]
fn each_cause_is_reported_once() {
    let mut run = run();
    let failure = run.results.iter().find(|r| r.scenario == "get/value").unwrap().clone();
    let named = |name: &str| ScenarioResult { scenario: name.to_owned(), ..failure.clone() };
    let crashed = |name: &str, seen: &str| {
        let mut result = named(name);
        result.verdict = Verdict::Crashed;
        result.findings.truncate(1);
        let finding = &mut result.findings[0].finding;
        (finding.requirement, finding.seen) = (NO_CRASH.to_owned(), seen.to_owned());
        result
    };
    let mut other = named("get/other");
    other.findings[0].finding.seen = "something else".to_owned();
    run.results = vec![
        named("get/value"),
        named("get/again"),
        other,
        crashed("abort/a", "rank 0 died of signal 11"),
        crashed("abort/b", "rank 1 died of signal 11"),
        crashed("abort/c", "rank 1 died of signal 6: Assertion `x' failed"),
    ];
    let text = rendered(&run, Format::Terminal);
    let shown = "seen      \"cmd=get_result rc=1 msg=none\"";
    assert_eq!(text.matches(shown).count(), 1, "{text}");
    assert!(
        !text.contains("get/again  1.5ms")
            && text.contains("\n1 more scenario shows the same causes (-v prints each)\n"),
        "{text}"
    );
    // The index of causes comes first. Crashes are distinguished by their location and signal, not by rank.
    let (first, second) = (
        "causes\n  FAIL iut.no-crash (valid input): rank 0 died of signal 11: 2 scenarios: abort/a, abort/b\n",
        "  FAIL iut.no-crash (valid input): rank 1 died of signal 6: Assertion `x' failed: 1 scenario: abort/c\n",
    );
    let third = "  FAIL rfc13.get.value (valid input): 3 scenarios: get/other, get/value and 1 more\n";
    let index = [first, second, third].concat();
    assert!(text.find(&index).is_some_and(|at| at < text.find(shown).unwrap()), "{text}");
    let page = rendered(&run, Format::Html);
    let index = page.find("id=\"causes-title\"").unwrap();
    assert!(index < page.find("id=\"findings-title\"").unwrap());
    assert!(page[index..].contains("rank 0 died of signal 11</a>: 2 scenarios"), "{page}");
    // The GitHub report has an annotation for each crash.
    let github = rendered(&run, Format::Github);
    let errors = github.lines().filter(|line| line.starts_with("::error title=FAIL"));
    assert_eq!(errors.count(), 3, "{github}");
    // `-v` shows all findings.
    let mut out = Vec::new();
    let look =
        TerminalOptions { color: false, progress: false, verbosity: Verbosity::Verbose, log: LOG_OPTION };
    Terminal::new(&mut out, look).whole(&run).unwrap();
    let verbose = String::from_utf8(out).unwrap();
    assert_eq!(verbose.matches(shown).count(), 2);
    assert!(
        verbose.contains("in 2 scenarios: \"cmd=get_result rc=1 msg=none\": get/value, get/again\n"),
        "{verbose}"
    );
}

#[test]
fn hangs_with_the_same_cause_are_shown_once() {
    let mut run = run();
    let hung = |name: String| {
        let finding = judged("rfc13.barrier.released", Severity::Fail, "cmd=barrier_out", "silence");
        ScenarioResult { findings: vec![finding], ..result(&name, Verdict::Hung) }
    };
    run.results = (0..126).map(|number| hung(format!("barrier/{number}"))).collect();
    let text = rendered(&run, Format::Terminal);
    assert_eq!(text.matches("seen      silence").count(), 1, "{text}");
    let line =
        "FAIL rfc13.barrier.released (valid input): 126 scenarios: barrier/0, barrier/1 and 124 more\n";
    assert!(text.contains(line), "{text}");
}

/// A finding that was absent in a retry is not an error in any report of a green run.
#[test]
fn flaky_finding_is_not_an_error() {
    let finding = || vec![judged("rfc13.get.value", Severity::Fail, "rc=0", "rc=1")];
    let flaky = ScenarioResult { findings: finding(), ..result("a/1", Verdict::Flaky) };
    let red = ScenarioResult { findings: finding(), ..result("a/2", Verdict::Fail) };
    let of = |results: Vec<ScenarioResult>, format| {
        rendered(
            &Run {
                results,
                end: None,
                cut: Vec::new(),
                header: RunHeader { selected: 0, ..run().header },
                ..run()
            },
            format,
        )
    };
    let level = |results: Vec<ScenarioResult>| {
        let sarif: serde_json::Value = serde_json::from_str(&of(results.clone(), Format::Sarif)).unwrap();
        let issues: serde_json::Value = serde_json::from_str(&of(results, Format::CodeQuality)).unwrap();
        let level = &sarif["runs"][0]["results"][0]["level"];
        [level, &issues[0]["severity"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(level(vec![flaky.clone()]), ["warning", "minor"]);
    let github = of(vec![flaky.clone()], Format::Github);
    assert!(github.starts_with("::warning title=FLAKY rfc13.get.value"), "{github}");
    let markdown = of(vec![flaky.clone()], Format::Markdown);
    assert!(!markdown.contains("### Failures") && markdown.contains("| FLAKY | a/1"), "{markdown}");
    for format in [Format::Terminal, Format::Tap] {
        let text = of(vec![flaky.clone()], format);
        assert!(text.contains("FLAKY") && !text.contains("FAIL"), "{text}");
    }
    let html = of(vec![flaky.clone()], Format::Html);
    assert!(html.contains(">flaky<") && !html.contains(">fails<"), "{html}");
    // With --strict=de-facto, this note fails the run. If it is flaky, it is only a warning.
    let note = vec![judged("rfc13.get.value", Severity::Note, "rc=0", "rc=1")];
    let note = ScenarioResult { findings: note, ..result("a/1", Verdict::Flaky) };
    let strict = |format| {
        let header = RunHeader { selected: 0, strict: Strictness::DeFacto, ..run().header };
        let results = vec![note.clone()];
        rendered(&Run { results, end: None, cut: Vec::new(), header, ..run() }, format)
    };
    let (sarif, quality) = (strict(Format::Sarif), strict(Format::CodeQuality));
    assert!(sarif.contains(r#""level": "warning""#) && !sarif.contains(r#""level": "note""#), "{sarif}");
    assert!(quality.contains(r#""severity": "minor""#), "{quality}");
    assert!(strict(Format::Markdown).contains("| FLAKY | a/1"));
    // The scenario that shows the finding in every attempt is red, and the flaky scenario is counted separately.
    let both = vec![flaky, red];
    let text = of(both.clone(), Format::Terminal);
    for line in [
        "FAIL rfc13.get.value (valid input): 1 scenario: a/2",
        "FLAKY rfc13.get.value (valid input): 1 scenario: a/1",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(level(both.clone()), ["error", "major"]);
    let github = of(both, Format::Github);
    assert!(github.starts_with("::error title=FAIL rfc13.get.value"), "{github}");
}

#[test]
fn report_limits_detailed_findings_per_requirement() {
    let mut run = run();
    let broken = |number: usize| {
        let seen = format!("cmd=answer_{}", (b'a' + number as u8) as char);
        let mut finding = judged("rfc13.get.value", Severity::Fail, "rc=0", &seen);
        finding.valid_input = number == 18;
        ScenarioResult { findings: vec![finding], ..result(&format!("a/{number}"), Verdict::Fail) }
    };
    run.results = (0..20).map(broken).collect();
    let text = rendered(&run, Format::Terminal);
    let index = "FAIL rfc13.get.value (valid input in 1 of 20): 20 scenarios: a/18, a/0 and 18 more";
    assert!(text.contains(index), "{text}");
    assert_eq!(text.matches("    seen  ").count(), 6, "{text}");
    assert_eq!(text.matches("    input     valid").count(), 1, "{text}");
    assert!(text.contains("14 more scenarios show the same causes"), "{text}");
}

#[test]
fn report_states_full_length_of_shortened_message() {
    let mut run = run();
    let mut long = run.results.iter().find(|r| r.scenario == "get/value").unwrap().clone();
    let mut event = Event::new(6, EventKind::FromServer { proc: proc(1, 0), bytes: Bytes(vec![b'x'; 9000]) });
    event.cut_to(4096);
    long.last_events[6] = event;
    run.results = vec![long];
    for format in [Format::Terminal, Format::Html, Format::Sequence] {
        let text = rendered(&run, format);
        assert!(text.contains("(9000 bytes)") && !text.contains("(4096 bytes)"), "{format:?}: {text}");
    }
}

/// A finding may be about the end of a process or about silence, which the shown events do not contain.
#[test]
fn finding_without_event_is_marked_at_last_event() {
    let mut run = run();
    let mut failed = run.results.iter().find(|r| r.scenario == "get/value").unwrap().clone();
    failed.findings.truncate(1);
    failed.findings[0].finding.seq = 99;
    run.results = vec![failed];
    let text = rendered(&run, Format::Terminal);
    let marked: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("  > ")).collect();
    assert_eq!(marked, [" 9         1 -> (closed)"], "{text}");
}

#[test]
fn repeated_output_lines_are_merged() {
    let mut run = run();
    let mut failed = run.results.iter().find(|r| r.scenario == "get/value").unwrap().clone();
    let line = |seq, line| Event::new(seq, EventKind::Output { proc: None, stderr: true, line: bytes(line) });
    failed.last_events.push(line(20, "invalid command"));
    failed.last_events.extend((21..61).map(|seq| line(seq, "read length 0")));
    run.results = vec![failed];
    for format in [Format::Terminal, Format::Html] {
        let text = rendered(&run, format);
        assert!(text.contains("invalid command") && text.contains("read length 0 (40 times)"), "{text}");
    }
}

#[test]
fn request_that_explains_a_finding_is_not_shortened() {
    let mut run = run();
    let mut long = run.results.iter().find(|r| r.scenario == "get/value").unwrap().clone();
    let request = format!("cmd=get kvsname=k key={} last=1\n", "a".repeat(3000));
    long.last_events[3].kind = EventKind::ToServer { proc: proc(0, 1), bytes: bytes(&request) };
    long.left_out = 90;
    run.results = vec![long];
    for format in [Format::Terminal, Format::Junit] {
        let text = rendered(&run, format);
        assert!(text.contains(request.trim_end()), "{format:?}: {text}");
        assert!(text.contains("90 other events left out"), "{format:?}: {text}");
        // A message that explains no finding is shortened.
        assert!(text.contains("... (400 bytes)"), "{format:?}: {text}");
    }
}

#[test]
fn reason_for_unjudged_scenarios_is_shown_once() {
    let mut run = run();
    let unjudged = |scenario: &str, why: &str| {
        let mut result = result(scenario, Verdict::Unjudged);
        result.reason = Some(why.to_owned());
        result
    };
    run.results = vec![
        unjudged("get/one", "not tried"),
        unjudged("get/two", "not tried"),
        unjudged("get/three", "rank 1 did not report"),
        unjudged("get/four", "not tried"),
    ];
    let text = rendered(&run, Format::Terminal);
    for (name, shown) in [("get/one", true), ("get/two", false), ("get/three", true), ("get/four", false)] {
        assert_eq!(text.contains(&format!("{name}  1.5ms")), shown, "{text}");
    }
    let line = "  COULD NOT JUDGE not tried: 3 scenarios: get/one, get/two and 1 more\n";
    assert!(text.contains(line), "{text}");
    // Neither the time nor the output of the launcher distinguishes causes.
    let busy = |wait: &str, printed: &str| {
        format!("rank 0 did not report within {wait} (--start-timeout); it printed \"{printed}\"")
    };
    run.results = vec![
        unjudged("get/one", &busy("27.5s", "srun: Warning: fewer nodes")),
        unjudged("get/two", &busy("30s", "srun: disabled")),
        unjudged("get/three", "rank 0 did not report within 12ms (--start-timeout)"),
        unjudged("get/four", "rank 1 did not report within 30s (--start-timeout)"),
    ];
    let text = rendered(&run, Format::Terminal);
    let line = format!(
        "  COULD NOT JUDGE {}: 3 scenarios: get/one, get/two and 1 more\n",
        busy("30s", "srun: disabled")
    );
    assert!(text.contains(&line), "{text}");
    assert_eq!(text.matches("  COULD NOT JUDGE rank").count(), 2, "{text}");
}

#[test]
fn parses_values_of_the_report_option() {
    let spec = |format, file: Option<&str>| Ok(ReportSpec { format, file: file.map(PathBuf::from) });
    assert_eq!("junit".parse(), spec(Format::Junit, None));
    assert_eq!("json=a=b.json".parse(), spec(Format::Json, Some("a=b.json")));
    for format in Format::value_variants() {
        let name = format.to_possible_value().unwrap();
        assert!(SpecError::Format(String::new()).to_string().contains(name.get_name()));
    }
    assert_eq!("python".parse::<ReportSpec>(), Err(SpecError::Folder));
    assert_eq!("tap=".parse::<ReportSpec>(), Err(SpecError::File("tap".to_owned())));
    assert_eq!("xml=a".parse::<ReportSpec>(), Err(SpecError::Format("xml".to_owned())));
}

#[test]
fn log_schema_covers_every_line_type() {
    let schema = log_schema().to_string();
    for kind in ["run", "event", "result", "end"] {
        assert!(schema.contains(&format!(r#""const":"{kind}""#)), "{kind}");
    }
}

/// Names and findings cannot inject workflow commands for GitHub.
#[test]
fn content_cannot_inject_github_commands() {
    let mut run = run();
    for result in &mut run.results {
        result.findings.extend([judged(
            "x::error::y",
            Severity::Fail,
            "::set-output name=a::b",
            "\n::stop-commands::z",
        )]);
    }
    let text = rendered(&run, Format::Github);
    let (last, commands) = text.trim_end().rsplit_once('\n').map(|(all, last)| (last, all)).unwrap();
    assert!(!last.starts_with("::"), "{last}");
    let kinds: Vec<&str> = commands.lines().map(|line| line.split("title=").next().unwrap()).collect();
    assert!(kinds.iter().all(|kind| ["::error ", "::warning ", "::notice "].contains(kind)), "{text}");
    for kind in ["::error ", "::warning "] {
        assert!(kinds.iter().filter(|k| **k == kind).count() <= 10);
    }
}

/// GitLab distinguishes and tracks issues by their fingerprints.
#[test]
fn each_code_quality_issue_has_a_unique_fingerprint() {
    let document: Vec<serde_json::Value> =
        serde_json::from_str(&rendered(&run(), Format::CodeQuality)).unwrap();
    assert!(!document.is_empty());
    let prints: std::collections::BTreeSet<&str> =
        document.iter().map(|issue| issue["fingerprint"].as_str().unwrap()).collect();
    assert_eq!(prints.len(), document.len());
    for issue in &document {
        assert!(
            ["info", "minor", "major", "critical", "blocker"].contains(&issue["severity"].as_str().unwrap())
        );
        assert!(issue["location"]["lines"]["begin"].as_u64().unwrap() > 0);
    }
}

#[test]
fn code_quality_report_has_one_issue_per_cause() {
    let of_command = |command: &str, seen: [&str; 3]| -> Vec<serde_json::Value> {
        let results = ["a/1", "b/2", "c/3"].into_iter().zip(seen).map(|(name, seen)| {
            let findings = vec![judged("rfc13.get.value", Severity::Fail, "rc=0", seen)];
            ScenarioResult { findings, ..result(name, Verdict::Fail) }
        });
        let mut run = Run { results: results.collect(), end: None, cut: Vec::new(), ..run() };
        run.header.command = command.to_owned();
        serde_json::from_str(&rendered(&run, Format::CodeQuality)).unwrap()
    };
    let document = |seen| of_command("pmi-conform", seen);
    let of_cause = |document: Vec<serde_json::Value>| {
        let mut issues = document.into_iter().filter(|issue| issue["check_name"] == "rfc13.get.value");
        let issue = issues.next().unwrap();
        assert!(issues.next().is_none(), "a cause must be a single issue");
        issue
    };
    let issue = of_cause(document(["rank 0 is late", "rank 1 is late", "rank 2 is late"]));
    assert_eq!(issue["location"]["path"], "scenarios/a/1.pmi");
    let others = issue["other_locations"].as_array().unwrap();
    let paths: Vec<&str> = others.iter().map(|place| place["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["scenarios/b/2.pmi", "scenarios/c/3.pmi"]);
    // Embedded scenarios are not files of the user's repository, but the profile is.
    let seen = ["rank 0 is late", "rank 1 is late", "rank 2 is late"];
    let placed = of_cause(of_command("pmi-conform --server @Cargo.toml", seen));
    assert_eq!(
        (&placed["location"]["path"], &placed["other_locations"]),
        (&"Cargo.toml".into(), &serde_json::json!([]))
    );
    let again = of_cause(document(["rank 3 is late", "rank 4 is late", "rank 5 is late"]));
    assert_eq!(issue["fingerprint"], again["fingerprint"], "the fingerprint must not depend on ranks");
}

/// Reports whose results have a file and a line point to the entry of the stale deviation. The fingerprint of a result does not change when
/// the entry moves to a different line.
#[test]
fn reports_locate_the_entry_of_a_stale_deviation() {
    let documents = |line: usize| {
        let mut run = run();
        run.end.iter_mut().flat_map(|end| &mut end.stale).for_each(|stale| stale.line = line);
        let text = rendered(&run, Format::CodeQuality);
        let issues: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let sarif: serde_json::Value = serde_json::from_str(&rendered(&run, Format::Sarif)).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap().clone();
        let issue = issues.into_iter().find(|issue| issue["check_name"] == "stale deviation").unwrap();
        (issue, results.into_iter().find(|result| result["ruleId"] == "pmi-conform.run").unwrap())
    };
    let (issue, result) = documents(3);
    assert_eq!(issue["location"]["path"], "deviations.toml");
    assert_eq!(issue["location"]["lines"]["begin"], 3);
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "deviations.toml");
    assert_eq!(place["region"]["startLine"], 3);
    let (moved, moved_result) = documents(30);
    assert_eq!(issue["fingerprint"], moved["fingerprint"]);
    assert_eq!(result["partialFingerprints"], moved_result["partialFingerprints"]);
    let text = rendered(&run(), Format::Terminal);
    assert_eq!(
        text.matches("is no longer broken in put/short, put/none; delete the entry").count(),
        1,
        "{text}"
    );
    assert!(rendered(&run(), Format::Github).contains(",file=deviations.toml,line=3::"));
}

#[test]
fn junit_message_names_the_crash() {
    let mut crashed = run().results.into_iter().find(|result| result.verdict == Verdict::Crashed).unwrap();
    crashed.reason = Some("rank 0 did not start".to_owned());
    let report = rendered(&Run { results: vec![crashed], ..run() }, Format::Junit);
    assert!(report.contains("<error message=\"crash\""), "{report}");
    assert!(!report.contains("message=\"rank 0 did not start\""), "{report}");
}

/// Different deviations may cover crashes at the same location.
#[test]
fn reports_show_the_reason_of_each_deviation() {
    let known = |name: &str, reason: &str| {
        let mut result = result(name, Verdict::Crashed);
        let judged = judged(NO_CRASH, Severity::Fail, "lives", "pm died of signal 11 (in get)");
        result.findings = vec![JudgedFinding { deviation: Some(reason.to_owned()), ..judged }];
        result.deviates_as_recorded = true;
        result
    };
    let results = vec![
        known("a/empty", "an empty line"),
        known("b/long", "a long line"),
        known("c/blank", "an empty line"),
    ];
    let run = Run { results, ..run() };
    let text = rendered(&run, Format::Markdown);
    let rows: Vec<&str> =
        text.lines().filter(|line| line.contains("an empty line") || line.contains("a long line")).collect();
    assert_eq!(rows.len(), 2, "{text}");
    assert!(rows[0].contains("a/empty") && rows[0].contains("and 1 other scenario"), "{text}");
    assert!(rows[1].contains("b/long") && rows[1].ends_with("a long line |"), "{text}");
    let sarif = rendered(&run, Format::Sarif);
    assert_eq!(sarif.matches("\"justification\": \"a long line\"").count(), 1, "{sarif}");
}

/// A page made from the log shows all events of a scenario. Without the log, the page shows only the events in the result.
#[test]
fn html_page_made_from_a_log_shows_all_events() {
    let asks = |seq: u64| {
        Event::new(
            seq,
            EventKind::ToServer { proc: proc(0, 0), bytes: bytes(&format!("cmd=get key=number-{seq}\n")) },
        )
    };
    let mut failed = result("get/many", Verdict::Fail);
    failed.findings = vec![judged("rfc13.get.value", Severity::Fail, "this", "that")];
    let all: Vec<Event> = (0..90).map(asks).collect();
    failed.last_events = all[50..].to_vec();
    let short = Run { results: vec![failed], ..run() };
    let page = |run: &Run| {
        let mut out = Vec::new();
        render(run, Format::Html, Verbosity::Normal, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let (without, key) = (page(&short), "key=number-3\\n");
    assert!(!without.contains("From the first event on") && !without.contains(key));
    assert!(without.contains("number-70"));
    let whole = Run { events: [("get/many".to_owned(), all)].into(), ..short };
    let with = page(&whole);
    assert!(with.contains("From the first event on") && with.contains(key), "{with}");
}

/// A few scenarios may report a general cause as a violation of the requirement that they test. The index lists these requirements too,
/// because users record deviations by requirement.
#[test]
fn index_lists_each_requirement_cited_for_a_cause() {
    let asks = || Event::new(1, EventKind::ToServer { proc: proc(0, 1), bytes: bytes("cmd=get key=a\n") });
    let fails = |name: &str, id: &str| ScenarioResult {
        findings: vec![judged(id, Severity::Fail, "a value", "\"cmd=get_result rc=-1\"")],
        last_events: vec![asks()],
        ..result(name, Verdict::Fail)
    };
    let mut run = run();
    let general = "rfc13.put.visible-after-barrier";
    run.results = (0..10).map(|n| fails(&format!("kvs/{n}"), general)).collect();
    run.results.push(fails("maxes/a", "rfc13.maxes.honoured"));
    let text = rendered(&run, Format::Terminal);
    for format in [Format::Sarif, Format::Markdown] {
        let text = rendered(&run, format);
        assert!(text.contains(", cited as rfc13.maxes.honoured in 1 scenario"), "{text}");
    }
    let line =
        format!("FAIL {general} (valid input), cited as rfc13.maxes.honoured in 1 scenario: 11 scenarios");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn reproducers_of_an_earlier_run_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("index.txt", "old.py  kvs/a: rfc13.x\n"), ("old.py", ""), ("own.py", "")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let run = Run { results: Vec::new(), ..run() };
    write_reproducers(&run, folder.path()).unwrap();
    let is_there = ["index.txt", "old.py", "own.py"].map(|name| folder.path().join(name).exists());
    assert_eq!(is_there, [true, false, true]);
}

/// A scenario that passed when it was played again is counted as flaky, and no index lists it as a failure.
#[test]
fn index_lists_flaky_scenarios_separately() {
    let broken = |name: &str, verdict| ScenarioResult {
        findings: vec![judged("rfc13.get.value", Severity::Fail, "1", "value=2")],
        ..result(name, verdict)
    };
    let mut run = run();
    run.results =
        vec![broken("kvs/a", Verdict::Flaky), broken("kvs/b", Verdict::Fail), broken("kvs/c", Verdict::Fail)];
    let text = rendered(&run, Format::Terminal);
    for line in [
        "FAIL rfc13.get.value (valid input): 2 scenarios",
        "FLAKY rfc13.get.value (valid input): 1 scenario: kvs/a",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
