//! The sets and maps of one table, and where each kind of fact about a key is kept.
//!
//! A set is known by the kind of its keys and a bit: bit n of [`Fragment::sets`] says that the
//! key is a member of the set with that bit.
//!
//! [`Fragment::sets`]: super::Fragment::sets

use std::sync::Arc;

use super::affinity;
use super::counts::{Pick, Tree};
use super::key::KeyKind;
use crate::nft::{DecodedSet, Family, Selector, Set, SetData, SetFlags, Type};

/// Frontends with endpoints that are neither of the local policy nor plain; node ports with endpoints.
pub const WITH_ENDPOINTS: u64 = 1 << 0;
/// Frontends with endpoints to which nothing else applies, by the number of these: the first bit is
/// for one endpoint. They are not members of the sets of the tree.
pub const PLAIN: u64 = 0x1f_ffff << PLAIN_BIT;
/// Frontends that send traffic from outside to endpoints on this node only, and node ports that do.
pub const LOCAL_POLICY: u64 = 1 << 22;
/// Frontends whose packets are refused because there is no endpoint.
pub const REJECT: u64 = 1 << 23;
/// Frontends whose packets are dropped because there is no endpoint on this node.
pub const DROP: u64 = 1 << 24;
/// Frontends whose packets are masqueraded whatever their source.
pub const MASQUERADE: u64 = 1 << 25;
/// Frontends that only some sources may use.
pub const FIREWALL: u64 = 1 << 26;
/// The address is a cluster IP.
pub const CLUSTER_IP: u64 = 1 << 0;
/// The address accepts traffic to node ports.
pub const NODE_PORT_IP: u64 = 1 << 1;
/// The endpoint is on this node.
pub const HAIRPIN: u64 = 1 << 0;

/// The first of the bits [`PLAIN`].
const PLAIN_BIT: u32 = 1;

/// What the map `service-ips` says of a frontend.
pub(super) const SERVED: u64 = WITH_ENDPOINTS | LOCAL_POLICY | PLAIN;

/// What maps say of frontends or node ports that have no endpoint.
pub(super) const UNSERVED: u64 = REJECT | DROP;

/// Elements of these sets carry `namespace/name:port` as their comment.
const LABELLED: u64 = SERVED | UNSERVED;

/// Bit of the first set of the tree that counts all endpoints, and of the one for local ones.
const TREE_BITS: [u32; 2] = [27, 47];

/// Most endpoints of a service port that are told apart, in the cluster and on this node.
const LIMITS: [u32; 2] = [65_536, 1_024];

/// The key of a frontend in packets.
pub const FRONTEND: &[Selector] = &[Selector::Daddr, Selector::L4Proto, Selector::Dport];
/// The key of a node port in packets.
pub const NODE_PORT: &[Selector] = &[Selector::L4Proto, Selector::Dport];
/// The key of a session in packets.
pub const SESSION: &[Selector] = &[Selector::L4Proto, Selector::Priority];

/// The trees of frontends: all endpoints, endpoints on this node.
pub(super) const FRONTEND_TREES: [Tree; 2] = [
    Tree {
        root: "pick-endpoint",
        map: "endpoints",
        key: FRONTEND,
        limit: LIMITS[0],
        pick: Pick::Endpoint { sessions: "affinity-services" },
    },
    Tree {
        root: "pick-local-endpoint",
        map: "local-endpoints",
        key: FRONTEND,
        limit: LIMITS[1],
        pick: Pick::Endpoint { sessions: "affinity-local-services" },
    },
];
/// The trees of node ports.
pub(super) const NODE_PORT_TREES: [Tree; 2] = [
    Tree {
        root: "pick-nodeport",
        map: "nodeport-endpoints",
        key: NODE_PORT,
        limit: LIMITS[0],
        pick: Pick::Endpoint { sessions: "affinity-nodeports" },
    },
    Tree {
        root: "pick-local-nodeport",
        map: "local-nodeport-endpoints",
        key: NODE_PORT,
        limit: LIMITS[1],
        pick: Pick::Endpoint { sessions: "affinity-local-nodeports" },
    },
];

/// The sets and maps of one table.
#[derive(Debug)]
pub struct Layout {
    /// The table's family.
    pub family: Family,
    /// In the order of creation: the kernel finds a set by walking a list, so the ones that most
    /// updates name come first.
    sets: Vec<Placed>,
    counts: [Vec<u64>; 2],
    /// The first counts of the ranges that memberships tell apart, for all endpoints.
    bounds: Vec<u32>,
    session_counts: Vec<u64>,
}

/// A set with its place in fragments.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The set as nftables knows it.
    pub set: Arc<Set>,
    /// What its keys are.
    pub kind: KeyKind,
    /// What an element says.
    pub role: Role,
}

impl Placed {
    /// Whether a set found in the kernel is this one.
    pub fn is(&self, found: &DecodedSet) -> bool {
        let same = |set: &Set| {
            (&set.key, &set.data, set.flags) == (&self.set.key, &self.set.data, self.set.flags)
        };
        found.name == self.set.name && found.set.as_ref().is_some_and(same)
    }
}

/// What an element of a set says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The key is a member; the number of the bit.
    Member(u32),
    /// Which of several things holds, by the data: their bits. See [`choice`].
    OneOf(u64),
    /// The endpoint in one slot: index of the tree.
    Slot(usize),
    /// A range of sources that may use the frontend.
    SourceRange,
    /// The session of a frontend: index of its tree.
    Session(usize),
    /// Address and port of an endpoint of a session.
    SessionEndpoint,
    /// The clients of a session are remembered so many seconds.
    Timeout(u32),
    /// What clients remember; packets write it.
    Clients,
}

impl Layout {
    /// The layout of the table of one family.
    pub fn new(family: Family) -> Self {
        let mut sets = Vec::new();
        for (kind, trees) in
            [(KeyKind::Frontend, FRONTEND_TREES), (KeyKind::NodePort, NODE_PORT_TREES)]
        {
            let maps = trees.iter().enumerate();
            sets.extend(maps.map(|(i, tree)| Placed {
                set: map(family, kind, tree.map),
                kind,
                role: Role::Slot(i),
            }));
        }
        for (kind, name, bits, comment) in CHOICES {
            let (key, class) = (key_types(family, kind), vec![Type::ClassId]);
            let set = Arc::new(values(name, key, class, comment));
            sets.push(Placed { set, kind, role: Role::OneOf(bits) });
        }
        for (kind, name, members, comment) in MEMBER_SETS {
            let role = Role::Member(members.trailing_zeros());
            sets.push(Placed { set: set(family, kind, name.to_owned(), comment), kind, role });
        }
        sets.push(source_ranges(family));
        for (kind, trees) in
            [(KeyKind::Frontend, FRONTEND_TREES), (KeyKind::NodePort, NODE_PORT_TREES)]
        {
            for (tree, first) in trees.iter().zip(TREE_BITS) {
                sets.extend(tree.bounds().into_iter().zip(first..).map(|(bound, bit)| Placed {
                    set: set(family, kind, tree.set_name(bound), ""),
                    kind,
                    role: Role::Member(bit),
                }));
            }
        }
        sets.extend(affinity_sets(family));
        let counts = [0, 1].map(|i| FRONTEND_TREES[i].membership_table());
        let bounds = [vec![1], FRONTEND_TREES[0].bounds()].concat();
        Self { family, sets, counts, bounds, session_counts: affinity::TREE.membership_table() }
    }

    /// All sets and maps in the order of creation, without those of [`Role::Timeout`].
    pub fn sets(&self) -> &[Placed] {
        &self.sets
    }

    /// Where in [`Layout::sets`] the set is that holds `role` of keys of this kind.
    ///
    /// Sets of timeouts come after all others, by their seconds.
    pub fn position(&self, kind: KeyKind, role: Role) -> Option<usize> {
        if let Role::Timeout(seconds) = role {
            return usize::try_from(seconds).ok().map(|seconds| self.sets.len() + seconds);
        }
        self.sets.iter().position(|placed| placed.kind == kind && placed.role == role)
    }

    /// In what kind of set the bit of a fragment of this kind stands.
    pub fn role_of(&self, kind: KeyKind, bit: u32) -> Role {
        let choices = CHOICES.iter().filter(|(of, ..)| *of == kind).map(|(_, _, bits, _)| *bits);
        let choice = { choices }.find(|bits| bits >> bit & 1 == 1);
        choice.map_or(Role::Member(bit), Role::OneOf)
    }

    /// The set at a position that [`Layout::position`] tells.
    pub fn set_at(&self, position: usize) -> Arc<Set> {
        match self.sets.get(position) {
            Some(placed) => Arc::clone(&placed.set),
            None => {
                let seconds = u32::try_from(position - self.sets.len()).unwrap_or(u32::MAX);
                self.timeout_set(seconds).set
            }
        }
    }

    /// The set of this name.
    pub fn by_name(&self, name: &str) -> Option<Placed> {
        let fixed = self.sets.iter().find(|placed| placed.set.name == name).cloned();
        fixed.or_else(|| affinity::timeout_of_name(name).map(|seconds| self.timeout_set(seconds)))
    }

    /// The set of sessions whose clients are remembered so many seconds.
    pub fn timeout_set(&self, seconds: u32) -> Placed {
        let name = affinity::timeout_name(seconds);
        let comment = "sessions whose clients are remembered so long";
        let kind = KeyKind::Session;
        Placed { set: set(self.family, kind, name, comment), kind, role: Role::Timeout(seconds) }
    }

    /// Memberships that tell the number of endpoints, in all and on this node.
    pub fn count_memberships(&self, all: usize, local: usize) -> u64 {
        let of = |tree: usize, count: usize| {
            let leaf = super::counts::leaf_of(count, LIMITS[tree]);
            leaf.map_or(0, |leaf| self.counts[tree][leaf] << TREE_BITS[tree])
        };
        of(0, all) | of(1, local)
    }

    /// The bit of a frontend with so many endpoints to which nothing else applies.
    pub fn plain(&self, count: usize) -> u64 {
        let leaf = super::counts::leaf_of(count, LIMITS[0]);
        leaf.map_or(0, |leaf| 1 << (PLAIN_BIT as usize + leaf))
    }

    /// Bits that tell other numbers of endpoints, and else the same.
    pub fn with_counts(&self, sets: u64, all: usize, local: usize) -> u64 {
        const COUNTS: u64 = PLAIN | u64::MAX << TREE_BITS[0];
        let counts = match sets & PLAIN {
            0 => self.count_memberships(all, local),
            _ => self.plain(all),
        };
        sets & !COUNTS | counts
    }

    /// The numbers of endpoints that lead to these bits: the least and the most. `None` for a frontend
    /// or node port without endpoints, and for bits that no number leads to.
    pub fn endpoint_counts(&self, sets: u64) -> Option<[u32; 2]> {
        let leaf = match (sets & PLAIN, sets & (WITH_ENDPOINTS | LOCAL_POLICY)) {
            (0, 0) => return None,
            (0, _) => {
                let tree = sets >> TREE_BITS[0] & ((1 << (TREE_BITS[1] - TREE_BITS[0])) - 1);
                self.counts[0].iter().position(|memberships| *memberships == tree)?
            }
            (plain, _) if plain.is_power_of_two() => (plain.trailing_zeros() - PLAIN_BIT) as usize,
            _ => return None,
        };
        let most = self.bounds.get(leaf + 1).map_or(LIMITS[0], |next| next - 1);
        Some([*self.bounds.get(leaf)?, most])
    }

    /// Memberships that tell the number of endpoints of a session.
    pub fn session_memberships(&self, count: usize) -> u64 {
        let leaf = super::counts::leaf_of(count, affinity::LIMIT);
        leaf.map_or(0, |leaf| self.session_counts[leaf] << TREE_BITS[0])
    }
}

/// The packet priority that stands for a bit among others, of which a key has one: `1:0` for the
/// lowest, `1:1` for the next.
pub fn choice(bits: u64, bit: u32) -> u32 {
    (1 << 16) + (bits & !(u64::MAX << bit)).count_ones()
}

/// The bit among others that a packet priority stands for.
pub fn bit_of_choice(bits: u64, class_id: u32) -> Option<u32> {
    (0..u64::BITS).find(|bit| bits >> bit & 1 == 1 && choice(bits, *bit) == class_id)
}

/// Whether elements of the set with this bit carry a comment.
pub fn is_labelled(kind: KeyKind, bit: u32) -> bool {
    matches!(kind, KeyKind::Frontend | KeyKind::NodePort) && LABELLED & (1 << bit) != 0
}

/// Most endpoints of a service port that are used, in all and on this node.
pub fn endpoint_limits() -> [usize; 2] {
    LIMITS.map(|limit| limit as usize)
}

/// Maps whose data say which of several bits a key has. They are asked by every packet of a new flow,
/// so that one answer is enough for most.
const CHOICES: [(KeyKind, &str, u64, &str); 3] = [
    (
        KeyKind::Frontend,
        "service-ips",
        SERVED,
        "service addresses by their number of endpoints; 1:0 and 1:16: others apart",
    ),
    (
        KeyKind::Frontend,
        "no-endpoint-services",
        UNSERVED,
        "service addresses without endpoints: 1:0 refused, 1:1 dropped",
    ),
    (
        KeyKind::NodePort,
        "no-endpoint-nodeports",
        UNSERVED,
        "node ports without endpoints: 1:0 refused, 1:1 dropped",
    ),
];

const MEMBER_SETS: [(KeyKind, &str, u64, &str); 7] = [
    (KeyKind::Address, "cluster-ips", CLUSTER_IP, "active ClusterIPs"),
    (KeyKind::Frontend, "masquerade-ips", MASQUERADE, "service addresses with masquerade for all"),
    (
        KeyKind::Frontend,
        "firewall-ips",
        FIREWALL,
        "service addresses that are subject to source-ranges",
    ),
    (KeyKind::NodePort, "service-nodeports", WITH_ENDPOINTS, "node ports with endpoints"),
    (
        KeyKind::NodePort,
        "local-policy-nodeports",
        LOCAL_POLICY,
        "node ports with external traffic policy Local",
    ),
    (KeyKind::Address, "nodeport-ips", NODE_PORT_IP, "addresses that accept node port traffic"),
    (KeyKind::Hairpin, "hairpin-connections", HAIRPIN, "endpoints that reach themselves"),
];

fn key_types(family: Family, kind: KeyKind) -> Vec<Type> {
    let address = match family {
        Family::Ip => Type::Ipv4Addr,
        Family::Ip6 => Type::Ipv6Addr,
    };
    match kind {
        KeyKind::Frontend => vec![address, Type::InetProto, Type::InetService],
        KeyKind::NodePort => vec![Type::InetProto, Type::InetService],
        KeyKind::Address => vec![address],
        KeyKind::Hairpin => vec![address, address, Type::InetProto, Type::InetService],
        KeyKind::Session => vec![Type::InetProto, Type::ClassId],
    }
}

fn set(family: Family, kind: KeyKind, name: String, comment: &str) -> Arc<Set> {
    Arc::new(Set {
        name: name.into(),
        key: key_types(family, kind),
        data: None,
        flags: SetFlags::default(),
        timeout: None,
        size: None,
        comment: (!comment.is_empty()).then(|| comment.to_owned()),
    })
}

/// Whole sets of ranges over concatenations are copied at each commit that touches them
/// (`nft_pipapo_commit`), so this one holds nothing that changes often.
fn source_ranges(family: Family) -> Placed {
    let mut key = key_types(family, KeyKind::Frontend);
    key.extend(key_types(family, KeyKind::Address));
    let set = Set {
        name: "source-ranges".into(),
        key,
        flags: SetFlags { interval: true, ..SetFlags::default() },
        comment: Some("sources that may use a service address".to_owned()),
        ..Set::default()
    };
    Placed { set: Arc::new(set), kind: KeyKind::Frontend, role: Role::SourceRange }
}

fn map(family: Family, kind: KeyKind, name: &'static str) -> Arc<Set> {
    let mut key = key_types(family, kind);
    key.push(Type::Integer);
    Arc::new(Set {
        name: name.into(),
        key,
        data: Some(SetData::Values(target_types(family))),
        comment: Some("endpoint in each slot of a frontend".to_owned()),
        ..Set::default()
    })
}

fn target_types(family: Family) -> Vec<Type> {
    [key_types(family, KeyKind::Address), vec![Type::InetService]].concat()
}

fn values(name: &'static str, key: Vec<Type>, data: Vec<Type>, comment: &str) -> Set {
    Set {
        name: name.into(),
        key,
        data: Some(SetData::Values(data)),
        comment: Some(comment.to_owned()),
        ..Set::default()
    }
}

/// Most clients that are remembered in a table, of all services together. A client beyond that is
/// served and not remembered. The kernel takes about 100 bytes for each.
const CLIENTS: u32 = 4_194_304;

fn affinity_sets(family: Family) -> Vec<Placed> {
    let place = |kind, role, set| Placed { set: Arc::new(set), kind, role };
    let class = || vec![Type::ClassId];
    let mut sets = Vec::new();
    for (kind, trees) in [(KeyKind::Frontend, FRONTEND_TREES), (KeyKind::NodePort, NODE_PORT_TREES)]
    {
        for (i, tree) in trees.into_iter().enumerate() {
            let Pick::Endpoint { sessions } = tree.pick else { continue };
            let comment = "sessions of frontends with ClientIP affinity";
            let set = values(sessions, key_types(family, kind), class(), comment);
            sets.push(place(kind, Role::Session(i), set));
        }
    }
    let session = || key_types(family, KeyKind::Session);
    let slots = [session(), vec![Type::Integer]].concat();
    let slots = values(affinity::TREE.map, slots, class(), "endpoint in each slot of a session");
    sets.push(place(KeyKind::Session, Role::Slot(0), slots));
    let comment = "endpoints that clients remember";
    let endpoints = values(affinity::ENDPOINTS, session(), target_types(family), comment);
    sets.push(place(KeyKind::Session, Role::SessionEndpoint, endpoints));
    let client = [class(), key_types(family, KeyKind::Address)].concat();
    let clients = values(affinity::CLIENTS, client, class(), "endpoint of each client");
    let flags = SetFlags { dynamic: true, timeout: true, ..SetFlags::default() };
    let clients = Set { flags, size: Some(CLIENTS), ..clients };
    sets.push(place(KeyKind::Session, Role::Clients, clients));
    let tree = &affinity::TREE;
    sets.extend(tree.bounds().into_iter().zip(TREE_BITS[0]..).map(|(bound, bit)| Placed {
        set: set(family, KeyKind::Session, tree.set_name(bound), ""),
        kind: KeyKind::Session,
        role: Role::Member(bit),
    }));
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_tell_the_number_of_endpoints_as_far_as_the_tree_does() {
        let layout = Layout::new(Family::Ip);
        let told = |all, local| {
            layout.endpoint_counts(WITH_ENDPOINTS | layout.count_memberships(all, local))
        };
        for count in 1..=8 {
            assert_eq!(told(count as usize, 300), Some([count, count]));
        }
        assert_eq!(told(9, 0), Some([9, 16]));
        assert_eq!(told(5_000, 1), Some([4_097, 8_192]));
        assert_eq!(told(70_000, 2), Some([32_769, 65_536]));
        assert_eq!(layout.endpoint_counts(u64::MAX), None);
        assert_eq!(layout.endpoint_counts(REJECT), None);
        for (count, range) in [(3, [3, 3]), (9, [9, 16]), (70_000, [32_769, 65_536])] {
            assert_eq!(layout.endpoint_counts(layout.plain(count)), Some(range));
        }
    }

    #[test]
    fn a_choice_is_told_as_a_priority_and_back() {
        let priorities =
            [(WITH_ENDPOINTS, 0x1_0000), (1 << PLAIN_BIT, 0x1_0001), (LOCAL_POLICY, 0x1_0016)];
        for (bits, class_id) in priorities {
            assert_eq!(choice(SERVED, bits.trailing_zeros()), class_id);
            assert_eq!(bit_of_choice(SERVED, class_id), Some(bits.trailing_zeros()));
        }
        for unknown in [0, 1, 0x1_0017, u32::MAX] {
            assert_eq!(bit_of_choice(SERVED, unknown), None);
        }
    }

    #[test]
    fn every_number_of_endpoints_has_a_bit() {
        let layout = Layout::new(Family::Ip);
        assert_eq!(layout.plain(1), 1 << PLAIN_BIT);
        assert_eq!(layout.plain(LIMITS[0] as usize), 1 << (63 - PLAIN.leading_zeros()));
        assert_eq!(layout.plain(0), 0);
    }

    #[test]
    fn every_set_has_bits_of_its_own() {
        for layout in [Layout::new(Family::Ip), Layout::new(Family::Ip6)] {
            let mut taken = ahash::HashMap::<KeyKind, u64>::default();
            for placed in layout.sets() {
                let bits = match placed.role {
                    Role::Member(bit) => 1_u64.checked_shl(bit).unwrap(),
                    Role::OneOf(bits) => bits,
                    Role::Slot(_) | Role::SourceRange | Role::Session(_) => continue,
                    Role::SessionEndpoint | Role::Timeout(_) | Role::Clients => continue,
                };
                let taken = taken.entry(placed.kind).or_default();
                assert_eq!(*taken & bits, 0, "{}", placed.set.name);
                *taken |= bits;
            }
        }
    }
}
