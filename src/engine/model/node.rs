//! The nodes and the cluster's service address ranges.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use nft::Family;

use super::name::ObjectName;

/// This node's Node object.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the node.
    pub name: ObjectName,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// `status.addresses`: InternalIPs first, then ExternalIPs, each in the object's order.
    pub addresses: Vec<IpAddr>,
    /// `spec.podCIDRs`, host bits zero.
    pub pod_cidrs: Vec<IpNet>,
    /// `metadata.deletionTimestamp` is set, or the node has the taint
    /// `ToBeDeletedByClusterAutoscaler`.
    pub leaving: bool,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the node.
    pub name: ObjectName,
    /// The InternalIPs of `status.addresses`, in the object's order.
    pub addresses: Vec<IpAddr>,
    /// Condition `Ready` is `True`, and `metadata.deletionTimestamp` is not set.
    pub ready: bool,
}

impl Peer {
    /// Returns its first address of a family, by which packets are handed to it.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// A range that cluster IPs are allocated from.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceCidr {
    /// Name of the object.
    pub name: ObjectName,
    /// `spec.cidrs`, host bits zero.
    pub cidrs: Vec<IpNet>,
}
