//! `pmi-conform serve` with real processes: the bench is its own client.
//!
//! To compare with another process manager, time `mpiexec -n 1024 BENCH`, where BENCH is the file that
//! `cargo bench --bench serve --no-run` names.

use std::env;
use std::process::Command;

use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    if env::var_os("PMI_FD").is_some() {
        pmi_test_programs::client();
    } else {
        divan::main();
    }
}

fn serve(ranks: u32, args: &[&str]) {
    let status = Command::new(env!("CARGO_BIN_EXE_pmi-conform"))
        .args(["serve", "-n", &ranks.to_string(), "--"])
        .arg(env::current_exe().unwrap())
        .args(args)
        .status();
    assert!(status.unwrap().success());
}

/// Put, barrier, get all.
#[divan::bench(args = [64, 256, 1024], sample_count = 3, sample_size = 1)]
fn get_all(bencher: Bencher, ranks: u32) {
    bencher
        .counter(ItemsCount::new(u64::from(ranks) * u64::from(ranks)))
        .bench(|| serve(ranks, &["exchange"]));
}

/// Put, barrier, get one: mostly starting and ending.
#[divan::bench(args = [64, 256, 1024], sample_count = 5, sample_size = 1)]
fn get_one(bencher: Bencher, ranks: u32) {
    bencher.counter(ItemsCount::new(ranks)).bench(|| serve(ranks, &["neighbours", "1"]));
}
