//! Splitting and decoding any dump ends without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nft::netlink::message::{Meaning, Messages};
use nft::{
    AnySet, Chain, DecodedSet, Flowtable, ListedRule, Object, RuleContext, SetContents, Table,
    TableFamily, TraceEvent, WholeTable, decode_any_elements, decode_elements,
};

/// Length of `struct nfgenmsg`, which precedes the attributes of each object.
const OBJECT_HEADER: usize = 4;

/// `NFT_MSG_TRACE` of nf_tables.
const TRACE: u16 = 10 << 8 | 17;

fuzz_target!(|datagram: &[u8]| {
    let mut left = datagram.len();
    for message in Messages::new(datagram) {
        let Ok(message) = message else { continue };
        assert!(message.payload.len() < left, "every message takes bytes of the datagram");
        left -= message.payload.len() + 1;
        if let Ok(Meaning::Object(_)) = message.meaning() {
            decode(message.payload.get(OBJECT_HEADER..).unwrap_or_default());
        }
    }
    decode(datagram);
});

/// Formats the rule with a set that has these attributes and elements.
fn print(attributes: &[u8]) {
    let set = AnySet::decode(attributes).unwrap_or_default();
    let mut contents = SetContents { set, ..SetContents::default() };
    let _ = decode_any_elements(attributes, |element| contents.elements.push(element));
    let Ok(rule) = ListedRule::decode(attributes) else { return };
    if let Some(lookup) = rule.expressions.iter().find_map(|expression| match expression {
        nft::Expression::Lookup(lookup) => Some(lookup),
        _ => None,
    }) {
        contents.set.name = lookup.set.clone();
    }
    for family in TableFamily::ALL {
        let context = RuleContext { family, sets: &[contents.clone()], interfaces: &|_| None };
        let _ = (context.text(&rule.expressions), context.elements(&contents));
        let without_sets = RuleContext { family, sets: &[], interfaces: &|_| None };
        let _ = without_sets.text(&rule.expressions);
    }
}

/// Decodes attributes as every kind of object, and formats the results.
fn decode(attributes: &[u8]) {
    let _ = Table::decode(TableFamily::Ip, attributes).map(|table| table.to_string());
    let _ = Chain::decode(attributes).map(|chain| chain.text(TableFamily::Netdev).to_string());
    let _ = DecodedSet::decode(attributes).map(|decoded| decoded.set.map(|set| set.to_string()));
    let _ = Flowtable::decode(attributes).map(|flowtable| flowtable.to_string());
    let _ = (Object::decode(attributes), AnySet::decode(attributes));
    let _ = WholeTable::decode_header(TableFamily::Inet, attributes);
    print(attributes);
    let _ = TraceEvent::decode(TRACE, attributes);
    let _ = decode_elements(attributes, |view| {
        let _ = view.to_element();
    });
}
