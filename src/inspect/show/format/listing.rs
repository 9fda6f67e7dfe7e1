//! A line for each frontend.

use std::io::{self, Write};

use engine::columns::line;
use engine::printable::Printable;

use super::cells::OrDash;
use crate::show::connections::Counts;
use crate::show::row::Row;
use crate::show::view::View;

/// A column: title, width (0: width of the longest cell), and cell.
struct ListingColumn {
    title: &'static str,
    is_number: bool,
    cell: fn(&View<'_>, &Row<'_>) -> String,
}

const COLUMNS: [ListingColumn; 10] = [
    text("SERVICE", |_, row| match &*row.entry.label {
        "" => "-".to_owned(),
        label => Printable(label).to_string(),
    }),
    text("ADDRESS", |view, row| view.address(&row.entry.frontend)),
    text("KIND", |_, row| row.kind.name().to_owned()),
    text("POLICY", |_, row| OrDash(row.policy.map(|it| it.name())).to_string()),
    text("SCHEDULER", |_, row| {
        let direct = if row.entry.is_direct { DIRECT } else { "" };
        format!("{}{direct}", row.scheduler)
    }),
    number("ENDPOINTS", |_, row| row.serving().to_string()),
    number("LOCAL", |_, row| row.local().to_string()),
    number("DRAINING", |_, row| OrDash(row.connections.map(|_| row.draining())).to_string()),
    number("ACTIVE", |_, row| count(row, |it| it.active)),
    number("NEW", |_, row| count(row, |it| it.new)),
];

/// After the scheduler of an address with direct return.
const DIRECT: &str = ", direct";

const BEGAN: ListingColumn = number("BEGAN", |_, row| count(row, |it| it.began));

const WIDE: [ListingColumn; 4] = [
    number("REFUSED", |_, row| match row.entry.refused.as_slice() {
        [] => "-".to_owned(),
        refused => refused.iter().map(|(_, it)| it.packets).sum::<u64>().to_string(),
    }),
    number("ENDED", |_, row| count(row, |it| it.ended)),
    number("CLIENTS", |_, row| OrDash(row.clients).to_string()),
    text("LIST", |_, row| {
        let routes = [row.entry.route, row.entry.internal].into_iter().flatten();
        let lists: Vec<_> =
            routes.filter_map(|route| route.list()).map(|list| list.to_string()).collect();
        if lists.is_empty() { "-".to_owned() } else { lists.join(",") }
    }),
];

const COUNTED: [ListingColumn; 2] = [
    number("COUNTED", |_, row| OrDash(row.entry.counted.map(|it| it.packets)).to_string()),
    number("BYTES", |_, row| OrDash(row.entry.counted.map(|it| it.bytes)).to_string()),
];

const fn text(title: &'static str, cell: fn(&View<'_>, &Row<'_>) -> String) -> ListingColumn {
    ListingColumn { title, is_number: false, cell }
}

const fn number(title: &'static str, cell: fn(&View<'_>, &Row<'_>) -> String) -> ListingColumn {
    ListingColumn { title, is_number: true, cell }
}

fn count(row: &Row<'_>, count: fn(&Counts) -> u32) -> String {
    OrDash(row.connections.as_ref().map(count)).to_string()
}

/// Writes a header and a line for each frontend; with more columns if `wide`.
///
/// # Errors
/// Errors of `out`.
pub fn listing(out: &mut dyn Write, view: &View<'_>, wide: bool) -> io::Result<()> {
    let mut columns: Vec<_> = COLUMNS.iter().collect();
    columns.extend(view.has_began().then_some(&BEGAN));
    let is_counted = wide && view.services.has_counters();
    columns.extend(is_counted.then_some(&COUNTED).into_iter().flatten());
    columns.extend(wide.then_some(&WIDE).into_iter().flatten());
    let widths = widths(view, &columns);
    let to_right = |column: usize| columns[column].is_number;
    writeln!(out, "{}", line(columns.iter().map(|column| column.title), &widths, to_right))?;
    for row in view.rows() {
        let cells = columns.iter().map(|column| (column.cell)(view, &row));
        writeln!(out, "{}", line(cells, &widths, to_right))?;
    }
    Ok(())
}

/// Returns the widths of columns. The first two fit their cells, which do not depend on
/// connections. Numbers and words have fixed widths.
fn widths(view: &View<'_>, columns: &[&ListingColumn]) -> Vec<usize> {
    let direct = if view.entries().any(|entry| entry.is_direct) { DIRECT.len() } else { 0 };
    let mut widths: Vec<_> = columns
        .iter()
        .map(|column| match column.title {
            "KIND" => "load-balancer".len(),
            "POLICY" => "Cluster".len(),
            "SCHEDULER" => "affinity 10800s".len() + direct,
            "BYTES" => "1000000000".len(),
            title => title.len(),
        })
        .collect();
    for entry in view.entries() {
        let cells = [entry.label.chars().count(), view.address(&entry.frontend).len()];
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell);
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::super::sample::{SampleServices, written};
    use super::*;

    #[test]
    fn a_listing_has_a_line_for_each_frontend() {
        let sample = SampleServices::new();
        let expected = "\
SERVICE           ADDRESS            KIND           POLICY   SCHEDULER        ENDPOINTS  LOCAL  DRAINING  ACTIVE  NEW  BEGAN
default/empty     10.96.0.30:80/tcp  cluster-ip     -        refuse                   0      0         0       0    0      0
default/sticky    10.96.0.20:80/tcp  cluster-ip     Cluster  affinity 10800s          1      0         0       1    0      1
default/web:http  10.96.0.10:80/tcp  cluster-ip     Cluster  random                   2      1         1       3    1      4
default/web:http  *:30080/tcp        node-port      Local    random                   2      1         0       1    0      1
";
        assert_eq!(written(|out| listing(out, &sample.view(), false)), expected);
    }

    #[test]
    fn an_address_with_direct_return_has_it_after_its_scheduler() {
        let sample = SampleServices::new().direct().of("default/web");
        let expected = "\
SERVICE           ADDRESS            KIND           POLICY   SCHEDULER                ENDPOINTS  LOCAL  DRAINING  ACTIVE  NEW
default/web:http  10.96.0.10:80/tcp  cluster-ip     Cluster  random, direct                   2      1         -       -    -
default/web:http  *:30080/tcp        node-port      Local    random                           2      1         -       -    -
";
        let view = sample.without_connections();
        assert_eq!(written(|out| listing(out, &view, false)), expected);
    }

    #[test]
    fn a_node_port_is_at_the_address_that_serves_it() {
        let addresses = |served: &[&str]| {
            let sample = SampleServices::new().with_node_port_addresses(served).of("default/web");
            let text = written(|out| listing(out, &sample.view(), false));
            let second = text.lines().nth(2).unwrap().to_owned();
            second.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(addresses(&["192.168.50.2"]), "192.168.50.2:30080/tcp");
        assert_eq!(addresses(&["192.168.50.2", "10.0.0.2"]), "10.0.0.2+1:30080/tcp");
        assert_eq!(addresses(&[]), "*:30080/tcp", "its kind is closed-node-port");
    }

    #[test]
    fn a_wide_listing_has_lists_and_without_conntrack_no_counts() {
        let sample = SampleServices::new().refusing().of("default/web");
        let expected = "\
SERVICE           ADDRESS            KIND           POLICY   SCHEDULER        ENDPOINTS  LOCAL  DRAINING  ACTIVE  NEW  REFUSED  ENDED  CLIENTS  LIST
default/web:http  10.96.0.10:80/tcp  cluster-ip     Cluster  random                   2      1         -       -    -        -      -        -  1:0
default/web:http  *:30080/tcp        node-port      Local    random                   2      1         -       -    -        3      -        -  1:100,1:0
";
        let view = sample.without_connections();
        assert_eq!(written(|out| listing(out, &view, true)), expected);
    }

    #[test]
    fn a_wide_listing_of_tables_with_counters_has_what_they_counted() {
        let sample = SampleServices::new().counted().of("default/web");
        let view = sample.without_connections();
        let text = written(|out| listing(out, &view, true));
        let cells: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().rev().take(6).collect()).collect();
        assert_eq!(cells[0], ["LIST", "CLIENTS", "ENDED", "REFUSED", "BYTES", "COUNTED"]);
        assert_eq!(cells[1], ["1:0", "-", "-", "-", "120", "2"]);
        assert_eq!(cells[2], ["1:100,1:0", "-", "-", "-", "180", "3"]);
        assert!(!written(|out| listing(out, &view, false)).contains("COUNTED"));
    }
}
