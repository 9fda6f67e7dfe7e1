//! Flowtables, and the devices at whose ingress they look up packets.
//!
//! A flowtable is created without devices. Later messages add and remove single devices.

use std::borrow::Cow;
use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use super::text::joined;
use crate::netlink::attr::{AttrWriter, Attrs};
use crate::text::Name;

/// A flowtable without its devices, at the ingress hook. Conntrack counts the packets that it
/// forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowtable {
    /// Name within the table.
    pub name: Name,
    /// Order among the programs at the ingress of a device; lower values run first.
    pub priority: i32,
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
    pub(super) fn encode(&self, table: &str, w: &mut AttrWriter<'_>) {
        self.encode_with(table, &[], w);
        w.be32(NFTA_FLOWTABLE_FLAGS, NFT_FLOWTABLE_COUNTER);
    }

    /// Appends the attributes of a message that adds or removes devices.
    pub(super) fn encode_with(&self, table: &str, devices: &[Device], w: &mut AttrWriter<'_>) {
        w.str(NFTA_FLOWTABLE_TABLE, table);
        w.str(NFTA_FLOWTABLE_NAME, &self.name);
        w.nest(NFTA_FLOWTABLE_HOOK, |w| {
            w.be32(NFTA_FLOWTABLE_HOOK_NUM, NF_NETDEV_INGRESS);
            w.bytes(NFTA_FLOWTABLE_HOOK_PRIORITY, &self.priority.to_be_bytes());
            if !devices.is_empty() {
                w.nest(NFTA_FLOWTABLE_HOOK_DEVS, |w| write_devices(devices, w));
            }
        });
    }
}

/// Appends an attribute for each device of a hook.
pub(super) fn write_devices(devices: &[Device], w: &mut AttrWriter<'_>) {
    for device in devices {
        match device {
            Device::Named(name) => w.str(NFTA_DEVICE_NAME, name),
            Device::Prefix(prefix) => w.str(NFTA_DEVICE_PREFIX, prefix),
        }
    }
}

/// Reads the devices of a hook.
pub(super) fn read_devices(listed: Attrs<'_>) -> Result<Vec<Device>, DecodeError> {
    let mut devices = Vec::new();
    for device in listed {
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
        let (name, priority) = (&self.name, self.priority);
        write!(f, "{name} {{ hook ingress priority {priority}; counter; }}")
    }
}

/// Returns the part of a command about devices after the name of the table.
pub(super) fn with_devices(flowtable: &Flowtable, devices: &[Device]) -> impl fmt::Display {
    let (name, priority) = (&flowtable.name, flowtable.priority);
    let devices = joined(devices.iter(), ", ").to_string();
    fmt::from_fn(move |f| {
        write!(f, "{name} {{ hook ingress priority {priority}; devices = {{ {devices} }}; }}")
    })
}

/// A flowtable in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedFlowtable {
    /// Name within the table.
    pub name: String,
    /// The flowtable; `None` if it has properties that this program never sets.
    pub flowtable: Option<Flowtable>,
    /// Its devices. Kernels before 6.16 forget a device that vanishes.
    pub devices: Vec<Device>,
}

impl DecodedFlowtable {
    /// Reads the attributes of an `NFT_MSG_NEWFLOWTABLE` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let name = fields.str(NFTA_FLOWTABLE_NAME)?.to_owned();
        let hook = fields.nest(NFTA_FLOWTABLE_HOOK)?;
        let priority = hook.be32(NFTA_FLOWTABLE_HOOK_PRIORITY)?.cast_signed();
        let is_ours = hook.be32(NFTA_FLOWTABLE_HOOK_NUM)? == NF_NETDEV_INGRESS
            && fields.be32_or_zero(NFTA_FLOWTABLE_FLAGS)? == NFT_FLOWTABLE_COUNTER;
        let devices = match hook.find(NFTA_FLOWTABLE_HOOK_DEVS) {
            Some(listed) => read_devices(listed.nested())?,
            None => Vec::new(),
        };
        let ours = Flowtable { name: name.clone().into(), priority };
        Ok(Self { name, flowtable: is_ours.then_some(ours), devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowtable() -> Flowtable {
        Flowtable { name: "established".into(), priority: 0 }
    }

    fn encoded(fill: impl FnOnce(&mut AttrWriter<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = AttrWriter::new(&mut out);
        fill(&mut writer);
        writer.finish().unwrap();
        out
    }

    #[test]
    fn a_flowtable_is_read_as_it_was_sent() {
        let read = DecodedFlowtable::decode(&encoded(|w| flowtable().encode("t", w))).unwrap();
        assert_eq!(read.flowtable, Some(flowtable()));
        assert_eq!(read.devices, []);
        let devices = [Device::Named("eth0".into()), Device::Prefix("cali".into())];
        let sent = encoded(|w| flowtable().encode_with("t", &devices, w));
        let read = DecodedFlowtable::decode(&sent).unwrap();
        assert_eq!(read.devices, devices);
        assert_eq!(read.flowtable, None, "without the flag of the counter");
    }

    /// `nft --debug=mnl add flowtable ip t f '{ hook ingress priority 0; devices = { lo }; }'`
    #[test]
    fn devices_are_in_a_list_within_the_hook() {
        let sent = encoded(|w| flowtable().encode_with("t", &[Device::Named("lo".into())], w));
        let hook = sent.len() - 32;
        let expected: &[u8] = &[
            32, 0, 3, 0x80, // NFTA_FLOWTABLE_HOOK
            8, 0, 1, 0, 0, 0, 0, 0, // NFTA_FLOWTABLE_HOOK_NUM
            8, 0, 2, 0, 0, 0, 0, 0, // NFTA_FLOWTABLE_HOOK_PRIORITY
            12, 0, 3, 0x80, // NFTA_FLOWTABLE_HOOK_DEVS
            7, 0, 1, 0, b'l', b'o', 0, 0, // NFTA_DEVICE_NAME
        ];
        assert_eq!(&sent[hook..], expected);
    }

    #[test]
    fn a_damaged_flowtable_is_an_error_and_never_a_panic() {
        let whole = encoded(|w| flowtable().encode_with("t", &[Device::Named("lo".into())], w));
        for length in 0..whole.len() {
            let _ = DecodedFlowtable::decode(&whole[..length]);
        }
    }
}
