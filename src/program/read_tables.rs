//! Reads the tables for commands that only compare.

use daemon::read_back::{Lists, read_watching};
use engine::{Engine, FoundTables};
use nft::kernel::Nftables;

use super::failure::Failure;

/// Most repetitions of a read during which another program changed the tables.
const ATTEMPTS: usize = 10;

/// Returns both tables, read if possible while no other program changes them.
pub(super) fn read_tables(engine: &Engine, kernel: &mut Nftables) -> Result<FoundTables, Failure> {
    let layouts = engine.tables().layouts();
    let mut read = || read_watching(kernel, layouts, (Lists::Now, &|| ())).map_err(Failure::new);
    let mut reading = read()?;
    for _ in 0..ATTEMPTS {
        if reading.is_torn {
            reading = read()?;
        }
    }
    Ok(reading.tables)
}
