//! Tables of iptables-legacy, changed with its own programs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use nft::family::Family;

use super::names::{SERVICES, Table};
use super::programs::NodeFiles;
use super::removable::{is_jump_from_outside, removable};
use super::removal::{RemovalError, Removed};

/// Removes kube-proxy's chains from a table and the rules that jump to them. Does nothing without
/// the programs, or if the kernel has not loaded the table, because the programs would load it.
pub(super) fn remove(
    node: &NodeFiles,
    family: Family,
    table: Table,
) -> Result<Option<Removed>, RemovalError> {
    let Some(restore) = program(node, family, "restore") else { return Ok(None) };
    let Some(text) = saved(node, family, table)? else { return Ok(None) };
    let Some(removal) = LegacyRemoval::of(table, &text) else { return Ok(None) };
    // `-w 5` waits up to 5 s for another iptables process.
    node.programs.run(&restore, &["--noflush", "-w", "5"], removal.script(table))?;
    Ok(Some(Removed::Chains {
        place: format!("{family} {} of iptables-legacy", table.name()),
        chains: removal.chains.len(),
        rules: removal.rules.len(),
    }))
}

/// Returns whether table nat has the services of a kube-proxy.
pub(super) fn has_services(node: &NodeFiles, family: Family) -> bool {
    let saved = saved(node, family, Table::Nat).ok().flatten().unwrap_or_default();
    saved
        .lines()
        .any(|line| line.strip_prefix(':').and_then(|it| it.split(' ').next()) == Some(SERVICES))
}

/// Returns the output of iptables-save for a table; `None` if it is not loaded or cannot be saved.
fn saved(node: &NodeFiles, family: Family, table: Table) -> Result<Option<String>, RemovalError> {
    let names = node.net.join(format!("{family}_tables_names"));
    let loaded = fs::read_to_string(names).unwrap_or_default();
    let is_loaded = loaded.lines().any(|name| name == table.name());
    let Some(save) = program(node, family, "save").filter(|_| is_loaded) else { return Ok(None) };
    Ok(Some(node.programs.run(&save, &["-t", table.name()], String::new())?))
}

fn program(node: &NodeFiles, family: Family, verb: &str) -> Option<PathBuf> {
    node.programs.find(&format!("{family}tables-legacy-{verb}"))
}

/// Rules and chains to remove from one table.
struct LegacyRemoval<'a> {
    /// Rules of chains that are kept, without `-A `.
    rules: Vec<&'a str>,
    chains: BTreeSet<&'a str>,
}

impl<'a> LegacyRemoval<'a> {
    /// Parses the output of iptables-save for a table. Returns `None` if there is nothing to
    /// remove.
    fn of(table: Table, saved: &'a str) -> Option<Self> {
        let first_word = |line: &'a str| line.split(' ').next().unwrap_or_default();
        let chains = saved.lines().filter_map(|line| line.strip_prefix(':')).map(first_word);
        let rules = saved.lines().filter_map(|line| line.strip_prefix("-A "));
        let jumps = rules.filter_map(|rule| Some((rule, first_word(rule), target(rule)?)));
        let jumps: Vec<_> = jumps.collect();
        let pairs: Vec<_> = jumps.iter().map(|(_, from, to)| (*from, *to)).collect();
        let chains = removable(table, chains, &pairs);
        let from_outside =
            jumps.iter().filter(|(_, from, to)| is_jump_from_outside(&chains, from, to));
        let rules = from_outside.map(|(rule, ..)| *rule).collect();
        (!chains.is_empty()).then_some(Self { rules, chains })
    }

    /// Returns the input of `iptables-restore --noflush`, which flushes the chains that it
    /// declares.
    fn script(&self, table: Table) -> String {
        let mut script = format!("*{}\n", table.name());
        let mut add = |before: &str, text: &str, after: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(script, "{before}{text}{after}");
        };
        self.chains.iter().for_each(|chain| add(":", chain, " - [0:0]"));
        self.rules.iter().for_each(|rule| add("-D ", rule, ""));
        self.chains.iter().for_each(|chain| add("-X ", chain, ""));
        add("COMMIT", "", "");
        script
    }
}

/// Returns the chain or target that a rule jumps to.
fn target(rule: &str) -> Option<&str> {
    let mut words = RuleWords(rule);
    words.find(|word| matches!(*word, "-j" | "-g"))?;
    words.next()
}

/// RuleWords of a rule. A quoted word, such as a comment, keeps its spaces and quotes.
struct RuleWords<'a>(&'a str);

impl<'a> Iterator for RuleWords<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start_matches(' ');
        if rest.is_empty() {
            return None;
        }
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = rest.find(|letter| {
            let is_end = letter == ' ' && !is_quoted;
            is_quoted ^= letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::super::programs::tests::Scripts;
    use super::*;

    const SAVED: &str = r#"# Generated by iptables-save v1.8.9 on Thu Jan  1 00:00:00 1970
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-2Y3FWLDSYR47XJ5L - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m comment --comment "not \" -j KUBE-SERVICES" -j CNI-HOSTPORT-DNAT
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SEP-2Y3FWLDSYR47XJ5L -s 10.244.1.6/32 -j KUBE-MARK-MASQ
-A KUBE-SEP-2Y3FWLDSYR47XJ5L -p tcp -m tcp -j DNAT --to-destination 10.244.1.6:8080
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-TCOU7JCQXEZGVUNU
-A KUBE-SVC-TCOU7JCQXEZGVUNU -m comment --comment "default/web" -j KUBE-SEP-2Y3FWLDSYR47XJ5L
COMMIT
"#;

    const SCRIPT: &str = r#"*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-SEP-2Y3FWLDSYR47XJ5L - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-TCOU7JCQXEZGVUNU - [0:0]
-D PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-X KUBE-MARK-MASQ
-X KUBE-SEP-2Y3FWLDSYR47XJ5L
-X KUBE-SERVICES
-X KUBE-SVC-TCOU7JCQXEZGVUNU
COMMIT
"#;

    /// Returns a node on which these IPv4 tables are loaded, and whose iptables-legacy prints
    /// [`SAVED`].
    fn node(tables: &str) -> (Scripts, NodeFiles) {
        let scripts = Scripts::new(&[
            ("iptables-legacy-save", "cat saved"),
            ("iptables-legacy-restore", "echo \"$*\" > arguments; cat > script"),
        ]);
        fs::write(scripts.0.path().join("saved"), SAVED).unwrap();
        fs::write(scripts.0.path().join("ip_tables_names"), tables).unwrap();
        let node = NodeFiles::at(scripts.0.path(), scripts.programs());
        (scripts, node)
    }

    #[test]
    fn the_output_of_iptables_save_becomes_a_script_that_removes_the_chains_of_kube_proxy() {
        let (scripts, node) = node("filter\nnat\n");
        let removed = remove(&node, Family::Ip, Table::Nat).unwrap().unwrap();
        assert_eq!(
            removed.to_string(),
            "4 chains and 1 rules that jump to them from table ip nat of iptables-legacy"
        );
        assert_eq!(scripts.file("script").as_deref(), Some(SCRIPT));
        assert_eq!(scripts.file("arguments").as_deref(), Some("--noflush -w 5\n"));
        assert!(has_services(&node, Family::Ip) && !has_services(&node, Family::Ip6));
    }

    #[test]
    fn a_table_is_unchanged_if_it_is_not_loaded_or_the_programs_are_missing() {
        let (scripts, node) = node("filter\n");
        assert_eq!(remove(&node, Family::Ip, Table::Nat).unwrap(), None);
        assert_eq!(remove(&node, Family::Ip6, Table::Nat).unwrap(), None);
        assert_eq!(scripts.file("script"), None);
        let bare = Scripts::new(&[]);
        fs::write(bare.0.path().join("ip_tables_names"), "nat\n").unwrap();
        let bare = NodeFiles::at(bare.0.path(), bare.programs());
        assert_eq!(remove(&bare, Family::Ip, Table::Nat).unwrap(), None);
    }

    #[test]
    fn a_table_without_leftovers_is_not_written() {
        let text = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j CNI-HOSTPORT-DNAT\nCOMMIT\n";
        assert!(LegacyRemoval::of(Table::Nat, text).is_none());
    }
}
