//! The table of `measure`.

use pmi_runner::measure::{Measured, Phase, growth};

use super::text::clean;

/// What came of one process manager. `times` says how often the same takes of the first one that was measured.
pub(crate) fn measure_text(label: &str, measured: &[Measured], first: Option<&[Measured]>) -> String {
    let mut rows = vec![head(measured)];
    for (name, phase) in Phase::NAMES {
        let of = |measured: &Measured| measured.seconds.get(&phase).copied();
        let shown = |seconds: f64| match seconds {
            s if s < 0.001 => format!("{:.0} us", s * 1e6),
            s if s < 1.0 => format!("{:.2} ms", s * 1e3),
            s => format!("{s:.2} s"),
        };
        rows.push(row(name, measured, first, &of, &shown));
    }
    let bytes = |measured: &Measured| Some(measured.memory as f64).filter(|bytes| *bytes > 0.0);
    rows.push(row("memory", measured, first, &bytes, &|bytes| {
        format!("{:.1} MiB", bytes / f64::from(1 << 20))
    }));
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
    let mut text = format!("{}\n\n{}{}", clean(label), line(&rows[0]), line(&rule));
    rows[1..].iter().for_each(|row| text.push_str(&line(row)));
    text
}

fn head(measured: &[Measured]) -> Vec<String> {
    let counts = measured.iter().map(|of| match of.ranks {
        1 => "1 rank".to_owned(),
        n => format!("{n} ranks"),
    });
    ["median".to_owned()].into_iter().chain(counts).chain(["grows as".to_owned()]).collect()
}

fn row(
    name: &str,
    measured: &[Measured],
    first: Option<&[Measured]>,
    of: &dyn Fn(&Measured) -> Option<f64>,
    shown: &dyn Fn(f64) -> String,
) -> Vec<String> {
    let mut cells = vec![name.to_owned()];
    for (at, here) in measured.iter().enumerate() {
        let times = first.and_then(|first| Some(of(here)? / of(first.get(at)?)?));
        cells.push(match (of(here), times) {
            (None, _) => "-".to_owned(),
            (Some(value), None) => shown(value),
            (Some(value), Some(times)) => format!("{} ({times:.2}x)", shown(value)),
        });
    }
    let points: Vec<(u32, f64)> = measured.iter().filter_map(|here| Some((here.ranks, of(here)?))).collect();
    // Nobody wants to read -0.0.
    let power = growth(&points).map(|power| if power.abs() < 0.05 { 0.0 } else { power });
    cells.push(power.map_or_else(|| "-".to_owned(), |power| format!("n^{power:.1}")));
    cells
}
