//! Metrics of the connections that the kernel counts, by service port, read for each scrape.
//!
//! Absent where nothing is counted, and before the tables exist.

use std::net::SocketAddr;
use std::sync::Arc;

use nft::Counter;
use nft::family::Family;
use parking_lot::Mutex;

use super::metric::{Described, MetricKind, Sample, SeriesLabels, labels};

/// Counts of one service port.
#[derive(Clone, Debug)]
pub struct ServicePortCount {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Name of the port; may be empty.
    pub port: String,
    /// All connections to the service port, and the bytes of their first packets.
    pub counted: Counter,
    /// Connections to each endpoint, if they are counted.
    pub endpoints: Vec<(SocketAddr, Counter)>,
}

/// Counts of all service ports.
#[derive(Clone, Debug, Default)]
pub struct ServiceCounts {
    /// The service ports with series of their own.
    pub ports: Vec<ServicePortCount>,
    /// All connections, including those to other service ports, and the bytes of their first packets.
    pub total: Counter,
}

/// Packets that the rules refused for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCount {
    /// Family of the table.
    pub family: Family,
    /// Word of the reason.
    pub reason: &'static str,
    /// Packets.
    pub packets: u64,
}

/// Packets of a service that were answered with RST because their endpoint is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetCount {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the service.
    pub service: String,
    /// Packets.
    pub packets: u64,
}

/// All counts of one read.
#[derive(Debug, Default)]
pub struct KernelCounts {
    /// Counts of service ports; `None` if they cannot be read.
    pub services: Option<ServiceCounts>,
    /// Connections in the flowtable; `None` if their number is unknown or there is no flowtable.
    pub offloaded: Option<u64>,
    /// Refused packets; none if they cannot be read.
    pub refused: Vec<RefusedCount>,
    /// Packets that were answered with RST; none if they cannot be read.
    pub resets: Vec<ResetCount>,
}

/// The last counts.
#[derive(Clone, Debug, Default)]
pub struct CountStore(Arc<Mutex<KernelCounts>>);

/// Returns one number of a count.
type Number = fn(Counter) -> u64;

/// Suffix of the metric name, its description, and the number.
const NUMBERS: [(&str, &str, Number); 2] = [
    ("connections", "New connections", |it| it.packets),
    ("first_packet_bytes", "Bytes of the first packets of new connections", |it| it.bytes),
];

impl CountStore {
    /// Replaces the counts.
    pub fn set(&self, counts: KernelCounts) {
        *self.0.lock() = counts;
    }

    /// Returns the metrics.
    pub(super) fn metrics(&self) -> Vec<Described> {
        let KernelCounts { services, offloaded, refused, resets } = &*self.0.lock();
        let mut all: Vec<_> = offloaded.map(of_offloaded).into_iter().collect();
        if !refused.is_empty() {
            all.extend(of_refused(refused));
        }
        if !resets.is_empty() {
            all.push(of_resets(resets));
        }
        let Some(ServiceCounts { ports, total }) = services else { return all };
        for (name, help, number) in NUMBERS {
            let sample = |counted: Counter| Sample::Whole(number(counted).into());
            let of_port = |port: &ServicePortCount| (port.labels(), sample(port.counted));
            let of_endpoints = |port: &ServicePortCount| -> Vec<_> {
                let all = port.endpoints.iter().map(|(endpoint, counted)| {
                    let endpoint = [("endpoint", endpoint.to_string())];
                    (port.labels().into_iter().chain(endpoint).collect(), sample(*counted))
                });
                all.collect()
            };
            let help_of_all = format!("{help} to all service ports, as the kernel counts them");
            let help_of_ports = format!("{help} to the service port, of the busiest ones");
            let help_of_endpoints = format!("{help} to the endpoint, of the busiest service ports");
            all.extend([
                counter(&format!("counted_{name}"), help_of_all, vec![(vec![], sample(*total))]),
                counter(
                    &format!("service_{name}"),
                    help_of_ports,
                    ports.iter().map(of_port).collect(),
                ),
                counter(
                    &format!("endpoint_{name}"),
                    help_of_endpoints,
                    ports.iter().flat_map(of_endpoints).collect(),
                ),
            ]);
        }
        all
    }
}

fn counter(name: &str, help: String, series: Vec<(SeriesLabels, Sample)>) -> Described {
    Described { name: format!("deltaproxy_{name}"), help, kind: MetricKind::Counter, series }
}

fn of_offloaded(count: u64) -> Described {
    let help = "Connections to services whose packets the flowtable forwards".to_owned();
    let series = vec![(SeriesLabels::new(), Sample::Whole(count.into()))];
    Described { kind: MetricKind::Gauge, ..counter("offloaded_connections", help, series) }
}

fn of_refused(refused: &[RefusedCount]) -> [Described; 2] {
    let all = refused.iter().map(|count| {
        let labels = labels(["ip_family", "reason"], [count.family.name(), count.reason]);
        (labels, Sample::Whole(count.packets.into()))
    });
    let help = "Packets that the rules rejected or dropped, by reason".to_owned();
    let all = counter("refused_packets", help, all.collect());
    let protocols = [("localhost_udp", "UDP"), ("localhost_sctp", "SCTP")];
    let at_localhost = protocols.map(|(reason, protocol)| {
        let packets =
            refused.iter().find(|count| count.reason == reason).map_or(0, |it| it.packets);
        let labels = labels(["ip_family", "protocol"], [Family::Ip6.name(), protocol]);
        (labels, Sample::Whole(packets.into()))
    });
    let at_localhost = Described {
        name: "kubeproxy_nftables_localhost_nodeport_rejected_packets".to_owned(),
        help: "Packets to node ports at loopback addresses that the rules rejected".to_owned(),
        kind: MetricKind::Counter,
        series: at_localhost.into(),
    };
    [all, at_localhost]
}

fn of_resets(resets: &[ResetCount]) -> Described {
    let series = resets.iter().map(|ResetCount { namespace, service, packets }| {
        let labels = labels(["namespace", "service"], [&**namespace, service]);
        (labels, Sample::Whole((*packets).into()))
    });
    let help = "Packets answered with RST because their endpoint is gone, by service".to_owned();
    counter("service_resets", help, series.collect())
}

impl ServicePortCount {
    fn labels(&self) -> SeriesLabels {
        let values = [&*self.namespace, &self.service, &self.port];
        labels(["namespace", "service", "port"], values)
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::tests::has;
    use super::*;
    use crate::observe::Observe;

    #[test]
    fn refused_packets_have_a_series_for_each_family_and_reason() {
        let counts = CountStore::default();
        let observe = Observe::with_counts(counts.clone());
        assert!(!observe.metrics_text().contains("refused_packets"));
        let count = |family, packets| RefusedCount { family, reason: "no_endpoint", packets };
        let refused = vec![count(Family::Ip, 3), count(Family::Ip6, 0)];
        counts.set(KernelCounts { refused, ..KernelCounts::default() });
        let name = "deltaproxy_refused_packets";
        has(
            &observe,
            &[
                &format!("# TYPE {name} counter"),
                &format!("{name}_total{{ip_family=\"IPv4\",reason=\"no_endpoint\"}} 3"),
                &format!("{name}_total{{ip_family=\"IPv6\",reason=\"no_endpoint\"}} 0"),
            ],
        );
    }

    #[test]
    fn rejected_packets_at_localhost_have_kube_proxys_name_too() {
        let counts = CountStore::default();
        let observe = Observe::with_counts(counts.clone());
        let name = "kubeproxy_nftables_localhost_nodeport_rejected_packets";
        assert!(!observe.metrics_text().contains(name), "no table was read yet");
        let count = |reason, packets| RefusedCount { family: Family::Ip6, reason, packets };
        let refused = vec![count("no_endpoint", 1), count("localhost_udp", 7)];
        counts.set(KernelCounts { refused, ..KernelCounts::default() });
        has(
            &observe,
            &[
                &format!("{name}_total{{ip_family=\"IPv6\",protocol=\"UDP\"}} 7"),
                &format!("{name}_total{{ip_family=\"IPv6\",protocol=\"SCTP\"}} 0"),
            ],
        );
    }

    #[test]
    fn service_ports_and_endpoints_have_series_with_their_names() {
        let counts = CountStore::default();
        let observe = Observe::with_counts(counts.clone());
        assert!(!observe.metrics_text().contains("first_packet"));
        let counted = |connections| Counter { packets: connections, bytes: 60 * connections };
        let port = ServicePortCount {
            namespace: "default".to_owned(),
            service: "web".to_owned(),
            port: "http".to_owned(),
            counted: counted(3),
            endpoints: vec![("[fd00::1]:80".parse().unwrap(), counted(2))],
        };
        let services = Some(ServiceCounts { ports: vec![port], total: counted(5) });
        counts.set(KernelCounts { services, ..KernelCounts::default() });
        let labels = "namespace=\"default\",service=\"web\",port=\"http\"";
        has(
            &observe,
            &[
                "# TYPE deltaproxy_counted_connections counter",
                "deltaproxy_counted_connections_total 5",
                "deltaproxy_counted_first_packet_bytes_total 300",
                &format!("deltaproxy_service_connections_total{{{labels}}} 3"),
                &format!("deltaproxy_service_first_packet_bytes_total{{{labels}}} 180"),
                &format!(
                    "deltaproxy_endpoint_connections_total{{{labels},endpoint=\"[fd00::1]:80\"}} 2"
                ),
            ],
        );
        counts.set(KernelCounts::default());
        assert!(!observe.metrics_text().contains("first_packet"));
    }
}
