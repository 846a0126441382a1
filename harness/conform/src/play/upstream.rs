//! Steps at the upstream side of a proxy: what it passes on, and what we answer in its launcher's stead.

use super::player::{LINES_LIMIT, Player, Stop};
use crate::event::{Bytes, Proc};
use crate::hydra::UpstreamCommand;
use crate::lang::ast::UpstreamAction;

impl Player<'_> {
    /// A proxy has passed something on. A request of several lines becomes one, since steps see one request at a time.
    pub(super) fn passed_on(&mut self, seq: u64, proxy: u32, id: u64, text: &[u8]) {
        // An event costs memory however short it is.
        self.received += text.len() as u64 + 64;
        self.requests.insert(seq, id);
        let words: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
        let line = match words[..] {
            [line] => line.to_vec(),
            // What ends a block is no tuple.
            _ => words.into_iter().filter(|w| w.contains(&b'=')).collect::<Vec<_>>().join(&b' '),
        };
        let link = self.link(Proc::proxy(proxy));
        if link.lines.len() < LINES_LIMIT {
            link.lines.push_back((seq, line));
        }
    }

    pub(super) fn upstream_step(&mut self, p: Proc, action: &UpstreamAction) -> Result<(), Stop> {
        match action {
            UpstreamAction::Answer { to, partial, lines } => {
                let mut text = Vec::new();
                for (i, line) in lines.iter().enumerate() {
                    text.extend(self.scope.writes(line)?.concat());
                    if !partial || i + 1 < lines.len() {
                        text.push(b'\n');
                    }
                }
                let to = match to {
                    None => self.asked(p, None),
                    some => Some(self.named(p, *some)?),
                };
                self.peer.upstream(UpstreamCommand::Answer { proxy: p.rank, to, text: Bytes(text) });
            }
            UpstreamAction::Usual { to } => {
                let id = self.named(p, *to)?;
                self.peer.upstream(UpstreamCommand::Usual(id));
            }
            UpstreamAction::Close => self.peer.upstream(UpstreamCommand::Close(p.rank)),
        }
        Ok(())
    }

    /// The request that a step took: that number of them, from 1, or the last.
    fn asked(&mut self, p: Proc, number: Option<u32>) -> Option<u64> {
        let taken = &self.link(p).taken;
        let at = number.map_or(taken.len(), |n| n as usize).checked_sub(1)?;
        let seq = *taken.get(at)?;
        self.requests.get(&seq).copied()
    }

    fn named(&mut self, p: Proc, number: Option<u32>) -> Result<u64, Stop> {
        self.asked(p, number).ok_or_else(|| {
            Stop::Scenario(match number {
                Some(n) => format!("no step has taken a request number {n} of {p} before"),
                None => format!("no step has taken a request of {p} before"),
            })
        })
    }
}
