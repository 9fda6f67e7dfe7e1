//! The addresses that serve node ports, and the flows that their changes make stale.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ahash::HashSet;
use nft::family::Family;

use crate::flow::StaleFlow;
use crate::model::Target;

/// The addresses that serve node ports, now and at the last call of `take_changes`.
#[derive(Debug, Default)]
pub(super) struct NodeAddresses {
    /// Desired addresses, also in families where all addresses serve. Sorted.
    desired: Vec<IpAddr>,
    /// Installed addresses; `None` before the first read-back.
    served: Option<HashSet<IpAddr>>,
    /// `desired` and `served` may differ.
    is_stale: bool,
}

/// Addresses of the node that began or ceased to serve node ports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AddressChanges {
    begun: Vec<IpAddr>,
    ceased: Vec<IpAddr>,
}

impl NodeAddresses {
    /// Returns the desired addresses.
    pub(super) fn desired(&self) -> &[IpAddr] {
        &self.desired
    }

    /// Returns whether node ports are open at `address`.
    pub(super) fn serves(&self, address: IpAddr) -> bool {
        self.desired.binary_search(&address).is_ok()
            && self.served.as_ref().is_some_and(|served| served.contains(&address))
    }

    /// Sets the desired addresses.
    pub(super) fn set_desired(&mut self, mut addresses: Vec<IpAddr>) {
        addresses.sort_unstable();
        addresses.dedup();
        self.is_stale |= addresses != self.desired;
        self.desired = addresses;
    }

    /// Replaces the addresses for which `listed` holds by `installed`, the addresses with an
    /// element. The other addresses have no element, so the kernel shows no change of theirs.
    pub(super) fn adopt(
        &mut self,
        installed: impl Iterator<Item = IpAddr>,
        listed: impl Fn(&IpAddr) -> bool,
    ) {
        let former = self.served.take();
        let mut served = former.unwrap_or_else(|| self.desired.iter().copied().collect());
        served.retain(|address| !listed(address));
        served.extend(installed);
        self.served = Some(served);
        self.is_stale = true;
    }

    /// Returns the changes committed since the last call.
    pub(super) fn take_changes(&mut self, is_committed: impl Fn(IpAddr) -> bool) -> AddressChanges {
        let (Some(served), true) = (&mut self.served, self.is_stale) else {
            return AddressChanges::default();
        };
        let missing = self.desired.iter().copied().filter(|address| !served.contains(address));
        let begun: Vec<_> = missing.filter(|address| is_committed(*address)).collect();
        let unwanted = served.extract_if(|address| {
            self.desired.binary_search(address).is_err() && is_committed(*address)
        });
        let mut ceased: Vec<_> = unwanted.collect();
        ceased.sort_unstable();
        served.extend(&begun);
        self.is_stale = served.len() != self.desired.len()
            || self.desired.iter().any(|address| !served.contains(address));
        AddressChanges { begun, ceased }
    }
}

impl AddressChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.ceased.is_empty()
    }

    /// Returns the flows that the changes make stale: those through addresses that no longer serve,
    /// and those from before an address served. `ports` are UDP node ports.
    pub(super) fn flows(
        &self,
        ports: impl Iterator<Item = (Family, NonZeroU16)>,
    ) -> impl Iterator<Item = StaleFlow> {
        ports.flat_map(move |(family, port)| {
            let own = move |address: &&IpAddr| Family::of(**address) == family;
            let target = move |&address| Target { address, port };
            let begun = self.begun.iter().filter(own).map(target).map(StaleFlow::untranslated);
            begun.chain(self.ceased.iter().filter(own).map(target).map(StaleFlow::to))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

    fn ips(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|ip| ip.parse().unwrap()).collect()
    }

    fn changes(addresses: &mut NodeAddresses, uncommitted: &str) -> [Vec<IpAddr>; 2] {
        let AddressChanges { begun, ceased } =
            addresses.take_changes(|address| !ips(uncommitted).contains(&address));
        [begun, ceased]
    }

    #[test]
    fn an_address_begins_and_ceases_to_serve_once_and_when_it_is_in_the_kernel() {
        let mut addresses = NodeAddresses::default();
        addresses.set_desired(ips("192.0.2.1 2001:db8::1"));
        assert_eq!(changes(&mut addresses, ""), [ips(""), ips("")], "nothing has been read");
        // All IPv6 addresses serve without an element.
        addresses.adopt(ips("192.0.2.9").into_iter(), IpAddr::is_ipv4);
        assert_eq!(changes(&mut addresses, "192.0.2.1 192.0.2.9"), [ips(""), ips("")]);
        assert_eq!(changes(&mut addresses, "192.0.2.9"), [ips("192.0.2.1"), ips("")]);
        assert_eq!(changes(&mut addresses, ""), [ips(""), ips("192.0.2.9")]);
        addresses.set_desired(ips("192.0.2.1 2001:db8::2"));
        assert_eq!(changes(&mut addresses, ""), [ips("2001:db8::2"), ips("2001:db8::1")]);
        assert_eq!(changes(&mut addresses, ""), [ips(""), ips("")]);
        // Another program deleted the element.
        addresses.adopt(std::iter::empty(), IpAddr::is_ipv4);
        assert_eq!(changes(&mut addresses, ""), [ips("192.0.2.1"), ips("")]);
    }

    #[test]
    fn flows_through_an_address_that_changes_are_those_of_its_family() {
        let changes = AddressChanges { begun: ips("192.0.2.1"), ceased: ips("2001:db8::1") };
        let ports = [(Family::Ip, PORT), (Family::Ip6, PORT)];
        let flows: Vec<_> = changes.flows(ports.into_iter()).map(|it| it.to_string()).collect();
        let expected = ["to 192.0.2.1:53 answered by 192.0.2.1:53", "to [2001:db8::1]:53"];
        assert_eq!(flows, expected);
    }
}
