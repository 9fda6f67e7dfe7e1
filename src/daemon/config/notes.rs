//! Notes about an accepted configuration, for the user.

/// Fields and flags of a configuration without effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Fields of the API whose values have no effect here, such as `ipvs.strictARP`.
    pub without_effect: Vec<String>,
    /// Fields that the API does not have, each with its line: `line 7: mtu`.
    pub unknown: Vec<String>,
    /// Parts of the file with a meaning that its author may not expect, such as a duplicate key.
    pub unexpected: Vec<String>,
    /// Settings that kube-proxy refuses, each with its place and the reason.
    pub refused: Vec<String>,
    /// Given flags of kube-proxy without effect, such as `vmodule`.
    pub flags: Vec<&'static str>,
    /// The configured mode, if it is not nftables. An absent mode is iptables, as in kube-proxy.
    pub other_mode: Option<String>,
    /// kube-proxy would serve NodePorts at 127.0.0.1 with this configuration.
    pub closes_localhost: bool,
    /// Reservation about a scheduler that is only the nearest to the configured one.
    pub scheduler: Option<String>,
}

impl Notes {
    /// Returns a log line for each kind of note that is present.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(mode) = &self.other_mode {
            let localhost = if self.closes_localhost { LOCALHOST } else { "" };
            lines.push(format!(
                "mode {mode} is not supported: mode nftables is used; where nodePortAddresses is \
                 empty, every local address serves NodePorts, as in mode {mode}{localhost}"
            ));
        }
        lines.extend(self.scheduler.clone());
        lines.extend(self.unexpected.clone());
        lines.extend(self.refused.iter().map(|it| format!("kube-proxy would refuse {it}")));
        if !self.without_effect.is_empty() {
            let names = self.without_effect.join(", ");
            lines.push(format!("fields of the configuration without effect: {names}"));
        }
        if !self.flags.is_empty() {
            lines.push(format!("flags without effect: --{}", self.flags.join(", --")));
        }
        if !self.unknown.is_empty() {
            let names = self.unknown.join(", ");
            lines.push(format!("unknown fields of the configuration: {names}"));
        }
        lines
    }
}

/// What to change where kube-proxy serves NodePorts at 127.0.0.1.
const LOCALHOST: &str =
    "; NodePorts at 127.0.0.1, which kube-proxy serves there, need localhost in nodePortAddresses";
