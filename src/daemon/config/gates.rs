//! Feature gates: one of kube-proxy's gates has an effect here.

use std::str::FromStr;

/// The gate with an effect, and the names of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureGates {
    /// `AllowServiceExternalIPs` (KEP-5707): external IPs of services are served.
    pub external_ips: bool,
    /// Gates without effect.
    pub others: Vec<String>,
}

/// Error: an entry has neither true nor false.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form {EXTERNAL_IPS}=true or {EXTERNAL_IPS}=false")]
pub struct GateError(String);

/// Name of the gate. It is generally available and can be off (`pkg/features/kube_features.go`).
pub const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

impl Default for FeatureGates {
    fn default() -> Self {
        Self { external_ips: true, others: Vec::new() }
    }
}

impl FromStr for FeatureGates {
    type Err = GateError;

    /// Parses `name=true` and `name=false`, separated by commas; an empty text is the default.
    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            let value = boolean(value).ok_or_else(|| GateError(entry.to_owned()))?;
            match name {
                EXTERNAL_IPS => gates.external_ips = value,
                _ => gates.others.push(name.to_owned()),
            }
        }
        Ok(gates)
    }
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_gate_is_true_or_false_and_others_are_named() {
        let read = |text: &str| text.parse::<FeatureGates>().map(|gates| gates.external_ips);
        assert_eq!(read(""), Ok(true));
        assert_eq!(read("AllowServiceExternalIPs=true"), Ok(true));
        assert_eq!(read(" AllowServiceExternalIPs=F,AllAlpha=true"), Ok(false));
        let gates: FeatureGates = "AllAlpha=true,AllBeta=0".parse().unwrap();
        assert_eq!(gates.others, ["AllAlpha", "AllBeta"]);
        assert_eq!(
            read("AllowServiceExternalIPs").unwrap_err().to_string(),
            "\"AllowServiceExternalIPs\" is not of the form AllowServiceExternalIPs=true or \
             AllowServiceExternalIPs=false"
        );
    }
}
