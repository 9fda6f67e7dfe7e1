//! The bytes of a key or of data, as in the kernel's registers.

use std::fmt;
use std::net::IpAddr;

/// Concatenated fields, each padded with zeros to a multiple of four bytes.
///
/// Stored inline, because tables have hundreds of thousands of values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    bytes: [u8; Self::CAPACITY],
    length: u8,
}

impl Value {
    /// Maximum length in bytes: two IPv6 addresses, a protocol, a port and two numbers.
    pub const CAPACITY: usize = 48;

    /// Returns a value without fields.
    pub const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], length: 0 }
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
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn field(mut self, bytes: &[u8]) -> Self {
        let start = usize::from(self.length);
        let end = start + bytes.len();
        assert!(end <= Self::CAPACITY, "bug: a key or data of more than {} bytes", Self::CAPACITY);
        self.bytes[start..end].copy_from_slice(bytes);
        // At most CAPACITY, which is a multiple of four and fits a byte.
        self.length = u8::try_from(end.next_multiple_of(4)).unwrap_or(u8::MAX);
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
    fn the_longest_key_fits() {
        let ip = Value::new().ip([0; 16].into());
        let value = ip.value(&ip).proto(6).port(1).integer(1).class_id(1);
        assert_eq!(value.as_bytes().len(), Value::CAPACITY);
    }
}
