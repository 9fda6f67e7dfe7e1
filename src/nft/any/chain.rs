//! Chains of any table.

use crate::abi::*;
use crate::expression::Bytes;
use crate::fields::{DecodeError, Fields};
use crate::flowtable::{self, Device};
use crate::netlink::attr::{AttrWriter, Attrs};
use crate::userdata;

use super::kept::{self, OtherAttribute};

/// A chain of any table.
///
/// ```
/// use nft_netlink::{AnyChain, BaseChain};
///
/// let base = BaseChain { kind: "filter".into(), hook: 1, priority: 0, ..BaseChain::default() };
/// let input = AnyChain { name: "input".into(), base: Some(base), ..AnyChain::default() };
/// assert_eq!(AnyChain::decode(&input.encode("t")?)?, AnyChain { table: "t".into(), ..input });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnyChain {
    /// Name of the table.
    pub table: String,
    /// Name within the table.
    pub name: String,
    /// The hook; `None` for a regular chain.
    pub base: Option<BaseChain>,
    /// `NFT_CHAIN_*`, without `NFT_CHAIN_BASE`.
    pub flags: u32,
    /// Bytes that the kernel stores for the program that made the chain.
    pub userdata: Option<Bytes>,
    /// Attributes that are not known here.
    pub other: Vec<OtherAttribute>,
}

/// The hook of a base chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseChain {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// `NF_INET_*`, or the numbers of the table's family.
    pub hook: u32,
    /// Priority; lower values run first.
    pub priority: i32,
    /// The policy is `drop`.
    pub drops: bool,
    /// The devices of a chain at their ingress or egress.
    pub devices: Vec<Device>,
}

const KNOWN: &[u16] = &[
    NFTA_CHAIN_TABLE,
    NFTA_CHAIN_HANDLE,
    NFTA_CHAIN_NAME,
    NFTA_CHAIN_HOOK,
    NFTA_CHAIN_POLICY,
    NFTA_CHAIN_USE,
    NFTA_CHAIN_TYPE,
    NFTA_CHAIN_COUNTERS,
    NFTA_CHAIN_FLAGS,
    NFTA_CHAIN_USERDATA,
];

impl AnyChain {
    /// Reads the attributes of an `NFT_MSG_NEWCHAIN` message.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        let base = match fields.find(NFTA_CHAIN_HOOK) {
            Some(_) => Some(BaseChain::decode(&fields)?),
            None => None,
        };
        Ok(Self {
            table: fields.str(NFTA_CHAIN_TABLE)?.to_owned(),
            name: fields.str(NFTA_CHAIN_NAME)?.to_owned(),
            base,
            flags: fields.be32_or_zero(NFTA_CHAIN_FLAGS)? & !NFT_CHAIN_BASE,
            userdata: fields.find(NFTA_CHAIN_USERDATA).map(|attr| Bytes(attr.payload.to_vec())),
            other: kept::others(Attrs::new(attributes), KNOWN)?,
        })
    }

    /// Returns the attributes of the message that creates the chain in `table`.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str) -> Result<Vec<u8>, crate::netlink::attr::TooLong> {
        super::written(|w| {
            w.str(NFTA_CHAIN_TABLE, table);
            w.str(NFTA_CHAIN_NAME, &self.name);
            if let Some(base) = &self.base {
                base.encode(w);
            }
            if self.flags != 0 {
                w.be32(NFTA_CHAIN_FLAGS, self.flags);
            }
            kept::write_userdata(self.userdata.as_ref(), NFTA_CHAIN_USERDATA, w);
            kept::write(&self.other, w);
        })
    }

    /// Returns the comment, as printed by `nft list`.
    pub fn comment(&self) -> Option<&str> {
        self.userdata.as_ref().and_then(|Bytes(userdata)| userdata::read_comment(userdata))
    }

    /// Returns whether the chain belongs to a rule: `jump { … }` of nft(8).
    pub fn is_anonymous(&self) -> bool {
        self.flags & NFT_CHAIN_BINDING != 0
    }
}

impl BaseChain {
    fn decode(chain: &Fields<'_>) -> Result<Self, DecodeError> {
        let hook = chain.nest(NFTA_CHAIN_HOOK)?;
        let devices = match hook.find(NFTA_HOOK_DEVS) {
            Some(devices) => flowtable::read_devices(devices.nested())?,
            None => Vec::new(),
        };
        Ok(Self {
            kind: chain.str(NFTA_CHAIN_TYPE)?.to_owned(),
            hook: hook.be32(NFTA_HOOK_HOOKNUM)?,
            priority: hook.be32(NFTA_HOOK_PRIORITY)?.cast_signed(),
            drops: chain.optional_be32(NFTA_CHAIN_POLICY)? == Some(NF_DROP),
            devices,
        })
    }

    fn encode(&self, w: &mut AttrWriter<'_>) {
        w.nest(NFTA_CHAIN_HOOK, |w| {
            w.be32(NFTA_HOOK_HOOKNUM, self.hook);
            w.be32(NFTA_HOOK_PRIORITY, self.priority.cast_unsigned());
            if !self.devices.is_empty() {
                w.nest(NFTA_HOOK_DEVS, |w| flowtable::write_devices(&self.devices, w));
            }
        });
        w.be32(NFTA_CHAIN_POLICY, if self.drops { NF_DROP } else { NF_ACCEPT });
        w.str(NFTA_CHAIN_TYPE, &self.kind);
    }

    /// Returns whether the other one is equal but for the policy.
    pub(crate) fn has_same_hook(&self, other: &Self) -> bool {
        *self == Self { drops: self.drops, ..other.clone() }
    }
}
