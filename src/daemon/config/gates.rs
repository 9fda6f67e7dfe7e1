//! Feature gates: one of kube-proxy's gates has an effect here.

use serde_json::{Map, Value};

/// `AllowServiceExternalIPs` (KEP-5707): external IPs of services are served. The gate is generally
/// available and can be off (`pkg/features/kube_features.go`).
pub const EXTERNAL_IPS: &str = "AllowServiceExternalIPs";

/// The expectation of errors.
pub(super) const EXPECTED: &str = "AllowServiceExternalIPs=true or AllowServiceExternalIPs=false";

/// Parses `name=true` and `name=false`, separated by commas, into an object. Gates without effect
/// are true, so that notes name them.
pub(super) fn read(text: &str) -> Option<Value> {
    let mut gates = Map::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=')?;
        let value = boolean(value)?;
        gates.insert(name.to_owned(), (value || name != EXTERNAL_IPS).into());
    }
    Some(gates.into())
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
    use serde_json::json;

    use super::*;

    #[test]
    fn the_one_gate_is_true_or_false_and_others_are_named() {
        assert_eq!(read(""), Some(json!({})));
        assert_eq!(read("AllowServiceExternalIPs=true"), Some(json!({ EXTERNAL_IPS: true })));
        let gates = json!({ EXTERNAL_IPS: false, "AllAlpha": true, "AllBeta": true });
        assert_eq!(read(" AllowServiceExternalIPs=F,AllAlpha=true,AllBeta=0"), Some(gates));
        for wrong in ["AllowServiceExternalIPs", "AllowServiceExternalIPs=perhaps", "A="] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
