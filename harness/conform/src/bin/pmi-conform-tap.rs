//! The tap as a program of its own, beside `pmi-conform`, which can be its own tap but is larger: a session starts one for each
//! of its processes.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pmi_runner::record::tap::main(std::env::args_os().collect()))
}
