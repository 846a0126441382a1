//! Writes the dictionaries of the targets into `dictionaries/`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dictionaries");
    fs::create_dir_all(&folder)?;
    for (target, _) in pmi_fuzz::TARGETS {
        if let Some(text) = pmi_fuzz::dictionary::of(target) {
            fs::write(folder.join(target).with_extension("dict"), text)?;
        }
    }
    Ok(())
}
