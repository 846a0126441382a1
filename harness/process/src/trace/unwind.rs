//! Derives the call stack of a dead process from its registers and the bytes of its stack. Includes the names of functions and the source
//! lines, if the program's files contain them.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder,
    UnwinderNative,
};
use gimli::{BaseAddresses, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use object::elf::PF_X;
use object::read::ReadCache;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};
use pmi_judge::backtrace::StackFrame;
use pmi_judge::event::Backtrace;
use serde::{Deserialize, Serialize};

/// Maximum number of reported calls.
const MAX_FRAMES: usize = 32;

/// Maximum size of a section that is read.
const MAX_SECTION_SIZE: u64 = 512 << 20;

/// The state of a thread when it received a signal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) rank: Option<u32>,
    pub(super) signal: i32,
    /// The faulting address according to the processor or the kernel.
    pub(super) address: Option<u64>,
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// The return address, if a register contains it.
    pub(super) lr: u64,
    pub(super) mappings: Vec<Mapping>,
    /// The address where `stack` begins.
    pub(super) stack_at: u64,
    pub(super) stack: Vec<u8>,
}

/// A mapping of a file's code into a process's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapping {
    memory: Range<u64>,
    /// The offset in the file at which the mapping begins.
    offset: u64,
    path: PathBuf,
}

impl Mapping {
    /// Parses a line of `/proc/PID/maps`. Returns `None` if the mapping is not code from a file.
    pub(super) fn of_code(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (memory, access, offset) = (words.next()?, words.next()?, words.next()?);
        let path = words.nth(2)?.trim_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = memory.split_once('-')?;
        let memory = number(start)?..number(end)?;
        let is_code = access.as_bytes().get(2) == Some(&b'x') && path.starts_with('/');
        is_code.then(|| Self { memory, offset: number(offset).unwrap_or(0), path: path.into() })
    }
}

/// The code of a program file or library file.
struct Image {
    name: String,
    /// The address of the mapped code in the file's own address space.
    address: u64,
    sections: HashMap<&'static str, (Range<u64>, Arc<[u8]>)>,
    functions: Vec<(Range<u64>, String)>,
    /// The cached source file and line of each address; `None` for an address without them.
    lines: Mutex<HashMap<u64, Option<String>>>,
}

/// An image with its position in a process's memory.
struct LoadedImage {
    mapping: Mapping,
    image: Arc<Image>,
}

/// The identity of a cached file: device, inode, size, modification time (seconds and nanoseconds), and the offset of the code.
type ImageIdentity = (u64, u64, u64, i64, i64, u64);

/// Maximum number of cached files.
const MAX_CACHED_IMAGES: usize = 32;

/// Maximum number of cached source lines of a file.
const MAX_CACHED_LINES: usize = 4096;

/// The sections that are read from each file.
const SECTIONS: [&str; 5] = [".text", ".eh_frame", ".eh_frame_hdr", ".got", ".debug_frame"];

/// Prefix of the names of the sections that contain debug information, from which the source lines are derived.
const DEBUG_PREFIX: &str = ".debug_";

impl LoadedImage {
    fn read(mapping: Mapping) -> Option<Self> {
        Some(Self { image: Image::of(&mapping)?, mapping })
    }

    /// Returns the difference between an address in the process and the same address in the file.
    fn bias(&self) -> u64 {
        self.mapping.memory.start.wrapping_sub(self.image.address)
    }

    fn module(&self) -> Module<Arc<[u8]>> {
        let at = |name| self.image.section(name).0;
        let data = |name| self.image.section(name).1.cloned();
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: at(".text"),
            text: data(".text"),
            got_svma: at(".got"),
            eh_frame_svma: at(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: at(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            debug_frame: data(".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(self.image.name.clone(), self.mapping.memory.clone(), self.bias(), sections)
    }
}

impl Image {
    /// Returns the code of a mapping. Files are cached, because reading them takes a long time, and crashes of the same run involve the
    /// same files.
    fn of(mapping: &Mapping) -> Option<Arc<Self>> {
        static READ: Mutex<Vec<(ImageIdentity, Arc<Image>)>> = Mutex::new(Vec::new());
        let file = File::open(&mapping.path).ok()?;
        let meta = file.metadata().ok()?;
        let identity = (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec(), mapping.offset);
        let known = || READ.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, image)) = known().iter().find(|(other, _)| *other == identity) {
            return Some(Arc::clone(image));
        }
        let image = Arc::new(Self::read(file, mapping)?);
        let mut known = known();
        if known.len() >= MAX_CACHED_IMAGES {
            known.remove(0);
        }
        known.push((identity, Arc::clone(&image)));
        Some(image)
    }

    fn read(file: File, mapping: &Mapping) -> Option<Self> {
        let file = &ReadCache::new(file);
        let object = object::File::parse(file).ok()?;
        // Mappings begin at page boundaries, but segments may begin anywhere, so the start of a segment is rounded down to a page boundary.
        // Only code segments are considered, because a page may contain the end of one segment and the beginning of another.
        let page = rustix::param::page_size() as u64;
        let address = object.segments().find_map(|segment| {
            let (at, size) = segment.file_range();
            let is_code =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(PF_X));
            let holds = (at / page * page..at.saturating_add(size)).contains(&mapping.offset);
            (is_code && holds).then(|| segment.address().wrapping_add(mapping.offset).wrapping_sub(at))
        })?;
        let mut sections = HashMap::new();
        for name in SECTIONS {
            if let Some(section) =
                object.section_by_name(name).filter(|section| section.size() <= MAX_SECTION_SIZE)
                && let Ok(data) = section.data()
            {
                let range = section.address()..section.address().saturating_add(section.size());
                sections.insert(name, (range, data.into()));
            }
        }
        let mut functions: Vec<(Range<u64>, String)> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
            .filter_map(|symbol| {
                let range = symbol.address()..symbol.address().checked_add(symbol.size())?;
                Some((range, symbol.name().ok()?.to_owned()))
            })
            .collect();
        functions.sort_by_key(|(range, _)| range.start);
        let name = mapping.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Some(Self { name, address, sections, functions, lines: Mutex::default() })
    }

    fn section(&self, name: &str) -> (Option<Range<u64>>, Option<&Arc<[u8]>>) {
        self.sections.get(name).map(|(range, data)| (range.clone(), data)).unzip()
    }

    /// Returns the start and the name of the function that contains an address in the file.
    fn function(&self, address: u64) -> Option<(u64, &str)> {
        let after = self.functions.partition_point(|(range, _)| range.start <= address);
        let before =
            self.functions[..after].iter().rev().take_while(|(range, _)| address - range.start < 1 << 24);
        let (range, name) = before.into_iter().find(|(range, _)| range.contains(&address))?;
        Some((range.start, name))
    }

    /// Returns the source file and line of each address for which they are known. `path` is the file of the image. The results are cached,
    /// because finding them takes a long time, and crashes of the same run involve the same calls.
    fn lines(&self, path: &Path, addresses: &[u64]) -> HashMap<u64, String> {
        let mut known = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_LINES {
            known.clear();
        }
        let unknown: Vec<u64> = addresses.iter().copied().filter(|at| !known.contains_key(at)).collect();
        if !unknown.is_empty() {
            let found = lines(path, &unknown);
            known.extend(unknown.into_iter().map(|address| (address, found.get(&address).cloned())));
        }
        let line = |address: &u64| Some((*address, known.get(address)?.clone()?));
        addresses.iter().filter_map(line).collect()
    }

    /// Returns the beginning of the function that contains an address in the file, according to the exception table.
    fn begin(&self, address: u64) -> Option<u64> {
        let (range, data) = self.sections.get(".eh_frame")?;
        let bases = BaseAddresses::default().set_eh_frame(range.start);
        let bases = match self.section(".text").0 {
            Some(text) => bases.set_text(text.start),
            None => bases,
        };
        let table = EhFrame::new(data, gimli::NativeEndian);
        let entry = table.fde_for_address(&bases, address, UnwindSection::cie_from_offset).ok()?;
        Some(entry.initial_address())
    }
}

/// Reads a word of a snapshot's stack.
fn read(snapshot: &Snapshot, address: u64) -> Result<u64, ()> {
    let at = address.checked_sub(snapshot.stack_at).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
    let word = snapshot.stack.get(at..at.saturating_add(8)).ok_or(())?;
    word.try_into().map(u64::from_ne_bytes).map_err(|_| ())
}

/// Returns the addresses of the instructions on the call stack, innermost first. Stops at the first address whose file is not in `images`.
/// Except for the first, each address is that of the last byte of a call instruction.
fn unwind(snapshot: &Snapshot, images: &[LoadedImage]) -> Vec<u64> {
    let mut unwinder = UnwinderNative::<Arc<[u8]>, MayAllocateDuringUnwind>::new();
    for placed in images {
        unwinder.add_module(placed.module());
    }
    let is_code = |address: u64| snapshot.mappings.iter().any(|mapping| mapping.memory.contains(&address));
    let is_read = |address: u64| images.iter().any(|placed| placed.mapping.memory.contains(&address));
    let mut cache = CacheNative::<MayAllocateDuringUnwind>::new();
    let (mut pc, mut sp, mut found) = (snapshot.pc, snapshot.sp, Vec::new());
    if !is_code(pc) {
        // The process called an address without code, so this address is the first entry of the call stack.
        found.push(pc);
        #[cfg(target_arch = "x86_64")]
        match read(snapshot, sp) {
            Ok(back) if is_code(back) => (pc, sp) = (back.saturating_sub(1), sp + 8),
            _ => return found,
        }
        #[cfg(not(target_arch = "x86_64"))]
        if is_code(snapshot.lr) {
            pc = snapshot.lr.saturating_sub(1);
        } else {
            return found;
        }
    }
    #[cfg(target_arch = "x86_64")]
    let registers = UnwindRegsNative::new(pc, sp, snapshot.fp);
    #[cfg(target_arch = "aarch64")]
    let registers = UnwindRegsNative::new(snapshot.lr, std::mem::take(&mut sp), snapshot.fp);
    let mut stack = |address| read(snapshot, address);
    let mut frames = unwinder.iter_frames(pc, registers, &mut cache, &mut stack);
    while let Ok(Some(frame)) = frames.next() {
        found.push(frame.address_for_lookup());
        if found.len() >= MAX_FRAMES || !is_read(frame.address_for_lookup()) {
            break;
        }
    }
    found
}

/// Returns the source file and line of each address in a file for which they are known.
fn lines(path: &Path, addresses: &[u64]) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    let Ok(file) = File::open(path) else { return found };
    let file = &ReadCache::new(file);
    let Ok(object) = object::File::parse(file) else { return found };
    let endian = match object.endianness() {
        Endianness::Little => RunTimeEndian::Little,
        Endianness::Big => RunTimeEndian::Big,
    };
    let section = |name: &str| {
        let section = object
            .section_by_name(name)
            .filter(|s| name.starts_with(DEBUG_PREFIX) && s.size() <= MAX_SECTION_SIZE);
        section.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default()
    };
    let load = |id: gimli::SectionId| Ok::<_, gimli::Error>(section(id.name()));
    let Ok(sections) = gimli::DwarfSections::load(load) else { return found };
    let dwarf = sections.borrow(|data| EndianSlice::new(data, endian));
    let Ok(context) = addr2line::Context::from_dwarf(dwarf) else { return found };
    for address in addresses {
        if let Ok(Some(place)) = context.find_location(*address)
            && let (Some(file), Some(line)) = (place.file, place.line)
        {
            let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(*address, format!("{file}:{line}"));
        }
    }
    found
}

/// Returns the call stack of a process at the signal that killed it.
pub(super) fn backtrace(snapshot: &Snapshot) -> Backtrace {
    // Only the files that the call stack needs are read, because a process maps many other files.
    let (mut images, mut unread) = (Vec::new(), snapshot.mappings.clone());
    let addresses = loop {
        let addresses = unwind(snapshot, &images);
        let wanted: Vec<Mapping> = unread
            .extract_if(.., |mapping| addresses.iter().any(|address| mapping.memory.contains(address)))
            .collect();
        if wanted.is_empty() {
            break addresses;
        }
        images.extend(wanted.into_iter().filter_map(LoadedImage::read));
    };
    let mut by_file: HashMap<&Path, (&Image, Vec<u64>)> = HashMap::new();
    let places: Vec<_> = addresses
        .into_iter()
        .map(|address| {
            let placed = images.iter().find(|placed| placed.mapping.memory.contains(&address));
            let offset = address.wrapping_sub(placed.map_or(0, LoadedImage::bias));
            if let Some(placed) = placed {
                let of_file = by_file.entry(&placed.mapping.path);
                of_file.or_insert_with(|| (&placed.image, Vec::new())).1.push(offset);
            }
            (placed, offset)
        })
        .collect();
    let lines: HashMap<&Path, HashMap<u64, String>> =
        by_file.into_iter().map(|(path, (image, addresses))| (path, image.lines(path, &addresses))).collect();
    let frames = places
        .into_iter()
        .map(|(placed, offset)| {
            let Some(LoadedImage { mapping, image }) = placed else {
                return StackFrame { module: None, offset, begin: None, function: None, line: None };
            };
            let (begin, function) = image.function(offset).unzip();
            StackFrame {
                module: Some(image.name.clone()),
                offset,
                begin: begin.or_else(|| image.begin(offset)),
                function: function.map(|name| addr2line::demangle_auto(name.into(), None).into_owned()),
                line: lines.get(mapping.path.as_path()).and_then(|lines| lines.get(&offset)).cloned(),
            }
        })
        .collect();
    let Snapshot { name, rank, signal, address, pc, sp, fp, .. } = snapshot.clone();
    Backtrace { name, rank, signal, address, pc, sp, fp, frames }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_executable_file_mappings() {
        let line = "5555-6666 r-xp 00001000 08:01 77                         /usr/bin/a b";
        let code = Mapping { memory: 0x5555..0x6666, offset: 0x1000, path: "/usr/bin/a b".into() };
        assert_eq!(Mapping::of_code(line), Some(code));
        for other in [
            "5555-6666 r--p 00001000 08:01 77      /usr/bin/a",
            "7ffe-7fff r-xp 00000000 00:00 0       [vdso]",
            "7ffe-7fff rw-p 00000000 00:00 0 ",
            "",
        ] {
            assert_eq!(Mapping::of_code(other), None, "{other}");
        }
    }
}
