//! Expressions as the kernel has them, of any program's rule.
//!
//! Fields are in the order in which the kernel lists them, so that decoding and encoding give the
//! same bytes. An expression with a name, an attribute or a form that is unknown here is kept byte
//! for byte as [`Unknown`]. Numbers named key, base, flags or operation are the kernel's
//! (`<linux/netfilter/nf_tables.h>`).

mod build;
mod declare;
mod declared;
mod field;
mod normal;
mod reference;
mod words;

pub use declared::*;
pub use field::{Bytes, Data, Reg};
pub(crate) use normal::{are_same, normal_form};
pub use reference::Reference;
pub use words::{ct, ether, fib, icmp, icmpv6, ip, ip6, meta, sctp, tcp, th, udp};

use crate::abi::*;
use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::{Attr, AttrWriter, Attrs};
pub(crate) use field::Field;

impl Expression {
    /// Reads the payload of an item of `NFTA_RULE_EXPRESSIONS`.
    ///
    /// # Errors
    /// The attributes are broken.
    ///
    /// ```
    /// use nft_netlink::Expression;
    ///
    /// // Name "notrack", without data.
    /// let listed = [12, 0, 1, 0, b'n', b'o', b't', b'r', b'a', b'c', b'k', 0];
    /// let expression = Expression::decode(&listed)?;
    /// assert_eq!(expression.name(), "notrack");
    /// assert_eq!(expression.to_bytes()?, listed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode(listed: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(listed))?;
        let name = fields.str(NFTA_EXPR_NAME)?;
        let data = fields.find(NFTA_EXPR_DATA).map(|data| data.payload);
        match Self::decode_data(name, data) {
            Ok(known) => Ok(known),
            Err(DecodeError::Attribute(error)) if data.is_some_and(is_broken) => Err(error.into()),
            Err(_) => Ok(Self::unknown(name, data)),
        }
    }

    /// Appends `NFTA_EXPR_NAME` and `NFTA_EXPR_DATA`.
    pub fn encode(&self, w: &mut AttrWriter<'_>) {
        w.str(NFTA_EXPR_NAME, self.name());
        self.encode_data(w);
    }

    /// Returns what [`Expression::encode`] appends, with the bytes that the kernel lists.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn to_bytes(&self) -> Result<Vec<u8>, crate::netlink::attr::TooLong> {
        let mut bytes = Vec::new();
        let mut w = AttrWriter::listed(&mut bytes);
        self.encode(&mut w);
        w.finish()?;
        Ok(bytes)
    }

    fn unknown(name: &str, data: Option<&[u8]>) -> Self {
        Self::Unknown(Unknown { name: name.to_owned(), data: data.map(<[u8]>::to_vec) })
    }
}

/// Returns whether the attributes cannot be split.
fn is_broken(attributes: &[u8]) -> bool {
    Attrs::new(attributes).any(|attr| attr.is_err())
}

/// A list of expressions: `NFTA_*_EXPRESSIONS`.
impl Field for Vec<Expression> {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        attr.nested().map(|item| Expression::decode(item?.payload)).collect()
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        write_list(self, kind, w);
    }
}

/// Appends a list of expressions.
pub(crate) fn write_list(expressions: &[Expression], kind: u16, w: &mut AttrWriter<'_>) {
    w.nest(kind, |w| {
        for expression in expressions {
            w.nest(NFTA_LIST_ELEM, |w| expression.encode(w));
        }
    });
}

/// One expression inside an expression: `NFTA_DYNSET_EXPR`.
impl Field for Box<Expression> {
    fn read(attr: &Attr<'_>) -> Result<Self, DecodeError> {
        Ok(Self::new(Expression::decode(attr.payload)?))
    }

    fn write(&self, kind: u16, w: &mut AttrWriter<'_>) {
        w.nest(kind, |w| self.encode(w));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{RuleContext, TableFamily};

    fn reg() -> impl Strategy<Value = Reg> {
        (0u32..24).prop_map(Reg)
    }

    /// A small number, or a very large one.
    fn edge(small: u32) -> impl Strategy<Value = u32> {
        prop_oneof![9 => 0..small, 1 => u32::MAX - 9..=u32::MAX]
    }

    fn data() -> impl Strategy<Value = Data> {
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Data::Value(bytes.into()))
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let name = "[a-z]{0,20}";
        let unknown = (name, prop::option::of(prop::collection::vec(any::<u8>(), 0..20)));
        prop_oneof![
            (prop::option::of(reg()), 0u32..5, edge(200), edge(70)).prop_map(
                |(to, base, offset, length)| {
                    let (from, none) = (None, None);
                    let (checksum_type, checksum_offset, checksum_flags) = (none, none, none);
                    Payload {
                        from,
                        to,
                        base,
                        offset,
                        length,
                        checksum_type,
                        checksum_offset,
                        checksum_flags,
                    }
                    .into()
                }
            ),
            (0u32..40, prop::option::of(reg()), prop::option::of(reg()))
                .prop_map(|(key, to, from)| Meta { key, to, from }.into()),
            (reg(), 0u32..7, data()).prop_map(|(from, operation, value)| Cmp {
                from,
                operation,
                value
            }
            .into()),
            (reg(), 0u32..3, data(), data()).prop_map(|(from, operation, first, last)| {
                Range { from, operation, first, last }.into()
            }),
            (reg(), data()).prop_map(|(to, data)| Immediate { to, data }.into()),
            (reg(), reg(), edge(80), data(), data()).prop_map(|(from, to, length, mask, xor)| {
                let (operation, mask, xor) = (Some(0), Some(mask), Some(xor));
                let (data, second) = (None, None);
                Bitwise { from, to, length, operation, mask, xor, data, second }.into()
            }),
            (name, reg(), prop::option::of(reg()), 0u32..2)
                .prop_map(|(set, from, to, flags)| { Lookup { set, from, to, flags }.into() }),
            unknown.prop_map(|(name, data)| Expression::Unknown(Unknown {
                name: format!("x{name}"),
                data
            })),
        ]
    }

    proptest! {
        #[test]
        fn an_expression_survives_encoding(expression in expression()) {
            let bytes = expression.to_bytes().unwrap();
            prop_assert!(bytes.len() >= 8);
            let is_broken = matches!(&expression, Expression::Unknown(Unknown { data: Some(data), .. })
                if is_broken(data));
            if !is_broken {
                prop_assert_eq!(Expression::decode(&bytes), Ok(expression));
            }
        }

        #[test]
        fn any_bytes_are_decoded_and_printed_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(expression) = Expression::decode(&bytes) {
                let context = RuleContext { family: TableFamily::Inet, sets: &[], interfaces: &|_| None };
                let _ = context.text(&[expression]);
            }
        }

        #[test]
        fn any_expressions_are_printed_without_a_panic(
            expressions in prop::collection::vec(expression(), 0..12),
            family in prop::sample::select(&TableFamily::ALL[..]),
        ) {
            let context = RuleContext { family, sets: &[], interfaces: &|_| None };
            let _ = context.text(&expressions);
        }
    }

    fn payload(to: u32, length: u32) -> Expression {
        let (from, to, none) = (None, Some(Reg(to)), None);
        let (checksum_type, checksum_offset, checksum_flags) = (none, none, none);
        let (base, offset) = (1, 12);
        Payload { from, to, base, offset, length, checksum_type, checksum_offset, checksum_flags }
            .into()
    }

    fn text(expressions: &[Expression]) -> String {
        RuleContext { family: TableFamily::Ip, sets: &[], interfaces: &|_| None }.text(expressions)
    }

    #[test]
    fn a_load_of_no_bytes_is_no_endless_key() {
        let (from, operation, value) = (Reg(8), 0, Data::Value([0; 8].into()));
        let compare = Cmp { from, operation, value }.into();
        assert_eq!(text(&[payload(8, 0), payload(9, 4), compare]), "@nh,96,0 . ip saddr 0x0");
    }

    #[test]
    fn registers_that_are_copied_to_each_other_stay_small() {
        let copy = |from, to, length| {
            let ones = Some(Data::Value([255; 4].into()));
            let (operation, mask, xor) = (Some(0), ones.clone(), ones);
            let (from, to, data, second) = (Reg(from), Reg(to), None, None);
            Bitwise { from, to, length, operation, mask, xor, data, second }.into()
        };
        let mut expressions = vec![payload(8, 4), payload(9, 4)];
        for _ in 0..40 {
            expressions.extend([copy(8, 12, 8), copy(12, 8, 4), copy(12, 9, 4)]);
        }
        let (from, operation, value) = (Reg(8), 0, Data::Value([0; 4].into()));
        expressions.push(Cmp { from, operation, value }.into());
        assert!(text(&expressions).len() < 100_000);
    }

    #[test]
    fn an_unknown_attribute_keeps_the_expression_as_bytes() {
        let mut bytes = Vec::new();
        let mut w = AttrWriter::listed(&mut bytes);
        w.str(NFTA_EXPR_NAME, "counter");
        w.nest(NFTA_EXPR_DATA, |w| {
            w.be64(1, 5);
            w.be64(2, 7);
            w.be32(99, 1);
        });
        let expression = Expression::decode(&bytes).unwrap();
        assert!(matches!(&expression, Expression::Unknown(unknown) if unknown.name == "counter"));
        assert_eq!(expression.to_bytes().unwrap(), bytes);
    }
}
