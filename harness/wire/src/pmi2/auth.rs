//! The handshake that the draft gives as its example of an authentication: a challenge, and the hash of the secret and the challenge.

use sha2::{Digest, Sha256};

/// The `authtype` of it.
pub const CHALLENGE_SHA256: &[u8] = b"challenge-sha256";

/// The secret that the reference shares with those who ask for it, where nothing else is said.
pub const SECRET: &[u8] = b"pmi-conform";

/// What answers a challenge: the SHA-256 hash of the shared secret with the challenge behind it.
///
/// The draft does not say how a hash is written. These are small hexadecimal digits: its text is UTF-8, which the bytes of a hash
/// seldom are.
pub fn challenge_answer(secret: &[u8], challenge: &[u8]) -> String {
    let hash = Sha256::new().chain_update(secret).chain_update(challenge).finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `printf secret42 | sha256sum`.
    #[test]
    fn the_secret_comes_first() {
        let hash = "5c788b952157fdaf39f511ef1bf19c7af3b078293052c0d5ab4b2d3af737b740";
        assert_eq!(challenge_answer(b"secret", b"42"), hash);
    }
}
