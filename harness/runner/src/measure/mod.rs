//! Measures how long a process manager takes to answer its processes, depending on the number of processes. MPI users notice start-up times
//! first. These measurements show how much of that time is due to the process manager, rather than to the library or the network.
//!
//! All ranks make their requests at the same time, and the clock stops when the last rank has its response. One process acts for all ranks,
//! and needs a few microseconds for each message. So the result is an upper bound, with the same overhead for every manager.

mod plan;
mod request;
mod session;
mod soak;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmi_scenario::ast::Capability;

use crate::party::server::{Implementation, LaunchEnvironment};
pub use plan::{MeasureError, MeasuredPhase, Measurement, Plan};
use request::MeasuredRequest;
use session::MeasuredJob;
pub use soak::{Load, Soak, SoakSample, soak};

/// Number of measured barriers after the first.
const BARRIER_COUNT: usize = 5;
/// Number of consecutive gets by each rank when the request rate is measured.
const GETS_PER_RANK: u32 = 10;
/// Number of keys that all ranks together put to measure the memory of a key.
const KEY_COUNT: u32 = 2000;
/// Length of the value of each key.
const VALUE_LENGTH: usize = 64;

/// The results of all rounds with the same number of ranks.
#[derive(Default)]
pub struct RoundResults {
    seconds: BTreeMap<MeasuredPhase, Vec<f64>>,
    requests_per_second: Vec<f64>,
    memory: u64,
    memory_per_key: Vec<f64>,
}

impl RoundResults {
    /// Plays one more round.
    ///
    /// # Errors
    ///
    /// Returns an error if the job cannot be started or behaves unexpectedly, or if the user interrupts the run. The results of earlier
    /// phases are kept.
    pub fn play(
        &mut self,
        implementation: &Implementation,
        ranks: u32,
        plan: Plan,
        environment: &LaunchEnvironment,
    ) -> Result<(), MeasureError> {
        if environment.interrupted.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        let first_barrier = plan.dialect.pick([MeasuredPhase::FirstBarrier, MeasuredPhase::FirstFence]);
        let barrier = plan.dialect.pick([MeasuredPhase::Barrier, MeasuredPhase::Fence]);
        let offered = |need| implementation.claimed_capabilities.get(&need) != Some(&false);
        let start = Instant::now();
        let mut session = MeasuredJob::start(implementation, ranks, plan, environment)?;
        self.note(MeasuredPhase::Start, start.elapsed());
        let init = session.join()?;
        self.note(MeasuredPhase::Init, init);
        self.ask(&mut session, first_barrier, &|_| MeasuredRequest::Barrier)?;
        for _ in 0..BARRIER_COUNT {
            self.ask(&mut session, barrier, &|_| MeasuredRequest::Barrier)?;
        }
        let key = |rank: u32| format!("measured-{rank}");
        self.ask(&mut session, MeasuredPhase::Put, &|rank| MeasuredRequest::Put {
            key: key(rank),
            value: format!("of-{rank}"),
        })?;
        session.each_accepted(barrier, 1, &|_, _| MeasuredRequest::Barrier)?;
        let memory = session.memory();
        self.memory = self.memory.max(memory);
        let get = |of: u32| MeasuredRequest::Get { key: key(of) };
        self.ask(&mut session, MeasuredPhase::GetOwn, &get)?;
        self.ask(&mut session, MeasuredPhase::GetOther, &|rank| get((rank + 1) % ranks))?;
        let missing = session.each(MeasuredPhase::GetMissing, 1, &|rank, _| get(rank + ranks))?;
        self.note(MeasuredPhase::GetMissing, missing.time);
        let gets = session
            .each_accepted(MeasuredPhase::GetOther, GETS_PER_RANK, &|rank, n| get((rank + n) % ranks))?;
        self.requests_per_second.push(f64::from(ranks * GETS_PER_RANK) / gets.time.as_secs_f64());
        // Every rank puts the same number of keys, so the total may slightly exceed `KEY_COUNT`.
        let keys = KEY_COUNT.div_ceil(ranks);
        let value = "v".repeat(VALUE_LENGTH);
        session.each_accepted(MeasuredPhase::Put, keys, &|rank, n| MeasuredRequest::Put {
            key: format!("more-{rank}-{n}"),
            value: value.clone(),
        })?;
        session.each_accepted(barrier, 1, &|_, _| MeasuredRequest::Barrier)?;
        let grown = session.memory() as f64 - memory as f64;
        self.memory_per_key.push((grown / f64::from(keys * ranks)).max(0.0));
        if offered(Capability::Names) {
            self.names(&mut session)?;
        }
        if offered(Capability::Spawn)
            && let Some(time) = session.spawn()?
        {
            self.note(MeasuredPhase::Spawn, time);
        }
        let end = session.end()?;
        self.note(MeasuredPhase::End, end);
        Ok(())
    }

    /// Measures one request from every rank. A refusal is an error.
    fn ask(
        &mut self,
        session: &mut MeasuredJob,
        phase: MeasuredPhase,
        ask: &dyn Fn(u32) -> MeasuredRequest,
    ) -> Result<(), MeasureError> {
        let result = session.each_accepted(phase, 1, &|rank, _| ask(rank))?;
        self.note(phase, result.time);
        Ok(())
    }

    /// Measures the time to publish and to look up names. Measures nothing if the manager refuses to publish, because it then does not
    /// support names.
    fn names(&mut self, session: &mut MeasuredJob) -> Result<(), MeasureError> {
        let ranks = session.ranks();
        let name = |rank: u32| format!("measured-{rank}");
        let published =
            session.each(MeasuredPhase::Publish, 1, &|rank, _| MeasuredRequest::Publish(name(rank)))?;
        if published.refused > 0 {
            return Ok(());
        }
        self.note(MeasuredPhase::Publish, published.time);
        self.ask(session, MeasuredPhase::Lookup, &|rank| MeasuredRequest::Lookup(name((rank + 1) % ranks)))?;
        session
            .each_accepted(MeasuredPhase::Publish, 1, &|rank, _| MeasuredRequest::Unpublish(name(rank)))
            .map(drop)
    }

    fn note(&mut self, phase: MeasuredPhase, time: Duration) {
        self.seconds.entry(phase).or_default().push(time.as_secs_f64());
    }

    /// Returns the combined results of all rounds.
    pub fn finish(self, ranks: u32) -> Measurement {
        Measurement {
            ranks,
            seconds: self
                .seconds
                .into_iter()
                .filter_map(|(phase, times)| Some((phase, median(times)?)))
                .collect(),
            requests_per_second: median(self.requests_per_second),
            memory: self.memory,
            memory_per_key: median(self.memory_per_key),
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Returns the memory use of each additional rank in bytes, which is the slope of the least-squares line. Returns `None` if there is only
/// one number of ranks, or if the memory cannot be measured.
pub fn memory_per_rank(measured: &[Measurement]) -> Option<f64> {
    let known = measured.iter().filter(|of| of.memory > 0);
    slope(&known.map(|of| (f64::from(of.ranks), of.memory as f64)).collect::<Vec<_>>())
}

/// Returns the exponent `k` such that the value grows as `ranks^k`: 0 if the value is constant, 1 if it doubles whenever the number of
/// ranks doubles. Returns `None` if there are fewer than three points, or all points have the same number of ranks.
pub fn growth(points: &[(u32, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(n, t)| *n > 0 && *t > 0.0)
        .map(|(n, t)| (f64::from(*n).ln(), t.ln()))
        .collect();
    slope(&logs).filter(|_| logs.len() >= 3)
}

/// Returns the slope of the least-squares line, or `None` if all points have the same x value.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let together: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (spread > 0.0).then(|| together / spread)
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn growth_is_the_exponent_of_a_power_law() {
        let of = |power: f64| -> Vec<(u32, f64)> {
            [1, 2, 4, 8].into_iter().map(|n| (n, 0.003 * f64::from(n).powf(power))).collect()
        };
        for power in [0.0, 1.0, 2.0] {
            assert!((growth(&of(power)).unwrap() - power).abs() < 1e-9, "{power}");
        }
        assert_eq!(growth(&of(1.0)[..2]), None);
        assert_eq!(growth(&[(2, 1.0); 5]), None);
    }
}
