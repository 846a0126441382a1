//! The control-flow edges that an implementation under test executes, in the format of AFL++'s map.
//!
//! Programs compiled with `afl-clang-fast` and similar compilers count their executed edges in shared memory, with one byte for each edge.
//! The memory is a System V segment, whose id is in the environment ([`ID`]). Every process started by the implementation inherits the id
//! and updates the same map. Other programs ignore the id and leave the map empty.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::procfs;

/// Environment variable that contains the id of the shared memory.
pub const ID: &str = "__AFL_SHM_ID";
/// Environment variable that contains the size of the shared memory, for programs with many edges.
pub const SIZE: &str = "AFL_MAP_SIZE";

/// Size of a map in bytes. A process manager has fewer edges. AFL++'s own maps have 65,536 bytes by default.
const BYTES: usize = 1 << 20;
const WORDS: usize = BYTES / size_of::<u64>();

thread_local! {
    /// The id of the shared memory that is offered to processes that this thread starts.
    static OFFERED_MAP: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A guard that clears [`OFFERED_MAP`] on drop, so that no later process is offered the map, even after a panic.
struct MapOffer;

impl Drop for MapOffer {
    fn drop(&mut self) {
        OFFERED_MAP.set(None);
    }
}

/// Shared memory in which an implementation under test may count the edges that it executes. The system frees the memory when the last
/// process releases it.
#[derive(Debug)]
pub struct EdgeMap {
    id: libc::c_int,
    words: NonNull<AtomicU64>,
}

#[expect(unsafe_code, reason = "shmat returns the shared memory as a raw address")]
// SAFETY: the address does not change, and the memory there is used only as atomic words, which threads may share.
unsafe impl Send for EdgeMap {}
#[expect(unsafe_code, reason = "see above")]
// SAFETY: as for `Send`.
unsafe impl Sync for EdgeMap {}

impl EdgeMap {
    /// Creates an empty map.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not support System V shared memory, or has none left.
    pub fn new() -> io::Result<Self> {
        #[expect(unsafe_code, reason = "no crate has safe wrappers for System V shared memory")]
        // SAFETY: all arguments are integers.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: without an address, the system chooses one that is not in use.
        let address = unsafe { libc::shmat(id, ptr::null(), 0) };
        let attached = io::Error::last_os_error();
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: the command takes no third argument. Other processes can still attach the memory. Linux frees it as soon as no process
        // has it attached, even if this process is killed.
        unsafe {
            libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
        }
        match NonNull::new(address.cast()) {
            Some(words) if address.addr() != usize::MAX => Ok(Self { id, words }),
            _ => Err(attached),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        #[expect(unsafe_code, reason = "only the address of the memory is known")]
        // SAFETY: `words` points to `WORDS` page-aligned words, which stay mapped until `self` is dropped. Other processes may write to
        // them at any time, so they are atomics; every bit pattern is a valid `u64`.
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr(), WORDS)
        }
    }

    /// Returns whether another process may have written to the map. If not, the map need not be read.
    pub fn was_attached(&self) -> bool {
        let mut state = MaybeUninit::<libc::shmid_ds>::uninit();
        #[expect(unsafe_code, reason = "see `new`")]
        // SAFETY: the command fills its whole argument; if it fails, the argument is not read.
        let last = unsafe {
            let result = libc::shmctl(self.id, libc::IPC_STAT, state.as_mut_ptr());
            (result == 0).then(|| state.assume_init().shm_lpid)
        };
        last != Some(procfs::own_pid())
    }

    /// Sets all counts to zero.
    pub fn clear(&self) {
        for word in self.words() {
            // Words that are already zero are not written, because writing to an unused page would allocate it.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the executed edges with their counts, which wrap around after 255.
    pub fn counted(&self) -> Vec<(u32, u8)> {
        let mut all = Vec::new();
        for (at, word) in self.words().iter().enumerate() {
            let counts = word.load(Ordering::Relaxed);
            if counts != 0 {
                let bytes = counts.to_ne_bytes();
                all.extend((at as u32 * 8..).zip(bytes).filter(|(_, count)| *count != 0));
            }
        }
        all
    }

    /// Runs a function, and offers the map to processes that this thread starts while the function runs.
    pub fn offer_during<T>(&self, play: impl FnOnce() -> T) -> T {
        OFFERED_MAP.set(Some(self.id.to_string()));
        let _offering = MapOffer;
        play()
    }
}

impl Drop for EdgeMap {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "see `new`")]
        // SAFETY: the address is no longer used.
        unsafe {
            libc::shmdt(self.words.as_ptr().cast());
        }
    }
}

/// Offers the map of this thread, if any, to a command.
pub(crate) fn prepare(command: &mut Command) {
    OFFERED_MAP.with_borrow(|id| {
        if let Some(id) = id {
            command.env(ID, id).env(SIZE, BYTES.to_string());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &Command) -> Vec<(String, Option<String>)> {
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn reads_and_clears_edge_counts() {
        let map = EdgeMap::new().unwrap();
        assert_eq!((map.counted(), map.was_attached()), (vec![], false));
        map.words()[0].store(u64::from_ne_bytes([1, 0, 3, 0, 0, 0, 0, 0]), Ordering::Relaxed);
        map.words()[WORDS - 1].store(u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 255]), Ordering::Relaxed);
        assert_eq!(map.counted(), [(0, 1), (2, 3), (BYTES as u32 - 1, 255)]);
        map.clear();
        assert_eq!(map.counted(), []);
    }

    #[test]
    fn edge_map_is_offered_only_during_the_call() {
        let map = EdgeMap::new().unwrap();
        let mut command = Command::new("true");
        map.offer_during(|| prepare(&mut command));
        let size = Some(BYTES.to_string());
        assert_eq!(environment(&command), [(SIZE.into(), size), (ID.into(), Some(map.id.to_string()))]);
        let mut command = Command::new("true");
        prepare(&mut command);
        assert_eq!(environment(&command), []);
    }
}
