//! Flowtables, and the devices at whose ingress they look up packets.
//!
//! A flowtable is created without devices. Later messages add and remove single devices.

use std::borrow::Cow;
use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::text::joined;
use crate::kept::{self, OtherAttribute};
use crate::netlink::attr::{Attr, AttrWriter, Attrs, TooLong};
use crate::text::Name;

/// A flowtable of any table.
///
/// ```
/// use nft_netlink::{Device, Flowtable};
///
/// let devices = vec![Device::Named("eth0".into())];
/// let flowtable = Flowtable { devices, ..Flowtable::new("fast") };
/// assert_eq!(Flowtable::decode(&flowtable.encode("t")?)?, flowtable);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flowtable {
    /// Name within the table.
    pub name: Name,
    /// `NF_NETDEV_*`; the kernel has flowtables at the ingress only.
    pub hook: u32,
    /// Order among the programs at the hook of a device; lower values run first.
    pub priority: i32,
    /// The devices. Kernels before 6.16 forget a device that vanishes.
    pub devices: Vec<Device>,
    /// `NFT_FLOWTABLE_*`.
    pub flags: u32,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

/// The devices of a flowtable: one, or all whose names have a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The device with this name.
    Named(Name),
    /// All present and future devices with this prefix (Linux 6.18).
    Prefix(Name),
}

/// Most devices of one message (`NFT_NETDEVICE_MAX` in `nf_tables_api.c`).
pub const MAX_DEVICES: usize = 256;

impl Flowtable {
    /// `NFT_FLOWTABLE_COUNTER`: conntrack counts the packets that the flowtable forwards.
    pub const COUNTER: u32 = NFT_FLOWTABLE_COUNTER;

    /// Returns a flowtable at the ingress, without devices.
    pub fn new(name: impl Into<Name>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns the flowtable as in a message that adds or removes these devices.
    pub(crate) fn with_devices(&self, devices: &[Device]) -> Self {
        let (name, devices) = (self.name.clone(), devices.to_vec());
        Self { name, hook: self.hook, priority: self.priority, devices, ..Self::default() }
    }

    /// Reads the attributes of an `NFT_MSG_NEWFLOWTABLE` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let name = fields.str(NFTA_FLOWTABLE_NAME)?.to_owned().into();
        // Missing where a flowtable was deleted.
        let Some(hook) = fields.find(NFTA_FLOWTABLE_HOOK) else {
            return Ok(Self { name, ..Self::default() });
        };
        let hook = Fields::read(hook.nested())?;
        Ok(Self {
            name,
            hook: hook.be32(NFTA_FLOWTABLE_HOOK_NUM)?,
            priority: hook.be32(NFTA_FLOWTABLE_HOOK_PRIORITY)?.cast_signed(),
            devices: read_devices(&hook, NFTA_FLOWTABLE_HOOK_DEVS)?,
            flags: fields.be32_or_zero(NFTA_FLOWTABLE_FLAGS)?,
            other: kept::others(Attrs::new(attributes), NFTA_FLOWTABLE_FLAGS)?,
        })
    }

    /// Returns the attributes of the message that creates the flowtable in `table`.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str) -> Result<Vec<u8>, TooLong> {
        kept::written(|w| self.write(table, w))
    }

    pub(crate) fn write(&self, table: &str, w: &mut AttrWriter<'_>) {
        w.str(NFTA_FLOWTABLE_TABLE, table);
        w.str(NFTA_FLOWTABLE_NAME, &self.name);
        w.nest(NFTA_FLOWTABLE_HOOK, |w| {
            w.be32(NFTA_FLOWTABLE_HOOK_NUM, self.hook);
            w.bytes(NFTA_FLOWTABLE_HOOK_PRIORITY, &self.priority.to_be_bytes());
            write_devices(&self.devices, NFTA_FLOWTABLE_HOOK_DEVS, w);
        });
        if self.flags != 0 {
            w.be32(NFTA_FLOWTABLE_FLAGS, self.flags);
        }
        kept::write(&self.other, w);
    }
}

/// Appends the devices of a hook, if there are any.
pub(super) fn write_devices(devices: &[Device], kind: u16, w: &mut AttrWriter<'_>) {
    if devices.is_empty() {
        return;
    }
    w.nest(kind, |w| {
        for device in devices {
            match device {
                Device::Named(name) => w.str(NFTA_DEVICE_NAME, name),
                Device::Prefix(prefix) => w.str(NFTA_DEVICE_PREFIX, prefix),
            }
        }
    });
}

/// Reads the devices of a hook.
pub(super) fn read_devices(hook: &Fields<'_>, kind: u16) -> Result<Vec<Device>, DecodeError> {
    let mut devices = Vec::new();
    for device in hook.find(kind).iter().flat_map(Attr::nested) {
        let device = device?;
        let name = Cow::Owned(device.str()?.to_owned());
        match device.kind {
            NFTA_DEVICE_NAME => devices.push(Device::Named(name)),
            NFTA_DEVICE_PREFIX => devices.push(Device::Prefix(name)),
            _ => {}
        }
    }
    Ok(devices)
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "\"{name}\""),
            Self::Prefix(prefix) => write!(f, "\"{prefix}*\""),
        }
    }
}

/// Writes the part of `add flowtable` after the name of the table.
impl fmt::Display for Flowtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {{ hook ingress priority {};", self.name, self.priority)?;
        if !self.devices.is_empty() {
            write!(f, " devices = {{ {} }};", joined(self.devices.iter(), ", "))?;
        }
        f.write_str(if self.flags & Self::COUNTER != 0 { " counter; }" } else { " }" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowtable() -> Flowtable {
        Flowtable { flags: Flowtable::COUNTER, ..Flowtable::new("established") }
    }

    #[test]
    fn a_flowtable_is_read_as_it_was_sent() {
        let sent = flowtable().encode("t").unwrap();
        assert_eq!(Flowtable::decode(&sent), Ok(flowtable()));
        let devices = [Device::Named("eth0".into()), Device::Prefix("cali".into())];
        let sent = flowtable().with_devices(&devices).encode("t").unwrap();
        let read = Flowtable::decode(&sent).unwrap();
        assert_eq!((&*read.devices, read.flags), (&devices[..], 0));
    }

    /// `nft --debug=mnl add flowtable ip t f '{ hook ingress priority 0; devices = { lo }; }'`
    #[test]
    fn devices_are_in_a_list_within_the_hook() {
        let sent = flowtable().with_devices(&[Device::Named("lo".into())]).encode("t").unwrap();
        let hook = sent.len() - 32;
        const NESTED: u16 = 0x8000;
        // `struct nlattr`: length and type in host byte order.
        let attribute = |length: u16, kind: u16| [length, kind].map(u16::to_ne_bytes).concat();
        let expected = [
            attribute(32, NFTA_FLOWTABLE_HOOK | NESTED),
            attribute(8, NFTA_FLOWTABLE_HOOK_NUM),
            vec![0; 4],
            attribute(8, NFTA_FLOWTABLE_HOOK_PRIORITY),
            vec![0; 4],
            attribute(12, NFTA_FLOWTABLE_HOOK_DEVS | NESTED),
            attribute(7, NFTA_DEVICE_NAME),
            b"lo\0\0".to_vec(),
        ];
        assert_eq!(&sent[hook..], expected.concat());
    }

    #[test]
    fn a_damaged_flowtable_is_an_error_and_never_a_panic() {
        let whole = flowtable().with_devices(&[Device::Named("lo".into())]).encode("t").unwrap();
        for length in 0..whole.len() {
            let _ = Flowtable::decode(&whole[..length]);
        }
    }
}
