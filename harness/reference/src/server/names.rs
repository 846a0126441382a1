//! The name service, in every dialect.

use super::state::Server;
use crate::response::OperationResult;

impl Server {
    /// Publishes a port (RFC 13, "`PMI_Publish_name`"; draft, "`PMI_Nameserv_publish`"). Refuses a name that is already published. Ignores
    /// the info keys of the draft, as all known servers do.
    pub(super) fn publish(&mut self, name: &[u8], port: &[u8]) -> OperationResult {
        if self.names.contains_key(name) {
            return OperationResult::failed("name is already published");
        }
        self.names.insert(name.to_vec(), port.to_vec());
        OperationResult::done()
    }

    /// Unpublishes a name (RFC 13, "`PMI_Unpublish_name`"; draft, "`PMI_Nameserv_unpublish`").
    pub(super) fn unpublish(&mut self, name: &[u8]) -> OperationResult {
        self.names.remove(name).map(drop).ok_or(NOT_PUBLISHED).into()
    }

    /// Looks up a port (RFC 13, "`PMI_Lookup_name`"; draft, "`PMI_Nameserv_lookup`"). All process groups share the names.
    pub(super) fn lookup(&self, name: &[u8]) -> OperationResult {
        OperationResult::found("port", self.names.get(name).cloned(), NOT_PUBLISHED)
    }
}

const NOT_PUBLISHED: &str = "name is not published";
