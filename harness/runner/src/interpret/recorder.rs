//! Numbers the events, stores them, and passes them to the judge.

use std::time::{Duration, Instant};

use pmi_judge::Judge;
use pmi_judge::event::{Event, EventKind, SilenceProof};
use pmi_process::Memory;

use crate::party::proxy::UpstreamCommand;

/// A watcher that controls a run without expectations.
pub trait RunWatcher {
    /// Receives the memory use of the implementation's processes when all ranks have started.
    fn started(&mut self, memory: Vec<Memory>);
    /// Receives the current memory use of the implementation's processes. Returns true if the run must end because they use too much
    /// memory.
    fn exceeds_memory(&mut self, memory: Vec<Memory>) -> bool;
    /// Receives the time that a step waited for its message.
    fn received(&mut self, waited: Duration);
    /// Receives the proof that no message arrived for a step, and the time that the step waited. Returns whether the run must record
    /// the silence: false if the implementation may be waiting for the harness.
    fn received_nothing(&mut self, proof: SilenceProof, waited: Duration) -> bool;
    /// Receives a command that is about to be sent to a proxy's upstream.
    fn ordered(&mut self, command: &UpstreamCommand);
}

/// A sink that receives every event as it happens.
pub trait EventSink {
    /// Receives one event.
    fn event(&mut self, event: &Event);

    /// Returns the watcher of a run without expectations.
    fn watcher(&mut self) -> Option<&mut dyn RunWatcher> {
        None
    }
}

/// A sink that ignores all events.
impl EventSink for () {
    fn event(&mut self, _: &Event) {}
}

/// Maximum number of bytes that are stored for all reads and writes together.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Maximum number of bytes that are stored for a read or write in the transcript. The monitor receives all bytes.
pub const MAX_KEPT_MESSAGE: usize = 64 * 1024;

/// A recorder that numbers the events, stores them, and passes them to the judge.
pub struct Recorder<'a> {
    start: Instant,
    pub(super) sink: &'a mut dyn EventSink,
    /// Number of bytes that may still be stored.
    remaining_bytes: usize,
    /// All events so far.
    pub events: Vec<Event>,
    /// The judge, which observes every event.
    pub judge: Judge,
    /// The line of the scenario that is being played.
    pub line: usize,
}

impl<'a> Recorder<'a> {
    /// Creates a recorder whose clock starts now.
    pub fn new(sink: &'a mut dyn EventSink, judge: Judge) -> Self {
        Self {
            start: Instant::now(),
            sink,
            remaining_bytes: MAX_KEPT_BYTES,
            events: Vec::new(),
            judge,
            line: 0,
        }
    }

    /// Records an event, and returns its number.
    pub fn record(&mut self, kind: EventKind) -> u64 {
        let seq = self.events.len() as u64;
        let time_us = self.start.elapsed().as_micros() as u64;
        let mut event = Event { time_us, line: self.line, ..Event::new(seq, kind) };
        self.judge.observe(&event);
        // The log can be judged again, so it contains the whole event.
        self.sink.event(&event);
        self.remaining_bytes -= event.cut_to(MAX_KEPT_MESSAGE.min(self.remaining_bytes));
        self.events.push(event);
        seq
    }
}
