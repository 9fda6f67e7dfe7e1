//! When loopback addresses are routed.

use std::time::Duration;

use engine::Engine;
use engine::routing::Routing;
use engine::ruleset::{SetId, table};
use fake_kernel::Fake;
use nft::{Family, TableFlags};

use crate::kernel::Shared;
use crate::objects::{dual_stack, frontends, service};
use crate::running::{Daemon, LIMIT, wait_for};
use crate::tables::elements;

/// A daemon that serves localhost, and a channel with whether its tables protected loopback addresses
/// when it set `route_localnet`, which succeeds if `can_route`.
fn localhost_daemon(kernel: &Shared, can_route: bool) -> (Daemon, std::sync::mpsc::Receiver<bool>) {
    let node_port_addresses = "primary,localhost".parse().unwrap();
    let routing = Routing { node_port_addresses, ..Routing::default() };
    let mut engine = Engine::new(routing, TableFlags::default());
    engine.set_local_addresses(vec![[127, 0, 0, 1].into()]);
    let (sender, calls) = std::sync::mpsc::channel();
    let own = kernel.clone();
    let route_localnet = move || {
        sender.send(own.is_guarded()).unwrap();
        can_route
    };
    let daemon = Daemon::start_with(engine, kernel.clone(), Some(Box::new(route_localnet)));
    (daemon, calls)
}

const A_WHILE: Duration = Duration::from_millis(100);

#[test]
fn loopback_addresses_are_routed_once_the_tables_protect_them_or_left_out() {
    for can_route in [true, false] {
        let kernel = Shared::new(Fake::new());
        let (mut daemon, calls) = localhost_daemon(&kernel, can_route);
        assert!(calls.recv_timeout(A_WHILE).is_err(), "nothing is listed");
        daemon.list(service(1, 3));
        assert_eq!(calls.recv_timeout(LIMIT), Ok(true));
        let served = || kernel.with(|it| elements(it, Family::Ip, SetId::NodePortIps).len());
        wait_for(|| (kernel.is_guarded(), served()) == (can_route, usize::from(can_route)));
        daemon.wait_for_quiet();
        assert_eq!((kernel.is_guarded(), served()), (can_route, usize::from(can_route)));
        daemon.end();
    }
}

#[test]
fn loopback_addresses_are_not_routed_while_another_program_owns_the_table() {
    let kernel = Shared::new(Fake::new());
    kernel.owners.lock().unwrap().insert(table(Family::Ip), 77);
    let (mut daemon, calls) = localhost_daemon(&kernel, true);
    daemon.list(dual_stack(1));
    wait_for(|| frontends(&kernel) == [0, 1]);
    assert!(calls.recv_timeout(A_WHILE).is_err());
    kernel.owners.lock().unwrap().clear();
    assert_eq!(calls.recv_timeout(LIMIT), Ok(true));
    daemon.end();
}
