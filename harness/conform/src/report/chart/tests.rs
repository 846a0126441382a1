use super::super::block::Palette;
use super::super::tests::{judged, result};
use super::layout::{BarrierWait, Chart, MAX_LANES, MAX_ROWS, RowShape, commands};
use super::write;
use pmi_judge::Severity;
use pmi_judge::event::{Bytes, Event, EventKind, SilenceProof};
use pmi_judge::verdict::Verdict;
use pmi_wire::Proc;

fn rank(rank: u32) -> Proc {
    Proc { group: 0, rank }
}

fn to(proc: Proc, text: &str) -> EventKind {
    EventKind::ToServer { proc, bytes: Bytes(text.as_bytes().to_vec()) }
}

fn from(proc: Proc, text: &str) -> EventKind {
    EventKind::FromServer { proc, bytes: Bytes(text.as_bytes().to_vec()) }
}

fn events(all: impl IntoIterator<Item = EventKind>) -> Vec<Event> {
    (0..).zip(all).map(|(seq, kind)| Event { time_us: seq * 100, ..Event::new(seq, kind) }).collect()
}

fn drawn(chart: &Chart<'_>) -> String {
    let mut text = String::new();
    write(chart, Palette::PLAIN, &mut text).unwrap();
    text
}

#[test]
fn chart_shows_rank_leaving_barrier_early() {
    let mut result = result("barrier/early", Verdict::Fail);
    result.findings = vec![judged("rfc13.barrier.all-in-before-any-out", Severity::Fail, "nothing", "it")];
    result.findings[0].finding.seq = 3;
    let events = events([
        EventKind::Launched { command: Vec::new(), ranks: 2, nodes: 1 },
        to(rank(0), "cmd=put key=a value=cmd=barrier_in\n"),
        to(rank(0), "cmd=barrier_in\n"),
        from(rank(0), "cmd=barrier_out rc=0\n"),
        to(rank(1), "    14cmd=kvs-fence;"),
        EventKind::NoResponse { proc: rank(1), proof: SilenceProof::Idle },
        EventKind::ToProxy {
            group: 0,
            proxy: 0,
            answers: None,
            text: Bytes(b"cmd=barrier_out".to_vec()),
            scripted: false,
        },
        EventKind::JobExited { exit: pmi_judge::event::Exit::Code(0) },
    ]);
    let chart = Chart::of_events(&events, 0, &result);
    assert_eq!(
        chart.waits,
        [BarrierWait { lane: 0, from: 2, to: Some(3) }, BarrierWait { lane: 1, from: 4, to: None }],
        "a command within a value must not count as a barrier"
    );
    insta::assert_snapshot!(drawn(&chart));
}

#[test]
fn chart_shows_silence_between_messages() {
    let mut result = result("get/value", Verdict::Fail);
    result.findings = vec![judged("rfc13.get.value", Severity::Fail, "an answer", "silence")];
    result.findings[0].finding.seq = 1;
    let mut events = events([
        to(rank(1), "cmd=barrier_in\n"),
        EventKind::Silence { proof: SilenceProof::Timeout, waited_ms: 5 },
        from(rank(1), "cmd=barrier_out\n"),
    ]);
    let chart = Chart::of_events(&events, 0, &result);
    assert_eq!(chart.rows[1].shape, RowShape::Point(0));
    assert_eq!(
        (chart.rows[1].what.as_str(), &chart.rows[1].breaks[..]),
        ("silence", &["rfc13.get.value"][..])
    );
    assert_eq!(chart.waits, [BarrierWait { lane: 0, from: 0, to: Some(2) }]);
    // The row of a missing event may also be the last row.
    events.truncate(1);
    assert_eq!(Chart::of_events(&events, 0, &result).rows[1].what, "silence");
}

#[test]
fn chart_limits_lanes_and_rows() {
    let mut result = result("many", Verdict::Fail);
    result.findings = vec![judged("rfc13.get.value", Severity::Fail, "this", "that")];
    result.findings[0].finding.proc = Some(rank(4000));
    let events = events((0..5000).map(|n| to(rank(n), "cmd=finalize\n")));
    let chart = Chart::of_events(&events, 0, &result);
    assert!(
        chart.lanes.contains(&"rank 4000".to_owned()),
        "a process with a finding must have a lane: {:?}",
        chart.lanes
    );
    assert!(chart.rows.len() <= MAX_ROWS + 2 && chart.lanes.len() == MAX_LANES + 1);
    let text = drawn(&chart);
    assert!(
        text.contains("4600 events are omitted here") && text.contains("more processes are not shown"),
        "{text}"
    );
}

#[test]
fn chart_states_the_number_of_omitted_events() {
    let result = result("many", Verdict::Pass);
    let events = events((0..450).map(|_| to(rank(0), "cmd=get\n")));
    let text = drawn(&Chart::of_events(&events, 7, &result));
    assert!(text.contains("57 events are omitted here"), "{text}");
}

#[test]
fn finds_commands_in_lines_and_frames() {
    for (bytes, found) in [
        ("cmd=a x=1\ncmd=b\n", vec!["a", "b"]),
        ("    12cmd=c;x=1;", vec!["c"]),
        ("value=cmd=d", vec![]),
        ("cmd=", vec![""]),
    ] {
        let all: Vec<&[u8]> = commands(bytes.as_bytes()).collect();
        assert_eq!(all, found.iter().map(|word| word.as_bytes()).collect::<Vec<_>>(), "{bytes:?}");
    }
}
