//! Two consecutive jobs on the same server. The requests of the second job are similar to those of the first. Keys, names and requests of
//! the first job must not affect the second. The first job contains only valid input.

use arbitrary::{Result, Unstructured};
use pmi_scenario::ast::Dialect;

use super::model::{SessionModel, template_of};
use super::scope::SessionFeatures;
use crate::generate::Generator;
use crate::session::case::Case;
use crate::session::decisions::{percent, pick};
use crate::session::fields::text;
use crate::session::pieces::letters;
use crate::session::plan::{PlannedStep, request_of};
use crate::session::statement::{exit, leave};

/// The way in which the first job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobEnding {
    /// Every process finalizes.
    Leave,
    /// A process aborts.
    Abort,
    /// A process aborts while all others wait in a barrier.
    AbortBesideBarrier,
    /// A process exits without finalize.
    Exit,
}

impl JobEnding {
    pub(crate) const ALL: [Self; 4] = [Self::Leave, Self::Abort, Self::AbortBesideBarrier, Self::Exit];
}

/// The properties of the two jobs.
#[derive(Debug, Clone, Copy)]
struct Jobs {
    dialect: Dialect,
    /// Number of processes in the first job and in the second job.
    ranks: [u32; 2],
    /// Number of keys that each process puts.
    keys: u32,
    ending: JobEnding,
    /// True if the second job requests the first job's keys before it puts them itself.
    misses: bool,
    /// True if the second job puts the same keys with different values, and reads them.
    repeats_keys: bool,
    /// True if the first job publishes two names and unpublishes one of them, and the second job uses both names.
    names: bool,
}

/// Percentage of random sessions without an earlier job.
const SINGLE_JOB_PERCENT: u32 = 96;

/// The name that the first job leaves published, and the name that it unpublishes.
const NAMES: [&str; 2] = ["of-a-job", "of-a-job-before"];

/// Returns a case with two jobs: the first ends as `ending` states, and the second repeats the requests of the first.
pub(crate) fn after_job(scope: SessionFeatures, dialect: Dialect, ending: JobEnding) -> Case {
    let ranks = [scope.ranks.clamp(1, 2); 2];
    let jobs = Jobs { dialect, ranks, keys: 4, ending, misses: true, repeats_keys: true, names: scope.names };
    // Without any decision bytes, every generator takes its first choice.
    jobs.case(scope, &mut Unstructured::new(&[])).unwrap_or_else(|e| panic!("decisions never run out: {e}"))
}

/// Returns a job that publishes a name without unpublishing it, and a job that looks the name up.
pub(crate) fn publish_and_lookup(dialect: Dialect, name: &str) -> [Case; 2] {
    [true, false].map(|publishes| {
        let mut none = Unstructured::new(&[]);
        let mut model = SessionModel::joined(SessionFeatures::default(), dialect, 1, &mut none);
        let request = match publishes {
            true => model.publish_of(0, text(name), text("port")),
            false => model.name_of(0, "lookup", text(name)),
        };
        model.plan.extend(request);
        model.plan.push(PlannedStep::Stmt(leave(dialect)));
        model.into_case()
    })
}

/// Sometimes adds an ordinary earlier job to `case`, or returns a new case that repeats the requests of its earlier job. Otherwise, returns
/// `case` unchanged.
pub(crate) fn maybe_after_job(scope: SessionFeatures, case: Case, u: &mut Unstructured<'_>) -> Result<Case> {
    // A bare proxy gets no earlier job, because the harness itself answers the name and spawn requests in its jobs.
    if scope.upstream || percent(u)? < SINGLE_JOB_PERCENT {
        return Ok(case);
    }
    let dialect = case.scenario.dialect;
    if u.arbitrary()? {
        let valid =
            SessionFeatures { dialects: super::scope::DialectChoice::One(dialect), mutate: false, ..scope };
        let earlier = valid.generate(u, &mut Unstructured::new(&[]))?;
        return Ok(case.with_earlier_job(&earlier).unwrap_or(case));
    }
    let mut ranks = || u.int_in_range(1..=scope.ranks.clamp(1, 4));
    let jobs = Jobs {
        dialect,
        ranks: [ranks()?, ranks()?],
        keys: pick(u, &[1, 3, 6, 20])?,
        ending: pick(u, &JobEnding::ALL)?,
        misses: u.arbitrary()?,
        repeats_keys: u.arbitrary()?,
        names: scope.names && u.arbitrary()?,
    };
    jobs.case(scope, u)
}

impl Jobs {
    fn case(self, scope: SessionFeatures, u: &mut Unstructured<'_>) -> Result<Case> {
        let [first, second] = self.ranks;
        let mut model = SessionModel::joined(scope, self.dialect, first, u);
        model.first_job(self)?;
        let earlier = model.into_case();
        let mut model = SessionModel::joined(scope, self.dialect, second, u);
        model.second_job(self)?;
        let case = model.into_case();
        Ok(case.with_earlier_job(&earlier).unwrap_or(case))
    }
}

impl SessionModel<'_, '_> {
    /// Plans `keys` puts by every process, a barrier, and gets of all these keys.
    fn put_and_read(&mut self, keys: u32, job: &str) -> Result<()> {
        for at in 0..keys {
            for rank in 0..self.ranks {
                let key = self.plain_key(rank);
                // Some values have the same length in both jobs, and others have different lengths.
                let longer = if at % 2 == 1 { i64::from(at) * job.len() as i64 } else { 0 };
                let value = template_of(&format!("{job}-{key}-"), letters(longer));
                let put = self.put_of(rank, text(key), value);
                self.plan.extend(put);
            }
        }
        self.plain_barrier()?;
        self.read_back()
    }

    fn first_job(&mut self, jobs: Jobs) -> Result<()> {
        self.put_and_read(jobs.keys, "old")?;
        if jobs.names {
            let [left, withdrawn] = NAMES;
            let requests = [
                self.publish_of(0, text(left), text("port-of-the-first")),
                self.publish_of(0, text(withdrawn), text("port-that-is-gone")),
                self.name_of(self.ranks - 1, "lookup", text(withdrawn)),
                self.name_of(0, "unpublish", text(withdrawn)),
            ];
            self.plan.extend(requests.concat());
        }
        let last = self.ranks - 1;
        if jobs.ending == JobEnding::AbortBesideBarrier {
            let op = self.op("barrier");
            self.plan.extend((0..last).map(|rank| request_of(rank, op, &[])));
        }
        match jobs.ending {
            JobEnding::Leave => self.plan.push(PlannedStep::Stmt(leave(self.dialect))),
            JobEnding::Exit => self.plan.push(PlannedStep::Stmt(exit(last, 3))),
            JobEnding::Abort | JobEnding::AbortBesideBarrier => self.abort(last)?,
        }
        Ok(())
    }

    fn second_job(&mut self, jobs: Jobs) -> Result<()> {
        let last = self.ranks - 1;
        if jobs.misses {
            let of_first = jobs.ranks[0];
            for rank in 0..self.ranks {
                // Request a key that a process of the first job has put, and that must be missing in this job.
                let key = format!("k{}-{}", (rank + 1) % of_first, rank % jobs.keys);
                let get = self.get_of(rank, text(key));
                self.plan.extend(get);
            }
        }
        if jobs.repeats_keys {
            self.put_and_read(jobs.keys, "new")?;
        }
        if jobs.names {
            let [left, withdrawn] = NAMES;
            let requests = [
                self.name_of(last, "lookup", text(withdrawn)),
                self.publish_of(0, text(left), text("port-of-the-second")),
                self.name_of(last, "lookup", text(left)),
                self.name_of(0, "unpublish", text(left)),
                self.name_of(last, "lookup", text(left)),
            ];
            self.plan.extend(requests.concat());
        }
        self.plain_barrier()?;
        self.plan.push(PlannedStep::Stmt(leave(self.dialect)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pmi_scenario::ast::ImplementationKind;

    use pmi_judge::{PartyKind, is_reached_by_valid_input};

    use super::super::scope::DialectChoice;
    use super::*;
    use crate::generate::case_from_number;
    use crate::session::decisions::draw_bytes;
    use crate::session::testing::assert_round_trip;
    use crate::target::server::{Access, ServerTarget};
    use crate::target::{Target, Thoroughness, Tracing};

    fn assert_well_formed(case: &Case) {
        let earlier = case.earlier.as_ref().unwrap();
        for job in [case, earlier] {
            assert!(
                job.is_sound() && job.is_bounded() && job.tests() == ImplementationKind::Server,
                "{}",
                job.text()
            );
            assert_round_trip(&Case { earlier: None, ..job.clone() });
        }
        assert!(earlier.earlier.is_none() && earlier.ingredients.is_empty());
        assert_eq!(case.scenario.dialect, earlier.scenario.dialect);
    }

    #[test]
    fn second_job_repeats_requests_of_the_first() {
        for dialect in Dialect::ALL {
            for ending in JobEnding::ALL {
                let case = after_job(SessionFeatures::default(), dialect, ending);
                assert_well_formed(&case);
                let (first, second) = (case.earlier.as_ref().unwrap().text(), case.text());
                for part in ["key=k0-0", "key=k1-3", "of-a-job-before", "port=port-of-the-"] {
                    assert!(first.contains(part) && second.contains(part), "{part}: {first}{second}");
                }
                assert_eq!(
                    first.contains("abort"),
                    matches!(ending, JobEnding::Abort | JobEnding::AbortBesideBarrier)
                );
            }
            let case = after_job(
                SessionFeatures { names: false, ranks: 1, ..SessionFeatures::default() },
                dialect,
                JobEnding::Abort,
            );
            assert_well_formed(&case);
            assert!(case.ranks() == 1 && !case.text().contains("of-a-job"), "{}", case.text());
        }
    }

    #[test]
    fn some_sessions_follow_a_valid_earlier_job() {
        let suite = pmi_runner::suite::embedded().unwrap();
        let access = Access::Memory(pmi_faults::Config::default());
        let server = ServerTarget::new(access, suite, std::time::Duration::from_secs(1)).unwrap();
        let scope = SessionFeatures { dialects: DialectChoice::Any, nodes: 2, ..SessionFeatures::default() };
        let (mut after, mut again) = (0, 0);
        for number in 0..2000 {
            let bytes = draw_bytes(1, number);
            let case =
                maybe_after_job(scope, case_from_number(&scope, 1, number), &mut Unstructured::new(&bytes));
            let case = case.unwrap();
            let Some(earlier) = &case.earlier else { continue };
            assert_well_formed(&case);
            after += 1;
            let text = earlier.text();
            let run = server.play(earlier, Thoroughness::Fast, Tracing::Off).unwrap();
            // Other earlier jobs may contain invalid input: a job that ends early does not finalize, and an ordinary session may split
            // writes.
            let is_plain = text.contains("=old-k0-0-") && !text.contains("abort") && !text.contains("exit 3");
            assert!(
                !is_plain || is_reached_by_valid_input(&run.observation.events, PartyKind::Server, None),
                "{text}"
            );
            again += u32::from(text.contains("=old-k0-0-"));
            let run = server.play(&case, Thoroughness::Fast, Tracing::Off).unwrap();
            assert!(run.failures.is_empty(), "{:?}", run.failures);
        }
        assert!((50..120).contains(&after) && (20..80).contains(&again), "{after} {again}");
        let upstream = SessionFeatures { upstream: true, ..scope };
        let alone = |number: u64| {
            let bytes = draw_bytes(1, number);
            maybe_after_job(upstream, case_from_number(&scope, 1, number), &mut Unstructured::new(&bytes))
                .unwrap()
        };
        assert!((0..200).all(|number| alone(number).earlier.is_none()));
    }
}
