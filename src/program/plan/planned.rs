//! The changes of a plan: their number by kind and by service, and for JSON each of them.

use std::collections::BTreeMap;
use std::fmt;

use engine::printable::Printable;
use serde_json::{Value, json};

use crate::comparison::ChangeLine;
use crate::output::Output;
use crate::summary::ChangeCounts;

/// Maximum number of services in text.
const SHOWN: usize = 20;

/// Planned changes.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Each change, for JSON.
    changes: Option<Vec<Value>>,
    kinds: BTreeMap<String, ChangeCounts>,
    /// By the service's name.
    services: BTreeMap<String, ChangeCounts>,
}

impl Planned {
    pub(super) fn new(output: Output) -> Self {
        let changes = (output == Output::Json).then(Vec::new);
        Self { changes, ..Self::default() }
    }

    pub(super) fn add(&mut self, change: &ChangeLine, service: Option<String>) {
        // A command is an action, a kind, the family and name of the table, and the object. Only
        // the command of a table has no object.
        let mut words = change.command.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (action, kind, family, table, object) = (word(), word(), word(), word(), word());
        self.kinds.entry(kind.to_owned()).or_default().add(change.sign);
        if let Some(changes) = &mut self.changes {
            changes.push(json!({
                "sign": change.sign,
                "action": action,
                "kind": kind,
                "family": family,
                "table": table,
                "object": object,
            }));
        }
        if let Some(service) = service {
            self.services.entry(service).or_default().add(change.sign);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub(super) fn json(&self, problems: &[String]) -> Value {
        let kinds = |count: fn(&ChangeCounts) -> usize| -> BTreeMap<_, _> {
            let counts = self.kinds.iter().map(|(kind, it)| (kind, count(it)));
            counts.filter(|(_, count)| *count > 0).collect()
        };
        json!({
            "changes": self.changes,
            "summary": {
                "added": kinds(|it| it.added),
                "removed": kinds(|it| it.removed),
                "services": self.services,
            },
            "problems": problems,
        })
    }
}

impl ChangeCounts {
    fn add(&mut self, sign: char) {
        *(if sign == '+' { &mut self.added } else { &mut self.removed }) += 1;
    }
}

/// Formats a line for each kind, and for each of the first services.
impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return writeln!(f, "nothing would change: the tables are as desired");
        }
        writeln!(f, "the tables would change:")?;
        for (kind, count) in &self.kinds {
            // A changed chain is flushed and gets all its rules again.
            let kind = if kind == "chain" { "chain, or all its rules" } else { kind };
            writeln!(f, "  {kind}: {count}")?;
        }
        writeln!(f, "elements of {} services would change", self.services.len())?;
        for (name, count) in self.services.iter().take(SHOWN) {
            writeln!(f, "  {}: {count}", Printable(name))?;
        }
        match self.services.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(changes: &[(char, &str, Option<&str>)]) -> Planned {
        let mut planned = Planned::new(Output::Json);
        for (sign, command, service) in changes {
            let change = ChangeLine { sign: *sign, command: (*command).to_owned() };
            planned.add(&change, service.map(str::to_owned));
        }
        planned
    }

    #[test]
    fn a_command_is_split_into_its_parts() {
        let planned = planned(&[
            ('+', "add table ip kube-proxy", None),
            ('+', "add element ip6 kube-proxy endpoints { 1:0 . tcp . 0 : ::1 . 80 }", Some("a/b")),
            ('-', "flush chain ip kube-proxy services", None),
        ]);
        let change = |sign, action, kind, family, object| {
            json!({"sign": sign, "action": action, "kind": kind, "family": family,
                   "table": "kube-proxy", "object": object})
        };
        let element = "endpoints { 1:0 . tcp . 0 : ::1 . 80 }";
        let expected = json!({
            "changes": [
                change("+", "add", "table", "ip", ""),
                change("+", "add", "element", "ip6", element),
                change("-", "flush", "chain", "ip", "services"),
            ],
            "summary": {
                "added": { "table": 1, "element": 1 },
                "removed": { "chain": 1 },
                "services": { "a/b": { "added": 1, "removed": 0 } },
            },
            "problems": ["a"],
        });
        assert_eq!(planned.json(&["a".to_owned()]), expected);
    }

    #[test]
    fn text_has_the_number_of_changes_by_kind_and_by_service() {
        let lines = planned(&[
            ('+', "add rule ip kube-proxy a", None),
            ('-', "flush chain ip kube-proxy a", None),
            ('-', "delete element ip kube-proxy endpoints { 1 }", Some("a/b")),
            ('+', "add element ip kube-proxy endpoints { 1 }", Some("a/b")),
        ]);
        let expected = "the tables would change:\n  chain, or all its rules: +0 -1\n  element: +1 -1\n  \
                        rule: +1 -0\nelements of 1 services would change\n  a/b: +1 -1\n";
        assert_eq!(lines.to_string(), expected);
        let many: Vec<_> = (0..SHOWN + 2).map(|number| format!("a/{number:02}")).collect();
        let many: Vec<_> = many.iter().map(|name| ('+', "add element", Some(&**name))).collect();
        assert!(planned(&many).to_string().ends_with("  a/19: +1 -0\n  and 2 more\n"));
    }
}
