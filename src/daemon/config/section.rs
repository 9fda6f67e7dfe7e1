//! The fields of KubeProxyConfiguration that have an effect in one mode alone.

use super::fields::{DEFAULT_MODE, IPVS_SCHEDULER};
use super::notes::Notes;
use super::options::Setting;

/// Masquerade fields of a mode; iptables and ipvs share theirs.
pub(super) struct Section {
    pub(super) mode: &'static str,
    /// Name of the section.
    pub(super) name: &'static str,
}

impl Section {
    pub(super) const NFTABLES: Self = Self { mode: "nftables", name: "nftables" };

    /// Returns the section of the configured mode.
    pub(super) fn of(notes: &Notes) -> Self {
        match notes.other_mode.as_deref() {
            None => Self::NFTABLES,
            Some("ipvs") => Self { mode: "ipvs", name: "iptables" },
            Some(_) => Self { mode: DEFAULT_MODE, name: "iptables" },
        }
    }

    /// Returns whether `ipvs.scheduler` has an effect.
    pub(super) fn is_ipvs(&self) -> bool {
        self.mode == "ipvs"
    }

    /// Returns whether the field at `path`, which is that of `setting`, has an effect in the mode.
    pub(super) fn has(&self, setting: &Setting, path: &str) -> bool {
        let is_of_mode = path != IPVS_SCHEDULER || self.is_ipvs();
        setting.has_effect() && is_of_mode && path == setting.path(self.name)
    }
}
