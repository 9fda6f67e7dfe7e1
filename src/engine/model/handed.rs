//! Services whose external packets nodes hand to each other.

use ahash::HashMap;

use super::event::Problem;
use super::name::ObjectName;

/// What direct return makes of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Nodes hand external packets to each other, by [`Family::index`](nft::Family::index). So this
    /// node sends those that come to it to its own endpoints, if it has any.
    pub families: [bool; 2],
    /// They also do so with packets to node ports of TCP.
    pub node_ports: bool,
    /// Why they do not, although the service wants it.
    pub problems: Vec<Problem>,
}

/// The services that want direct return.
#[derive(Debug, Default)]
pub(super) struct HandedServices(HashMap<ObjectName, Handed>);

impl HandedServices {
    pub(super) fn of(&self, service: &ObjectName) -> Option<&Handed> {
        self.0.get(service)
    }

    pub(super) fn set(&mut self, service: ObjectName, handed: Option<Handed>) {
        match handed {
            Some(handed) => self.0.insert(service, handed),
            None => self.0.remove(&service),
        };
    }
}
