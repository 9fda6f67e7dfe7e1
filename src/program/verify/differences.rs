//! Differences between tables and objects, by service.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use engine::printable::Printable;
use serde_json::{Value, json};

use crate::comparison::{Change, ChangeLine};

/// Maximum number of printed changes of one service, or of elements without a service.
const SHOWN: usize = 5;

/// Necessary changes, by the name of the service; changes without a service have no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    changes: BTreeMap<Option<String>, Vec<ChangeLine>>,
}

impl Differences {
    pub(super) fn add(&mut self, (change, service): Change) {
        self.changes.entry(service).or_default().push(change);
    }

    /// Keeps the changes that are in `others` too.
    pub(super) fn retain(&mut self, others: &Self) {
        for (name, changes) in &mut self.changes {
            let others = others.changes.get(name);
            let others: BTreeSet<_> = others.into_iter().flatten().map(|it| &it.command).collect();
            changes.retain(|change| others.contains(&change.command));
        }
        self.changes.retain(|_, changes| !changes.is_empty());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the number of services that differ.
    pub(super) fn services(&self) -> usize {
        self.changes.keys().flatten().count()
    }

    pub(super) fn json(&self) -> Value {
        let list = |changes: &[ChangeLine]| -> Vec<Value> {
            let each = |it: &ChangeLine| json!({ "sign": it.sign, "command": it.command });
            changes.iter().map(each).collect()
        };
        let named = self.changes.iter().filter_map(|(name, it)| Some((name.clone()?, list(it))));
        let others = self.changes.get(&None).map(|it| list(it)).unwrap_or_default();
        json!({ "services": named.collect::<BTreeMap<_, _>>(), "others": others })
    }
}

/// Formats a line for each service, and its first changes below it.
impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, changes) in &self.changes {
            let name = name.as_deref().unwrap_or("of no service");
            writeln!(f, "{}: {} differences", Printable(name), changes.len())?;
            let mut shown: Vec<_> = changes.iter().collect();
            // Whole tables first.
            shown.sort_by_key(|it| it.command.split(' ').nth(1) != Some("table"));
            for ChangeLine { sign, command } in shown.into_iter().take(SHOWN) {
                writeln!(f, "  {sign} {}", Printable(command))?;
            }
            if let Some(more @ 1..) = changes.len().checked_sub(SHOWN) {
                writeln!(f, "  and {more} more")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(services: &[(Option<&str>, &[&str])]) -> Differences {
        let change = |command: &&str| ChangeLine { sign: '+', command: (*command).to_owned() };
        let of = |(name, commands): &(Option<&str>, &[&str])| {
            (name.map(str::to_owned), commands.iter().map(change).collect())
        };
        Differences { changes: services.iter().map(of).collect() }
    }

    #[test]
    fn what_a_second_look_does_not_find_is_dropped() {
        let mut first = differences(&[(None, &["a"]), (Some("x/y"), &["b", "c"])]);
        first.retain(&differences(&[(Some("x/y"), &["c", "d"]), (Some("x/z"), &["a"])]));
        assert_eq!(first, differences(&[(Some("x/y"), &["c"])]));
        first.retain(&Differences::default());
        assert!(first.is_empty());
    }

    #[test]
    fn services_are_counted_and_long_lists_are_cut() {
        let all =
            differences(&[(None, &["a"]), (Some("x/y"), &["1", "2", "3", "4", "5", "6", "7"])]);
        assert_eq!(all.services(), 1);
        let lines: Vec<String> = all.to_string().lines().map(str::to_owned).collect();
        let expected = ["of no service: 1 differences", "  + a", "x/y: 7 differences", "  + 1"];
        assert_eq!(lines[..4], expected);
        assert_eq!(lines.last().unwrap(), "  and 2 more");
        assert_eq!(all.json()["others"], json!([{"sign": '+', "command": "a"}]));
        assert_eq!(all.json()["services"]["x/y"].as_array().unwrap().len(), 7);
    }
}
