//! The quick agent of a rank, for the usual launch: the process manager has set PMI_FD, and the path of the agent leads to the runner's
//! socket. The agent passes its descriptor to the runner and waits until it is ordered to exit. The full agent (`agent/rank.rs`) sends the
//! same messages in the same order. In every other case, this program executes the full agent, which handles all cases and reports errors.
//!
//! A short program spends most of its time starting the C library: the loader runs, and the library queries the processor's caches, which
//! traps on virtual machines. Therefore, this program does not use a C library. The build script compiles this program, because a crate in
//! a workspace cannot have its own panic strategy.
#![no_std]
#![no_main]
// Without this attribute, the compiler could replace the loops below with calls to the functions that they implement.
#![no_builtins]

use core::arch::{asm, global_asm};

/// File name of the agent. Must equal `agent::rank::NAME` in pmi-process.
const NAME: &[u8] = b"pmi-conform-agent";
/// The runner's socket, relative to the parent of the agent's folder. The part after the slash must equal `agent::SOCKET`.
const SOCKET: &[u8] = b"/runner";
/// The full agent, relative to the agent's folder. The part after the slash must equal `agent::quick::FULL`.
const FULL: &[u8] = b"/full";
/// Environment variable that contains the agent's path, for launchers that do not pass the path on. The part before the equals sign must
/// equal `agent::PATH_VARIABLE`.
const PATH_VARIABLE: &[u8] = b"PMI_CONFORM_AGENT=";

/// Environment variables that describe the node of the process. The parts before the equals signs must equal `event::NODE_VARIABLES` and
/// `event::LOCAL_SIZE_VARIABLE` in pmi-judge.
const NODE_VARIABLES: [&[u8]; 3] = [b"SLURMD_NODENAME=", b"FLUX_URI=", b"MPI_LOCALNRANKS="];

/// Exit status of an agent that has lost its runner. Must equal `agent::RUNNER_LOST_STATUS`.
const RUNNER_LOST_STATUS: i32 = 123;
/// Exit status after a signal that did not kill the process.
const SURVIVED_STATUS: i32 = 124;
/// Exit status of an agent that fails.
const FAILED_STATUS: i32 = 125;

const PATH_MAX: usize = 4096;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    begin = sym begin
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x30, #0",
    "mov x0, sp",
    "bl {begin}",
    begin = sym begin
);

#[cfg(target_arch = "x86_64")]
mod number {
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const CLOSE: usize = 3;
    pub const WRITE: usize = 1;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const GETPEERNAME: usize = 52;
    pub const EXECVE: usize = 59;
    pub const KILL: usize = 62;
    pub const EXIT_GROUP: usize = 231;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const SENDMSG: usize = 211;
    pub const RECVMSG: usize = 212;
    pub const CLOSE: usize = 57;
    pub const WRITE: usize = 64;
    pub const GETPID: usize = 172;
    pub const SOCKET: usize = 198;
    pub const CONNECT: usize = 203;
    pub const GETPEERNAME: usize = 205;
    pub const EXECVE: usize = 221;
    pub const KILL: usize = 129;
    pub const EXIT_GROUP: usize = 94;
}

const AF_UNIX: u16 = 1;
const SOCK_STREAM_CLOEXEC: usize = 1 | 0o2_000_000;
const MSG_NOSIGNAL: usize = 0x4000;
const SOL_SOCKET: i32 = 1;
const SCM_RIGHTS: i32 = 1;
const EINTR: isize = -4;
/// Type of the auxiliary vector entry that contains the path of the executed program.
const AT_EXECFN: usize = 31;

/// Makes a system call; a negative result is a negated error number.
///
/// # Safety
///
/// The arguments must meet the kernel's requirements for the call `number`.
unsafe fn call(number: usize, arguments: [usize; 3]) -> isize {
    let [a, b, c] = arguments;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result, in("x1") b, in("x2") c,
            options(nostack));
    }
    result
}

fn exit(status: i32) -> ! {
    loop {
        // SAFETY: the argument is a number.
        unsafe { call(number::EXIT_GROUP, [status as usize, 0, 0]) };
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(FAILED_STATUS)
}

/// A symbol that the core library's tables refer to, because that library was built with unwinding. This program never unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Copies `n` bytes. The compiler generates calls to this function.
///
/// # Safety
///
/// The caller must meet the requirements of C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        unsafe { *to.add(i) = *from.add(i) };
    }
    to
}

/// Fills `n` bytes. The compiler generates calls to this function.
///
/// # Safety
///
/// The caller must meet the requirements of C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        unsafe { *to.add(i) = byte as u8 };
    }
    to
}

/// Compares `n` bytes. The compiler generates calls to this function.
///
/// # Safety
///
/// The caller must meet the requirements of C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    for i in 0..n {
        // SAFETY: guaranteed by the caller.
        let (a, b) = unsafe { (*a.add(i), *b.add(i)) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// Compares `n` bytes. The compiler generates calls to this function.
///
/// # Safety
///
/// The caller must meet the requirements of C's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { memcmp(a, b, n) }
}

/// A list of strings from the kernel, such as the arguments of a program. The strings live as long as the program.
#[derive(Clone, Copy)]
struct Strings(*const *const u8);

impl Strings {
    fn get(self, index: usize) -> Option<&'static [u8]> {
        // SAFETY: the list ends with a null pointer, and `iter` stops there. The strings end with a NUL and are never changed.
        unsafe {
            let text = *self.0.add(index);
            (!text.is_null()).then(|| string(text))
        }
    }

    fn iter(self) -> impl Iterator<Item = &'static [u8]> {
        (0..).map_while(move |index| self.get(index))
    }

    /// Returns the value of an environment variable; `begin` is the variable's name followed by `=`.
    fn variable(self, begin: &[u8]) -> Option<&'static [u8]> {
        self.iter().find_map(|entry| entry.strip_prefix(begin))
    }
}

/// Returns the bytes of a string before its NUL.
///
/// # Safety
///
/// `text` must end with a NUL, and must never change.
unsafe fn string(text: *const u8) -> &'static [u8] {
    let mut length = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        while *text.add(length) != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(text, length)
    }
}

/// Runs the program. The initial stack contains its arguments and environment.
///
/// # Safety
///
/// `stack` must be the top of the stack as the kernel prepares it for a new program.
unsafe extern "C" fn begin(stack: *const usize) -> ! {
    // SAFETY: the stack contains the number of arguments, the arguments, a null, the environment, a null, and the auxiliary vector.
    let (arguments, environment, executed_as) = unsafe {
        let arguments = Strings(stack.add(1).cast());
        let environment = Strings(stack.add(2 + *stack).cast());
        let mut auxiliary = environment.0.add(environment.iter().count() + 1).cast::<usize>();
        while *auxiliary != 0 && *auxiliary != AT_EXECFN {
            auxiliary = auxiliary.add(2);
        }
        let path = *auxiliary.add(1) as *const u8;
        let has_path = *auxiliary == AT_EXECFN && !path.is_null();
        (arguments, environment, if has_path { string(path) } else { b"" })
    };
    let program = arguments.get(0).unwrap_or_default();
    let variable = environment.variable(PATH_VARIABLE).unwrap_or_default();
    let Some(place) = [executed_as, program, variable].into_iter().find_map(AgentPath::of) else {
        complain(b"pmi-conform-agent: not started through its path in the scratch folder of a run\n");
        exit(FAILED_STATUS);
    };
    let connections = pmi_fd(environment).and_then(|pmi| Some((pmi, connect(place.scratch)?)));
    let Some((pmi, runner)) = connections else { become_full(&place, arguments, environment) };
    let mut hello = Hello { runner, descriptor: Some(pmi), text: [0; 4096], length: 0 };
    hello.write(&place, arguments, environment);
    // Close this process's copy of the descriptor, so that the connection ends as soon as the runner closes its own copy. SAFETY: the
    // descriptor belongs to this process.
    unsafe { call(number::CLOSE, [pmi, 0, 0]) };
    obey(runner)
}

/// The path through which the agent was started. It is absolute, and ends with the name of a process group's folder and the agent's name.
struct AgentPath {
    path: &'static [u8],
    folder: &'static [u8],
    /// The parent of the agent's folder. This parent contains the runner's socket.
    scratch: &'static [u8],
    /// The digits of the process group's number.
    group: &'static [u8],
}

impl AgentPath {
    fn of(path: &'static [u8]) -> Option<Self> {
        let (folder, name) = split(path)?;
        let (scratch, group) = split(folder)?;
        let group = group.strip_prefix(b"g")?;
        let is_number = !group.is_empty() && group.iter().all(u8::is_ascii_digit);
        (path.starts_with(b"/") && name == NAME && is_number).then_some(Self { path, folder, scratch, group })
    }
}

/// Splits a path into its folder and its file name.
fn split(path: &'static [u8]) -> Option<(&'static [u8], &'static [u8])> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    Some((path.get(..slash)?, path.get(slash + 1..)?))
}

/// Returns the descriptor that PMI_FD names, if it is a connected socket.
fn pmi_fd(environment: Strings) -> Option<usize> {
    let digits = environment.variable(b"PMI_FD=")?;
    let number = number(digits)?;
    let (mut address, mut length) = ([0u8; 128], 128u32);
    // SAFETY: `length` is the size of `address`, and both outlive the call.
    let result = unsafe {
        call(number::GETPEERNAME, [number, address.as_mut_ptr() as usize, &raw mut length as usize])
    };
    (result == 0).then_some(number)
}

/// Parses a number of at most nine digits.
fn number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

fn connect(scratch: &[u8]) -> Option<usize> {
    #[repr(C)]
    struct Address {
        family: u16,
        path: [u8; 108],
    }
    let mut address = Address { family: AF_UNIX, path: [0; 108] };
    join(&mut address.path, &[scratch, SOCKET])?;
    // SAFETY: the arguments are numbers, except for an address that outlives the calls.
    unsafe {
        let socket = call(number::SOCKET, [AF_UNIX as usize, SOCK_STREAM_CLOEXEC, 0]);
        let socket = usize::try_from(socket).ok()?;
        let length = size_of::<Address>();
        let result = call(number::CONNECT, [socket, &raw const address as usize, length]);
        (result == 0).then_some(socket)
    }
}

/// Writes the parts and a final NUL to `text`. Returns `None` if they do not fit.
fn join(text: &mut [u8], parts: &[&[u8]]) -> Option<()> {
    let bytes = parts.iter().flat_map(|part| part.iter()).copied().chain([0]);
    let mut places = text.iter_mut();
    for byte in bytes {
        *places.next()? = byte;
    }
    Some(())
}

/// Replaces this process with the full agent.
fn become_full(place: &AgentPath, arguments: Strings, environment: Strings) -> ! {
    let (mut file, mut name) = ([0; PATH_MAX], [0; PATH_MAX]);
    if join(&mut file, &[place.folder, FULL]).is_some() && join(&mut name, &[place.path]).is_some() {
        // SAFETY: the file's path ends with a NUL, and the two lists end with a null. The first argument, which becomes the agent's path,
        // is copied by the kernel before this program's memory is released.
        unsafe {
            if arguments.get(0).is_some() {
                arguments.0.cast_mut().write(name.as_ptr());
            }
            call(number::EXECVE, [file.as_ptr() as usize, arguments.0 as usize, environment.0 as usize]);
        }
    }
    complain(b"pmi-conform-agent: cannot execute the file \"full\" next to the agent\n");
    exit(FAILED_STATUS)
}

fn complain(text: &[u8]) {
    // SAFETY: the call reads only the bytes of `text`.
    unsafe { call(number::WRITE, [2, text.as_ptr() as usize, text.len()]) };
}

#[repr(C)]
struct Part {
    text: *const u8,
    length: usize,
}

/// A control message that carries a descriptor.
#[repr(C)]
struct Rights {
    length: usize,
    level: i32,
    kind: i32,
    descriptor: i32,
    padding: i32,
}

#[repr(C)]
struct MessageHeader {
    name: *const u8,
    name_length: u32,
    parts: *const Part,
    part_count: usize,
    control: *const Rights,
    control_length: usize,
    flags: i32,
}

const RIGHTS: Rights = Rights {
    // The length excludes the padding after the descriptor.
    length: size_of::<Rights>() - size_of::<i32>(),
    level: SOL_SOCKET,
    kind: SCM_RIGHTS,
    descriptor: 0,
    padding: 0,
};

/// The message `Hello::Rank` (see `agent/protocol.rs`), a line of JSON. The descriptor is sent with the first bytes of the line.
struct Hello {
    runner: usize,
    descriptor: Option<usize>,
    text: [u8; 4096],
    length: usize,
}

impl Hello {
    fn write(&mut self, place: &AgentPath, arguments: Strings, environment: Strings) {
        self.put(b"{\"rank\":{\"group\":");
        // JSON does not allow leading zeros in numbers, so they are skipped.
        let zeros = place.group.iter().take_while(|digit| **digit == b'0').count();
        self.put(place.group.get(zeros.min(place.group.len() - 1)..).unwrap_or(b"0"));
        self.put(b",\"pid\":");
        // SAFETY: the call has no arguments.
        self.put_number(unsafe { call(number::GETPID, [0; 3]) } as usize);
        self.put(b",\"env\":");
        let is_of_protocol = |entry: &&[u8]| {
            let is_of_node = NODE_VARIABLES.iter().any(|begin| entry.starts_with(begin));
            let is_of_pmi = entry.starts_with(b"PMI_") && !entry.starts_with(b"PMI_CONFORM");
            (is_of_pmi || is_of_node) && entry.contains(&b'=')
        };
        self.put_list(environment.iter().filter(is_of_protocol));
        self.put(b",\"args\":");
        self.put_list(arguments.iter().skip(1));
        self.put(b"}}\n");
        self.send();
    }

    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.length == self.text.len() {
                self.send();
            }
            if let Some(place) = self.text.get_mut(self.length) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    fn put_number(&mut self, number: usize) {
        if number >= 10 {
            self.put_number(number / 10);
        }
        self.put(&[b'0' + (number % 10) as u8]);
    }

    fn put_list(&mut self, list: impl Iterator<Item = &'static [u8]>) {
        self.put(b"[");
        for (index, entry) in list.enumerate() {
            self.put(if index == 0 { b"\"" } else { b",\"" });
            entry.iter().for_each(|byte| self.put_byte(*byte));
            self.put(b"\"");
        }
        self.put(b"]");
    }

    /// Writes a byte in the format of pmi-judge's `Bytes`: quotes, backslashes and all bytes other than printable ASCII are escaped as
    /// `\xNN`. JSON doubles the backslash of the escape.
    fn put_byte(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b' '..=b'~' if !b"\"'\\".contains(&byte) => self.put(&[byte]),
            _ => {
                let digit = |four: u8| HEX[usize::from(four & 15)];
                self.put(&[b'\\', b'\\', b'x', digit(byte >> 4), digit(byte)]);
            }
        }
    }

    fn send(&mut self) {
        let mut sent = 0;
        while sent < self.length {
            let Some(rest) = self.text.get(sent..self.length) else { break };
            let part = Part { text: rest.as_ptr(), length: rest.len() };
            let rights = Rights { descriptor: self.descriptor.unwrap_or(0) as i32, ..RIGHTS };
            let control_length = if self.descriptor.is_some() { size_of::<Rights>() } else { 0 };
            let message = MessageHeader {
                name: core::ptr::null(),
                name_length: 0,
                parts: &raw const part,
                part_count: 1,
                control: if control_length > 0 { &raw const rights } else { core::ptr::null() },
                control_length,
                flags: 0,
            };
            // SAFETY: everything that the message points to outlives the call.
            let result =
                unsafe { call(number::SENDMSG, [self.runner, &raw const message as usize, MSG_NOSIGNAL]) };
            match result {
                EINTR => {}
                1.. => {
                    self.descriptor = None;
                    sent += result as usize;
                }
                _ => exit(RUNNER_LOST_STATUS),
            }
        }
        self.length = 0;
    }
}

/// Waits for the order to exit: `{"exit":STATUS}` or `{"kill":SIGNAL}`. This process closes no descriptor itself: when it exits, the kernel
/// closes the descriptor that it received with the order.
fn obey(runner: usize) -> ! {
    let (mut line, mut length) = ([0u8; 64], 0);
    while !line.iter().take(length).any(|b| *b == b'\n') {
        let Some(rest) = line.get_mut(length..).filter(|rest| !rest.is_empty()) else {
            exit(RUNNER_LOST_STATUS)
        };
        let part = Part { text: rest.as_ptr(), length: rest.len() };
        let rights = RIGHTS;
        let message = MessageHeader {
            name: core::ptr::null(),
            name_length: 0,
            parts: &raw const part,
            part_count: 1,
            control: &raw const rights,
            control_length: size_of::<Rights>(),
            flags: 0,
        };
        // SAFETY: everything that the message points to outlives the call, and is not borrowed elsewhere.
        let result = unsafe { call(number::RECVMSG, [runner, &raw const message as usize, 0]) };
        match result {
            EINTR => {}
            1.. => length += result as usize,
            _ => exit(RUNNER_LOST_STATUS),
        }
    }
    let digits = line.get(b"{\"exit\":".len()..).unwrap_or_default();
    let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let Some(value) = digits.get(..count).and_then(number) else { exit(RUNNER_LOST_STATUS) };
    if line.starts_with(b"{\"kill\":") {
        // SAFETY: the arguments are numbers.
        unsafe { call(number::KILL, [call(number::GETPID, [0; 3]) as usize, value, 0]) };
        exit(SURVIVED_STATUS);
    }
    exit(if line.starts_with(b"{\"exit\":") { value as i32 } else { RUNNER_LOST_STATUS })
}
