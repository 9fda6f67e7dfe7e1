//! An independent reader of the kernel's tables, on `netlink-bindings`.
//!
//! It shares no code with the program under test, so a value that both read is in the kernel.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::time::Duration;

use netlink_bindings::nftables::{
    ChainAttrs, DataAttrs, IterableChainAttrs, IterableDataAttrs, IterableRuleAttrs,
    IterableSetAttrs, IterableSetelemAttrs, Nfgenmsg, Request,
};
use netlink_bindings::traits::{NetlinkRequest, Protocol};
use socket2::{Domain, Socket, Type};

use crate::deadline::eventually;

/// The family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `ip`.
    Ip,
    /// `ip6`.
    Ip6,
}

/// A table and all that is in it, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// `NFT_TABLE_F_*`.
    pub flags: u32,
    /// Base chains and others.
    pub chains: BTreeMap<String, Chain>,
    /// Sets and maps, anonymous ones too.
    pub sets: BTreeMap<String, Set>,
}

/// A chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Hook number and priority, on a base chain.
    pub hook: Option<(u32, i32)>,
    /// Its rules in order.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The handle: the same as long as the rule was not replaced.
    pub handle: u64,
    /// The names of its expressions in order.
    pub expressions: Vec<String>,
    /// Its comment.
    pub comment: Option<String>,
}

/// A set or map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// `NFT_SET_*`.
    pub flags: u32,
    /// Bytes of a key.
    pub key_len: u32,
    /// Bytes of an element's data; 0 in a set.
    pub data_len: u32,
    /// Its elements, sorted.
    pub elements: Vec<Element>,
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// The key, each part padded to four bytes.
    pub key: Vec<u8>,
    /// The end of a range of concatenated keys.
    pub key_end: Option<Vec<u8>>,
    /// The data of the key.
    pub data: Option<Data>,
    /// `NFT_SET_ELEM_*`: 1 is the end of an interval.
    pub flags: u32,
    /// Its comment.
    pub comment: Option<String>,
}

/// The data of an element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// Bytes, each part padded to four.
    Value(Vec<u8>),
    /// A verdict's code (0 drop, 1 accept, -3 jump, -4 goto) and chain.
    Verdict(i32, Option<String>),
}

/// Reads a table of the calling thread's namespace; `None` if there is none of this name.
///
/// # Panics
/// When the kernel refuses a question or sends something else than an answer.
#[must_use]
#[track_caller]
pub fn read(family: Family, table: &str) -> Option<Table> {
    eventually("a table that does not change while it is read", LIMIT, || {
        Kernel::open(family, table).read().ok()
    })
}

/// Resets all counters of a table of the calling thread's namespace, as `nft reset` does.
///
/// # Panics
/// When the kernel refuses it.
#[track_caller]
pub(crate) fn reset_counters(family: Family, table: &str) {
    eventually("a table that does not change while it is reset", LIMIT, || {
        Kernel::open(family, table).reset_counters().ok()
    });
}

/// The table changed while it was read.
pub(crate) struct Changed;

/// A socket and the table that is read through it.
pub(crate) struct Kernel<'t> {
    socket: Socket,
    header: Nfgenmsg,
    table: &'t str,
}

impl<'t> Kernel<'t> {
    pub(crate) fn open(family: Family, table: &'t str) -> Self {
        let netfilter = Some(libc::NETLINK_NETFILTER.into());
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, netfilter);
        let socket = socket.expect("a netfilter socket");
        socket.set_read_timeout(Some(LIMIT)).expect("it is not zero");
        let mut header = Nfgenmsg::new();
        header.nfgen_family = match family {
            Family::Ip => NFPROTO_IPV4,
            Family::Ip6 => NFPROTO_IPV6,
        };
        Self { socket, header, table }
    }

    fn read(&self) -> Result<Option<Table>, Changed> {
        let Some(flags) = self.table_flags()? else { return Ok(None) };
        let mut found = Table { flags, chains: self.chains()?, sets: self.sets()? };
        self.add_rules(&mut found.chains)?;
        for (name, set) in &mut found.sets {
            set.elements = self.elements(name)?;
        }
        Ok(Some(found))
    }

    fn is_ours(&self, table: &CStr) -> bool {
        table.to_bytes() == self.table.as_bytes()
    }

    fn table_flags(&self) -> Result<Option<u32>, Changed> {
        let request = Request::new().op_gettable_dump(&self.header);
        let mut flags = None;
        self.dump(&request, |(_, table)| {
            if self.is_ours(table.get_name().expect("a table has a name")) {
                flags = Some(table.get_flags().unwrap_or(0));
            }
        })?;
        Ok(flags)
    }

    fn chains(&self) -> Result<BTreeMap<String, Chain>, Changed> {
        let request = Request::new().op_getchain_dump(&self.header);
        let mut chains = BTreeMap::new();
        self.dump(&request, |(_, chain)| {
            if self.is_ours(chain.get_table().expect("a chain has a table")) {
                let name = text(chain.get_name().expect("a chain has a name"));
                chains.insert(name, Chain { hook: hook(chain), rules: Vec::new() });
            }
        })?;
        Ok(chains)
    }

    fn add_rules(&self, chains: &mut BTreeMap<String, Chain>) -> Result<(), Changed> {
        let mut request = Request::new().op_getrule_dump(&self.header);
        request.encode().push_table_bytes(self.table.as_bytes());
        self.dump(&request, |(_, rule)| {
            if self.is_ours(rule.get_table().expect("a rule has a table")) {
                let chain = text(rule.get_chain().expect("a rule has a chain"));
                chains.entry(chain).or_default().rules.push(decode_rule(rule));
            }
        })
    }

    fn sets(&self) -> Result<BTreeMap<String, Set>, Changed> {
        let request = Request::new().op_getset_dump(&self.header);
        let mut sets = BTreeMap::new();
        self.dump(&request, |(_, set)| {
            if self.is_ours(set.get_table().expect("a set has a table")) {
                sets.insert(text(set.get_name().expect("a set has a name")), decode_set(set));
            }
        })?;
        Ok(sets)
    }

    /// The elements, sorted. While the kernel resizes a hash table in the background, which it does
    /// after a large load, its dump repeats some elements and leaves out as many others; that
    /// counts as a change.
    fn elements(&self, set: &str) -> Result<Vec<Element>, Changed> {
        let mut request = Request::new().op_getsetelem_dump(&self.header);
        let names = request.encode().push_table_bytes(self.table.as_bytes());
        names.push_set_bytes(set.as_bytes());
        let mut elements = Vec::new();
        self.dump(&request, |(_, list)| {
            if let Ok(list) = list.get_elements() {
                elements.extend(list.get_elem().map(|element| decode_element(&element)));
            }
        })?;
        elements.sort();
        let repeats = elements.windows(2).any(|pair| pair[0] == pair[1]);
        if repeats { Err(Changed) } else { Ok(elements) }
    }

    /// Rules and elements are reset by dumps of their own, which list as they reset.
    fn reset_counters(&self) -> Result<(), Changed> {
        let table = self.table.as_bytes();
        let mut rules = Request::new().op_getrule_reset_dump(&self.header);
        rules.encode().push_table_bytes(table);
        self.dump(&rules, |_| ())?;
        self.sets()?.keys().try_for_each(|set| {
            let mut elements = Request::new().op_getsetelem_reset_dump(&self.header);
            elements.encode().push_table_bytes(table).push_set_bytes(set.as_bytes());
            self.dump(&elements, |_| ())
        })
    }

    /// Sends a dump request and hands each reply to `each`.
    #[track_caller]
    pub(crate) fn dump<R: NetlinkRequest>(
        &self,
        request: &R,
        mut each: impl FnMut(R::ReplyType<'_>),
    ) -> Result<(), Changed> {
        self.socket.send(&message(request)).expect("the kernel takes the question");
        loop {
            let mut buffer = vec![0; 1 << 16];
            let len = std::io::Read::read(&mut &self.socket, &mut buffer)
                .unwrap_or_else(|error| panic!("no answer from the kernel: {error}"));
            let mut rest = buffer.get(..len).unwrap_or_default();
            while let Some((header, payload, next)) = split(rest) {
                if header.flags & NLM_F_DUMP_INTR != 0 {
                    return Err(Changed);
                }
                match header.kind {
                    NLMSG_DONE => return Ok(()),
                    // The set or table went after it was listed.
                    NLMSG_ERROR if payload.starts_with(&(-libc::ENOENT).to_ne_bytes()) => {
                        return Err(Changed);
                    }
                    NLMSG_ERROR => panic!("the kernel refused to list: {payload:?}"),
                    _ => each(R::decode_reply(payload)),
                }
                rest = next;
            }
        }
    }
}

struct Header {
    kind: u16,
    flags: u16,
}

/// The first message of `bytes`: its header, its payload, and the remaining bytes.
fn split(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let len = usize::try_from(len).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let flags = u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?);
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((Header { kind, flags }, bytes.get(HEADER_LEN..len)?, next))
}

/// `request` behind its netlink header.
fn message(request: &impl NetlinkRequest) -> Vec<u8> {
    let Protocol::Raw { request_type, .. } = request.protocol() else {
        panic!("nf_tables is no generic netlink family")
    };
    let len = u32::try_from(HEADER_LEN + request.payload().len()).expect("a short question");
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(request_type.to_ne_bytes());
    bytes.extend((request.flags() | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(request.payload());
    bytes
}

fn hook(mut chain: IterableChainAttrs<'_>) -> Option<(u32, i32)> {
    let hook = chain.find_map(|attribute| match attribute {
        Ok(ChainAttrs::Hook(hook)) => Some(hook),
        Ok(_) | Err(_) => None,
    })?;
    Some((hook.get_num().ok()?, hook.get_priority().ok()?))
}

fn decode_rule(rule: IterableRuleAttrs<'_>) -> Rule {
    let expressions = rule.get_expressions().expect("a rule has expressions");
    let name = |expression: netlink_bindings::nftables::IterableExprAttrs<'_>| {
        text(expression.get_name().expect("an expression has a name"))
    };
    Rule {
        handle: rule.get_handle().expect("a rule has a handle"),
        expressions: expressions.get_elem().map(name).collect(),
        comment: rule.get_userdata().ok().and_then(comment),
    }
}

fn decode_set(set: IterableSetAttrs<'_>) -> Set {
    Set {
        flags: set.get_flags().unwrap_or(0),
        key_len: set.get_key_len().expect("a key has a length"),
        data_len: set.get_data_len().unwrap_or(0),
        elements: Vec::new(),
    }
}

fn decode_element(element: &IterableSetelemAttrs<'_>) -> Element {
    let flags = element.get_flags().ok().and_then(|bytes| bytes.try_into().ok());
    let bytes = |data: IterableDataAttrs<'_>| data.get_value().unwrap_or_default().to_vec();
    Element {
        // The element that catches all has no key.
        key: element.get_key().map(bytes).unwrap_or_default(),
        key_end: element.get_key_end().map(bytes).ok(),
        data: element.get_data().ok().and_then(decode_data),
        flags: flags.map_or(0, u32::from_be_bytes),
        comment: element.get_userdata().ok().and_then(comment),
    }
}

fn decode_data(mut data: IterableDataAttrs<'_>) -> Option<Data> {
    Some(match data.next()?.ok()? {
        DataAttrs::Value(bytes) => Data::Value(bytes.to_vec()),
        DataAttrs::Verdict(verdict) => Data::Verdict(
            verdict.get_code().ok()?.cast_signed(),
            verdict.get_chain().ok().map(text),
        ),
    })
}

/// The comment in user data: a list of type, length and value; type 0 is the comment, NUL at its
/// end, of rules and of elements.
fn comment(mut user_data: &[u8]) -> Option<String> {
    while let [kind, len, rest @ ..] = user_data {
        let (value, next) = rest.split_at_checked(usize::from(*len))?;
        if *kind == 0 {
            return Some(text(CStr::from_bytes_until_nul(value).ok()?));
        }
        user_data = next;
    }
    None
}

fn text(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

const HEADER_LEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

/// A dump is answered at once; without an answer the question was malformed.
const LIMIT: Duration = Duration::from_secs(5);
