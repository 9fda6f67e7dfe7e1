//! The normal form of expressions: equal for rules that do the same, of any program.
//!
//! Kernels fill in what a program left out, and differ in what they list: before 5.6 no operation
//! of `bitwise`, and older ones no implied flags of `nat`. nft(8) adds expressions without an effect.
//! Numbers that packets change are no part of a rule.

use super::declared::*;
use crate::abi::*;
use crate::key;

/// Returns whether two lists of expressions do the same.
pub(crate) fn are_same(left: &[Expression], right: &[Expression]) -> bool {
    left == right || normal_form(left) == normal_form(right)
}

/// Returns the normal form of expressions.
pub(crate) fn normal_form(list: &[Expression]) -> Vec<Expression> {
    list.iter().filter(|it| !has_no_effect(it)).map(|it| it.clone().normal()).collect()
}

/// Before a lookup in an interval set, nft(8) converts the byte order of fields in host order. It
/// does so even for the one byte of a protocol number, which `nft_byteorder_eval` leaves unchanged.
fn has_no_effect(expression: &Expression) -> bool {
    matches!(expression, Expression::Byteorder(Byteorder { length: 1, .. }))
}

impl Expression {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others have only one form")]
    fn normal(mut self) -> Self {
        self.for_each_register(&mut |register| *register = register.canonical());
        match &mut self {
            Self::Bitwise(bitwise) => {
                bitwise.operation.get_or_insert(key::BITWISE_MASK_XOR);
            }
            Self::Nat(nat) => normal_translation(nat),
            Self::Masq(Masq { flags, .. }) | Self::Redir(Redir { flags, .. }) => drop_zero(flags),
            Self::Hash(hash) => drop_zero(&mut hash.offset),
            Self::Reject(reject) if reject.kind == NFT_REJECT_TCP_RST => reject.code = None,
            Self::Reject(reject) => {
                reject.code.get_or_insert(0);
            }
            Self::Dynset(dynset) => {
                // The kernel lists 0 where no timeout was given.
                dynset.timeout = dynset.timeout.filter(|timeout| *timeout > 0);
                let inner = dynset.expressions.iter_mut().flatten();
                let inner = inner.chain(dynset.expression.as_deref_mut());
                inner.for_each(|it| *it = it.clone().normal());
            }
            Self::CounterExpression(counter) => (counter.bytes, counter.packets) = (0, 0),
            Self::Quota(quota) => quota.consumed = 0,
            Self::Last(last) => (last.is_set, last.milliseconds) = (0, 0),
            _ => {}
        }
        self
    }
}

/// The kernel lists both ends of a range, and sets these flags for an address and a port.
fn normal_translation(nat: &mut Nat) {
    const IMPLIED: u32 = NF_NAT_RANGE_MAP_IPS | NF_NAT_RANGE_PROTO_SPECIFIED;
    nat.last_address = nat.last_address.or(nat.address);
    nat.last_port = nat.last_port.or(nat.port);
    nat.flags = nat.flags.map(|flags| flags & !IMPLIED);
    drop_zero(&mut nat.flags);
}

fn drop_zero(number: &mut Option<u32>) {
    *number = number.filter(|number| *number != 0);
}

#[cfg(test)]
mod tests {
    use super::super::{Reg, meta};
    use super::*;
    use crate::netlink::attr::AttrWriter;

    #[track_caller]
    fn check(own: Expression, listed: Expression) {
        assert_ne!(own, listed);
        assert!(are_same(&[own], &[listed]));
    }

    #[test]
    fn what_the_kernel_adds_is_no_difference() {
        let (one, two) = (Reg::of_word(0), Reg::of_word(4));
        check(meta::priority(Reg(8)), meta::priority(Reg(1)));
        let masked = Bitwise::mask_xor(one, [1], [0]);
        let Expression::Bitwise(old) = masked.clone() else { panic!() };
        check(masked, Bitwise { operation: None, ..old }.into());
        let translated = Nat::destination(2, one, two);
        let Expression::Nat(listed) = translated.clone() else { panic!() };
        let (last_address, last_port, flags) = (None, None, None);
        check(translated.clone(), Nat { flags, ..listed.clone() }.into());
        check(translated, Nat { last_address, last_port, flags, ..listed }.into());
        let update = Dynset::new(1, "clients", one);
        check(update.clone().into(), Dynset { timeout: Some(0), ..update }.into());
        let (bytes, packets) = (7, 1);
        let counter = CounterExpression { bytes: 0, packets: 0 };
        check(counter.into(), CounterExpression { bytes, packets }.into());
    }

    #[test]
    fn attributes_may_come_in_any_order() {
        let sent = Byteorder::to_network(Reg::of_word(0), 8);
        let mut bytes = Vec::new();
        let mut w = AttrWriter::new(&mut bytes);
        sent.encode_data(&mut w);
        w.finish().unwrap();
        // A header of the nest, then five attributes of eight bytes.
        let data = &mut bytes[4..];
        assert_eq!(Expression::decode_data("byteorder", Some(data)), Ok(sent.clone()));
        data[24..].rotate_left(8);
        assert_eq!(Expression::decode_data("byteorder", Some(data)), Ok(sent));
    }

    #[test]
    fn other_values_are_a_difference() {
        let (one, two) = (Reg::of_word(0), Reg::of_word(4));
        let differ = |left: Expression, right: Expression| assert!(!are_same(&[left], &[right]));
        differ(meta::priority(one), meta::priority(two));
        differ(Bitwise::mask_xor(one, [1], [0]), Bitwise::mask_xor(one, [1], [1]));
        let translated = Nat::destination(2, one, two);
        let Expression::Nat(listed) = translated.clone() else { panic!() };
        differ(translated.clone(), Nat { flags: Some(0x13), ..listed.clone() }.into());
        differ(translated, Nat { last_port: Some(one), ..listed }.into());
        let update = Dynset::new(1, "clients", one);
        differ(update.clone().into(), Dynset { timeout: Some(5), ..update }.into());
        differ(Byteorder::to_network(one, 4), Byteorder::to_network(one, 8));
    }

    #[test]
    fn the_byte_order_that_nft_adds_to_a_single_byte_is_no_difference() {
        let register = Reg::of_word(1);
        let load = meta::l4proto(register);
        let lookup = Lookup::in_set("protocols", register);
        let own = [load.clone(), lookup.clone()];
        assert!(are_same(
            &own,
            &[load.clone(), Byteorder::to_network(register, 1), lookup.clone()]
        ));
        assert!(!are_same(&own, &[load, Byteorder::to_network(register, 2), lookup]));
    }
}
