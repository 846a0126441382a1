//! What a shared library shows without being run: its name, and the functions that it has.

use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, ElfFile32, ElfFile64, FileHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol, SymbolKind, elf};

use pmi_scenario::signature::FUNCTIONS;

/// What is wrong with a library file, as far as one requirement goes.
pub(crate) struct Fault {
    pub(crate) expected: String,
    pub(crate) seen: String,
}

/// A library file that cannot be looked into.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub(crate) struct UnreadableLibrary {
    path: PathBuf,
    why: Unreadable,
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    File(std::io::Error),
    #[error(transparent)]
    Object(object::Error),
    #[error("{0:?} is no shared library in ELF form")]
    Kind(FileKind),
}

/// A library file.
pub(crate) struct Shared {
    file_name: String,
    soname: Option<String>,
    /// Exported functions whose names begin with PMI_.
    functions: Vec<String>,
}

impl Shared {
    /// Reads it.
    pub(crate) fn read(path: &Path) -> Result<Self, UnreadableLibrary> {
        let at = |why| UnreadableLibrary { path: path.to_owned(), why };
        let bytes = std::fs::read(path).map_err(|e| at(Unreadable::File(e)))?;
        let (soname, functions) = match FileKind::parse(&*bytes).map_err(|e| at(Unreadable::Object(e)))? {
            FileKind::Elf64 => {
                let file = ElfFile64::<Endianness>::parse(&*bytes).map_err(|e| at(Unreadable::Object(e)))?;
                (soname(file.elf_header(), &bytes), functions(&file))
            }
            FileKind::Elf32 => {
                let file = ElfFile32::<Endianness>::parse(&*bytes).map_err(|e| at(Unreadable::Object(e)))?;
                (soname(file.elf_header(), &bytes), functions(&file))
            }
            kind => return Err(at(Unreadable::Kind(kind))),
        };
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file_name, soname, functions })
    }

    /// Holds it against a requirement. `None` where the requirement says nothing about files.
    pub(crate) fn judge(&self, requirement: &str) -> Option<Result<(), Fault>> {
        let called = self.soname.as_deref().unwrap_or(&self.file_name);
        let named = match &self.soname {
            Some(name) => format!("the soname {name}"),
            None => format!("no soname, and a file called {}", self.file_name),
        };
        let verdict = |good: bool, expected: &str, seen: String| {
            Some(if good { Ok(()) } else { Err(Fault { expected: expected.to_owned(), seen }) })
        };
        let missing = |which: &dyn Fn(bool, &str) -> bool| {
            let has = |name: &str| self.functions.iter().any(|f| f == name);
            let all = FUNCTIONS.iter().filter(|f| which(f.optional, f.does) && !has(f.name)).map(|f| f.name);
            all.collect::<Vec<_>>().join(", ")
        };
        let complete = |missing: String, expected: &str| {
            verdict(missing.is_empty(), expected, format!("{missing} missing"))
        };
        match requirement {
            "rfc13.api.name-libpmi" => {
                let stem = called.split(".so").next().unwrap_or_default();
                verdict(stem == "libpmi", "a library called libpmi", named)
            }
            "rfc13.api.soname-zero" => {
                let version = called.split_once(".so.").map(|(_, version)| version.split('.').next());
                verdict(version == Some(Some("0")), "major version 0, libpmi.so.0", named)
            }
            "rfc13.api.all-functions" => {
                complete(missing(&|optional, _| !optional), "all functions of RFC 13")
            }
            "rfc13.api.optional-defined" => {
                complete(missing(&|optional, _| optional), "the functions that are optional, too")
            }
            "rfc13.api.no-other-functions" => {
                let known = |name: &&String| FUNCTIONS.iter().any(|f| f.name == **name);
                let more: Vec<&str> =
                    self.functions.iter().filter(|f| !known(f)).map(String::as_str).collect();
                let seen = format!("{} more: {}", more.len(), more.join(", "));
                verdict(more.is_empty(), "no function PMI_* beyond those of RFC 13", seen)
            }
            "rfc13.api.kvs-create"
            | "rfc13.api.kvs-destroy"
            | "rfc13.api.kvs-iter-first"
            | "rfc13.api.kvs-iter-next" => {
                complete(missing(&|_, does| does == requirement), "the function is there")
            }
            _ => None,
        }
    }
}

fn functions<'a>(file: &impl Object<'a>) -> Vec<String> {
    let mut names: Vec<String> = file
        .dynamic_symbols()
        .filter(|s| !s.is_undefined() && matches!(s.kind(), SymbolKind::Text | SymbolKind::Unknown))
        .filter_map(|s| s.name().ok().map(str::to_owned))
        .filter(|name| name.starts_with("PMI_"))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The name that a program which was linked with the library looks for.
fn soname<H: FileHeader<Endian = Endianness>>(header: &H, bytes: &[u8]) -> Option<String> {
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let entry = entries.iter().find(|entry| entry.tag(endian) == elf::DT_SONAME)?;
    entry.string(endian, strings).ok().map(|name| String::from_utf8_lossy(name).into_owned())
}
