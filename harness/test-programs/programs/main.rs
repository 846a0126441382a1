//! All programs that tests start, in a single binary. The name of the binary selects the program.
//!
//! The binary is the build script of its crate. As a build script, it copies itself into the output folder under the
//! name of every program, and compiles the C sources. That way, cargo builds the programs before it starts a test that
//! depends on this crate, for any selection of tests, profile and target folder. Ordinary programs of a package
//! (`[[bin]]`, examples) would not work: cargo builds them only before the tests of the same package. Installing the
//! package would also install them.

mod client;
mod faulty_manager;
mod faulty_pmi2_program;
mod faulty_program;
mod hostile_manager;
mod planted_pmi2_program;
mod planted_program;
mod pmi2_client;
mod selected_faults;

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

const PROGRAMS: &[(&str, fn())] = &[
    ("pmi-client", client::main),
    ("faulty-manager", faulty_manager::main),
    ("faulty-pmi2-program", faulty_pmi2_program::main),
    ("faulty-program", faulty_program::main),
    ("hostile-manager", hostile_manager::main),
    ("planted-pmi2-program", planted_pmi2_program::main),
    ("planted-program", planted_program::main),
    ("pmi2-client", pmi2_client::main),
];

/// The libraries: the file name, the source, the soname, and the preprocessor macro of each.
const LIBRARIES: &[(&str, &str, &str, &str)] = &[
    ("libfaulty.so", "faulty-library.c", "libpmi.so.0", "PLAIN"),
    ("libmore.so", "faulty-library.c", "libpmi.so.0", "MORE_FUNCTIONS"),
    ("libfewer.so", "faulty-library.c", "libpmi.so.0", "FEWER_FUNCTIONS"),
    ("libversion.so", "faulty-library.c", "libpmi.so.1", "PLAIN"),
    ("libname.so", "faulty-library.c", "libpm.so.0", "PLAIN"),
    ("libfaulty2.so", "faulty-pmi2-library.c", "libpmi2.so.0", "PLAIN"),
    ("libfewer2.so", "faulty-pmi2-library.c", "libpmi2.so.0", "FEWER_FUNCTIONS"),
    ("libcrashing.so", "crashing-library.c", "libpmi.so.0", "PLAIN"),
];

fn main() {
    let own = env::current_exe().expect("the path of this program is known");
    match PROGRAMS.iter().find(|(name, _)| own.ends_with(name)) {
        Some((_, program)) => program(),
        None => build(&own),
    }
}

fn build(own: &Path) {
    let out = env::var_os("OUT_DIR").expect("cargo names the output folder");
    let out = Path::new(&out);
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=../faults/faults.toml");
    println!("cargo::rerun-if-changed=../libpmi/include");
    println!("cargo::rerun-if-changed=../libpmi/libpmi2/include");
    for (name, _) in PROGRAMS {
        // A running program's file cannot be written to, but it can be replaced.
        let part = out.join(format!("{name}.part"));
        fs::copy(own, &part)
            .and_then(|_| fs::rename(&part, out.join(name)))
            .expect("the output folder is writable");
    }
    for (name, source, soname, define) in LIBRARIES {
        let (soname, define) = (format!("-Wl,-soname,{soname}"), format!("-D{define}"));
        cc(
            source,
            &out.join(name),
            &["-shared".as_ref(), "-fPIC".as_ref(), soname.as_ref(), define.as_ref()],
        );
    }
    let of = |name: &str| out.join(name);
    let coverage = Path::new("-fsanitize-coverage=trace-pc");
    cc("small-manager.c", &of("small-manager"), &[]);
    cc("small-manager.c", &of("small-manager.o"), &["-c".as_ref(), coverage]);
    cc("edges.c", &of("small-manager-with-edges"), &[&of("small-manager.o")]);
    cc("without-ptrace.c", &out.join("without-ptrace"), &[]);
    // For linking, any library with the functions is sufficient. LD_LIBRARY_PATH determines the library that the program loads.
    cc("library-program.c", &out.join("library-program"), &[out.join("libfaulty.so").as_ref()]);
    cc("pmi2-library-program.c", &out.join("pmi2-library-program"), &[out.join("libfaulty2.so").as_ref()]);
}

/// Compiles a file of `c/` with the compiler that cargo uses to link.
fn cc(source: &str, to: &Path, args: &[&Path]) {
    let mut cc = Command::new("cc");
    cc.args(["-I", "../libpmi/include", "-I", "../libpmi/libpmi2/include", "-I", "c", "-o"])
        .arg(to)
        .arg(Path::new("c").join(source))
        .args(args)
        .arg("-ldl");
    let status = cc.status().unwrap_or_else(|error| panic!("cc: {error}"));
    assert!(status.success(), "cannot compile {source}");
}
