//! Service ports without an endpoint on this node where a traffic policy wants one.

use ahash::HashMap;

use crate::desired::Wanted;
use crate::family::Family;
use crate::model::ObjectName;

/// How many service ports have endpoints, but none on this node: with internal, and with external
/// traffic policy `Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocalPorts {
    /// `spec.internalTrafficPolicy`.
    pub internal: usize,
    /// `spec.externalTrafficPolicy`.
    pub external: usize,
}

/// The counts of both families, in all services and in each that has some.
#[derive(Debug, Default)]
pub(super) struct NoLocalByService {
    services: HashMap<ObjectName, [NoLocalPorts; 2]>,
    all: [NoLocalPorts; 2],
}

impl NoLocalByService {
    /// Counts the ports of a service anew.
    pub(super) fn note(&mut self, name: &ObjectName, wanted: &Wanted) {
        let mut counts = <[NoLocalPorts; 2]>::default();
        for port in &wanted.ports {
            let count = &mut counts[port.family.index()];
            count.internal += usize::from(port.no_local.internal);
            count.external += usize::from(port.no_local.external);
        }
        let former = match counts == <[NoLocalPorts; 2]>::default() {
            true => self.services.remove(name),
            false => self.services.insert(name.clone(), counts),
        };
        let former = former.unwrap_or_default();
        for ((all, former), count) in self.all.iter_mut().zip(former).zip(counts) {
            all.internal = all.internal - former.internal + count.internal;
            all.external = all.external - former.external + count.external;
        }
    }

    /// The counts of all services.
    pub(super) fn all(&self, family: Family) -> NoLocalPorts {
        self.all[family.index()]
    }
}
