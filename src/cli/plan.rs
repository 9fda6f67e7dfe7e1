//! `plan`: shows what `apply` would do, changing nothing.

use std::path::Path;
use std::time::Duration;

use super::Failure;
use super::manifests::load;
use crate::config::Routing;
use crate::engine::{Engine, read_back};
use crate::kernel::{Kernel, Nftables};
use crate::nft::{Element, Operation, TableFlags};

/// Prints each change as a line in nft's words: `+` for what is added, `-` for what is removed.
///
/// # Errors
/// As `apply`, except that nothing is sent.
pub fn plan(path: &Path, node: &str, routing: Routing) -> Result<(), Failure> {
    let mut engine = Engine::new(routing, TableFlags::default());
    let mut problems = load(&mut engine, path, node)?;
    let mut kernel = Nftables::open().map_err(Failure::new)?;
    let found = read_back(&mut kernel, engine.layouts()).map_err(Failure::new)?;
    engine.observe(found);
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
    let one = |element: &Element| vec![element.clone()];
    match operation {
        Operation::AddElements(table, set, elements) => elements
            .iter()
            .map(|e| format!("+ {}", Operation::AddElements(table.clone(), set.clone(), one(e))))
            .collect(),
        Operation::DeleteElements(table, set, elements) => elements
            .iter()
            .map(|e| format!("- {}", Operation::DeleteElements(table.clone(), set.clone(), one(e))))
            .collect(),
        Operation::AddTable(_)
        | Operation::AddChain(..)
        | Operation::AddRule(..)
        | Operation::AddSet(..) => vec![format!("+ {operation}")],
        Operation::DeleteTable(_)
        | Operation::DeleteChain(..)
        | Operation::FlushChain(..)
        | Operation::DeleteSet(..)
        | Operation::FlushSet(..) => vec![format!("- {operation}")],
    }
}
