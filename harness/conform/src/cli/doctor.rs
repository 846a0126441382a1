//! `doctor`: checks whether an implementation can be judged, and suggests a profile for it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use pmi_runner::doctor::{Examination, of_library, of_program, of_server};
use pmi_runner::iut::{Iut, Prober};
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::library::Library;
use pmi_runner::party::program::Program;
use pmi_runner::party::server::{Implementation, LaunchEnvironment, profile};
use serde_json::json;

use super::args::Doctor;
use super::exit::CANNOT_JUDGE;
use super::output::print_result;
use super::play::{claim, library_at, set_connection_method};
use super::read::suite_against;
use crate::report::doctor_text;

/// The result of examining an implementation, with suggestions for the user.
pub(super) struct ExaminedImplementation {
    pub(super) label: String,
    pub(super) examination: Examination,
    /// A suggested profile; `None` unless the implementation is a process manager without a profile.
    pub(super) profile: Option<String>,
    /// The command line that judges the implementation.
    pub(super) next_command: String,
}

pub(super) fn doctor(args: &Doctor) -> anyhow::Result<u8> {
    let examined = examine(args)?;
    let ExaminedImplementation { label, examination, profile, next_command: next } = &examined;
    let fit = examination.is_fit();
    let result = json!({ "of": label, "fit": fit, "steps": examination.steps, "profile": profile });
    print_result(args.json, &result, |out| {
        out.write_all(doctor_text(label, examination, profile.as_deref(), next).as_bytes())
    })?;
    Ok(if fit { 0 } else { CANNOT_JUDGE })
}

/// Examines the implementation that the arguments select.
///
/// # Errors
///
/// Returns an error if the implementation cannot be started.
pub(super) fn examine(args: &Doctor) -> anyhow::Result<ExaminedImplementation> {
    let suite = suite_against(&[])?;
    let environment = LaunchEnvironment::new(Arc::new(AtomicBool::new(false)), 1)?;
    let limits =
        ScenarioLimits { step: args.timeout, start: args.start_timeout, ..ScenarioLimits::default() };
    if let Some(command) = &args.client {
        let program = Program::new(command, args.ranks).context("--client")?;
        let (label, iut) = (program.label.clone(), Iut::Client(Box::new(program)));
        let examination = of_program(Prober { suite: &suite, iut: &iut, limits }, args.ranks);
        let mut next = shell_words::join(["pmi-conform", "--client", command]);
        // The suggested command omits `-n` if it has its default value, 2.
        if args.ranks != 2 {
            next += &format!(" -n {}", args.ranks);
        }
        return Ok(ExaminedImplementation { label, examination, profile: None, next_command: next });
    }
    if let Some(path) = &args.library {
        let server =
            args.server.as_deref().map(Implementation::from_argument).transpose().context("--server")?;
        server.as_ref().map_or(Ok(()), Implementation::check_commands).context("--server")?;
        let start = limits.start.or(server.as_ref().and_then(|server| server.start_timeout));
        let limits = ScenarioLimits { start, ..limits };
        let library = Library { server: server.map(Box::new), ..library_at(path, environment.binary)? };
        let iut = Iut::Library(Box::new(library), BTreeMap::new(), environment.interrupted);
        let examination = of_library(Prober { suite: &suite, iut: &iut, limits });
        let mut next = vec!["pmi-conform".to_owned()];
        next.extend(args.server.iter().flat_map(|server| ["--server".to_owned(), server.clone()]));
        next.extend(["--library".to_owned(), path.display().to_string()]);
        return Ok(ExaminedImplementation {
            label: iut.label(),
            examination,
            profile: None,
            next_command: shell_words::join(next),
        });
    }
    let mut server = match &args.server {
        Some(server) => Implementation::from_argument(server).context("--server")?,
        None => Implementation::reference(&environment.binary),
    };
    if let Some(nodes) = &args.server_nodes {
        server.set_command_nodes(nodes).context("--server-nodes")?;
    }
    claim(&mut server, &args.lacks, false)?;
    // The profile contains the command as the user gave it, without the words that are added for `PMI_PORT`.
    let mut plain = server.clone();
    set_connection_method(&mut server, args.connection)?;
    server.check_commands().context("--server")?;
    server.play_upstream(&environment.binary, args.family, args.timeout)?;
    server.try_upstream(&environment.interrupted)?;
    let label = match &server.version {
        Some(version) if !server.label.contains(&version.to_string()) => {
            format!("{}, version {version}", server.label)
        }
        _ => server.label.clone(),
    };
    let limits = ScenarioLimits { start: limits.start.or(server.start_timeout), ..limits };
    let iut = Iut::Processes(Box::new(server), environment);
    let examination = of_server(Prober { suite: &suite, iut: &iut, limits });
    let named = args.server.as_deref().filter(|server| !server.starts_with('@'));
    let mut next = vec!["pmi-conform".to_owned()];
    for (option, value) in [("--server", &args.server), ("--server-nodes", &args.server_nodes)] {
        next.extend(value.iter().flat_map(|value| [option.to_owned(), value.clone()]));
    }
    next.extend(args.lacks.iter().flat_map(|operation| ["--lacks".to_owned(), operation.clone()]));
    next.extend(args.connection.option());
    if examination.dialect != plain.dialect.unwrap_or_default() {
        next.extend(["--dialect".to_owned(), examination.dialect.to_string()]);
        plain.dialect = Some(examination.dialect);
    }
    let profile = named.map(|_| profile::draft_profile(&plain, &examination.operations));
    Ok(ExaminedImplementation { label, examination, profile, next_command: shell_words::join(next) })
}
