//! Chains of a table that can be removed.

use std::collections::BTreeSet;

use super::names::{Table, is_built_in};

/// Returns kube-proxy's chains in `chains`, except those that a chain of another program needs.
///
/// A jump is a pair of chain names, from and to. Programs for host ports jump to `KUBE-MARK-MASQ`
/// from their own chains; such a target is kept, and so is every chain that it jumps to.
pub(super) fn removable<'a>(
    table: Table,
    chains: impl IntoIterator<Item = &'a str>,
    jumps: &[(&str, &'a str)],
) -> BTreeSet<&'a str> {
    let of_kube_proxy = |chain: &&str| table.is_of_kube_proxy(chain);
    let mut removable: BTreeSet<_> = chains.into_iter().filter(of_kube_proxy).collect();
    loop {
        let before = removable.len();
        for (from, to) in jumps {
            if !is_built_in(from) && !removable.contains(from) {
                removable.remove(to);
            }
        }
        if removable.len() == before {
            return removable;
        }
    }
}

/// Returns whether a jump must be deleted before its target chain.
pub(super) fn is_jump_from_outside(removable: &BTreeSet<&str>, from: &str, to: &str) -> bool {
    removable.contains(to) && !removable.contains(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAINS: [&str; 6] =
        ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC-A", "KUBE-SEP-A", "KUBE-MARK-MASQ", "CNI-DN-A"];

    const JUMPS: [(&str, &str); 5] = [
        ("PREROUTING", "KUBE-SERVICES"),
        ("KUBE-SERVICES", "KUBE-SVC-A"),
        ("KUBE-SVC-A", "KUBE-SEP-A"),
        ("KUBE-SEP-A", "KUBE-MARK-MASQ"),
        ("PREROUTING", "CNI-DN-A"),
    ];

    #[test]
    fn chains_that_only_kube_proxy_uses_are_removed() {
        let found = removable(Table::Nat, CHAINS, &JUMPS);
        let expected = ["KUBE-MARK-MASQ", "KUBE-SEP-A", "KUBE-SERVICES", "KUBE-SVC-A"];
        assert_eq!(found.iter().copied().collect::<Vec<_>>(), expected);
        assert!(is_jump_from_outside(&found, "PREROUTING", "KUBE-SERVICES"));
        assert!(!is_jump_from_outside(&found, "PREROUTING", "CNI-DN-A"));
        assert!(!is_jump_from_outside(&found, "KUBE-SERVICES", "KUBE-SVC-A"));
    }

    #[test]
    fn a_chain_that_other_programs_jump_to_is_kept_with_all_that_it_jumps_to() {
        let jumps = [&JUMPS[..], &[("CNI-DN-A", "KUBE-SVC-A")]].concat();
        let found = removable(Table::Nat, CHAINS, &jumps);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["KUBE-SERVICES"]);
    }

    #[test]
    fn nothing_is_removed_without_leftovers() {
        let chains = ["FORWARD", "KUBE-FIREWALL", "KUBE-ROUTER-FORWARD"];
        let jumps = [("FORWARD", "KUBE-ROUTER-FORWARD"), ("INPUT", "KUBE-FIREWALL")];
        assert!(removable(Table::Filter, chains, &jumps).is_empty());
    }
}
