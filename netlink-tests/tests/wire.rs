//! Every nftables object once as netlink bytes and once as text for `nft`: both make the same
//! ruleset, `nft` can load what it lists, and reading back gives what was sent.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use netlink_tests::Namespace;
use nft::netlink::message::{self, Header, Meaning, Messages};
use nft::netlink::socket::{Socket, Wait};
use nft::{
    Acknowledge, Batch, Chain, DecodedSet, Element, Family, ListedRule, Location, MessageKind,
    Operation, Table, Transaction, Value, decode_elements, locate, table_name,
};

#[path = "wire/everything.rs"]
mod everything;

use everything::{chains, frontend, rules, ruleset, set, sets, table};

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

const NETLINK_NETFILTER: isize = 12;

/// The kernel's answers to a batch.
#[derive(Debug)]
struct Refusal {
    errno: i32,
    operation: Option<usize>,
    first_element: usize,
    location: Location,
}

fn send(batch: &Batch, end: u32) -> Result<(), Refusal> {
    let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
    socket.send(&batch.bytes).unwrap();
    loop {
        let datagram = socket.receive(Wait::Limited).unwrap();
        for message in Messages::new(datagram) {
            let message = message.unwrap();
            let Meaning::Acknowledgement(answer) = message.meaning().unwrap() else { continue };
            if answer.errno == 0 {
                assert_eq!(message.sequence, end);
                return Ok(());
            }
            let origin = batch.origin(message.sequence);
            let location = origin.zip(answer.offset).map(|(origin, offset)| {
                locate(batch.message(origin), usize::try_from(offset).unwrap())
            });
            return Err(Refusal {
                errno: answer.errno,
                operation: origin.map(|origin| origin.operation),
                first_element: origin.map_or(0, |origin| origin.first_element),
                location: location.unwrap_or_default(),
            });
        }
    }
}

fn commit(namespace: &Namespace, transaction: &Transaction) -> Result<(), Refusal> {
    let batch = transaction.encode(7, Acknowledge::LastMessage).unwrap();
    namespace.run(|| send(&batch, batch.last_sequence() - 1))
}

fn nft(namespace: &Namespace, args: &[&str], input: &str) -> String {
    namespace.run(|| {
        let mut child = Command::new("nft")
            .args(args)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nft runs: apt-get install nftables");
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nft {args:?}: {errors}\n{input}");
        String::from_utf8(output.stdout).unwrap()
    })
}

fn list(namespace: &Namespace) -> String {
    ordered(&nft(namespace, &["list", "ruleset"], ""))
}

/// The listing with the elements of each set in one line and in order: their order in the kernel
/// is random.
fn ordered(listing: &str) -> String {
    let mut out = String::new();
    let mut rest = listing;
    while let Some(start) = rest.find("elements = {") {
        let end = start + rest[start..].find('}').unwrap();
        let mut elements: Vec<String> = rest[start + 12..end]
            .split(',')
            .map(|element| {
                let words: Vec<_> = element.split_whitespace().collect();
                without_expiry(&words).join(" ")
            })
            .collect();
        elements.sort();
        out.push_str(&rest[..start]);
        out.push_str(&format!("elements = {{ {} ", elements.join(", ")));
        rest = &rest[end..];
    }
    out + rest
}

fn without_expiry<'a>(words: &[&'a str]) -> Vec<&'a str> {
    match words.iter().position(|word| *word == "expires") {
        Some(at) => [&words[..at], &words[at + 2..]].concat(),
        None => words.to_vec(),
    }
}

/// The payloads of all messages of a dump of this kind, after `struct nfgenmsg`.
fn dump(namespace: &Namespace, kind: u16, family: Family, attributes: &[u8]) -> Vec<Vec<u8>> {
    let mut request = Vec::new();
    let header =
        Header { kind: 10 << 8 | kind, flags: message::REQUEST | message::DUMP, sequence: 1 };
    let body = [&[family.number(), 0, 0, 0], attributes].concat();
    message::append(&mut request, header, &body, |_| {}).unwrap();
    namespace.run(|| {
        let mut socket = Socket::open(NETLINK_NETFILTER).unwrap();
        socket.send(&request).unwrap();
        let mut objects = Vec::new();
        loop {
            for message in Messages::new(socket.receive(Wait::Limited).unwrap()) {
                match message.unwrap().meaning().unwrap() {
                    Meaning::Object(object) => objects.push(object.payload[4..].to_vec()),
                    Meaning::Done(_) => return objects,
                    other @ (Meaning::Acknowledgement(_) | Meaning::Nothing | Meaning::Overrun) => {
                        panic!("{other:?}")
                    }
                }
            }
        }
    })
}

// --- tests

#[test]
fn bytes_and_text_make_the_same_ruleset_and_nft_loads_its_own_listing() {
    for family in FAMILIES {
        let transaction = ruleset(family);
        let (bytes, text, again) = (Namespace::new(), Namespace::new(), Namespace::new());
        commit(&bytes, &transaction).unwrap();
        nft(&text, &["-f", "-"], &transaction.to_string());
        let listing = nft(&bytes, &["list", "ruleset"], "");
        similar(&ordered(&listing), &list(&text));
        nft(&again, &["-f", "-"], &listing);
        similar(&list(&again), &ordered(&listing));
    }
}

#[track_caller]
fn similar(left: &str, right: &str) {
    for (l, r) in left.lines().zip(right.lines()) {
        assert_eq!(l, r, "in\n{left}\n{right}");
    }
    assert_eq!(left.lines().count(), right.lines().count());
}

#[test]
fn every_statement_is_listed_as_it_is_displayed() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();
        let listing = nft(&namespace, &["list", "ruleset"], "");
        for rule in rules(family) {
            let text = rule.text(family).to_string();
            assert!(listing.lines().any(|line| line.trim() == text), "{text}\n{listing}");
        }
    }
}

#[test]
fn chains_rules_and_sets_are_read_back_as_they_were_sent() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();

        let tables = dump(&namespace, 1, family, &[]);
        let Operation::AddTable(header) = &ruleset(family).operations[0] else { panic!() };
        assert_eq!(table_name(&tables[0]).unwrap(), "kube-proxy");
        assert_eq!(Table::decode(family.into(), &tables[0]).as_ref(), Ok(header));

        let read: Vec<_> =
            dump(&namespace, 4, family, &[]).iter().map(|m| Chain::decode(m).unwrap()).collect();
        assert_eq!(read, chains());

        let read = dump(&namespace, 7, family, &[]);
        let read: Vec<_> = read.iter().map(|m| ListedRule::decode(m).unwrap()).collect();
        for chain in chains() {
            let sent = rules(family).into_iter().filter(|rule| rule.chain == chain.name);
            let sent: Vec<_> = sent.collect();
            let read = read.iter().filter(|rule| rule.chain == chain.name);
            let read: Vec<_> = read.collect();
            assert_eq!(read.len(), sent.len(), "{}", chain.name);
            for (sent, read) in sent.iter().zip(read) {
                assert!(sent.is_listed_as(read), "{sent:?}\n{read:?}");
            }
        }

        let read = dump(&namespace, 10, family, &[]);
        let read: Vec<_> = read.iter().map(|m| DecodedSet::decode(m).unwrap().set).collect();
        let sent: Vec<_> = sets(family).into_iter().map(|(set, _)| Some(set)).collect();
        assert_eq!(read, sent);
    }
}

#[test]
fn elements_are_read_back_as_they_were_sent() {
    for family in FAMILIES {
        let namespace = Namespace::new();
        commit(&namespace, &ruleset(family)).unwrap();
        for (set, mut sent) in sets(family) {
            let mut attributes = Vec::new();
            let mut w = nft::netlink::attr::AttrWriter::new(&mut attributes);
            w.str(1, "kube-proxy");
            w.str(2, &set.name);
            w.finish().unwrap();
            let mut read = Vec::new();
            for message in dump(&namespace, 13, family, &attributes) {
                decode_elements(&message, |view| read.push(view.to_element().unwrap())).unwrap();
            }
            read.sort_by_key(|element| element.key.clone());
            sent.sort_by_key(|element| element.key.clone());
            assert_eq!(read, sent, "{}", set.name);
        }
    }
}

#[test]
fn everything_can_be_removed_piece_by_piece_as_bytes_and_as_text() {
    for family in FAMILIES {
        let here = || table(family);
        let mut operations = Vec::new();
        for chain in chains() {
            operations.push(Operation::FlushChain(here(), chain.name));
        }
        for (i, (set, elements)) in sets(family).into_iter().enumerate() {
            let set = Arc::new(set);
            // nft's word for a map is `flush map`; the operation is displayed as `flush set`.
            if !set.data.is_empty() || (i % 2 == 0 && !elements.is_empty()) {
                operations.push(Operation::DeleteElements(
                    here(),
                    Arc::clone(&set),
                    elements.into(),
                ));
            } else {
                operations.push(Operation::FlushSet(here(), set.name.clone()));
            }
            operations.push(Operation::DeleteSet(here(), set.name.clone()));
        }
        for chain in chains() {
            operations.push(Operation::DeleteChain(here(), chain.name));
        }
        let (bytes, text) = (Namespace::new(), Namespace::new());
        let removal = Transaction { operations };
        for namespace in [&bytes, &text] {
            commit(namespace, &ruleset(family)).unwrap();
        }
        commit(&bytes, &removal).unwrap();
        nft(&text, &["-f", "-"], &removal.to_string());
        let empty = format!("table {family} kube-proxy {{\n\tcomment \"rules of a test\"\n}}\n");
        assert_eq!((list(&bytes), list(&text)), (empty.clone(), empty));

        let delete = Transaction { operations: vec![Operation::DeleteTable(here())] };
        commit(&bytes, &delete).unwrap();
        nft(&text, &["-f", "-"], &delete.to_string());
        assert_eq!((list(&bytes), list(&text)), (String::new(), String::new()));
    }
}

#[test]
fn a_refused_element_is_named_by_its_place_in_the_list() {
    let namespace = Namespace::new();
    let family = Family::Ip;
    commit(&namespace, &ruleset(family)).unwrap();
    let (set, _) = sets(family).remove(0);
    let absent =
        |count: u32| (0..count).map(|n| Element::new(Value::new().ip(n.to_be_bytes().into())));
    let absent: Vec<Element> = absent(10_000).collect();
    let add = Operation::AddElements(table(family), Arc::new(set.clone()), absent.clone().into());
    let mut removed = absent;
    removed.push(Element::new(Value::new().ip([192, 0, 2, 1].into())));
    let remove = Operation::DeleteElements(table(family), Arc::new(set), removed.into());
    let refusal = commit(&namespace, &Transaction { operations: vec![add, remove] }).unwrap_err();
    assert_eq!((refusal.errno, refusal.operation), (2, Some(1)));
    let element = refusal.location.element.unwrap();
    assert_eq!(refusal.first_element + element, 10_000, "{refusal:?}");
}

#[test]
fn a_refused_name_is_named_by_its_attribute() {
    let namespace = Namespace::new();
    let family = Family::Ip6;
    commit(&namespace, &ruleset(family)).unwrap();
    let delete = Operation::DeleteSet(table(family), "no-such-set".into());
    let refusal = commit(&namespace, &Transaction { operations: vec![delete] }).unwrap_err();
    assert_eq!((refusal.errno, refusal.operation), (2, Some(0)));
    assert_eq!(refusal.location.to_string(), "name");
}

#[test]
fn long_lists_of_elements_arrive_completely() {
    let namespace = Namespace::new();
    let family = Family::Ip;
    let set = Arc::new(set("many", frontend(family)));
    let elements: Vec<_> = (0..3_000u32)
        .map(|n| Element {
            comment: Some("x".repeat(n as usize % 140).into()),
            ..Element::new(Value::new().ip(n.to_be_bytes().into()).proto(6).port(80))
        })
        .collect();
    let header = Table::new(family, "t");
    let here = header.reference();
    let transaction = Transaction {
        operations: vec![
            Operation::AddTable(header),
            Operation::AddSet(here.clone(), Arc::clone(&set)),
            Operation::AddElements(here.clone(), Arc::clone(&set), elements.clone().into()),
        ],
    };
    commit(&namespace, &transaction).unwrap();
    assert_eq!(nft(&namespace, &["list", "ruleset"], "").matches("tcp").count(), 3_000);

    let removal =
        Transaction { operations: vec![Operation::DeleteElements(here, set, elements.into())] };
    let batch = removal.encode(1, Acknowledge::LastMessage).unwrap();
    assert!(batch.counts()[&MessageKind::DelSetElem] > 1);
    commit(&namespace, &removal).unwrap();
    assert_eq!(nft(&namespace, &["list", "ruleset"], "").matches("tcp").count(), 0);
}
