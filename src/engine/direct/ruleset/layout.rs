//! Name and layout number of the table.

use nft::{TableFamily, TableRef};

/// The name of the table.
pub const TABLE: &str = "direct-return";

/// The number of this layout. A table of another layout is replaced as a whole. Other chains and
/// rules with the same sets and elements need no other number: they are replaced alone.
pub const LAYOUT: u32 = 1;

/// The comment of the table, before the layout's number.
pub const TABLE_COMMENT: &str = "direct return of deltaproxy, layout ";

/// Returns the table.
pub fn table() -> TableRef {
    let family = TableFamily::Netdev;
    TableRef::new(family, TABLE)
}

/// Returns the comment of the table with the layout's number. nft(8) keeps it in a listing.
pub fn table_comment() -> String {
    format!("{TABLE_COMMENT}{LAYOUT}")
}
