//! How long a process manager takes for what its processes ask of it, by their number: start-up times are what users of MPI meet first,
//! and this shows the part of them that is neither the library's nor the network's.
//!
//! All ranks ask at once, and the time is that until the last of them has its answer. We are one process that speaks for all of them,
//! which takes some microseconds for each message: what is measured is an upper bound, the same for everybody.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pmi_judge::event::{SilenceProof, What};
use pmi_wire::{Body, Connection, Direction, Proc, Response, ValueReading};
use serde::Serialize;

use crate::party::server::{Environment, Implementation, ServerParty};
use crate::party::{Incoming, Party, Silence};

/// Longest line that is read.
const LONGEST: usize = 64 * 1024;

/// How many barriers are measured behind the first.
const BARRIERS: usize = 5;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// From the launch until every process has reported.
    Start,
    /// Every rank offers its version and is answered.
    Init,
    /// Every rank enters a barrier and is let out, for the first time.
    FirstBarrier,
    /// The same again.
    Barrier,
    /// Every rank puts a value.
    Put,
    /// Every rank gets its own, behind a barrier.
    GetOwn,
    /// Every rank gets that of the next rank.
    GetOther,
    /// Every rank gets one that nobody has put.
    GetMissing,
    /// Every rank finalizes and exits, until the job has ended.
    End,
}

impl Phase {
    /// All, in the order in which they are measured, by their names.
    pub const NAMES: [(&str, Self); 9] = [
        ("start", Self::Start),
        ("init", Self::Init),
        ("first-barrier", Self::FirstBarrier),
        ("barrier", Self::Barrier),
        ("put", Self::Put),
        ("get-own", Self::GetOwn),
        ("get-other", Self::GetOther),
        ("get-missing", Self::GetMissing),
        ("end", Self::End),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.into_iter().find(|(_, phase)| *phase == self).map_or("", |(name, _)| name)
    }
}

/// What came of a number of ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Number of ranks.
    pub ranks: u32,
    /// Seconds, the median of all rounds.
    pub seconds: BTreeMap<Phase, f64>,
    /// Bytes that the launcher and the processes of the manager that serve the ranks hold when all have put a value; the most of all
    /// rounds, 0 where they cannot be looked at.
    pub memory: u64,
}

/// Why a number of ranks could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum Unmeasured {
    /// It could not be started.
    #[error(transparent)]
    Launch(#[from] std::io::Error),
    /// It did something else.
    #[error("{phase} of {ranks} {}: {what}", if *ranks == 1 { "rank" } else { "ranks" })]
    Wrong {
        /// What was measured.
        phase: &'static str,
        /// How many ranks there were to be.
        ranks: u32,
        /// What came instead.
        what: String,
    },
    /// The user wants the run to end.
    #[error("interrupted")]
    Interrupted,
}

/// What the rounds of one number of ranks came to, while they are played.
#[derive(Default)]
pub struct Rounds {
    seconds: BTreeMap<Phase, Vec<f64>>,
    memory: u64,
}

impl Rounds {
    /// Plays one more. No answer may take longer than `longest`.
    ///
    /// # Errors
    ///
    /// The server did not do what any program needs.
    pub fn play(
        &mut self,
        implementation: &Implementation,
        ranks: u32,
        nodes: u32,
        longest: Duration,
        environment: &Environment,
    ) -> Result<(), Unmeasured> {
        if environment.interrupted.load(Ordering::Relaxed) {
            return Err(Unmeasured::Interrupted);
        }
        let start = Instant::now();
        let (mut party, _) = ServerParty::launch(implementation, ranks, nodes, environment)?;
        party.set_in_turn(false);
        let mut session = Session { party, ranks, longest, phase: Phase::Start, connections: HashMap::new() };
        session.until_started()?;
        self.note(Phase::Start, start.elapsed());
        let init = |_| "cmd=init pmi_version=1 pmi_subversion=1\n".to_owned();
        self.note(Phase::Init, session.ask(Phase::Init, &init)?.0);
        let kvsname = session.kvsname()?;
        let barrier = |_| "cmd=barrier_in\n".to_owned();
        self.note(Phase::FirstBarrier, session.ask(Phase::FirstBarrier, &barrier)?.0);
        for _ in 0..BARRIERS {
            self.note(Phase::Barrier, session.ask(Phase::Barrier, &barrier)?.0);
        }
        let put = |rank| format!("cmd=put kvsname={kvsname} key=measured-{rank} value=of-rank-{rank}\n");
        self.note(Phase::Put, session.ask(Phase::Put, &put)?.0);
        session.ask(Phase::Barrier, &barrier)?;
        self.memory = self.memory.max(session.party.memory().iter().map(|m| m.bytes).sum());
        let get = |key: u32| format!("cmd=get kvsname={kvsname} key=measured-{key}\n");
        self.note(Phase::GetOwn, session.ask(Phase::GetOwn, &get)?.0);
        self.note(Phase::GetOther, session.ask(Phase::GetOther, &|rank| get((rank + 1) % ranks))?.0);
        self.note(Phase::GetMissing, session.ask(Phase::GetMissing, &|rank| get(rank + ranks))?.0);
        let end = Instant::now();
        session.ask(Phase::End, &|_| "cmd=finalize\n".to_owned())?;
        session.until_ended()?;
        self.note(Phase::End, end.elapsed());
        Ok(())
    }

    fn note(&mut self, phase: Phase, time: Duration) {
        self.seconds.entry(phase).or_default().push(time.as_secs_f64());
    }

    /// The medians.
    pub fn finish(self, ranks: u32) -> Measured {
        let median = |(phase, mut times): (Phase, Vec<f64>)| {
            times.sort_by(f64::total_cmp);
            (phase, times[times.len() / 2])
        };
        Measured { ranks, seconds: self.seconds.into_iter().map(median).collect(), memory: self.memory }
    }
}

/// The exponent of the power of the number of ranks by which something grows: 0 where it stays, 1 where it is twice as much for twice
/// the ranks. By least squares over the logarithms; `None` of fewer than three numbers of ranks.
pub fn growth(points: &[(u32, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points
        .iter()
        .filter(|(n, t)| *n > 0 && *t > 0.0)
        .map(|(n, t)| (f64::from(*n).ln(), t.ln()))
        .collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = logs.iter().map(|p| (p.0 - x).powi(2)).sum();
    let together: f64 = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (logs.len() >= 3 && spread > 0.0).then(|| together / spread)
}

/// A job in which we speak for all ranks.
struct Session {
    party: ServerParty,
    ranks: u32,
    longest: Duration,
    phase: Phase,
    connections: HashMap<Proc, Connection>,
}

impl Session {
    fn wrong(&self, what: String) -> Unmeasured {
        Unmeasured::Wrong { phase: self.phase.name(), ranks: self.ranks, what }
    }

    fn next(&mut self, deadline: Instant) -> Result<What, Unmeasured> {
        match self.party.next(deadline, Silence::Wrong) {
            Incoming::Event(what) => Ok(what),
            Incoming::Interrupted => Err(Unmeasured::Interrupted),
            Incoming::Nothing(SilenceProof::Idle) => {
                Err(self.wrong("no answer, and its processes wait".to_owned()))
            }
            Incoming::Nothing(SilenceProof::Polled | SilenceProof::Timeout) => {
                Err(self.wrong(format!("no answer within {} s", self.longest.as_secs_f64())))
            }
        }
    }

    fn until_started(&mut self) -> Result<(), Unmeasured> {
        let deadline = Instant::now() + self.longest;
        let mut places = HashSet::new();
        while self.connections.len() < self.ranks as usize {
            match self.next(deadline)? {
                What::Started { proc, env, bad_fd: None, .. } => {
                    self.has_its_place(&env, &mut places)?;
                    self.connections.insert(proc, Connection::new(LONGEST));
                }
                What::Started { proc, bad_fd: Some(why), .. } => {
                    return Err(self.wrong(format!("rank {} has no connection: {why}", proc.rank)));
                }
                What::JobExited { exit } => return Err(self.wrong(format!("the job has ended: {exit}"))),
                _ => {}
            }
        }
        Ok(())
    }

    /// So many processes are so many ranks: of many jobs of one process, nothing would be measured that grows.
    fn has_its_place(
        &self,
        env: &BTreeMap<String, String>,
        places: &mut HashSet<String>,
    ) -> Result<(), Unmeasured> {
        let size = env.get("PMI_SIZE").filter(|size| **size != self.ranks.to_string());
        let twice = env.get("PMI_RANK").filter(|rank| !places.insert((*rank).clone()));
        let seen = size.map(|size| format!("PMI_SIZE={size}"));
        match seen.or(twice.map(|rank| format!("PMI_RANK={rank} twice"))) {
            Some(seen) => {
                Err(self.wrong(format!("its processes find {seen}, and are not the ranks of one job")))
            }
            None => Ok(()),
        }
    }

    /// Every rank asks this and is answered: how long that took, and what the last one was told.
    fn ask(
        &mut self,
        phase: Phase,
        request: &dyn Fn(u32) -> String,
    ) -> Result<(Duration, Vec<u8>), Unmeasured> {
        self.phase = phase;
        let start = Instant::now();
        for rank in 0..self.ranks {
            let (proc, line) = (Proc { group: 0, rank }, request(rank));
            if let Some(connection) = self.connections.get_mut(&proc) {
                connection.push(Direction::ToServer, line.as_bytes());
                while connection.next(Direction::ToServer).is_some() {}
            }
            self.party.send(proc, line.as_bytes());
        }
        let mut missing: HashSet<Proc> = (0..self.ranks).map(|rank| Proc { group: 0, rank }).collect();
        let mut last = Vec::new();
        while !missing.is_empty() {
            match self.next(start + self.longest)? {
                What::FromServer { proc, bytes } => {
                    let Some(connection) = self.connections.get_mut(&proc) else { continue };
                    connection.push(Direction::FromServer, &bytes.0);
                    while let Some(message) = connection.next(Direction::FromServer) {
                        missing.remove(&proc);
                        last = message.map(|message| message.text.to_vec()).unwrap_or_default();
                    }
                }
                What::ClosedByServer { proc } if missing.contains(&proc) => {
                    return Err(self.wrong(format!("the connection of rank {} has ended", proc.rank)));
                }
                What::JobExited { exit } => return Err(self.wrong(format!("the job has ended: {exit}"))),
                What::Crashed { name, signal } => {
                    return Err(self.wrong(format!("{name} died of signal {signal}")));
                }
                _ => {}
            }
        }
        Ok((start.elapsed(), last))
    }

    /// Not measured.
    fn kvsname(&mut self) -> Result<String, Unmeasured> {
        let (_, line) = self.ask(Phase::Init, &|_| "cmd=get_my_kvsname\n".to_owned())?;
        match Response::parse(&line, ValueReading::ToEndOfLine).map(|response| response.body) {
            Ok(Body::Kvsname(Some(name))) => Ok(String::from_utf8_lossy(name).into_owned()),
            _ => Err(self.wrong(format!("no kvsname in \"{}\"", line.escape_ascii()))),
        }
    }

    fn until_ended(&mut self) -> Result<(), Unmeasured> {
        for rank in 0..self.ranks {
            self.party.exit(Proc { group: 0, rank }, 0);
        }
        let deadline = Instant::now() + self.longest;
        loop {
            if let What::JobExited { .. } = self.next(deadline)? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn growth_is_the_exponent_of_a_power() {
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
