//! The layout of a sequence chart in lanes and rows.

use std::collections::{BTreeMap, BTreeSet};

use super::super::block::MAX_FINDINGS;
use super::super::event_text::{EventDescription, EventDirection, MAX_EVENT_BYTES, describe};
use super::super::text;
use pmi_judge::event::{Event, EventKind};
use pmi_judge::evidence::evidence;
use pmi_judge::verdict::{JudgedFinding, ScenarioResult};
use pmi_wire::Proc;

/// Maximum number of lanes. A chart with more lanes would be unreadable.
pub(super) const MAX_LANES: usize = 24;
/// Maximum number of rows. Longer charts show the first and the last messages.
pub(super) const MAX_ROWS: usize = 400;
/// Number of rows at the start of a shortened chart.
const FIRST_ROWS: usize = 100;

/// The requests that enter a barrier, in both protocols. `LEAVE_COMMANDS` contains the responses that end the wait.
const ENTER_COMMANDS: [&[u8]; 2] = [b"barrier_in", b"kvs-fence"];
const LEAVE_COMMANDS: [&[u8]; 2] = [b"barrier_out", b"kvs-fence-response"];

/// A participant in a chart. Lanes are in the order of the variants, from left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Participant {
    Process(Proc),
    Server,
    Proxy(Proc),
    Upstream,
}

impl Participant {
    fn of(proc: Proc) -> Self {
        if proc.group == Proc::PROXY_GROUP { Self::Proxy(proc) } else { Self::Process(proc) }
    }

    fn name(self) -> String {
        match self {
            Self::Process(proc) if proc.group == 0 => format!("rank {proc}"),
            Self::Process(proc) | Self::Proxy(proc) => proc.to_string(),
            Self::Server => "server".to_owned(),
            Self::Upstream => "upstream".to_owned(),
        }
    }
}

/// The shape that is drawn in a row. Lanes are numbered from the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowShape {
    /// A message or connection between two lanes.
    Arrow { from: usize, to: usize },
    /// An expected message that was not sent.
    Missing { from: usize, to: usize },
    /// An event in a lane.
    Point(usize),
    /// An event that concerns the whole job.
    Job,
    /// Omitted rows.
    Gap,
}

/// A row of the chart.
#[derive(Debug)]
pub(super) struct ChartRow<'a> {
    /// Number of the event, if the row shows an event.
    pub(super) seq: Option<u64>,
    pub(super) time_us: u64,
    pub(super) shape: RowShape,
    pub(super) what: String,
    /// The bytes of the message. The last `cut` bytes of the message are omitted.
    pub(super) bytes: Option<&'a [u8]>,
    pub(super) cut: usize,
    /// Requirements that the event breaks.
    pub(super) breaks: Vec<&'a str>,
}

/// The wait of a process in a barrier, from the row where the process enters to the row where it leaves or its connection closes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BarrierWait {
    pub(super) lane: usize,
    pub(super) from: usize,
    /// The row where the wait ends; `None` if it does not end.
    pub(super) to: Option<usize>,
}

/// The layout of a sequence chart.
#[derive(Debug)]
pub(in super::super) struct Chart<'a> {
    pub(super) lanes: Vec<String>,
    pub(super) rows: Vec<ChartRow<'a>>,
    pub(super) waits: Vec<BarrierWait>,
    /// Number of processes without a lane.
    pub(super) others: usize,
}

impl<'a> Chart<'a> {
    /// Lays out the events in a result, which are the last events of its scenario.
    pub(in super::super) fn of_result(result: &'a ScenarioResult) -> Self {
        let left_out = Some(result.left_out).filter(|number| *number > 0);
        let before = left_out.map(|number| format!("{} left out; see the log", text::count(number, "event")));
        Self::of(&result.last_events, 0, result, before)
    }

    /// Lays out the events of a scenario. `left_out` events are missing from the middle of `events`.
    pub(in super::super) fn of_events(
        events: &'a [Event],
        left_out: usize,
        result: &'a ScenarioResult,
    ) -> Self {
        Self::of(events, left_out, result, None)
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() || self.rows.iter().all(|row| row.seq.is_none())
    }

    pub(in super::super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Estimates the size of the chart in a page, in bytes. A row takes `row` bytes in addition to its text.
    pub(in super::super) fn size(&self, row: usize) -> usize {
        self.rows
            .iter()
            .map(|r| row + r.what.len().min(2 * MAX_EVENT_BYTES) + r.bytes.map_or(0, <[u8]>::len).min(4096))
            .sum()
    }

    fn of(events: &'a [Event], left_out: usize, result: &'a ScenarioResult, before: Option<String>) -> Self {
        let evidence = evidence(result.findings.iter().map(|judged| &judged.finding), events);
        let limit = |event: &Event| if evidence.contains(&event.seq) { usize::MAX } else { MAX_EVENT_BYTES };
        let mut shown: Vec<(&Event, EventDescription<'a>)> =
            events.iter().filter_map(|event| Some((event, describe(event, limit(event))?))).collect();
        let more = shown.len().saturating_sub(MAX_ROWS);
        shown.drain(FIRST_ROWS.min(shown.len())..(FIRST_ROWS + more).min(shown.len()));
        let gap = Some(more + left_out).filter(|more| *more > 0);
        let breaks = |seq| {
            let here = result.findings.iter().filter(|j| j.finding.seq == seq);
            let mut ids: Vec<&'a str> = here.map(|j| j.finding.requirement.as_str()).collect();
            ids.dedup();
            ids
        };
        let (lanes, others) = lanes(&shown, result);
        let lane = |party: Participant| lanes.get(&party).copied();
        let note = |what: String| ChartRow {
            seq: None,
            time_us: 0,
            shape: RowShape::Gap,
            what,
            bytes: None,
            cut: 0,
            breaks: Vec::new(),
        };
        let mut rows: Vec<ChartRow<'a>> = before.map(note).into_iter().collect();
        let mut waits = BarrierWaits::default();
        for (index, (event, EventDescription { proc, direction, what, bytes })) in
            shown.into_iter().enumerate()
        {
            if let Some(more) = gap.filter(|_| index == FIRST_ROWS) {
                rows.push(note(format!("{more} events are omitted here; the log contains them")));
            }
            let shape = match proc.map(|proc| shape(&event.kind, direction, proc, lane)) {
                None => RowShape::Job,
                Some(Some(shape)) => shape,
                Some(None) => continue,
            };
            if let Some(at) = proc.and_then(|proc| lane(Participant::of(proc))) {
                waits.record_event(at, &event.kind, direction, bytes.unwrap_or_default(), rows.len());
            }
            let (seq, time_us) = (Some(event.seq), event.time_us);
            rows.push(ChartRow {
                seq,
                time_us,
                shape,
                what,
                bytes,
                cut: event.cut,
                breaks: breaks(event.seq),
            });
        }
        // A missing response, or a job that does not end, has no event, so a row is added here.
        let absent = |j: &&JudgedFinding| !rows.iter().any(|row| row.seq == Some(j.finding.seq));
        let absent: Vec<&JudgedFinding> = result.findings.iter().filter(absent).take(MAX_FINDINGS).collect();
        for JudgedFinding { finding, .. } in absent {
            let at = rows.iter().position(|row| row.seq.is_some_and(|seq| seq > finding.seq));
            let at = at.unwrap_or(rows.len());
            let shape = finding
                .proc
                .and_then(|proc| lane(Participant::of(proc)))
                .map_or(RowShape::Job, RowShape::Point);
            let what = text::clip(&text::clean(&finding.seen), MAX_EVENT_BYTES);
            let time_us = at.checked_sub(1).map_or(0, |before| rows[before].time_us);
            waits.make_room(at);
            rows.insert(
                at,
                ChartRow {
                    seq: Some(finding.seq),
                    time_us,
                    shape,
                    what,
                    bytes: None,
                    cut: 0,
                    breaks: vec![&finding.requirement],
                },
            );
        }
        Self { lanes: lanes.into_keys().map(Participant::name).collect(), rows, waits: waits.all, others }
    }

    /// Returns whether the process of a lane is in a barrier at this row.
    pub(super) fn waits_at(&self, lane: usize, row: usize) -> bool {
        self.waits.iter().any(|w| w.lane == lane && w.from <= row && w.to.is_none_or(|to| row <= to))
    }
}

/// Returns the lane of each participant, and the number of processes without a lane.
fn lanes(
    shown: &[(&Event, EventDescription<'_>)],
    result: &ScenarioResult,
) -> (BTreeMap<Participant, usize>, usize) {
    let mut parties = BTreeSet::new();
    let mut others = BTreeSet::new();
    // Processes with findings get lanes before all others.
    let found = result.findings.iter().filter_map(|j| j.finding.proc);
    let described = shown.iter().filter_map(|(_, description)| description.proc);
    for proc in found.chain(described) {
        let party = Participant::of(proc);
        if parties.len() < MAX_LANES || parties.contains(&party) {
            parties.insert(party);
        } else {
            others.insert(party);
        }
    }
    for (_, description) in shown {
        match description.direction {
            EventDirection::ToServer | EventDirection::FromServer => parties.insert(Participant::Server),
            EventDirection::ToUpstream | EventDirection::FromUpstream => {
                parties.insert(Participant::Upstream)
            }
            EventDirection::None | EventDirection::Call => continue,
        };
    }
    (parties.into_iter().zip(0..).collect(), others.len())
}

/// Returns the shape of an event, or `None` if its process has no lane.
fn shape(
    kind: &EventKind,
    direction: EventDirection,
    proc: Proc,
    lane: impl Fn(Participant) -> Option<usize>,
) -> Option<RowShape> {
    let own = lane(Participant::of(proc))?;
    let arrow = |from, to| match kind {
        EventKind::NoResponse { .. } => RowShape::Missing { from, to },
        _ => RowShape::Arrow { from, to },
    };
    Some(match direction {
        EventDirection::None | EventDirection::Call => RowShape::Point(own),
        EventDirection::ToServer => arrow(own, lane(Participant::Server)?),
        EventDirection::FromServer => arrow(lane(Participant::Server)?, own),
        EventDirection::ToUpstream => arrow(own, lane(Participant::Upstream)?),
        EventDirection::FromUpstream => arrow(lane(Participant::Upstream)?, own),
    })
}

/// The waits of processes in barriers, including those that have ended.
#[derive(Debug, Default)]
struct BarrierWaits {
    all: Vec<BarrierWait>,
}

impl BarrierWaits {
    fn record_event(
        &mut self,
        lane: usize,
        kind: &EventKind,
        direction: EventDirection,
        bytes: &[u8],
        row: usize,
    ) {
        // A process whose connection is closed no longer waits.
        if matches!(
            kind,
            EventKind::ClosedByClient { .. }
                | EventKind::ClosedByServer { .. }
                | EventKind::Ended { .. }
                | EventKind::Exited { .. }
        ) {
            let open = self.all.iter_mut().filter(|w| w.lane == lane && w.to.is_none());
            open.for_each(|wait| wait.to = Some(row));
        }
        for command in commands(bytes) {
            if direction == EventDirection::ToServer && ENTER_COMMANDS.contains(&command) {
                self.all.push(BarrierWait { lane, from: row, to: None });
            } else if direction == EventDirection::FromServer
                && LEAVE_COMMANDS.contains(&command)
                && let Some(wait) = self.all.iter_mut().find(|w| w.lane == lane && w.to.is_none())
            {
                wait.to = Some(row);
            }
        }
    }

    /// Moves the beginning and the end of each wait down by one row if they are at or below the row `at`.
    fn make_room(&mut self, at: usize) {
        for wait in &mut self.all {
            wait.from += usize::from(wait.from >= at);
            wait.to = wait.to.map(|to| to + usize::from(to >= at));
        }
    }
}

/// Returns the commands of the messages that begin in these bytes, in either protocol. A message that is split over several writes may be
/// missed, which is acceptable in a drawing.
pub(super) fn commands(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    const WORD: &[u8] = b"cmd=";
    const HEADER: usize = 6;
    let begins = move |at: usize| {
        // A message starts at the beginning of a line, or after the digits and spaces of a frame's length.
        let line = at == 0 || bytes[at - 1] == b'\n';
        let length = |b: &u8| b.is_ascii_digit() || *b == b' ';
        line || (at >= HEADER && bytes[at - HEADER..at].iter().all(length))
    };
    let starts = bytes.windows(WORD.len()).enumerate().filter(|(_, window)| *window == WORD);
    starts.filter(move |(at, _)| begins(*at)).map(|(at, _)| {
        let rest = &bytes[at + WORD.len()..];
        let end = rest.iter().position(|b| matches!(b, b' ' | b';' | b'\n'));
        &rest[..end.unwrap_or(rest.len())]
    })
}
