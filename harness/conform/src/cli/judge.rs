//! `report judge`: judges the log of a run again.

use std::time::Duration;

use crate::report::{LogPart, Run, Verbosity, read_parts};
use pmi_judge::deviations::Deviations;
use pmi_judge::log_judge;
use pmi_judge::result::{self, RunFacts};

use super::args::Again;
use super::output::write_report;
use super::read::{open_log, read_deviations, suite_against};

/// Judges a log again with the deviations from the command line instead of those in the log.
pub(super) fn judge(args: &Again) -> anyhow::Result<u8> {
    let suite = suite_against(&args.against)?;
    let mut judging: Option<(log_judge::LogJudge<'_>, Deviations)> = None;
    let (mut judged, mut unread) = (Vec::new(), None);
    let (name, log) = open_log(&args.log)?;
    let run = read_parts(&name, log, true, &mut |part| match (part, &mut judging) {
        (LogPart::Header(header), _) => {
            let deviations = match &args.deviations {
                Some(path) => read_deviations(path, None, header.connection, &suite),
                None => Ok(Deviations::default()),
            };
            match deviations {
                Ok(deviations) => {
                    let strict = args.strict.unwrap_or(header.strict);
                    judging = Some((log_judge::LogJudge::new(header, &suite, strict), deviations));
                }
                Err(error) => unread = Some(error),
            }
        }
        (LogPart::Event(scenario, event), Some((again, _))) => again.event(scenario, event),
        (LogPart::Result(result), Some((again, deviations))) => judged.push(again.result(result, deviations)),
        (LogPart::Event(..) | LogPart::Result(_), None) => {}
    })?;
    if let Some(error) = unread {
        return Err(error);
    }
    let deviations = judging.map(|(_, deviations)| deviations).unwrap_or_default();
    let mut header = run.header;
    header.strict = args.strict.unwrap_or(header.strict);
    let facts = RunFacts {
        selected: header.selected,
        interrupted: false,
        scenario_errors: false,
        strict: header.strict,
        // Scenarios run in parallel, so the sum of their durations is not the duration of the run.
        time: Duration::from_micros(run.end.as_ref().map_or(0, |end| end.time_us)),
    };
    let end = result::run_end(&judged, &deviations, facts);
    let status = end.exit_code as u8;
    let run = Run { header, results: judged, end: Some(end), ..run };
    write_report(&run, args.format, Verbosity::of(args.verbose), None)?;
    Ok(status)
}
