//! The command `pmi-conform`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.first().is_some_and(pmi_conform::agent::is_agent) {
        return ExitCode::from(pmi_conform::agent::main(argv));
    }
    if argv.first().is_some_and(pmi_conform::record::tap::is_tap) {
        return ExitCode::from(pmi_conform::record::tap::main(argv));
    }
    if argv.first().is_some_and(pmi_conform::library::agent::is_agent) {
        return ExitCode::from(pmi_conform::library::agent::under_launcher(&argv[0]));
    }
    cli::main()
}
