//! The results of `measure`: as a table, and as a page with a plot for each quantity.

use std::fmt::Write as _;
use std::io;

use pmi_runner::measure::{MeasuredPhase, Measurement, Soak, SoakSample, growth, memory_per_rank};
use serde::Serialize;

use super::plot::{Area, at, path};
use super::{page, text};

/// A row of the table: a phase, or another quantity that was measured.
#[derive(Clone, Copy)]
enum MeasureRow {
    Phase(&'static str, MeasuredPhase),
    Requests,
    Memory,
}

impl MeasureRow {
    /// Returns the rows that have measurements.
    fn all<'a>(measured: impl Iterator<Item = &'a [Measurement]> + Clone) -> Vec<Self> {
        let phases = MeasuredPhase::NAMES.into_iter().map(|(name, phase)| Self::Phase(name, phase));
        let rows = phases.chain([Self::Requests, Self::Memory]);
        rows.filter(|row| measured.clone().flatten().any(|of| row.of(of).is_some())).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Phase(name, _) => name,
            Self::Requests => "requests",
            Self::Memory => "memory",
        }
    }

    fn of(self, measured: &Measurement) -> Option<f64> {
        match self {
            Self::Phase(_, phase) => measured.seconds.get(&phase).copied(),
            Self::Requests => measured.requests_per_second,
            Self::Memory => Some(measured.memory as f64).filter(|bytes| *bytes > 0.0),
        }
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::Phase(..) if value < 0.001 => format!("{:.0} us", value * 1e6),
            Self::Phase(..) if value < 1.0 => format!("{:.2} ms", value * 1e3),
            Self::Phase(..) => format!("{value:.2} s"),
            Self::Requests => format!("{value:.0}/s"),
            Self::Memory => format!("{:.1} MiB", value / f64::from(1 << 20)),
        }
    }

    /// Formats the growth of the quantity as a power of the number of ranks.
    fn grows(self, measured: &[Measurement]) -> String {
        let points: Vec<_> = measured.iter().filter_map(|here| Some((here.ranks, self.of(here)?))).collect();
        // Avoid "-0.0".
        let power = growth(&points).map(|power| if power.abs() < 0.05 { 0.0 } else { power });
        power.map_or_else(|| "-".to_owned(), |power| format!("n^{power:.1}"))
    }

    /// Returns the cells of the row: one per number of ranks, and the growth. `first` contains the measurements to compare with.
    fn cells(self, measured: &[Measurement], first: Option<&[Measurement]>) -> Vec<String> {
        let cell = |(at, here): (usize, &Measurement)| {
            let Some(value) = self.of(here) else { return "-".to_owned() };
            let times = first.and_then(|first| Some(value / self.of(first.get(at)?)?));
            times.map_or(self.shown(value), |times| format!("{} ({times:.2}x)", self.shown(value)))
        };
        measured.iter().enumerate().map(cell).chain([self.grows(measured)]).collect()
    }
}

/// Returns the headings of the columns.
fn head(measured: &[Measurement]) -> Vec<String> {
    let counts = measured.iter().map(|of| text::count(of.ranks as usize, "rank"));
    counts.chain(["grows as".to_owned()]).collect()
}

/// Formats the memory per key and per rank.
fn memory(measured: &[Measurement]) -> Option<String> {
    let per_key = measured.last().filter(|of| of.memory > 0)?.memory_per_key?;
    let mut memory_text = format!("memory: {per_key:.0} bytes for each additional key");
    if let Some(per_rank) = memory_per_rank(measured) {
        // A negative value is noise, so it is shown as 0.
        let _ = write!(memory_text, ", {:.1} KiB for each additional rank", per_rank.max(0.0) / 1024.0);
    }
    Some(memory_text)
}

/// Formats a table whose first row contains the headings.
fn table(label: &str, rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> =
        widths.iter().map(|width| format!("{}:", "-".repeat(width.saturating_sub(1)))).collect();
    let mut shown = format!("{}\n\n{}{}", text::clean(label), line(&rows[0]), line(&rule));
    rows[1..].iter().for_each(|row| shown.push_str(&line(row)));
    shown
}

/// Formats the measurements of a process manager, compared with `first`.
pub(crate) fn measure_text(label: &str, measured: &[Measurement], first: Option<&[Measurement]>) -> String {
    let with = |name: &str, cells: Vec<String>| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let mut rows = vec![with("median", head(measured))];
    let all = MeasureRow::all(std::iter::once(measured));
    rows.extend(all.into_iter().map(|row| with(row.name(), row.cells(measured, first))));
    let mut shown = table(label, &rows);
    if let Some(memory_text) = memory(measured) {
        let _ = write!(shown, "\n{memory_text}\n");
    }
    shown
}

const AREA: Area = Area { width: 420.0, height: 220.0, left: 62.0, right: 406.0, top: 12.0, floor: 198.0 };

/// Number of distinct line colours.
const COLOURS: usize = 6;

#[derive(Serialize)]
struct MeasurePage {
    version: &'static str,
    /// A sentence about the run.
    about: String,
    /// The quantity on the horizontal axis.
    by: &'static str,
    /// A sentence about the axes.
    axes: &'static str,
    #[serde(flatten)]
    area: Area,
    managers: Vec<MeasuredManager>,
    plots: Vec<Plot>,
}

#[derive(Serialize)]
struct MeasuredManager {
    label: String,
    colour: usize,
    head: Vec<String>,
    /// The name and the cells of each row.
    rows: Vec<(String, Vec<String>)>,
    memory: Option<String>,
}

/// A quantity plotted against the number of ranks. Both axes are logarithmic, so a power law is a straight line.
#[derive(Serialize)]
struct Plot {
    name: &'static str,
    across: Vec<Tick>,
    up: Vec<Tick>,
    lines: Vec<MeasureLine>,
}

/// The position and the label of a mark on an axis.
type Tick = (String, String);

#[derive(Serialize)]
struct MeasureLine {
    colour: usize,
    /// The path of the line, in SVG syntax.
    path: String,
    points: Vec<Point>,
}

#[derive(Serialize)]
struct Point {
    x: String,
    y: String,
    what: String,
}

/// A place in a plot, with the text that describes it.
type PlacedText = (f64, f64, String);

impl MeasureLine {
    /// Returns the line of a process manager through these places.
    fn through(number: usize, manager: &str, places: &[PlacedText]) -> Self {
        let manager = text::clip(&text::clean(manager), 80);
        let point =
            |(x, y, what): &PlacedText| Point { x: at(*x), y: at(*y), what: format!("{manager}: {what}") };
        Self {
            colour: number % COLOURS,
            path: path(places.iter().map(|(x, y, _)| (*x, *y))),
            points: places.iter().map(point).collect(),
        }
    }
}

/// Returns the page with the measurements of these process managers.
///
/// # Errors
///
/// Returns an error if the template does not match its data; see [`page::render`].
pub(crate) fn measure_page(
    managers: &[(&str, &[Measurement])],
    protocol: &'static str,
    rounds: u32,
    nodes: u32,
) -> io::Result<String> {
    let rows = MeasureRow::all(managers.iter().map(|(_, measured)| *measured));
    let manager = |(at, (label, measured)): (usize, &(&str, &[Measurement]))| {
        let first = (at > 0).then_some(managers[0].1);
        MeasuredManager {
            label: text::clip(&text::clean(label), 300),
            colour: at % COLOURS,
            head: head(measured),
            rows: rows.iter().map(|row| (row.name().to_owned(), row.cells(measured, first))).collect(),
            memory: memory(measured),
        }
    };
    let data = MeasurePage {
        version: env!("CARGO_PKG_VERSION"),
        about: format!(
            "{protocol}, {}; {} for each number of ranks. All ranks send their requests at the same time, and each time ends when the \
             last rank has its response.",
            place_of(nodes),
            if rounds == 1 { "one launch".to_owned() } else { format!("medians of {rounds} launches") },
        ),
        by: "the number of ranks",
        axes: "Both axes are logarithmic, so a power law in the number of ranks is a straight line.",
        area: AREA,
        managers: managers.iter().enumerate().map(manager).collect(),
        plots: rows.iter().map(|row| plot(*row, managers)).collect(),
    };
    page::render("measure.html", data)
}

/// Describes the nodes of a run.
fn place_of(nodes: u32) -> String {
    if nodes == 1 { "on one node".to_owned() } else { format!("over {nodes} nodes") }
}

/// Maximum number of samples in the table of a soak test.
const SHOWN_SAMPLES: usize = 11;

/// The headings of a soak test's columns, except the time.
const SOAK_HEAD: [&str; 3] = ["requests", "memory", "descriptors"];

/// Returns the time of a sample and its other cells.
fn soak_row(sample: &SoakSample) -> (String, Vec<String>) {
    let memory = MeasureRow::Memory.shown(sample.memory as f64);
    let cells = vec![sample.requests.to_string(), memory, sample.descriptors.to_string()];
    (format!("{:.1} s", sample.seconds), cells)
}

/// Returns the rows for a selection of the samples, including the first and the last sample.
fn soak_rows(soak: &Soak) -> Vec<(String, Vec<String>)> {
    let step = soak.samples.len().div_ceil(SHOWN_SAMPLES).max(1);
    let last = soak.samples.len().saturating_sub(1);
    let shown = soak.samples.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    shown.map(|(_, sample)| soak_row(sample)).collect()
}

/// Formats the findings of a soak test, and the growth of memory in the second half of the test, in which no keys are put.
fn soak_summary(soak: &Soak) -> String {
    let half = soak.samples.get(soak.samples.len() / 2).filter(|sample| sample.memory > 0);
    let growth = half.zip(soak.samples.last()).map(|(half, last)| {
        let requests = last.requests.saturating_sub(half.requests).max(1);
        let grown = (last.memory as f64 - half.memory as f64) / requests as f64;
        format!("memory: {:.1} bytes for each additional request in the second half\n", grown.max(0.0))
    });
    let history = match soak.findings.len() {
        0 => "history: all responses are consistent with one order of the operations\n".to_owned(),
        count => format!("history: {}\n", text::count(count, "finding")),
    };
    growth.unwrap_or_default() + &history
}

/// Formats a soak test of a process manager.
pub(crate) fn soak_text(label: &str, soak: &Soak) -> String {
    let head = std::iter::once("time").chain(SOAK_HEAD).map(str::to_owned).collect();
    let rows = soak_rows(soak).into_iter().map(|(time, cells)| std::iter::once(time).chain(cells).collect());
    let mut shown = table(label, &std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let _ = write!(shown, "\n{}", soak_summary(soak));
    for (finding, messages) in soak.findings.iter().zip(&soak.messages) {
        let _ = writeln!(
            shown,
            "\n{}: expected {}; seen: {}",
            finding.requirement,
            text::clean(&finding.expected),
            text::clean(&finding.seen)
        );
        for message in messages {
            let _ = writeln!(shown, "    {}", text::clean(message));
        }
    }
    shown
}

/// Returns the page with the soak tests of these process managers.
///
/// # Errors
///
/// Returns an error if the template does not match its data; see [`page::render`].
pub(crate) fn soak_page(all: &[(&str, Soak)], protocol: &'static str, nodes: u32) -> io::Result<String> {
    let manager = |(at, (label, soak)): (usize, &(&str, Soak))| MeasuredManager {
        label: text::clip(&text::clean(label), 300),
        colour: at % COLOURS,
        head: SOAK_HEAD.map(str::to_owned).to_vec(),
        rows: soak_rows(soak),
        memory: Some(soak_summary(soak)),
    };
    let ranks = all.first().map_or(0, |(_, soak)| soak.ranks);
    let data = MeasurePage {
        version: env!("CARGO_PKG_VERSION"),
        about: format!(
            "{protocol}, {} {}. In the first fifth of the requests, the ranks also put keys.",
            text::count(ranks as usize, "rank"),
            place_of(nodes)
        ),
        by: "time",
        axes: "Both axes are linear and begin at zero.",
        area: AREA,
        managers: all.iter().enumerate().map(manager).collect(),
        plots: vec![
            soak_plot(
                "memory",
                all,
                |sample| sample.memory as f64,
                |value| format!("{:.1} MiB", value / f64::from(1 << 20)),
            ),
            soak_plot("descriptors", all, |sample| sample.descriptors as f64, |value| format!("{value:.0}")),
        ],
    };
    page::render("measure.html", data)
}

/// Plots a quantity of soak tests against time.
fn soak_plot(
    name: &'static str,
    all: &[(&str, Soak)],
    of: fn(&SoakSample) -> f64,
    shown: fn(f64) -> String,
) -> Plot {
    let most = |of: fn(&SoakSample) -> f64| {
        all.iter().flat_map(|(_, soak)| &soak.samples).map(of).fold(1e-9, f64::max)
    };
    let (longest, highest) = (most(|sample| sample.seconds), most(of));
    let place = |sample: &SoakSample| {
        let what = format!("{} at {:.1} s", shown(of(sample)), sample.seconds);
        (AREA.x(sample.seconds / longest), AREA.y(of(sample) / highest), what)
    };
    let line = |(number, (label, soak)): (usize, &(&str, Soak))| {
        MeasureLine::through(number, label, &soak.samples.iter().map(place).collect::<Vec<_>>())
    };
    let quarters = || (0..=4).map(|quarter| f64::from(quarter) / 4.0);
    Plot {
        name,
        across: quarters().map(|along| (at(AREA.x(along)), format!("{:.0} s", along * longest))).collect(),
        up: quarters().map(|up| (at(AREA.y(up)), shown(up * highest))).collect(),
        lines: all.iter().enumerate().map(line).collect(),
    }
}

/// Returns the position of a value on a logarithmic axis, from 0 to 1.
fn place(value: f64, least: f64, most: f64) -> f64 {
    if most > least { (value / least).ln() / (most / least).ln() } else { 0.5 }
}

fn plot(row: MeasureRow, managers: &[(&str, &[Measurement])]) -> Plot {
    let all = || managers.iter().flat_map(|(_, measured)| measured.iter());
    let values: Vec<f64> = all().filter_map(|of| row.of(of)).filter(|value| *value > 0.0).collect();
    // The axis covers a whole number of decades, at least one.
    let least = 10f64.powf(values.iter().copied().fold(f64::INFINITY, f64::min).log10().floor());
    let most = 10f64.powf(values.iter().copied().fold(0.0, f64::max).log10().ceil()).max(least * 10.0);
    let ranks: Vec<u32> = managers[0].1.iter().map(|of| of.ranks).collect();
    let (first, last) = (ranks.first().copied().unwrap_or(1), ranks.last().copied().unwrap_or(1));
    let x = |n: u32| AREA.x(place(n.into(), first.into(), last.into()));
    let y = |value: f64| AREA.y(place(value, least, most));
    let place = |of: &Measurement| {
        let value = row.of(of).filter(|value| *value > 0.0)?;
        let what = format!("{} at {}", row.shown(value), text::count(of.ranks as usize, "rank"));
        Some((x(of.ranks), y(value), what))
    };
    let line = |(number, (label, measured)): (usize, &(&str, &[Measurement]))| {
        MeasureLine::through(number, label, &measured.iter().filter_map(place).collect::<Vec<_>>())
    };
    let decades = (least.log10().round() as i32)..=(most.log10().round() as i32);
    // Omit labels that would overlap.
    let step = ranks.len().div_ceil(8).max(1);
    Plot {
        name: row.name(),
        across: ranks.iter().rev().step_by(step).map(|n| (at(x(*n)), n.to_string())).collect(),
        up: decades.map(|power| (at(y(10f64.powi(power))), tick(row, 10f64.powi(power)))).collect(),
        lines: managers.iter().enumerate().map(line).collect(),
    }
}

/// Formats the label of a power of ten.
fn tick(row: MeasureRow, value: f64) -> String {
    match row {
        MeasureRow::Phase(..) if value < 0.00099 => format!("{:.0} us", value * 1e6),
        MeasureRow::Phase(..) if value < 0.99 => format!("{:.0} ms", value * 1e3),
        MeasureRow::Phase(..) => format!("{value:.0} s"),
        MeasureRow::Requests => format!("{value:.0}"),
        MeasureRow::Memory if value < 0.99e6 => format!("{:.0} kB", value / 1e3),
        MeasureRow::Memory if value < 0.99e9 => format!("{:.0} MB", value / 1e6),
        MeasureRow::Memory => format!("{:.0} GB", value / 1e9),
    }
}
