//! `top`: what its screen has of a daemon and of real connections, and what the terminal has after it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use netlink_tests::apiserver::ApiServer;
use netlink_tests::apiserver::object::{endpoint_slice, service};
use netlink_tests::scenario::{Manifests, NODE_PORT, Node, WEB, slice, web_with_node_port};
use netlink_tests::{Finished, Host, Net, deltaproxy_binary, eventually};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

/// How long a condition may take, on a busy machine.
const SOON: Duration = Duration::from_secs(15);

fn top(node: &Host, arguments: &[&str]) -> Finished {
    let arguments = [&["top", "--once", "--interval=100ms"], arguments].concat();
    node.output(deltaproxy_binary(), &arguments)
}

/// The words of the first line that starts so.
#[track_caller]
fn words<'a>(screen: &'a str, start: &str) -> Vec<&'a str> {
    let line = screen.lines().find(|line| line.trim_start().starts_with(start));
    line.unwrap_or_else(|| panic!("no line starts with {start:?} in\n{screen}"))
        .split_whitespace()
        .collect()
}

#[test]
fn a_screen_has_the_daemon_its_watches_and_real_connections() {
    let net = Net::new();
    let pods = [net.pod("a", "10.244.1.5"), net.pod("b", "10.244.1.6")];
    let _servers = [pods[0].serve_tcp(8080, "a"), pods[1].serve_tcp(8080, "b")];
    let client = net.outside("outside", "192.0.2.10");
    let api = net.node().run(ApiServer::with_web);
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let arguments = ["run", &kubeconfig, "--hostname-override=node1", "--healthz-bind-address="];
    let daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    eventually("an endpoint", SOON, || client.open_tcp(WEB).ok().map(drop));
    let open: Vec<_> = (0..3).map(|_| client.open_tcp(WEB).unwrap()).collect();

    let screen = eventually("four watches and two families", SOON, || {
        let screen = top(net.node(), &[]).ok();
        let counts = ["  connected ", "  programmed "].map(|it| screen.matches(it).count());
        (counts == [4, 2]).then_some(screen)
    });
    let first = screen.lines().next().unwrap();
    assert!(first.starts_with("deltaproxy top  ready  node node1  up "), "{screen}");
    for watch in ["services", "endpointslices", "nodes", "servicecidrs"] {
        assert!(screen.contains(&format!("  {watch} ")), "{screen}");
    }
    let web = words(&screen, "default/web:http");
    assert_eq!((web[1], web[3], web[6]), ("10.96.0.10:80/tcp", "3", "1"), "{screen}");
    assert!(screen.contains("\nDRAINING ENDPOINT (none) "), "{screen}");
    assert!(screen.contains("\nPROBLEM (none) "), "{screen}");

    api.push(endpoint_slice("default/web-1", "web", &["10.244.1.6"], 8080));
    api.push(service("default/bad", "10.96.0.300", 80));
    let screen = eventually("a commit, a draining endpoint and a problem", SOON, || {
        let screen = top(net.node(), &[]).ok();
        let has_all = ["DRAINING ENDPOINT (1) ", "PROBLEM (2) "].map(|it| screen.contains(it));
        let committed = words(&screen, "event to commit")[6] != "0";
        (has_all == [true; 2] && committed).then_some(screen)
    });
    let draining = words(&screen, "10.244.1.5:8080");
    assert_eq!(draining[1..4], ["default/web:http", "10.96.0.10:80/tcp", "3"], "{screen}");
    assert_eq!(words(&screen, "default/web:http").last(), Some(&"3"), "{screen}");
    let problem = "  spec.clusterIPs[0]  \"10.96.0.300\" is not an IP address\n";
    assert!(screen.contains(problem), "{screen}");
    // The time of a stage is above zero.
    assert_ne!(words(&screen, "commit ")[5], "-", "{screen}");

    let arguments = ["top", "--once", "--interval=500ms"];
    eventually("connections that began between two readings", SOON, || {
        let mut running = net.node().spawn(deltaproxy_binary(), &arguments);
        while running.is_running() {
            assert_eq!(client.connect_tcp(WEB).server(), "b");
        }
        let screen = running.finish(SOON).ok();
        let began: f64 = words(&screen, "default/web:http")[2].parse().unwrap();
        (began > 0.0).then_some(())
    });

    let _ = daemon.terminate(SOON);
    let screen = top(net.node(), &[]).ok();
    assert!(screen.contains("\nno daemon: 127.0.0.1:10249: Connection refused"), "{screen}");
    assert!(screen.contains("  commits of all programs 0\n"), "{screen}");
    assert_eq!(words(&screen, "10.244.1.5:8080")[3], "3", "the kernel is read without a daemon");
    assert!(!screen.contains("PROBLEM"), "{screen}");
    drop(open);
}

#[test]
fn a_node_port_is_listed_at_the_address_that_serves_it() {
    let net = Net::new();
    let _server = net.pod("a", "10.244.1.5").serve_tcp(8080, "a");
    let client = net.outside("outside", "192.0.2.10");
    let manifests = Manifests::new(&[("node", &Node::new()), ("web", &web_with_node_port())]);
    manifests.write("slice", &slice("a"));
    let _ = manifests.once(net.node(), "apply").ok();
    let open = client.open_tcp(NODE_PORT).unwrap();
    let listed = |start: &str, place: usize| {
        let screen = top(net.node(), &["--daemon="]).ok();
        words(&screen, start)[place].to_owned()
    };
    assert_eq!(listed("default/web:", 1), "192.168.50.2:30080/tcp");
    manifests.write("slice", &slice(""));
    let _ = manifests.once(net.node(), "apply").ok();
    assert_eq!(listed("10.244.1.5:8080", 2), "192.168.50.2:30080/tcp");
    drop(open);
}

#[test]
fn trouble_has_a_line_for_each_source_and_a_closed_pipe_has_none() {
    let net = Net::new();
    let finished = top(net.node(), &[]);
    assert_eq!((finished.code(), &*finished.stdout), (Some(1), ""));
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("no daemon: 127.0.0.1:10249: "), "{lines:?}");
    assert!(lines[1].ends_with("deltaproxy has not programmed this node"), "{lines:?}");

    let manifests = Manifests::new(&[("node", &Node::new())]);
    let _ = manifests.once(net.node(), "apply").ok();
    let script = "(\"$0\" top --daemon '' --interval 100ms; echo code $? >&2) | true";
    let binary = deltaproxy_binary();
    let finished = net.node().output("/bin/sh", &["-c", script, binary.to_str().unwrap()]);
    assert_eq!(finished.stderr, "code 0\n");
}

/// A program at a terminal of its own.
struct Session {
    child: Child,
    /// The other end of the program's terminal.
    terminal: OwnedFd,
    keys: File,
    output: Arc<Mutex<Vec<u8>>>,
    before: Termios,
}

impl Session {
    fn start(node: &Host) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let before = tcgetattr(&pair.slave).unwrap();
        let end = || Stdio::from(pair.slave.try_clone().unwrap());
        let mut command = Command::new(deltaproxy_binary());
        command.args(["top", "--daemon", "", "--interval=100ms"]);
        command.stdin(end()).stdout(end()).stderr(end());
        let child = node.run(|| command.spawn()).unwrap();
        let keys = File::from(pair.master);
        let (output, mut screen) = (Arc::new(Mutex::new(Vec::new())), keys.try_clone().unwrap());
        let read = Arc::clone(&output);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                read.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, terminal: pair.slave, keys, output, before }
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        eventually(&format!("{text:?}"), SOON, || self.output().contains(text).then_some(()));
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Waits for the end, after which the terminal is as it was.
    #[track_caller]
    fn assert_restored(mut self, way: &str) {
        let status = eventually("the end of top", SOON, || self.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0), "{way}: {}", self.output());
        self.wait_for(LEAVE);
        self.wait_for(SHOW_CURSOR);
        let output = self.output();
        let last = |text: &str| output.rfind(text);
        assert!(
            last(LEAVE) > last(ENTER) && last(SHOW_CURSOR) > last(HIDE_CURSOR),
            "{way}: {output:?}"
        );
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before, "{way}");
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Switches to another screen, and back.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// A way out.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Keys(&'static [u8]),
    Signal(Signal),
}

/// As a terminal in raw mode sends it.
const CTRL_C: &[u8] = b"\x03";

#[test]
fn the_terminal_is_restored_after_every_way_out() {
    let net = Net::new();
    let manifests = Manifests::new(&[("node", &Node::new()), ("web", &web_with_node_port())]);
    manifests.write("slice", &slice("a"));
    let _ = manifests.once(net.node(), "apply").ok();
    for way in [
        Leave::Keys(b"q"),
        Leave::Keys(CTRL_C),
        Leave::Signal(Signal::SIGINT),
        Leave::Signal(Signal::SIGTERM),
        Leave::Signal(Signal::SIGHUP),
    ] {
        let mut session = Session::start(net.node());
        session.wait_for("scroll");
        assert_ne!(tcgetattr(&session.terminal).unwrap(), session.before, "raw mode");
        match way {
            Leave::Keys(keys) => session.keys.write_all(keys).unwrap(),
            Leave::Signal(signal) => session.signal(signal),
        }
        session.assert_restored(&format!("{way:?}"));
    }
}

#[test]
fn keys_change_the_list_and_the_order() {
    let net = Net::new();
    let manifests = Manifests::new(&[("node", &Node::new())]);
    let _ = manifests.once(net.node(), "apply").ok();
    let mut session = Session::start(net.node());
    session.wait_for("sort:");
    session.keys.write_all(b"s").unwrap();
    session.wait_for("active");
    session.keys.write_all(b"\t").unwrap();
    session.wait_for("draining");
    session.keys.write_all(b"q").unwrap();
    session.assert_restored("q");
}
