//! Builds the quick agent if the target supports it. The agent does not use the standard library, and aborts on panic. Cargo cannot set the
//! panic strategy of a single program, so this script calls the compiler itself.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

fn main() {
    const SOURCE: &str = "quick-agent/main.rs";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rustc-check-cfg=cfg(quick_agent)");
    let set = |name: &str| env::var(name).unwrap_or_default();
    let known = set("CARGO_CFG_TARGET_OS") == "linux"
        && set("CARGO_CFG_TARGET_POINTER_WIDTH") == "64"
        && ["x86_64", "aarch64"].contains(&set("CARGO_CFG_TARGET_ARCH").as_str());
    let (Some(rustc), Some(out)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR")) else { return };
    if !known {
        return;
    }
    let program = Path::new(&out).join("quick-agent");
    let mut command = Command::new(rustc);
    command.args(["--crate-name", "quick_agent", "--crate-type", "bin", "--edition", "2024", SOURCE]);
    command.arg("--target").arg(set("TARGET")).arg("-o").arg(&program);
    for option in ["opt-level=s", "panic=abort", "relocation-model=static", "strip=symbols", "debuginfo=0"] {
        command.args(["-C", option]);
    }
    for argument in ["-nostdlib", "-nostartfiles", "-static", "-no-pie"] {
        command.arg(format!("-Clink-arg={argument}"));
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        command.arg(option);
    }
    match command.output() {
        Ok(built) if built.status.success() => println!("cargo::rustc-cfg=quick_agent"),
        // The full agent can replace the quick agent, so the build continues.
        Ok(built) => {
            let errors = String::from_utf8_lossy(&built.stderr);
            println!("cargo::warning=processes will start more slowly: the quick agent cannot be built");
            errors.lines().for_each(|line| println!("cargo::warning={line}"));
        }
        Err(error) => println!("cargo::warning=processes will start more slowly: {error}"),
    }
}
