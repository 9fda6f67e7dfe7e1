//! Rules of nft(8), of a sample of ours and of nft's own tests: each is loaded with `nft`, read back
//! and decoded. Encoding gives the bytes that the kernel listed, and the text is that of `nft list`.
//!
//! `make test-corpus` fetches nft's tests. Differences that are known are in
//! `fixtures/rules/known-differences`, one pattern a line with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use netlink_tests::{Namespace, nft_available};
use nft::kernel::Nftables;
use nft::netlink::message::{Meaning, Messages};
use nft::netlink::socket::{Socket, Wait};
use nft::request::{AnyRequest, Request};
use nft::{AnySet, Expression, ListedRule, RuleContext, SetContents};

const NETLINK_NETFILTER: isize = 12;
const TABLE: &str = "corpus";
const CHAIN: &str = "rules";

/// A family: keyword, `NFPROTO_*`.
const FAMILIES: [(&str, u8); 6] =
    [("ip", 2), ("ip6", 10), ("inet", 1), ("arp", 3), ("bridge", 7), ("netdev", 5)];

/// Rules that are loaded into one chain.
struct Script {
    family: (&'static str, u8),
    /// Files, for messages.
    source: String,
    /// The base chain's type and hook, in nft(8)'s words.
    hook: String,
    /// Sets, maps and objects, in nft(8)'s words.
    objects: String,
    rules: Vec<String>,
}

/// Results for one script.
#[derive(Default)]
struct Outcome {
    /// Rules that nft or the kernel refuses, with the reason.
    refused: Vec<(String, String)>,
    /// Rules with other bytes.
    other_bytes: Vec<String>,
    /// Names of expressions that are not known.
    unknown: Vec<String>,
    /// Other texts: that of nft, and ours.
    other_text: Vec<(String, String)>,
    loaded: usize,
}

fn nft(namespace: &Namespace, arguments: &[&str], input: &str) -> Output {
    namespace.run(|| {
        let mut nft = Command::new("nft");
        let nft = nft.args(arguments).env("TZ", "UTC");
        let pipes = nft.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("nft runs");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    })
}

impl Script {
    /// The table with the rules whose indices are in `kept`, one a line from `FIRST_LINE` on.
    fn text(&self, kept: &[usize]) -> String {
        let family = self.family.0;
        let mut text = format!(
            "add table {family} {TABLE}; delete table {family} {TABLE}; table {family} {TABLE} {{ {} \
             chain other {{ }}; chain {CHAIN} {{ {} }}; }}\n",
            self.objects.replace('\n', " "),
            self.hook
        );
        for index in kept {
            writeln!(text, "add rule {family} {TABLE} {CHAIN} {}", self.rules[*index]).unwrap();
        }
        text
    }

    /// Loads every rule that nft and the kernel accept.
    fn load(&self, namespace: &Namespace, outcome: &mut Outcome) {
        const FIRST_LINE: usize = 2;
        let mut kept: Vec<_> = (0..self.rules.len()).collect();
        loop {
            let output = nft(namespace, &["-f", "-"], &self.text(&kept));
            if output.status.success() {
                outcome.loaded = kept.len();
                return;
            }
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let mut refused = HashMap::new();
            for line in errors.lines() {
                let mut parts = line.splitn(4, ':');
                let (Some(_), Some(number), Some(_)) = (parts.next(), parts.next(), parts.next())
                else {
                    continue;
                };
                if let (Ok(number), Some(reason)) = (number.parse::<usize>(), parts.next())
                    && number >= FIRST_LINE
                {
                    refused.entry(number - FIRST_LINE).or_insert_with(|| reason.trim().to_owned());
                }
            }
            if refused.is_empty() {
                // nft stopped without naming a line: each rule is tried alone.
                assert!(kept.len() > 1 || !errors.is_empty());
                kept = self.load_each(namespace, &kept, outcome);
                outcome.loaded = kept.len();
                let output = nft(namespace, &["-f", "-"], &self.text(&kept));
                assert!(output.status.success(), "{}: {errors}", self.source);
                return;
            }
            let mut index = 0;
            kept.retain(|rule| {
                let reason = refused.get(&index);
                outcome.refused.extend(reason.map(|why| (self.rules[*rule].clone(), why.clone())));
                index += 1;
                reason.is_none()
            });
        }
    }

    fn load_each(
        &self,
        namespace: &Namespace,
        rules: &[usize],
        outcome: &mut Outcome,
    ) -> Vec<usize> {
        let mut kept = Vec::new();
        for rule in rules {
            let output = nft(namespace, &["-f", "-"], &self.text(&[*rule]));
            if output.status.success() {
                kept.push(*rule);
            } else {
                let errors = String::from_utf8_lossy(&output.stderr);
                let reason = errors.lines().next().unwrap_or("ended by a signal").to_owned();
                outcome.refused.push((self.rules[*rule].clone(), reason));
            }
        }
        kept
    }

    /// Loads the rules, and compares what is read with what the kernel and `nft` list.
    fn run(&self, namespace: &Namespace) -> Outcome {
        let mut outcome = Outcome::default();
        self.load(namespace, &mut outcome);
        let texts = listed_texts(namespace, self.family.0);
        let (rules, sets) = namespace.run(|| (listed_rules(self.family.1), sets(self.family.1)));
        let interfaces = |index: u32| (index == 1).then(|| "lo".to_owned());
        let context = RuleContext { family: self.family.1, sets: &sets, interfaces: &interfaces };
        let rules: Vec<_> =
            rules.iter().filter(|(_, rule)| rule.table == TABLE && rule.chain == CHAIN).collect();
        assert_eq!(rules.len(), outcome.loaded, "{}: rules read", self.source);
        for (bytes, rule) in rules {
            let text = &texts[&rule.handle];
            if rule.encode().unwrap() != *bytes {
                outcome.other_bytes.push(text.clone());
            }
            let unknown = rule.expressions.iter().filter_map(|expression| match expression {
                Expression::Unknown(unknown) => Some(unknown.name.clone()),
                _ => None,
            });
            outcome.unknown.extend(unknown);
            let mut ours = context.text(&rule.expressions);
            if let Some(comment) = rule.comment() {
                ours = format!("{ours} comment \"{comment}\"");
            }
            if ours != *text {
                outcome.other_text.push((text.clone(), ours));
            }
        }
        outcome
    }
}

/// Returns the rules as printed by `nft list`, by handle.
fn listed_texts(namespace: &Namespace, family: &str) -> HashMap<u64, String> {
    let output = nft(namespace, &["-a", "list", "chain", family, TABLE, CHAIN], "");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut texts = HashMap::new();
    let mut begun = String::new();
    for line in text.lines() {
        begun.push_str(line.strip_prefix("\t\t").unwrap_or(line).trim_start_matches('\t'));
        if let Some((rule, handle)) = begun.rsplit_once(" # handle ")
            && let Ok(handle) = handle.parse()
        {
            // nft breaks long sets into lines.
            let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
            texts.insert(handle, rule);
        } else if line.starts_with("\t\t") && !line.contains("policy") {
            begun.push(' ');
            continue;
        }
        begun.clear();
    }
    texts
}

/// Returns the rules of a family as listed by the kernel.
fn listed_rules(family: u8) -> Vec<(Vec<u8>, ListedRule)> {
    let request = Request::Any(family, AnyRequest::Rules(TABLE));
    let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
    socket.send(&request.encode(1).unwrap()).unwrap();
    let mut rules = Vec::new();
    loop {
        for message in Messages::new(socket.receive(Wait::Limited).unwrap()) {
            let message = message.unwrap();
            match message.meaning().unwrap() {
                Meaning::Object(object) => {
                    let attributes = request.attributes(object.kind, object.payload);
                    let attributes = attributes.unwrap().to_vec();
                    let rule = ListedRule::decode(&attributes).unwrap();
                    rules.push((attributes, rule));
                }
                Meaning::Done(_) | Meaning::Acknowledgement(_) => return rules,
                Meaning::Nothing | Meaning::Overrun => {}
            }
        }
    }
}

/// Returns the sets of the table, with the elements of those without a name.
fn sets(family: u8) -> Vec<SetContents> {
    const ANONYMOUS: u32 = 1;
    let mut kernel = Nftables::open().unwrap();
    let sets = kernel.any_sets(family, TABLE).unwrap();
    let elements = |kernel: &mut Nftables, set: &AnySet| match set.flags & ANONYMOUS {
        0 => Vec::new(),
        _ => kernel.any_elements(family, (TABLE, &set.name), usize::MAX).unwrap().unwrap(),
    };
    sets.into_iter()
        .map(|set| SetContents { elements: elements(&mut kernel, &set), set })
        .collect()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rules")
}

/// Rules of the sample's files.
fn rules_of(files: &[&str]) -> Vec<String> {
    let read = |file: &&str| fs::read_to_string(fixtures().join(format!("{file}.rules"))).unwrap();
    let text: String = files.iter().map(read).collect();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

const OBJECTS: &str = "
    set clients { type mark; size 128; flags dynamic,timeout; };
    set clients4 { type ipv4_addr; size 128; flags dynamic,timeout; };
    map addresses4 { type ipv4_addr : ipv4_addr; size 128; flags dynamic,timeout; };
    counter web { }; quota much { 10 mbytes; }; limit few { rate 10/second; };";

fn sample() -> Vec<Script> {
    let script = |family: &str, files: &[&str], hook: &str| Script {
        family: *FAMILIES.iter().find(|(name, _)| *name == family).unwrap(),
        source: format!("{family}: {}", files.join(", ")),
        hook: hook.to_owned(),
        objects: OBJECTS.to_owned(),
        rules: rules_of(files),
    };
    vec![
        script("ip", &["any", "ip"], ""),
        script("ip6", &["any", "ip6"], ""),
        script("inet", &["any", "ip", "ip6", "inet"], ""),
        script("arp", &["any", "arp"], ""),
        script("bridge", &["any", "bridge"], ""),
        script(
            "netdev",
            &["any", "bridge", "netdev"],
            "type filter hook ingress device \"lo\" priority 0;",
        ),
        script("ip", &["nat"], "type nat hook prerouting priority 0;"),
        script("ip", &["nat-post"], "type nat hook postrouting priority 0;"),
    ]
}

/// Sums by family.
#[derive(Default)]
struct Sums {
    loaded: usize,
    refused: usize,
    other_bytes: usize,
    unknown: usize,
    other_text: usize,
}

/// Runs the scripts, and writes a report where `CORPUS_REPORT` says.
fn run(scripts: &[Script]) -> (BTreeMap<&'static str, Sums>, Vec<(String, String)>) {
    let namespace = Namespace::new();
    let mut sums: BTreeMap<_, Sums> = BTreeMap::new();
    let (mut differences, mut report) = (Vec::new(), String::new());
    for script in scripts {
        let outcome = script.run(&namespace);
        let sum = sums.entry(script.family.0).or_default();
        sum.loaded += outcome.loaded;
        sum.refused += outcome.refused.len();
        sum.other_bytes += outcome.other_bytes.len();
        sum.unknown += outcome.unknown.len();
        sum.other_text += outcome.other_text.len();
        writeln!(report, "## {}", script.source).unwrap();
        for (rule, why) in &outcome.refused {
            writeln!(report, "refused: {rule}: {why}").unwrap();
        }
        for rule in &outcome.other_bytes {
            writeln!(report, "other bytes: {rule}").unwrap();
        }
        for (theirs, ours) in &outcome.other_text {
            writeln!(report, "nft:  {theirs}\nours: {ours}").unwrap();
        }
        differences.extend(outcome.other_text);
    }
    for (family, sum) in &sums {
        let same = |other: usize| percent(sum.loaded - other, sum.loaded);
        let line = format!(
            "{family}: {} rules ({} refused), {} % same bytes, {} % same text, {} unknown expressions",
            sum.loaded,
            sum.refused,
            same(sum.other_bytes),
            same(sum.other_text),
            sum.unknown
        );
        println!("{line}");
        writeln!(report, "{line}").unwrap();
    }
    if let Some(path) = std::env::var_os("CORPUS_REPORT") {
        fs::write(path, report).unwrap();
    }
    (sums, differences)
}

/// Per cent with one digit after the point.
fn percent(part: usize, whole: usize) -> String {
    let thousandths = (part * 1000).checked_div(whole).unwrap_or(1000);
    format!("{}.{}", thousandths / 10, thousandths % 10)
}

#[test]
fn the_sample_is_decoded_encoded_and_printed_as_in_nft() {
    if !nft_available() {
        return;
    }
    let (sums, differences) = run(&sample());
    for (family, sum) in &sums {
        assert_eq!((sum.other_bytes, sum.unknown), (0, 0), "{family}");
    }
    let distinct: HashSet<_> = differences.iter().collect();
    assert!(distinct.is_empty(), "{distinct:#?}");
}
