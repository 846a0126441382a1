//! The text output of `doctor --versions`.

use pmi_runner::versions::VersionRow;

use super::text::clean;

/// Formats the table, which is also valid Markdown.
pub(crate) fn versions_text(label: &str, rows: &[VersionRow]) -> String {
    let cells = |row: &VersionRow| [clean(&row.offered), clean(&row.answered), clean(&row.reaction)];
    let head = ["offered", "answered", "what follows"].map(str::to_owned);
    let all: Vec<[String; 3]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 3]| {
        let [a, b, c] = row;
        format!("| {a:0$} | {b:1$} | {c:2$} |\n", widths[0], widths[1], widths[2])
    };
    let rule = widths.map(|width| "-".repeat(width));
    let mut text = format!("{}\n\n", clean(label));
    text.push_str(&line(&all[0]));
    text.push_str(&line(&rule));
    all[1..].iter().for_each(|row| text.push_str(&line(row)));
    text
}
