//! The tables `nat`, `filter` and `mangle` of iptables-nft, which are nftables tables.

use std::collections::BTreeSet;

use nft::family::Family;
use nft::kernel::{Kernel, Nftables};
use nft::{Jump, Name, Operation, TableRef, Transaction};

use super::names::Table;
use super::removable::{is_jump_from_outside, removable};
use super::removal::{RemovalError, Removed};

/// Most reads of a table. Other programs may change it after a read.
const MAX_ROUNDS: usize = 5;

/// Most bytes of one operation of a removal, with the longest names of iptables.
const OPERATION_BYTES: usize = 128;

/// Removes kube-proxy's chains from a table and the rules that jump to them, in one transaction if
/// it fits the socket.
pub(super) fn remove(
    kernel: &mut Nftables,
    family: Family,
    table: Table,
) -> Result<Option<Removed>, RemovalError> {
    let reference = TableRef::new(family, table.name());
    let (mut chains, mut rules) = (0, 0);
    for _ in 0..MAX_ROUNDS {
        let names = kernel.read_chain_names(&reference)?;
        if !names.iter().any(|chain| table.is_of_kube_proxy(chain)) {
            break;
        }
        let removal = TableRemoval::of(table, &names, &kernel.read_jumps(&reference)?);
        if removal.chains.is_empty() {
            break;
        }
        let operations = removal.operations(&reference);
        // Once the rules of the first piece are deleted, no packet reaches the chains of the
        // others.
        for piece in operations.chunks((kernel.max_batch() / OPERATION_BYTES).max(1)) {
            kernel.commit(&Transaction { operations: piece.to_vec() })?;
        }
        chains += removal.chains.len();
        rules += removal.rules.len();
    }
    let place = reference.to_string();
    Ok((chains > 0).then_some(Removed::Chains { place, chains, rules }))
}

/// Rules and chains to remove from one table.
#[derive(Debug, PartialEq, Eq)]
struct TableRemoval {
    /// Rules of chains that are kept, by chain and handle.
    rules: BTreeSet<(String, u64)>,
    chains: BTreeSet<String>,
}

impl TableRemoval {
    fn of(table: Table, names: &[String], jumps: &[Jump]) -> Self {
        let pairs: Vec<_> = jumps.iter().map(|jump| (&*jump.from, &*jump.to)).collect();
        let removable = removable(table, names.iter().map(String::as_str), &pairs);
        let from_outside =
            jumps.iter().filter(|jump| is_jump_from_outside(&removable, &jump.from, &jump.to));
        Self {
            rules: from_outside.map(|jump| (jump.from.clone(), jump.handle)).collect(),
            chains: removable.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Returns operations that delete the rules, then flush the chains, which jump to each other,
    /// then delete the chains.
    fn operations(&self, table: &TableRef) -> Vec<Operation> {
        let name = |chain: &String| Name::from(chain.clone());
        let rules = self.rules.iter();
        let delete =
            rules.map(|(chain, handle)| Operation::DeleteRule(table.clone(), name(chain), *handle));
        let flush =
            self.chains.iter().map(|chain| Operation::FlushChain(table.clone(), name(chain)));
        let remove =
            self.chains.iter().map(|chain| Operation::DeleteChain(table.clone(), name(chain)));
        delete.chain(flush).chain(remove).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_deleted_before_the_chains_that_they_jump_to() {
        let names = ["PREROUTING", "KUBE-SERVICES", "KUBE-SVC-A"].map(str::to_owned);
        let jump = |from: &str, handle, to: &str| Jump { from: from.into(), handle, to: to.into() };
        let jumps =
            [jump("PREROUTING", 5, "KUBE-SERVICES"), jump("KUBE-SERVICES", 6, "KUBE-SVC-A")];
        // A dump may repeat a rule.
        let jumps = [&jumps[..], &jumps[..]].concat();
        let table = TableRef::new(Family::Ip, "nat");
        let operations = TableRemoval::of(Table::Nat, &names, &jumps).operations(&table);
        assert_eq!(
            Transaction { operations }.to_string(),
            "delete rule ip nat PREROUTING handle 5\n\
             flush chain ip nat KUBE-SERVICES\n\
             flush chain ip nat KUBE-SVC-A\n\
             delete chain ip nat KUBE-SERVICES\n\
             delete chain ip nat KUBE-SVC-A\n"
        );
    }
}
