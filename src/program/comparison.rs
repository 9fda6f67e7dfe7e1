//! The changes that would bring the tables into the state that a daemon keeps.

use std::collections::BTreeSet;
use std::time::Duration;

use daemon::direct;
use daemon::read_back::{Lists, read_watching};
use engine::routing::DirectReturn;
use engine::ruleset::Frontend;
use engine::ruleset::number::Route;
use engine::{Engine, FoundTable, FoundTables};
use nft::kernel::{Kernel, Nftables};
use tokio::time::Instant;

use super::change::{ChangeLine, changes};
use super::failure::Failure;

/// A change, and the name of its service if it is one of a service.
pub(super) type Change = (ChangeLine, Option<String>);

/// The tables beside an engine that holds all objects.
pub(super) struct Comparison<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) kernel: &'a mut Nftables,
    /// Settings of direct return, if it is on.
    pub(super) direct_return: Option<&'a DirectReturn>,
    /// Called with the tables before they are compared.
    pub(super) accept: fn(&mut Engine, &FoundTables),
}

impl Comparison<'_> {
    /// Reads the tables, and calls `each` for each change.
    ///
    /// # Errors
    /// The tables, or with direct return the links, cannot be read.
    pub(super) fn changes(&mut self, each: &mut dyn FnMut(Change)) -> Result<(), Failure> {
        if let Some(settings) = self.direct_return {
            self.start(settings)?;
        }
        self.observe()?;
        self.drain(each);
        Ok(())
    }

    /// Begins as a daemon does, but asks no neighbour for its hardware address.
    fn start(&mut self, settings: &DirectReturn) -> Result<(), Failure> {
        self.engine.hand_packets_on(Instant::now().into_std());
        let links = direct::look(settings, self.engine.cluster()).map_err(Failure::new)?;
        self.engine.learn_links(links);
        // Until then, addresses of nodes are awaited.
        if let Some(due) = self.engine.direct().and_then(|direct| direct.due()) {
            self.engine.note_time(due);
        }
        Ok(())
    }

    /// Reads the tables into the engine.
    fn observe(&mut self) -> Result<(), Failure> {
        let found = read_tables(self.engine, self.kernel)?;
        if let Some(direct) = self.engine.direct_mut() {
            direct.note_local(local_frontends(&found.of_services));
        }
        (self.accept)(self.engine, &found);
        self.engine.replace_installed_state(found);
        Ok(())
    }

    fn drain(&mut self, each: &mut dyn FnMut(Change)) {
        while let Some(transaction) = self.engine.next_transaction(self.kernel.max_batch()) {
            for (number, operation) in transaction.operations.iter().enumerate() {
                for (element, change) in changes(operation).into_iter().enumerate() {
                    let service = self.engine.service_of(&transaction, number, element);
                    each((change, service.map(|name| name.to_string())));
                }
            }
            self.engine.committed(Duration::ZERO);
        }
    }
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
