//! The effects of a server, with their use counts and the state that they need.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;

use pmi_reference::server::BarrierIdentity;
use pmi_reference::{GroupId, ResponseHeader};
use pmi_wire::Proc;

use super::rare_state::RareState;
use crate::behaviour::Behaviour;
use crate::circumstances::{Circumstances, Occasion};
use crate::dialects::Dialects;
use crate::edit::{Edit, Editable};
use crate::effect::Effect;

/// Maximum number of times that the server computes the result without an edit, to check whether the edit makes a difference.
const MAX_OMISSIONS: u64 = 8;

/// An effect, and the number of occasions so far on which it could have applied.
#[derive(Debug)]
struct ActiveEffect {
    effect: Effect,
    when: Occasion,
    dialects: Dialects,
    use_count: u64,
    /// True if the effect has made a difference, or would have made one in a rehearsal.
    shown: bool,
}

impl ActiveEffect {
    /// Counts an occasion, and returns whether the effect applies on it.
    fn applies(&mut self, circumstances: &Circumstances) -> bool {
        if circumstances.framing.is_some_and(|framing| !self.dialects.has(framing)) {
            return false;
        }
        self.use_count += 1;
        self.when.holds(&Circumstances { use_count: self.use_count, ..*circumstances })
    }
}

/// The rank that put a key, and the number of barriers before the put.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutOrigin {
    pub(super) rank: u32,
    pub(super) round: u64,
}

/// The effects of a server, and the state that they need in addition to that of the reference.
#[derive(Debug, Default)]
pub(super) struct EffectState {
    effects: Vec<ActiveEffect>,
    rehearsed: bool,
    /// The processes whose last response was a refusal.
    pub(super) refused: HashSet<Proc>,
    /// The number of processes in the barrier when the current message arrived.
    pub(super) waiting: Option<u32>,
    /// True if the scenario has paused.
    pub(super) late: bool,
    pub(super) within_job: bool,
    /// True if the last read contained several requests.
    pub(super) burst: bool,
    /// The first process whose bytes arrived in this round of the event loop.
    pub(super) first_sender: Option<Proc>,
    /// True if the current message comes from a process other than `first_sender`.
    pub(super) is_together: bool,
    /// The number of barriers that each group has passed.
    pub(super) rounds: HashMap<GroupId, u64>,
    pub(super) origins: HashMap<(GroupId, Vec<u8>), PutOrigin>,
    /// The value that a process reads for a key in place of the value in the keyval space.
    pub(super) own_values: HashMap<(Proc, Vec<u8>), Vec<u8>>,
    /// The process that published each name.
    pub(super) publishers: HashMap<Vec<u8>, Proc>,
    /// The number of puts since the last barrier.
    pub(super) puts: u64,
    /// The number of times that each key has been read.
    pub(super) gets: HashMap<(GroupId, Vec<u8>), u64>,
    /// The value that the last get found.
    pub(super) last_value: Option<Vec<u8>>,
    /// The processes whose finalize waits until the others finalize.
    pub(super) held: Vec<(Proc, ResponseHeader)>,
    /// Requests that wait until all processes have entered a barrier.
    pub(super) held_requests: Vec<(Proc, Vec<u8>)>,
    /// Pairs that become visible at the next barrier.
    pub(super) deferred: Vec<(GroupId, Vec<u8>, Vec<u8>)>,
    /// True if requests are no longer answered.
    pub(super) stopped_answering: bool,
    pub(super) opened_barriers: u64,
    /// Group barriers that have released their processes at least once.
    pub(super) opened_group_barriers: Vec<(GroupId, BarrierIdentity)>,
    /// The name that every created keyval space gets.
    pub(super) space_name: Option<Vec<u8>>,
    /// The number of barriers that each process has entered.
    pub(super) barrier_entries: HashMap<Proc, u64>,
    /// The number of unpublish requests.
    pub(super) unpublished: u64,
    pub(super) rare: RareState,
}

impl EffectState {
    /// Returns the state for the effects of a behaviour. Returns `None` if the behaviour has no effects, so that each hook of the server
    /// returns early.
    pub(super) fn of(behaviour: &Behaviour) -> Option<Box<Self>> {
        let (rehearsed, within_job) = (behaviour.is_rehearsed(), behaviour.is_within_job());
        let active = |(number, (effect, when, dialects)): (usize, (Effect, Occasion, Dialects))| {
            // If several effects change the same setting, only the last one counts.
            let is_same =
                |(later, ..): (Effect, Occasion, Dialects)| discriminant(&later) == discriminant(&effect);
            let shown =
                effect.is_of_setup() && (rehearsed || !behaviour.effects().skip(number + 1).any(is_same));
            ActiveEffect { shown, effect, when, dialects, use_count: 0 }
        };
        let list: Vec<ActiveEffect> = behaviour.effects().enumerate().map(active).collect();
        (!list.is_empty()).then(|| Box::new(Self { effects: list, rehearsed, within_job, ..Self::default() }))
    }

    /// Returns a flag for each effect, which is true if the effect has made a difference or, in a rehearsal, would have made one.
    /// Rehearsed effects do not influence each other.
    pub(super) fn shown(&self) -> Vec<bool> {
        self.effects.iter().map(|effect| effect.shown).collect()
    }

    /// Returns whether the server has an effect that applies when requests arrive at the same time.
    pub(super) fn has_races(&self) -> bool {
        self.effects.iter().any(|active| active.when == Occasion::Together)
    }

    /// Returns whether the server has an effect for which `is` returns true.
    pub(super) fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.effects.iter().any(|active| is(&active.effect))
    }

    /// Returns the effects that may apply to an action, with their numbers. In a rehearsal, skips the effects that are already known to
    /// make a difference.
    fn candidates(&mut self) -> impl Iterator<Item = (usize, &mut ActiveEffect)> {
        let rehearsed = self.rehearsed;
        self.effects.iter_mut().enumerate().filter(move |(_, effect)| !(rehearsed && effect.shown))
    }

    /// Returns the first effect that `pick` accepts and that applies on this occasion. In a rehearsal, returns `None`.
    pub(super) fn pick<T>(
        &mut self,
        circumstances: &Circumstances,
        pick: impl Fn(&Effect) -> Option<T>,
    ) -> Option<T> {
        let rehearsed = self.rehearsed;
        self.candidates().find_map(|(_, effect)| {
            let picked = pick(&effect.effect)?;
            let applies = effect.applies(circumstances);
            effect.shown |= applies;
            (applies && !rehearsed).then_some(picked)
        })
    }

    /// Changes `target` with every edit that `pick` accepts and that applies on this occasion. In a rehearsal, `target` stays unchanged,
    /// and every edit that would change it is marked as shown. Otherwise, an edit is marked as shown only if `target` would be different
    /// without the edit, because a later edit may overwrite the change.
    pub(super) fn edit<T: Editable + Clone + PartialEq>(
        &mut self,
        circumstances: &Circumstances,
        pick: impl Fn(&Effect) -> Option<Edit>,
        target: &mut T,
    ) {
        let rehearsed = self.rehearsed;
        let (mut original, mut changes) = (None, Vec::new());
        // After an edit that changes nothing, the next edit reuses its copy of `target`.
        let mut unchanged: Option<T> = None;
        for (number, effect) in self.candidates() {
            let Some(edit) = pick(&effect.effect).filter(|_| effect.applies(circumstances)) else { continue };
            let circumstances = Circumstances { use_count: effect.use_count, ..*circumstances };
            let mut edited = unchanged.take().unwrap_or_else(|| target.clone());
            edit.apply(&mut edited, &circumstances);
            if edited == *target {
                unchanged = Some(edited);
                continue;
            }
            changes.push((number, edit, circumstances));
            match rehearsed {
                true => effect.shown = true,
                false => {
                    let before = std::mem::replace(target, edited);
                    original.get_or_insert(before);
                }
            }
        }
        let Some(original) = original else { return };
        for (number, ..) in &changes {
            let effect = &mut self.effects[*number];
            // If a message has several edits, checking each of them takes time, so each is checked at most `MAX_OMISSIONS` times.
            if effect.shown || changes.len() > 1 && effect.use_count > MAX_OMISSIONS {
                continue;
            }
            let mut without = original.clone();
            for (_, edit, circumstances) in changes.iter().filter(|(other, ..)| other != number) {
                edit.apply(&mut without, circumstances);
            }
            effect.shown = without != *target;
        }
    }
}
