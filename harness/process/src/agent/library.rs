//! The agent that loads a library and calls its functions as ordered by the runner.
//!
//! Orders and reports are sent over a socket: standard input or, if a launcher has started the agent, a connection to the runner. The
//! runner detects when the library exits, crashes or hangs. Memory that is passed to the library is never freed, because the library may
//! have kept a pointer.

use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library as Shared, RTLD_GLOBAL, RTLD_NOW};

use super::channel::Channel;
use super::protocol::{AgentOrder, Hello, LibraryReport};
use super::{RUNNER_LOST_STATUS, kill_self};
use pmi_judge::event::{Bytes, NODE_VARIABLES};
use pmi_judge::library::api::{CallArgument, CallResult, OutputValue};
use pmi_scenario::signature::{self, Param};

/// The value of each byte of a buffer before the call.
const FILL_BYTE: u8 = 0xa5;
/// The value of each output integer before the call. No library would return this value.
const UNSET_INT: i32 = -0x5a5a_5a5b;
/// Number of guard elements (bytes or integers) before and after each buffer. A library must not change them.
const GUARD_SIZE: usize = 4096;
/// Default number of elements of a buffer.
const DEFAULT_SIZE: usize = 1024;
/// Maximum number of elements of a buffer.
const SIZE_MAX: usize = 1 << 24;

/// Runs as the agent. Returns the exit status.
///
/// # Errors
///
/// Returns an error if the connection to the runner breaks.
pub fn main(library: &Path) -> io::Result<u8> {
    default_sigpipe();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A library that mistakes standard input for its PMI_FD must not write to the runner.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    execute_orders(Channel::new(socket), library)
}

/// File name that makes the binary act as this agent when a launcher starts it.
pub const NAME: &str = "pmi-conform-library-agent";

/// File name of the library, in the parent of the agent's folder.
pub const LIBRARY: &str = "library";

/// Returns the name of the file that receives the standard error of a process that a launcher has started. The file is in the scratch
/// folder.
pub fn stderr_name(pid: u32) -> String {
    format!("stderr.{pid}")
}

/// Environment variables through which process managers pass the rank of a process. The protocol's own variables come first.
const RANK_VARIABLES: [&str; 5] = ["PMI_RANK", "PMI_ID", "PMIX_RANK", "SLURM_PROCID", "FLUX_TASK_RANK"];

/// Returns whether a launcher has started this process to load a library.
pub fn is_agent(argv0: &OsString) -> bool {
    super::is_called(argv0, NAME)
}

/// Runs as an agent that a launcher has started. Returns the exit status.
pub fn run_under_launcher(argv0: &OsString) -> u8 {
    match connect(argv0).and_then(|(runner, library)| execute_orders(runner, &library)) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            125
        }
    }
}

fn connect(argv0: &OsString) -> io::Result<(Channel, PathBuf)> {
    default_sigpipe();
    let path = super::own_path(argv0, NAME);
    let Some(scratch) = path.as_deref().and_then(Path::parent).and_then(Path::parent) else {
        return Err(io::Error::other("not started through its path in the scratch folder of a run"));
    };
    let mut runner = Channel::to_runner(scratch)?;
    let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    // Launchers delay the output of processes, and drop some of it when a job is aborted, so standard error goes to a file.
    let stderr =
        File::options().create(true).append(true).open(scratch.join(stderr_name(std::process::id())))?;
    rustix::stdio::dup2_stderr(stderr)?;
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let node = NODE_VARIABLES.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(host);
    runner.send_whole(&Hello::Library { rank, pid: std::process::id() as i32, node })?;
    Ok((runner, scratch.join(LIBRARY)))
}

/// Loads the library, and carries out the runner's orders. Returns the exit status.
fn execute_orders(mut runner: Channel, library: &Path) -> io::Result<u8> {
    let loaded = load(library);
    runner.send_whole(&LibraryReport::Loaded(loaded.as_ref().err().map(ToString::to_string)))?;
    let Ok(library) = loaded else { return Ok(0) };
    loop {
        let report = match runner.wait()? {
            // The runner has closed the connection, or has sent an order that only agents with a relayed connection can carry out.
            None | Some(AgentOrder::Write(_) | AgentOrder::Close) => return Ok(RUNNER_LOST_STATUS),
            Some(AgentOrder::Exit(status)) => return Ok(status),
            Some(AgentOrder::Kill(signal)) => return kill_self(signal),
            Some(AgentOrder::Call { function, arguments }) => call(&library, &function, arguments),
        };
        runner.send_whole(&report)?;
    }
}

/// Restores the default action of SIGPIPE, which kills a process that writes to a closed connection. Rust programs ignore SIGPIPE, but a
/// library under test has to handle it.
fn default_sigpipe() {
    #[expect(unsafe_code, reason = "no crate has a safe wrapper for this call")]
    // SAFETY: the call restores the signal's default action, and the process has a single thread.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Loads the library as if the process were linked with it, so that the library's plugins can use the library's symbols.
fn load(path: &Path) -> Result<Shared, libloading::Error> {
    #[expect(unsafe_code, reason = "loads the library under test")]
    // SAFETY: the library's initializers may do anything, and this process exists only to run them.
    unsafe {
        Shared::open(Some(OsString::from(path)), RTLD_NOW | RTLD_GLOBAL)
    }
}

#[derive(Clone, Copy)]
enum ParameterValue {
    Int(c_int),
    Pointer(*mut c_void),
}

/// Memory that the library may fill.
enum OutBuffer {
    /// Integers. The library may write the first `capacity` integers.
    Ints { start: *mut i32, total: usize, capacity: usize, is_single: bool },
    /// Bytes. The library may write the first `capacity` bytes.
    Text { start: *mut u8, total: usize, capacity: usize },
    /// Memory that is not examined.
    Opaque,
}

fn call(library: &Shared, name: &str, arguments: Vec<CallArgument>) -> LibraryReport {
    let refuse = |missing, why: String| LibraryReport::NotCalled { missing, why };
    let Some(function) = signature::function(name) else {
        return refuse(false, format!("unknown PMI function {name}"));
    };
    #[expect(unsafe_code, reason = "looks up a function of the library under test")]
    // SAFETY: the function at this address is called only with the parameters that a function of this name has.
    let symbol = unsafe { library.get::<*const c_void>(name.as_bytes()) };
    let Ok(address) = symbol.map(|s| s.as_raw_ptr().cast_const()) else {
        return refuse(true, format!("the library has no function {name}"));
    };
    if arguments.len() != function.params.len() {
        return refuse(
            false,
            format!("{name}: wrong number of arguments: expected {}", function.params.len()),
        );
    }
    let numbers: Vec<Option<i32>> = arguments
        .iter()
        .map(|argument| match argument {
            CallArgument::Number(n) => Some(*n),
            _ => None,
        })
        .collect();
    let mut slots = Vec::new();
    let mut outs = Vec::new();
    for (param, argument) in function.params.iter().zip(arguments) {
        match place(*param, argument, &numbers, &mut outs) {
            Ok(slot) => slots.push(slot),
            Err(why) => return refuse(false, format!("{name}: {why}")),
        }
    }
    let Some(result) = call_function(address, &slots) else {
        return refuse(false, format!("{name}: the arguments do not match its parameters"));
    };
    let mut returned = CallResult { result, outs: Vec::new(), overrun: Vec::new() };
    for (name, out) in outs {
        let (held, intact) = inspect_buffer(&out);
        if !intact {
            returned.overrun.push(name.clone());
        }
        returned.outs.push((name, held));
    }
    LibraryReport::Returned(returned)
}

fn keep<T>(all: Vec<T>) -> *mut c_void {
    Box::leak(all.into_boxed_slice()).as_mut_ptr().cast()
}

/// The reason why an argument cannot be constructed.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error("the string contains a NUL")]
    Nul(#[from] std::ffi::NulError),
    #[error("invalid pair: write key=value")]
    Pair,
    #[error("invalid list of integers: separate them with |, as in 1|2")]
    Integers,
    #[error("an int parameter requires a number")]
    Int,
    #[error("the argument {0:?} does not match the parameter {1:?}")]
    Unsuitable(CallArgument, Param),
}

fn string(bytes: &[u8]) -> Result<*mut c_char, ArgumentError> {
    Ok(CString::new(bytes)?.into_raw())
}

/// Splits a string such as "a,b" at each separator. Returns no parts for an empty string.
fn parts(text: &[u8], separator: u8) -> Vec<&[u8]> {
    if text.is_empty() { Vec::new() } else { text.split(|b| *b == separator).collect() }
}

fn strings(parts: &[&[u8]], end: bool) -> Result<*mut c_void, ArgumentError> {
    let mut all = parts.iter().map(|part| string(part)).collect::<Result<Vec<_>, _>>()?;
    if end {
        all.push(ptr::null_mut());
    }
    Ok(keep(all))
}

/// `PMI_keyval_t` of RFC 13's API.
#[repr(C)]
struct Keyval {
    key: *const c_char,
    val: *mut c_char,
}

/// `MPID_Info`, which PMI-2 uses to pass key-value pairs.
#[repr(C)]
struct Info {
    handle: c_int,
    pobj_mutex: c_int,
    ref_count: c_int,
    next: *mut c_void,
    key: *const c_char,
    value: *mut c_char,
}

/// Splits a string such as "key=value,key=value" into pairs of C strings.
fn pairs(text: &[u8]) -> Result<Vec<(*mut c_char, *mut c_char)>, ArgumentError> {
    let pair = |part: &&[u8]| {
        let at = part.iter().position(|b| *b == b'=').ok_or(ArgumentError::Pair)?;
        Ok((string(&part[..at])?, string(&part[at + 1..])?))
    };
    parts(text, b',').iter().map(pair).collect()
}

fn vector(text: &[u8]) -> Result<*mut c_void, ArgumentError> {
    Ok(keep(pairs(text)?.into_iter().map(|(key, val)| Keyval { key, val }).collect()))
}

/// Creates an array of `MPID_Info` in which each element points to the next.
fn infos(text: &[u8]) -> Result<*mut c_void, ArgumentError> {
    let pairs = pairs(text)?;
    let info = |(key, value): (*mut c_char, *mut c_char)| Info {
        handle: 0,
        pobj_mutex: 0,
        ref_count: 1,
        next: ptr::null_mut(),
        key,
        value,
    };
    let all = Box::leak(pairs.into_iter().map(info).collect::<Box<[Info]>>());
    for at in 1..all.len() {
        all[at - 1].next = ptr::from_mut(&mut all[at]).cast();
    }
    Ok(all.as_mut_ptr().cast())
}

/// Converts an argument into the value of a parameter, and allocates the memory that the value points to.
fn place(
    param: Param,
    argument: CallArgument,
    numbers: &[Option<i32>],
    outs: &mut Vec<(String, OutBuffer)>,
) -> Result<ParameterValue, ArgumentError> {
    let room = |length: Option<usize>, size: usize| {
        // If the length argument is missing or negative, the whole buffer may be written.
        let capacity = length.and_then(|at| *numbers.get(at)?).and_then(|n| usize::try_from(n).ok());
        capacity.map_or(size, |capacity| capacity.min(size))
    };
    let pointer = match (param, argument) {
        (Param::Int, CallArgument::Number(n)) => return Ok(ParameterValue::Int(n)),
        (Param::Int, _) => return Err(ArgumentError::Int),
        (_, CallArgument::Null) => ptr::null_mut(),
        (Param::Str, CallArgument::Text(text)) => string(&text.0)?.cast(),
        (Param::Strings, CallArgument::Text(text)) => strings(&parts(&text.0, b'|'), false)?,
        (Param::List, CallArgument::Text(text)) => strings(&parts(&text.0, b','), true)?,
        (Param::ListPointer, CallArgument::Text(text)) => keep(vec![strings(&parts(&text.0, b','), true)?]),
        (Param::Lists, CallArgument::Text(text)) => {
            let each = text.0.split(|b| *b == b'|').map(|list| strings(&parts(list, b','), true));
            keep(each.collect::<Result<Vec<_>, _>>()?)
        }
        (Param::Vectors, CallArgument::Text(text)) => {
            keep(text.0.split(|b| *b == b'|').map(vector).collect::<Result<Vec<_>, _>>()?)
        }
        (Param::Vector, CallArgument::Text(text)) => vector(&text.0)?,
        (Param::Info, CallArgument::Text(text)) => infos(&text.0)?,
        (Param::InfoVectors, CallArgument::Text(text)) => {
            keep(text.0.split(|b| *b == b'|').map(infos).collect::<Result<Vec<_>, _>>()?)
        }
        (Param::InfoPointers, CallArgument::Text(text)) => {
            keep(parts(&text.0, b',').into_iter().map(infos).collect::<Result<Vec<_>, _>>()?)
        }
        (Param::Ints, CallArgument::Text(text)) => {
            let number = |part: &&[u8]| std::str::from_utf8(part).ok()?.parse::<c_int>().ok();
            let all = parts(&text.0, b'|').iter().map(number).collect::<Option<Vec<_>>>();
            keep(all.ok_or(ArgumentError::Integers)?)
        }
        (Param::OutInt, CallArgument::Out(name, _)) => ints(name, 1, 1, true, outs),
        (Param::InOutInt, CallArgument::Out(name, before)) => {
            let place = ints(name, 1, 1, true, outs);
            let before = before.and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
            #[expect(unsafe_code, reason = "the memory is passed to the library as a pointer")]
            // SAFETY: `ints` has allocated room for an integer.
            unsafe {
                place.cast::<i32>().write(before);
            }
            place
        }
        (Param::OutInts(length), CallArgument::Out(name, size)) => {
            let size = size.unwrap_or(DEFAULT_SIZE).min(SIZE_MAX);
            ints(name, size, room(length, size), false, outs)
        }
        (Param::OutText(length), CallArgument::Out(name, size)) => {
            let size = size.unwrap_or(DEFAULT_SIZE).min(SIZE_MAX);
            let total = size + 2 * GUARD_SIZE;
            let start = keep(vec![FILL_BYTE; total]).cast::<u8>();
            let inside = start.wrapping_add(GUARD_SIZE);
            outs.push((name, OutBuffer::Text { start, total, capacity: room(length, size) }));
            inside.cast()
        }
        (Param::OutPointer, CallArgument::Out(name, _)) => {
            outs.push((name, OutBuffer::Opaque));
            keep(vec![ptr::null_mut::<c_void>()])
        }
        (param, argument) => return Err(ArgumentError::Unsuitable(argument, param)),
    };
    Ok(ParameterValue::Pointer(pointer))
}

fn ints(
    name: String,
    size: usize,
    room: usize,
    one: bool,
    outs: &mut Vec<(String, OutBuffer)>,
) -> *mut c_void {
    let total = size + 2 * GUARD_SIZE;
    let start = keep(vec![UNSET_INT; total]).cast::<i32>();
    outs.push((name, OutBuffer::Ints { start, total, capacity: room, is_single: one }));
    start.wrapping_add(GUARD_SIZE).cast()
}

/// Returns the content of the buffer after the call, and whether the memory around it is unchanged.
fn inspect_buffer(out: &OutBuffer) -> (OutputValue, bool) {
    match *out {
        OutBuffer::Opaque => (OutputValue::Opaque, true),
        OutBuffer::Ints { start, total, capacity: room, is_single: one } => {
            #[expect(unsafe_code, reason = "the memory was passed to the library as a pointer")]
            // SAFETY: `ints` has allocated `total` integers, which are never freed.
            let all = unsafe { std::slice::from_raw_parts(start, total) };
            let inside = &all[GUARD_SIZE..GUARD_SIZE + room];
            let held: Vec<Option<i32>> =
                inside.iter().map(|n| Some(*n).filter(|n| *n != UNSET_INT)).collect();
            let intact = all[..GUARD_SIZE].iter().chain(&all[GUARD_SIZE + room..]).all(|n| *n == UNSET_INT);
            (
                if one { OutputValue::Int(held.first().copied().flatten()) } else { OutputValue::Ints(held) },
                intact,
            )
        }
        OutBuffer::Text { start, total, capacity: room } => {
            #[expect(unsafe_code, reason = "the memory was passed to the library as a pointer")]
            // SAFETY: `place` has allocated `total` bytes, which are never freed.
            let all = unsafe { std::slice::from_raw_parts(start, total) };
            let inside = &all[GUARD_SIZE..GUARD_SIZE + room];
            let text = memchr::memchr(0, inside).map(|end| Bytes(inside[..end].to_vec()));
            let intact = all[..GUARD_SIZE].iter().chain(&all[GUARD_SIZE + room..]).all(|b| *b == FILL_BYTE);
            (OutputValue::Text(text), intact)
        }
    }
}

/// Calls the function at an address. Returns `None` if no function of either API has parameters of these types.
fn call_function(address: *const c_void, slots: &[ParameterValue]) -> Option<c_int> {
    use ParameterValue::{Int as I, Pointer as P};
    macro_rules! call_function {
        ($($value:ident: $type:ty),*) => {{
            #[expect(unsafe_code, reason = "calls the library under test")]
            // SAFETY: the address is that of an API function with these parameters, and C's calling convention treats all pointers alike.
            // The function itself may do anything: this process exists only to call it.
            unsafe {
                let function: extern "C" fn($($type),*) -> c_int = std::mem::transmute(address);
                function($($value),*)
            }
        }};
    }
    type Ptr = *mut c_void;
    Some(match *slots {
        [] => call_function!(),
        [P(a)] => call_function!(a: Ptr),
        [P(a), P(b)] => call_function!(a: Ptr, b: Ptr),
        [P(a), I(b)] => call_function!(a: Ptr, b: c_int),
        [I(a), P(b)] => call_function!(a: c_int, b: Ptr),
        [P(a), P(b), P(c)] => call_function!(a: Ptr, b: Ptr, c: Ptr),
        [P(a), P(b), P(c), P(d)] => call_function!(a: Ptr, b: Ptr, c: Ptr, d: Ptr),
        [P(a), P(b), P(c), I(d)] => call_function!(a: Ptr, b: Ptr, c: Ptr, d: c_int),
        [P(a), P(b), I(c), P(d), I(e)] => call_function!(a: Ptr, b: Ptr, c: c_int, d: Ptr, e: c_int),
        [I(a), P(b), P(c), P(d), P(e)] => call_function!(a: c_int, b: Ptr, c: Ptr, d: Ptr, e: Ptr),
        [I(a), P(b), P(c), P(d), P(e), P(f), I(g), P(h), P(i)] => {
            call_function!(a: c_int, b: Ptr, c: Ptr, d: Ptr, e: Ptr, f: Ptr, g: c_int, h: Ptr, i: Ptr)
        }
        [P(a), P(b), I(c), P(d)] => call_function!(a: Ptr, b: Ptr, c: c_int, d: Ptr),
        [P(a), P(b), I(c), P(d), P(e)] => call_function!(a: Ptr, b: Ptr, c: c_int, d: Ptr, e: Ptr),
        [P(a), I(b), P(c), P(d), I(e), P(f)] => {
            call_function!(a: Ptr, b: c_int, c: Ptr, d: Ptr, e: c_int, f: Ptr)
        }
        [P(a), P(b), P(c), P(d), P(e), I(f)] => {
            call_function!(a: Ptr, b: Ptr, c: Ptr, d: Ptr, e: Ptr, f: c_int)
        }
        [I(a), P(b), P(c), P(d), P(e), P(f), P(g), I(h), P(i), P(j), I(k), P(l)] => {
            call_function!(a: c_int, b: Ptr, c: Ptr, d: Ptr, e: Ptr, f: Ptr, g: Ptr, h: c_int, i: Ptr, j: Ptr, k: c_int, l: Ptr)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmi_scenario::ast::Dialect;

    #[test]
    fn library_agent_can_call_every_function() {
        extern "C" fn called() -> c_int {
            7
        }
        let functions = [Dialect::Pmi1, Dialect::Pmi2].into_iter().flat_map(signature::functions);
        for function in functions {
            let slot = |param: &Param| match param {
                Param::Int => ParameterValue::Int(0),
                _ => ParameterValue::Pointer(ptr::null_mut()),
            };
            let slots: Vec<ParameterValue> = function.params.iter().map(slot).collect();
            assert_eq!(call_function(called as *const c_void, &slots), Some(7), "{}", function.name);
        }
    }
}
