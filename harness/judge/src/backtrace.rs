//! The stack of a crashed process, as reported by a debugger, and the frame to blame for the crash.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Length to which the kernel truncates the name of a process, in bytes.
const MAX_PROCESS_NAME: usize = 15;

/// A debugger's view of a process at the moment of the fatal signal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Backtrace {
    /// The name of the process, which the kernel truncates to 15 bytes.
    pub name: String,
    /// The rank of the process, if its environment contains a rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The number of the signal.
    pub signal: i32,
    /// The invalid address that the process accessed, if the access caused the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// The instruction pointer.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// The current instruction, followed by the return addresses on the stack.
    pub frames: Vec<StackFrame>,
}

/// A call on a stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Frame")]
pub struct StackFrame {
    /// File name of the program or library that contains the instruction; `None` if the address belongs to no file and is therefore not
    /// code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The offset of the instruction within the module's file.
    pub offset: u64,
    /// The offset within the module's file at which the function begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u64>,
    /// The name of the function, if the file contains a symbol for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// File and line of the source code, if there is debug information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// The location of a crash, in a form that is the same in every run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[serde(rename = "Place")]
pub enum CrashLocation {
    /// A function with a known name.
    Function(String),
    /// The start of a function whose name is unknown, or the instruction if the start is unknown too.
    Address {
        /// File name of the program or library.
        module: String,
        /// The offset within the module's file.
        offset: u64,
    },
}

/// Prefixes of the names of system libraries. If a process dies in a system library, the caller is to blame.
const SYSTEM_LIBRARY_PREFIXES: [&str; 12] = [
    "libc.so",
    "libc-",
    "libpthread",
    "ld-linux",
    "ld-musl",
    "libm.so",
    "libstdc++",
    "libgcc_s",
    "libasan",
    "libubsan",
    "libtsan",
    "liblsan",
];

/// Runtime functions that terminate a program, or that manage its memory and strings. Statically linked programs contain them.
const RUNTIME_FUNCTIONS: [&str; 36] = [
    "abort",
    "raise",
    "gsignal",
    "kill",
    "tgkill",
    "pthread_kill",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "cfree",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "memrchr",
    "mempcpy",
    "strlen",
    "strnlen",
    "strcpy",
    "strncpy",
    "strcat",
    "strncat",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "strchr",
    "strrchr",
    "strstr",
    "strtok",
    "strdup",
    "rust_panic",
    "rust_begin_unwind",
    "rust_eh_personality",
];

/// Prefixes of the names of other runtime functions.
const RUNTIME_PREFIXES: [&str; 29] = [
    "__GI_",
    "__libc_",
    "__assert",
    "__fortify_fail",
    "__chk_fail",
    "__stack_chk_fail",
    "__pthread_kill",
    "_int_",
    "__mem",
    "__str",
    "__rawmem",
    "__wmem",
    "__cxa_",
    "__gnu_cxx::",
    "__sanitizer",
    "__asan",
    "__ubsan",
    "__interceptor",
    "malloc_printerr",
    "__rust",
    "core::",
    "std::",
    "alloc::",
    "<core::",
    "<std::",
    "<alloc::",
    "unlink_chunk",
    "rustix::",
    "nix::",
];

impl StackFrame {
    /// Returns true if the frame belongs to a system library, to a runtime function, or to no file. Such a frame is usually not to blame.
    fn is_runtime(&self) -> bool {
        // An address that belongs to no file is not code, so the caller that jumped there is to blame.
        let Some(module) = &self.module else { return true };
        if SYSTEM_LIBRARY_PREFIXES.iter().any(|name| module.starts_with(name)) {
            return true;
        }
        let ends = |name: &str| {
            RUNTIME_FUNCTIONS.contains(&name) || RUNTIME_PREFIXES.iter().any(|begin| name.starts_with(begin))
        };
        self.function.as_deref().is_some_and(ends)
    }

    /// Returns the location of the frame, or `None` if its address does not belong to a file.
    fn place(&self) -> Option<CrashLocation> {
        match (&self.function, &self.module) {
            (Some(name), _) => Some(CrashLocation::Function(name.clone())),
            (None, Some(module)) => Some(CrashLocation::Address {
                module: module.clone(),
                offset: self.begin.unwrap_or(self.offset),
            }),
            (None, None) => None,
        }
    }
}

impl Backtrace {
    /// Returns the frame to blame: the innermost frame outside of system libraries and runtime functions or, if there is none, the
    /// innermost frame whose address belongs to a file.
    pub fn blamed_frame(&self) -> Option<&StackFrame> {
        let known = || self.frames.iter().find(|frame| frame.module.is_some());
        self.frames.iter().find(|frame| !frame.is_runtime()).or_else(known)
    }

    /// Returns the location of the frame to blame, or `None` if no frame's address belongs to a file.
    pub fn place(&self) -> Option<CrashLocation> {
        self.blamed_frame().and_then(StackFrame::place)
    }

    /// Returns whether the backtrace belongs to a process called `name` that was killed by `signal`. Allows for a name
    /// that the kernel has truncated.
    pub fn belongs_to(&self, name: &str, signal: i32) -> bool {
        let kept = &name[..name.floor_char_boundary(MAX_PROCESS_NAME.min(name.len()))];
        self.signal == signal && (self.name == name || self.name == kept)
    }
}

/// An address, displayed in hexadecimal as in a debugger.
struct HexAddress(u64);

impl fmt::Display for HexAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for CrashLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => f.write_str(name),
            Self::Address { module, offset } => write!(f, "{module}+{}", HexAddress(*offset)),
        }
    }
}

impl StackFrame {
    /// Returns the name of the function or, if the name is unknown, the address of the instruction.
    pub fn name(&self) -> String {
        match &self.function {
            Some(name) => name.clone(),
            None => self.at(),
        }
    }

    /// Returns the address of the instruction, relative to its file if the file is known.
    fn at(&self) -> String {
        match &self.module {
            Some(module) => format!("{module}+{}", HexAddress(self.offset)),
            None => format!("no code at {}", HexAddress(self.offset)),
        }
    }
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, &self.line, self.begin) {
            (Some(name), Some(line), _) => write!(f, "in {name} at {line} ({})", self.at()),
            (Some(name), None, _) => write!(f, "in {name} ({})", self.at()),
            (None, Some(line), _) => write!(f, "at {line} ({})", self.at()),
            (None, None, Some(begin)) => {
                write!(f, "at {}, in the function at {}", self.at(), HexAddress(begin))
            }
            (None, None, None) => write!(f, "at {}", self.at()),
        }
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} got signal {}", self.name, self.signal)?;
        if let Some(address) = self.address {
            write!(f, " at address {}", HexAddress(address))?;
        }
        write!(f, "; pc {}, sp {}, fp {}", HexAddress(self.pc), HexAddress(self.sp), HexAddress(self.fp))?;
        for (frame, number) in self.frames.iter().zip(0..) {
            write!(f, "\n  #{number} {frame}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, function: Option<&str>, offset: u64, begin: Option<u64>) -> StackFrame {
        StackFrame {
            module: Some(module.into()),
            offset,
            begin,
            function: function.map(str::to_owned),
            line: None,
        }
    }

    fn of(frames: Vec<StackFrame>) -> Backtrace {
        let name = "hydra_pmi_proxy".into();
        Backtrace { name, rank: None, signal: 6, address: None, pc: 1, sp: 2, fp: 3, frames }
    }

    #[test]
    fn crash_location_is_first_function_outside_libraries() {
        let program = |name| frame("pm", Some(name), 0x1234, Some(0x1200));
        let libc = |name| frame("libc.so.6", name, 0x99, None);
        for (frames, place) in [
            (vec![program("serve"), program("main")], Some("serve")),
            (vec![libc(None), libc(Some("raise")), libc(Some("abort")), program("serve")], Some("serve")),
            (vec![program("__GI_raise"), program("abort"), program("serve_one")], Some("serve_one")),
            (vec![program("strlen"), program("string_of")], Some("string_of")),
            (vec![program("free"), program("freeze"), program("main")], Some("freeze")),
            (
                vec![
                    program("core::panicking::panic"),
                    program("<std::io::Error as core::fmt::Debug>::fmt"),
                    program("pm::serve"),
                ],
                Some("pm::serve"),
            ),
            (vec![frame("pm", None, 0x1234, Some(0x1200))], Some("pm+0x1200")),
            (vec![frame("pm", None, 0x1234, None)], Some("pm+0x1234")),
            (vec![libc(Some("raise"))], Some("raise")),
            (vec![StackFrame { module: None, ..frame("", None, 7, None) }, program("serve")], Some("serve")),
            (vec![StackFrame { module: None, ..frame("", None, 7, None) }], None),
            (vec![], None),
        ] {
            assert_eq!(of(frames.clone()).place().map(|p| p.to_string()).as_deref(), place, "{frames:?}");
        }
    }

    #[test]
    fn matches_truncated_process_names() {
        let trace = Backtrace { name: "hydra_pmi_proxy".into(), ..of(Vec::new()) };
        assert!(
            trace.belongs_to("hydra_pmi_proxy_of_another_version", 6)
                && trace.belongs_to("hydra_pmi_proxy", 6)
        );
        assert!(!trace.belongs_to("hydra_pmi_proxy", 11) && !trace.belongs_to("hydra", 6));
    }
}
