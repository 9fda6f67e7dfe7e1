//! The table direct-return of a test, without a daemon: a rule and an element of each kind.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use engine::direct::ruleset::{
    Destination, DirectElement, DirectRoute, DirectSettings, NodeListId, NodeNumber, TABLE, table,
    table_comment,
};
use engine::model::Protocol;
use engine::ruleset::base::Base;
use nft::{Operation, Table, TableFamily, Transaction};
use test_hosts::{Host, Net};

/// The devices of the table.
pub const DEVICES: [&str; 2] = ["eth0", "eth1"];

/// The settings of the table.
#[must_use]
pub fn settings() -> DirectSettings {
    DirectSettings {
        devices: DEVICES.map(Into::into).to_vec(),
        tunnel: None,
        remember: Duration::from_secs(300),
        connections: 262_144,
        node_ports: true,
        hash_seed: 1,
    }
}

/// The elements of the table; `device` is the index of `eth1`.
///
/// # Panics
/// When an element is invalid.
#[must_use]
pub fn elements(device: u32) -> Vec<DirectElement> {
    let destination = |address: &str, protocol, port| {
        let port = NonZeroU16::new(port).expect("a valid value");
        Destination { address: address.parse().expect("a valid value"), protocol, port }
    };
    let web = destination("192.0.2.1", Protocol::Tcp, 80);
    let dns = destination("2001:db8::1", Protocol::Udp, 53);
    let route = |bits| DirectRoute::from_bits(bits).expect("a valid value");
    let node = NodeNumber::of(3).expect("a valid value");
    vec![
        DirectElement::HardwareAddress([2, 0, 0, 0, 0, 3]),
        DirectElement::Address(web.address),
        DirectElement::Address(dns.address),
        DirectElement::Frontend(web, route(0x0001_0078)),
        DirectElement::Frontend(dns, route(0x0002_003f)),
        DirectElement::ErrorFrontend(web, route(0x0001_0078)),
        DirectElement::ErrorFrontend(dns, route(0x0002_003f)),
        DirectElement::Slot(NodeListId::new(0x100).expect("a valid value"), 250, node),
        DirectElement::NodeAddress(node, "192.0.2.3".parse().expect("a valid value")),
        DirectElement::NodeAddress(node, "2001:db8::3".parse().expect("a valid value")),
        DirectElement::NodeDevice(node, device),
    ]
}

/// A node with [`DEVICES`].
#[must_use]
#[track_caller]
pub fn node() -> Net {
    let net = Net::new();
    net.node().add_pair(DEVICES[0], DEVICES[1]);
    net
}

/// The index of a device.
///
/// # Panics
/// Without the device.
#[must_use]
pub fn index_of(host: &Host, device: &str) -> u32 {
    host.run(|| nix::net::if_::if_nametoindex(device)).expect("a valid value")
}

/// The table as one transaction.
#[must_use]
pub fn transaction(base: &Base, elements: &[DirectElement]) -> Transaction {
    let comment = Some(table_comment());
    let header = Table { comment, ..Table::new(TableFamily::Netdev, TABLE) };
    let mut operations = vec![Operation::AddTable(header)];
    let sets = base.sets.iter().map(|set| Operation::AddSet(table(), Arc::clone(set)));
    operations.extend(sets);
    let chains = base.chains.iter().map(|spec| Operation::AddChain(table(), spec.chain.clone()));
    operations.extend(chains);
    let rules = base.chains.iter().flat_map(|spec| &*spec.rules);
    operations.extend(rules.map(|rule| Operation::AddRule(table(), rule.clone())));
    operations.extend(elements.iter().map(|element| add(base, element)));
    Transaction { operations }
}

fn add(base: &Base, element: &DirectElement) -> Operation {
    let set = base.sets.iter().find(|set| set.name == element.set().name());
    let set = Arc::clone(set.expect("a set of the table"));
    Operation::AddElements(table(), set, [element.to_element()].into())
}
