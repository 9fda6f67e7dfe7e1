//! `run` with manifests.

use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use engine::ruleset;
use netlink_tests::reader::Family;
use netlink_tests::scenario::kube_proxy::MODE_NFTABLES;
use netlink_tests::scenario::{Node, Object, Raw, WEB};
use netlink_tests::{Answer, Host, Net, Process, deltaproxy_binary, eventually, nft_available};
use nft::kernel::{Kernel, Nftables};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use super::{SOON, kernel_has_owners, manifests, tables, wait_for_endpoints};

#[test]
fn run_follows_files_that_change_come_and_go() {
    let net = Net::new();
    // A packet to a service without endpoints is refused on its way out, so there must be one.
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
fn sighup_reads_the_configuration_again_and_ends_nothing() {
    let net = Net::new();
    let manifests = manifests("a");
    let mut daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_line("SIGHUP: there is no configuration file to read again", SOON);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));

    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| {
        let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
        fs::write(file.path(), format!("{head}{text}")).unwrap();
    };
    write("mode: nftables\n");
    let [folder, config] = [manifests.path(), file.path()].map(|it| it.to_str().unwrap());
    let arguments =
        ["run", "--manifests", folder, "--hostname-override=node-a", "--config", config];
    let mut daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    daemon.wait_for_line("the tables are complete", SOON);
    let name = |daemon: &Process| fs::read_to_string(format!("/proc/{}/comm", daemon.pid()));
    let first_name = name(&daemon).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_line("SIGHUP: the configuration has not changed", SOON);
    for bit in [3, 4] {
        write(&format!("mode: nftables\nnftables: {{masqueradeBit: {bit}}}\n"));
        // Signals that arrive while the program starts again wait until it can handle them.
        daemon.signal(Signal::SIGHUP);
        daemon.wait_for_line("the configuration has changed; restarting", SOON);
        for _ in 0..20 {
            daemon.signal(Signal::SIGHUP);
            thread::sleep(Duration::from_millis(2));
        }
        daemon.wait_for_line("the tables are complete", SOON);
        daemon.signal(Signal::SIGHUP);
        daemon.wait_for_line("SIGHUP: the configuration has not changed", SOON);
        assert_eq!(name(&daemon).unwrap(), first_name);
    }
    write("mode: nonsense\n");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_line("the previous configuration stays in use", SOON);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}

#[test]
fn a_file_that_becomes_invalid_keeps_its_former_objects() {
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
    let check = "cluster-ips-check";
    let checks = || net.node().read_table(Family::Ip).unwrap().chains[check].rules.len();
    let served = checks();
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
    let plain = || {
        tables(net.node()).map(|table| {
            let mut table = table.unwrap();
            // The owner changes; rules keep their handles, but in the chains that get kube-proxy's
            // priority at the end.
            table.flags = 0;
            table.chains.get_mut(check).unwrap().rules.clear();
            for name in ["nat-prerouting", "nat-output"] {
                let chain = table.chains.get_mut(name).unwrap();
                chain.hook = None;
                chain.rules.iter_mut().for_each(|rule| rule.handle = 0);
            }
            table
        })
    };
    let before = plain();
    assert!(served > 0 && checks() == 0, "the handover table refuses unknown ports");
    assert_eq!(pod.connect_tcp(WEB).server(), "a");

    for _ in 0..2 {
        let daemon = manifests.run(net.node());
        manifests.set_endpoints("a c");
        wait_for_endpoints(net.node(), 2);
        manifests.set_endpoints("a");
        // The IPv6 table changes after the IPv4 table.
        eventually("the tables of before", SOON, || {
            (plain() == before && checks() == served).then_some(())
        });
        daemon.signal(Signal::SIGKILL);
        let _ = daemon.finish(SOON);
        assert_eq!((plain(), checks()), (before.clone(), served));
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

/// `src/daemon/observe/health_state.rs` tests the 60 s for which a change may wait.
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
fn configz_and_flagz_show_the_configuration_and_flags_of_the_daemon() {
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

/// The commits of `deltaproxy history` with these arguments, as JSON.
fn history(host: &Host, args: &[&str]) -> Vec<serde_json::Value> {
    let args = [&["history", "--output", "json"], args].concat();
    let answer = host.output(deltaproxy_binary(), &args);
    let answer: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    answer["commits"].as_array().unwrap().clone()
}

#[test]
fn the_history_names_the_cause_and_the_service_of_each_change() {
    let net = Net::new();
    let manifests = manifests("a b");
    let folder = manifests.path().to_str().unwrap();
    let args =
        ["run", "--manifests", folder, "--hostname-override=node-a", "--metrics-bind-address="];
    let _daemon = net.node().spawn(deltaproxy_binary(), &args);
    wait_for_endpoints(net.node(), 2);
    let of_start = history(net.node(), &["--service", "default/web"]);
    assert!(!of_start.is_empty());
    assert!(of_start.iter().all(|it| it["causes"] == json!(["start"])), "{of_start:?}");
    manifests.set_endpoints("a b c");
    wait_for_endpoints(net.node(), 3);
    let changed = eventually("the change in the history", SOON, || {
        let all = history(net.node(), &["--since", "1m", "--service", "default/web"]);
        all.into_iter().find(|it| it["causes"] == json!(["event"]))
    });
    assert!(changed["added"].as_u64().unwrap() > 0, "{changed}");
    assert_eq!(changed["services"], json!(1), "{changed}");
    assert!(history(net.node(), &["--service", "default/other"]).is_empty());
}

/// The causes of the commits, each once, without those of elements that are no longer used.
fn causes(host: &Host) -> Vec<String> {
    let commits = history(host, &[]);
    let names = commits.iter().flat_map(|it| it["causes"].as_array().unwrap()).map(|cause| {
        assert!(cause.is_string(), "{cause}");
        cause.as_str().unwrap().to_owned()
    });
    let mut names: Vec<_> = names.filter(|name| name != "unused").collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn the_history_tells_a_reload_and_another_address_of_the_node_from_a_start() {
    let net = Net::new();
    let manifests = manifests("a b");
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |more: &str| {
        let text = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                    mode: nftables\nnodePortAddresses: [192.168.50.0/24]\n\
                    metricsBindAddress: \"\"\n";
        fs::write(file.path(), format!("{text}{more}")).unwrap();
    };
    write("");
    let (folder, config) = (manifests.path().to_str().unwrap(), file.path().to_str().unwrap());
    let args = ["run", "--manifests", folder, "--hostname-override=node-a", "--config", config];
    let mut daemon = net.node().spawn(deltaproxy_binary(), &args);
    wait_for_endpoints(net.node(), 2);
    assert_eq!(causes(net.node()), ["start"]);

    net.node().add_addresses(["192.168.50.77".parse::<std::net::IpAddr>().unwrap()]);
    eventually("the address in the history", SOON, || {
        (causes(net.node()) == ["addresses", "start"]).then_some(())
    });

    write("nftables: {masqueradeBit: 3}\n");
    let changed = daemon.wait_for_line("the configuration has changed", SOON);
    assert!(changed.contains("fields=\"nftables.masqueradeBit\""), "{changed}");
    daemon.wait_for_line("started again", SOON);
    eventually("the reload in the history", SOON, || {
        let commits = net.node().output(deltaproxy_binary(), &["history"]);
        commits.stdout.contains(" reload ").then_some(())
    });
    assert_eq!(causes(net.node()), ["reload"]);
    manifests.set_endpoints("a b c");
    eventually("the change in the history", SOON, || {
        (causes(net.node()) == ["event", "reload"]).then_some(())
    });
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

/// With an owner the tables cannot go; else they are repaired.
#[test]
fn the_tables_survive_changes_of_other_programs_while_the_daemon_runs() {
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
            let families = nft::family::Family::ALL;
            families.map(|family| kernel.owner(&ruleset::table(family)).unwrap())
        })
    };
    assert_eq!(owners(), [None, None]);
    let _daemon = manifests.run(net.node());
    // Each table is taken after 5 s without a change.
    eventually("owners of both tables", Duration::from_secs(60), || {
        owners().iter().all(Option::is_some).then_some(())
    });
    let handovers = eventually("the replaced tables in the history", SOON, || {
        let commits = history(net.node(), &[]).into_iter();
        let of: Vec<_> = commits.filter(|it| it["causes"] == json!(["handover"])).collect();
        (of.len() == 2).then_some(of)
    });
    let mut families: Vec<_> = handovers.iter().map(|it| it["family"].to_string()).collect();
    families.sort_unstable();
    assert_eq!(families, ["\"IPv4\"", "\"IPv6\""], "{handovers:?}");
    assert!(handovers.iter().all(|it| it["took_us"].as_u64() > Some(0)), "{handovers:?}");
}

/// The loss of tables without an owner is noticed.
#[test]
fn tables_without_owner_are_repaired() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    let manifests = manifests("a c");
    let options = ["--healthz-bind-address=", "--metrics-bind-address=", "--table-ownership=off"];
    let _daemon = manifests.run_with(net.node(), &options);
    manifests.set_endpoints("a c d");
    wait_for_endpoints(net.node(), 3);
    // After a reading the daemon pauses for five times as long, and reading takes seconds in a debug
    // build on a busy machine.
    let limit = Duration::from_secs(60);
    let repaired = |what: &str, limit| {
        eventually(what, limit, || {
            let table = net.node().read_table(Family::Ip)?;
            let complete = table.sets.get("endpoints")?.elements.len() == 3
                && table.chains.get("nat-prerouting")?.rules.len() == 5;
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

/// kube-proxy's mode nftables has tables of the same names.
#[test]
fn a_daemon_for_one_proxy_name_does_not_replace_the_tables_of_kube_proxy() {
    if !nft_available() {
        return;
    }
    let net = Net::new();
    net.node().nft_script(MODE_NFTABLES);
    let before = net.node().nft("list ruleset");
    let manifests = manifests("a c");
    let canary = [&manifests.arguments("run")[..], &["--service-proxy-name=canary"]].concat();
    let refused = net.node().output(deltaproxy_binary(), &canary);
    assert_eq!(refused.code(), Some(1));
    let error = refused.stderr.clone();
    assert!(error.contains("mode nftables uses the table ip kube-proxy, which"), "{error}");
    assert_eq!(net.node().nft("list ruleset"), before);
    let _daemon = manifests.run_with(
        net.node(),
        &["--except-services=default/none", "--healthz-bind-address=", "--metrics-bind-address="],
    );
    wait_for_endpoints(net.node(), 2);
}

#[test]
fn show_says_that_the_daemon_leaves_a_service_to_other_programs() {
    let net = Net::new();
    let manifests = manifests("a c");
    for (flag, reason) in [
        ("--except-services=default/*", "(deltaproxy.services.except: default/*)"),
        (
            "--service-labels=team=a",
            "with the labels !service.kubernetes.io/service-proxy-name,team=a",
        ),
        ("--except-services=other/web", "have no service default/none\n"),
    ] {
        let daemon = manifests.run_with(net.node(), &[flag]);
        for service in ["default/none", "default/none:http"] {
            eventually(reason, SOON, || {
                let shown = net.node().output(deltaproxy_binary(), &["show", service]);
                assert_eq!(shown.code(), Some(2));
                shown.stderr.replace(":http\n", "\n").contains(reason).then_some(())
            });
        }
        let _ = daemon.terminate(SOON);
    }
    let without = net.node().output(deltaproxy_binary(), &["show", "default/none"]);
    assert!(without.stderr.ends_with("have no service default/none\n"), "{}", without.stderr);
}

#[test]
fn a_configuration_file_that_becomes_a_pipe_stops_nothing() {
    let net = Net::new();
    let (manifests, folder) = (manifests("a c"), tempfile::tempdir().unwrap());
    let [file, pipe] = ["config.yaml", "pipe"].map(|name| folder.path().join(name));
    let head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    fs::write(&file, format!("{head}mode: nftables\n")).unwrap();
    let [path, config] = [manifests.path(), &file].map(|path| path.to_str().unwrap());
    let arguments = ["run", "--manifests", path, "--hostname-override=node", "--config", config];
    let mut daemon = net.node().spawn(deltaproxy_binary(), &arguments);
    wait_for_endpoints(net.node(), 2);
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    fs::rename(&pipe, &file).unwrap();
    let line = "config.yaml: it is not a regular file; the previous configuration stays in use";
    daemon.wait_for_line(line, SOON);
    manifests.set_endpoints("a");
    wait_for_endpoints(net.node(), 1);
    assert_eq!(daemon.terminate(SOON).code(), Some(0));
}

#[test]
fn a_second_daemon_takes_over_when_the_first_ends() {
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
fn a_second_daemon_without_changes_takes_over_too() {
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
