//! A soak test: the ranks of one job make requests for a given time. The history of all operations is checked, and the memory and
//! descriptors of the manager are sampled.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmi_judge::Finding;
use pmi_scenario::ast::Capability;
use serde::Serialize;

use super::plan::{MeasureError, MeasuredPhase, Plan};
use super::request::MeasuredRequest;
use super::session::MeasuredJob;
use crate::party::server::{Implementation, LaunchEnvironment};

/// Number of requests that a rank makes between two barriers.
const REQUESTS_PER_ROUND: u32 = 8;
/// Number of samples of memory and descriptors.
const SAMPLES: u64 = 50;
/// Divisor of the number of rounds: keys are put only in the first `1 / PUT_PART` of the rounds. In later rounds, memory use should not
/// grow.
const PUT_PART: u64 = 5;

/// Number of padding bytes that follow the key and a dot in each value.
const VALUE_PADDING: usize = 64;

/// The extent of a soak test.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The duration of the test. If the manager is too slow, the test makes fewer requests.
    pub time: Duration,
    /// Target number of requests from all ranks together, distributed evenly over the time.
    pub requests: u64,
}

/// The manager's state at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SoakSample {
    /// Time since the first request.
    pub seconds: f64,
    /// Number of requests up to this time.
    pub requests: u64,
    /// Memory use in bytes of the launcher and of the manager's processes that serve the ranks; 0 if it cannot be measured.
    pub memory: u64,
    /// Number of open descriptors of the same processes.
    pub descriptors: u64,
}

/// The results of a soak test.
#[derive(Debug, Serialize)]
pub struct Soak {
    /// Number of ranks.
    pub ranks: u32,
    /// The manager's state over time.
    pub samples: Vec<SoakSample>,
    /// Findings about responses that are wrong, or that no order of the operations explains.
    pub findings: Vec<Finding>,
    /// The messages of each finding.
    pub messages: Vec<Vec<String>>,
}

/// Plays a soak test with `ranks` ranks.
///
/// # Errors
///
/// Returns an error if the job cannot be started, the server does not support a basic operation, a response is missing, or the user
/// interrupts the run.
pub fn soak(
    implementation: &Implementation,
    ranks: u32,
    plan: Plan,
    load: Load,
    environment: &LaunchEnvironment,
) -> Result<Soak, MeasureError> {
    let mut job = MeasuredJob::start(implementation, ranks, Plan { is_judged: true, ..plan }, environment)?;
    job.join()?;
    let has_names = implementation.claimed_capabilities.get(&Capability::Names) != Some(&false)
        && job
            .each(MeasuredPhase::Publish, 1, &|rank, _| MeasuredRequest::Publish(format!("soak-{rank}")))?
            .refused
            == 0;
    // Before the first barrier, a get may find nothing, so the load starts only after a barrier.
    job.each_accepted(MeasuredPhase::Barrier, 1, &|_, _| MeasuredRequest::Barrier)?;
    let per_round = u64::from(ranks * (REQUESTS_PER_ROUND + 1));
    // Findings about the start of the job are ignored here, because the suite reports them.
    let first = job.event_count();
    let rounds = load.requests.div_ceil(per_round).max(1);
    let put_rounds = rounds.div_ceil(PUT_PART);
    let start = Instant::now();
    let (mut samples, mut done) = (Vec::new(), 0);
    for round in 0..rounds {
        if environment.interrupted.load(Ordering::Relaxed) {
            return Err(MeasureError::Interrupted);
        }
        if round * SAMPLES / rounds >= samples.len() as u64 {
            samples.push(sample(&job, start, done));
        }
        let due = load.time.mul_f64(round as f64 / rounds as f64);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        job.each(MeasuredPhase::GetOther, REQUESTS_PER_ROUND, &|rank, number| {
            request(ranks, rank, number, [round, put_rounds], has_names)
        })?;
        job.each_accepted(MeasuredPhase::Barrier, 1, &|_, _| MeasuredRequest::Barrier)?;
        done += per_round;
        if start.elapsed() > load.time {
            break;
        }
    }
    samples.push(sample(&job, start, done));
    job.end()?;
    let (findings, messages) = job.findings(first);
    Ok(Soak { ranks, samples, findings, messages })
}

fn sample(job: &MeasuredJob, start: Instant, requests: u64) -> SoakSample {
    let (memory, descriptors) = (job.memory(), job.descriptors());
    SoakSample { seconds: start.elapsed().as_secs_f64(), requests, memory, descriptors }
}

/// Returns a rank's request. `number` is the number of the request in its round, and `put_rounds` is the number of rounds in which keys are
/// put.
fn request(
    ranks: u32,
    rank: u32,
    number: u32,
    [round, put_rounds]: [u64; 2],
    has_names: bool,
) -> MeasuredRequest {
    let key = |rank: u32, round: u64| format!("soak-{rank}-{}", round % put_rounds);
    let next = (rank + 1) % ranks;
    let get = |key| MeasuredRequest::Get { key };
    let name = |rank: u32| format!("soak-{rank}");
    match number {
        0 if round < put_rounds => {
            let key = key(rank, round);
            MeasuredRequest::Put { value: format!("{key}.{}", "v".repeat(VALUE_PADDING)), key }
        }
        // This get may fail, because the next rank may be putting the key at the same time.
        1 => get(key(next, round)),
        2 if has_names => MeasuredRequest::Unpublish(name(rank)),
        3 if has_names => MeasuredRequest::Publish(name(rank)),
        4 if has_names => MeasuredRequest::Lookup(name(next)),
        5 => get(format!("soak-missing-{rank}")),
        _ => get(key((rank + number) % ranks, round.saturating_sub(1))),
    }
}
