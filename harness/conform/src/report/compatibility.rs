//! Compatibility of a client and a server, as text.

use std::io::{self, Write};

use super::text;
use pmi_judge::compatibility::{Compatibility, MessageSupport, Sender};

/// Writes the incompatible messages, then those whose compatibility is unknown, and finally the names of the compatible
/// messages.
///
/// # Errors
///
/// Returns an error if writing to `out` fails.
pub(crate) fn write_compatibility(this: &Compatibility, out: &mut impl Write) -> io::Result<()> {
    for (fit, grade) in [(MessageSupport::Incompatible, "BREAKS"), (MessageSupport::Unknown, "unknown")] {
        for row in this.rows.iter().filter(|row| row.support == fit) {
            let message = match row.sender {
                Sender::Client => text::clean(&row.command),
                Sender::Server => format!("response to {}", text::clean(&row.command)),
            };
            writeln!(out, "{grade:7}  {}  {message}: {}", row.dialect, text::clean(&row.reason))?;
        }
    }
    let fits = this
        .rows
        .iter()
        .filter(|row| row.support == MessageSupport::Compatible && row.sender == Sender::Client);
    let mut names: Vec<String> = fits.map(|row| text::clean(&row.command)).collect();
    names.dedup();
    if !names.is_empty() {
        writeln!(out, "fits     {}", names.join(", "))?;
    }
    writeln!(
        out,
        "\n{} not understood, {} unknown, {} fit",
        this.count(MessageSupport::Incompatible),
        this.count(MessageSupport::Unknown),
        this.count(MessageSupport::Compatible)
    )
}
