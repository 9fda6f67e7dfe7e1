//! Bytes of keys and data, read field by field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use nft::Family;

use crate::model::Protocol;

/// Concatenated fields, each padded to four bytes with zeros.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Begins at the first field.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether all fields have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads an address of a family.
    pub(crate) fn address(&mut self, family: Family) -> Option<IpAddr> {
        Some(match family {
            Family::Ip => Ipv4Addr::from(self.take::<4>()?).into(),
            Family::Ip6 => Ipv6Addr::from(self.take::<16>()?).into(),
        })
    }

    /// Reads a protocol; `None` for one that no service has.
    pub(crate) fn protocol(&mut self) -> Option<Protocol> {
        let [number, 0, 0, 0] = self.take::<4>()? else { return None };
        Protocol::ALL.into_iter().find(|protocol| protocol.number() == number)
    }

    /// Reads a port in network byte order.
    pub(crate) fn port(&mut self) -> Option<NonZeroU16> {
        self.port_or_0().and_then(NonZeroU16::new)
    }

    /// Reads the first bits of a port in network byte order.
    pub(crate) fn port_or_0(&mut self) -> Option<u16> {
        let [high, low, 0, 0] = self.take::<4>()? else { return None };
        Some(u16::from_be_bytes([high, low]))
    }

    /// Reads a number in host byte order.
    pub(crate) fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }
}
