//! Charts for pages: the positions of lines and text in SVG units. The page's template writes the elements and escapes the text.

use serde::Serialize;

use super::super::event_text;
use super::super::text;
use super::layout::{Chart, ChartRow, RowShape};

const ROW_HEIGHT: usize = 18;
/// Height of the lane names above the first row.
const HEAD_HEIGHT: usize = 24;
const MAX_LANE_WIDTH: usize = 64;
/// Minimum width of a lane, in which only a number fits.
const MIN_LANE_WIDTH: usize = 28;
/// Total width of all lanes if there are many.
const LANES_WIDTH: usize = 400;
/// Approximate width of a character of the text next to the lanes.
const CHARACTER_WIDTH: usize = 7;
/// Maximum number of bytes of a message that the page shows when the reader unfolds the message.
const MAX_UNFOLDED_BYTES: usize = 4096;
const DUMP_BYTES_PER_LINE: usize = 16;
/// Maximum number of bytes in the dump of a message that breaks a requirement.
const MAX_DUMP_BYTES: usize = 256;

/// The drawing of a chart for a page.
#[derive(Debug, Serialize)]
pub(in super::super) struct Drawing {
    width: usize,
    height: usize,
    lanes: Vec<Lane>,
    waits: Vec<ChartLine>,
    rows: Vec<DrawnRow>,
    /// A description of the chart for screen readers.
    title: String,
    /// The messages that the page shows when the reader unfolds them: those that are cut next to their arrows, and those that break a
    /// requirement.
    bytes: Vec<RawMessage>,
    others: usize,
}

#[derive(Debug, Serialize)]
struct Lane {
    x: usize,
    name: String,
}

#[derive(Debug, Serialize)]
struct ChartLine {
    x: usize,
    from: usize,
    to: usize,
}

#[derive(Debug, Serialize)]
struct DrawnRow {
    y: usize,
    /// Number of the event; empty if the row does not show an event.
    seq: String,
    x: usize,
    what: String,
    arrow: Option<Arrow>,
    point: Option<usize>,
    breaks: String,
}

#[derive(Debug, Serialize)]
struct Arrow {
    from: usize,
    to: usize,
    /// Horizontal position of the arrowhead's two rear corners.
    back: usize,
    missing: bool,
}

#[derive(Debug, Serialize)]
struct RawMessage {
    seq: u64,
    text: String,
    dump: String,
}

impl Drawing {
    pub(in super::super) fn of(chart: &Chart<'_>) -> Self {
        let lane = MAX_LANE_WIDTH.min(LANES_WIDTH / chart.lanes.len().max(1)).max(MIN_LANE_WIDTH);
        let named = |name: &String| match name.strip_prefix("rank ") {
            Some(number) if lane < MAX_LANE_WIDTH => number.to_owned(),
            _ => name.clone(),
        };
        let numbers = 5 * CHARACTER_WIDTH;
        let x = |at: usize| numbers + lane / 2 + at * lane;
        let words = numbers + chart.lanes.len() * lane + CHARACTER_WIDTH;
        let y = |row: usize| HEAD_HEIGHT + row * ROW_HEIGHT + ROW_HEIGHT / 2;
        let last = chart.rows.len().saturating_sub(1);
        let drawn = |(index, row): (usize, &ChartRow<'_>)| {
            let arrow = |from: usize, to: usize, missing| {
                let (from, to) = (x(from), x(to));
                Arrow { from, to, back: if from < to { to - 7 } else { to + 7 }, missing }
            };
            let breaks: Vec<String> = row.breaks.iter().map(|id| text::clean(id)).collect();
            DrawnRow {
                y: y(index),
                seq: row.seq.map(|seq| seq.to_string()).unwrap_or_default(),
                x: words,
                what: text::clip(&row.what, 4 * event_text::MAX_EVENT_BYTES),
                arrow: match row.shape {
                    RowShape::Arrow { from, to } => Some(arrow(from, to, false)),
                    RowShape::Missing { from, to } => Some(arrow(from, to, true)),
                    RowShape::Point(_) | RowShape::Job | RowShape::Gap => None,
                },
                point: match row.shape {
                    RowShape::Point(at) => Some(x(at)),
                    _ => None,
                },
                breaks: breaks.join(", "),
            }
        };
        let rows: Vec<DrawnRow> = chart.rows.iter().enumerate().map(drawn).collect();
        let longest = rows.iter().map(|row| row.what.chars().count() + row.breaks.chars().count() + 9).max();
        let waits = chart.waits.iter().map(|wait| ChartLine {
            x: x(wait.lane),
            from: y(wait.from),
            to: y(wait.to.unwrap_or(last)),
        });
        let waits = waits.collect();
        Self {
            width: words + longest.unwrap_or(0) * CHARACTER_WIDTH,
            height: HEAD_HEIGHT + chart.rows.len() * ROW_HEIGHT + ROW_HEIGHT / 2,
            lanes: (0..).zip(&chart.lanes).map(|(at, name)| Lane { x: x(at), name: named(name) }).collect(),
            waits,
            rows,
            title: format!(
                "Sequence chart: {} between {}",
                text::count(chart.rows.iter().filter(|row| row.seq.is_some()).count(), "event"),
                chart.lanes.join(", ")
            ),
            bytes: chart.rows.iter().filter_map(raw).collect(),
            others: chart.others,
        }
    }
}

/// Returns the message of a row, with up to [`MAX_UNFOLDED_BYTES`] bytes. Returns `None` for a row without a message, or if the text next
/// to the arrow shows the whole message and the message breaks no requirement.
fn raw(row: &ChartRow<'_>) -> Option<RawMessage> {
    let (seq, bytes) = (row.seq?, row.bytes?);
    let broken = !row.breaks.is_empty();
    let is_long = bytes.len() > event_text::MAX_EVENT_BYTES;
    (broken || is_long).then(|| RawMessage {
        seq,
        text: text::bytes(bytes, MAX_UNFOLDED_BYTES, row.cut),
        dump: if broken { dump(bytes, row.cut) } else { String::new() },
    })
}

/// Formats bytes as a hex dump.
fn dump(bytes: &[u8], cut: usize) -> String {
    let lines = bytes[..bytes.len().min(MAX_DUMP_BYTES)].chunks(DUMP_BYTES_PER_LINE).enumerate().map(
        |(line, chunk)| {
            let numbers: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
            let shown =
                |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
            let shown: String = chunk.iter().map(shown).collect();
            format!("{:06x}  {:47}  {shown}\n", line * DUMP_BYTES_PER_LINE, numbers.join(" "))
        },
    );
    let mut text: String = lines.collect();
    if bytes.len() > MAX_DUMP_BYTES || cut > 0 {
        text += &format!("... ({} bytes)\n", bytes.len() + cut);
    }
    text
}
