//! Chains of any table and hook.

use std::fmt;

use crate::abi::*;
use crate::expression::Bytes;
use crate::family::TableFamily;
use crate::fields::{DecodeError, Fields};
use crate::flowtable::{self, Device};
use crate::kept::{self, OtherAttribute};
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};
use crate::text::{Comment, Name, joined};

/// A chain of any table.
///
/// ```
/// use nft_netlink::{BaseChain, Chain, HookPoint, TableFamily};
///
/// let input = Chain::at_hook("in", BaseChain::new("filter", HookPoint::Input, 0));
/// let text = "in { type filter hook input priority 0; policy accept; }";
/// assert_eq!(input.text(TableFamily::Inet).to_string(), text);
/// assert_eq!(Chain::decode(&input.encode("t")?)?, input);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Name within the table.
    pub name: Name,
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
    pub kind: Name,
    /// [`HookPoint`], or the numbers of the table's family.
    pub hook: u32,
    /// Priority; lower values run first.
    pub priority: i32,
    /// The policy is `drop`.
    pub drops: bool,
    /// The devices of a chain at their ingress or egress.
    pub devices: Vec<Device>,
}

impl Chain {
    /// Returns a chain without a hook.
    pub fn new(name: impl Into<Name>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Returns a base chain.
    pub fn at_hook(name: impl Into<Name>, base: BaseChain) -> Self {
        Self { base: Some(base), ..Self::new(name) }
    }

    /// Returns the chain with a comment, at most 128 bytes.
    #[must_use]
    pub fn with_comment(self, comment: &str) -> Self {
        Self { userdata: Some(Bytes::of_comment(comment)), ..self }
    }

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
            name: fields.str(NFTA_CHAIN_NAME)?.to_owned().into(),
            base,
            flags: fields.be32_or_zero(NFTA_CHAIN_FLAGS)? & !NFT_CHAIN_BASE,
            userdata: fields.find(NFTA_CHAIN_USERDATA).map(|attr| Bytes::from(attr.payload)),
            other: kept::others(Attrs::new(attributes), NFTA_CHAIN_USERDATA)?,
        })
    }

    /// Returns the attributes of the message that creates the chain in `table`.
    ///
    /// # Errors
    /// An attribute is too long for a message.
    pub fn encode(&self, table: &str) -> Result<Vec<u8>, TooLong> {
        kept::written(|w| self.write(table, w))
    }

    pub(crate) fn write(&self, table: &str, w: &mut AttrWriter<'_>) {
        w.str(NFTA_CHAIN_TABLE, table);
        w.str(NFTA_CHAIN_NAME, &self.name);
        if let Some(base) = &self.base {
            base.write(w);
        }
        if self.flags != 0 {
            w.be32(NFTA_CHAIN_FLAGS, self.flags);
        }
        kept::write_userdata(self.userdata.as_ref(), NFTA_CHAIN_USERDATA, w);
        kept::write(&self.other, w);
    }

    /// Returns the part of `add chain` after the name of the table, in a table of `family`.
    pub fn text(&self, family: TableFamily) -> impl fmt::Display {
        let base = self.base.as_ref().map(|base| base.text(family));
        let properties = base
            .into_iter()
            .chain(self.comment().map(|comment| format!("{};", Comment(Some(comment)))));
        let properties = properties.collect::<String>();
        let name = &self.name;
        fmt::from_fn(move |f| match &*properties {
            "" => f.write_str(name),
            properties => write!(f, "{name} {{{properties} }}"),
        })
    }

    /// Returns the comment, as printed by `nft list`.
    pub fn comment(&self) -> Option<&str> {
        self.userdata.as_ref().and_then(Bytes::comment)
    }

    /// Returns whether the chain belongs to a rule: `jump { … }` of nft(8).
    pub fn is_anonymous(&self) -> bool {
        self.flags & NFT_CHAIN_BINDING != 0
    }
}

impl BaseChain {
    /// Returns a base chain of a type, `filter`, `nat` or `route`, that accepts packets.
    pub fn new(kind: impl Into<Name>, hook: HookPoint, priority: i32) -> Self {
        Self { kind: kind.into(), hook: hook as u32, priority, ..Self::default() }
    }

    /// Returns a base chain of type `filter` at the ingress of devices, of a table of family netdev,
    /// that accepts packets.
    pub fn at_ingress(devices: impl IntoIterator<Item = Name>, priority: i32) -> Self {
        /// `NF_NETDEV_INGRESS` of `<linux/netfilter.h>`.
        const INGRESS: u32 = 0;
        let devices = devices.into_iter().map(Device::Named).collect();
        Self { kind: "filter".into(), hook: INGRESS, priority, devices, ..Self::default() }
    }

    /// Returns the same at the egress of devices. Needs Linux 5.16.
    pub fn at_egress(devices: impl IntoIterator<Item = Name>, priority: i32) -> Self {
        /// `NF_NETDEV_EGRESS` of `<linux/netfilter.h>`.
        const EGRESS: u32 = 1;
        Self { hook: EGRESS, ..Self::at_ingress(devices, priority) }
    }

    /// Returns the properties as `nft list` prints them, after a space.
    fn text(&self, family: TableFamily) -> String {
        let (kind, hook, priority) = (&self.kind, family.hook(self.hook), self.priority);
        let devices = match &*self.devices {
            [] => String::new(),
            devices => format!(" devices = {{ {} }}", joined(devices.iter(), ", ")),
        };
        let policy = if self.drops { "drop" } else { "accept" };
        format!(" type {kind} hook {hook}{devices} priority {priority}; policy {policy};")
    }

    fn decode(chain: &Fields<'_>) -> Result<Self, DecodeError> {
        let hook = chain.nest(NFTA_CHAIN_HOOK)?;
        Ok(Self {
            kind: chain.str(NFTA_CHAIN_TYPE)?.to_owned().into(),
            hook: hook.be32(NFTA_HOOK_HOOKNUM)?,
            priority: hook.be32(NFTA_HOOK_PRIORITY)?.cast_signed(),
            drops: chain.optional_be32(NFTA_CHAIN_POLICY)? == Some(NF_DROP),
            devices: flowtable::read_devices(&hook, NFTA_HOOK_DEVS)?,
        })
    }

    fn write(&self, w: &mut AttrWriter<'_>) {
        w.nest(NFTA_CHAIN_HOOK, |w| {
            w.be32(NFTA_HOOK_HOOKNUM, self.hook);
            w.be32(NFTA_HOOK_PRIORITY, self.priority.cast_unsigned());
            flowtable::write_devices(&self.devices, NFTA_HOOK_DEVS, w);
        });
        w.be32(NFTA_CHAIN_POLICY, if self.drops { NF_DROP } else { NF_ACCEPT });
        w.str(NFTA_CHAIN_TYPE, &self.kind);
    }

    /// Returns whether the other one is equal but for the policy.
    pub(crate) fn has_same_hook(&self, other: &Self) -> bool {
        *self == Self { drops: self.drops, ..other.clone() }
    }
}

/// Returns the name of the chain of an `NFT_MSG_NEWCHAIN` message, of any type and policy.
///
/// # Errors
/// The attributes are broken or have no name.
pub fn chain_name(attributes: &[u8]) -> Result<&str, DecodeError> {
    Fields::read(Attrs::new(attributes))?.str(NFTA_CHAIN_NAME)
}

/// A netfilter hook point: `NF_INET_*` in `<linux/netfilter.h>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HookPoint {
    /// Received packets, before routing: `NF_INET_PRE_ROUTING`.
    Prerouting = 0,
    /// Packets to this host: `NF_INET_LOCAL_IN`.
    Input = 1,
    /// Packets from one interface to another: `NF_INET_FORWARD`.
    Forward = 2,
    /// Packets of this host: `NF_INET_LOCAL_OUT`.
    Output = 3,
    /// Packets about to leave: `NF_INET_POST_ROUTING`.
    Postrouting = 4,
}
