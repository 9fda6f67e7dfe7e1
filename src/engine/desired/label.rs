//! The comment of a frontend: `namespace/name:port`, without `:port` for unnamed ports, and with
//! `lc` after it for that scheduler.

use ahash::RandomState;
use smallvec::SmallVec;

use crate::model::{ObjectName, Scheduler, ServicePort};
use crate::ruleset::LEAST_CONNECTIONS;

/// A comment of at most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(SmallVec<[u8; LIMIT]>);

/// Maximum length in bytes that nft(8) prints and loads (`NFTNL_UDATA_COMMENT_MAXLEN`).
const LIMIT: usize = 128;

impl Label {
    /// Returns the label of a port of this service.
    pub fn new(service: &ObjectName, port: &ServicePort) -> Self {
        let separator = if port.name.is_empty() { "" } else { ":" };
        let mut label = Self(SmallVec::new());
        for part in [service.as_str(), separator, &port.name] {
            let end = part.floor_char_boundary(LIMIT - label.0.len());
            label.0.extend_from_slice(&part.as_bytes()[..end]);
        }
        label
    }

    /// Adds a scheduler that elements do not show otherwise, if it fits.
    pub fn with_scheduler(mut self, scheduler: Scheduler) -> Self {
        if scheduler == Scheduler::LeastConnections
            && self.0.len() + LEAST_CONNECTIONS.len() <= LIMIT
        {
            self.0.extend_from_slice(LEAST_CONNECTIONS.as_bytes());
        }
        self
    }

    /// Returns the text, as it is sent with elements.
    pub fn as_str(&self) -> &str {
        // Truncated at a character boundary, so it is always valid.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns a number that distinguishes labels within this process. Installed labels are
    /// compared by it, because texts would take more memory than all else of a frontend.
    pub fn digest(&self) -> u32 {
        Self::digest_of(&self.0)
    }

    /// Returns the digest of a label found in the kernel.
    pub fn digest_of(text: &[u8]) -> u32 {
        // 0 stands for elements without a label.
        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        u32::try_from(hasher.hash_one(text) >> 32).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    fn label(service: &str, port: &str) -> Label {
        let name = ObjectName::namespaced("default", service);
        Label::new(&name, &ServicePort::tcp(port, NonZeroU16::MIN))
    }

    #[test]
    fn a_label_names_service_and_port_and_has_128_bytes_at_most() {
        assert_eq!(label("web", "http").as_str(), "default/web:http");
        assert_eq!(label("web", "").as_str(), "default/web");
        assert_eq!(label(&"ä".repeat(90), "http").as_str().len(), 128);
        assert_eq!(label("web", "http").digest(), Label::digest_of(b"default/web:http"));
        assert_ne!(label("web", "http").digest(), label("web", "https").digest());
    }
}
