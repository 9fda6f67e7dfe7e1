//! What events touched, and how much of it.

use std::collections::hash_map::Entry;
use std::time::SystemTime;

use ahash::HashMap;

use super::{EndpointChanges, ObjectName};

/// What a series of events touched.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Services to render again, and how much of each.
    pub services: HashMap<ObjectName, Extent>,
    /// This node's object changed.
    pub node: bool,
    /// Services to render again because it did: there may be very many.
    pub dependents: Vec<ObjectName>,
    /// The service address ranges changed.
    pub service_cidrs: bool,
    /// When what led to the changes of slices happened.
    pub triggers: Vec<SystemTime>,
}

/// How much of a service events touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Any part of it.
    Whole,
    /// Nothing but which endpoints it has.
    Endpoints(Box<EndpointChanges>),
}

impl Touched {
    /// Notes that so much of a service is touched.
    pub fn add(&mut self, service: ObjectName, extent: Extent) {
        extent.join(&mut self.services, service);
    }
}

impl Extent {
    /// Adds it to what is touched of several services; whether nothing of this one was.
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
