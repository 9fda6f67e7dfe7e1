//! Programs of container hosts and of gateways beside the tables: podman, Docker, libvirt, portmap,
//! keepalived, conntrackd, and the rules of NodeLocal DNSCache by iptables.
//!
//! `make test-neighbours` fetches Debian's packages and names the folder with their files in the
//! variable `DELTAPROXY_NEIGHBOURS`. Without it these tests are left out.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "container_hosts/cluster.rs"]
mod cluster;
#[path = "container_hosts/containers.rs"]
mod containers;
#[path = "container_hosts/dns_cache.rs"]
mod dns_cache;
#[path = "container_hosts/docker.rs"]
mod docker;
#[path = "container_hosts/gateways.rs"]
mod gateways;
#[path = "container_hosts/keepalived.rs"]
mod keepalived;
#[path = "container_hosts/libvirt.rs"]
mod libvirt;
#[path = "container_hosts/life.rs"]
mod life;
#[path = "container_hosts/machine.rs"]
mod machine;
#[path = "container_hosts/podman.rs"]
mod podman;
#[path = "container_hosts/portmap.rs"]
mod portmap;
