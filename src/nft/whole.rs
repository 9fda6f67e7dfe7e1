//! A whole table of any family and program.

use crate::abi::*;
use crate::any::{AnySet, SetContents};
use crate::chain::Chain;
use crate::expression::{Bytes, Expression};
use crate::family::TableFamily;
use crate::fields::{DecodeError, Fields};
use crate::flowtable::Flowtable;
use crate::listed_rule::ListedRule;
use crate::netlink::attr::Attrs;
use crate::object::Object;
use crate::request::Generation;
use crate::table::{Table, TableFlags};

/// A table with all that is in it.
///
/// A rule's anonymous sets are in `sets` too. Names of tables inside the objects, and the handles
/// and positions of rules, matter only in a table that was read.
///
/// ```
/// use nft_netlink::{Chain, TableFamily, WholeTable};
///
/// let mut table = WholeTable::new(TableFamily::Inet, "filter");
/// table.chains.push(Chain::new("input"));
/// assert_eq!(table.difference_from(Some(&table))?.len(), 0);
/// assert_eq!(table.difference_from(None)?.to_string(), "\
/// add table inet filter
/// add chain inet filter input
/// ");
/// # Ok::<(), nft_netlink::difference::DifferenceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeTable {
    /// Family of the table.
    pub family: TableFamily,
    /// Name within the family.
    pub name: String,
    /// `NFT_TABLE_F_*`.
    pub flags: u32,
    /// Bytes that the kernel stores for the program that made the table.
    pub userdata: Option<Bytes>,
    /// Netlink port of the socket that owns the table.
    pub owner: Option<u32>,
    /// Generation of the ruleset in which the table was read.
    pub generation: Option<Generation>,
    /// The chains.
    pub chains: Vec<Chain>,
    /// The rules, those of one chain in their order.
    pub rules: Vec<ListedRule>,
    /// The sets and maps with their elements.
    pub sets: Vec<SetContents>,
    /// The stateful objects.
    pub objects: Vec<Object>,
    /// The flowtables.
    pub flowtables: Vec<Flowtable>,
}

impl WholeTable {
    /// Returns an empty table.
    pub fn new(family: TableFamily, name: &str) -> Self {
        Self {
            family,
            name: name.to_owned(),
            flags: 0,
            userdata: None,
            owner: None,
            generation: None,
            chains: Vec::new(),
            rules: Vec::new(),
            sets: Vec::new(),
            objects: Vec::new(),
            flowtables: Vec::new(),
        }
    }

    /// Reads the attributes of an `NFT_MSG_NEWTABLE` message, which have no contents.
    ///
    /// # Errors
    /// The attributes are broken.
    pub fn decode_header(family: TableFamily, attributes: &[u8]) -> Result<Self, DecodeError> {
        let fields = Fields::read(Attrs::new(attributes))?;
        Ok(Self {
            flags: fields.be32_or_zero(NFTA_TABLE_FLAGS)?,
            userdata: fields.find(NFTA_TABLE_USERDATA).map(|it| Bytes::from(it.payload)),
            owner: fields.optional_be32(NFTA_TABLE_OWNER)?,
            ..Self::new(family, fields.str(NFTA_TABLE_NAME)?)
        })
    }

    /// Returns the table without its contents; `None` with a flag that this crate does not write.
    pub(crate) fn known(&self) -> Option<Table> {
        let (family, name) = (self.family, self.name.clone().into());
        let comment = self.userdata.as_ref().and_then(Bytes::comment).map(str::to_owned);
        Some(Table { family, name, flags: TableFlags::from_bits(self.flags)?, comment })
    }

    /// Returns whether its sets, elements, chains and flowtables change by commits alone, and its
    /// sets keep their names.
    pub(crate) fn changes_by_commits_alone(&self) -> bool {
        let changes = AnySet::ANONYMOUS | AnySet::TIMEOUT | AnySet::DYNAMIC;
        let has_devices =
            |chain: &Chain| chain.base.as_ref().is_some_and(|base| !base.devices.is_empty());
        self.flowtables.is_empty()
            && !self.chains.iter().any(has_devices)
            && self.sets.iter().all(|contents| contents.set.flags & changes == 0)
            && self
                .rules
                .iter()
                .flat_map(|rule| &rule.expressions)
                .all(|expression| !matches!(expression, Expression::Dynset(_)))
    }

    /// Appends a rule to a chain.
    pub fn append_rule(&mut self, chain: &str, expressions: Vec<Expression>) {
        self.rules.push(ListedRule {
            table: String::new(),
            chain: chain.to_owned(),
            handle: 0,
            position: None,
            expressions,
            userdata: None,
        });
    }

    /// Returns the rules of a chain.
    pub fn rules_of(&self, chain: &str) -> impl Iterator<Item = &ListedRule> {
        self.rules.iter().filter(move |rule| rule.chain == chain)
    }

    /// Returns the set or map with this name.
    pub fn set(&self, name: &str) -> Option<&SetContents> {
        self.sets.iter().find(|contents| contents.set.name == name)
    }

    /// Returns the named sets and maps.
    pub fn named_sets(&self) -> impl Iterator<Item = &SetContents> {
        self.sets.iter().filter(|contents| !AnySet::is_anonymous(&contents.set))
    }
}

impl Table {
    /// Reads the attributes of an `NFT_MSG_NEWTABLE` message of this family.
    ///
    /// # Errors
    /// The attributes are broken, or a flag is one that this crate does not write.
    pub fn decode(family: TableFamily, attributes: &[u8]) -> Result<Self, DecodeError> {
        let whole = WholeTable::decode_header(family, attributes)?;
        whole.known().ok_or(DecodeError::Unknown("table flag"))
    }
}
