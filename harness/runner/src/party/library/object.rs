//! Reads the name and the exported functions of a shared library without executing it.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::read::elf::{Dyn, ElfFile32, ElfFile64, FileHeader};
use object::{Endianness, FileKind, Object, ObjectSymbol, SymbolKind, elf};

use pmi_judge::event::EventKind;
use pmi_scenario::ast::Dialect;
use pmi_scenario::signature;

/// The error for a file that cannot be read as a shared library.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct UnreadableLibrary {
    path: PathBuf,
    why: Unreadable,
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    File(std::io::Error),
    #[error(transparent)]
    Object(object::Error),
    #[error("not a shared library (ELF) but a file of type {0:?}")]
    Kind(FileKind),
    #[error("a directory, not a shared library")]
    Directory,
    #[error("not a shared library (ELF)")]
    NoFormat,
    #[error("a program, not a shared library")]
    Program,
    #[error(
        "exports no function of PMI-1 or PMI-2; a library in C++ must declare its functions as extern \"C\""
    )]
    NoFunction,
}

/// Returns the [`EventKind::LibraryFile`] that describes a library's file.
pub(super) fn read(path: &Path) -> Result<EventKind, UnreadableLibrary> {
    let at = |why| UnreadableLibrary { path: path.to_owned(), why };
    let bytes = File::open(path).map_err(|e| at(Unreadable::File(e)))?;
    // Only the needed parts of the file are read, because a library with debug information is large.
    let bytes = &ReadCache::new(bytes);
    let format = |_| at(if path.is_dir() { Unreadable::Directory } else { Unreadable::NoFormat });
    let (soname, functions) = match FileKind::parse(bytes).map_err(format)? {
        FileKind::Elf64 => {
            let file = ElfFile64::<Endianness, _>::parse(bytes).map_err(|e| at(Unreadable::Object(e)))?;
            let header = file.elf_header();
            is_library(header, bytes).then_some(()).ok_or_else(|| at(Unreadable::Program))?;
            (soname(header, bytes), functions(&file))
        }
        FileKind::Elf32 => {
            let file = ElfFile32::<Endianness, _>::parse(bytes).map_err(|e| at(Unreadable::Object(e)))?;
            let header = file.elf_header();
            is_library(header, bytes).then_some(()).ok_or_else(|| at(Unreadable::Program))?;
            (soname(header, bytes), functions(&file))
        }
        kind => return Err(at(Unreadable::Kind(kind))),
    };
    if apis(&functions).is_empty() {
        return Err(at(Unreadable::NoFunction));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(EventKind::LibraryFile { name, soname, functions })
}

/// Returns the dialects of whose C API at least one of these functions is part.
pub(super) fn apis(functions: &[String]) -> Vec<Dialect> {
    let has =
        |dialect| signature::functions(dialect).iter().any(|f| functions.iter().any(|name| name == f.name));
    Dialect::ALL.into_iter().filter(|dialect| has(*dialect)).collect()
}

fn functions<'a>(file: &impl Object<'a>) -> Vec<String> {
    let mut names: Vec<String> = file
        .dynamic_symbols()
        .filter(|s| !s.is_undefined() && matches!(s.kind(), SymbolKind::Text | SymbolKind::Unknown))
        .filter_map(|s| s.name().ok().map(str::to_owned))
        .filter(|name| ["PMI_", "PMI2_", "PMIX_"].iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the name that programs linked with the library search for.
fn soname<H: FileHeader<Endian = Endianness>>(header: &H, bytes: &ReadCache<File>) -> Option<String> {
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, bytes).ok()?;
    let (entries, strings) = sections.dynamic(endian, bytes).ok()??;
    let strings = sections.strings(endian, bytes, strings).ok()?;
    let entry = entries.iter().find(|entry| entry.tag(endian) == elf::DT_SONAME)?;
    entry.string(endian, strings).ok().map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Returns whether the file is a library. A position-independent executable has the same file type, but is marked as an executable and
/// cannot be loaded.
fn is_library<H: FileHeader<Endian = Endianness>>(header: &H, bytes: &ReadCache<File>) -> bool {
    let Ok(endian) = header.endian() else { return true };
    let dynamic = header.sections(endian, bytes).and_then(|sections| sections.dynamic(endian, bytes));
    let is_pie =
        |entry: &H::Dyn| entry.tag(endian) == elf::DT_FLAGS_1 && entry.val(endian) & elf::DF_1_PIE.0 != 0;
    let marked = matches!(dynamic, Ok(Some((entries, _))) if entries.iter().any(is_pie));
    header.e_type(endian) == elf::ET_DYN && !marked
}
