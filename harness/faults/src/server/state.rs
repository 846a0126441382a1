//! The effects that a server has, how often each was used, and what the server must remember for them.

use std::collections::{HashMap, HashSet};

use pmi_reference::server::BarrierIdentity;
use pmi_reference::{GroupId, ReplyHeader};
use pmi_wire::Proc;

use crate::behaviour::Behaviour;
use crate::circumstances::{Circumstances, When};
use crate::dialects::Dialects;
use crate::effect::Effect;

/// An effect, and how often it might have shown so far.
#[derive(Debug)]
struct ActiveEffect {
    effect: Effect,
    when: When,
    dialects: Dialects,
    uses: u64,
    /// It has shown, or would have.
    shown: bool,
}

impl ActiveEffect {
    /// Returns whether it shows now. One that is only rehearsed does not.
    fn shows(&mut self, circumstances: &Circumstances, rehearsed: bool) -> bool {
        if circumstances.framing.is_some_and(|framing| !self.dialects.has(framing)) {
            return false;
        }
        self.uses += 1;
        let holds = self.when.holds(&Circumstances { uses: self.uses, ..*circumstances });
        self.shown |= holds;
        holds && !rehearsed
    }
}

/// Which rank put a key, and after how many barriers.
#[derive(Debug, Clone, Copy)]
pub(super) struct PutOrigin {
    pub(super) rank: u32,
    pub(super) round: u64,
}

/// The effects of a server, and what it remembers for them beyond what the reference needs.
#[derive(Debug, Default)]
pub(super) struct EffectState {
    list: Vec<ActiveEffect>,
    /// Nothing is to show.
    rehearsed: bool,
    /// The processes whose last reply was a refusal.
    pub(super) refused: HashSet<Proc>,
    /// A process waited in the barrier when the message came that is dealt with.
    pub(super) waiting: Option<bool>,
    /// The last read brought several requests.
    pub(super) burst: bool,
    /// The number of barriers that each group has passed.
    pub(super) rounds: HashMap<GroupId, u64>,
    /// Where each pair comes from.
    pub(super) origins: HashMap<(GroupId, Vec<u8>), PutOrigin>,
    /// The values that a rank put under a key that another rank had put before.
    pub(super) own_values: HashMap<(Proc, Vec<u8>), Vec<u8>>,
    /// The process that published each name.
    pub(super) publishers: HashMap<Vec<u8>, Proc>,
    /// The number of puts since the last barrier.
    pub(super) puts: u64,
    /// How often each key has been read.
    pub(super) gets: HashMap<(GroupId, Vec<u8>), u64>,
    /// The value that the last get found.
    pub(super) last_value: Option<Vec<u8>>,
    /// The processes whose finalize waits for the others' finalize.
    pub(super) held: Vec<(Proc, ReplyHeader)>,
    /// Pairs that become visible at the next barrier.
    pub(super) deferred: Vec<(GroupId, Vec<u8>, Vec<u8>)>,
    /// Requests are no longer answered.
    pub(super) mute: bool,
    /// The number of barriers that have opened.
    pub(super) toggles: u64,
    /// Barriers of parts of a group that have been opened.
    pub(super) opened: Vec<(GroupId, BarrierIdentity)>,
    /// The name of all spaces that are created.
    pub(super) space_name: Option<Vec<u8>>,
    /// The number of barriers that each process has entered.
    pub(super) entries: HashMap<Proc, u64>,
    /// The number of unpublish requests.
    pub(super) unpublished: u64,
}

impl EffectState {
    /// The effects of a behaviour; nothing if it has none, so that the reference pays one test of an empty option.
    pub(super) fn of(behaviour: &Behaviour) -> Option<Box<Self>> {
        let active = |(effect, when, dialects): (Effect, When, Dialects)| ActiveEffect {
            shown: effect.is_of_setup(),
            effect,
            when,
            dialects,
            uses: 0,
        };
        let list: Vec<ActiveEffect> = behaviour.effects().map(active).collect();
        let rehearsed = behaviour.is_rehearsed();
        (!list.is_empty()).then(|| Box::new(Self { list, rehearsed, ..Self::default() }))
    }

    /// Which effects have shown or, if they are rehearsed, would have: as long as none has, each could have been alone.
    pub(super) fn shown(&self) -> Vec<bool> {
        self.list.iter().map(|effect| effect.shown).collect()
    }

    /// Returns whether there is such an effect.
    pub(super) fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.list.iter().any(|active| is(&active.effect))
    }

    /// The first effect that `pick` knows and whose occasion this is.
    pub(super) fn pick<T>(
        &mut self,
        circumstances: &Circumstances,
        pick: impl Fn(&Effect) -> Option<T>,
    ) -> Option<T> {
        let rehearsed = self.rehearsed;
        self.list.iter_mut().find_map(|effect| {
            let picked = pick(&effect.effect)?;
            effect.shows(circumstances, rehearsed).then_some(picked)
        })
    }

    /// All effects that `pick` knows and whose occasion this is, with how often each was used.
    pub(super) fn each<T>(
        &mut self,
        circumstances: &Circumstances,
        pick: impl Fn(&Effect) -> Option<T>,
        mut apply: impl FnMut(T, &Circumstances),
    ) {
        for effect in &mut self.list {
            if let Some(picked) = pick(&effect.effect)
                && effect.shows(circumstances, self.rehearsed)
            {
                apply(picked, &Circumstances { uses: effect.uses, ..*circumstances });
            }
        }
    }
}
