//! Restrictions of a selection of frontends: namespace, part of a text, endpoints.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use ahash::{HashMap, HashSet};
use engine::model::Target;
use ipnet::IpNet;

use super::services::Services;

/// The endpoints of an address or a range, of any port or of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    range: IpNet,
    port: Option<NonZeroU16>,
}

/// Error: a text names no endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is neither ADDRESS, ADDRESS:PORT nor a range such as 10.244.1.0/24")]
pub struct EndpointsError;

impl FromStr for Endpoints {
    type Err = EndpointsError;

    fn from_str(text: &str) -> Result<Self, EndpointsError> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self { range: address.to_canonical().into(), port: None });
        }
        if let Ok(range) = text.parse() {
            return Ok(Self { range, port: None });
        }
        let socket: SocketAddr = text.parse().map_err(|_| EndpointsError)?;
        let port = Some(NonZeroU16::new(socket.port()).ok_or(EndpointsError)?);
        Ok(Self { range: socket.ip().to_canonical().into(), port })
    }
}

impl Endpoints {
    pub(super) fn contain(&self, target: Target) -> bool {
        self.range.contains(&target.address) && self.port.is_none_or(|port| port == target.port)
    }
}

/// Addresses of endpoints, by `namespace/name` of their service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfServices(HashMap<Box<str>, HashSet<IpAddr>>);

impl OfServices {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contain(&self, service: &str, target: Target) -> bool {
        self.0.get(service).is_some_and(|addresses| addresses.contains(&target.address))
    }
}

impl<'a> FromIterator<(&'a str, IpAddr)> for OfServices {
    fn from_iter<I: IntoIterator<Item = (&'a str, IpAddr)>>(endpoints: I) -> Self {
        let mut of_services: HashMap<Box<str>, HashSet<IpAddr>> = HashMap::default();
        for (service, address) in endpoints {
            match of_services.get_mut(service) {
                Some(addresses) => drop(addresses.insert(address)),
                None => drop(of_services.insert(service.into(), HashSet::from_iter([address]))),
            }
        }
        Self(of_services)
    }
}

/// What frontends must have in common; the default restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Their namespace.
    pub namespace: Option<String>,
    /// Their name or address contains this text, as in a search of the status page.
    pub part: Option<String>,
    /// They lead to one of these endpoints; any frontend if empty.
    pub endpoints: Vec<Endpoints>,
    /// They lead to one of these endpoints of their service.
    pub of_services: Option<OfServices>,
}

impl Filter {
    /// Returns whether it restricts anything.
    pub fn is_specific(&self) -> bool {
        *self != Self::default()
    }

    /// Removes the places of other frontends.
    pub fn apply(&self, services: &Services, places: &mut Vec<usize>) {
        if let Some(namespace) = &self.namespace {
            places.retain(|place| {
                let name = services.entries()[*place].name().0;
                name.split_once('/').is_some_and(|(own, _)| own == namespace)
            });
        }
        if let Some(part) = &self.part {
            let matching: HashSet<_> = services.search(part, usize::MAX).rows.into_iter().collect();
            places.retain(|place| matching.contains(place));
        }
        if !self.endpoints.is_empty() {
            places.retain(|place| {
                let mut targets = services.targets(&services.entries()[*place]);
                targets.any(|target| self.endpoints.iter().any(|it| it.contain(target)))
            });
        }
        if let Some(of_services) = &self.of_services {
            places.retain(|place| {
                let entry = &services.entries()[*place];
                let mut targets = services.targets(entry);
                targets.any(|target| of_services.contain(entry.name().0, target))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::sample::SampleServices;
    use super::*;

    fn endpoints(text: &str) -> Endpoints {
        text.parse().unwrap()
    }

    /// The labels and addresses of the sample's frontends that a filter leaves.
    fn left(filter: &Filter) -> Vec<String> {
        let sample = SampleServices::new();
        let services = sample.view().services;
        let mut places = (0..services.len()).collect();
        filter.apply(services, &mut places);
        let entries = places.into_iter().map(|place| &services.entries()[place]);
        entries.map(|it| format!("{} {}", it.label, services.address(&it.frontend))).collect()
    }

    #[test]
    fn endpoints_are_an_address_a_port_or_a_range() {
        for text in ["10.244.1.5", "10.244.1.5:8080", "[fd00::5]", "fd00::5", "10.244.0.0/16"] {
            assert!(text.parse::<Endpoints>().is_ok(), "{text}");
        }
        for text in ["", "web", "10.244.1.5:0", "10.244.1.5:http", "10.244.1.0/33"] {
            assert_eq!(text.parse::<Endpoints>(), Err(EndpointsError), "{text}");
        }
    }

    #[test]
    fn frontends_are_found_by_their_endpoints() {
        let web = ["default/web:http 10.96.0.10:80/tcp", "default/web:http *:30080/tcp"];
        let sticky = "default/sticky 10.96.0.20:80/tcp";
        let of = |texts: &[&str]| {
            let endpoints = texts.iter().copied().map(endpoints).collect();
            left(&Filter { endpoints, ..Filter::default() })
        };
        assert_eq!(of(&["10.244.1.5"]), web);
        assert_eq!(of(&["10.244.1.5:8080"]), web);
        assert!(of(&["10.244.1.5:8081"]).is_empty());
        assert_eq!(of(&["10.244.2.8", "10.244.1.0/24"]), [sticky, web[0], web[1]]);
        assert!(of(&["10.244.1.6"]).is_empty(), "it is draining");
        assert_eq!(of(&[]).len(), 4);
    }

    #[test]
    fn frontends_are_found_by_an_endpoint_of_their_service() {
        let of = |endpoints: &[(&str, &str)]| {
            let each = endpoints.iter().map(|(name, address)| (*name, address.parse().unwrap()));
            left(&Filter { of_services: Some(each.collect()), ..Filter::default() }).len()
        };
        assert_eq!(of(&[("default/web", "10.244.1.5"), ("default/web", "10.244.9.9")]), 2);
        assert_eq!(of(&[("default/other", "10.244.1.5")]), 0, "another service");
        assert_eq!(of(&[]), 0);
    }

    #[test]
    fn frontends_are_found_by_namespace_and_a_part_of_name_or_address() {
        let of = |namespace: Option<&str>, part: Option<&str>| {
            let (namespace, part) = (namespace.map(str::to_owned), part.map(str::to_owned));
            left(&Filter { namespace, part, ..Filter::default() }).len()
        };
        assert_eq!(of(Some("default"), None), 4);
        assert_eq!(of(Some("defaul"), None), 0);
        assert_eq!(of(None, Some("sti")), 1);
        assert_eq!(of(None, Some("30080")), 1);
        assert_eq!(of(Some("other"), Some("sti")), 0);
    }
}
