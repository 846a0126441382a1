//! Replays the stored inputs, with any toolchain and without a fuzzer.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{TARGETS, dictionary};

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns all files in a folder and its subfolders. The list is empty if the folder does not exist.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn replay(kind: &str, target: &str, body: fn(&[u8])) -> usize {
    let mut files = files(&folder(kind).join(target));
    if kind == "seeds" && target == "scenario" {
        files.extend(
            self::files(&folder("../scenarios"))
                .into_iter()
                .filter(|file| file.extension().is_some_and(|e| e == "pmi")),
        );
    }
    for file in &files {
        let input = fs::read(file).unwrap();
        // Print the name of the input, in case the target panics.
        println!("{}", file.display());
        body(&input);
    }
    files.len()
}

#[test]
fn fuzz_targets_accept_stored_seeds() {
    for (target, body) in TARGETS {
        assert_ne!(replay("seeds", target, *body), 0, "{target} has no seeds");
    }
}

#[test]
fn fuzz_targets_accept_stored_regressions() {
    for (target, body) in TARGETS {
        replay("regressions", target, *body);
    }
}

#[test]
fn fuzz_files_and_folders_match_the_targets() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stems = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stems(&folder("fuzz_targets")), known);
    assert_eq!(stems(&folder("seeds")), known);
    assert!(stems(&folder("regressions")).is_subset(&known));
    assert!(stems(&folder("dictionaries")).is_subset(&known));
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    assert!(known.iter().all(|name| manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\""))));
}

#[test]
fn stored_dictionaries_are_up_to_date() {
    for (target, _) in TARGETS {
        let path = folder("dictionaries").join(target).with_extension("dict");
        let written = fs::read_to_string(&path).ok();
        let due = dictionary::of(target);
        assert!(written == due, "{}: run `cargo run --example dictionaries`", path.display());
    }
}

/// Runs each target on inputs from a small random generator.
#[test]
fn fuzz_targets_accept_short_random_inputs() {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    for (_, body) in TARGETS {
        for _ in 0..300 {
            let input: Vec<u8> = (0..next() % 120).map(|_| next() as u8).collect();
            body(&input);
        }
    }
}
