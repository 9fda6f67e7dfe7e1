//! Feature gates: the one of kube-proxy's that decides what packets get.

use std::str::FromStr;

/// The gates that have an effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    /// `AllowServiceExternalIPs` (KEP-5707): services' external IPs are served.
    pub external_ips: bool,
}

/// Why a text is not a list of gates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// An entry names another gate.
    #[error("{0:?} has no effect here; expected {EXTERNAL_IPS}=true or {EXTERNAL_IPS}=false")]
    Unknown(String),
    /// An entry says neither true nor false.
    #[error("{0:?} is not of the form {EXTERNAL_IPS}=true or {EXTERNAL_IPS}=false")]
    NotABool(String),
}

/// The name of the gate.
const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

impl Default for FeatureGates {
    fn default() -> Self {
        Self { external_ips: true }
    }
}

impl FromStr for FeatureGates {
    type Err = GateError;

    /// Reads `name=true` and `name=false`, separated by commas; an empty text is the default.
    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            if name != EXTERNAL_IPS {
                return Err(GateError::Unknown(name.to_owned()));
            }
            gates.external_ips =
                value.parse().map_err(|_| GateError::NotABool(entry.to_owned()))?;
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_gate_is_true_or_false_and_others_are_refused() {
        let read = |text: &str| text.parse::<FeatureGates>().map(|gates| gates.external_ips);
        assert_eq!(read(""), Ok(true));
        assert_eq!(read("AllowServiceExternalIPs=true"), Ok(true));
        assert_eq!(read(" AllowServiceExternalIPs=false,"), Ok(false));
        for (text, error) in [
            (
                "AllowServiceExternalIPs",
                "\"AllowServiceExternalIPs\" is not of the form AllowServiceExternalIPs=true or \
                 AllowServiceExternalIPs=false",
            ),
            (
                "AllAlpha=true",
                "\"AllAlpha\" has no effect here; expected AllowServiceExternalIPs=true or \
                 AllowServiceExternalIPs=false",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), error);
        }
    }
}
