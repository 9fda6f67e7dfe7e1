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

use netlink_tests::{Namespace, nft_available, nft_can_load};
use nft::kernel::Nftables;
use nft::netlink::message::{Meaning, Messages};
use nft::netlink::socket::{Socket, Wait};
use nft::request::Request;
use nft::{AnySet, Expression, ListedRule, RuleContext, SetContents, TableFamily, TableRef};

const NETLINK_NETFILTER: isize = 12;
const TABLE: &str = "corpus";
const CHAIN: &str = "rules";

/// Returns the family with a keyword.
fn family(word: &str) -> Option<TableFamily> {
    TableFamily::ALL.into_iter().find(|family| family.keyword() == word)
}

/// Rules that are loaded into one chain.
struct Script {
    family: TableFamily,
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

/// Rules of one transaction: without root's rights a socket takes no larger batch.
const BATCH: usize = 200;

impl Script {
    /// The table with the rules whose indices are in `kept`, one a line from `FIRST_LINE` on.
    fn text(&self, kept: &[usize]) -> String {
        let family = self.family;
        let text = format!(
            "add table {family} {TABLE}; delete table {family} {TABLE}; table {family} {TABLE} {{ {} \
             chain other {{ }}; chain {CHAIN} {{ {} }}; }}\n",
            self.objects.replace('\n', " "),
            self.hook
        );
        text + &self.rule_lines(kept)
    }

    fn rule_lines(&self, kept: &[usize]) -> String {
        let family = self.family;
        let line =
            |index: &usize| format!("add rule {family} {TABLE} {CHAIN} {}\n", self.rules[*index]);
        kept.iter().map(line).collect()
    }

    /// Loads every rule that nft and the kernel accept.
    fn load(&self, namespace: &Namespace, outcome: &mut Outcome) {
        let kept = self.accepted(namespace, (0..self.rules.len()).collect(), outcome);
        for (i, part) in kept.chunks(BATCH).enumerate() {
            let script = if i == 0 { self.text(part) } else { self.rule_lines(part) };
            let output = nft(namespace, &["-f", "-"], &script);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", self.source);
        }
        outcome.loaded = kept.len();
    }

    /// Returns those of the rules that are accepted together.
    fn accepted(
        &self,
        namespace: &Namespace,
        mut kept: Vec<usize>,
        outcome: &mut Outcome,
    ) -> Vec<usize> {
        loop {
            let output = nft(namespace, &["-f", "-"], &self.text(&kept));
            if output.status.success() {
                return kept;
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            let refused = refused_lines(&errors);
            if refused.is_empty() {
                break;
            }
            // The kernel's errors can be about another rule of the batch than nft names, so each is
            // tried alone.
            let before = kept.len();
            let mut index = 0;
            kept.retain(|rule| {
                let reason = refused.get(&index).filter(|_| !self.loads_alone(namespace, *rule));
                outcome.refused.extend(reason.map(|why| (self.rules[*rule].clone(), why.clone())));
                index += 1;
                reason.is_none()
            });
            if kept.len() == before {
                break;
            }
        }
        // nft ended without naming a line, such as by a signal.
        if let [rule] = kept[..] {
            outcome.refused.push((self.rules[rule].clone(), "nft fails".to_owned()));
            return Vec::new();
        }
        let second = kept.split_off(kept.len() / 2);
        let mut accepted = self.accepted(namespace, kept, outcome);
        accepted.extend(self.accepted(namespace, second, outcome));
        accepted
    }

    fn loads_alone(&self, namespace: &Namespace, rule: usize) -> bool {
        nft(namespace, &["-f", "-"], &self.text(&[rule])).status.success()
    }

    /// Loads the rules, and compares what is read with what the kernel and `nft` list.
    fn run(&self, namespace: &Namespace) -> Outcome {
        let mut outcome = Outcome::default();
        self.load(namespace, &mut outcome);
        let read = compare(namespace, &TableRef::new(self.family, TABLE), &mut outcome);
        assert_eq!(read, outcome.loaded, "{}: rules read", self.source);
        outcome
    }
}

/// Compares what is read of a table with what the kernel and `nft` list. Returns the number of
/// rules.
fn compare(namespace: &Namespace, table: &TableRef, outcome: &mut Outcome) -> usize {
    let texts = listed_texts(namespace, table);
    let (rules, sets) = namespace.run(|| (listed_rules(table), sets(table)));
    let interfaces = |index: u32| (index == 1).then(|| "lo".to_owned());
    let context = RuleContext { family: table.family, sets: &sets, interfaces: &interfaces };
    for (bytes, rule) in &rules {
        let text = &texts[&rule.handle];
        if rule.encode().unwrap() != *bytes {
            outcome.other_bytes.push(text.clone());
        }
        for expression in &rule.expressions {
            if let Expression::Unknown(unknown) = expression {
                outcome.unknown.push(unknown.name.clone());
            }
        }
        let mut ours = context.text(&rule.expressions);
        if let Some(comment) = rule.comment() {
            let comment = format!("comment \"{comment}\"");
            ours = if ours.is_empty() { comment } else { format!("{ours} {comment}") };
        }
        if ours != *text {
            outcome.other_text.push((text.clone(), ours));
        }
    }
    rules.len()
}

/// Returns the lines that nft names in its errors, from that of the first rule on, with the reasons.
fn refused_lines(errors: &str) -> HashMap<usize, String> {
    const FIRST_LINE: usize = 2;
    let mut refused = HashMap::new();
    for line in errors.lines() {
        let mut parts = line.splitn(4, ':').skip(1);
        let number = parts.next().and_then(|number| number.parse::<usize>().ok());
        if let (Some(number @ FIRST_LINE..), Some(_), Some(why)) =
            (number, parts.next(), parts.next())
        {
            refused.entry(number - FIRST_LINE).or_insert_with(|| why.trim().to_owned());
        }
    }
    refused
}

/// Returns the rules of a table as printed by `nft list`, by handle.
fn listed_texts(namespace: &Namespace, table: &TableRef) -> HashMap<u64, String> {
    let output = nft(namespace, &["-a", "list", "table", table.family.keyword(), &table.name], "");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut texts = HashMap::new();
    let mut begun = String::new();
    for line in text.lines().filter(|line| line.starts_with("\t\t")) {
        begun.push_str(line.trim_start_matches('\t'));
        let Some((rule, Ok(handle))) =
            begun.rsplit_once(" # handle ").map(|(rule, handle)| (rule, handle.parse()))
        else {
            // nft breaks long sets into lines, of which all but the last end so.
            if begun.ends_with([',', '{']) {
                begun.push(' ')
            } else {
                begun.clear()
            }
            continue;
        };
        let rule = rule.split_whitespace().collect::<Vec<_>>().join(" ");
        texts.insert(handle, rule);
        begun.clear();
    }
    texts
}

/// Returns the rules of a table as listed by the kernel.
fn listed_rules(table: &TableRef) -> Vec<(Vec<u8>, ListedRule)> {
    let request = Request::Rules(table);
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
fn sets(table: &TableRef) -> Vec<SetContents> {
    let mut kernel = Nftables::open().unwrap();
    kernel.set_contents(table, AnySet::is_anonymous).unwrap()
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
    set ports { type inet_service; };
    set addresses { type ipv4_addr; flags interval; };
    set pairs { type ipv4_addr . inet_service; };
    set flows { type ipv4_addr . inet_service; size 128; flags dynamic,timeout; };
    map verdicts { type ipv4_addr : verdict; };
    map services { type ipv4_addr . inet_service : verdict; };
    map marks { type ipv4_addr : mark; };
    map targets { type inet_service : ipv4_addr; };
    counter web { }; quota much { 10 mbytes; }; limit few { rate 10/second; };";

fn sample() -> Vec<Script> {
    let script = |word: &str, files: &[&str], hook: &str| Script {
        family: family(word).unwrap(),
        source: format!("{word}: {}", files.join(", ")),
        hook: hook.to_owned(),
        objects: OBJECTS.to_owned(),
        rules: rules_of(files),
    };
    vec![
        script("ip", &["any", "ip", "more"], ""),
        script("ip6", &["any", "ip6"], ""),
        script("inet", &["any", "ip", "ip6", "inet", "more"], ""),
        script("arp", &["any", "arp"], ""),
        script("bridge", &["any", "bridge"], ""),
        script(
            "netdev",
            &["any", "bridge", "netdev"],
            "type filter hook ingress device \"lo\" priority 0;",
        ),
        script("inet", &["nat-inet"], "type nat hook prerouting priority 0;"),
        script("ip6", &["nat-ip6"], "type nat hook prerouting priority 0;"),
        script("ip", &["nat", "nat-more"], "type nat hook prerouting priority 0;"),
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
        let sum = sums.entry(script.family.keyword()).or_default();
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

/// Texts of nft that differ from ours, with the reasons.
fn known_differences() -> HashMap<String, String> {
    let text = fs::read_to_string(fixtures().join("known-differences")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = |line: &str| {
        let (text, reason) = line.split_once('\t').expect("a text, a tab and the reason");
        (text.to_owned(), reason.to_owned())
    };
    lines.map(line).collect()
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
    let known = known_differences();
    let (found, other): (Vec<_>, Vec<_>) =
        differences.iter().partition(|(text, _)| known.contains_key(text));
    assert!(other.is_empty(), "{other:#?}");
    let found: HashSet<_> = found.iter().map(|(text, _)| text).collect();
    let mended: Vec<_> = known.keys().filter(|text| !found.contains(text)).collect();
    assert!(mended.is_empty(), "no differences any more: {mended:#?}");
}

#[test]
fn the_rules_of_tables_of_other_programs_and_ours_are_decoded_encoded_and_printed() {
    if !nft_can_load() {
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut total = 0;
    for file in [
        "nft_versions/others.nft",
        "fixtures/kube-proxy-first-sync.nft",
        "fixtures/layout-1.nft",
        "fixtures/layout-2-examples.nft",
        "fixtures/layout-3.nft",
    ] {
        let namespace = Namespace::new();
        let output = nft(&namespace, &["-f", "-"], &fs::read_to_string(tests.join(file)).unwrap());
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        let mut outcome = Outcome::default();
        let tables = String::from_utf8(nft(&namespace, &["list", "tables"], "").stdout).unwrap();
        for table in tables.lines() {
            let words: Vec<_> = table.split(' ').collect();
            let table = TableRef::new(family(words[1]).unwrap(), words[2].to_owned());
            total += compare(&namespace, &table, &mut outcome);
        }
        assert!(outcome.other_bytes.is_empty(), "{file}: {:#?}", outcome.other_bytes);
        assert!(outcome.other_text.is_empty(), "{file}: {:#?}", outcome.other_text);
    }
    println!("{total} rules of programs");
}

/// The directory of nft's tests, `tests/py`, that `make test-corpus` fetches.
const CORPUS: &str = "DELTAPROXY_NFT_CORPUS";

/// Per cent of the rules of ip, ip6 and inet whose text must be that of nft.
const SAME_TEXT: usize = 95;

#[test]
fn the_rules_of_nfts_own_tests_are_decoded_encoded_and_printed() {
    let Some(corpus) = std::env::var_os(CORPUS) else {
        println!("nft's tests are left out: run make test-corpus");
        return;
    };
    let scripts = corpus_scripts(Path::new(&corpus));
    assert!(!scripts.is_empty(), "no rules in {}", corpus.display());
    let (sums, differences) = run(&scripts);
    let known = known_differences();
    for (text, ours) in differences.iter().filter(|(text, _)| !known.contains_key(text)) {
        println!("nft:  {text}\nours: {ours}");
    }
    for (family, sum) in &sums {
        assert_eq!(sum.other_bytes, 0, "{family}");
    }
    for family in ["ip", "ip6", "inet"] {
        let sum = &sums[family];
        let same = (sum.loaded - sum.other_text) * 100;
        assert!(same >= sum.loaded * SAME_TEXT, "{family}: {} other texts", sum.other_text);
    }
}

/// Reads nft's tests: for each file, a script for each family that it names.
fn corpus_scripts(corpus: &Path) -> Vec<Script> {
    let mut scripts = Vec::new();
    for folder in ["any", "arp", "bridge", "inet", "ip", "ip6", "netdev"] {
        let Ok(files) = fs::read_dir(corpus.join(folder)) else { continue };
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "t"));
        files.sort();
        for file in files {
            let source = format!("{folder}/{}", file.file_name().unwrap().display());
            scripts.extend(parse_corpus(&source, &fs::read_to_string(&file).unwrap()));
        }
    }
    scripts
}

/// Reads a file of nft's tests. Lines are `:chain;hook`, `*family;table;chain`, `!set type;ok`,
/// `%object type;ok`, `?set elements`, `- disabled rule`, or `rule;ok;listed as`.
fn parse_corpus(source: &str, text: &str) -> Vec<Script> {
    let (mut chains, mut tables) = (HashMap::new(), Vec::new());
    let (mut objects, mut rules) = (String::new(), Vec::new());
    for line in text.lines() {
        let line = line.trim();
        let fields: Vec<_> = line.split(';').collect();
        let mark = line.chars().next().unwrap_or('#');
        let rest = fields[0].get(1..).unwrap_or_default();
        match (mark, &fields[..]) {
            ('#' | '-' | '?', _) => {}
            (':', [_, hook, ..]) => drop(chains.insert(rest.to_owned(), format!("{hook};"))),
            ('*', [_, _, names, ..]) => {
                let first = names.split(',').next().unwrap_or_default();
                tables.push((rest.to_owned(), first.to_owned()));
            }
            ('!', [.., "ok"]) => objects.push_str(&corpus_set(rest)),
            ('%', [.., "ok"]) => {
                let rest = line[1..].trim_end_matches(";ok");
                objects.push_str(&corpus_object(rest));
            }
            (_, [rule, "ok", ..]) => rules.push((*rule).to_owned()),
            _ => {}
        }
    }
    let script = |(word, chain): &(String, String)| {
        let family = family(word)?;
        let hook = chains.get(chain).cloned().unwrap_or_default();
        let (source, objects, rules) = (source.to_owned(), objects.clone(), rules.clone());
        Some(Script { family, source, hook, objects, rules })
    };
    tables.iter().filter_map(script).collect()
}

/// `set1 type ipv4_addr timeout 1m` as in a table of nft(8).
fn corpus_set(text: &str) -> String {
    let Some((name, rest)) = text.split_once(' ') else { return String::new() };
    let mut rest = rest.to_owned();
    for word in [" flags ", " timeout ", " size "] {
        rest = rest.replace(word, &format!(";{word}"));
    }
    let kind = if rest.contains(" : ") { "map" } else { "set" };
    format!("{kind} {name} {{ {rest}; }}; ")
}

/// `cnt type counter` as in a table of nft(8).
fn corpus_object(text: &str) -> String {
    let Some((name, rest)) = text.split_once(" type ") else { return String::new() };
    let words =
        ["ct helper", "ct timeout", "ct expectation", "counter", "quota", "limit", "synproxy"];
    let Some(kind) = words.into_iter().find(|word| rest.starts_with(word)) else {
        return String::new();
    };
    let body = rest[kind.len()..].trim().trim_start_matches('{').trim_end_matches('}');
    format!("{kind} {name} {{ {body} }}; ")
}

#[test]
fn a_file_of_nfts_tests_is_read() {
    let text = ":in;type filter hook input priority 0\n*ip;test;in\n*arp;test;in,out\n\n\
                !s type ipv4_addr timeout 60s;ok\n%c type counter;ok\n?s 10.0.0.1;ok\n\
                # no rule;ok\n- disabled;ok\ntcp dport 22;ok;tcp dport 22\ntcp dport x;fail\n";
    let scripts = parse_corpus("ip/x.t", text);
    let families: Vec<_> = scripts.iter().map(|script| script.family.keyword()).collect();
    assert_eq!(families, ["ip", "arp"]);
    assert_eq!(scripts[0].rules, ["tcp dport 22"]);
    assert_eq!(scripts[0].hook, "type filter hook input priority 0;");
    let objects = "set s { type ipv4_addr; timeout 60s; }; counter c {  }; ";
    assert_eq!(scripts[0].objects, objects);
}
