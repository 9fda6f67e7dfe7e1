//! Weights: the share of new connections that each endpoint of a service gets.

use std::sync::Arc;

use super::target::{Target, TargetList};

/// Share of connections of an endpoint relative to the others; 0 means none.
pub type Weight = u16;

/// Weights of a service's endpoints by their names: annotation `deltaproxy.io/weights`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights(Box<[Rule]>);

/// Weight of the endpoints with a matching name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    named: Named,
    /// Name pattern, in which `*` matches any characters.
    pattern: Box<str>,
    weight: Weight,
}

/// Name of an endpoint that a rule is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Zone,
    Node,
    Pod,
    /// None: the rule applies to all endpoints.
    Any,
}

/// Names of an endpoint; an absent one is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointNames {
    /// `zone`
    pub zone: Arc<str>,
    /// `nodeName`
    pub node: Arc<str>,
    /// `targetRef.name`
    pub pod: Arc<str>,
}

/// Name of a node, which many endpoints share. It takes one word for each of them, half of an
/// `Arc<str>`.
pub type NodeName = Arc<Arc<str>>;

/// Weight and names of a slice's endpoints: for weights, and for direct return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighing {
    /// Weight of all endpoints: annotation `deltaproxy.io/weight`.
    pub weight: Option<Weight>,
    /// Names of the endpoints, in their order; empty if not kept.
    pub names: Box<[EndpointNames]>,
    /// `nodeName` of the endpoints, in their order; empty if not kept, or if `names` has them.
    pub nodes: Box<[NodeName]>,
}

/// Most rules of a service, more than a person writes. Each is compared with each endpoint.
const MOST_RULES: usize = 64;

impl Weights {
    /// Parses a list such as `zone/east-*=3, node/n7=0, pod/web-canary-*=1, *=10`.
    ///
    /// # Errors
    /// The text is not such a list; the error states what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let rules: Vec<_> = entries.map(Rule::parse).collect::<Result<_, _>>()?;
        match rules.len() {
            1..=MOST_RULES => Ok(Self(rules.into())),
            _ => Err(format!("expected 1 to {MOST_RULES} rules such as zone/east=3")),
        }
    }

    /// Returns whether a rule depends on names of endpoints.
    pub fn need_names(&self) -> bool {
        self.0.iter().any(|rule| rule.named != Named::Any)
    }

    /// Returns the weight of the first rule that matches `names`; 1 if none does.
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
        let mut pattern = pattern.to_owned();
        // Each star costs time for each endpoint.
        pattern.retain({
            let mut former = None;
            move |letter| (former.replace(letter), letter) != (Some('*'), '*')
        });
        if pattern.is_empty() || pattern.len() > MOST_PATTERN {
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

/// Longest pattern, in bytes: as long as the longest name.
const MOST_PATTERN: usize = 253;

/// Longest part of a wrong entry in a message, in characters.
const MAX_SHOWN: usize = 60;

/// Returns whether a name matches a pattern, in which `*` matches any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    // The part between two stars may match at its first occurrence.
    let mut parts = rest.split('*');
    let last = parts.next_back().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(last)
}

impl Weighing {
    /// Returns whether weights may depend on it.
    pub(super) fn is_weighed(&self) -> bool {
        self.weight.is_some() || !self.names.is_empty()
    }

    /// Returns the name of the node of the endpoint at a position, if it is kept; an absent one is
    /// empty.
    pub(super) fn node(&self, position: usize) -> Option<&Arc<str>> {
        let alone = self.nodes.get(position).map(|node| &**node);
        alone.or_else(|| self.names.get(position).map(|names| &names.node))
    }

    /// Returns the weight of the endpoint at a position: that of the slice, else by the rules of
    /// its service.
    pub(super) fn of(&self, position: usize, weights: Option<&Weights>) -> Weight {
        self.weight.unwrap_or_else(|| {
            let unnamed = EndpointNames::default();
            weights.map_or(1, |it| it.of(self.names.get(position).unwrap_or(&unnamed)))
        })
    }
}

/// Removes the endpoints of weight 0 and returns the weights of the others, divided by their
/// greatest common divisor. Returns `None` if these are equal, or if all weights are 0: weights then
/// have no effect.
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
    let mut weights: Vec<_> = weights.into_iter().filter(|weight| *weight > 0).collect();
    let divisor = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    weights.iter_mut().for_each(|weight| *weight /= divisor);
    Some(weights).filter(|weights| weights.iter().any(|it| *it != 1))
}

fn greatest_common_divisor(a: Weight, b: Weight) -> Weight {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(zone: &str, node: &str, pod: &str) -> EndpointNames {
        EndpointNames { zone: zone.into(), node: node.into(), pod: pod.into() }
    }

    #[test]
    fn the_first_matching_rule_gives_the_weight_and_1_is_the_default() {
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
    fn a_star_matches_any_characters() {
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
    fn an_invalid_weight_list_is_refused_with_the_expected_syntax() {
        for text in
            ["web=1", "zone/=1", "zone/a", "zone/a=-1", "zone/a=65536", "zone/a=x", "host/a=1"]
        {
            let error = Weights::parse(text).unwrap_err();
            assert!(error.contains("expected zone/NAME=N") && error.contains(text), "{error}");
        }
        let long = format!("zone/{}=1", "a*".repeat(127));
        assert!(Weights::parse(&long).unwrap_err().contains("expected zone/NAME=N"));
        assert!(Weights::parse(&format!("zone/{}=1", "a".repeat(253))).is_ok());
        let stars = format!("zone/{}a{}=1", "*".repeat(99_999), "*".repeat(99_999));
        assert_eq!(Weights::parse(&stars), Weights::parse("zone/*a*=1"));
        assert!(Weights::parse(" , ").unwrap_err().contains("expected 1 to 64 rules"));
        assert!(Weights::parse(&"*=1,".repeat(65)).is_err());
    }

    fn target(port: u16) -> Target {
        Target { address: [10, 0, 0, 1].into(), port: std::num::NonZeroU16::new(port).unwrap() }
    }

    #[test]
    fn endpoints_of_weight_0_are_left_out_unless_all_are() {
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
        check([2, 4, 6], (&[1, 2, 3], Some(&[1, 2, 3])));
        check([0, 4, 6], (&[2, 3], Some(&[2, 3])));
    }

    #[test]
    fn equal_weights_have_no_effect_however_large() {
        let mut targets: TargetList = (1..=4).map(target).collect();
        assert_eq!(weigh(&mut targets, |_| 16_000), None);
        assert_eq!(targets.len(), 4);
        assert_eq!(weigh(&mut targets, |it| if it.port.get() == 1 { 0 } else { 65_535 }), None);
        assert_eq!(targets.len(), 3);
    }
}
