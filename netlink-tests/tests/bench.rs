//! `deltaproxy bench` as a user starts it, with clusters so small that it takes a moment.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use netlink_tests::reader::Family;
use netlink_tests::{Finished, Net, deltaproxy_binary, eventually, nft_available};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// How long a small run may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

const SMALL: [&str; 6] = ["--services", "50", "--changes", "50", "--rate", "0"];

fn bench(net: &Net, arguments: &[&str]) -> Finished {
    net.node().output(deltaproxy_binary(), &[&["bench"], arguments].concat())
}

/// Runs a small bench with these additional flags and reads its files.
fn report(net: &Net, flags: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let _ = bench(net, &[&SMALL[..], flags, &["--json", text(&path)]].concat()).ok();
    read(&path)
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The only size of a report.
fn size(report: &Value) -> &Value {
    let [size] = &report["sizes"].as_array().unwrap()[..] else { panic!("{report}") };
    size
}

#[track_caller]
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = size(report)["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"))
}

#[test]
fn every_stage_is_measured_and_every_change_is_committed() {
    let report = report(&Net::new(), &["--distribution", "even"]);
    assert_eq!(report["interrupted"], false);
    assert_eq!(report["settings"]["mix"]["endpoint"], 90);
    let size = size(&report);
    assert_eq!([&size["services"], &size["endpoints"]], [50, 250]);
    assert_eq!(size["committed"], 50, "{size}");
    for stage in ["parsed", "modelled", "diffed", "encoded", "committed by the kernel"] {
        let row = row(&report, &format!("endpoint change: {stage}"));
        assert_eq!(row["unit"], "us");
        let value = &row["value"];
        assert!(value["count"].as_u64().unwrap() > 30, "{row}");
        let [p50, p99] = ["p50", "p99"].map(|percentile| value[percentile].as_f64().unwrap());
        assert!(p50 > 0.0 && p50 <= p99, "{row}");
    }
    assert!(row(&report, "memory: all services loaded")["value"].as_f64().unwrap() > 1.0);
    assert_eq!(row(&report, "slices at once")["value"], 50.0);
    assert!(row(&report, "zone change: small changes wait")["value"]["count"] != 0);
    assert!(row(&report, "endpoint change: end to end")["value"]["p50"].is_f64());
}

#[test]
fn packets_reach_their_endpoints_while_services_change() {
    let report = report(&Net::new(), &["--traffic"]);
    let rows = size(&report)["rows"].as_array().unwrap();
    let failed: Vec<_> = rows
        .iter()
        .filter(|row| row["name"].as_str().unwrap().ends_with(": failed"))
        .map(|row| (&row["name"], &row["value"]))
        .collect();
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.iter().all(|(_, value)| **value == 0.0), "{failed:?}");
    assert!(row(&report, "UDP through services: flows")["value"].as_f64().unwrap() > 100.0);
}

#[test]
fn nft_makes_the_same_changes_beside_it() {
    if !nft_available() {
        return;
    }
    let mix = ["--mix", "endpoint=60,service=20,policy=20"];
    let report = report(&Net::new(), &[&["--baseline", "nft"], &mix[..]].concat());
    assert!(row(&report, "kube-proxy's layout: all loaded")["value"].as_f64().unwrap() > 0.0);
    let of = |row: &Value| row["value"]["count"].as_u64().unwrap();
    for kind in ["endpoint change", "service change", "policy change"] {
        let ours = of(row(&report, &format!("{kind}: all stages")));
        let by_nft = of(row(&report, &format!("{kind}: kube-proxy's layout by nft")));
        assert_eq!(by_nft, ours, "{kind}");
    }
}

#[test]
fn the_same_packets_go_through_the_layout_of_kube_proxy() {
    if !nft_available() {
        return;
    }
    let report = report(&Net::new(), &["--baseline", "nft", "--traffic"]);
    let number = |what: &str| row(&report, what)["value"].as_f64().unwrap();
    let ways = [
        "UDP without a service",
        "UDP through services",
        "UDP without a service, kube-proxy's layout",
        "UDP through kube-proxy's layout",
    ];
    let tried = number("UDP through services: tried");
    assert!(tried > 1_000.0, "{tried}");
    for way in ways {
        assert_eq!(number(&format!("{way}: tried")), tried, "{way}");
        // Without the table, no packet to a cluster IP arrives: no socket listens there.
        assert_eq!(number(&format!("{way}: failed")), 0.0, "{way}");
        assert!(number(&format!("{way}: flows")) > 100.0, "{way}");
        for packet in ["first packet", "established packet"] {
            assert!(row(&report, &format!("{way}: {packet}"))["value"]["p50"].is_f64());
        }
    }
}

/// Proof that the other test counts packets that kube-proxy's layout has seen.
#[test]
fn where_nft_writes_no_layout_of_kube_proxy_its_packets_fail() {
    let (net, folder) = (Net::new(), TempDir::new().unwrap());
    let [nft, json] = ["nft", "report.json"].map(|name| folder.path().join(name));
    fs::write(&nft, "#!/bin/sh\ncat >/dev/null\n").unwrap();
    fs::set_permissions(&nft, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:{}", folder.path().display(), env::var("PATH").unwrap());
    let binary = deltaproxy_binary();
    let program = [path.as_str(), text(&binary), "bench"];
    let flags = ["--traffic", "--baseline", "nft", "--json", text(&json)];
    let arguments = [&program[..], &SMALL, &flags].concat();
    let _ = net.node().output("/usr/bin/env", &arguments).ok();

    let report = read(&json);
    let number = |what: &str| row(&report, what)["value"].as_f64().unwrap();
    let tried = number("UDP through kube-proxy's layout: tried");
    assert!(tried > 10.0, "{tried}");
    assert_eq!(number("UDP through kube-proxy's layout: failed"), tried);
    assert_eq!(number("UDP through services: failed"), 0.0);
}

#[test]
fn in_place_it_leaves_no_table_and_touches_none() {
    let net = Net::new();
    let flags = [&SMALL[..], &["--in-place"]].concat();
    assert!(bench(&net, &flags).ok().contains("endpoint change: end to end"));
    for family in [Family::Ip, Family::Ip6] {
        assert_eq!(net.node().read_table(family), None);
    }

    let manifests = tempfile::tempdir().unwrap();
    let apply = ["apply", "--allow-empty", "--manifests", text(manifests.path())];
    let _ = net.node().output(deltaproxy_binary(), &apply).ok();
    let before = net.node().read_table(Family::Ip);
    assert!(before.is_some());
    let refused = bench(&net, &flags);
    assert_ne!(refused.code(), Some(0));
    assert!(refused.stderr.contains("table ip kube-proxy exists"), "{}", refused.stderr);
    assert_eq!(net.node().read_table(Family::Ip), before);
}

#[test]
fn an_interrupt_ends_the_bench_with_the_results_so_far() {
    let (net, folder) = (Net::new(), TempDir::new().unwrap());
    let path = folder.path().join("report.json");
    let flags = ["bench", "--in-place", "--services", "50", "--rate", "1", "--json", text(&path)];
    let bench = net.node().spawn(deltaproxy_binary(), &flags);
    eventually("the table of the bench", SOON, || net.node().read_table(Family::Ip));
    bench.signal(Signal::SIGINT);
    let printed = bench.finish(SOON).ok();
    assert!(printed.contains("ended before everything was measured"), "{printed}");
    let report = read(&path);
    assert_eq!(report["interrupted"], true);
    assert!(row(&report, "empty table: all loaded")["value"].is_f64());
    assert_eq!(net.node().read_table(Family::Ip), None);
}

#[test]
fn two_runs_are_compared_and_plotted() {
    let (net, folder) = (Net::new(), TempDir::new().unwrap());
    let [json, svg] = ["a.json", "a.svg"].map(|name| folder.path().join(name));
    let files = ["--json", text(&json), "--svg", text(&svg)];
    let _ = bench(&net, &[&SMALL[..], &files].concat()).ok();
    let compared = bench(&net, &["compare", text(&json), text(&json)]).ok();
    assert!(compared.starts_with("50 services"), "{compared}");
    assert!(compared.contains("x1.00 / x1.00"), "{compared}");
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(svg.contains("<polyline") && svg.contains("endpoint change: end to end, 50"));
}

#[test]
fn a_bench_that_is_killed_ends_its_second_process() {
    let net = Net::new();
    let bench = net.node().spawn(deltaproxy_binary(), &["bench", "--changes", "100000000"]);
    let task = format!("/proc/{0}/task/{0}/children", bench.pid());
    let worker = eventually("the second process", SOON, || {
        let children = fs::read_to_string(&task).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    });
    bench.signal(Signal::SIGKILL);
    let _ = bench.finish(SOON);
    let command = format!("/proc/{worker}/cmdline");
    eventually("the end of the second process", SOON, || {
        // That of a zombie is empty.
        fs::read(&command).unwrap_or_default().is_empty().then_some(())
    });
}
