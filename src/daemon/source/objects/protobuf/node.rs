//! core/v1 Node and networking.k8s.io/v1 ServiceCIDR as protobuf.

use super::super::node::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, ServiceCidr, ServiceCidrSpec, Taint,
};
use super::message::{MessageField, ReadMessage, messages};
use super::wire::{Fields, WireError};

messages! { 'a
    Node { 1 metadata, 2 spec, 3 status, }
    NodeSpec { 1 pod_cidr, 5 taints, 7 pod_cidrs, }
    Taint { 1 key, }
    NodeStatus { 4 conditions, 5 addresses, }
    NodeCondition { 1 kind, 2 status, }
    NodeAddress { 1 kind, 2 address, }
    ServiceCidr { 1 metadata, 2 spec, }
    ServiceCidrSpec { 1 cidrs, }
}
