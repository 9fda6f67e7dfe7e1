//! The demonstration of direct return shows what its page says.
#![allow(clippy::expect_used, missing_docs)]

use std::process::Command;

#[test]
fn clients_keep_their_address_and_connections_with_direct_return_alone() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_direct_return_demo")).output().expect("a program");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let (translated, direct) =
        printed.split_once("directReturn.mode annotated").expect("both modes");
    for (part, clients, kept) in [(translated, 0, "0 of 30"), (direct, 2, "30 of 30")] {
        let lines = || part.lines().map(str::trim);
        let of_client = |line: &str| line == "they see the clients 30 x 203.0.113.10";
        let of_twin = |line: &str| line == "they see the clients 30 x fd00:203:0:113::10";
        assert_eq!(
            lines().filter(|line| of_client(line) || of_twin(line)).count(),
            clients,
            "{part}"
        );
        let entry = format!("the router changes the entry to node-b: {kept} connections go on");
        assert!(lines().any(|line| line == entry), "{part}");
    }
    assert!(direct.contains("endpoint c1 goes: "), "{direct}");
}
