//! Endpoints that are gone and whose connections end, in the kernel.

use std::io::{self, Write};
use std::time::Duration;

use engine::model::Target;
use engine::printable::Printable;
use engine::ruleset::{SetId, TableElement};
use nft::kernel::ReadError;
use serde_json::{Value, json};

use super::format::cells::{OrDash, age, socket, write_table};
use crate::tables::{OurTable, TableReader};

/// An ended endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedEndpoint {
    /// Its address and TCP port.
    pub endpoint: Target,
    /// The service that had it last, `namespace/name`.
    pub service: Option<Box<str>>,
    /// Packets of its connections that were answered with RST.
    pub resets: u64,
    /// Time after which the kernel forgets it.
    pub left: Duration,
}

/// Reads the ended endpoints of services that `selects` returns true for, sorted by address, and
/// whether the read is whole.
///
/// # Errors
/// See [`ReadError`].
pub fn ended_endpoints(
    reader: &mut TableReader,
    tables: &[OurTable],
    selects: &dyn Fn(Option<&str>) -> bool,
) -> Result<(Vec<EndedEndpoint>, bool), ReadError> {
    let (mut found, mut is_whole) = (Vec::new(), true);
    for table in tables {
        if reader.sets(table).iter().all(|(set, _)| *set != SetId::EndedEndpoints) {
            continue;
        }
        is_whole &=
            reader.elements(table.family, SetId::EndedEndpoints, &mut |element, counter| {
                if let TableElement::Ended(endpoint, left, service) = element
                    && selects(service)
                {
                    let resets = counter.map_or(0, |counter| counter.packets);
                    let service = service.map(Into::into);
                    found.push(EndedEndpoint { endpoint, service, resets, left });
                }
            })?;
    }
    found.sort_unstable_by_key(|it| it.endpoint);
    Ok((found, is_whole))
}

/// Writes a line for each endpoint, or a sentence if there are none.
///
/// # Errors
/// Errors of `out`.
pub fn write_ended(out: &mut dyn Write, ended: &[EndedEndpoint]) -> io::Result<()> {
    if ended.is_empty() {
        return writeln!(out, "no endpoint is gone whose connections end");
    }
    let lines = ended.iter().map(|EndedEndpoint { endpoint, service, resets, left }| {
        let service = OrDash(service.as_deref().map(Printable)).to_string();
        vec![service, socket(*endpoint).to_string(), resets.to_string(), age(*left)]
    });
    write_table(out, 2, &["SERVICE", "ENDPOINT", "RESETS", "LEFT"], lines)
}

/// Returns the same as a document.
pub fn ended_document(ended: &[EndedEndpoint]) -> Value {
    let items = ended.iter().map(|EndedEndpoint { endpoint, service, resets, left }| {
        json!({
            "service": service,
            "endpoint": socket(*endpoint),
            "resets": resets,
            "left_seconds": left.as_secs(),
        })
    });
    json!({ "ended": items.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::super::format::sample::written;
    use super::*;

    #[test]
    fn each_endpoint_has_its_service_resets_and_time() {
        let endpoint = |last, service: Option<&str>| EndedEndpoint {
            endpoint: Target {
                address: [10, 244, 1, last].into(),
                port: NonZeroU16::new(8080).unwrap(),
            },
            service: service.map(Into::into),
            resets: last.into(),
            left: Duration::from_secs(90),
        };
        let ended = [endpoint(5, Some("default/web")), endpoint(6, None)];
        let expected = "\
SERVICE      ENDPOINT         RESETS   LEFT
default/web  10.244.1.5:8080       5  1m30s
-            10.244.1.6:8080       6  1m30s
";
        assert_eq!(written(|out| write_ended(out, &ended)), expected);
        let nothing = "no endpoint is gone whose connections end\n";
        assert_eq!(written(|out| write_ended(out, &[])), nothing);
        let first = json!({
            "service": "default/web", "endpoint": "10.244.1.5:8080", "resets": 5,
            "left_seconds": 90,
        });
        assert_eq!(ended_document(&ended)["ended"][0], first);
    }
}
