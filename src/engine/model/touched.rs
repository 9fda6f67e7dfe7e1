//! Services and settings that events touched, and to what extent.

use std::collections::hash_map::Entry;
use std::time::SystemTime;

use ahash::HashMap;

use super::endpoint_changes::EndpointChanges;
use super::name::ObjectName;

/// Everything that a series of events touched.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Services to render again, with the extent of each.
    pub services: HashMap<ObjectName, Extent>,
    /// This node's object changed.
    pub node: bool,
    /// Another node's object came, changed or went.
    pub peers: bool,
    /// Services to render again because this node's object changed; possibly very many.
    pub dependents: Vec<ObjectName>,
    /// The service address ranges changed.
    pub service_cidrs: bool,
    /// Times of the events that caused the slice changes.
    pub triggers: Vec<SystemTime>,
}

/// Extent to which events touched a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Any part of it.
    Whole,
    /// Only the set of its endpoints.
    Endpoints(Box<EndpointChanges>),
}

impl Touched {
    /// Adds a touched service.
    pub fn add(&mut self, service: ObjectName, extent: Extent) {
        extent.join(&mut self.services, service);
    }
}

impl Extent {
    /// Adds the extent to those of `services`. Returns whether `service` was not touched before.
    pub fn join(self, services: &mut HashMap<ObjectName, Self>, service: ObjectName) -> bool {
        match services.entry(service) {
            Entry::Occupied(mut known) => {
                known.get_mut().add(self);
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(self);
                true
            }
        }
    }

    fn add(&mut self, later: Self) {
        let both = match (std::mem::replace(self, Self::Whole), later) {
            (Self::Endpoints(mut known), Self::Endpoints(later)) => {
                known.add(&later).then_some(known)
            }
            (Self::Whole, _) | (_, Self::Whole) => None,
        };
        *self = both.map_or(Self::Whole, Self::Endpoints);
    }
}
