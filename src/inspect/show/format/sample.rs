//! Sample services for tests of output.

use std::io;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64};
use std::time::Duration;

use conntrack::{Connection, Stage};
use engine::model::{Protocol, Target};
use engine::ruleset::number::{Flags, ListId, Route, SizeClass, Timeout};
use engine::ruleset::{Frontend, Refusal, Unserved};
use nft::Counter;
use nft::family::Family;

use crate::show::client_connections::ClientConnections;
use crate::show::clients::Clients;
use crate::show::connections::Connections;
use crate::show::select::Selector;
use crate::show::services::{EndpointList, Entry, Services};
use crate::show::view::View;

/// Some services with connections.
pub(in crate::show) struct SampleServices {
    services: Services,
    connections: Connections,
    clients: Clients,
    places: Vec<usize>,
}

/// Returns the output of `write`.
pub(in crate::show) fn written(write: impl Fn(&mut dyn io::Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const NOW: Duration = Duration::from_secs(1_000_000);

fn target(text: &str) -> Target {
    let socket: SocketAddr = text.parse().unwrap();
    Target { address: socket.ip(), port: NonZeroU16::new(socket.port()).unwrap() }
}

fn at(text: &str) -> Frontend {
    let Target { address, port } = target(text);
    Frontend::Address { address, protocol: Protocol::Tcp, port }
}

pub(in crate::show) fn connection(
    id: u32,
    to: &str,
    by: &str,
    stage: Stage,
    age: u64,
) -> Connection {
    let started = NonZeroU64::new((NOW.as_secs() - age) * 1_000_000_000);
    let (sent_to, answered_by) = (target(to), target(by));
    Connection {
        protocol: Protocol::Tcp,
        client: Some(target(&format!("192.0.2.7:{}", 40_000 + id))),
        sent_to,
        answered_by,
        stage,
        is_assured: true,
        id,
        is_offloaded: false,
        started,
        bytes: Some(120),
    }
}

impl SampleServices {
    /// Returns `default/web` with a cluster IP and a node port of policy `Local`, `default/sticky`
    /// with affinity, and `default/empty` without endpoints.
    pub(in crate::show) fn new() -> Self {
        let (all, local, session) =
            (ListId::plain(0x100), ListId::plain(0x101), ListId::session(1));
        let [a, b, c] = ["10.244.1.5:8080", "10.244.2.7:8080", "10.244.2.8:8080"].map(target);
        let mut services = Services::default();
        let timeout = Timeout::new(1).unwrap();
        services.timeouts[0].insert(timeout, 10_800);
        let list = |targets: &[Target]| EndpointList {
            targets: targets.to_vec(),
            slots: vec![1; targets.len()],
            ..EndpointList::default()
        };
        services.lists[0].insert(all, list(&[a, b]));
        services.lists[0].insert(local, list(&[a]));
        services.lists[0].insert(session, EndpointList { ids: vec![7], ..list(&[c]) });
        services.add_local(a, Protocol::Tcp);
        let route =
            |list, timeout, count, flags| Route::new(list, timeout, SizeClass::of(count), flags);
        let to_all = route(all, None, 2, Flags::default());
        let entry = |label: &str, frontend| Entry { label: label.into(), ..Entry::new(frontend) };
        let (family, port) = (Family::Ip, NonZeroU16::new(30_080).unwrap());
        services.finish(vec![
            Entry {
                route: Some(route(session, Some(timeout), 1, Flags::default())),
                is_cluster_ip: true,
                ..entry("default/sticky", at("10.96.0.20:80"))
            },
            Entry {
                route: Some(to_all),
                is_cluster_ip: true,
                ..entry("default/web:http", at("10.96.0.10:80"))
            },
            Entry {
                route: Some(route(local, None, 1, Flags { masquerade: false, local: true })),
                internal: Some(to_all),
                ..entry(
                    "default/web:http",
                    Frontend::NodePort { family, protocol: Protocol::Tcp, port },
                )
            },
            Entry {
                unserved: Some(Unserved::Refuse),
                is_cluster_ip: true,
                ..entry("default/empty", at("10.96.0.30:80"))
            },
        ]);
        let mut clients = Clients::default();
        clients.add(Family::Ip, session, 7);
        let (vip, former) = ("10.96.0.10:80", "10.244.1.6:8080");
        let first = [connection(1, vip, "10.244.1.5:8080", Stage::Active, 7_500)];
        let first = Connections::of_list(&services, &first, None);
        let connections = [
            connection(1, vip, "10.244.1.5:8080", Stage::Active, 7_500),
            connection(2, vip, "10.244.1.5:8080", Stage::Active, 12),
            connection(3, vip, "10.244.2.7:8080", Stage::New, 1),
            connection(4, vip, "10.244.2.7:8080", Stage::Ended, 70),
            connection(5, vip, former, Stage::Active, 430),
            connection(6, "192.168.50.2:30080", "10.244.1.5:8080", Stage::Active, 3),
            connection(7, "10.96.0.20:80", "10.244.2.8:8080", Stage::Active, 3),
            connection(8, "10.96.0.99:80", "10.244.2.8:8080", Stage::Active, 3),
        ];
        let connections = Connections::of_list(&services, &connections, Some(&first));
        let places = (0..services.len()).collect();
        Self { services, connections, clients, places }
    }

    /// Returns a view of all services.
    pub(in crate::show) fn view(&self) -> View<'_> {
        let Self { services, connections, clients, places } = self;
        View { services, connections: Some(connections), clients, places, now: NOW }
    }

    /// Adds counters of frontends and endpoints, with 1, 2, 3 connections.
    pub(super) fn counted(mut self) -> Self {
        let counters = || (1..).map(|packets| Counter { packets, bytes: 60 * packets });
        let mut entries = std::mem::take(&mut self.services.entries);
        let routed = entries.iter_mut().filter(|entry| entry.route.is_some());
        routed.zip(counters()).for_each(|(entry, counter)| entry.counted = Some(counter));
        self.services.finish(entries);
        for list in self.services.lists.iter_mut().flat_map(|lists| lists.values_mut()) {
            list.counted = counters().take(list.targets.len()).collect();
        }
        self
    }

    /// Lets nodes hand packets to the address of `default/web:http` to each other.
    pub(super) fn direct(mut self) -> Self {
        let of_web = |entry: &&mut Entry| entry.frontend == at("10.96.0.10:80");
        self.services.entries.iter_mut().filter(of_web).for_each(|entry| entry.is_direct = true);
        self
    }

    /// Adds refused packets: 12 to `default/empty`, 3 to the node port.
    pub(super) fn refusing(mut self) -> Self {
        let counter = |packets| Counter { packets, bytes: 60 * packets };
        self.services.refused = [
            ((Family::Ip, Refusal::NoEndpoint), counter(12)),
            ((Family::Ip, Refusal::UnallocatedAddress), counter(2)),
            ((Family::Ip6, Refusal::NoEndpoint), counter(3)),
        ]
        .into();
        for entry in &mut self.services.entries {
            entry.refused = match (entry.frontend, entry.unserved) {
                (Frontend::NodePort { .. }, _) => vec![(Refusal::NoLocalEndpoint, counter(3))],
                (_, Some(_)) => vec![(Refusal::NoEndpoint, counter(12))],
                (_, None) => Vec::new(),
            };
        }
        self
    }

    /// Makes `default/empty` a load balancer address with these source ranges.
    pub(super) fn with_source_ranges(mut self, ranges: &[&str]) -> Self {
        let range = |text: &&str| text.parse().unwrap();
        let mut entries = std::mem::take(&mut self.services.entries);
        for entry in entries.iter_mut().filter(|entry| &*entry.label == "default/empty") {
            entry.is_cluster_ip = false;
            entry.source_ranges = Some(ranges.iter().map(range).collect());
        }
        self.services.finish(entries);
        self
    }

    /// Limits NodePorts of IPv4 to these addresses.
    pub(in crate::show) fn with_node_port_addresses(mut self, addresses: &[&str]) -> Self {
        self.services.restrict_node_ports(Family::Ip);
        addresses.iter().for_each(|it| self.services.add_node_port_ip(it.parse().unwrap()));
        self
    }

    /// Replaces the connections by one of the node port to a former endpoint.
    pub(in crate::show) fn with_node_port_connection(mut self) -> Self {
        let only = connection(1, "192.168.50.2:30080", "10.244.1.6:8080", Stage::Active, 3);
        self.connections = Connections::of_list(&self.services, &[only], None);
        self
    }

    /// Selects services by a text.
    pub(in crate::show) fn of(mut self, text: &str) -> Self {
        self.places = text.parse::<Selector>().unwrap().select(&self.services);
        self
    }

    /// Lists two connections of `default/web`.
    pub(super) fn client_connections(&self) -> ClientConnections {
        let to = "10.96.0.10:80";
        let connections = [
            connection(2, to, "10.244.1.6:8080", Stage::Ended, 430),
            connection(1, to, "10.244.1.5:8080", Stage::Active, 7_500),
        ];
        ClientConnections::of_list(&self.services, &self.places, &connections)
    }

    /// Returns a view without connections.
    pub(in crate::show) fn without_connections(&self) -> View<'_> {
        View { connections: None, ..self.view() }
    }
}
