//! `nft --json list ruleset`. It merges the two ends of a range, so elements of interval sets are not
//! counted.

use netlink_tests::Host;
use serde_json::Value;

use super::{Chain, Family, Summary};

/// Reads a table of a host.
///
/// # Panics
/// If nft prints something else than a ruleset.
#[must_use]
#[track_caller]
pub fn read(host: &Host, family: Family, table: &str) -> Summary {
    let listing: Value = serde_json::from_str(&host.nft("--json list ruleset")).expect("JSON");
    let family = match family {
        Family::Ip => "ip",
        Family::Ip6 => "ip6",
    };
    let mut summary = Summary::default();
    for object in listing["nftables"].as_array().expect("a list of objects") {
        let (kind, object) = object.as_object().and_then(|it| it.iter().next()).expect("an object");
        if object["family"] != family || object["table"] != table {
            continue;
        }
        match kind.as_str() {
            "chain" => {
                summary.chains.insert(text(&object["name"]), chain(object));
            }
            "rule" => {
                let chain = summary.chains.entry(text(&object["chain"])).or_default();
                chain.rules = chain.rules.map(|rules| rules + 1);
            }
            "set" | "map" => {
                summary.sets.insert(text(&object["name"]), elements(object));
            }
            _ => {}
        }
    }
    summary
}

fn chain(object: &Value) -> Chain {
    let number = |hook| HOOKS.iter().position(|name| hook == *name).expect("a hook of IP");
    let hook = object.get("hook").map(|hook| {
        let priority = object["prio"].as_i64().expect("a number");
        (number(hook) as u32, i32::try_from(priority).expect("32 bits"))
    });
    Chain { hook, rules: Some(0) }
}

fn elements(set: &Value) -> Option<usize> {
    let flags = set["flags"].as_array();
    let is_interval = flags.is_some_and(|flags| flags.iter().any(|flag| flag == "interval"));
    let elements = set["elem"].as_array().map_or(0, Vec::len);
    (!is_interval).then_some(elements)
}

fn text(value: &Value) -> String {
    value.as_str().expect("a name").to_owned()
}

/// By their numbers, `NF_INET_*`.
const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
