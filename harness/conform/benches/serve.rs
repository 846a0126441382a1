//! Benchmarks that start real processes: they run a job with `serve`, record the same job, judge its log again, and render a report. The
//! executable of this benchmark also acts as the clients. To compare with another process manager, time `mpiexec -n 1024 BENCH`, where
//! BENCH is the path that `cargo bench --bench serve --no-run` prints.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use divan::Bencher;
use divan::counter::ItemsCount;
use tempfile::TempDir;

const CONFORM: &str = env!("CARGO_BIN_EXE_pmi-conform");

fn main() {
    if env::var_os("PMI_FD").is_some() {
        pmi_test_programs::client();
    } else {
        divan::main();
    }
}

fn serve(ranks: u32, args: &[&str]) {
    let status = Command::new(CONFORM)
        .args(["serve", "-n", &ranks.to_string(), "--"])
        .arg(env::current_exe().unwrap())
        .args(args)
        .status();
    assert!(status.unwrap().success());
}

/// Makes every rank put a key, enter the barrier, and get every key.
#[divan::bench(args = [64, 256, 1024], sample_count = 3, sample_size = 1)]
fn get_all(bencher: Bencher, ranks: u32) {
    bencher
        .counter(ItemsCount::new(u64::from(ranks) * u64::from(ranks)))
        .bench(|| serve(ranks, &["exchange"]));
}

/// Makes every rank put a key, enter the barrier, and get one key. Process start-up and exit take most of the time.
#[divan::bench(args = [64, 256, 1024], sample_count = 5, sample_size = 1)]
fn get_one(bencher: Bencher, ranks: u32) {
    bencher.counter(ItemsCount::new(ranks)).bench(|| serve(ranks, &["neighbours", "1"]));
}

/// Records the job of `get_all` in `folder`.
fn record(ranks: u32, folder: &Path) {
    let status = Command::new(CONFORM)
        .args(["record", "-o"])
        .arg(folder)
        .args(["--", CONFORM, "serve", "-n", &ranks.to_string(), "--", "{tap}"])
        .arg(env::current_exe().unwrap())
        .arg("exchange")
        .stderr(Stdio::null())
        .status();
    assert!(status.unwrap().success());
}

/// Records the job of `get_all`. The additional time compared with `get_all` is the cost of recording.
#[divan::bench(args = [64, 256, 1024], sample_count = 3, sample_size = 1)]
fn get_all_recorded(bencher: Bencher, ranks: u32) {
    let folder = TempDir::new().unwrap();
    bencher
        .counter(ItemsCount::new(u64::from(ranks) * u64::from(ranks)))
        .bench(|| record(ranks, folder.path()));
}

/// Records the job of `get_all` in a new folder. Returns the folder, the log, and the approximate number of events in the log.
fn log(ranks: u32) -> (TempDir, PathBuf, u64) {
    let folder = TempDir::new().unwrap();
    record(ranks, folder.path());
    let log = folder.path().join("session.ndjson");
    let events = BufReader::new(File::open(&log).unwrap()).lines().count();
    (folder, log, events as u64)
}

fn read(words: &[&str], log: &Path) {
    let status = Command::new(CONFORM).args(words).arg(log).stdout(Stdio::null()).status();
    assert!(status.unwrap().success());
}

#[divan::bench(args = [64, 256, 1024], sample_count = 3, sample_size = 1)]
fn judge_again(bencher: Bencher, ranks: u32) {
    let (_folder, log, events) = log(ranks);
    bencher.counter(ItemsCount::new(events)).bench(|| read(&["report", "judge"], &log));
}

#[divan::bench(args = [64, 256, 1024], sample_count = 3, sample_size = 1)]
fn report_html(bencher: Bencher, ranks: u32) {
    let (_folder, log, events) = log(ranks);
    bencher.counter(ItemsCount::new(events)).bench(|| read(&["report", "--format", "html"], &log));
}
