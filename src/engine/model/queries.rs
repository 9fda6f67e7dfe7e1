//! Lookups of the services and endpoints of the cluster.

use std::net::IpAddr;
use std::sync::Arc;

use super::cluster::Cluster;
use super::endpoint::{Endpoint, Zones};
use super::name::ObjectName;
use super::service::ServicePort;
use super::stored::{StoredService, StoredSlice};

impl Cluster {
    /// Returns the number of routed services.
    pub fn service_count(&self) -> usize {
        self.routed().count()
    }

    /// Returns the endpoints of all slices, with the name of their service.
    fn all_endpoints(&self) -> impl Iterator<Item = (&ObjectName, Endpoint<&Arc<Zones>>)> {
        let slices = self.services.iter().map(|(name, entry)| (name, &entry.slices));
        let slices = slices.flat_map(|(name, slices)| slices.iter().map(move |it| (name, it)));
        slices.flat_map(|(name, slice)| slice.endpoints.iter().map(move |it| (name, it)))
    }

    /// Returns whether a service has external IPs, load balancer addresses or node ports.
    pub(crate) fn has_external_traffic(&self, name: &ObjectName) -> bool {
        self.stored_service(name).is_some_and(StoredService::has_external_traffic)
    }

    /// Returns the services with external IPs, load balancer addresses or node ports.
    pub(crate) fn services_with_external_traffic(&self) -> impl Iterator<Item = &ObjectName> {
        self.routed().filter(|(_, it)| it.has_external_traffic()).map(|(name, _)| name)
    }

    fn stored_service(&self, name: &ObjectName) -> Option<&StoredService> {
        self.services.get(name)?.service.as_ref()
    }

    /// Returns the routed services.
    pub(super) fn routed(&self) -> impl Iterator<Item = (&ObjectName, &StoredService)> {
        self.services.iter().filter_map(|(name, it)| Some((name, it.service.as_ref()?)))
    }

    /// Returns the stored form of a routed service, and its slices.
    pub(super) fn stored(&self, name: &ObjectName) -> Option<(&StoredService, &[StoredSlice])> {
        let entry = self.services.get(name)?;
        Some((entry.service.as_ref()?, &entry.slices))
    }

    /// Returns the cluster IPs of all routed services.
    pub(super) fn all_cluster_ips(&self) -> impl Iterator<Item = IpAddr> {
        self.routed().flat_map(|(_, service)| service.cluster_ips())
    }

    /// Returns the addresses of all endpoints of a service.
    pub(super) fn endpoint_addresses(&self, name: &ObjectName) -> impl Iterator<Item = IpAddr> {
        let slices = self.services.get(name).into_iter().flat_map(|entry| &entry.slices);
        slices.flat_map(|slice| slice.endpoints.iter()).map(|endpoint| endpoint.address)
    }

    /// Returns the creation time of a service, in seconds since 1970.
    pub fn created(&self, name: &ObjectName) -> Option<i64> {
        self.stored_service(name).map(StoredService::created)
    }

    /// Returns whether the service has this cluster IP.
    pub fn has_cluster_ip(&self, name: &ObjectName, address: IpAddr) -> bool {
        self.stored_service(name).is_some_and(|service| service.has_cluster_ip(address))
    }

    /// Returns the session affinity timeout of a service in seconds, if it has session affinity.
    pub fn session_affinity(&self, name: &ObjectName) -> Option<u32> {
        let timeout = self.stored_service(name)?.session_affinity()?;
        // The API allows 1 to 86,400 seconds.
        u32::try_from(timeout.as_secs()).ok().filter(|seconds| *seconds > 0)
    }

    /// Returns the timeout with which the sessions of a service are routed; 0 if it has port ranges and
    /// no session affinity.
    pub fn session_timeout(&self, name: &ObjectName) -> Option<u32> {
        let of_ranges = || {
            let ranges = self.stored_service(name)?.port_ranges();
            (!ranges.is_empty()).then_some(0)
        };
        self.session_affinity(name).or_else(of_ranges)
    }

    /// Returns the ports of a service if each client may be sent to any usable endpoint: without
    /// session affinity, and with internal traffic policy `Cluster`.
    pub fn ports_served_by_all_endpoints(&self, name: &ObjectName) -> Option<&[ServicePort]> {
        self.stored_service(name)?.ports_served_by_all_endpoints()
    }

    /// Returns whether a service may need more than one slot for an endpoint: it has weights, source
    /// ranges, or another scheduler than the default.
    pub fn may_request_slots(&self, name: &ObjectName) -> bool {
        self.services.get(name).is_some_and(|entry| entry.may_request_slots())
    }

    /// Returns the number of endpoints in all slices. Iterates all of them.
    pub fn endpoint_count(&self) -> usize {
        self.all_endpoints().count()
    }

    /// Returns the addresses of the endpoints on this node, with the name of their service, in any
    /// order. Iterates all endpoints.
    pub fn local_endpoints(&self) -> impl Iterator<Item = (&ObjectName, IpAddr)> {
        let local = self.all_endpoints().filter(|(_, endpoint)| endpoint.conditions.local);
        local.map(|(name, endpoint)| (name, endpoint.address))
    }
}
