//! The tap as a separate executable. `pmi-conform` can also act as the tap, but is larger, and a session starts one tap per process.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pmi_record::tap::main(std::env::args_os().collect()))
}
