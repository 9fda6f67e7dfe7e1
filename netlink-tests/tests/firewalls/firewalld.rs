//! firewalld starts, reloads, changes its rules and stops.

use netlink_tests::{Process, eventually};

use crate::cluster::{Cluster, Tables};
use crate::machine::{Machine, SOON};

/// The bus of the namespace: it starts no other program.
const BUS: &str = "<busconfig>
<type>system</type>
<listen>unix:path=/run/dbus/system_bus_socket</listen>
<auth>EXTERNAL</auth>
<policy context=\"default\">
<allow user=\"*\"/><allow own=\"*\"/><allow send_destination=\"*\"/><allow receive_sender=\"*\"/>
</policy>
</busconfig>";

/// A running firewalld and its bus.
pub(crate) struct Firewalld {
    daemon: Process,
    _bus: Process,
}

impl Firewalld {
    /// Starts it with these settings of firewalld.conf, as `Key=value`.
    #[track_caller]
    pub(crate) fn start(machine: &Machine, settings: &[&str]) -> Self {
        for setting in settings {
            let (key, _) = setting.split_once('=').unwrap();
            let file = "/etc/firewalld/firewalld.conf";
            let _ = machine.shell(&format!(
                "sed -i 's/^{key}=.*/{setting}/' {file}; grep -q '^{setting}$' {file}"
            ));
        }
        let _ = machine.shell(&format!("echo '{BUS}' >/run/bus.conf"));
        let bus = machine.spawn("dbus-daemon --config-file=/run/bus.conf --nofork --nopidfile");
        let _ = machine.shell("until [ -e /run/dbus/system_bus_socket ]; do sleep 0.05; done");
        let daemon = machine.spawn("/usr/sbin/firewalld --nofork --nopid");
        let state = || machine.output("firewall-cmd --state");
        eventually("firewalld runs", SOON, || (state().code() == Some(0)).then_some(()));
        Self { daemon, _bus: bus }
    }

    /// Stops it; it removes its table.
    #[track_caller]
    pub(crate) fn stop(self) {
        let _ = self.daemon.terminate(SOON);
    }
}

/// A pod's own port, which firewalld does not let other hosts reach.
const POD: &str = "10.244.1.5:8080";

#[track_caller]
fn check(tables: Tables, settings: &[&str]) {
    let mut cluster = Cluster::new(tables);
    assert!(cluster.answers("outside", POD));
    let firewalld = Firewalld::start(&cluster.machine, settings);
    let check = |cluster: &Cluster, after: &str| {
        cluster.check(after);
        assert!(!cluster.answers("outside", POD), "{tables:?}, {settings:?}, {after}");
    };
    check(&cluster, "the start of firewalld");
    let _ = cluster.machine.run("firewall-cmd --add-port=99/tcp");
    check(&cluster, "a change");
    for reload in ["--reload", "--complete-reload"] {
        let _ = cluster.machine.run(&format!("firewall-cmd {reload}"));
        check(&cluster, reload);
    }
    cluster.start_again();
    check(&cluster, "a start of the daemon");
    firewalld.stop();
    cluster.check("the stop of firewalld");
    assert!(cluster.answers("outside", POD));
}

/// It accepts what was translated, by the status `dnat`.
#[test]
#[ignore = "needs packages: make test-neighbours"]
fn services_are_served_while_firewalld_starts_changes_reloads_and_stops() {
    for tables in Tables::ALL {
        check(tables, &[]);
    }
    check(Tables::Owned, &["FirewallBackend=iptables"]);
}
