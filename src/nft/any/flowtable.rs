//! Flowtables of any table.

use crate::abi::*;
use crate::fields::{DecodeError, Fields};
use crate::flowtable::{self, Device};
use crate::netlink::attr::{Attrs, TooLong};

use crate::kept::{self, OtherAttribute};

/// A flowtable of any table.
///
/// ```
/// use nft_netlink::{AnyFlowtable, Device};
///
/// let devices = vec![Device::Named("eth0".into())];
/// let flowtable = AnyFlowtable { name: "fast".into(), devices, ..AnyFlowtable::default() };
/// assert_eq!(AnyFlowtable::decode(&flowtable.encode("t")?)?, flowtable);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyFlowtable {
    /// Name within the table.
    pub name: String,
    /// `NF_NETDEV_*`.
    pub hook: u32,
    /// Priority; lower values run first.
    pub priority: i32,
    /// The devices.
    pub devices: Vec<Device>,
    /// `NFT_FLOWTABLE_*`.
    pub flags: u32,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

const KNOWN: &[u16] = &[
    NFTA_FLOWTABLE_TABLE,
    NFTA_FLOWTABLE_NAME,
    NFTA_FLOWTABLE_HOOK,
    NFTA_FLOWTABLE_USE,
    NFTA_FLOWTABLE_HANDLE,
    NFTA_FLOWTABLE_FLAGS,
];

impl AnyFlowtable {
    /// Reads the attributes of an `NFT_MSG_NEWFLOWTABLE` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let name = fields.str(NFTA_FLOWTABLE_NAME)?.to_owned();
        // Missing where a flowtable was deleted.
        let Some(hook) = fields.find(NFTA_FLOWTABLE_HOOK) else {
            return Ok(Self { name, ..Self::default() });
        };
        let hook = Fields::read(hook.nested())?;
        let devices = match hook.find(NFTA_FLOWTABLE_HOOK_DEVS) {
            Some(devices) => flowtable::read_devices(devices.nested())?,
            None => Vec::new(),
        };
        Ok(Self {
            name,
            hook: hook.be32(NFTA_FLOWTABLE_HOOK_NUM)?,
            priority: hook.be32(NFTA_FLOWTABLE_HOOK_PRIORITY)?.cast_signed(),
            devices,
            flags: fields.be32_or_zero(NFTA_FLOWTABLE_FLAGS)?,
            other: kept::others(Attrs::new(attributes), KNOWN)?,
        })
    }

    /// Returns the attributes of the message that creates the flowtable in `table`.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str) -> Result<Vec<u8>, TooLong> {
        kept::written(|w| {
            w.str(NFTA_FLOWTABLE_TABLE, table);
            w.str(NFTA_FLOWTABLE_NAME, &self.name);
            w.nest(NFTA_FLOWTABLE_HOOK, |w| {
                w.be32(NFTA_FLOWTABLE_HOOK_NUM, self.hook);
                w.be32(NFTA_FLOWTABLE_HOOK_PRIORITY, self.priority.cast_unsigned());
                if !self.devices.is_empty() {
                    w.nest(NFTA_FLOWTABLE_HOOK_DEVS, |w| {
                        flowtable::write_devices(&self.devices, w);
                    });
                }
            });
            if self.flags != 0 {
                w.be32(NFTA_FLOWTABLE_FLAGS, self.flags);
            }
            kept::write(&self.other, w);
        })
    }
}
