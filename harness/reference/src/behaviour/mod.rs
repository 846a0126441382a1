//! How a server may differ from the reference: the vocabulary that faults and variations are written in.
//!
//! An [`Effect`] says where a server does something else, [`When`] on which occasions. The server consults the effects of its
//! [`Behaviour`]; which of them break RFC 13 is told by the rows in [`crate::fault`].

mod circumstances;
mod draft;
mod effect;

pub use circumstances::{Circumstances, When};
pub use draft::{Length, ReplyDraft};
pub use effect::{
    AbortEffect, BarrierEffect, Effect, ErrorEffect, FinalizeEffect, FrameReplies, GetEffect,
    GroupBarrierEffect, KeyvalSpaceEffect, NamesEffect, Pmi2Effect, PutEffect, Replies, ReplyKind, Singinit,
    SpawnEffect, VersionEffect,
};

/// In which ways a server differs from the reference. By default in none.
#[derive(Debug, Clone, Default)]
pub struct Behaviour {
    effects: Vec<(Effect, When)>,
    rehearsed: bool,
}

impl Behaviour {
    /// With one effect more. Effects apply in the order in which they were added.
    #[must_use]
    pub fn with(mut self, effect: Effect, when: When) -> Self {
        self.effects.push((effect, when));
        self
    }

    /// The same, of which nothing shows: the server does as the reference does, and notes which effects would have shown.
    #[must_use]
    pub fn rehearsed(self) -> Self {
        Self { rehearsed: true, ..self }
    }

    /// Whether nothing is to show.
    pub(crate) fn is_rehearsed(&self) -> bool {
        self.rehearsed
    }

    /// The effects, in the order in which they apply.
    pub(crate) fn effects(&self) -> impl Iterator<Item = (Effect, When)> {
        self.effects.iter().copied()
    }
}
