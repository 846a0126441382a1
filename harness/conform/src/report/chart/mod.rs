//! Sequence charts: who said what to whom, time downward. `layout` lays them out; they are drawn as text by `text` and as SVG by `svg`.

mod layout;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub(super) use layout::Chart;
pub(super) use svg::Drawing;
pub(super) use text::write;
