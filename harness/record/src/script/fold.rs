//! The steps of a session. A step that many ranks share is written once.
//!
//! Between two barriers, the requests from different ranks are independent, because the scenario does not expect a value before the barrier
//! that follows the put. Therefore the steps between two barriers are reordered: the first steps of all ranks come first, then the second
//! steps of all ranks, and so on. The order within each rank is kept. If this does not shorten the scenario, the recorded order is used.
//! Steps are also combined into one if they differ only in numbers that depend on the rank.

use std::collections::{BTreeMap, HashMap, HashSet};

use pmi_wire::Proc;

use super::pattern::{self, SplitText};

/// The text of a step, without its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct StepText {
    pub(super) role: &'static str,
    pub(super) cites: &'static str,
    pub(super) text: String,
}

/// A step of the scenario.
#[derive(Debug)]
pub(super) struct RecordedStep {
    /// The ranks that perform the step. All of them belong to the same group.
    pub(super) ranks: Vec<Proc>,
    pub(super) text: StepText,
}

/// The permitted position of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOrder {
    /// The step stays at its recorded position.
    Fixed,
    /// The step may move before or after concurrent steps of other ranks.
    Free,
    /// The step may move before or after concurrent steps of other ranks. With this step, the rank enters a barrier.
    EntersBarrier,
    /// With this step, the rank leaves a barrier. The step must follow the entry of all ranks into the barrier.
    LeavesBarrier,
}

/// Steps of one group that differ only in numbers, as a map from the index of each text to the ranks with this text.
type RanksByText = BTreeMap<u32, Vec<u32>>;

/// The steps of a scenario that is being written.
#[derive(Default)]
pub(super) struct RecordedSteps {
    finished: Vec<RecordedStep>,
    /// Steps whose order is not decided yet: the process, and an index into `texts`.
    unordered: Vec<(Proc, u32)>,
    /// The distinct texts of the steps in `unordered`.
    texts: Vec<StepText>,
    numbers: HashMap<StepText, u32>,
    /// The processes that have entered a barrier in the steps of `unordered`.
    entered: HashSet<Proc>,
    /// The size of the first group, if known.
    size: Option<u32>,
}

impl RecordedSteps {
    /// Sets the number of ranks in the first group.
    pub(super) fn set_size(&mut self, size: u32) {
        self.size = Some(size);
    }

    /// Adds a step of a rank.
    pub(super) fn push(&mut self, p: Proc, order: StepOrder, step: StepText) {
        if order == StepOrder::Fixed || order == StepOrder::LeavesBarrier && self.entered.contains(&p) {
            self.close();
        }
        // If a rank is not below the recorded size, the size is wrong and is discarded.
        self.size = self.size.filter(|size| p.group != 0 || p.rank < *size);
        if order == StepOrder::EntersBarrier {
            self.entered.insert(p);
        }
        if order == StepOrder::Fixed {
            return append(&mut self.finished, p, step);
        }
        let next = self.texts.len() as u32;
        let number = *self.numbers.entry(step).or_insert_with_key(|step| {
            self.texts.push(step.clone());
            next
        });
        self.unordered.push((p, number));
    }

    /// Decides the order of the remaining steps, and returns all steps.
    pub(super) fn finish(mut self) -> Vec<RecordedStep> {
        self.close();
        self.finished
    }

    /// Decides the order of the steps in `unordered`, and moves them to `finished`.
    fn close(&mut self) {
        let columns = self.columns();
        let recorded = self.unordered.chunk_by(|a, b| a.1 == b.1 && a.0.group == b.0.group).count();
        if columns.len() * 2 <= recorded {
            self.finished.extend(columns);
        } else {
            for (p, number) in &self.unordered {
                append(&mut self.finished, *p, self.texts[*number as usize].clone());
            }
        }
        self.unordered.clear();
        self.texts.clear();
        self.numbers.clear();
        self.entered.clear();
    }

    /// Returns the first steps of all ranks, then the second steps, and so on. Steps with the same text are combined.
    fn columns(&self) -> Vec<RecordedStep> {
        let cuts: Vec<SplitText> = self.texts.iter().map(|step| SplitText::of(&step.text)).collect();
        let mut shapes = HashMap::new();
        let shape_of = |(step, cut): (&StepText, &SplitText)| {
            let next = shapes.len();
            *shapes.entry((step.role, step.cites, cut.context().to_vec())).or_insert(next)
        };
        let shape: Vec<usize> = self.texts.iter().zip(&cuts).map(shape_of).collect();
        let mut place: HashMap<Proc, usize> = HashMap::new();
        let mut columns: Vec<BTreeMap<(u32, usize), RanksByText>> = Vec::new();
        for (p, number) in &self.unordered {
            let at = place.entry(*p).or_default();
            if *at == columns.len() {
                columns.push(BTreeMap::new());
            }
            let alike = columns[*at].entry((p.group, shape[*number as usize])).or_default();
            alike.entry(*number).or_default().push(p.rank);
            *at += 1;
        }
        let mut all = Vec::new();
        for column in columns {
            let from = all.len();
            for ((group, _), mut alike) in column {
                alike.values_mut().for_each(|ranks| ranks.sort_unstable());
                let Some(step) = alike.keys().next().map(|number| &self.texts[*number as usize]) else {
                    continue;
                };
                let texts: Vec<(&SplitText, &[u32])> =
                    alike.iter().map(|(number, ranks)| (&cuts[*number as usize], &ranks[..])).collect();
                let size = if group == 0 { self.size } else { None };
                all.extend(pattern::steps(&texts, size).into_iter().map(|(ranks, text)| RecordedStep {
                    ranks: ranks.into_iter().map(|rank| Proc { group, rank }).collect(),
                    text: StepText { text, ..step.clone() },
                }));
            }
            all[from..].sort_by_key(|step: &RecordedStep| step.ranks[0]);
        }
        all
    }
}

/// Appends a step. If the last step has the same text, adds the rank to that step instead.
fn append(steps: &mut Vec<RecordedStep>, p: Proc, step: StepText) {
    let whole = !step.text.contains('\n');
    match steps.last_mut() {
        Some(last)
            if whole && last.text == step && last.ranks[0].group == p.group && !last.ranks.contains(&p) =>
        {
            last.ranks.push(p);
        }
        _ => steps.push(RecordedStep { ranks: vec![p], text: step }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: u32 = 16;

    fn proc(rank: u32) -> Proc {
        Proc { group: 0, rank }
    }

    /// Folds steps `(rank, order, text)`, and returns them as `(ranks, text)`.
    fn folded(steps: &[(u32, StepOrder, String)]) -> Vec<(Vec<u32>, String)> {
        let mut all = RecordedSteps::default();
        all.set_size(RANKS);
        for (rank, order, text) in steps {
            all.push(proc(*rank), *order, StepText { role: "send", cites: "", text: text.clone() });
        }
        let ranks = |who: Vec<Proc>| who.into_iter().map(|p| p.rank).collect();
        all.finish().into_iter().map(|step| (ranks(step.ranks), step.text.text)).collect()
    }

    /// Returns the text of each step of a rank, in order.
    fn by_rank(steps: &[(Vec<u32>, String)], rank: u32) -> Vec<String> {
        let said_by_it = steps.iter().filter(|(who, _)| who.contains(&rank));
        said_by_it.map(|(_, text)| of_rank(text, rank)).collect()
    }

    /// Returns the text of a step with the expressions replaced by their values for a rank.
    fn of_rank(text: &str, rank: u32) -> String {
        let Some((before, rest)) = text.split_once("<calc ($rank+") else {
            return text.replace("$rank", &rank.to_string());
        };
        let (more, after) = rest.split_once(")%$size>").unwrap();
        format!("{before}{}{after}", (rank + more.parse::<u32>().unwrap()) % RANKS)
    }

    #[test]
    fn folds_equal_steps_and_keeps_each_rank_in_order() {
        let all_of = |rank: u32| -> Vec<(StepOrder, String)> {
            let gets =
                |round: u32| (0..RANKS).map(move |key| (StepOrder::Free, format!("get {round} {key}")));
            let put = [(StepOrder::Free, format!("put {rank}")), (StepOrder::EntersBarrier, "in".to_owned())];
            let out = (StepOrder::LeavesBarrier, "out".to_owned());
            let second =
                [out.clone()].into_iter().chain(gets(1)).chain([(StepOrder::EntersBarrier, "in".to_owned())]);
            put.into_iter().chain(second).chain([out]).collect()
        };
        // The ranks proceed at different speeds, but no rank leaves a barrier before all ranks have entered it.
        let mut left: Vec<std::collections::VecDeque<_>> =
            (0..RANKS).map(|rank| all_of(rank).into()).collect();
        let (mut steps, mut inside, mut turn) = (Vec::new(), vec![0; RANKS as usize], 7_u32);
        while left.iter().any(|rank| !rank.is_empty()) {
            turn = turn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let rank = (turn >> 16) % RANKS;
            let at = rank as usize;
            let Some((order, _)) = left[at].front() else { continue };
            if *order == StepOrder::LeavesBarrier && inside.iter().any(|n| *n < inside[at]) {
                continue;
            }
            let (order, text) = left[at].pop_front().unwrap();
            inside[at] += u32::from(order == StepOrder::EntersBarrier);
            steps.push((rank, order, text));
        }
        let written = folded(&steps);
        // The steps are two barriers, a put, and a get for each key. Each step is written once for all ranks.
        assert_eq!(written.len(), RANKS as usize + 5, "{written:?}");
        for rank in 0..RANKS {
            let expected: Vec<String> = all_of(rank).into_iter().map(|(_, text)| text).collect();
            assert_eq!(by_rank(&written, rank), expected, "{rank}");
        }
        let whole: Vec<usize> =
            written.iter().filter(|(_, text)| text == "get 1 3").map(|(who, _)| who.len()).collect();
        assert_eq!(whole, [RANKS as usize]);
        // No step has moved across a barrier.
        let place = |name: &str| written.iter().position(|(_, text)| text == name).unwrap();
        let last_put = written.iter().rposition(|(_, text)| text.starts_with("put")).unwrap();
        assert!(last_put < place("out") && place("out") < place("get 1 0"));
    }

    #[test]
    fn folds_gets_in_rotated_order() {
        let gets = |rank: u32| {
            (0..RANKS).map(move |i| (rank, StepOrder::Free, format!("get {}", (rank + i) % RANKS)))
        };
        let steps: Vec<_> = (0..RANKS).flat_map(gets).collect();
        let written = folded(&steps);
        assert_eq!(written.len(), RANKS as usize, "{written:?}");
        for rank in 0..RANKS {
            let expected: Vec<String> = gets(rank).map(|(_, _, text)| text).collect();
            assert_eq!(by_rank(&written, rank), expected, "{rank}");
        }
    }

    #[test]
    fn keeps_recorded_order_of_distinct_and_fixed_steps() {
        let free = |rank, text: &str| (rank, StepOrder::Free, text.to_owned());
        let fixed = (0, StepOrder::Fixed, "publish".to_owned());
        let steps = [free(0, "a"), free(0, "b"), free(1, "c"), fixed, free(1, "d"), free(0, "e")];
        let texts: Vec<String> = folded(&steps).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["a", "b", "c", "publish", "d", "e"]);
    }
}
