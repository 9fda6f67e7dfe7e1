//! `plan`: shows what `apply` would do, changing nothing.

use std::path::Path;
use std::time::Duration;

use super::Failure;
use super::manifests::load;
use crate::config::Routing;
use crate::engine::{Engine, read_watching};
use crate::kernel::{Kernel, Nftables};
use crate::nft::Operation;

/// How often tables are read again that other programs change.
const ATTEMPTS: usize = 10;

/// Prints each change as a line in nft's words: `+` for what is added, `-` for what is removed.
///
/// # Errors
/// As `apply`, except that nothing is sent.
pub fn plan(path: &Path, node: &str, routing: Routing) -> Result<(), Failure> {
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let mut engine = Engine::new(routing, kernel.ownable_table_flags());
    let mut problems = load(&mut engine, path, node)?;
    let mut read = || read_watching(&mut kernel, engine.layouts(), &|| ()).map_err(Failure::new);
    let mut reading = read()?;
    for _ in 0..ATTEMPTS {
        if reading.is_torn {
            reading = read()?;
        }
    }
    engine.observe(reading.tables);
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        for operation in &transaction.operations {
            lines(operation).iter().for_each(|line| super::print(&format_args!("{line}\n")));
        }
        engine.committed(Duration::ZERO);
    }
    problems.extend(engine.take_problems().iter().map(ToString::to_string));
    super::left_out(&problems)
}

/// One line for each object and each element.
fn lines(operation: &Operation) -> Vec<String> {
    let is_added = matches!(
        operation,
        Operation::AddTable(_)
            | Operation::AddChain(..)
            | Operation::AddRule(..)
            | Operation::AddSet(..)
            | Operation::AddElements(..)
    );
    let sign = if is_added { '+' } else { '-' };
    match operation.elements() {
        Some(elements) => (0..elements.len())
            .map(|element| format!("{sign} {}", operation.narrowed(element)))
            .collect(),
        None => vec![format!("{sign} {operation}")],
    }
}
