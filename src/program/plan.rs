//! `plan`: shows the changes that `apply` would make, without making them.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Engine;
use nft::TableFlags;
use nft::kernel::{Kernel, Nftables};
use serde_json::{Value, json};

use super::change::{ChangeLine, changes};
use super::failure::Failure;
use super::localhost;
use super::manifests::{Input, load};
use super::outcome::Compared;
use super::output::{Output, print};
use super::read_tables::read_tables;
use super::settings::Settings;

/// Prints each change in the syntax of nft(8), with `+` for an addition and `-` for a removal: one
/// line each, or all in one JSON document.
///
/// # Errors
/// Like `apply`, except that nothing is sent.
pub fn plan(input: &Input<'_>, settings: &Settings, output: Output) -> Result<Compared, Failure> {
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let routing = settings.config.routing.clone();
    let mut engine = Engine::new(routing, TableFlags::default());
    engine.suit_kernel(kernel.release());
    let mut problems = load(&mut engine, input)?;
    settings.report(&engine);
    problems.extend(localhost::check(&mut engine).err());
    let found = read_tables(&engine, &mut kernel)?;
    engine.replace_installed_state(found);
    let (mut document, mut planned) = (Document::default(), Compared::Equal);
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        planned = Compared::Different;
        for change in transaction.operations.iter().flat_map(changes) {
            match output {
                Output::Text => print(&format_args!("{} {}\n", change.sign, change.command)),
                Output::Json => document.add(&change),
            }
        }
        engine.committed(Duration::ZERO);
    }
    problems.extend(engine.take_problems().iter().map(ToString::to_string));
    match (output, planned) {
        (Output::Text, Compared::Equal) => {
            print(&"nothing would change: the tables are as desired\n");
        }
        (Output::Text, Compared::Different) => {}
        (Output::Json, _) => {
            let mut document = document.json(&problems);
            document["settings"] = settings.json(&engine);
            print(&format_args!("{document}\n"));
        }
    }
    Failure::of_problems(problems).map(|()| planned)
}

/// Output of `--output json`.
#[derive(Debug, Default)]
struct Document {
    changes: Vec<Value>,
    added: BTreeMap<String, usize>,
    removed: BTreeMap<String, usize>,
}

impl Document {
    fn add(&mut self, change: &ChangeLine) {
        // A command is an action, a kind, the family and name of the table, and the object. Only
        // the command of a table has no object.
        let mut words = change.command.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (action, kind, family, table, object) = (word(), word(), word(), word(), word());
        let counts = if change.sign == '+' { &mut self.added } else { &mut self.removed };
        *counts.entry(kind.to_owned()).or_default() += 1;
        self.changes.push(json!({
            "sign": change.sign,
            "action": action,
            "kind": kind,
            "family": family,
            "table": table,
            "object": object,
        }));
    }

    fn json(&self, problems: &[String]) -> Value {
        json!({
            "changes": self.changes,
            "summary": { "added": self.added, "removed": self.removed },
            "problems": problems,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_into_its_parts() {
        let mut document = Document::default();
        for (sign, command) in [
            ('+', "add table ip kube-proxy"),
            ('+', "add element ip6 kube-proxy endpoints { 1:0 . tcp . 0 : ::1 . 80 }"),
            ('-', "flush chain ip kube-proxy services"),
        ] {
            document.add(&ChangeLine { sign, command: command.to_owned() });
        }
        let change = |sign, action, kind, family, object| {
            json!({"sign": sign, "action": action, "kind": kind, "family": family,
                   "table": "kube-proxy", "object": object})
        };
        let expected = json!({
            "changes": [
                change("+", "add", "table", "ip", ""),
                change("+", "add", "element", "ip6", "endpoints { 1:0 . tcp . 0 : ::1 . 80 }"),
                change("-", "flush", "chain", "ip", "services"),
            ],
            "summary": { "added": { "table": 1, "element": 1 }, "removed": { "chain": 1 } },
            "problems": ["a"],
        });
        assert_eq!(document.json(&["a".to_owned()]), expected);
    }
}
