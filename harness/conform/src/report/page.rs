//! The templates of pages. The template engine escapes all data. Styles and scripts contain no data.

use std::io;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;

const TEMPLATES: [(&str, &str); 8] = [
    ("campaign.html", include_str!("page/campaign.html")),
    ("measure.html", include_str!("page/measure.html")),
    ("run.html", include_str!("page/run.html")),
    ("matrix.html", include_str!("page/matrix.html")),
    ("badge.svg", include_str!("page/badge.svg")),
    ("chart.svg", include_str!("page/chart.svg")),
    ("style.css", include_str!("page/style.css")),
    ("filter.js", include_str!("page/filter.js")),
];

/// Renders a template.
///
/// # Errors
///
/// Returns an error if the template does not match its data, which the tests of the pages rule out.
pub(super) fn render(name: &str, data: impl Serialize) -> io::Result<String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| match name.rsplit_once('.') {
        Some((_, "css" | "js" | "md")) => AutoEscape::None,
        _ => AutoEscape::Html,
    });
    for (name, source) in TEMPLATES {
        environment.add_template(name, source).map_err(io::Error::other)?;
    }
    let template = environment.get_template(name).map_err(io::Error::other)?;
    template.render(Serde(data)).map_err(io::Error::other)
}
