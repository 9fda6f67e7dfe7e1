//! All options, about in the order of k8s.io/kube-proxy/config/v1alpha1/types.go of Kubernetes 1.36; our
//! own are last.
//!
//! An option is set after those before it: a default may depend on them.

use std::num::NonZeroU16;

use engine::routing::local::DetectLocalMode;
use engine::routing::{InterfaceName, LocalDetection};
use serde_json::Value;

use super::kind::OptionKind;
use super::setting::{OptionScope, Setting};
use super::values::{
    count, counters, direct_mode, each, listen, number, optional, parsed, put, put_part, ranges,
    switch, text, time,
};
use crate::config::fields::{
    API_VERSION, BRIDGE_INTERFACE, CLUSTER_CIDR, DETECT_LOCAL_MODE, INTERFACE_NAME_PREFIX,
    IPVS_SCHEDULER, KIND, OWN_SCHEDULER, STRICT_MODE, detection_field,
};
use crate::config::log::{LogFormat, of_verbosity};
use crate::config::scheduler::ChosenScheduler;
use crate::config::{
    Config, Source, direct_return, duration, ended_connections, lc_settings, listen_address,
    node_readiness,
};

#[rustfmt::skip]
pub(in crate::config) static SETTINGS: &[Setting] = &[
    Setting::unwritten("apiVersion", OptionKind::Text, |_, _| Ok(())).default(API_VERSION)
        .about("Version of the API"),
    Setting::unwritten("kind", OptionKind::Text, |_, _| Ok(())).default(KIND)
        .about("Type of the API"),
    Setting::new("featureGates.AllowServiceExternalIPs", OptionKind::Gate,
        |to, value| put(&mut to.config.routing.external_addresses.external_ips, Ok(value != false)),
        |config| config.routing.external_addresses.external_ips.into())
        .default("true").flag("feature-gates", "GATES").kube_proxy_sets("feature-gates", "featureGates")
        .about("Serve external IPs of services; AllowServiceExternalIPs=false ignores them. Gates that are not in this table have no effect"),
    Setting::boolean("featureGates.KubeProxyNFTablesLocalhostNodePorts",
        |config| &mut config.routing.node_port_addresses.admits_localhost)
        .default("true")
        .about("Serve NodePorts at the loopback addresses that nodePortAddresses names; false closes them. In kube-proxy it is false unless set"),
    Setting::new("clientConnection.kubeconfig", OptionKind::Text,
        |to, value| put(&mut to.kubeconfig, Ok(Some(text(value).into()))),
        |config| match &config.source {
            Source::Kubeconfig(path) | Source::Server { kubeconfig: Some(path), .. } => path.display().to_string().into(),
            Source::Manifests(_) | Source::InCluster | Source::Server { .. } => "".into(),
        })
        .flag("kubeconfig", "FILE").scope(OptionScope::Declared).kube_proxy("kubeconfig")
        .about("File with address and credentials of the API server; without it, the pod's service account is used"),
    Setting::new("clientConnection.acceptContentTypes", OptionKind::Text,
        |to, value| put(&mut to.config.content_types.accepted, optional(value)),
        |config| config.content_types.accepted.as_ref().map_or("".into(), |it| it.to_string().into()))
        .about("Media types of objects from the API server, instead of contentType; the first that deltaproxy reads decides"),
    Setting::new("clientConnection.contentType", OptionKind::Text,
        |to, value| put(&mut to.config.content_types.content_type, optional(value).map(Option::unwrap_or_default)),
        |config| config.content_types.content_type.to_string().into())
        .default("application/vnd.kubernetes.protobuf").kube_proxy("kube-api-content-type")
        .about("Media type of objects from the API server. application/vnd.kubernetes.protobuf: protobuf, or JSON where the server has no other; application/json: JSON alone"),
    Setting::ignored("clientConnection.qps", OptionKind::Number).default("5").kube_proxy("kube-api-qps")
        .about("Requests a second to the API server; a few watches need no limit"),
    Setting::ignored("clientConnection.burst", OptionKind::Whole).default("10").kube_proxy("kube-api-burst")
        .about("Requests at once to the API server"),
    Setting::new("logging.format", OptionKind::Text,
        |to, value| {
            let expected = |expected| vec![format!("is {value}; expected {expected}")];
            put(&mut to.log.log_format, LogFormat::parse(text(value)).map(Some).map_err(expected))
        },
        |config| config.log.fields().1.into())
        .default("text").flag("log-format", "FORMAT").scope(OptionScope::Declared).kube_proxy("logging-format")
        .about("Format of the log: text, or json for one object a line. A flag replaces the field"),
    Setting::ignored("logging.flushFrequency", OptionKind::Any),
    Setting::new("logging.verbosity", OptionKind::Whole,
        |to, value| put(&mut to.log.log_level, count(value).map(of_verbosity).map(Some)),
        |config| config.log.fields().0.into())
        .default("0").flag("log-level", "LEVEL").scope(OptionScope::Declared).kube_proxy("v")
        .about("Verbosity of the log: 4 adds detail, 6 everything. A flag replaces the field"),
    Setting::ignored("logging.vmodule", OptionKind::Any),
    Setting::ignored("logging.options", OptionKind::Opaque),
    Setting::new("hostnameOverride", OptionKind::Text,
        |to, value| match text(value).trim() {
            "" => Err(vec!["is blank; expected the name of a Node".to_owned()]),
            _ => put(&mut to.hostname_override, Ok(Some(text(value).to_owned()))),
        },
        |config| config.node_name.as_str().into())
        .flag("hostname-override", "NAME").scope(OptionScope::Declared).kube_proxy("hostname-override")
        .about("Name of this machine's Node object; without it, the host name"),
    Setting::unwritten("bindAddress", OptionKind::Text, |to, value| to.set_bind_address(value))
        .default("0.0.0.0").kube_proxy("bind-address")
        .about("The node's address, the \"primary\" one of NodePorts, instead of the first of its family in the Node object, unless it is 0.0.0.0 or ::. Its family is that of the default addresses of healthz and metrics"),
    Setting::new("healthzBindAddress", OptionKind::Text,
        |to, value| put(&mut to.config.healthz_bind_address, listen(value, listen_address::HEALTHZ_PORT)),
        |config| listen_address::text(config.healthz_bind_address).into())
        .default("0.0.0.0:10256").flag("healthz-bind-address", "ADDRESS").scope(OptionScope::Daemon).kube_proxy("healthz-bind-address")
        .about("Address of /healthz, /livez and /readyz; an empty flag of run, or --healthz-port=0 of kube-proxy, turns them off"),
    Setting::new("metricsBindAddress", OptionKind::Text,
        |to, value| put(&mut to.config.metrics_bind_address, listen(value, listen_address::METRICS_PORT)),
        |config| listen_address::text(config.metrics_bind_address).into())
        .default("127.0.0.1:10249").flag("metrics-bind-address", "ADDRESS").scope(OptionScope::Daemon).kube_proxy("metrics-bind-address")
        .about("Address of /metrics; an empty flag of run, or --metrics-port=0 of kube-proxy, turns it off"),
    Setting::boolean("bindAddressHardFail", |config| &mut config.bind_address_hard_fail)
        .default("false").kube_proxy("bind-address-hard-fail")
        .about("End if the address of healthz or metrics cannot be used, instead of trying again"),
    Setting::ignored("enableProfiling", OptionKind::Flag).default("false").kube_proxy("profiling")
        .about("Serve profiles of Go programs"),
    Setting::ignored("showHiddenMetricsForVersion", OptionKind::Text).kube_proxy("show-hidden-metrics-for-version")
        .about("Show metrics that this version of Kubernetes has hidden"),
    Setting::unwritten("mode", OptionKind::Text, |_, _| Ok(())).kube_proxy("proxy-mode")
        .about("Mode: nftables, iptables or ipvs; without it, iptables. Modes other than nftables are accepted with a warning, and the rules are nftables in each; they have masqueradeAll and masqueradeBit in section iptables, and without nodePortAddresses every local address serves NodePorts"),
    Setting::new("*.masqueradeBit", OptionKind::Whole,
        |to, value| put(&mut to.config.routing.masquerade_bit, number(value, 0..=31, "a bit from 0 to 31")),
        |config| config.routing.masquerade_bit.into())
        .default("14").flag("masquerade-bit", "BIT").kube_proxy_sets("iptables-masquerade-bit", "iptables.masqueradeBit")
        .about("Bit of the packet mark for masquerade, 0 to 31: 14 is 0x4000. The flag of kube-proxy sets it in modes iptables and ipvs alone"),
    Setting::boolean("*.masqueradeAll", |config| &mut config.routing.masquerade_all)
        .default("false").flag("masquerade-all", "BOOL").kube_proxy("masquerade-all")
        .about("Masquerade all traffic to ClusterIPs"),
    Setting::ignored("iptables.localhostNodePorts", OptionKind::Flag).default("true").kube_proxy("iptables-localhost-nodeports")
        .about("Serve NodePorts at loopback addresses; --nodeport-addresses localhost does it here"),
    Setting::ignored("iptables.syncPeriod", OptionKind::Duration),
    Setting::ignored("iptables.minSyncPeriod", OptionKind::Duration),
    Setting::ignored("ipvs.syncPeriod", OptionKind::Duration).default("30s").kube_proxy("ipvs-sync-period")
        .about("Time between two full updates of IPVS"),
    Setting::ignored("ipvs.minSyncPeriod", OptionKind::Duration).default("0s").kube_proxy("ipvs-min-sync-period")
        .about("Least time between two updates of IPVS"),
    Setting::unwritten(IPVS_SCHEDULER, OptionKind::Text,
        |to, value| put(&mut to.scheduler, Ok(ChosenScheduler::of_ipvs(text(value)))))
        .kube_proxy("ipvs-scheduler")
        .about("Scheduler of services that name none, in mode ipvs and without deltaproxy.scheduler; without it, rr. rr is random: even over time, not in turn"),
    Setting::ignored("ipvs.excludeCIDRs", OptionKind::Texts).kube_proxy("ipvs-exclude-cidrs")
        .about("Virtual servers of others that IPVS leaves alone; all are left alone"),
    Setting::ignored("ipvs.strictARP", OptionKind::Flag).default("false").kube_proxy("ipvs-strict-arp")
        .about("Set arp_ignore and arp_announce; no service address is on an interface here"),
    Setting::ignored("ipvs.tcpTimeout", OptionKind::Duration).default("0s").kube_proxy("ipvs-tcp-timeout")
        .about("Timeout of idle TCP connections of IPVS; see --conntrack-tcp-timeout-established"),
    Setting::ignored("ipvs.tcpFinTimeout", OptionKind::Duration).default("0s").kube_proxy("ipvs-tcpfin-timeout")
        .about("Timeout of TCP connections of IPVS after a FIN"),
    Setting::ignored("ipvs.udpTimeout", OptionKind::Duration).default("0s").kube_proxy("ipvs-udp-timeout")
        .about("Timeout of UDP flows of IPVS; see --conntrack-udp-timeout"),
    Setting::ignored("nftables.syncPeriod", OptionKind::Duration).default("30s").kube_proxy("iptables-sync-period")
        .about("Time between two full updates of the rules; changes are applied at once"),
    Setting::time("nftables.minSyncPeriod", |config| &mut config.periods.min_sync)
        .default("0s").flag("min-sync-period", "DURATION").scope(OptionScope::Daemon).kube_proxy("iptables-min-sync-period")
        .about("Minimum time between two transactions, such as 1s or 500ms, in every mode; 0s is no minimum"),
    Setting::ignored("winkernel.networkName", OptionKind::Text),
    Setting::ignored("winkernel.sourceVip", OptionKind::Text),
    Setting::ignored("winkernel.enableDSR", OptionKind::Flag),
    Setting::ignored("winkernel.rootHnsEndpointName", OptionKind::Text),
    Setting::ignored("winkernel.forwardHealthCheckVip", OptionKind::Flag),
    Setting::new(DETECT_LOCAL_MODE, OptionKind::Text,
        |to, value| to.set_detect_local_mode(value),
        |config| detection(config, DETECT_LOCAL_MODE))
        .flag("detect-local-mode", "MODE").kube_proxy("detect-local-mode")
        .about("How traffic from pods is detected; other traffic is masqueraded on its way to a ClusterIP: ClusterCIDR, NodeCIDR (the Node's podCIDRs), BridgeInterface or InterfaceNamePrefix; without it, ClusterCIDR"),
    Setting::new(CLUSTER_CIDR, OptionKind::Text,
        |to, value| to.set_detection(LocalDetection::ClusterCidr, value),
        |config| detection(config, CLUSTER_CIDR))
        .flag("cluster-cidr", "CIDRS").kube_proxy("cluster-cidr")
        .about("Pod addresses, for mode ClusterCIDR: one range of each family, such as 10.244.0.0/16,fd00:10:244::/56"),
    Setting::new(BRIDGE_INTERFACE, OptionKind::Text,
        |to, value| to.set_detection(LocalDetection::BridgeInterface, value),
        |config| detection(config, BRIDGE_INTERFACE))
        .flag("pod-bridge-interface", "NAME").kube_proxy("pod-bridge-interface")
        .about("Interface on which traffic from pods arrives, for mode BridgeInterface"),
    Setting::new(INTERFACE_NAME_PREFIX, OptionKind::Text,
        |to, value| to.set_detection(LocalDetection::InterfaceNamePrefix, value),
        |config| detection(config, INTERFACE_NAME_PREFIX))
        .flag("pod-interface-name-prefix", "PREFIX").kube_proxy("pod-interface-name-prefix")
        .about("Prefix of the names of the interfaces on which traffic from pods arrives, for mode InterfaceNamePrefix"),
    Setting::new("nodePortAddresses", OptionKind::Texts,
        |to, value| to.set_node_port_addresses(value),
        |config| config.routing.node_port_addresses.entries().into())
        .flag("nodeport-addresses", "CIDRS").kube_proxy("nodeport-addresses")
        .about("Local addresses that serve NodePorts: ranges, \"primary\" for the node's primary addresses, \"localhost\" or a range in 127.0.0.0/8 for 127.0.0.1 (sets the sysctl net.ipv4.conf.all.route_localnet) and, for TCP alone, [::1] on the node itself (\"localhost\" or ::1/128), \"all\" for all others; without it, primary in mode nftables, else all"),
    Setting::new("oomScoreAdj", OptionKind::Whole,
        |to, value| put(&mut to.config.oom_score_adj, number(value, -1000..=1000, "-1000 to 1000").map(Some)),
        |config| config.oom_score_adj.into())
        .default("-999").kube_proxy("oom-score-adj")
        .about("The kernel's OOM score of this process, from -1000 (never killed) to 1000 (killed first)"),
    Setting::count("conntrack.maxPerCore", |config| &mut config.conntrack.max_per_core)
        .default("32768").kube_proxy("conntrack-max-per-core")
        .about("Limit of entries of conntrack for each processor, at most 1,048,576 in all; 0 leaves the kernel's"),
    Setting::count("conntrack.min", |config| &mut config.conntrack.min)
        .default("131072").kube_proxy("conntrack-min")
        .about("Least limit of entries of conntrack that the limit for each processor results in"),
    Setting::time("conntrack.tcpEstablishedTimeout", |config| &mut config.conntrack.tcp_established_timeout)
        .default("24h").kube_proxy("conntrack-tcp-timeout-established")
        .about("Timeout of idle TCP connections; 0s leaves the kernel's"),
    Setting::time("conntrack.tcpCloseWaitTimeout", |config| &mut config.conntrack.tcp_close_wait_timeout)
        .default("1h").kube_proxy("conntrack-tcp-timeout-close-wait")
        .about("Timeout of TCP connections that one side has closed; 0s leaves the kernel's"),
    Setting::boolean("conntrack.tcpBeLiberal", |config| &mut config.conntrack.tcp_be_liberal)
        .default("false").kube_proxy("conntrack-tcp-be-liberal")
        .about("Accept TCP packets outside the window; false leaves the kernel's value"),
    Setting::time("conntrack.udpTimeout", |config| &mut config.conntrack.udp_timeout)
        .default("0s").kube_proxy("conntrack-udp-timeout")
        .about("Timeout of UDP flows without answers; 0s leaves the kernel's"),
    Setting::time("conntrack.udpStreamTimeout", |config| &mut config.conntrack.udp_stream_timeout)
        .default("0s").kube_proxy("conntrack-udp-timeout-stream")
        .about("Timeout of UDP flows with answers; 0s leaves the kernel's"),
    Setting::ignored("configSyncPeriod", OptionKind::Duration).default("15m").kube_proxy("config-sync-period")
        .about("Time between two lists of all objects; the watches suffice"),
    Setting::ignored("portRange", OptionKind::Text),
    Setting::ignored("windowsRunAsService", OptionKind::Flag),
    Setting::unwritten(STRICT_MODE, OptionKind::Flag, |_, _| Ok(())).default("false").kube_proxy("strict-proxy-mode")
        .about("Refuse modes other than nftables"),
    Setting::new("deltaproxy.counters", OptionKind::Any,
        |to, value| put(&mut to.config.routing.counters, counters(value)),
        |config| config.routing.counters.name().into())
        .default("off").flag("counters", "OF")
        .about("Count new connections in the kernel: off, services, or endpoints (of services too)"),
    Setting::new("deltaproxy.flowtable", OptionKind::Any,
        |to, value| put(&mut to.config.routing.flowtable, switch(value).map(|is_on| is_on.then(Default::default))),
        |config| on_or_off(config.routing.flowtable.is_some()))
        .default("off").flag("flowtable", "SWITCH")
        .about("Let established packets of services skip the kernel's forwarding path: off or on. Other programs' forward rules, such as network policies, then no longer see these packets: read docs/flowtable.md first"),
    Setting::new("deltaproxy.flowtableAfter", OptionKind::Text,
        |to, value| put_part(&mut to.config.routing.flowtable, |offload| &mut offload.after, parsed(value)),
        |config| config.routing.flowtable.clone().unwrap_or_default().after.to_string().into())
        .default("20packets").flag("flowtable-after", "SIZE")
        .about("Size from which on a connection uses the flowtable, such as 65536bytes"),
    Setting::new("deltaproxy.flowtableDevices", OptionKind::Text,
        |to, value| put_part(&mut to.config.routing.flowtable, |offload| &mut offload.devices, parsed(value)),
        |config| config.routing.flowtable.clone().unwrap_or_default().devices.to_string().into())
        .default("*").flag("flowtable-devices", "PATTERNS")
        .about("Devices of the flowtable, separated by commas: names, prefixes such as cali*, or * for all but the loopback device and ports of bridges"),
    Setting::time("deltaproxy.checkPeriod", |config| &mut config.periods.check)
        .default("10m").flag("check-period", "DURATION").scope(OptionScope::Daemon)
        .about("Time in which the background check compares all services with the kernel; 0s turns it off"),
    Setting::new("deltaproxy.tableOwnership", OptionKind::Any,
        |to, value| put(&mut to.config.owns_tables, switch(value)),
        |config| on_or_off(config.owns_tables))
        .default("on").flag("table-ownership", "SWITCH").scope(OptionScope::Daemon)
        .about("on: the daemon owns its tables, so that no other program changes or deletes them while it runs (Linux 6.9 and later). off: it repairs changes by other programs within two seconds"),
    Setting::new("deltaproxy.externalAddresses.allowed", OptionKind::Texts,
        |to, value| put(&mut to.config.routing.external_addresses.allowed, ranges(value)),
        |config| config.routing.external_addresses.allowed.iter().map(ToString::to_string).collect())
        .flag("external-addresses", "CIDRS")
        .about("Ranges of the external IPs and load balancer addresses that are served, such as 192.0.2.0/24; others are left out as problems. Without it, all are served"),
    Setting::new("deltaproxy.externalAddresses.refuseInternal", OptionKind::Any,
        |to, value| put(&mut to.config.routing.external_addresses.refuse_internal, switch(value)),
        |config| on_or_off(config.routing.external_addresses.refuse_internal))
        .default("off").flag("refuse-internal-addresses", "SWITCH")
        .about("on: external IPs and load balancer addresses that belong to this node, or are in the cluster's ranges of pods and cluster IPs, are left out as problems. off: they are served"),
    Setting::new("deltaproxy.services.proxyName", OptionKind::Text,
        |to, value| put(&mut to.config.routing.services.proxy_name, optional(value)),
        |config| config.routing.services.proxy_name.as_ref().map_or("", |it| &it.0).into())
        .flag("service-proxy-name", "NAME")
        .about("Serve only services with this value of the label service.kubernetes.io/service-proxy-name. Without it, services without this label are served"),
    Setting::new("deltaproxy.services.except", OptionKind::Texts,
        |to, value| put(&mut to.config.routing.services.except, each(value)),
        |config| config.routing.services.except.iter().map(ToString::to_string).collect())
        .flag("except-services", "SERVICES")
        .about("Services that are left to other programs: NAMESPACE/NAME, or NAMESPACE/* for all of a namespace"),
    Setting::new("deltaproxy.services.labels", OptionKind::Texts,
        |to, value| put(&mut to.config.routing.services.labels, each(value)),
        |config| config.routing.services.labels.iter().map(ToString::to_string).collect())
        .flag("service-labels", "LABELS")
        .about("What the labels of services must fulfil, KEY, !KEY, KEY=VALUE or KEY!=VALUE; services that do not are left to other programs"),
    Setting::new("deltaproxy.leastConnections.interval", OptionKind::Duration,
        |to, value| put(&mut to.config.routing.least_connections, time(value).and_then(lc_settings::every)),
        |config| duration::text(lc_settings::interval(config.routing.least_connections)).into())
        .default("0s").flag("least-connections", "DURATION")
        .about("Time between two counts of live connections, such as 5s and at least 1s, for the schedulers lc and wlc; 0s turns them off"),
    Setting::new("deltaproxy.leastConnections.changesPerSecond", OptionKind::Whole,
        |to, value| lc_settings::set_changes(&mut to.config.routing.least_connections, count(value)?),
        |config| lc_settings::changes(config.routing.least_connections).into())
        .default("1000")
        .about("Limit of slots that change for the schedulers lc and wlc in a second, over all services"),
    Setting::new("deltaproxy.directReturn.mode", OptionKind::Any,
        |to, value| put(&mut to.config.routing.direct_return, direct_mode(value)),
        |config| direct_return::mode(config.routing.direct_return.as_ref()).into())
        .default("off").flag("direct-return", "MODE")
        .about("Experimental: services with external traffic policy Cluster whose endpoints see the client's address and answer it directly, from their nodes: off; annotated, those with the annotation deltaproxy.io/forwarding: direct; loadBalancers, those with load balancer addresses too"),
    Setting::new("deltaproxy.directReturn.devices", OptionKind::Texts,
        |to, value| put_part(&mut to.config.routing.direct_return, |it| &mut it.devices, each(value).and_then(direct_return::devices)),
        |config| direct_return::or_default(config.routing.direct_return.as_ref()).devices.iter().map(InterfaceName::as_str).collect())
        .flag("direct-return-devices", "NAMES")
        .about("Devices on which packets from outside arrive for direct return, and over which nodes reach each other, at most 64; without it, the device of the node's address"),
    Setting::new("deltaproxy.directReturn.remember", OptionKind::Duration,
        |to, value| put_part(&mut to.config.routing.direct_return, |it| &mut it.remember, time(value).and_then(direct_return::remember)),
        |config| duration::text(direct_return::or_default(config.routing.direct_return.as_ref()).remember).into())
        .default("5m")
        .about("Time without packets, 1s to 24h, for which direct return remembers the node of a connection"),
    Setting::new("deltaproxy.directReturn.connections", OptionKind::Whole,
        |to, value| put_part(&mut to.config.routing.direct_return, |it| &mut it.connections, count(value).and_then(direct_return::connections)),
        |config| direct_return::or_default(config.routing.direct_return.as_ref()).connections.into())
        .default("262144")
        .about("Connections that direct return remembers at most, 1024 to 16777216; about 130 bytes of kernel memory each"),
    Setting::new("deltaproxy.directReturn.nodePorts", OptionKind::Any,
        |to, value| put_part(&mut to.config.routing.direct_return, |it| &mut it.node_ports, switch(value)),
        |config| on_or_off(direct_return::or_default(config.routing.direct_return.as_ref()).node_ports))
        .default("off")
        .about("on: direct return also for node ports of TCP, at the InternalIP of each node. off: node ports are translated"),
    Setting::new("deltaproxy.directReturn.vxlanPort", OptionKind::Whole,
        |to, value| put_part(&mut to.config.routing.direct_return, |it| &mut it.vxlan_port, count(value).and_then(direct_return::vxlan_port)),
        |config| direct_return::or_default(config.routing.direct_return.as_ref()).vxlan_port.map_or(0, NonZeroU16::get).into())
        .default("0")
        .about("UDP port of the VXLAN device direct-return, over which direct return reaches nodes behind a router, such as 4789; 0: it does not, and makes no device"),
    Setting::new("deltaproxy.endedConnections.mode", OptionKind::Any,
        |to, value| put(&mut to.config.routing.ended_connections, ended_connections::of_mode(text(value))),
        |config| ended_connections::mode(config.routing.ended_connections).into())
        .default("keep").flag("ended-connections", "MODE")
        .about("What becomes of a TCP connection of a service whose endpoint is in no EndpointSlice any more: keep; annotated, its next packet is answered with RST if the service has the annotation deltaproxy.io/ended-connections: reset; reset, unless it has the annotation with keep"),
    Setting::new("deltaproxy.endedConnections.remember", OptionKind::Duration,
        |to, value| put_part(&mut to.config.routing.ended_connections, |it| &mut it.remember, time(value).and_then(ended_connections::remember)),
        |config| duration::text(ended_connections::remembered(config.routing.ended_connections)).into())
        .default("15m")
        .about("Time, 1m to 24h, for which packets of such connections are answered with RST"),
    Setting::new("deltaproxy.nodeReadiness.condition", OptionKind::Any,
        |to, value| put(&mut to.config.node_readiness.condition, switch(value)),
        |config| on_or_off(config.node_readiness.condition))
        .default("off").flag("node-condition", "SWITCH").scope(OptionScope::Daemon)
        .about("on: the condition deltaproxy.io/ServiceProxyReady of the Node is true once the first sync is in the kernel, and false while services of this node do not work. off: no condition is written"),
    Setting::new("deltaproxy.nodeReadiness.startupTaint", OptionKind::Any,
        |to, value| put(&mut to.config.node_readiness.startup_taint, switch(value)),
        |config| on_or_off(config.node_readiness.startup_taint))
        .default("off").flag("startup-taint", "SWITCH").scope(OptionScope::Daemon)
        .about("on: the taint deltaproxy.io/ServiceProxyReady of the Node is removed once the first sync is in the kernel. off: taints stay"),
    Setting::new("deltaproxy.nodeReadiness.lostAfter", OptionKind::Duration,
        |to, value| put(&mut to.config.node_readiness.lost_after, time(value).and_then(node_readiness::lost_after)),
        |config| duration::text(config.node_readiness.lost_after).into())
        .default("5m")
        .about("Time without a watch of Services or EndpointSlices, 1m to 24h, after which the condition is false; 0s: this is no reason"),
    Setting::new(OWN_SCHEDULER, OptionKind::Text,
        |to, value| put(&mut to.scheduler, ChosenScheduler::of_field(text(value)).map_err(|error| vec![error])),
        |config| config.routing.scheduler.name().into())
        .default("random").flag("scheduler", "NAME")
        .about("Scheduler of services that name none in the annotation deltaproxy.io/scheduler: random, rr, wrr, lc, wlc, sh, sh-port, mh or mh-port. rr is random: even over time, not in turn"),
    Setting::count("deltaproxy.hashSeed", |config| &mut config.routing.hash_seed)
        .default("1").flag("hash-seed", "NUMBER")
        .about("Seed of the hash by which the schedulers sh and mh choose; all nodes need the same one"),
    Setting::count("deltaproxy.slotBudget", |config| &mut config.routing.slot_budget)
        .default("1048576").flag("slot-budget", "NUMBER")
        .about("Elements that services may use together for weights, hash tables of sh and mh, and the scheduler lc, beyond one for each endpoint; about 100 bytes of kernel memory each. All nodes need the same number"),
];

fn on_or_off(is_on: bool) -> Value {
    if is_on { "on".into() } else { "off".into() }
}

/// Returns the mode, or the value of a field that has an effect in one mode.
fn detection(config: &Config, field: &str) -> Value {
    let (mode, value) = match &config.routing.local_detection {
        LocalDetection::ClusterCidr(ranges) => (DetectLocalMode::ClusterCidr, ranges.to_string()),
        LocalDetection::NodeCidr => (DetectLocalMode::NodeCidr, String::new()),
        LocalDetection::BridgeInterface(name) => {
            (DetectLocalMode::BridgeInterface, name.as_str().to_owned())
        }
        LocalDetection::InterfaceNamePrefix(prefix) => {
            (DetectLocalMode::InterfaceNamePrefix, prefix.as_str().to_owned())
        }
    };
    match field {
        DETECT_LOCAL_MODE => mode.to_string().into(),
        _ if field == detection_field(mode) => value.into(),
        _ => "".into(),
    }
}
