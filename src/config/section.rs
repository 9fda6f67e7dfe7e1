//! The fields of KubeProxyConfiguration that have an effect in one mode alone.

use super::Notes;

/// Masquerade fields of a mode; iptables and ipvs share theirs.
pub(super) struct Section {
    pub(super) masquerade_all: &'static str,
    pub(super) masquerade_bit: &'static str,
    /// `ipvs.scheduler` has an effect.
    pub(super) is_ipvs: bool,
}

impl Section {
    /// Returns the fields of the configured mode.
    pub(super) fn of(notes: &Notes) -> Self {
        match &notes.other_mode {
            None => Self {
                masquerade_all: "nftables.masqueradeAll",
                masquerade_bit: "nftables.masqueradeBit",
                is_ipvs: false,
            },
            Some(mode) => Self {
                masquerade_all: "iptables.masqueradeAll",
                masquerade_bit: "iptables.masqueradeBit",
                is_ipvs: mode == "ipvs",
            },
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
