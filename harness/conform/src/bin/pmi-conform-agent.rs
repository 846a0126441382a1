//! The agent as a program of its own, beside `pmi-conform`, which can be its own agent but takes three times as long to
//! start. A campaign starts hundreds a second.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pmi_runner::agent::rank::main(std::env::args_os().collect()))
}
