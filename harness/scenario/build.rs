//! Generates a constant for the id of each requirement, so that a misspelled id does not compile.

use std::fmt::Write;
use std::{env, error, fs, path::Path};

fn main() -> Result<(), Box<dyn error::Error>> {
    // The suite is embedded, which cargo does not see by itself.
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=build.rs");
    let mut constants = String::new();
    for file in fs::read_dir("scenarios")? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        for line in fs::read_to_string(&path)?.lines() {
            let Some(id) = line.strip_prefix("id = \"").and_then(|rest| rest.strip_suffix('"')) else {
                continue;
            };
            let name = id.replace(['.', '-'], "_").to_uppercase();
            writeln!(constants, "/// `{id}`.\npub const {name}: &str = \"{id}\";")?;
        }
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("ids.rs"), constants)?;
    Ok(())
}
