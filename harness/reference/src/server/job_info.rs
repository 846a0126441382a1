//! The limits, sizes and names of a job.

use pmi_wire::{KvsLimits, Proc};

use super::state::Server;
use crate::response::OperationResult;

impl Server {
    /// RFC 13, "`PMI_KVS_Get_name_length_max`" and the following sections: the limits, which count the terminating NUL.
    pub(super) fn maxes(&self) -> OperationResult {
        let KvsLimits { kvsname_max, keylen_max, vallen_max } = self.config.limits;
        OperationResult::done()
            .with_number("kvsname_max", kvsname_max)
            .with_number("keylen_max", keylen_max)
            .with_number("vallen_max", vallen_max)
    }

    /// RFC 13, "`PMI_Get_universe_size`": the maximum size that the process group may reach. Without a setting, the group does not grow.
    pub(super) fn universe_size(&self, from: Proc) -> u64 {
        self.config.universe_size.unwrap_or(u64::from(self.size(from.group)))
    }

    /// RFC 13, "`PMI_Get_appnum`": the number of the program within the command that started the group.
    pub(super) fn appnum(&self, from: Proc) -> usize {
        self.groups[from.group as usize].appnum(from.rank)
    }

    /// RFC 13, "`PMI_KVS_Get_my_name`": the name of the group's keyval space. Draft, "`PMI_Job_GetId`": the id of the job. This server uses
    /// the same string for both.
    pub(super) fn kvsname(&self, from: Proc) -> OperationResult {
        OperationResult::done().with("kvsname", self.groups[from.group as usize].kvsname.clone())
    }
}
