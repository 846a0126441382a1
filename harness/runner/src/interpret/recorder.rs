//! Numbers the events, keeps them, and shows them to the monitor.

use std::time::{Duration, Instant};

use pmi_judge::Judge;
use pmi_judge::event::{Event, SilenceProof, What};

use crate::party::proxy::UpstreamCommand;
use crate::process::Memory;

/// Follows a play that expects nothing.
pub trait Watcher {
    /// This is what the implementation's processes held when all ranks had started.
    fn started(&mut self, memory: Vec<Memory>);
    /// This is what they hold now. True if it is so much that the play ends.
    fn holds(&mut self, memory: Vec<Memory>) -> bool;
    /// A message came for a step that had waited so long.
    fn heard(&mut self, waited: Duration);
    /// Nothing came for a step. False if the implementation may be waiting for us.
    fn heard_nothing(&mut self, proof: SilenceProof, waited: Duration) -> bool;
    /// The upstream of a proxy is told to do this.
    fn ordered(&mut self, command: &UpstreamCommand);
}

/// Gets every event as it happens.
pub trait EventSink {
    /// One event.
    fn event(&mut self, event: &Event);

    /// Whoever has a say in a play that expects nothing.
    fn watcher(&mut self) -> Option<&mut dyn Watcher> {
        None
    }
}

/// For those who need none.
impl EventSink for () {
    fn event(&mut self, _: &Event) {}
}

/// Most bytes of all reads and writes that are kept.
const KEEP_ALL: usize = 8 << 20;

/// Most bytes of one read or write that are kept in the transcript; the monitor sees all of them.
pub const KEPT: usize = 64 * 1024;

/// See the module's documentation.
pub struct Recorder<'a> {
    start: Instant,
    pub(super) sink: &'a mut dyn EventSink,
    /// Bytes that may still be kept.
    room: usize,
    /// Everything so far.
    pub events: Vec<Event>,
    /// Reads every event.
    pub judge: Judge,
    /// Line of the scenario that is being played.
    pub line: usize,
}

impl<'a> Recorder<'a> {
    /// Starts the clock.
    pub fn new(sink: &'a mut dyn EventSink, judge: Judge) -> Self {
        Self { start: Instant::now(), sink, room: KEEP_ALL, events: Vec::new(), judge, line: 0 }
    }

    /// Takes an event in; returns its number.
    pub fn record(&mut self, what: What) -> u64 {
        let seq = self.events.len() as u64;
        let time_us = self.start.elapsed().as_micros() as u64;
        let mut event = Event { time_us, line: self.line, ..Event::new(seq, what) };
        self.judge.observe(&event);
        // A stored log is judged again, so it has everything.
        self.sink.event(&event);
        self.room -= event.cut_to(KEPT.min(self.room));
        self.events.push(event);
        seq
    }
}
