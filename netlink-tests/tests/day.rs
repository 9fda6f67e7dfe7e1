//! A day of a node: deltaproxy replaces kube-proxy, meets trouble, and is replaced by kube-proxy.
//!
//! Connections are opened without a pause all day, and some stay open. After each step the test
//! looks at all signs that an operator has: `/readyz`, `/livez`, `top`, `problems`, `show`,
//! `history`, and the alerts of `deploy/alerts.yaml` over scraped metrics.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "day/api_server.rs"]
mod api_server;
#[path = "day/deployed.rs"]
mod deployed;
#[path = "day/end.rs"]
mod end;
#[path = "day/load.rs"]
mod load;
#[path = "day/node.rs"]
mod node;
#[path = "day/other_programs.rs"]
mod other_programs;
#[path = "day/restarts.rs"]
mod restarts;
#[path = "day/signs.rs"]
mod signs;
#[path = "day/start.rs"]
mod start;
#[path = "day/tenant.rs"]
mod tenant;
#[path = "day/traffic.rs"]
mod traffic;

use netlink_tests::nft_available;
use node::Day;

#[test]
fn each_step_of_a_day_shows_the_signs_that_the_documents_promise() {
    // kube-proxy's rules are loaded with nft.
    if !nft_available() {
        return;
    }
    let mut day = Day::before_the_switch();
    start::install(&mut day);
    start::switch(&mut day);
    load::load(&mut day);
    other_programs::flush_owned(&mut day);
    api_server::lose(&mut day);
    api_server::rotate_credentials(&mut day);
    restarts::update(&mut day);
    restarts::wrong_name(&mut day);
    tenant::greedy(&mut day);
    other_programs::flush(&mut day);
    end::back(day);
}
