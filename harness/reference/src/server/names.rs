//! The name service, in every dialect.

use super::state::Server;

impl Server {
    /// RFC 13, PMI_Publish_name, and the draft's name-publish. A name that is published already is refused.
    pub(super) fn publish(&mut self, name: &[u8], port: &[u8]) -> Result<(), &'static str> {
        if self.names.contains_key(name) {
            return Err("name is published already");
        }
        self.names.insert(name.to_vec(), port.to_vec());
        Ok(())
    }

    /// RFC 13, PMI_Unpublish_name, and the draft's name-unpublish.
    pub(super) fn unpublish(&mut self, name: &[u8]) -> Result<(), &'static str> {
        self.names.remove(name).map(drop).ok_or(NOT_PUBLISHED)
    }

    /// RFC 13, PMI_Lookup_name, and the draft's name-lookup.
    pub(super) fn lookup(&self, name: &[u8]) -> Result<&Vec<u8>, &'static str> {
        self.names.get(name).ok_or(NOT_PUBLISHED)
    }
}

const NOT_PUBLISHED: &str = "name is not published";
