//! The slices of the cluster, each stored with its service.

use ahash::HashSet;

use super::cluster::Cluster;
use super::endpoint_changes::EndpointChanges;
use super::endpoints::EndpointSlice;
use super::event::{Change, Resource};
use super::name::ObjectName;
use super::service::EndedConnections;
use super::stored::StoredSlice;
use super::touched::{Extent, Touched};

impl Cluster {
    pub(super) fn apply_slice(&mut self, change: Change<EndpointSlice>, touched: &mut Touched) {
        match change {
            Change::Is(slice) => self.put_slice(slice, touched),
            Change::Invalid(name) => {
                let listing = self.listing(Resource::EndpointSlices);
                if let Some(slice) = self.slice_mut(&name) {
                    slice.listing = listing;
                }
            }
            Change::Gone(name) => self.remove_slice(&name, touched),
        }
    }

    fn put_slice(&mut self, slice: EndpointSlice, touched: &mut Touched) {
        // All names of a service share one copy.
        let (service, position, former) = match self.place(&slice.name) {
            Some((service, position)) if service == slice.service => {
                (service, Some(position), None)
            }
            elsewhere => {
                let known = self.services.get_key_value(&slice.service).map(|(name, _)| name);
                (known.unwrap_or(&slice.service).clone(), None, elsewhere)
            }
        };
        let had = former.as_ref().map_or(&service, |(former, _)| former);
        let choice = self.ended_connections(had);
        let mut moved = None;
        if let Some((former, position)) = &former {
            moved = self.take_slice(former, *position);
            touched.add(former.clone(), Extent::Whole);
        }
        let triggered = slice.triggered;
        let name = self.slice_names.put(&slice.name, &service);
        let listing = self.listing(Resource::EndpointSlices);
        let slice = StoredSlice::new(slice, name, listing, &mut self.lists);
        self.needs.slices_in_service_cidrs.put(&service, &slice);
        let zone = self.node().and_then(|node| node.zone.clone());
        let slices = &mut self.services.entry(service.clone()).or_default().slices;
        if let Some(old) = position.and_then(|i| slices.get_mut(i)) {
            // That of another listing is no other slice.
            old.listing = listing;
            if *old == slice {
                return;
            }
        }
        if let Some(ended) = &mut self.needs.ended {
            let old = position.and_then(|i| slices.get(i)).or(moved.as_ref());
            ended.replace((old, Some(&slice)), (had, choice));
        }
        let extent = match position {
            Some(i) => {
                let old = std::mem::replace(&mut slices[i], slice);
                let changes = EndpointChanges::between(&old, slices, i, zone.as_ref());
                changes.map_or(Extent::Whole, |changes| Extent::Endpoints(Box::new(changes)))
            }
            None => {
                // Most services have one slice, so spare capacity would cost memory.
                slices.reserve_exact(1);
                slices.push(slice);
                Extent::Whole
            }
        };
        touched.triggers.extend(triggered);
        touched.add(service, extent);
    }

    pub(super) fn remove_slice(&mut self, name: &ObjectName, touched: &mut Touched) {
        let Some((service, position)) = self.place(name) else { return };
        self.slice_names.remove(name);
        let choice = self.ended_connections(&service);
        let removed = self.take_slice(&service, position);
        if let Some(ended) = &mut self.needs.ended {
            ended.replace((removed.as_ref(), None), (&service, choice));
        }
        touched.add(service, Extent::Whole);
    }

    /// Removes a slice of a service, and the service if nothing is left of it.
    fn take_slice(&mut self, service: &ObjectName, position: usize) -> Option<StoredSlice> {
        let entry = self.services.get_mut(service)?;
        let removed = entry.slices.remove(position);
        if entry.slices.is_empty() && entry.service.is_none() {
            self.services.remove(service);
        }
        self.needs.slices_in_service_cidrs.remove(service, removed.name);
        Some(removed)
    }

    /// Returns the service that a slice is stored with, and its position there.
    pub(super) fn place(&self, slice: &ObjectName) -> Option<(ObjectName, usize)> {
        let (service, name) = self.slice_names.place(slice)?;
        let (service, entry) = self.services.get_key_value(service)?;
        let position = entry.slices.iter().position(|slice| slice.name == name)?;
        Some((service.clone(), position))
    }

    fn slice_mut(&mut self, name: &ObjectName) -> Option<&mut StoredSlice> {
        let (service, position) = self.place(name)?;
        self.services.get_mut(&service)?.slices.get_mut(position)
    }

    /// Returns the slices that a listing did not contain.
    pub(super) fn slices_not_in(&self, listing: u32) -> Vec<ObjectName> {
        let (mut names, mut others) = (Vec::new(), HashSet::default());
        for (service, entry) in &self.services {
            for slice in entry.slices.iter().filter(|slice| slice.listing != listing) {
                match slice.name.full(service) {
                    Some(name) => names.push(name),
                    None => _ = others.insert(slice.name),
                }
            }
        }
        names.extend(self.slice_names.of(&others).cloned());
        names
    }

    /// Returns what becomes of connections of a service whose endpoints are gone; `None` if nothing
    /// says so. The first lists arrive in parts, so nothing that they lack is gone.
    fn ended_connections(&self, service: &ObjectName) -> Option<EndedConnections> {
        let ended = self.ended().filter(|_| self.is_listed())?;
        ended.choice(self.services.get(service)?.service.as_ref()?)
    }

    /// Compares all endpoints with the service address ranges.
    pub(super) fn find_slices_in_service_cidrs(&mut self) {
        self.needs.slices_in_service_cidrs.set_ranges(self.service_cidrs());
        for (service, entry) in &self.services {
            for slice in &entry.slices {
                self.needs.slices_in_service_cidrs.put(service, slice);
            }
        }
    }
}
