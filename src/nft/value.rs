//! The bytes of a key or of data, as in the kernel's registers.

use std::fmt;
use std::net::IpAddr;

use smallvec::SmallVec;

/// Concatenated fields, each padded with zeros to a multiple of four bytes.
///
/// Up to 24 bytes, as nearly all values have, are stored inline: tables have hundreds of thousands
/// of values.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(SmallVec<[u8; 24]>);

impl Value {
    /// Maximum length in bytes: two IPv6 addresses, a protocol, a port and two numbers.
    pub const CAPACITY: usize = 48;

    /// Returns a value without fields.
    pub const fn new() -> Self {
        Self(SmallVec::new_const())
    }

    /// Returns the value with these bytes, padded with zeros to a multiple of four; `None` above
    /// the capacity.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() <= Self::CAPACITY).then(|| Self::new().field(bytes))
    }

    /// Adds an address.
    #[must_use]
    pub fn ip(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.field(&address.octets()),
            IpAddr::V6(address) => self.field(&address.octets()),
        }
    }

    /// Adds a transport protocol by its IANA number.
    #[must_use]
    pub fn proto(self, number: u8) -> Self {
        self.field(&[number])
    }

    /// Adds a port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.field(&port.to_be_bytes())
    }

    /// Adds a number in host byte order, as from `numgen`.
    #[must_use]
    pub fn integer(self, number: u32) -> Self {
        self.field(&number.to_ne_bytes())
    }

    /// Adds the address of an Ethernet interface.
    #[must_use]
    pub fn ether(self, octets: [u8; 6]) -> Self {
        self.field(&octets)
    }

    /// Adds a packet mark, which is in host byte order.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        self.field(&mark.to_ne_bytes())
    }

    /// Adds the index of an interface, which is in host byte order.
    #[must_use]
    pub fn interface(self, index: u32) -> Self {
        self.field(&index.to_ne_bytes())
    }

    /// Adds a packet priority, which is in host byte order.
    #[must_use]
    pub fn class_id(self, id: u32) -> Self {
        self.field(&id.to_ne_bytes())
    }

    /// Adds every field of another value.
    #[must_use]
    pub fn value(self, other: &Self) -> Self {
        self.field(other.as_bytes())
    }

    /// Returns the fields, padding included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn field(mut self, bytes: &[u8]) -> Self {
        let end = (self.0.len() + bytes.len()).next_multiple_of(4);
        assert!(end <= Self::CAPACITY, "bug: a key or data of more than {} bytes", Self::CAPACITY);
        self.0.extend_from_slice(bytes);
        self.0.resize(end, 0);
        self
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Value(")?;
        for word in self.as_bytes().chunks(4) {
            f.write_str(" ")?;
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        f.write_str(" )")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Element;

    #[test]
    fn every_field_starts_at_a_word() {
        let value = Value::new().ip([10, 96, 0, 1].into()).proto(6).port(443);
        assert_eq!(value.as_bytes(), [10, 96, 0, 1, 6, 0, 0, 0, 1, 187, 0, 0]);
        assert_eq!(Value::new().integer(2).as_bytes(), 2u32.to_ne_bytes());
    }

    #[test]
    fn a_single_field_from_the_kernel_is_padded_to_what_is_sent() {
        assert_eq!(Value::from_bytes(&[1, 187]), Some(Value::new().port(443)));
        assert_eq!(Value::from_bytes(&[0; Value::CAPACITY + 1]), None);
    }

    #[test]
    fn a_value_takes_32_bytes_and_an_element_112() {
        assert_eq!((size_of::<Value>(), size_of::<Element>()), (32, 112));
    }

    #[test]
    fn values_are_compared_by_their_bytes_however_they_are_stored_and_made() {
        let word = |n: u32| Value::new().ip(n.to_be_bytes().into());
        let words = |n: u32| (1..=n).fold(Value::new(), |value, n| value.value(&word(n)));
        for n in 0..=12 {
            let (made, bytes) =
                (words(n), (1..=n).flat_map(|n: u32| n.to_be_bytes()).collect::<Vec<_>>());
            assert_eq!(made.as_bytes(), bytes);
            assert_eq!(Some(&made), Value::from_bytes(&bytes).as_ref());
            assert!(n == 12 || made < words(n).value(&word(0)), "{n}");
            assert!(
                n == 0 || made > words(n - 1) && made < words(n - 1).value(&word(n + 1)),
                "{n}"
            );
        }
    }

    #[test]
    fn the_longest_key_fits() {
        let ip = Value::new().ip([0; 16].into());
        let value = ip.clone().value(&ip).proto(6).port(1).integer(1).class_id(1);
        assert_eq!(value.as_bytes().len(), Value::CAPACITY);
    }
}
