//! RFC 13, Wire Protocol: the limits, sizes and names of a program.

use pmi_wire::{Maxes, Operation, Proc};

use super::state::Server;
use crate::reply::Reply;

impl Server {
    pub(super) fn maxes(&mut self, from: Proc) {
        let Maxes { kvsname_max, keylen_max, vallen_max } = self.config.maxes;
        let reply = Reply::ok(Operation::Maxes)
            .with("kvsname_max", kvsname_max.to_string())
            .with("keylen_max", keylen_max.to_string())
            .with("vallen_max", vallen_max.to_string());
        self.reply(from, reply);
    }

    pub(super) fn universe(&mut self, from: Proc) {
        let size = self.config.universe_size.unwrap_or(u64::from(self.size(from.group)));
        self.reply(from, Reply::ok(Operation::Universe).with("size", size.to_string()));
    }

    pub(super) fn appnum(&mut self, from: Proc) {
        let appnum = self.groups[from.group as usize].appnum(from.rank);
        self.reply(from, Reply::ok(Operation::Appnum).with("appnum", appnum.to_string()));
    }

    pub(super) fn kvsname(&mut self, from: Proc) {
        let name = self.groups[from.group as usize].kvsname.clone();
        self.reply(from, Reply::ok(Operation::Kvsname).with("kvsname", name));
    }
}
