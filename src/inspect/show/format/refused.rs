//! Packets that were rejected or dropped: by reason, and by frontend.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use engine::printable::Printable;
use engine::ruleset::Refusal;
use nft::Counter;
use serde_json::{Value, json};

use super::cells::write_columns;
use crate::show::services::Entry;
use crate::show::view::View;

/// Writes the packets by reason, unless some services are `selected`, and a line for each frontend
/// that refused some.
///
/// # Errors
/// Errors of `out`.
pub fn refused(out: &mut dyn Write, view: &View<'_>, selected: bool) -> io::Result<()> {
    if !selected {
        let mut reasons: BTreeMap<Refusal, Counter> = BTreeMap::new();
        for ((_, reason), counter) in view.services.refused() {
            *reasons.entry(*reason).or_default() += *counter;
        }
        let lines = reasons.into_iter().map(|(reason, counter)| line(&[reason.word()], counter));
        write_table(out, &["REASON"], lines.collect())?;
        writeln!(out)?;
    }
    let lines: Vec<_> = frontends(view)
        .into_iter()
        .map(|(entry, reason, counter)| {
            let label = Printable(&entry.label).to_string();
            line(&[&label, &view.address(&entry.frontend), reason.word()], counter)
        })
        .collect();
    if lines.is_empty() {
        return writeln!(out, "no packet to an address of these services was refused");
    }
    write_table(out, &["SERVICE", "ADDRESS", "REASON"], lines)
}

/// Returns both as a document: `reasons` of all services and of none, `refused` of the selected
/// services.
pub fn refused_document(view: &View<'_>) -> Value {
    let reasons = view.services.refused().iter().map(|((family, reason), counter)| {
        json!({
            "family": family.name(),
            "reason": reason.word(),
            "packets": counter.packets,
            "bytes": counter.bytes,
        })
    });
    let reasons: Vec<_> = reasons.collect();
    let refused = frontends(view).into_iter().map(|(entry, reason, counter)| {
        json!({
            "service": &*entry.label,
            "frontend": view.address(&entry.frontend),
            "family": entry.frontend.family().name(),
            "reason": reason.word(),
            "packets": counter.packets,
            "bytes": counter.bytes,
        })
    });
    let refused: Vec<_> = refused.collect();
    json!({ "torn": view.services.is_torn(), "reasons": reasons, "refused": refused })
}

/// Returns the frontends that refused packets, by descending number.
fn frontends<'a>(view: &View<'a>) -> Vec<(&'a Entry, Refusal, Counter)> {
    let all = view.entries().flat_map(|entry| {
        entry.refused.iter().map(move |(reason, counter)| (entry, *reason, *counter))
    });
    let mut found: Vec<_> = all.filter(|(.., counter)| counter.packets > 0).collect();
    // Entries are sorted, and the sort is stable.
    found.sort_by_key(|(.., counter)| Reverse(counter.packets));
    found
}

/// Returns a line: its texts, then the numbers.
fn line(texts: &[&str], counter: Counter) -> Vec<String> {
    let numbers = [counter.packets, counter.bytes].map(|it| it.to_string());
    texts.iter().map(|text| (*text).to_owned()).chain(numbers).collect()
}

/// Writes aligned columns: texts, and two numbers.
fn write_table(out: &mut dyn Write, titles: &[&str], lines: Vec<Vec<String>>) -> io::Result<()> {
    let texts = titles.len();
    let titles = titles.iter().chain(&["PACKETS", "BYTES"]).map(|title| (*title).to_owned());
    let lines: Vec<Vec<_>> = [titles.collect()].into_iter().chain(lines).collect();
    write_columns(out, texts, &lines)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, written};
    use super::*;

    #[test]
    fn the_frontends_with_the_most_refused_packets_come_first() {
        let sample = Sample::new().refusing();
        let expected = "\
REASON               PACKETS  BYTES
no_endpoint               15    900
unallocated_address        2    120

SERVICE           ADDRESS            REASON             PACKETS  BYTES
default/empty     10.96.0.30:80/tcp  no_endpoint             12    720
default/web:http  *:30080/tcp        no_local_endpoint        3    180
";
        assert_eq!(written(|out| refused(out, &sample.view(), false)), expected);
        let web = sample.of("default/web");
        let expected = "\
SERVICE           ADDRESS      REASON             PACKETS  BYTES
default/web:http  *:30080/tcp  no_local_endpoint        3    180
";
        assert_eq!(written(|out| refused(out, &web.view(), true)), expected);
        let nothing = "no packet to an address of these services was refused\n";
        let sticky = web.of("default/sticky");
        assert_eq!(written(|out| refused(out, &sticky.view(), true)), nothing);
    }

    #[test]
    fn the_document_has_the_same() {
        let sample = Sample::new().refusing().of("default/web");
        let document = refused_document(&sample.view());
        let first = json!({
            "family": "IPv4", "reason": "no_endpoint", "packets": 12, "bytes": 720,
        });
        assert_eq!(document["reasons"][0], first);
        assert_eq!(document["reasons"].as_array().unwrap().len(), 3);
        let only = json!([{
            "service": "default/web:http", "frontend": "*:30080/tcp", "family": "IPv4",
            "reason": "no_local_endpoint", "packets": 3, "bytes": 180,
        }]);
        assert_eq!(document["refused"], only);
    }
}
