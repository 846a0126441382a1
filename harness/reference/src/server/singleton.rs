//! Who comes in by a handshake before the protocol begins; and the process that has asked for a process manager itself.

use pmi_wire::singleton::{ASKS, Info, check_answer};
use pmi_wire::{Proc, WayIn};

use super::state::Server;
use crate::behaviour::{Effect, Singinit};

impl Server {
    /// How processes come to their connections.
    pub fn way_in(&self) -> WayIn {
        self.config.way_in
    }

    /// What is said first on a connection of which it is not known whose it is.
    pub fn welcome(&mut self) -> Vec<u8> {
        match self.config.way_in {
            WayIn::Singleton => self.singinit().asks,
            WayIn::Fd | WayIn::Port => Vec::new(),
        }
    }

    /// Whose connection this is on which `line` was said first, and what is told there. `None` for all that are nobody's, which
    /// are to be closed.
    pub fn admit(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        match self.config.way_in {
            WayIn::Port => self.admit_by_id(line),
            WayIn::Singleton => self.admit_singleton(line),
            WayIn::Fd => None,
        }
    }

    /// The one process, once, and what it is told.
    fn admit_singleton(&mut self, line: &[u8]) -> Option<(Proc, Vec<u8>)> {
        check_answer(line).ok()?;
        let p = Proc { group: 0, rank: 0 };
        let again = std::mem::replace(&mut self.proc(p).admitted, true);
        (!again).then(|| (p, self.singinit().info))
    }

    fn singinit(&mut self) -> Singinit {
        let p = Proc { group: 0, rank: 0 };
        // Its standard streams are its own: they are not forwarded.
        let info = Info { kvsname: self.groups[0].kvsname.clone(), streams: false };
        let mut says = Singinit {
            asks: [ASKS.as_bytes(), b"\n"].concat(),
            info: [info.line(), b"\n".to_vec()].concat(),
        };
        if self.effects.is_some() {
            self.each_effect(
                p,
                |e| if let Effect::Singinit(f) = e { Some(*f) } else { None },
                |f, _| f(&mut says),
            );
        }
        says
    }
}
