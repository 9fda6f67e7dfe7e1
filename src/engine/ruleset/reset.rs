//! The rules that end connections to endpoints that are gone.
//!
//! The next packet is answered with RST, whichever side sends it. In the filter chains after the
//! translation of a request, and before that of an answer, the address of the endpoint is in the
//! packet.

use nft::Verdict;

use super::chain::ChainSpec;
use super::established::of_services;
use super::field::{FROM_SERVICE, SERVICE};
use super::phrase::{self, Phrase, Phrases, goto, jump, verdict};
use super::sets::SetId;
use super::settings::Settings;
use crate::model::Protocol;

/// The chain that ends connections of services.
pub(super) const ENDED: &str = "ended-connections";

/// The chain for packets of ended endpoints.
const TO_ENDED: &str = "ended-endpoint";

/// The chain that answers with RST.
const RESET: &str = "reset-connection";

/// Returns the rule of the base chains.
pub(super) fn check() -> [Phrase; 3] {
    [phrase::ct_status_dnat(), phrase::protocol(Protocol::Tcp.number()), jump(TO_ENDED)]
}

/// Returns the chains, each after those that it refers to.
///
/// Other programs translate to the same endpoints, such as those of host ports, and anyone who may
/// write an EndpointSlice can let an endpoint end. So only connections to a service address or node
/// port end.
pub(super) fn chains(phrases: Phrases, settings: &Settings) -> [ChainSpec; 3] {
    let end = [phrase::counter(), goto(RESET)];
    let served = [SetId::Services, SetId::NodePorts, SetId::RangeServices];
    let unserved =
        [SetId::UnservedServices, SetId::UnservedNodePorts, SetId::UnservedRangeServices];
    let rules = [served, unserved].map(|maps| of_services(phrases, settings, maps, &end));
    let ended = |key| phrases.in_set(key, SetId::EndedEndpoints.name());
    let tcp = || phrase::protocol(Protocol::Tcp.number());
    let by_direction = [
        // The answers themselves pass these hooks.
        vec![tcp(), phrase::resets_tcp(), verdict(Verdict::Return)],
        vec![phrase::ct_direction_original(), ended(SERVICE), goto(ENDED)],
        vec![phrase::ct_direction_reply(), ended(FROM_SERVICE), goto(ENDED)],
    ];
    [
        ChainSpec::new(RESET, [vec![phrase::reset_tcp()]]),
        ChainSpec::new(ENDED, rules.into_iter().flatten())
            .with_comment("only connections that services translated"),
        ChainSpec::new(TO_ENDED, by_direction)
            .with_comment("connections to endpoints that are in no EndpointSlice end"),
    ]
}
