//! The changes that would bring the tables into the state that a daemon keeps, object by object, in the
//! syntax of nft(8).

use std::collections::BTreeSet;
use std::time::Duration;

use daemon::direct;
use daemon::read_back::{Lists, read_watching};
use engine::routing::DirectReturn;
use engine::ruleset::Frontend;
use engine::ruleset::number::Route;
use engine::{Engine, FoundTable, FoundTables};
use nft::Operation;
use nft::kernel::{Kernel, Nftables};
use tokio::time::Instant;

use super::failure::Failure;
use super::objects::Loaded;
use super::settings::Settings;

/// A change, and the name of its service if it is one of a service.
pub(super) type Change = (ChangeLine, Option<String>);

/// Reads the tables, calls `accept` with them, and then `each` for each change.
///
/// # Errors
/// The tables, or with direct return the links, cannot be read.
pub(super) fn changes(
    Loaded { engine, kernel, .. }: &mut Loaded,
    settings: &Settings,
    accept: fn(&mut Engine, &FoundTables),
    each: &mut dyn FnMut(Change),
) -> Result<(), Failure> {
    if let Some(settings) = &settings.config.routing.direct_return {
        start_direct(engine, settings)?;
    }
    let found = read_tables(engine, kernel)?;
    if let Some(direct) = engine.direct_mut() {
        direct.note_local(local_frontends(&found.of_services));
    }
    accept(engine, &found);
    engine.replace_installed_state(found);
    engine.keep_size_classes();
    while let Some(transaction) = engine.next_transaction(kernel.max_batch()) {
        for (number, operation) in transaction.operations.iter().enumerate() {
            for (element, change) in lines(operation).into_iter().enumerate() {
                let service = engine.service_of(&transaction, number, element);
                each((change, service.map(|name| name.to_string())));
            }
        }
        engine.committed(Duration::ZERO);
    }
    Ok(())
}

/// Begins as a daemon does, but asks no neighbour for its hardware address.
fn start_direct(engine: &mut Engine, settings: &DirectReturn) -> Result<(), Failure> {
    engine.hand_packets_on(Instant::now().into_std());
    let links = direct::look(settings, engine.cluster()).map_err(Failure::new)?;
    engine.learn_links(links);
    // Until then, addresses of nodes are awaited.
    if let Some(due) = engine.direct().and_then(|direct| direct.due()) {
        engine.note_time(due);
    }
    Ok(())
}

/// Most repetitions of a read during which another program changed the tables.
const ATTEMPTS: usize = 10;

/// Returns our tables, read if possible while no other program changes them.
fn read_tables(engine: &Engine, kernel: &mut Nftables) -> Result<FoundTables, Failure> {
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

/// Returns the frontends whose packets the tables translate to endpoints of this node alone.
fn local_frontends(found: &[FoundTable; 2]) -> BTreeSet<Frontend> {
    let frontends = found.iter().flat_map(|table| table.elements.frontends());
    let local = frontends
        .filter(|(_, state)| state.route().is_some_and(|route: Route| route.flags().local));
    local.map(|(frontend, _)| frontend).collect()
}

/// An object or element that is added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChangeLine {
    /// `+` for an addition, `-` for a removal.
    pub(super) sign: char,
    /// The command of nft(8).
    pub(super) command: String,
}

impl ChangeLine {
    fn of(operation: &Operation) -> Self {
        let is_added = matches!(
            operation,
            Operation::AddTable(_)
                | Operation::AddChain(..)
                | Operation::AddRule(..)
                | Operation::AddSet(..)
                | Operation::AddFlowtable(..)
                | Operation::AddDevices(..)
                | Operation::AddElements(..)
        );
        Self { sign: if is_added { '+' } else { '-' }, command: operation.to_string() }
    }
}

/// Returns the changes of one operation: each object, or each element in order.
fn lines(operation: &Operation) -> Vec<ChangeLine> {
    match operation.elements() {
        Some(elements) => (0..elements.len())
            .map(|element| ChangeLine::of(&operation.narrowed(element)))
            .collect(),
        None => vec![ChangeLine::of(operation)],
    }
}
