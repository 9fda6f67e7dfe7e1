//! Which share of new connections each endpoint of a service gets.

use std::sync::Arc;

use super::stored::StoredSlice;
use super::{Target, TargetList};

/// How much of the connections an endpoint gets beside others; 0 is none.
pub type Weight = u16;

/// The weights of a service's endpoints by their names: annotation `deltaproxy.io/weights`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights(Box<[Rule]>);

/// Gives a weight to the endpoints with such a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    named: Named,
    /// A name, in which `*` stands for any letters.
    pattern: Box<str>,
    weight: Weight,
}

/// Which name of an endpoint counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Zone,
    Node,
    Pod,
    /// None: the rule is for all endpoints.
    Any,
}

/// The names of an endpoint; an absent one is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointNames {
    /// `zone`
    pub zone: Arc<str>,
    /// `nodeName`
    pub node: Arc<str>,
    /// `targetRef.name`
    pub pod: Arc<str>,
}

/// What a slice says about the weights of its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighing {
    /// The weight of all of them: annotation `deltaproxy.io/weight`.
    pub weight: Option<Weight>,
    /// Their names, in their order; empty if they are not kept.
    pub names: Box<[EndpointNames]>,
}

/// More rules than a person writes; each is compared with each endpoint.
const MOST_RULES: usize = 64;

impl Weights {
    /// Reads `zone/east-*=3, node/n7=0, pod/web-canary-*=1, *=10`; the error is the expectation.
    ///
    /// # Errors
    /// It is not such a list.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let rules: Vec<_> = entries.map(Rule::parse).collect::<Result<_, _>>()?;
        match rules.len() {
            1..=MOST_RULES => Ok(Self(rules.into())),
            _ => Err(format!("expected 1 to {MOST_RULES} rules such as zone/east=3")),
        }
    }

    /// Whether names of endpoints count.
    pub fn need_names(&self) -> bool {
        self.0.iter().any(|rule| rule.named != Named::Any)
    }

    /// The weight by the first rule for such an endpoint; 1 if there is none.
    fn of(&self, names: &EndpointNames) -> Weight {
        self.0.iter().find(|rule| rule.is_for(names)).map_or(1, |rule| rule.weight)
    }
}

impl Rule {
    fn parse(entry: &str) -> Result<Self, String> {
        let expected = || {
            let shown: String = entry.chars().take(MAX_SHOWN).collect();
            format!(
                "{shown:?} is no weight: expected zone/NAME=N, node/NAME=N, pod/NAME=N or *=N, \
                 with N from 0 to {}",
                Weight::MAX
            )
        };
        let (name, weight) = entry.rsplit_once('=').ok_or_else(expected)?;
        let weight = weight.trim().parse().map_err(|_| expected())?;
        let (named, pattern) = match name.trim().split_once('/') {
            Some(("zone", pattern)) => (Named::Zone, pattern),
            Some(("node", pattern)) => (Named::Node, pattern),
            Some(("pod", pattern)) => (Named::Pod, pattern),
            None if name.trim() == "*" => (Named::Any, "*"),
            Some(_) | None => return Err(expected()),
        };
        if pattern.is_empty() {
            return Err(expected());
        }
        Ok(Self { named, pattern: pattern.into(), weight })
    }

    fn is_for(&self, names: &EndpointNames) -> bool {
        let name = match self.named {
            Named::Zone => &names.zone,
            Named::Node => &names.node,
            Named::Pod => &names.pod,
            Named::Any => return true,
        };
        !name.is_empty() && matches(&self.pattern, name)
    }
}

/// The longest part of a wrong entry that a message repeats, in characters.
const MAX_SHOWN: usize = 60;

/// Whether a name is of a pattern, in which `*` stands for any letters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    // What comes between two stars may come as early as possible.
    let mut parts = rest.split('*');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(last)
}

impl Weighing {
    /// The weight of the endpoint at a position, by the slice or else by the rules of its service.
    pub(super) fn of(&self, position: usize, weights: Option<&Weights>) -> Weight {
        self.weight.unwrap_or_else(|| {
            let unnamed = EndpointNames::default();
            weights.map_or(1, |it| it.of(self.names.get(position).unwrap_or(&unnamed)))
        })
    }
}

/// The weight of an endpoint of a slice.
pub(super) fn weight_of(slice: &StoredSlice, position: usize, weights: Option<&Weights>) -> Weight {
    match &slice.weighing {
        Some(weighing) => weighing.of(position, weights),
        None => Weighing::default().of(position, weights),
    }
}

/// Leaves out the endpoints of weight 0; returns the weights of the others. `None` if each is 1, or
/// all are 0: then they do not count.
pub(super) fn weigh(
    targets: &mut TargetList,
    weight: impl Fn(&Target) -> Weight,
) -> Option<Vec<Weight>> {
    let weights: Vec<_> = targets.iter().map(weight).collect();
    if weights.iter().all(|it| *it == 1) || weights.iter().all(|it| *it == 0) {
        return None;
    }
    let mut left = weights.iter();
    targets.retain(|_| left.next().is_none_or(|weight| *weight > 0));
    let weights: Vec<_> = weights.into_iter().filter(|weight| *weight > 0).collect();
    Some(weights).filter(|weights| weights.iter().any(|it| *it != 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(zone: &str, node: &str, pod: &str) -> EndpointNames {
        EndpointNames { zone: zone.into(), node: node.into(), pod: pod.into() }
    }

    #[test]
    fn the_first_rule_for_an_endpoint_counts_and_1_without_one() {
        let weights = Weights::parse(" pod/web-canary-*=1, zone/east=3,node/n7 = 0 ,").unwrap();
        let of = |zone, node, pod| weights.of(&names(zone, node, pod));
        assert_eq!(of("east", "n7", "web-canary-x"), 1);
        assert_eq!(of("east", "n7", "web-x"), 3);
        assert_eq!(of("west", "n7", "web-x"), 0);
        assert_eq!(of("west", "n8", "web-x"), 1);
        assert_eq!(of("", "", ""), 1);
        assert!(weights.need_names());
        let all = Weights::parse("*=7").unwrap();
        assert_eq!((all.of(&EndpointNames::default()), all.need_names()), (7, false));
    }

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, name, expected) in [
            ("web", "web", true),
            ("web", "web-1", false),
            ("web-*", "web-", true),
            ("web-*", "my-web-1", false),
            ("*-1", "web-1", true),
            ("*-1", "web-1-2", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("a*b*b", "ab", false),
            ("a*a", "a", false),
            ("*", "x", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_list_of_weights_is_refused_with_the_expectation() {
        for text in
            ["web=1", "zone/=1", "zone/a", "zone/a=-1", "zone/a=65536", "zone/a=x", "host/a=1"]
        {
            let error = Weights::parse(text).unwrap_err();
            assert!(error.contains("expected zone/NAME=N") && error.contains(text), "{error}");
        }
        assert!(Weights::parse(" , ").unwrap_err().contains("expected 1 to 64 rules"));
        assert!(Weights::parse(&"*=1,".repeat(65)).is_err());
    }

    #[test]
    fn endpoints_of_weight_0_are_left_out_unless_all_are() {
        let target = |port| Target {
            address: [10, 0, 0, 1].into(),
            port: std::num::NonZeroU16::new(port).unwrap(),
        };
        let check = |weights: [Weight; 3], expected: (&[u16], Option<&[Weight]>)| {
            let mut targets: TargetList = (1..=3).map(target).collect();
            let found = weigh(&mut targets, |it| weights[usize::from(it.port.get()) - 1]);
            let ports: Vec<_> = targets.iter().map(|it| it.port.get()).collect();
            assert_eq!((ports.as_slice(), found.as_deref()), expected, "{weights:?}");
        };
        check([1, 1, 1], (&[1, 2, 3], None));
        check([0, 0, 0], (&[1, 2, 3], None));
        check([1, 0, 1], (&[1, 3], None));
        check([2, 0, 5], (&[1, 3], Some(&[2, 5])));
        check([2, 2, 2], (&[1, 2, 3], Some(&[2, 2, 2])));
    }
}
