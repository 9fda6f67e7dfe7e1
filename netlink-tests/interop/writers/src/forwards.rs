//! Ports of the host that lead to containers, added by the example `port_forwarding` and by `nft`.
//!
//! The example reads and compares the whole table each time; a program like a container engine may
//! keep it. `nft` gets only the commands that differ, which are those that the example prints.

use std::net::Ipv4Addr;

use nft_netlink::difference::Difference;
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
fn update(count: u16) -> Option<Difference> {
    Nftables::open().unwrap().update(&forwarding(count)).unwrap()
}

/// Does the same in these steps, by a program that keeps the table.
fn update_kept(steps: &[u16]) -> Vec<Difference> {
    let mut kernel = Nftables::open().unwrap();
    let each = steps.iter().filter_map(|count| kernel.update_and_keep(forwarding(*count)).unwrap());
    each.collect()
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
fn measure_steps(what: &str, ours: impl Fn(&[u16]) -> Vec<Difference>, steps: &[u16]) {
    let mut times: Times = Default::default();
    for _ in 0..ROUNDS {
        begin();
        let mut sent = Vec::new();
        times[0].push(time(|| sent = ours(steps)));
        begin();
        let scripts: Vec<_> = sent.iter().map(ToString::to_string).collect();
        times[1].push(time(|| scripts.iter().for_each(|script| by_nft::run(script))));
        assert_eq!(rules(), forwarding(FORWARDS).rules.len(), "nft has made another table");
    }
    print(what, times);
}

/// Prints the times of all ways.
pub fn measure() {
    let read = |steps: &[u16]| steps.iter().filter_map(|count| update(*count)).collect();
    measure_steps("add 32 port forwards in one transaction", read, &[FORWARDS]);
    let steps: Vec<_> = (1..=FORWARDS).collect();
    measure_steps("add 32 port forwards one by one", read, &steps);
    measure_steps("the same, the table kept", update_kept, &steps);
}
