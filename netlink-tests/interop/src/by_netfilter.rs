//! netlink-packet-netfilter 0.4. It panics on damaged messages, which the kernel does not send.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Hook, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute,
    SetElementList, SetElementMessage, SetFlags, SetMessage,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::{Chain, Family, Summary};

/// Reads a table of the calling thread's namespace.
///
/// # Panics
/// If the kernel refuses a dump or sends something that cannot be parsed.
#[must_use]
#[track_caller]
pub fn read(family: Family, table: &str) -> Summary {
    let mut summary = Summary::default();
    for object in dump(family, NfTablesMessage::GetChain(ChainMessage { attributes: Vec::new() })) {
        if let NfTablesMessage::NewChain(ChainMessage { attributes }) = object {
            add_chain(&attributes, table, &mut summary);
        }
    }
    for object in dump(family, NfTablesMessage::GetRule(RuleMessage { attributes: Vec::new() })) {
        if let NfTablesMessage::NewRule(RuleMessage { attributes }) = object {
            add_rule(&attributes, table, &mut summary);
        }
    }
    for object in dump(family, NfTablesMessage::GetSet(SetMessage { attributes: Vec::new() })) {
        if let NfTablesMessage::NewSet(SetMessage { attributes }) = object {
            add_set(family, &attributes, table, &mut summary);
        }
    }
    summary
}

fn add_chain(attributes: &[ChainAttribute], table: &str, summary: &mut Summary) {
    if !attributes.contains(&ChainAttribute::Table(table.to_owned())) {
        return;
    }
    let mut chain = Chain { hook: None, rules: Some(0) };
    let mut name = String::new();
    for attribute in attributes {
        match attribute {
            ChainAttribute::Name(text) => name.clone_from(text),
            ChainAttribute::Hook(hook) => chain.hook = Some(number_and_priority(hook)),
            _ => {}
        }
    }
    summary.chains.insert(name, chain);
}

fn number_and_priority(hook: &[Hook]) -> (u32, i32) {
    let (mut number, mut priority) = (None, None);
    for attribute in hook {
        match attribute {
            Hook::Number(hook) => number = Some((*hook).into()),
            // Unsigned, as in rustables.
            Hook::Priority(value) => priority = Some(value.cast_signed()),
            _ => {}
        }
    }
    number.zip(priority).expect("a base chain has both")
}

fn add_rule(attributes: &[RuleAttribute], table: &str, summary: &mut Summary) {
    if !attributes.contains(&RuleAttribute::Table(table.to_owned())) {
        return;
    }
    for attribute in attributes {
        if let RuleAttribute::Chain(chain) = attribute {
            let chain = summary.chains.get_mut(chain).expect("a rule of a listed chain");
            chain.rules = chain.rules.map(|rules| rules + 1);
        }
    }
}

fn add_set(family: Family, attributes: &[SetAttribute], table: &str, summary: &mut Summary) {
    if !attributes.contains(&SetAttribute::Table(table.to_owned())) {
        return;
    }
    let mut name = String::new();
    for attribute in attributes {
        match attribute {
            SetAttribute::Name(text) => name.clone_from(text),
            SetAttribute::Flags(flags) if flags.contains(SetFlags::Anonymous) => return,
            _ => {}
        }
    }
    let of_set = vec![SetElementList::Table(table.to_owned()), SetElementList::Set(name.clone())];
    let request = NfTablesMessage::GetSetElement(SetElementMessage { attributes: of_set });
    summary.sets.insert(name, Some(dump(family, request).iter().map(count).sum()));
}

fn count(message: &NfTablesMessage) -> usize {
    let NfTablesMessage::NewSetElement(SetElementMessage { attributes }) = message else {
        return 0;
    };
    let lists = attributes.iter().map(|attribute| match attribute {
        SetElementList::Elements(list) => list.len(),
        _ => 0,
    });
    lists.sum()
}

/// All objects that the kernel lists.
fn dump(family: Family, request: NfTablesMessage) -> Vec<NfTablesMessage> {
    let mut socket = Socket::new(NETLINK_NETFILTER).expect("a netfilter socket");
    socket.bind_auto().expect("it gets a port");
    socket.connect(&SocketAddr::new(0, 0)).expect("the kernel listens");
    socket.send(&encode(family, request), 0).expect("the kernel takes the request");
    let mut objects = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full().expect("the kernel answers");
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<NetfilterMessage>::deserialize(rest).expect("a message");
            match message.payload {
                NetlinkPayload::Done(_) => return objects,
                NetlinkPayload::InnerMessage(message) => match message.inner {
                    NetfilterMessageInner::NfTables(object) => objects.push(object),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
            let length = message.header.length as usize;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn encode(family: Family, request: NfTablesMessage) -> Vec<u8> {
    let family = match family {
        Family::Ip => NetfilterProtoFamily::IPv4,
        Family::Ip6 => NetfilterProtoFamily::IPv6,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let payload = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), request);
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(payload));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
