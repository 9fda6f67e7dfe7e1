//! `nft -f`: a script with the whole table.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::{CHAIN, Desired, SET, TABLE};

/// Runs a script.
pub fn run(script: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
}

fn contents(desired: &Desired) -> String {
    let mut script = String::new();
    for port in &desired.ports {
        writeln!(script, "add rule ip {TABLE} {CHAIN} tcp dport {port} accept").unwrap();
    }
    if !desired.addresses.is_empty() {
        let addresses: Vec<_> = desired.addresses.iter().map(ToString::to_string).collect();
        let addresses = addresses.join(", ");
        writeln!(script, "add element ip {TABLE} {SET} {{ {addresses} }}").unwrap();
    }
    script
}

/// Makes the table.
pub fn load(desired: &Desired) {
    let size = desired.size.map(|size| format!("size {size}; ")).unwrap_or_default();
    let frame = format!(
        "add table ip {TABLE}\nadd chain ip {TABLE} {CHAIN}\nadd set ip {TABLE} {SET} {{ type ipv4_addr; {size}}}\n"
    );
    run(&(frame + &contents(desired)));
}

/// Replaces what is in the chain and in the set: `nft` does not compare.
pub fn change(desired: &Desired) {
    let flush = format!("flush chain ip {TABLE} {CHAIN}\nflush set ip {TABLE} {SET}\n");
    run(&(flush + &contents(desired)));
}
