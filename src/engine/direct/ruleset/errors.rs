//! The rules for ICMP errors about answers of services.
//!
//! Such an error comes to the service's address. Only the node that answered has the connection, so
//! it must get the error: without it, answers over a path with a small MTU never arrive.

use nft::Family;

use super::chain::{chain, named};
use super::choose::CHOOSE_OF_ERROR;
use super::inner::Inner;
use super::packet::is_icmp;
use super::send::goto_send;
use super::sets::DirectSet;
use crate::ruleset::ChainSpec;
use crate::ruleset::field::Field;
use crate::ruleset::phrase::{Phrase, Phrases, clear_mark, goto, jump};

const ERROR: &str = "error";

/// Returns the chain for ICMP errors whose priority is a route. Rules of tc may have set a mark, which
/// must not be taken for the number of a node if the list has no slots.
pub(super) fn error(family: Family) -> ChainSpec {
    let choose = vec![jump(named(CHOOSE_OF_ERROR, family))];
    chain(ERROR, family, None, [vec![clear_mark()], choose, vec![goto_send(family)]])
}

/// Returns the rules that find errors about answers of services, one for each type of message.
pub(super) fn find(family: Family) -> impl Iterator<Item = Vec<Phrase>> {
    let service =
        [Field::Daddr, Inner::protocol(family).field(), Inner::service_port(family).field()];
    let frontends = DirectSet::ErrorFrontends(family).name();
    types(family).iter().map(move |kind| {
        let route = Phrases(family).set_priority(&service, frontends);
        vec![is_icmp(family, *kind), route, goto(named(ERROR, family))]
    })
}

/// Returns the types of messages with a packet inside that a transport protocol reads:
/// destination unreachable, packet too big, time exceeded, parameter problem. A rule for each needs
/// no set without a name.
const fn types(family: Family) -> &'static [u8] {
    match family {
        Family::Ip => &[3, 11, 12],
        Family::Ip6 => &[1, 2, 3, 4],
    }
}
