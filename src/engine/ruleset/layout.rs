//! Name and layout number of our tables.

use nft::{Family, TableRef};

/// The name of our table in both families.
pub const TABLE: &str = "kube-proxy";

/// The number of this layout. A table of another layout is replaced as a whole. Other chains and rules
/// with the same sets and elements need no other number: they are replaced alone.
pub const LAYOUT: u32 = 6;

/// The comment of our tables, before the layout's number.
pub const TABLE_COMMENT: &str = "service proxy rules of deltaproxy, layout ";

/// Returns our table of one family.
pub fn table(family: Family) -> TableRef {
    TableRef::new(family, TABLE)
}

/// Returns the comment of our tables with the layout's number. nft(8) keeps it in a listing.
pub fn table_comment() -> String {
    format!("{TABLE_COMMENT}{LAYOUT}")
}

/// The end of the comment of frontends with scheduler `lc`, whose elements are those of `random`. A
/// name of Kubernetes has no space.
pub const LEAST_CONNECTIONS: &str = " lc";

/// Returns the comment of a frontend without the mark of scheduler `lc`, and whether it had one.
pub fn without_scheduler(label: &str) -> (&str, bool) {
    label.strip_suffix(LEAST_CONNECTIONS).map_or((label, false), |label| (label, true))
}
