//! `doctor --versions`: prints the response to each offered version, and the behaviour after the response.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use pmi_runner::iut::{Iut, Prober};
use pmi_runner::party::ScenarioLimits;
use pmi_runner::party::program::Program;
use pmi_runner::party::server::{Implementation, LaunchEnvironment};
use pmi_runner::versions::version_table;
use serde_json::json;

use super::args::Doctor;
use super::exit::UNJUDGED;
use super::output::print_result;
use super::play::library_at;
use super::progress::RunProgress;
use super::read::suite_against;
use crate::report::versions_text;

pub(super) fn versions(args: &Doctor) -> anyhow::Result<u8> {
    anyhow::ensure!(
        args.library.is_none() || args.server.is_none(),
        "--versions takes only one of --server, --client and --library"
    );
    let suite = suite_against(&[])?;
    let environment = LaunchEnvironment::new(Arc::new(AtomicBool::new(false)), 1)?;
    // A process takes longer to start than to answer a request, so it gets more time to start.
    let limits =
        ScenarioLimits { step: args.timeout, start: Some(args.timeout * 4), ..ScenarioLimits::default() };
    let (label, iut) = match (&args.client, &args.library) {
        (Some(command), _) => {
            let program = Program::new(command, 1).context("--client")?;
            (program.label.clone(), Iut::Client(Box::new(program)))
        }
        (None, Some(path)) => {
            let library = library_at(path, environment.binary)?;
            let label = format!("the library {}", library.path.display());
            let iut = Iut::Library(Box::new(library), BTreeMap::new(), environment.interrupted);
            (label, iut)
        }
        (None, None) => {
            let mut server = match &args.server {
                Some(server) => Implementation::from_argument(server).context("--server")?,
                None => Implementation::reference(&environment.binary),
            };
            server.check_commands().context("--server")?;
            server.play_upstream(&environment.binary, None, args.timeout)?;
            (server.label.clone(), Iut::Processes(Box::new(server), environment))
        }
    };
    let mut progress: Option<RunProgress> = None;
    let mut step = |name: &str, steps: usize| {
        let begin = || {
            let mut progress = RunProgress::new("trying versions", "rows");
            progress.start(steps);
            progress
        };
        progress.get_or_insert_with(begin).step(name);
    };
    let Some(rows) = version_table(Prober { suite: &suite, iut: &iut, limits }, &mut step) else {
        anstream::eprintln!(
            "error: {label}: received no valid offer or response; run doctor without --versions to find the cause"
        );
        return Ok(UNJUDGED);
    };
    print_result(args.json, &json!({ "of": label, "rows": rows }), |out| {
        out.write_all(versions_text(&label, &rows).as_bytes())
    })?;
    Ok(0)
}
