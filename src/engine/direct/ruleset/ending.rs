//! Rules that stop at a time: those of a daemon that ended.

use std::time::{SystemTime, UNIX_EPOCH};

use nft::{Operation, Rule};

use super::base::INGRESS;
use super::layout::table;
use crate::ruleset::base::Base;
use crate::ruleset::phrase;

/// Returns the operations after which nodes hand packets on until `end` only, and each node then
/// serves what comes to it. The next start replaces these rules.
pub(crate) fn ending(base: &Base, end: SystemTime) -> Vec<Operation> {
    let since_1970 = end.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanoseconds = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
    let ingress = base.chains.iter().filter(|spec| spec.chain.name == INGRESS);
    let of_chain = ingress.flat_map(|spec| {
        let flush = Operation::FlushChain(table(), spec.chain.name.clone());
        let rules = spec.rules.iter().map(|rule| {
            let mut expressions = phrase::before(nanoseconds);
            expressions.extend(rule.expressions.iter().cloned());
            Operation::AddRule(table(), Rule { expressions, ..rule.clone() })
        });
        std::iter::once(flush).chain(rules).collect::<Vec<_>>()
    });
    of_chain.collect()
}
