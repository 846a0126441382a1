//! `record` and `interop`: record real sessions through the tap, and judge them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::report::{LogWriter, Terminal, TerminalOptions, Verbosity, count};
use anyhow::Context;
use pmi_judge::PartyKind;
use pmi_judge::builtin_requirements::NO_CRASH;
use pmi_judge::event::Event;
use pmi_judge::verdict::{LogLine, ScenarioResult};
use pmi_process::agent;
use pmi_process::stop::StopSignals;
use pmi_record::recorded_responses::answers;
use pmi_record::script::script;
use pmi_record::tap::{self, position};
use pmi_record::{interop, result, session};

use super::args::{Interop, Record};
use super::output::print_result;
use super::read::catalogue_against;

/// Names of the files in the `-o` folder.
const LOG: &str = "session.ndjson";
const SERVER: &str = "server.pmi";
const CLIENT: &str = "client.pmi";

/// The option that saves a session, as spelled in messages.
pub(super) const LOG_OPTION: &str = "record -o DIR";

pub(super) fn record(args: &Record) -> anyhow::Result<u8> {
    let catalogue = catalogue_against(&args.against)?;
    let command = position::insert_tap(&args.command)?;
    let header = result::header(&args.command);
    let mut log = match &args.output {
        Some(folder) => Some(open_log(folder)?),
        None => None,
    };
    let mut written = Ok(());
    let mut write = |write: &mut dyn FnMut(&mut LogWriter<_>) -> io::Result<()>| {
        if let (Some(log), Ok(())) = (&mut log, &written) {
            written = write(log);
        }
    };
    write(&mut |log| log.write(&LogLine::Run(header.clone())));
    let tap = tap_program()?;
    let mut signals = StopSignals::catch()?;
    let mut sink = |event: &Event| write(&mut |log| log.event(result::NAME, event));
    let session = session::run(&command, &tap, session::SessionMode::Transparent, &mut signals, &mut sink)?;
    let path =
        args.output.as_ref().map_or_else(|| result::NAME.to_owned(), |o| o.join(LOG).display().to_string());
    let replay = shell_words::join(
        ["pmi-conform".to_owned(), "record".into(), "--".into()].iter().chain(&args.command),
    );
    let judged = result::result(&catalogue, &session, path, replay);
    let code = result::exit_code(&judged);
    write(&mut |log| log.write(&LogLine::Result(judged.clone())));
    write(&mut |log| log.write(&LogLine::End(result::end(&session, &judged))));
    written.context("cannot write the log")?;
    if let Some(folder) = &args.output {
        write_scripts(folder, &session, &command)?;
    }
    show(&session, &judged, args.verbose)?;
    Ok(code)
}

fn open_log(folder: &Path) -> anyhow::Result<LogWriter<io::BufWriter<std::fs::File>>> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let file = folder.join(LOG);
    LogWriter::create(&file).with_context(|| file.display().to_string())
}

/// Writes the scenarios of the session, or reports why they cannot be written.
fn write_scripts(
    folder: &Path,
    session: &session::RecordedSession,
    command: &[String],
) -> anyhow::Result<()> {
    let files = [SERVER, CLIENT].map(|name| folder.join(name));
    for file in &files {
        // Remove the scenario of an earlier session, which could be mistaken for a scenario of this session.
        let _ = std::fs::remove_file(file);
    }
    if !session.recording.is_connected() {
        return Ok(());
    }
    let Some(events) = session.recording.events() else {
        writeln!(
            io::stderr(),
            "pmi-conform record: no scenario was written: the session was too large to keep"
        )?;
        return Ok(());
    };
    let command = shell_words::join(command);
    let dialects = session.recording.judge().dialects();
    let texts = std::thread::scope(|scope| {
        let server = scope.spawn(|| script(events, &dialects, &command).map(Some));
        let client = answers(events, &dialects, &command);
        [server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), client]
    });
    for (file, text) in files.iter().zip(texts) {
        match text {
            Ok(Some(text)) => std::fs::write(file, text).with_context(|| file.display().to_string())?,
            Ok(None) => {}
            Err(why) => {
                writeln!(io::stderr(), "pmi-conform record: {} was not written: {why}", file.display())?
            }
        }
    }
    Ok(())
}

/// Prints the result to standard error, since standard output belongs to the job.
fn show(session: &session::RecordedSession, judged: &ScenarioResult, verbose: bool) -> io::Result<()> {
    let color = anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
    let verbosity = Verbosity::of(verbose);
    let mut text = Vec::new();
    Terminal::new(&mut text, TerminalOptions { color, progress: false, verbosity, log: LOG_OPTION })
        .scenario_done(judged)?;
    let (processes, groups, messages) = session.recording.size();
    writeln!(
        text,
        "pmi-conform record: {} in {}, {}; the job: {}",
        if processes == 1 { "1 process".to_owned() } else { format!("{processes} processes") },
        count(groups, "group"),
        count(messages, "message"),
        session.exit
    )?;
    for (party, name) in [(PartyKind::Server, "process manager"), (PartyKind::Client, "program")] {
        writeln!(text, "  the {name}: {}", describe_party_result(judged, party, messages))?;
    }
    match io::stderr().write_all(&text) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Describes the result for a party. A crash does not count as a violation of a MUST.
fn describe_party_result(judged: &ScenarioResult, party: PartyKind, messages: usize) -> String {
    let of_party = || judged.findings.iter().filter(|f| f.finding.party == party);
    let crashes = of_party().any(|f| f.finding.requirement == NO_CRASH);
    let musts = result::broken(judged, party).values().flatten().count();
    let broken = match musts {
        0 => String::new(),
        1 => "breaks a MUST requirement".to_owned(),
        n => format!("breaks {n} MUST requirements"),
    };
    match (crashes, musts) {
        (true, 0) => "failed (crashed)".to_owned(),
        (true, _) => format!("failed (crashed, and {broken})"),
        (false, 0) if of_party().next().is_some() => "breaks no MUST requirement".to_owned(),
        (false, 0) if messages == 0 => "not judged: no message was sent".to_owned(),
        (false, 0) => "no findings".to_owned(),
        (false, _) => format!("failed ({broken})"),
    }
}

/// Runs programs under process managers (`interop`).
pub(super) fn interop(args: &Interop) -> anyhow::Result<u8> {
    let catalogue = catalogue_against(&args.against)?;
    let programs: Vec<_> =
        args.program.iter().map(|p| interop::ProgramCommand::new(p)).collect::<Result<_, _>>()?;
    let managers: Vec<_> =
        args.manager.iter().map(|m| interop::ManagerCommand::new(m)).collect::<Result<_, _>>()?;
    let tap = tap_program()?;
    let mut signals = StopSignals::catch()?;
    let matrix =
        interop::run(&catalogue, &programs, &managers, args.ranks, args.timeout, &tap, &mut signals)?;
    print_result(args.json, &matrix, |out| out.write_all(matrix.text().as_bytes()))?;
    Ok(matrix.exit_code())
}

fn tap_program() -> anyhow::Result<PathBuf> {
    let own =
        std::env::current_exe().context("cannot find pmi-conform's own executable, which is also the tap")?;
    Ok(agent::program(&own, tap::NAME))
}

#[cfg(test)]
mod tests {
    use pmi_judge::verdict::JudgedFinding;
    use pmi_judge::{Finding, Severity};
    use pmi_scenario::ids;
    use pmi_scenario::requirement::Level;

    use super::*;

    fn judged(id: &str, level: Option<Level>) -> JudgedFinding {
        let finding = Finding::new(id, PartyKind::Server, "", "");
        let (text, help, step) = (String::new(), String::new(), String::new());
        JudgedFinding {
            finding,
            level,
            severity: Severity::Fail,
            text,
            help,
            valid_input: false,
            step,
            deviation: None,
        }
    }

    #[test]
    fn crash_is_not_counted_as_a_must_violation() {
        let crash = judged(NO_CRASH, None);
        let must = judged(ids::RFC13_GET_VALUE, Some(Level::Must));
        let of = |findings: Vec<JudgedFinding>| {
            describe_party_result(
                &ScenarioResult { findings, ..ScenarioResult::default() },
                PartyKind::Server,
                2,
            )
        };
        assert_eq!(of(vec![crash.clone()]), "failed (crashed)");
        assert_eq!(of(vec![crash, must.clone()]), "failed (crashed, and breaks a MUST requirement)");
        // Two findings about the same requirement count as one broken requirement.
        assert_eq!(of(vec![must.clone(), must]), "failed (breaks a MUST requirement)");
        assert_eq!(of(Vec::new()), "no findings");
    }
}
