//! Reads the services of the tables for commands that may be about one of them.

use inspect::show::{Selector, Services, read};
use inspect::tables::{OurTable, TableReader};

use super::failure::Failure;
use super::left_to_others;

/// Most reads of tables that change meanwhile and lack the selected service. A torn read may lack an
/// element that was replaced.
const ATTEMPTS: usize = 20;

/// Returns the services, among them the selected one, and the tables.
///
/// # Errors
/// The tables cannot be read, or lack the selected service.
pub(super) fn read_services(
    reader: &mut TableReader,
    selector: &Selector,
) -> Result<(Services, Vec<OurTable>), Failure> {
    let mut attempt = 1;
    loop {
        let (services, tables) = read(reader).map_err(Failure::new)?;
        if !selector.is_specific() || !selector.select(&services).is_empty() {
            return Ok((services, tables));
        }
        if !services.is_torn() {
            let reason = left_to_others::reason(selector).unwrap_or_default();
            return Err(Failure::new(format!("the tables have no service {selector}{reason}")));
        }
        if attempt == ATTEMPTS {
            return Err(Failure::new(format!(
                "service {selector} was not found: the tables kept changing while they were read; \
                 try again"
            )));
        }
        attempt += 1;
    }
}
