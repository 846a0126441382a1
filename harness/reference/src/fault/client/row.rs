//! The rows of the catalogue of clients.

use super::session::Session;

/// One named way in which a client breaks RFC 13, or PMI-2.
#[derive(Debug)]
pub struct ClientFault {
    /// Stable name.
    pub name: &'static str,
    /// Ids of the requirements that it breaks; a finding has to cite one of them.
    pub breaks: &'static [&'static str],
    /// What the client does, in a line.
    pub about: &'static str,
    /// The session that it changes.
    pub plain: fn() -> Session,
    /// What that makes of the plain session.
    pub effect: fn(&mut Session),
}

impl ClientFault {
    /// The session with this fault.
    pub fn session(&self) -> Session {
        changed(self.plain, self.effect)
    }
}

impl ClientVariation {
    /// The session with this variation.
    pub fn session(&self) -> Session {
        changed(self.plain, self.effect)
    }
}

fn changed(plain: fn() -> Session, effect: fn(&mut Session)) -> Session {
    let mut session = plain();
    effect(&mut session);
    session
}

/// One named way in which a client is unusual and lawful.
#[derive(Debug)]
pub struct ClientVariation {
    /// Stable name.
    pub name: &'static str,
    /// What the client does, in a line.
    pub about: &'static str,
    /// The session that it changes.
    pub plain: fn() -> Session,
    /// What that makes of the plain session.
    pub effect: fn(&mut Session),
}

/// A requirement for clients that no script can break so that it shows on the wire.
#[derive(Debug)]
pub struct Unseen {
    /// Its id.
    pub id: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Makes rows about the session that is plain otherwise.
pub(super) struct Rows(pub(super) fn() -> Session);

/// Of the session of PMI-1.
pub(super) const LINES: Rows = Rows(Session::of_lines);

impl Rows {
    pub(super) const fn fault(
        &self,
        name: &'static str,
        breaks: &'static [&'static str],
        about: &'static str,
        effect: fn(&mut Session),
    ) -> ClientFault {
        ClientFault { name, breaks, about, plain: self.0, effect }
    }

    pub(super) const fn vary(
        &self,
        name: &'static str,
        about: &'static str,
        effect: fn(&mut Session),
    ) -> ClientVariation {
        ClientVariation { name, about, plain: self.0, effect }
    }
}
