//! Sequence charts of messages, with time running downward. `layout` computes the rows; `text` and `svg` draw them.

mod layout;
mod svg;
#[cfg(test)]
mod tests;
mod text;

pub(super) use layout::Chart;
pub(super) use svg::Drawing;
pub(super) use text::write;
