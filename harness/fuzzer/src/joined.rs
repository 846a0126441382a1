//! Commands of PMI-2 that come in several messages.

use pmi_wire::pmi2::{Command, Concat, Request, Semicolons, Series};

/// Commands that come in several messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joined {
    concat: Concat,
    series: Option<Series>,
}

impl Joined {
    /// Takes in the body of a frame. `None` if more belongs to it; else the command that it completes, if there is such a one, and
    /// whether it says all that it has to.
    pub(crate) fn push(&mut self, body: &[u8]) -> Option<(Option<Command>, bool)> {
        let whole = match self.concat.push(body, Semicolons::Doubled) {
            Ok(whole) => whole?,
            // It belongs to nothing.
            Err(_) => return Some((Some(Command::Concat), false)),
        };
        let name = whole.strip_prefix(b"cmd=").and_then(|rest| rest.split(|b| *b == b';').next());
        let command = name.and_then(Command::from_name);
        let Ok(request) = Request::parse(&whole, Semicolons::Doubled) else { return Some((command, false)) };
        let going_on = self.series.take().and_then(|mut series| {
            let belongs = series.push(&request).is_ok();
            belongs.then_some(series)
        });
        let Some(series) = going_on.or_else(|| Series::begun_by(&request)?.ok()) else {
            return Some((command, !request.is_one_of_several()));
        };
        let of = if series.is_spawn() { Command::Spawn } else { Command::KvsPutall };
        match series.finish() {
            Ok(_) => Some((Some(of), true)),
            Err(series) => {
                self.series = Some(series);
                None
            }
        }
    }
}
