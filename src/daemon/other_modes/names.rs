//! Names of kube-proxy's chains, ipsets and link in its modes iptables and ipvs: `cleanup.go` in
//! `pkg/proxy/iptables` and `pkg/proxy/ipvs`, of this and earlier releases.
//!
//! Other programs use the prefix `KUBE-` too: the kubelet for `KUBE-FIREWALL`, `KUBE-IPTABLES-HINT`
//! and `KUBE-KUBELET-CANARY`, kube-router for `KUBE-ROUTER-*` and `KUBE-POD-FW-*`. Names to which
//! kube-proxy appends no hash are therefore compared whole.

engine::named! {
    /// A table of iptables.
    pub(super) enum Table {
        Nat = "nat",
        Filter = "filter",
        Mangle = "mangle",
    }
}

impl Table {
    /// Returns whether a chain of this table is kube-proxy's.
    pub(super) fn is_of_kube_proxy(self, chain: &str) -> bool {
        let has_prefix = |prefix: &&str| chain.starts_with(prefix);
        match self {
            Self::Nat => NAT.contains(&chain) || NAT_PREFIXES.iter().any(has_prefix),
            Self::Filter => FILTER.contains(&chain),
            Self::Mangle => MANGLE.contains(&chain),
        }
    }
}

/// The chain that all packets pass, in modes iptables and ipvs.
pub(super) const SERVICES: &str = "KUBE-SERVICES";

const NAT: &[&str] = &[
    SERVICES,
    "KUBE-NODEPORTS",
    "KUBE-POSTROUTING",
    "KUBE-MARK-MASQ",
    "KUBE-NODE-PORT",
    "KUBE-LOAD-BALANCER",
    "KUBE-PROXY-CANARY",
];

/// Prefixes before the hash of a service port or endpoint.
const NAT_PREFIXES: &[&str] =
    &["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-", "KUBE-SEP-"];

const FILTER: &[&str] = &[
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-FORWARD",
    "KUBE-PROXY-FIREWALL",
    "KUBE-SOURCE-RANGES-FIREWALL",
    "KUBE-IPVS-FILTER",
    "KUBE-IPVS-OUT-FILTER",
    "KUBE-NODE-PORT",
    "KUBE-PROXY-CANARY",
];

const MANGLE: &[&str] = &["KUBE-PROXY-CANARY"];

/// Returns true for a built-in chain of iptables, which may hold rules of kube-proxy.
pub(super) fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// The dummy link that has the addresses of services in mode ipvs.
pub(super) const LINK: &str = "kube-ipvs0";

/// Returns whether an ipset is kube-proxy's. Those for IPv6 are `KUBE-6-*`.
pub(super) fn is_ipset_of_kube_proxy(name: &str) -> bool {
    let Some(name) = name.strip_prefix("KUBE-") else { return false };
    match name.strip_prefix("6-") {
        // kube-proxy truncates names to 31 bytes, the limit of ipset.
        Some(name) => IPSETS.iter().any(|set| set.get(..IPSET_6_LIMIT).unwrap_or(set) == name),
        None => IPSETS.contains(&name),
    }
}

/// Bytes available after `KUBE-6-`.
const IPSET_6_LIMIT: usize = 31 - "KUBE-6-".len();

/// Names without `KUBE-`.
const IPSETS: &[&str] = &[
    "LOOP-BACK",
    "CLUSTER-IP",
    "EXTERNAL-IP",
    "EXTERNAL-IP-LOCAL",
    "LOAD-BALANCER",
    "LOAD-BALANCER-LOCAL",
    "LOAD-BALANCER-FW",
    "LOAD-BALANCER-SOURCE-IP",
    "LOAD-BALANCER-SOURCE-CIDR",
    "NODE-PORT-TCP",
    "NODE-PORT-LOCAL-TCP",
    "NODE-PORT-UDP",
    "NODE-PORT-LOCAL-UDP",
    "NODE-PORT-SCTP-HASH",
    "NODE-PORT-LOCAL-SCTP-HASH",
    "HEALTH-CHECK-NODE-PORT",
    "IPVS-IPS",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_kube_proxy_and_of_no_other_program_are_found() {
        for chain in ["KUBE-SERVICES", "KUBE-SEP-2Y3FWLDSYR47XJ5L", "KUBE-SVC-TCOU7JCQXEZGVUNU"] {
            assert!(Table::Nat.is_of_kube_proxy(chain), "{chain}");
        }
        for chain in ["KUBE-FORWARD", "KUBE-IPVS-OUT-FILTER", "KUBE-PROXY-CANARY"] {
            assert!(Table::Filter.is_of_kube_proxy(chain), "{chain}");
        }
        assert!(Table::Mangle.is_of_kube_proxy("KUBE-PROXY-CANARY"));
        for (table, chain) in [
            (Table::Filter, "KUBE-FIREWALL"),
            (Table::Mangle, "KUBE-IPTABLES-HINT"),
            (Table::Mangle, "KUBE-KUBELET-CANARY"),
            (Table::Filter, "KUBE-ROUTER-FORWARD"),
            (Table::Filter, "KUBE-POD-FW-2Y3FWLDSYR47XJ5L"),
            (Table::Nat, "KUBE-MARK-DROP"),
            (Table::Nat, "CNI-HOSTPORT-DNAT"),
            (Table::Nat, "PREROUTING"),
        ] {
            assert!(!table.is_of_kube_proxy(chain), "{chain}");
        }
    }

    #[test]
    fn ipsets_of_both_families_are_found() {
        for set in [
            "KUBE-CLUSTER-IP",
            "KUBE-6-CLUSTER-IP",
            "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            "KUBE-6-LOAD-BALANCER-SOURCE-CID",
            "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS",
        ] {
            assert!(is_ipset_of_kube_proxy(set), "{set}");
        }
        for set in ["KUBE-SRC-2Y3FWLDSYR47XJ5L", "KUBE-6-CLUSTER", "CLUSTER-IP", "cali40all"] {
            assert!(!is_ipset_of_kube_proxy(set), "{set}");
        }
    }
}
