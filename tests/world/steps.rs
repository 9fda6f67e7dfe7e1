//! What may happen, in random order.

use std::time::Duration;

use engine::counters::Counters;
use engine::flowtable::Offload;
use engine::model::{EndedSettings, Event, ExternalAddresses, Resource};
use engine::routing::{DirectMode, DirectReturn, LeastConnections, LocalDetection, Routing};
use nft::Errno;
use proptest::collection::vec;
use proptest::prelude::*;

use super::kernel::Mishap;
use super::objects::event;

/// A whole run of the daemon, restarts included.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Least time between two commits.
    pub(crate) min_interval: Duration,
    /// Whether the kernel keeps other programs from changing our tables.
    pub(crate) owned: bool,
    pub(crate) options: Options,
    /// Whether there are no tables at first.
    pub(crate) without_tables: bool,
    pub(crate) steps: Vec<Step>,
}

/// Parts of the daemon that are off by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Nodes hand packets to each other.
    pub(crate) direct_return: bool,
    /// Flowtables have the devices of the namespace.
    pub(crate) flowtable: bool,
}

/// Something that happens, and how many requests the kernel answers after it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) happens: Happening,
    pub(crate) answers: u8,
}

#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The source sends these in one batch.
    Events(Vec<Event>),
    /// The source lists a resource again; objects whose bit is set are gone.
    ListedAgain { resource: Resource, missing: u8 },
    /// Nodes whose bit is set are on no link of this one.
    Links(u8),
    /// Devices whose bit is set exist. The kernel refuses the last one as a device of a flowtable.
    Devices(u8),
    /// The node has so many addresses.
    LocalAddresses(u8),
    /// Time passes.
    Time(Duration),
    /// The next commit goes wrong.
    Mishap(Mishap),
    /// So many of the next reads break off.
    ReadsBreakOff(u8),
    /// The kernel refuses every frontend of this cluster IP.
    Refusal(u8),
    /// Another program changes our tables.
    Damage(u8),
    /// An element of our tables is lost without a notice.
    Lost(u8),
    /// Another program deletes an element of our tables.
    Deleted(u8),
    /// Another program gives an element of our tables the data of another one, or another key.
    Forged(u8),
    /// Another program changes its own table.
    ForeignCommit,
    /// Another program owns our table of this number.
    OwnedElsewhere(u8),
    /// No other program owns them any more.
    OwnerGone,
    /// The daemon is killed and another one started with this configuration. What it asked of the
    /// kernel is done or not.
    Restart { routing: u8, is_done: bool },
    /// The kernel takes transactions of so many bytes.
    MaxBatch(usize),
    /// The connections of services with scheduler lc are counted, if the daemon asked for it.
    Counted(Vec<u8>),
    /// Nothing goes wrong any more until all is settled; then the tables are checked.
    Check,
}

fn happening() -> impl Strategy<Value = Happening> {
    let resource = prop::sample::select(Resource::ALL.to_vec());
    let errno =
        prop::sample::select(vec![Errno::ENOMEM, Errno::EMSGSIZE, Errno::EINVAL, Errno::EBUSY]);
    let mishap = prop_oneof![
        2 => errno.prop_map(Mishap::Refused),
        1 => prop::sample::select(vec![Errno::EMSGSIZE, Errno::ENOBUFS]).prop_map(Mishap::NotSent),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(is_applied, is_looked_up)| Mishap::AnswerLost { is_applied, is_looked_up }),
    ];
    let millis = prop_oneof![0u64..100, 400u64..2_000, Just(3_600_000)];
    prop_oneof![
        30 => vec(event(), 1..5).prop_map(Happening::Events),
        3 => (resource, any::<u8>()).prop_map(|(resource, missing)| Happening::ListedAgain { resource, missing }),
        2 => (0u8..3).prop_map(Happening::LocalAddresses),
        2 => (0u8..8).prop_map(Happening::Links),
        3 => (0u8..16).prop_map(Happening::Devices),
        6 => millis.prop_map(|millis| Happening::Time(Duration::from_millis(millis))),
        6 => mishap.prop_map(Happening::Mishap),
        2 => (1u8..4).prop_map(Happening::ReadsBreakOff),
        2 => (0u8..6).prop_map(Happening::Refusal),
        2 => (0u8..12).prop_map(Happening::Damage),
        2 => any::<u8>().prop_map(Happening::Lost),
        3 => any::<u8>().prop_map(Happening::Deleted),
        2 => any::<u8>().prop_map(Happening::Forged),
        2 => Just(Happening::ForeignCommit),
        2 => (0u8..3).prop_map(Happening::OwnedElsewhere),
        1 => Just(Happening::OwnerGone),
        4 => (0u8..6, any::<bool>()).prop_map(|(routing, is_done)| Happening::Restart { routing, is_done }),
        1 => (600usize..30_000).prop_map(Happening::MaxBatch),
        8 => vec(any::<u8>(), 1..5).prop_map(Happening::Counted),
        2 => Just(Happening::Check),
    ]
}

prop_compose! {
    fn step()(
        happens in happening(),
        answers in prop_oneof![3 => Just(u8::MAX), 2 => 0u8..4],
    ) -> Step {
        Step { happens, answers }
    }
}

prop_compose! {
    pub(crate) fn sequence()(
        min_interval in prop_oneof![Just(0u64), Just(1_000)],
        owned in any::<bool>(),
        direct_return in any::<bool>(),
        flowtable in any::<bool>(),
        without_tables in proptest::bool::weighted(0.1),
        steps in vec(step(), 1..16),
    ) -> Sequence {
        let min_interval = Duration::from_millis(min_interval);
        let options = Options { direct_return, flowtable };
        Sequence { min_interval, owned, options, without_tables, steps }
    }
}

/// The settings of scheduler lc. Few changes after a count, so that services take turns.
pub(crate) const LOOKS: LeastConnections =
    LeastConnections { interval: Duration::from_secs(5), changes_per_second: 10 };

/// A configuration; half of the numbers mean the first one.
pub(crate) fn routing(number: u8, options: Options) -> Routing {
    // Two tables exceed the budget, so services reduce each other.
    let slot_budget = if options.direct_return { 1_500 } else { 500 };
    let flowtable = options.flowtable.then(Offload::default);
    let direct_return = options.direct_return.then(|| DirectReturn::new(DirectMode::LoadBalancers));
    let least_connections = Some(LOOKS);
    let parts = Routing { direct_return, flowtable, ..Routing::default() };
    let usual = Routing { least_connections, slot_budget, ..parts };
    // Shorter than the wait before a check, whose tables are those of a fresh start.
    let remember = Duration::from_secs(120);
    let ended_connections = Some(EndedSettings { by_default: true, remember });
    match number {
        0 => Routing { masquerade_all: true, ended_connections, ..usual },
        1 => Routing { node_port_addresses: "0.0.0.0/0".parse().unwrap(), ..usual },
        2 => Routing {
            counters: Counters::Endpoints,
            local_detection: LocalDetection::ClusterCidr("10.244.0.0/16".parse().unwrap()),
            external_addresses: ExternalAddresses { external_ips: false, ..Default::default() },
            ..usual
        },
        _ => Routing { ended_connections, ..usual },
    }
}
