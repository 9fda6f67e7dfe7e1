//! Ports of the host that lead to containers, added by the example `port_forwarding` and by `nft`.
//!
//! The example compares the whole table with the kernel's each time. `nft` gets only the commands
//! that differ, which are those that the example prints.

use std::net::Ipv4Addr;

use nft_netlink::kernel::{Extent, Nftables};
use nft_netlink::{TableFamily, WholeTable};

use crate::port_forwarding::{Mapping, Network, table};
use crate::{ROUNDS, Times, by_nft, print, time};

const FORWARDS: u16 = 32;
/// The table of the example.
const TABLE: &str = "containers";

/// Returns the table with so many forwarded ports.
fn forwarding(count: u16) -> WholeTable {
    const TCP: u8 = 6;
    let mapping = |number: u16| Mapping {
        protocol: TCP,
        host_port: 8_000 + number,
        address: Ipv4Addr::new(10, 88, 0, 5),
        port: number,
    };
    let subnet = "10.88.0.0/16".parse().unwrap();
    let mappings = (1..=count).map(mapping).collect();
    table(&[Network { name: "default".to_owned(), subnet, mappings }])
}

/// Makes the table what it is with so many ports, by a connection of its own.
fn update(count: u16) -> String {
    let changed = Nftables::open().unwrap().update(&forwarding(count)).unwrap();
    changed.map_or_else(String::new, |difference| difference.to_string())
}

/// Returns the number of rules in the kernel.
fn rules() -> usize {
    let mut kernel = Nftables::open().unwrap();
    let table = kernel.whole_table(TableFamily::Inet, TABLE, Extent::Structure).unwrap();
    table.unwrap().rules.len()
}

/// Makes the table without a port.
fn begin() {
    Nftables::open().unwrap().delete_table(TableFamily::Inet, TABLE).unwrap();
    update(0);
}

/// Prints the times of adding ports in these steps.
fn measure_steps(what: &str, steps: &[u16]) {
    let mut times: Times = Default::default();
    for _ in 0..ROUNDS {
        begin();
        let mut scripts = Vec::new();
        times[0].push(time(|| scripts.extend(steps.iter().map(|count| update(*count)))));
        begin();
        times[1].push(time(|| scripts.iter().for_each(|script| by_nft::run(script))));
        assert_eq!(rules(), forwarding(FORWARDS).rules.len(), "nft has made another table");
    }
    print(what, times);
}

/// Prints the times of all ways.
pub fn measure() {
    measure_steps("add 32 port forwards in one transaction", &[FORWARDS]);
    let steps: Vec<_> = (1..=FORWARDS).collect();
    measure_steps("add 32 port forwards one by one", &steps);
}
