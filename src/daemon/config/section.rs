//! The fields of KubeProxyConfiguration that have an effect in one mode alone.

use super::Notes;
use super::file::DEFAULT_MODE;

/// Masquerade fields of a mode; iptables and ipvs share theirs.
pub(super) struct Section {
    pub(super) mode: &'static str,
    pub(super) masquerade_all: &'static str,
    pub(super) masquerade_bit: &'static str,
    /// `ipvs.scheduler` has an effect.
    pub(super) is_ipvs: bool,
}

impl Section {
    pub(super) const NFTABLES: Self = Self {
        mode: "nftables",
        masquerade_all: "nftables.masqueradeAll",
        masquerade_bit: "nftables.masqueradeBit",
        is_ipvs: false,
    };

    /// Returns the fields of the configured mode.
    pub(super) fn of(notes: &Notes) -> Self {
        let Some(mode) = &notes.other_mode else { return Self::NFTABLES };
        let is_ipvs = mode == "ipvs";
        Self {
            mode: if is_ipvs { "ipvs" } else { DEFAULT_MODE },
            masquerade_all: "iptables.masqueradeAll",
            masquerade_bit: "iptables.masqueradeBit",
            is_ipvs,
        }
    }

    /// Returns whether the field has an effect in the mode alone.
    pub(super) fn has(&self, field: &str) -> bool {
        [self.masquerade_all, self.masquerade_bit].contains(&field)
            || (self.is_ipvs && field == IPVS_SCHEDULER)
    }
}

/// The scheduler of mode ipvs.
pub(super) const IPVS_SCHEDULER: &str = "ipvs.scheduler";
