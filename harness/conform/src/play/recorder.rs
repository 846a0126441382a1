//! Numbers the events, keeps them, and shows them to the monitor.

use std::time::Instant;

use crate::event::{Event, What};
use crate::judge::{Finding, Monitor, UpstreamMonitor};

/// Gets every event as it happens.
pub trait EventSink {
    /// One event.
    fn event(&mut self, event: &Event);
}

/// For those who need none.
impl EventSink for () {
    fn event(&mut self, _: &Event) {}
}

/// Most bytes of all reads and writes that are kept.
const KEEP_ALL: usize = 8 << 20;

/// Most bytes of one read or write that are kept in the transcript; the monitor sees all of them.
pub(crate) const KEPT: usize = 64 * 1024;

/// Most findings of one scenario.
const FINDINGS: usize = 1000;

/// See the module's documentation.
pub struct Recorder<'a> {
    start: Instant,
    sink: &'a mut dyn EventSink,
    monitor: Monitor,
    upstream: UpstreamMonitor,
    /// Bytes that may still be kept.
    room: usize,
    /// Everything so far.
    pub events: Vec<Event>,
    /// What the monitor has found so far.
    pub findings: Vec<Finding>,
    /// Line of the scenario that is being played; findings get it.
    pub line: usize,
}

impl<'a> Recorder<'a> {
    /// Starts the clock.
    pub fn new(sink: &'a mut dyn EventSink, monitor: Monitor) -> Self {
        Self {
            start: Instant::now(),
            sink,
            monitor,
            upstream: UpstreamMonitor::default(),
            room: KEEP_ALL,
            events: Vec::new(),
            findings: Vec::new(),
            line: 0,
        }
    }

    /// Whether the server starts far more processes than were asked for. The finding has been made.
    pub fn swarms(&self) -> bool {
        self.monitor.swarms()
    }

    /// Takes an event in; returns its number.
    pub fn record(&mut self, what: What) -> u64 {
        let seq = self.events.len() as u64;
        let time_us = self.start.elapsed().as_micros() as u64;
        let mut event = Event { seq, time_us, what };
        self.monitor.observe(&event);
        self.upstream.observe(&event);
        for mut finding in self.monitor.take_findings().into_iter().chain(self.upstream.take_findings()) {
            finding.line = self.line;
            if self.findings.len() < FINDINGS {
                self.findings.push(finding);
            }
        }
        if let What::FromServer { bytes, .. }
        | What::ToServer { bytes, .. }
        | What::FromProxy { text: bytes, .. }
        | What::ToProxy { text: bytes, .. } = &mut event.what
        {
            bytes.0.truncate(KEPT.min(self.room));
            bytes.0.shrink_to_fit();
            self.room -= bytes.0.len();
        }
        self.sink.event(&event);
        self.events.push(event);
        seq
    }
}
