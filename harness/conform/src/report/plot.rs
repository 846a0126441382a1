//! Plots: positions of values, and SVG paths through them.

use std::fmt::Write as _;

use serde::Serialize;

/// The size of a plot, and the positions of its axes.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Area {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Horizontal position of the vertical axis.
    pub(super) left: f64,
    /// Horizontal position where the horizontal axis ends.
    pub(super) right: f64,
    /// Vertical position where the vertical axis ends.
    pub(super) top: f64,
    /// Vertical position of the horizontal axis.
    pub(super) floor: f64,
}

impl Area {
    /// Returns the horizontal position of a value at the fraction `along` of the horizontal axis.
    pub(super) fn x(self, along: f64) -> f64 {
        self.left + along * (self.right - self.left)
    }

    /// Returns the vertical position of a value at the fraction `up` of the vertical axis.
    pub(super) fn y(self, up: f64) -> f64 {
        self.floor - up * (self.floor - self.top)
    }
}

/// Returns the SVG path through these points.
pub(super) fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let order = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{order}{x:.1} {y:.1}");
    }
    path
}

pub(super) fn at(place: f64) -> String {
    format!("{place:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_path_maps_data_to_the_plot_area() {
        let area = Area { width: 100.0, height: 60.0, left: 10.0, right: 90.0, top: 5.0, floor: 50.0 };
        let corners = [(0.0, 0.0), (0.5, 0.2), (1.0, 1.0)];
        assert_eq!(path(corners.map(|(x, y)| (area.x(x), area.y(y)))), "M10.0 50.0L50.0 41.0L90.0 5.0");
        assert_eq!(path([]), "");
    }
}
