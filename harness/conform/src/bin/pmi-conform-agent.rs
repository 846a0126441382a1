//! The agent as a separate executable. `pmi-conform` can also act as the agent, but takes three times as long to start, and a campaign
//! starts hundreds of agents per second.

use std::process::ExitCode;

use pmi_process::trace::tracer;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| tracer::is_tracer(&name)) {
        return ExitCode::from(tracer::main());
    }
    ExitCode::from(pmi_process::agent::rank::main(std::env::args_os().collect()))
}
