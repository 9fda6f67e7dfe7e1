//! Service ports without a local endpoint where a traffic policy wants one.

use ahash::HashMap;
use nft::family::Family;

use crate::desired::DesiredService;
use crate::model::ObjectName;

/// Number of service ports that have endpoints, but no local one, by the policy that is `Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoLocalPorts {
    /// `spec.internalTrafficPolicy`.
    pub internal: usize,
    /// `spec.externalTrafficPolicy`.
    pub external: usize,
}

/// The counts of both families: over all services, and for each service with a count.
#[derive(Debug, Default)]
pub(super) struct NoLocalByService {
    services: HashMap<ObjectName, [NoLocalPorts; 2]>,
    all: [NoLocalPorts; 2],
}

impl NoLocalByService {
    /// Recounts the ports of a service.
    pub(super) fn note(&mut self, name: &ObjectName, desired: &DesiredService) {
        let mut counts = <[NoLocalPorts; 2]>::default();
        for port in &desired.ports {
            let count = &mut counts[port.family.index()];
            count.internal += usize::from(port.no_local.internal);
            count.external += usize::from(port.no_local.external);
        }
        let former = if counts == <[NoLocalPorts; 2]>::default() {
            self.services.remove(name)
        } else {
            self.services.insert(name.clone(), counts)
        };
        let former = former.unwrap_or_default();
        for ((all, former), count) in self.all.iter_mut().zip(former).zip(counts) {
            all.internal = all.internal - former.internal + count.internal;
            all.external = all.external - former.external + count.external;
        }
    }

    /// Returns the counts of all services.
    pub(super) fn all(&self, family: Family) -> NoLocalPorts {
        self.all[family.index()]
    }
}
