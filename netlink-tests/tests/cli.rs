//! The program itself, as a user starts it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use deltaproxy::kernel::{Kernel, Nftables, Release};
use deltaproxy::ruleset;
use netlink_tests::reader::{Family, Table};
use netlink_tests::scenario::{
    Manifests, Node, Object, Protocol, Proxy, Raw, Service, ServiceCidr, WEB, routing,
};
use netlink_tests::{Answer, Host, Net, deltaproxy_binary, eventually, nft_available};
use nix::sys::signal::Signal;
use serde_json::json;

/// How long a daemon may take to notice something, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A node, a ServiceCIDR and the service `web` with these endpoints.
fn manifests(endpoints: &str) -> Manifests {
    let cidr = ServiceCidr::new("kubernetes", &["10.96.0.0/16"]);
    let manifests = Manifests::new(&[("cidr", &cidr), ("node", &Node::new()), ("web", &web())]);
    manifests.set_endpoints(endpoints);
    manifests
}

fn web() -> Service {
    Service::new("web", "10.96.0.10").named_port("p80-tcp", Protocol::Tcp, 80, 30080)
}

fn tables(host: &Host) -> [Option<Table>; 2] {
    [Family::Ip, Family::Ip6].map(|family| host.read_table(family))
}

/// Waits until the IPv4 table sends `web` to so many endpoints, and the IPv6 table is there.
#[track_caller]
fn wait_for_endpoints(host: &Host, count: usize) {
    eventually(&format!("{count} endpoints"), SOON, || {
        let table = host.read_table(Family::Ip)?;
        host.read_table(Family::Ip6)?;
        (table.sets.get("endpoints")?.elements.len() == count).then_some(())
    });
}

/// Whether the kernel lets a process own a table that outlives it.
fn kernel_has_owners() -> bool {
    Release::running().is_some_and(|release| release >= Release::PERSISTENT_OWNERSHIP)
}

// apply, plan, cleanup.

#[test]
fn apply_makes_the_tables_and_says_what_it_sent() {
    let net = Net::new();
    let pod = net.pod("a", "10.244.1.5");
    let _server = pod.serve_tcp(8080, "a");
    let manifests = manifests("a");
    let first = manifests.once(net.node(), "apply").ok();
    assert!(first.contains("messages in "), "{first}");
    assert_eq!(net.pod("p", "10.244.1.9").connect_tcp(WEB).server(), "a");

    let before = tables(net.node());
    let second = manifests.once(net.node(), "apply").ok();
    assert!(second.contains("nothing to do"), "{second}");
    assert_eq!(tables(net.node()), before);
}

#[test]
fn apply_prints_json_for_programs() {
    let net = Net::new();
    let manifests = manifests("a c");
    let json = || -> serde_json::Value {
        let arguments = [manifests.arguments("apply"), vec!["--output", "json"]].concat();
        serde_json::from_str(&net.node().output(deltaproxy_binary(), &arguments).ok()).unwrap()
    };
    let first = json();
    assert!(first["transactions"].as_u64().unwrap() >= 1);
    assert_eq!(first["elements"]["ip kube-proxy endpoints"]["added"], 2);
    assert_eq!(first["messages"]["newtable"], 2);
    assert!(first["bytes"].as_u64().unwrap() > 1000 && first["kernel_us"].is_u64());
    assert_eq!(json()["transactions"], 0);
    manifests.set_endpoints("a");
    let third = json();
    assert_eq!(third["elements"]["ip kube-proxy endpoints"]["removed"], 1);
    assert_eq!(
        third["messages"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["delsetelem", "newsetelem"]
    );
}

#[test]
fn plan_prints_what_apply_would_do_and_changes_nothing() {
    let net = Net::new();
    let manifests = manifests("a");
    let plan = |code| {
        let finished = manifests.once(net.node(), "plan");
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        finished.stdout
    };
    let first = plan(1);
    assert!(first.lines().all(|line| line.starts_with("+ add ")), "{first}");
    assert!(first.contains("+ add table ip kube-proxy"), "{first}");
    assert_eq!(tables(net.node()), [None, None]);

    let _ = manifests.once(net.node(), "apply").ok();
    assert_eq!(plan(0), "nothing would change: the tables are as desired\n");
    let before = tables(net.node());
    manifests.set_endpoints("c");
    let change = plan(1);
    assert!(
        change.contains("- delete element ip kube-proxy endpoints { 1:0 . tcp . 0 }\n")
            && change.contains(
                "+ add element ip kube-proxy endpoints { 1:0 . tcp . 0 : 10.244.2.7 . 8080 }\n"
            ),
        "{change}"
    );
    assert_eq!(tables(net.node()), before);
}

#[test]
fn plan_prints_json_for_programs() {
    let net = Net::new();
    let manifests = manifests("a");
    let plan = |code| -> serde_json::Value {
        let arguments = [manifests.arguments("plan"), vec!["--output", "json"]].concat();
        let finished = net.node().output(deltaproxy_binary(), &arguments);
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        serde_json::from_str(&finished.stdout).unwrap()
    };
    assert_eq!(plan(1)["summary"]["added"]["table"], 2);
    let _ = manifests.once(net.node(), "apply").ok();
    let nothing = json!({
        "changes": [], "summary": { "added": {}, "removed": {} }, "problems": [],
    });
    assert_eq!(plan(0), nothing);
    manifests.set_endpoints("c");
    let change = plan(1);
    assert!(change["summary"]["removed"]["element"].as_u64() >= Some(1), "{change}");
    let added = json!({
        "sign": "+", "action": "add", "kind": "element", "family": "ip", "table": "kube-proxy",
        "object": "endpoints { 1:0 . tcp . 0 : 10.244.2.7 . 8080 }",
    });
    assert!(change["changes"].as_array().unwrap().contains(&added), "{change}");
    manifests.write_text("bad", "kind: Unheard\napiVersion: v1\n");
    let problems = plan(2)["problems"].clone();
    assert!(problems[0].as_str().unwrap().contains("Unheard"), "{problems}");
}

#[test]
fn cleanup_removes_our_tables_and_nothing_else() {
    let net = Net::new();
    let manifests = manifests("a");
    let cleanup = || net.node().output(deltaproxy_binary(), &["cleanup"]).ok();
    assert_eq!(cleanup(), "nothing to remove\n");
    let _ = manifests.once(net.node(), "apply").ok();
    if nft_available() {
        net.node().nft_script("table ip other { chain kube-proxy { drop; }; }");
    }
    let removed = cleanup();
    assert_eq!(removed, "delete table ip kube-proxy\ndelete table ip6 kube-proxy\n");
    assert_eq!(tables(net.node()), [None, None]);
    if nft_available() {
        assert!(net.node().nft("list tables").contains("other"));
    }
}

// Bad input.

/// Applies a folder with a good service and this file; checks that the good one is applied, that
/// the code is 1 and that standard error has a line with all of `parts`.
#[track_caller]
fn check_bad_manifest(text: &str, parts: &[&str]) {
    let net = Net::new();
    let manifests = manifests("a");
    manifests.write_text("bad", text);
    let finished = manifests.once(net.node(), "apply");
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    let told = |line: &str| parts.iter().all(|part| line.contains(part));
    assert!(finished.stderr.lines().any(told), "{parts:?} not in:\n{}", finished.stderr);
    wait_for_endpoints(net.node(), 1);
    assert_eq!(manifests.once(net.node(), "plan").code(), Some(2));
}

fn bad_service(spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: bad, namespace: default}}\nspec:\n{spec}"
    )
}

#[test]
fn a_file_that_does_not_parse_is_named_with_its_line() {
    check_bad_manifest("apiVersion: v1\nkind: [Service\nmetadata: {}\n", &["bad.yaml:"]);
}

#[test]
fn an_unknown_kind_is_named() {
    check_bad_manifest(
        "apiVersion: v1\nkind: Servic\nmetadata: {name: bad}\n",
        &["bad.yaml:", "Servic"],
    );
}

#[test]
fn a_wrong_type_is_named_with_its_field() {
    let text = bad_service("  clusterIP: 10.96.0.50\n  ports: eighty\n");
    check_bad_manifest(&text, &["bad.yaml:6", "Service default/bad", "spec.ports"]);
}

#[test]
fn impossible_values_are_named_with_their_field() {
    let port =
        |port: &str| bad_service(&format!("  clusterIP: 10.96.0.50\n  ports:\n  - {port}\n"));
    for (text, parts) in [
        (port("{port: 0}"), ["bad.yaml:7", "spec.ports[0].port", "0"]),
        (port("{port: 70000}"), ["bad.yaml:7", "spec.ports[0].port", "70000"]),
        (port("{port: 80, protocol: XYZ}"), ["bad.yaml:7", "spec.ports[0].protocol", "XYZ"]),
        (
            bad_service("  clusterIP: 10.96.0.500\n  ports: [{port: 80}]\n"),
            ["bad.yaml:5", "clusterIP", "10.96.0.500"],
        ),
    ] {
        check_bad_manifest(&text, &parts);
    }
}

#[test]
fn each_problem_is_a_line_of_its_own() {
    let net = Net::new();
    let manifests = manifests("a");
    manifests.write_text("first", "kind: Unheard\napiVersion: v1\n");
    manifests.write_text("second", "kind: \"Un\\ttold\"\napiVersion: v1\n");
    let finished = manifests.once(net.node(), "apply");
    let lines: Vec<_> = finished.stderr.lines().collect();
    let [first, second] = lines[..] else { panic!("{lines:?}") };
    assert!(first.contains("first.yaml:1") && first.contains("Unheard"), "{first}");
    assert!(second.contains("second.yaml:1") && second.contains(r"Un\ttold"), "{second}");
}

#[test]
fn output_that_nobody_reads_is_no_error_and_problems_keep_their_code() {
    let net = Net::new();
    let manifests = manifests("a");
    manifests.write_text("bad", "kind: Unheard\napiVersion: v1\n");
    for (command, code) in [("apply", 1), ("plan", 2)] {
        let arguments = [manifests.arguments(command), vec!["--log-level", "trace"]].concat();
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let status = net.node().run(|| {
            Command::new(deltaproxy_binary())
                .args(&arguments)
                .stdout(writer.try_clone().unwrap())
                .stderr(writer)
                .status()
                .unwrap()
        });
        assert_eq!(status.code(), Some(code), "{command}: {status}");
    }
    wait_for_endpoints(net.node(), 1);
}

#[test]
fn a_path_without_manifests_is_named() {
    let net = Net::new();
    for (path, part) in [("/nowhere/at/all", "/nowhere/at/all"), ("/dev/null", "/dev/null")] {
        for (command, code) in [("apply", 1), ("plan", 2), ("run", 1)] {
            let args = [command, "--hostname-override=node-a", "--manifests", path];
            let finished = net.node().output(deltaproxy_binary(), &args);
            assert_eq!(finished.code(), Some(code), "{command} {path}: {}", finished.stderr);
            assert!(finished.stderr.contains(part), "{}", finished.stderr);
        }
    }
    assert_eq!(tables(net.node()), [None, None]);
}

/// Such manifests are most likely those of a wrong path, and would remove every service.
#[test]
fn manifests_without_a_usable_object_are_refused() {
    let net = Net::new();
    let good = manifests("a");
    let _ = good.once(net.node(), "apply").ok();
    let before = tables(net.node());
    for text in ["", CONFIG_MAP, "apiVersion: v1\nkind: Node\nmetadata: {name: another}\n"] {
        let empty = Manifests::new(&[]);
        empty.write_text("empty", text);
        for (command, code) in [("apply", 1), ("plan", 2)] {
            let finished = empty.once(net.node(), command);
            assert_eq!(finished.code(), Some(code), "{text}: {}", finished.stdout);
            assert!(finished.stderr.contains("--allow-empty"), "{}", finished.stderr);
            assert_eq!(finished.stdout, "");
        }
    }
    assert_eq!(tables(net.node()), before);
    let empty = Manifests::new(&[]);
    let with = |command| [empty.arguments(command), vec!["--allow-empty"]].concat();
    assert_eq!(net.node().output(deltaproxy_binary(), &with("plan")).code(), Some(1));
    let _ = net.node().output(deltaproxy_binary(), &with("apply")).ok();
    assert!(net.node().read_table(Family::Ip).unwrap().sets["endpoints"].elements.is_empty());
}

#[test]
fn objects_of_other_kinds_are_one_line_and_no_error() {
    let net = Net::new();
    let manifests = manifests("a");
    manifests.write_text("map", CONFIG_MAP);
    manifests.write_text(
        "list",
        "{apiVersion: v1, kind: List, items: [\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: b}},\
         {apiVersion: apps/v1, kind: Deployment, metadata: {name: c}}]}",
    );
    let line = "ignored objects of other kinds: 2 ConfigMap, 1 Deployment.apps";
    for (command, code) in [("plan", 1), ("apply", 0)] {
        let finished = manifests.once(net.node(), command);
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        let lines: Vec<_> = finished.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].ends_with(line), "{lines:?}");
    }
    let mut daemon = manifests.run(net.node());
    daemon.wait_for_line(line, SOON);
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

#[test]
fn run_without_anything_to_follow_says_what_to_give() {
    let net = Net::new();
    let binary = deltaproxy_binary();
    let variable = "KUBERNETES_SERVICE_HOST";
    for arguments in [&["run"][..], &["--proxy-mode=nftables"]] {
        let args = [&["-u", variable, binary.to_str().unwrap()][..], arguments].concat();
        let finished = net.node().output("env", &args);
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        let lines: Vec<_> = finished.stderr.lines().collect();
        let [line] = lines[..] else { panic!("{lines:?}") };
        assert!(line.contains("--kubeconfig") && line.contains("--manifests"), "{line}");
    }
    assert_eq!(tables(net.node()), [None, None]);
}

#[test]
fn a_server_that_is_away_is_logged_by_the_program_and_not_by_its_libraries() {
    let net = Net::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    fs::write(file.path(), config.to_string()).unwrap();
    let args = ["run", "--healthz-bind-address=", "--metrics-bind-address=", "--kubeconfig"];
    let args = [&args[..], &[file.path().to_str().unwrap()]].concat();
    let mut daemon = net.node().spawn(deltaproxy_binary(), &args);
    daemon.wait_for_line("following nodes: the API server cannot be reached", SOON);
    let stderr = daemon.terminate(SOON).stderr;
    let is_ours = |line: &str| {
        line.contains("started") || line.contains("stopped") || line.contains("following ")
    };
    assert!(stderr.lines().all(is_ours), "{stderr}");
}

#[test]
fn wrong_arguments_are_refused() {
    let net = Net::new();
    for args in [
        &[][..],
        &["aply"],
        &["apply"],
        &["cleanup", "now"],
        &["apply", "--manifests", "/tmp", "--output", "xml"],
        &["apply", "--manifests", "/tmp", "--cluster-cidr", "10.0.0.0/40"],
        &["apply", "--manifests", "/tmp", "--masquerade-bit", "32"],
        &["run", "--manifests", "/tmp", "--nodeport-addresses", "primary,10.0.0.0/8"],
        &["run", "--manifests", "/tmp", "--healthz-bind-address", "somewhere"],
    ] {
        let finished = net.node().output(deltaproxy_binary(), args);
        assert_eq!(finished.code(), Some(2), "{args:?}: {}", finished.stderr);
        assert!(!finished.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(tables(net.node()), [None, None]);
}

#[test]
fn without_permission_every_command_says_so_in_one_line() {
    let net = Net::new();
    let manifests = manifests("a");
    let binary = deltaproxy_binary();
    for (command, code) in [("apply", 1), ("plan", 2), ("run", 1), ("cleanup", 1), ("explain", 2)] {
        let mut args = vec!["--bounding-set=-all", "--inh-caps=-all", "--"];
        args.push(binary.to_str().unwrap());
        match command {
            "cleanup" => args.push(command),
            "explain" => args.extend([command, "10.96.0.10:80/tcp"]),
            _ => args.extend(manifests.arguments(command)),
        }
        let finished = net.node().output("setpriv", &args);
        assert_eq!(finished.code(), Some(code), "{command}: {}", finished.stderr);
        assert!(finished.stderr.contains("CAP_NET_ADMIN"), "{command}: {}", finished.stderr);
        assert_eq!(finished.stderr.trim_end().lines().count(), 1, "{}", finished.stderr);
    }
    assert_eq!(tables(net.node()), [None, None]);
}

/// Whether this user namespace has the user `nobody`.
fn has_nobody() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().map(|it| it.parse().unwrap()).collect();
        (numbers[0]..=numbers[0].saturating_add(numbers[2] - 1)).contains(&NOBODY)
    })
}

const NOBODY: u32 = 65_534;

/// As a container runtime starts it.
#[test]
fn any_user_with_cap_net_admin_alone_may_run_it() {
    let net = Net::new();
    let manifests = manifests("a");
    let folder = tempfile::tempdir().unwrap();
    let readable = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    [folder.path(), manifests.path()].into_iter().for_each(readable);
    let binary = folder.path().join("deltaproxy");
    fs::copy(deltaproxy_binary(), &binary).unwrap();
    let uid = if has_nobody() { NOBODY.to_string() } else { "0".to_owned() };
    let mut args = vec!["--reuid", &uid, "--regid", &uid, "--clear-groups", "--no-new-privs"];
    args.extend(
        ["--inh-caps", "--ambient-caps", "--bounding-set"]
            .into_iter()
            .flat_map(|set| [set, "-all,+net_admin"]),
    );
    args.extend(["--", binary.to_str().unwrap()]);
    args.extend(manifests.arguments("run"));
    args.extend(["--healthz-bind-address=", "--metrics-bind-address="]);
    let daemon = net.node().spawn("setpriv", &args);
    wait_for_endpoints(net.node(), 1);
    manifests.set_endpoints("a c");
    wait_for_endpoints(net.node(), 2);
    let _ = daemon.terminate(SOON);
}

// run.

#[test]
fn run_follows_files_that_change_come_and_go() {
    let net = Net::new();
    // What nobody serves is refused on its way out, so there must be a way out.
    let outside = net.outside("x", "192.0.2.10");
    net.route_everything_to(&outside);
    let pod = net.pod("p", "10.244.1.9");
    let (a, c) = (net.pod("a", "10.244.1.5"), net.remote_pod("c", "10.244.2.7"));
    let _servers = [a.serve_tcp(8080, "a"), c.serve_tcp(8080, "c")];
    let manifests = manifests("a");
    let daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
    assert_eq!(pod.connect_tcp(WEB).server(), "a");

    manifests.set_endpoints("c 10.244.2.99");
    wait_for_endpoints(net.node(), 2);
    manifests.set_endpoints("c");
    wait_for_endpoints(net.node(), 1);
    assert_eq!(pod.connect_tcp(WEB).server(), "c");

    manifests.remove("slice");
    wait_for_endpoints(net.node(), 0);
    assert_eq!(pod.connect_tcp(WEB), Answer::Refused);
    manifests.set_endpoints("a");
    wait_for_endpoints(net.node(), 1);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}

#[test]
fn a_file_that_becomes_invalid_keeps_what_it_said() {
    let net = Net::new();
    let manifests = manifests("a c");
    let mut daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let good = manifests.read("web");

    manifests.write_text("web", &good.replace("\"port\":80", "\"port\":70000"));
    daemon.wait_for_line("web.yaml:1: Service default/web: spec.ports[0].port", SOON);
    manifests.write_text("web", "apiVersion: [v1\n");
    daemon.wait_for_line("web.yaml:", SOON);
    // Others are followed meanwhile.
    manifests.set_endpoints("a c d");
    wait_for_endpoints(net.node(), 3);
    manifests.write_text("web", &good.replace("10.96.0.10", "10.96.0.77"));
    eventually("the new address", SOON, || {
        let ips = &net.node().read_table(Family::Ip)?.sets["cluster-ips"];
        (ips.elements[0].key == [10, 96, 0, 77]).then_some(())
    });
}

#[test]
fn the_tables_stay_when_the_daemon_ends_and_the_next_one_adopts_them() {
    let net = Net::new();
    let pod = net.pod("p", "10.244.1.9");
    let a = net.pod("a", "10.244.1.5");
    let _server = a.serve_tcp(8080, "a");
    let manifests = manifests("a");
    let daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
    let plain = || {
        tables(net.node()).map(|table| {
            let mut table = table.unwrap();
            // An owner comes and goes; rules keep their handles.
            table.flags = 0;
            table
        })
    };
    let before = plain();
    assert_eq!(pod.connect_tcp(WEB).server(), "a");

    for _ in 0..2 {
        let daemon = manifests.run(net.node());
        manifests.set_endpoints("a c");
        wait_for_endpoints(net.node(), 2);
        manifests.set_endpoints("a");
        wait_for_endpoints(net.node(), 1);
        assert_eq!(plain(), before);
        daemon.signal(Signal::SIGKILL);
        let _ = daemon.finish(SOON);
        assert_eq!(plain(), before);
        assert_eq!(pod.connect_tcp(WEB).server(), "a");
    }
}

/// The status code of a probe at an address; none without an answer.
fn probe(host: &Host, address: &str, path: &str) -> Option<String> {
    let answer = host.run(|| {
        let mut stream = TcpStream::connect((address, 10256))?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n").as_bytes())?;
        io::read_to_string(stream)
    });
    Some(answer.ok()?.split(' ').nth(1)?.to_owned())
}

/// Cases 114, without its wait of 60 s, which `src/observe/health.rs` has, and 117.
#[test]
fn a_node_is_healthy_until_manifests_say_that_it_is_leaving() {
    let net = Net::new();
    let manifests = manifests("a c");
    let becomes = |status: &str| {
        eventually(&format!("{status} from /healthz"), SOON, || {
            let answers = ["127.0.0.1", "::1"].map(|it| probe(net.node(), it, "/healthz"));
            answers.iter().all(|answer| answer.as_deref() == Some(status)).then_some(())
        })
    };
    manifests.remove("node");
    let _daemon = manifests.run_with(net.node(), &["--metrics-bind-address="]);
    becomes("200");
    let mut leaving = Node::new().documents().remove(0);
    leaving["spec"]["taints"] = json!([{"key": "ToBeDeletedByClusterAutoscaler"}]);
    manifests.write("node", &Raw(leaving));
    becomes("503");
    manifests.write("node", &Node::new());
    becomes("200");
}

#[test]
fn a_daemon_is_ready_once_it_may_write_the_tables() {
    if !kernel_has_owners() {
        return;
    }
    let net = Net::new();
    let manifests = manifests("a c");
    let first = manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let mut second = manifests.run_with(net.node(), &["--metrics-bind-address="]);
    second.wait_for_line("IPv6 is not programmed", SOON);
    let becomes = |status: &str| {
        eventually(&format!("{status} from /readyz"), SOON, || {
            let answer = probe(net.node(), "127.0.0.1", "/readyz");
            (answer.as_deref() == Some(status)).then_some(())
        });
    };
    becomes("503");
    let _ = first.terminate(SOON);
    becomes("200");
}

/// The body that the metrics port has for a path.
fn page(host: &Host, path: &str) -> String {
    let answer = host.run(|| {
        let mut stream = TcpStream::connect("127.0.0.1:10249")?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nconnection: close\r\n\r\n").as_bytes())?;
        io::read_to_string(stream)
    });
    let answer = answer.unwrap_or_default();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

#[test]
fn configz_and_flagz_show_what_the_daemon_was_started_with() {
    let net = Net::new();
    let manifests = manifests("a");
    let config = tempfile::NamedTempFile::new().unwrap();
    let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                mode: iptables\niptables: {masqueradeAll: true}\nconfigSyncPeriod: 7s\n";
    fs::write(config.path(), text).unwrap();
    let (folder, config) = (manifests.path().to_str().unwrap(), config.path().to_str().unwrap());
    let args =
        ["run", "-v=4", "--manifests", folder, "--hostname-override=node-a", "--config", config];
    let _daemon = net.node().spawn(deltaproxy_binary(), &args);
    let configz = eventually("an answer of /configz", SOON, || {
        serde_json::from_str::<serde_json::Value>(&page(net.node(), "/configz")).ok()
    });
    let configz = &configz["kubeproxy.config.k8s.io"];
    for (field, expected) in [
        ("/kind", json!("KubeProxyConfiguration")),
        ("/mode", json!("nftables")),
        ("/nftables/masqueradeAll", json!(true)),
        ("/hostnameOverride", json!("node-a")),
        ("/configSyncPeriod", json!("7s")),
        ("/conntrack/tcpEstablishedTimeout", json!("24h0m0s")),
        ("/metricsBindAddress", json!("127.0.0.1:10249")),
    ] {
        assert_eq!(configz.pointer(field), Some(&expected), "{field} of {configz}");
    }
    let flagz = page(net.node(), "/flagz");
    for line in [&format!("config={config}"), "hostname-override=node-a", "log-level=4"] {
        assert!(flagz.lines().any(|it| it == line), "no {line} in {flagz}");
    }
    assert!(page(net.node(), "/statusz").contains("Binary version: "));
}

#[test]
fn changes_made_while_no_daemon_runs_are_found_at_the_next_start() {
    let net = Net::new();
    let manifests = manifests("a b c");
    let daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 3);
    daemon.signal(Signal::SIGKILL);
    let _ = daemon.finish(SOON);
    manifests.set_endpoints("d");
    let _daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
}

/// Cases 108 and 109: with an owner the tables cannot go; else they are repaired.
#[test]
fn the_tables_survive_what_others_do_while_the_daemon_runs() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let manifests = manifests("a c");
    let _daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let before = tables(net.node());
    net.node().nft("flush ruleset");
    if kernel_has_owners() {
        assert_eq!(tables(net.node()), before);
        let args = ["delete", "table", "ip", "kube-proxy"];
        assert_ne!(net.node().output("/usr/sbin/nft", &args).code(), Some(0));
        assert_eq!(tables(net.node()), before);
    }
    wait_for_endpoints(net.node(), 2);
}

#[test]
fn tables_that_apply_made_are_owned_by_the_next_daemon() {
    if !kernel_has_owners() {
        return;
    }
    let net = Net::new();
    let manifests = manifests("a c");
    let _ = manifests.once(net.node(), "apply").ok();
    let owners = || {
        net.node().run(|| {
            let mut kernel = Nftables::open().unwrap();
            let families = deltaproxy::family::Family::ALL;
            families.map(|family| kernel.owner(&ruleset::table(family)).unwrap())
        })
    };
    assert_eq!(owners(), [None, None]);
    let _daemon = manifests.run(net.node());
    eventually("owners of both tables", SOON, || {
        owners().iter().all(Option::is_some).then_some(())
    });
}

/// Tables that were made without an owner cannot get one: their loss is noticed.
#[test]
fn tables_without_owner_are_repaired() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let manifests = manifests("a c");
    drop(Proxy::start(net.node(), routing()).apply(&[&web()]));
    let _daemon = manifests.run(net.node());
    manifests.set_endpoints("a c d");
    wait_for_endpoints(net.node(), 3);
    // The daemon looks twice a second, but reads no more than a tenth of the time, and reading
    // takes long in a debug build on a busy machine.
    let limit = SOON;
    let repaired = |what: &str, limit| {
        eventually(what, limit, || {
            let table = net.node().read_table(Family::Ip)?;
            let complete = table.sets.get("endpoints")?.elements.len() == 3
                && table.chains.get("nat-prerouting")?.rules.len() == 2;
            complete.then_some(())
        });
    };
    net.node().nft("flush map ip kube-proxy endpoints");
    repaired("a repair of the flushed map", limit);
    net.node().nft("flush chain ip kube-proxy nat-prerouting");
    repaired("a repair of the flushed chain", limit);
    net.node().nft("flush ruleset");
    repaired("a repair of the flushed ruleset", limit);
}

/// Case 112 too: what was refused is tried again although nothing else happens.
#[test]
fn a_second_daemon_waits_for_the_first_to_end_and_takes_over() {
    if !kernel_has_owners() {
        return;
    }
    let net = Net::new();
    let (first_manifests, second_manifests) = (manifests("a c"), manifests("a c d"));
    let first = first_manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let mut second = second_manifests.run(net.node());
    second.wait_for_line("owned by another process", SOON);
    assert_eq!(second_manifests.once(net.node(), "apply").code(), Some(1));
    assert_eq!(net.node().output(deltaproxy_binary(), &["cleanup"]).code(), Some(1));
    wait_for_endpoints(net.node(), 2);
    let _ = first.terminate(SOON);
    wait_for_endpoints(net.node(), 3);
}

/// Reading does not take the kernel's word that a table has an owner for being that owner.
#[test]
fn a_second_daemon_with_nothing_to_change_waits_as_well() {
    if !kernel_has_owners() {
        return;
    }
    let net = Net::new();
    let (first_manifests, second_manifests) = (manifests("a c"), manifests("a c"));
    let first = first_manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let mut second = second_manifests.run(net.node());
    second.wait_for_line("owned by another process", SOON);
    let _ = first.terminate(SOON);
    second_manifests.set_endpoints("a c d");
    wait_for_endpoints(net.node(), 3);
}

#[test]
fn apply_works_on_the_tables_of_a_daemon_that_has_ended() {
    let net = Net::new();
    let manifests = manifests("a c");
    let daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 2);
    let _ = daemon.terminate(SOON);
    manifests.set_endpoints("a");
    let _ = manifests.once(net.node(), "apply").ok();
    wait_for_endpoints(net.node(), 1);
    let _ = net.node().output(deltaproxy_binary(), &["cleanup"]).ok();
    assert_eq!(tables(net.node()), [None, None]);
}
