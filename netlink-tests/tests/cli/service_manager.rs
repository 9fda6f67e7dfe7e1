//! `run` under a service manager with the protocol of sd_notify(3).

use std::os::unix::net::UnixDatagram;
use std::{fs, iter};

use netlink_tests::{Net, deltaproxy_binary};

use super::{SOON, manifests, tables};

/// A sign of life, which the daemon sends all the time.
const ALIVE: &str = "WATCHDOG=1\n";

/// The next message of the daemon.
#[track_caller]
fn any(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("a message of the daemon");
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// The next state of the daemon.
#[track_caller]
fn next(socket: &UnixDatagram) -> String {
    iter::repeat_with(|| any(socket)).find(|message| message != ALIVE).unwrap()
}

#[test]
fn a_service_manager_learns_of_complete_tables_of_a_reload_and_of_the_end() {
    let net = Net::new();
    let manifests = manifests("a");
    let folder = tempfile::tempdir().unwrap();
    let [path, config] = ["notify", "config.yaml"].map(|name| folder.path().join(name));
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let write = |more: &str| {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                    mode: nftables\nmetricsBindAddress: \"\"\n";
        fs::write(&config, format!("{text}{more}")).unwrap();
    };
    write("");
    let variable = format!("NOTIFY_SOCKET={}", path.display());
    let program = deltaproxy_binary();
    let (config, manifests) = (config.to_str().unwrap(), manifests.path().to_str().unwrap());
    // The process keeps its number when `env` and a reload execute the daemon.
    let program = [&variable, "WATCHDOG_USEC=200000", program.to_str().unwrap()];
    let args = [&program[..], &["run", "--hostname-override=node-a"]].concat();
    let args = [&args[..], &["--manifests", manifests, "--config", config]].concat();
    let daemon = net.node().spawn("env", &args);

    assert_eq!(next(&socket), "READY=1\n");
    // Not earlier: the loop has committed both tables.
    assert!(tables(net.node()).iter().all(Option::is_some));
    write("nftables: {masqueradeBit: 3}\n");
    assert_eq!(next(&socket), "RELOADING=1\n");
    assert_eq!(next(&socket), "READY=1\n");
    assert_eq!([(); 3].map(|()| any(&socket)), [ALIVE; 3]);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
    assert_eq!(next(&socket), "STOPPING=1\n");
    socket.set_nonblocking(true).unwrap();
    let mut further = [0; 16];
    while let Ok(length) = socket.recv(&mut further) {
        assert_eq!(&further[..length], ALIVE.as_bytes());
    }
}
