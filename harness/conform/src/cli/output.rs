//! Output to the user: standard output, reports and errors.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use pmi_runner::suite::FilesError;
use pmi_scenario::suite::SuiteError;
use serde::Serialize;

use crate::report::{Format, Run, Verbosity, render, write_reproducers};

/// The end of an error about an unknown scenario.
pub(super) const SCENARIO_LIST_HINT: &str = "`pmi-conform scenario list` lists all scenarios";

/// Writes to standard output. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// Prints a result as JSON, or as the text that `write` produces.
pub(super) fn print_result(
    json: bool,
    result: &impl Serialize,
    write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut text = Vec::new();
    if json {
        serde_json::to_writer_pretty(&mut text, result)?;
        text.push(b'\n');
    } else {
        write(&mut text)?;
    }
    print(&String::from_utf8_lossy(&text))
}

/// Writes a note to standard error. A write error is ignored, because it cannot be reported anywhere.
pub(super) fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "note: {text}");
}

/// Writes the report of a run to a file or folder, or to standard output.
pub(super) fn write_report(
    run: &Run,
    format: Format,
    verbosity: Verbosity,
    path: Option<&Path>,
) -> anyhow::Result<()> {
    if let (Format::Python, Some(folder)) = (format, path) {
        return write_reproducers(run, folder).with_context(|| folder.display().to_string());
    }
    let mut text = Vec::new();
    render(run, format, verbosity, &mut text)?;
    match path {
        Some(path) => std::fs::write(path, text).with_context(|| path.display().to_string()),
        // A capture is binary, not text.
        None if format == Format::Pcapng => Ok(io::stdout().write_all(&text)?),
        None => print(&String::from_utf8_lossy(&text)),
    }
}

/// Rendered diagnostics for scenario files, with the source lines. They are printed without the prefix `error:`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct RenderedDiagnostics(String);

/// Returns an error that lists all mistakes in scenario files.
pub(super) fn scenario_errors(error: FilesError) -> anyhow::Error {
    match error {
        FilesError::Suite(SuiteError::Diagnostics(all)) => {
            let color = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
            RenderedDiagnostics(all.iter().map(|d| d.render(color)).collect::<Vec<_>>().join("\n")).into()
        }
        other => other.into(),
    }
}
