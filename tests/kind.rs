//! The scripts of `deploy/kind` run the right programs in the right order, their inputs agree with
//! each other, and their table has the results of a report.
//!
//! Docker, kubectl and kind are programs that record their calls. `make kind-check` names a folder
//! with kind and kubectl in `DELTAPROXY_KIND`; kind then makes its cluster with the recording Docker,
//! and kubectl renders the manifests.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

#[path = "kind/inputs.rs"]
mod inputs;
mod recorder;
#[path = "kind/world.rs"]
mod world;

use std::fs;

use world::{World, folder};

#[test]
fn try_shows_the_service_and_delete_takes_all_back() {
    for family in ["ipv4", "ipv6", "dual"] {
        let world = World::new();
        let shown = world.succeed("deploy/kind/try", &[family]);
        assert!(shown.contains("     10 hello-a\n"), "{shown}");
        assert!(shown.contains("deploy/kind/try delete"), "{shown}");
        world.check_order(&[
            "docker info",
            &format!("kind create cluster --config deploy/kind/{family}.yaml"),
            "docker exec --interactive deltaproxy-worker2 ctr",
            "docker exec deltaproxy-worker2 sysctl",
            "kubectl apply --kustomize deploy/kind",
            "rollout status daemonset/deltaproxy",
            "rollout status deployment/coredns",
            "kubectl apply --filename deploy/kind/example.yaml",
            "kubectl exec deployment/hello",
            "kubectl deltaproxy show default/hello --node deltaproxy-worker",
        ]);
        for node in ["deltaproxy-control-plane", "deltaproxy-worker", "deltaproxy-worker2"] {
            let image = world.imported(node);
            assert!(image.contains(&"./index.json".to_owned()), "{image:?}");
        }
        assert!(world.calls().contains("--base-name docker.io/library/deltaproxy"));

        world.succeed("deploy/kind/try", &["delete"]);
        world.check_order(&["kind delete cluster --name deltaproxy"]);
        assert!(!world.target("kind").exists());
    }
}

#[test]
fn a_node_image_is_passed_on() {
    let world = World::new().with("NODE_IMAGE", "kindest/node:v1.35.8");
    world.succeed("deploy/kind/cluster", &["create", "dual"]);
    assert!(world.calls().contains("kindest/node:v1.35.8"), "{}", world.calls());
}

#[test]
fn a_missing_program_is_named_before_anything_is_made() {
    for program in ["docker", "kind", "kubectl"] {
        let world = World::new();
        world.remove_program(program);
        let error = world.fail("deploy/kind/try", &[]);
        assert!(error.contains(&format!("{program} is missing: https://")), "{error}");
        assert!(!world.calls().contains("create"), "{}", world.calls());
    }
    let world = World::new();
    world.note("no-docker", "");
    let error = world.fail("deploy/kind/try", &[]);
    assert!(error.contains("docker does not answer"), "{error}");
}

#[test]
fn a_present_cluster_stays_as_it_is() {
    let world = World::new();
    world.succeed("deploy/kind/cluster", &["create", "ipv4"]);
    let before = world.calls();
    let error = world.fail("deploy/kind/try", &[]);
    assert!(error.contains("exists already: deploy/kind/try delete"), "{error}");
    let after = world.calls();
    assert!(!after.strip_prefix(&before).unwrap().contains("create"), "{after}");
}

#[test]
fn requests_without_an_answer_are_a_failure() {
    let world = World::new();
    world.note("answers", "hello-a\n");
    let error = world.fail("deploy/kind/try", &[]);
    assert!(error.contains("1 of 30 requests were answered"), "{error}");
}

#[test]
fn wrong_arguments_make_nothing() {
    for arguments in [&["create", "ipv5"][..], &["remove"], &[]] {
        let world = World::new();
        assert!(world.fail("deploy/kind/cluster", arguments).contains("usage"));
        assert_eq!(world.calls(), "");
    }
}

#[test]
fn kind_itself_leaves_out_kube_proxy_and_gives_pods_these_addresses() {
    for family in ["ipv4", "ipv6", "dual"] {
        let world = World::new();
        world.succeed("deploy/kind/cluster", &["create", family]);
        let Some(init) = world.kubeadm() else { return };
        for line in [
            "- addon/kube-proxy",
            &format!("controlPlaneEndpoint: {}:6443", inputs::api_server()),
            &format!("  podSubnet: {}", inputs::networking(family).pod_subnet),
            &format!("  serviceSubnet: {}", inputs::networking(family).service_subnet),
        ] {
            assert!(init.lines().any(|it| it.trim_end() == line), "{line} is missing in\n{init}");
        }
        let rendered = fs::read_to_string(world.path("rendered.yaml")).unwrap();
        assert!(rendered.contains(&format!("value: {}\n", inputs::api_server())), "{rendered}");
    }
}

#[test]
fn e2e_runs_the_tests_of_the_clusters_release_and_deletes_its_cluster() {
    let world = World::new().with_tests("0");
    let shown = world.succeed("deploy/kind/e2e", &["dual"]);
    world.check_order(&[
        "kind create cluster --config deploy/kind/dual.yaml",
        "kubectl get --raw /version",
        "curl --fail --silent --show-error --location --retry 3 --output",
        "ginkgo --no-color --procs=4",
        "kind delete cluster",
    ]);
    let calls = world.calls();
    let run = calls.lines().find(|line| line.starts_with("ginkgo ")).unwrap();
    assert!(run.contains(r"--focus=\[sig-network\]"), "{run}");
    assert!(run.contains("--skip=Netpol|NetworkPolicy"), "{run}");
    assert!(!run.contains("IPv6DualStack"), "{run}");
    assert!(calls.contains("https://dl.k8s.io/v1.36.4/kubernetes-test-linux-"), "{calls}");
    for row in [
        "| deltaproxy | deltaproxy 0.0.0 |",
        "| Kubernetes | v1.36.4 |",
        "| addresses | dual |",
        "| restarts of deltaproxy | 1 |",
        "| tests | 3: 2 passed, 0 failed, 1 skipped |",
    ] {
        assert!(shown.contains(row), "{row} is missing in\n{shown}");
    }
    let page = fs::read_to_string(world.target("kind-results/v1.36.4-dual.md")).unwrap();
    assert!(shown.ends_with(&page), "{shown}");
}

#[test]
fn e2e_fails_with_a_failed_test_and_keeps_the_logs() {
    let world = World::new().with_tests("1");
    world.succeed("deploy/kind/cluster", &["create", "ipv4"]);
    let error = world.fail("deploy/kind/e2e", &["ipv4"]);
    assert!(error.contains("which stays"), "{error}");
    world.check_order(&["ginkgo ", "--skip=", "kind export logs --name deltaproxy"]);
    assert!(world.calls().contains("IPv6DualStack"));
    assert!(!world.calls().contains("delete"), "{}", world.calls());
    let page = fs::read_to_string(world.target("kind-results/v1.36.4-ipv4.md")).unwrap();
    assert!(page.contains("## Failed"), "{page}");
}

#[test]
fn e2e_refuses_tests_with_another_checksum() {
    let world = World::new().with_tests("0");
    world.note("sum", &"0".repeat(64));
    let error = world.fail("deploy/kind/e2e", &["ipv6"]);
    assert!(error.contains("has another checksum"), "{error}");
    assert!(!world.calls().contains("ginkgo"), "{}", world.calls());
    world.check_order(&["kind create cluster", "kind delete cluster"]);
}

/// What `results` prints of a report, and whether it succeeds.
fn results(report: &str) -> (String, bool) {
    let world = World::new();
    world.note("report.xml", report);
    let output = world.run("deploy/kind/results", &[world.path("report.xml").to_str().unwrap()]);
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn the_table_has_the_tests_that_ran_and_their_results() {
    let report = fs::read_to_string(folder("tests/kind/junit.xml")).unwrap();
    let (page, success) = results(&report);
    assert!(!success);
    let expected = "\
# Kubernetes' [sig-network] tests

| | |
|---|---|
| tests | 4: 2 passed, 1 failed, 1 skipped |

## Failed

| test | seconds |
|---|---|
| [sig-network] Services should be rejected when no endpoints exist | 0 |

## Skipped by themselves

| test | reason |
|---|---|
| [sig-network] KubeProxy should update metric for tracking accepted packets destined for localhost nodeports | This test requires iptables proxy-mode |

## Passed

| test | seconds |
|---|---|
| [sig-network] Services should allow pods to hairpin back to themselves through services | 0 |
| [sig-network] Services should serve endpoints on same port and different protocols [Conformance] | 0 |
";
    assert_eq!(page, expected);
    assert!(results(&world::without_failure(&report)).1);
    let none = report.replace("[It] ", "");
    assert_eq!(
        results(&none).0.lines().last(),
        Some("| tests | 0: 0 passed, 0 failed, 0 skipped |")
    );
    assert!(!results(&none).1, "a run without tests is no success");
    let timed_out = report.replace("status=\"passed\"", "status=\"timedout\"");
    assert!(results(&timed_out).0.contains("0 passed, 3 failed"));
}
