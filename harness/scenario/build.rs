//! Generates constants for the ids of requirements and for the rules that several standards share, so that the compiler catches misspelled
//! ids.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::{env, error, fs, path::Path};

fn main() -> Result<(), Box<dyn error::Error>> {
    // Cargo does not detect changes in the embedded suite on its own.
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=build.rs");
    let mut constants = String::new();
    let mut all = Vec::new();
    // Maps each rule to the names of the constants for its PMI-1 and PMI-2 requirements.
    let mut rules: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for file in fs::read_dir("scenarios")? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let mut name = String::new();
        for line in fs::read_to_string(&path)?.lines() {
            if let Some(id) = line.strip_prefix("id = \"").and_then(|rest| rest.strip_suffix('"')) {
                name = constant(id);
                writeln!(constants, "/// `{id}`.\npub const {name}: &str = \"{id}\";")?;
                all.push(id.to_owned());
            } else if let Some(list) = line.strip_prefix("rules = [") {
                for rule in list.trim_end_matches(']').split(", ") {
                    let dialect = usize::from(name.starts_with("PMI2_"));
                    rules.entry(rule.trim_matches('"').to_owned()).or_default()[dialect] = Some(name.clone());
                }
            }
        }
    }
    writeln!(constants, "/// The rules, each with its PMI-1 and its PMI-2 requirement.\npub mod rules {{")?;
    for (rule, requirements) in rules {
        let [Some(first), Some(second)] = requirements else { continue };
        let name = constant(&rule);
        writeln!(
            constants,
            "/// `{rule}`.\npub const {name}: [&str; 2] = [super::{first}, super::{second}];"
        )?;
    }
    constants.push_str("}\n");
    all.sort();
    writeln!(constants, "/// All ids, sorted.\nconst ALL: &[&str] = &{all:?};")?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("ids.rs"), constants)?;
    Ok(())
}

fn constant(id: &str) -> String {
    id.replace(['.', '-'], "_").to_uppercase()
}
