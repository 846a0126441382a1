#![doc = include_str!("../README.md")]

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

#[path = "../programs/client.rs"]
mod client;

/// Expands to the path of a file that the build script has created.
macro_rules! built {
    ($name:literal) => {
        concat!(env!("OUT_DIR"), "/", $name)
    };
}

/// A rank that behaves correctly, or misbehaves in the way that its first argument selects: `pmi-client MODE ARGS...`.
pub const CLIENT: &str = built!("pmi-client");

/// A program under test that behaves correctly or has the named fault: `faulty-program [FAULT]`.
pub const FAULTY_PROGRAM: &str = built!("faulty-program");

/// A PMI-2 program under test that behaves correctly or has the named fault: `faulty-pmi2-program [FAULT]`.
pub const FAULTY_PMI2_PROGRAM: &str = built!("faulty-pmi2-program");

/// A process manager that conforms except for the named fault: `faulty-manager FAULT RANKS PROGRAM`.
pub const FAULTY_MANAGER: &str = built!("faulty-manager");

/// A program of ten rounds that behaves correctly except for the named rare bug: `planted-program [NAME]`.
pub const PLANTED_PROGRAM: &str = built!("planted-program");

/// A PMI-2 program of ten rounds that behaves correctly except for the named rare bug: `planted-pmi2-program [NAME]`.
pub const PLANTED_PMI2_PROGRAM: &str = built!("planted-pmi2-program");

/// A process manager that misbehaves as its mode states, for example with a crash, a hang or a flood: `hostile-manager MODE RANKS PROGRAM`.
pub const HOSTILE_MANAGER: &str = built!("hostile-manager");

/// A PMI-2 rank that behaves correctly, or misbehaves in the way that its first argument selects: `pmi2-client MODE ARGS...`.
pub const PMI2_CLIENT: &str = built!("pmi2-client");

/// A PMI library with the fault that LIBRARY_FAULT names. For everything else, it calls the library that GOOD_LIBRARY names.
pub const FAULTY_LIBRARY: &str = built!("libfaulty.so");

/// [`FAULTY_LIBRARY`] with a function that RFC 13 does not define.
pub const LIBRARY_WITH_MORE_FUNCTIONS: &str = built!("libmore.so");

/// [`FAULTY_LIBRARY`] without some functions of RFC 13.
pub const LIBRARY_WITH_FEWER_FUNCTIONS: &str = built!("libfewer.so");

/// [`FAULTY_LIBRARY`] with the soname `libpmi.so.1`.
pub const LIBRARY_OF_ANOTHER_VERSION: &str = built!("libversion.so");

/// [`FAULTY_LIBRARY`] with the soname `libpm.so.0`.
pub const LIBRARY_OF_ANOTHER_NAME: &str = built!("libname.so");

/// A PMI library that crashes in `PMI_Init`.
pub const CRASHING_LIBRARY: &str = built!("libcrashing.so");

/// A PMI-2 library with the fault that LIBRARY_FAULT names. For everything else, it calls the library that GOOD_LIBRARY names.
pub const FAULTY_PMI2_LIBRARY: &str = built!("libfaulty2.so");

/// [`FAULTY_PMI2_LIBRARY`] without some functions of the PMI-2 API.
pub const PMI2_LIBRARY_WITH_FEWER_FUNCTIONS: &str = built!("libfewer2.so");

/// A small parallel program in C that loads `libpmi2.so.0` from a folder in LD_LIBRARY_PATH.
pub const PMI2_LIBRARY_PROGRAM: &str = built!("pmi2-library-program");

/// A small parallel program in C that loads `libpmi.so.0` from a folder in LD_LIBRARY_PATH.
pub const LIBRARY_PROGRAM: &str = built!("library-program");

/// A process manager in C with rare bugs that depend on single bytes: `small-manager [--bug NAME] -n RANKS PROGRAM`.
pub const SMALL_MANAGER: &str = built!("small-manager");

/// [`SMALL_MANAGER`], instrumented to count its edges in the same way as a program compiled with AFL++.
pub const SMALL_MANAGER_WITH_EDGES: &str = built!("small-manager-with-edges");

/// The source of [`SMALL_MANAGER`] and [`SMALL_MANAGER_WITH_EDGES`].
pub const SMALL_MANAGER_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c/small-manager.c");

/// The folder of small process managers in Python, one for each behaviour.
pub const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cases");

/// Runs a command in which ptrace fails, as in many containers: `without-ptrace PROGRAM ARGS...`.
pub const WITHOUT_PTRACE: &str = built!("without-ptrace");

/// Runs [`CLIENT`] in this process, for a program that acts as its own client.
pub fn client() {
    client::main();
}

/// Runs a check for all cases in parallel, each in a thread that is named after its case. Use it only for checks that mostly wait, because
/// the number of test threads does not limit the number of parallel checks.
///
/// # Panics
///
/// Panics if a check panics, but only after all checks have ended.
pub fn side_by_side<T: Debug + Sync>(cases: &[T], check: impl Fn(&T) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            let named = thread::Builder::new().name(format!("{case:?}"));
            named.spawn_scoped(scope, || check(case)).expect("a thread can be started");
        }
    });
}

/// Compiles the MPI program `name` (see `c/mpi`) into a folder. Returns the path of the program.
///
/// # Panics
///
/// Panics if the program cannot be compiled.
pub fn mpi_program(mpicc: &Path, name: &str, folder: &Path) -> PathBuf {
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/mpi/{name}.c"));
    let compiled = Command::new(mpicc).arg("-o").args([&program, &source]).status();
    let compiled =
        compiled.unwrap_or_else(|error| panic!("{}: {error}: see ci/install-peers", mpicc.display()));
    assert!(compiled.success(), "{} does not compile {name}.c", mpicc.display());
    program
}

/// Returns the folder with real implementations, which `ci/install-peers` creates.
///
/// # Panics
///
/// Panics if PMI_CONFORM_PEERS is not set.
pub fn peers() -> PathBuf {
    std::env::var_os("PMI_CONFORM_PEERS")
        .expect("PMI_CONFORM_PEERS names a folder made by ci/install-peers")
        .into()
}

/// Returns whether the kernel reports the exits of processes that are not children of the caller (Linux 6.15 and later).
pub fn kernel_reports_foreign_exits() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}
