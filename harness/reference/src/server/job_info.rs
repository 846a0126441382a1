//! The limits, sizes and names of a job.

use pmi_wire::{KvsLimits, Proc};

use super::state::Server;
use crate::response::OperationResult;

impl Server {
    /// Returns the limits, which count the terminating NUL (RFC 13, "`PMI_KVS_Get_name_length_max`" and the following sections).
    pub(super) fn maxes(&self) -> OperationResult {
        let KvsLimits { kvsname_max, keylen_max, vallen_max } = self.config.limits;
        OperationResult::done()
            .with_number("kvsname_max", kvsname_max)
            .with_number("keylen_max", keylen_max)
            .with_number("vallen_max", vallen_max)
    }

    /// Returns the maximum size that the process group may reach (RFC 13, "`PMI_Get_universe_size`"). Without a setting, this is the size
    /// of the group.
    pub(super) fn universe_size(&self, from: Proc) -> u64 {
        self.config.universe_size.unwrap_or(u64::from(self.size(from.group)))
    }

    /// Returns the number of the process's program within the command that started the group (RFC 13, "`PMI_Get_appnum`").
    pub(super) fn appnum(&self, from: Proc) -> usize {
        self.groups[from.group as usize].appnum(from.rank)
    }

    /// Returns the name of the group's keyval space (RFC 13, "`PMI_KVS_Get_my_name`"). This server uses the same string as the id of the
    /// job (draft, "`PMI_Job_GetId`").
    pub(super) fn kvsname(&self, from: Proc) -> OperationResult {
        OperationResult::done().with("kvsname", self.groups[from.group as usize].kvsname.clone())
    }
}
