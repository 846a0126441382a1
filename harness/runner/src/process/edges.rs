//! Which edges of its program an implementation under test goes along, where it was built to tell: AFL++'s map.
//!
//! What `afl-clang-fast` and its like compile counts in memory that it shares with who has started it: at each edge, one byte. The
//! memory is a System V segment, whose number the environment has ([`ID`]). Whoever the implementation starts inherits it and counts
//! in the same map. What was not compiled so takes no notice of it, and leaves the map empty.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::procfs;

/// The variable that has the number of the memory.
pub const ID: &str = "__AFL_SHM_ID";
/// The variable that has its size, which programs of many edges ask for.
pub const SIZE: &str = "AFL_MAP_SIZE";

/// Bytes of a map: more edges than a process manager has. Those of AFL++ itself have 65,536 unless more is asked for.
const BYTES: usize = 1 << 20;
const WORDS: usize = BYTES / size_of::<u64>();

thread_local! {
    /// The number of the memory that what this thread starts is told of.
    static OFFERED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whatever becomes of what is done meanwhile, nothing that is started later is told of the map.
struct Offering;

impl Drop for Offering {
    fn drop(&mut self) {
        OFFERED.set(None);
    }
}

/// Memory in which an implementation under test may count the edges that it goes along. It is given back with the last process that has it.
#[derive(Debug)]
pub struct EdgeMap {
    id: libc::c_int,
    words: NonNull<AtomicU64>,
}

#[expect(unsafe_code, reason = "memory that is shared with other processes comes as an address")]
// SAFETY: the address stays the same, and what lies there is only used as atomic words, as threads may.
unsafe impl Send for EdgeMap {}
#[expect(unsafe_code, reason = "see above")]
// SAFETY: see above.
unsafe impl Sync for EdgeMap {}

impl EdgeMap {
    /// A map with nothing in it.
    ///
    /// # Errors
    ///
    /// The system has no such memory, or no more of it.
    pub fn new() -> io::Result<Self> {
        #[expect(unsafe_code, reason = "no crate has a safe call for System V memory")]
        // SAFETY: takes numbers alone.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, BYTES, libc::IPC_CREAT | 0o600) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: where there is no address, the system finds one that nothing of ours has.
        let address = unsafe { libc::shmat(id, ptr::null(), 0) };
        let attached = io::Error::last_os_error();
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: the command takes no third argument. Linux keeps the memory as long as we have it, and lets others have it too: so
        // it goes with us however we end.
        unsafe {
            libc::shmctl(id, libc::IPC_RMID, ptr::null_mut());
        }
        match NonNull::new(address.cast()) {
            Some(words) if address.addr() != usize::MAX => Ok(Self { id, words }),
            _ => Err(attached),
        }
    }

    fn words(&self) -> &[AtomicU64] {
        #[expect(unsafe_code, reason = "the memory is known by its address alone")]
        // SAFETY: so many words are there, at the beginning of a page, until `self` is dropped. Others may write to them at any time,
        // which is why they are atomic; all bits are a number.
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr(), WORDS)
        }
    }

    /// Whether another process may have counted in it: one that has never had the memory has not, and then nothing needs to be read.
    pub fn was_taken(&self) -> bool {
        let mut state = MaybeUninit::<libc::shmid_ds>::uninit();
        #[expect(unsafe_code, reason = "see `new`")]
        // SAFETY: the command writes the whole of what it is given, and where it has not, that is not read.
        let last = unsafe {
            let told = libc::shmctl(self.id, libc::IPC_STAT, state.as_mut_ptr());
            (told == 0).then(|| state.assume_init().shm_lpid)
        };
        last != Some(procfs::own_pid())
    }

    /// Forgets what was counted.
    pub fn clear(&self) {
        for word in self.words() {
            // A page that nobody has written to is not to become one of ours.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Edges that were gone along, and how often, which is counted up to 255 and may begin again.
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

    /// Does something, and tells processes that this thread starts meanwhile of the map.
    pub fn offered<T>(&self, play: impl FnOnce() -> T) -> T {
        OFFERED.set(Some(self.id.to_string()));
        let _offering = Offering;
        play()
    }
}

impl Drop for EdgeMap {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "see `new`")]
        // SAFETY: nothing has the address any more.
        unsafe {
            libc::shmdt(self.words.as_ptr().cast());
        }
    }
}

/// Tells a command of the map, if there is one for it.
pub(super) fn prepare(command: &mut Command) {
    OFFERED.with_borrow(|id| {
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
    fn what_is_counted_is_read_and_forgotten() {
        let map = EdgeMap::new().unwrap();
        assert_eq!((map.counted(), map.was_taken()), (vec![], false));
        map.words()[0].store(u64::from_ne_bytes([1, 0, 3, 0, 0, 0, 0, 0]), Ordering::Relaxed);
        map.words()[WORDS - 1].store(u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 255]), Ordering::Relaxed);
        assert_eq!(map.counted(), [(0, 1), (2, 3), (BYTES as u32 - 1, 255)]);
        map.clear();
        assert_eq!(map.counted(), []);
    }

    #[test]
    fn what_is_started_meanwhile_is_told_of_the_map_and_nothing_else_is() {
        let map = EdgeMap::new().unwrap();
        let mut command = Command::new("true");
        map.offered(|| prepare(&mut command));
        let size = Some(BYTES.to_string());
        assert_eq!(environment(&command), [(SIZE.into(), size), (ID.into(), Some(map.id.to_string()))]);
        let mut command = Command::new("true");
        prepare(&mut command);
        assert_eq!(environment(&command), []);
    }
}
