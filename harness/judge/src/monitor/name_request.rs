//! Requests about published names. The monitor and the record of names from earlier jobs use them.

use pmi_wire::{Decoded, Operation};

#[derive(Debug, Clone)]
pub(crate) enum NameRequest {
    Publish { name: Vec<u8>, port: Vec<u8> },
    Unpublish { name: Vec<u8> },
    Lookup { name: Vec<u8> },
}

impl NameRequest {
    /// Reads a request about a published name. Returns `None` for any other message.
    pub(crate) fn new(message: &Decoded<'_>) -> Option<Self> {
        let name = || message.field("service").unwrap_or_default().into_owned();
        Some(match message.operation()? {
            Operation::Publish => {
                Self::Publish { name: name(), port: message.field("port").unwrap_or_default().into_owned() }
            }
            Operation::Unpublish => Self::Unpublish { name: name() },
            Operation::Lookup => Self::Lookup { name: name() },
            _ => return None,
        })
    }

    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Publish { .. } => Operation::Publish,
            Self::Unpublish { .. } => Operation::Unpublish,
            Self::Lookup { .. } => Operation::Lookup,
        }
    }

    pub(crate) fn name(&self) -> &[u8] {
        let (Self::Publish { name, .. } | Self::Unpublish { name } | Self::Lookup { name }) = self;
        name
    }

    /// Returns true if two requests concern the same name and at least one of them is a publish or an unpublish.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        let only_look = matches!((self, other), (Self::Lookup { .. }, Self::Lookup { .. }));
        !only_look && self.name() == other.name()
    }
}
