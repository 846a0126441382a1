//! Counts the allocated bytes of a thread, so that targets can check memory limits.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct CountingAllocator;

thread_local! {
    // The allocator uses the counter, so the counter must have no destructor and no lazy initialization.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    LIVE.set(LIVE.get().wrapping_add(bytes));
}

// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as isize - layout.size() as isize);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the number of bytes that this thread has allocated and not freed.
pub(crate) fn live() -> isize {
    LIVE.get()
}

/// Panics if the allocated bytes of this thread exceed `before` by more than `limit`. `before` is an earlier result of [`live`].
pub(crate) fn check(before: isize, limit: usize, what: &str) {
    let held = live() - before;
    assert!(held <= limit as isize, "{held} bytes are held by {what}, but the limit is {limit}");
}
