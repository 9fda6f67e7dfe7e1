//! Requests to nf_tables that change nothing, and the messages that answer them.
//!
//! Message types and attributes are those of `<linux/netfilter/nf_tables.h>`.

use std::fmt;

use super::abi::*;
use super::fields::{DecodeError, Fields};
use crate::family::TableFamily;
use crate::hook::Hook;
use crate::netlink::attr::{AttrWriter, Attrs, TooLong};
use crate::netlink::message::{self, Header};
use crate::notification::NFGENMSG_LENGTH;
use crate::table::{TableRef, table_name};
use crate::value::Value;

/// Number that the kernel increments with every commit to any table in a network namespace. It is
/// never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// Returns the generation after one more commit.
    pub(super) fn next(self) -> Self {
        Self(self.0.checked_add(1).unwrap_or(1))
    }
}

/// A read request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The generation of the ruleset of this network namespace.
    Generation,
    /// The tables of a family, without their contents.
    Tables(TableFamily),
    /// The chains of all tables of a family.
    AllChains(TableFamily),
    /// One table, without its contents.
    Table(&'a TableRef),
    /// The chains of a table.
    Chains(&'a TableRef),
    /// The rules of a table.
    Rules(&'a TableRef),
    /// The sets and maps of a table, without their elements.
    Sets(&'a TableRef),
    /// The stateful objects of a table.
    Objects(&'a TableRef),
    /// The flowtables of a table.
    Flowtables(&'a TableRef),
    /// One set or map, without its elements.
    Set(&'a TableRef, &'a str),
    /// The elements of one set or map.
    Elements(&'a TableRef, &'a str),
    /// The elements of one set or map with these keys, which are concatenations, in this order. The
    /// answer ends at the first missing key.
    ElementsOf(&'a TableRef, &'a str, &'a [Value]),
    /// The element with a key in a set or map; without a key, the catch-all element.
    Element(&'a TableRef, &'a str, Option<&'a [u8]>),
    /// What the kernel calls at a hook, in its order.
    Hook(&'a Hook),
}

impl<'a> Request<'a> {
    /// Returns the request message, ready to be sent as a datagram.
    ///
    /// # Errors
    /// [`TooLong`] if a name does not fit an attribute.
    pub fn encode(&self, sequence: u32) -> Result<Vec<u8>, TooLong> {
        // Requests an acknowledgement, so that every answer has a visible end.
        let (_, is_dump, ..) = self.parts();
        let flags = message::REQUEST | if is_dump { message::DUMP } else { message::ACK };
        // `NFT_MSG_GET*` is the number after `NFT_MSG_NEW*`.
        let kind = self.answer() + u16::from(!matches!(self, Self::Hook(_)));
        let mut out = Vec::new();
        let (header, fixed) = (Header { kind, flags, sequence }, [self.family(), 0, 0, 0]);
        message::append(&mut out, header, &fixed, |w| self.write_names(w))?;
        Ok(out)
    }

    /// Returns the attributes of a message, if it answers this request.
    pub fn attributes<'m>(&self, kind: u16, payload: &'m [u8]) -> Option<&'m [u8]> {
        let attributes = payload.get(NFGENMSG_LENGTH..)?;
        let answers = kind == self.answer()
            && self.family() == payload[0]
            // The kernel dumps the chains of all tables of a family.
            && self.table().is_none_or(|table| table_name(attributes) == Ok(&table.name));
        answers.then_some(attributes)
    }

    /// Returns the type of the messages that answer, whether they list all objects of a kind, and the
    /// table and the set that the request names.
    fn parts(&self) -> (u16, bool, Option<&'a TableRef>, Option<&'a str>) {
        const ONE: bool = false;
        const ALL: bool = true;
        match *self {
            Self::Generation => (NFT_MSG_NEWGEN, ONE, None, None),
            Self::Tables(_) => (NFT_MSG_NEWTABLE, ALL, None, None),
            Self::AllChains(_) => (NFT_MSG_NEWCHAIN, ALL, None, None),
            Self::Hook(_) => (NFNL_MSG_HOOK_GET, ALL, None, None),
            Self::Table(table) => (NFT_MSG_NEWTABLE, ONE, Some(table), None),
            Self::Chains(table) => (NFT_MSG_NEWCHAIN, ALL, Some(table), None),
            Self::Rules(table) => (NFT_MSG_NEWRULE, ALL, Some(table), None),
            Self::Sets(table) => (NFT_MSG_NEWSET, ALL, Some(table), None),
            Self::Objects(table) => (NFT_MSG_NEWOBJ, ALL, Some(table), None),
            Self::Flowtables(table) => (NFT_MSG_NEWFLOWTABLE, ALL, Some(table), None),
            Self::Set(table, set) => (NFT_MSG_NEWSET, ONE, Some(table), Some(set)),
            Self::Elements(table, set) => (NFT_MSG_NEWSETELEM, ALL, Some(table), Some(set)),
            Self::Element(table, set, _) | Self::ElementsOf(table, set, _) => {
                (NFT_MSG_NEWSETELEM, ONE, Some(table), Some(set))
            }
        }
    }

    /// Returns `nlmsg_type` of the messages that answer.
    fn answer(&self) -> u16 {
        let is_hook = matches!(self, Self::Hook(_));
        let subsystem = if is_hook { NFNL_SUBSYS_HOOK } else { NFNL_SUBSYS_NFTABLES };
        subsystem << 8 | self.parts().0
    }

    fn table(&self) -> Option<&'a TableRef> {
        self.parts().2
    }

    fn family(&self) -> u8 {
        if let Self::Tables(family) | Self::AllChains(family) | Self::Hook(Hook { family, .. }) =
            self
        {
            return family.number();
        }
        self.table().map_or(NFPROTO_UNSPEC, |table| table.family.number())
    }

    fn write_names(&self, w: &mut AttrWriter<'_>) {
        let (.., table, set) = self.parts();
        if let Some(table) = table {
            // Messages about objects in a table have its name in an attribute of the same number.
            w.str(NFTA_TABLE_NAME, &table.name);
        }
        // `NFTA_SET_NAME` has the same number.
        if let Some(set) = set {
            w.str(NFTA_SET_ELEM_LIST_SET, set);
        }
        if let Self::Element(_, _, key) = self {
            w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| match key {
                Some(key) => write_key(key, w),
                None => w.nest(NFTA_LIST_ELEM, |w| {
                    w.be32(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_CATCHALL);
                }),
            });
        }
        if let Self::Hook(hook) = self {
            hook.write(w);
        }
        if let Self::ElementsOf(_, _, keys) = self {
            w.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |w| {
                keys.iter().for_each(|key| write_key(key.as_bytes(), w));
            });
        }
    }
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation => f.write_str("the generation of the rule set"),
            Self::Tables(family) => write!(f, "the tables of family {family}"),
            Self::AllChains(family) => write!(f, "the chains of family {family}"),
            Self::Table(table) => write!(f, "table {table}"),
            Self::Chains(table) => write!(f, "the chains of table {table}"),
            Self::Rules(table) => write!(f, "the rules of table {table}"),
            Self::Sets(table) => write!(f, "the sets of table {table}"),
            Self::Objects(table) => write!(f, "the objects of table {table}"),
            Self::Flowtables(table) => write!(f, "the flowtables of table {table}"),
            Self::Set(table, set) => write!(f, "{set} in table {table}"),
            Self::Elements(table, set) | Self::Element(table, set, _) => {
                write!(f, "the elements of {set} in table {table}")
            }
            Self::ElementsOf(table, set, keys) => {
                write!(f, "{} elements of {set} in table {table}", keys.len())
            }
            Self::Hook(hook) => {
                write!(f, "hook {} of family {}", hook.family.hook(hook.number), hook.family)
            }
        }
    }
}

/// Returns the number in an answer to [`Request::Generation`].
///
/// # Errors
/// The attributes are broken or have no number.
pub fn generation(attributes: &[u8]) -> Result<Generation, DecodeError> {
    Fields::read(Attrs::new(attributes))?.be32(NFTA_GEN_ID).map(Generation)
}

fn write_key(key: &[u8], w: &mut AttrWriter<'_>) {
    w.nest(NFTA_LIST_ELEM, |w| {
        w.nest(NFTA_SET_ELEM_KEY, |w| w.bytes(NFTA_DATA_VALUE, key));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Family;

    fn table(name: &'static str) -> TableRef {
        TableRef::new(Family::Ip6, name)
    }

    /// `nft --debug=mnl list set ip6 kube-proxy services`.
    #[test]
    fn a_request_for_elements_names_table_and_set() {
        let table = table("kube-proxy");
        let bytes = Request::Elements(&table, "services").encode(7).unwrap();
        let mut messages = message::Messages::new(&bytes);
        let message = messages.next().unwrap().unwrap();
        assert_eq!(messages.next(), None);
        assert_eq!((message.kind, message.flags, message.sequence), (0x0a0d, 0x301, 7));
        assert_eq!(message.payload[..4], [10, 0, 0, 0]);
        let attributes: Vec<_> = Attrs::new(&message.payload[4..]).map(Result::unwrap).collect();
        assert_eq!(attributes.len(), 2);
        assert_eq!((attributes[0].kind, attributes[0].str()), (1, Ok("kube-proxy")));
        assert_eq!((attributes[1].kind, attributes[1].str()), (2, Ok("services")));
    }

    /// `nft --debug=mnl get element ip6 kube-proxy endpoints { … }`.
    #[test]
    fn a_request_for_some_elements_is_no_dump_and_lists_their_keys() {
        let table = table("kube-proxy");
        let keys = [Value::new().integer(1), Value::new().integer(2)];
        let bytes = Request::ElementsOf(&table, "endpoints", &keys).encode(7).unwrap();
        let message = message::Messages::new(&bytes).next().unwrap().unwrap();
        assert_eq!((message.kind, message.flags), (0x0a0d, 0x5));
        let list = Attrs::new(&message.payload[4..]).map(Result::unwrap).last().unwrap();
        assert_eq!(list.kind, 3);
        let mut numbers = Vec::new();
        for element in list.nested() {
            let element = element.unwrap();
            let key = element.nested().next().unwrap().unwrap();
            let value = key.nested().next().unwrap().unwrap();
            assert_eq!((element.kind, key.kind, value.kind), (1, 1, 1));
            numbers.push(value.payload.to_vec());
        }
        assert_eq!(numbers, [1u32.to_ne_bytes(), 2u32.to_ne_bytes()]);
    }

    /// `nft --debug=mnl list hooks netdev device eth0`.
    #[test]
    fn a_request_for_a_hook_has_its_number_and_device_and_a_subsystem_of_its_own() {
        let hook = Hook { family: TableFamily::Netdev, number: 0, device: Some("eth0".into()) };
        let request = Request::Hook(&hook);
        let bytes = request.encode(7).unwrap();
        let message = message::Messages::new(&bytes).next().unwrap().unwrap();
        assert_eq!((message.kind, message.flags, message.payload[0]), (0x0c00, 0x301, 5));
        let attributes: Vec<_> = Attrs::new(&message.payload[4..]).map(Result::unwrap).collect();
        assert_eq!((attributes[0].kind, attributes[0].be32()), (1, Ok(0)));
        assert_eq!((attributes[1].kind, attributes[1].str()), (3, Ok("eth0")));
        assert!(request.attributes(0x0c00, &[5, 0, 0, 0]).is_some());
        assert_eq!(request.attributes(0x0a00, &[5, 0, 0, 0]), None);
        assert_eq!(request.attributes(0x0c00, &[2, 0, 0, 0]), None);
    }

    #[test]
    fn only_messages_about_the_table_answer_a_request() {
        let (ours, other) = (table("kube-proxy"), table("filter"));
        let mut payload = vec![10, 0, 0, 0];
        AttrWriter::new(&mut payload).str(1, "kube-proxy");
        let answers = |request: Request<'_>, kind| request.attributes(kind, &payload).is_some();
        assert!(answers(Request::Chains(&ours), 0x0a03));
        assert!(!answers(Request::Chains(&ours), 0x0a06));
        assert!(!answers(Request::Chains(&other), 0x0a03));
        assert!(!answers(Request::Generation, 0x0a0f));
        assert_eq!(Request::Chains(&ours).attributes(0x0a03, &[10, 0]), None);
    }

    #[test]
    fn a_name_that_does_not_fit_is_an_error() {
        let table = TableRef::new(Family::Ip, "x".repeat(70_000));
        assert!(Request::Table(&table).encode(1).is_err());
    }
}
