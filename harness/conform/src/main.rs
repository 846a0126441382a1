//! The command `pmi-conform`.

mod cli;
mod report;

use std::process::ExitCode;

use pmi_process::inherited;
use pmi_process::trace::tracer;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.first().is_some_and(|name| tracer::is_tracer(name)) {
        return ExitCode::from(tracer::main());
    }
    if argv.first().is_some_and(pmi_process::agent::rank::is_agent) {
        return ExitCode::from(pmi_process::agent::rank::main(argv));
    }
    if argv.first().is_some_and(pmi_process::agent::mpiexec::is_agent) {
        return ExitCode::from(pmi_process::agent::mpiexec::main(&argv));
    }
    if argv.first().is_some_and(pmi_record::tap::is_tap) {
        return ExitCode::from(pmi_record::tap::main(argv));
    }
    if argv.first().is_some_and(pmi_process::agent::library::is_agent) {
        return ExitCode::from(pmi_process::agent::library::run_under_launcher(&argv[0]));
    }
    // Reserve a descriptor. If this fails, the error is reported when the descriptor is needed.
    let _ = inherited::number();
    cli::main()
}
