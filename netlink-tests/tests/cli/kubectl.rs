//! `kubectl deltaproxy`, with a script in place of kubectl.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use netlink_tests::deltaproxy_binary;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Lists the pods of the file with the name of the selector, and runs in them a command that prints
/// its arguments and ends with the code in the file of the pod. Standard error has each request.
const KUBECTL: &str = r#"#!/bin/sh
PATH=/usr/bin:/bin
folder=$(dirname "$0")
echo "kubectl $*" >&2
verb=$1
for word; do
    shift
    case $word in
    --selector=*) cat "$folder/${word#--selector=}" || exit 1 ;;
    --) break ;;
    *) pod=$word ;;
    esac
done
[ "$verb" = exec ] || exit 0
printf '%s\n' "$pod" "$@"
exit "$(cat "$folder/$pod")"
"#;

/// A cluster behind the script.
struct Cluster(TempDir);

impl Cluster {
    /// Returns a cluster with these pods of our DaemonSet and of kubeadm's.
    fn new(ours: &[Value], kube_proxy: &[Value]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("kubectl"), KUBECTL).unwrap();
        fs::set_permissions(path("kubectl"), Permissions::from_mode(0o755)).unwrap();
        symlink(deltaproxy_binary(), path("kubectl-deltaproxy")).unwrap();
        for (label, pods) in [("app=deltaproxy", ours), ("k8s-app=kube-proxy", kube_proxy)] {
            fs::write(path(label), json!({ "items": pods }).to_string()).unwrap();
        }
        Self(folder)
    }

    /// Sets the exit code of commands in a pod.
    fn set_code(&self, pod: &str, code: i32) {
        fs::write(self.0.path().join(pod), code.to_string()).unwrap();
    }

    fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(self.0.path().join("kubectl-deltaproxy"));
        // No other kubectl is in the path.
        command.args(arguments.split_whitespace()).env("PATH", self.0.path()).output().unwrap()
    }
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "proxies" },
        "spec": { "nodeName": node },
        "status": { "phase": "Running" },
    })
}

#[track_caller]
fn check(output: &Output, code: i32, stdout: &str, stderr: &[&str]) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*out), (Some(code), stdout), "{error}");
    stderr.iter().for_each(|part| assert!(error.contains(part), "{part} not in {error}"));
}

#[test]
fn a_command_runs_in_the_pod_of_the_node_and_its_code_is_that_of_the_plugin() {
    let cluster = Cluster::new(&[pod("a", "n7")], &[pod("other", "n7")]);
    for code in [0, 1, 3] {
        cluster.set_code("a", code);
        let output = cluster.run("show --node n7 --context=c default/web --output json");
        let requests = [
            "kubectl get --context=c pods --output=json --selector=app=deltaproxy --all-namespaces \
             --field-selector=spec.nodeName=n7\n",
            "kubectl exec --context=c --namespace=proxies a -- /usr/local/bin/deltaproxy show",
        ];
        let words = "a\n/usr/local/bin/deltaproxy\nshow\ndefault/web\n--output\njson\n";
        check(&output, code, words, &requests);
    }
}

#[test]
fn the_pod_of_kubeadms_daemonset_is_found_where_there_is_none_of_ours() {
    let cluster = Cluster::new(&[], &[pod("kp", "n7")]);
    cluster.set_code("kp", 0);
    let output = cluster.run("verify --node=n7 -n kube-system");
    let request = ["--selector=k8s-app=kube-proxy --namespace=kube-system"];
    check(&output, 0, "kp\n/usr/local/bin/deltaproxy\nverify\n", &request);
}

#[test]
fn without_a_node_a_running_pod_or_with_two_pods_nothing_runs() {
    let mut ending = pod("a", "n7");
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let mut pending = pod("a", "n7");
    pending["status"]["phase"] = "Pending".into();
    let none = "no pod with app=deltaproxy or k8s-app=kube-proxy is running on node n7";
    let two = "n7 has several pods, --namespace selects one: proxies/a, proxies/b";
    for (pods, line, reason) in [
        (vec![], "show --node n7", none),
        (vec![ending], "show --node n7", none),
        (vec![pending], "show --node n7", none),
        (vec![pod("a", "n8")], "show --node n7", none),
        (vec![pod("a", "n7"), pod("b", "n7")], "show --node n7", two),
        (vec![pod("a", "n7")], "show", "--node NODE or --all-nodes is missing"),
    ] {
        check(&Cluster::new(&pods, &[]).run(line), 2, "", &[reason]);
    }
}

#[test]
fn a_failed_request_for_pods_is_an_error() {
    let cluster = Cluster::new(&[], &[]);
    fs::remove_file(cluster.0.path().join("app=deltaproxy")).unwrap();
    let reason = "kubectl get pods: exit status: 1";
    check(&cluster.run("show --node n7"), 2, "", &[reason]);
    fs::remove_file(cluster.0.path().join("kubectl")).unwrap();
    check(&cluster.run("show --all-nodes"), 2, "", &["kubectl: No such file"]);
}

#[test]
fn all_nodes_answer_in_order_with_their_names_and_the_highest_code() {
    let pods = [pod("b", "n2"), pod("a", "n1"), pod("c", "n3"), pod("d", "n3")];
    let cluster = Cluster::new(&pods[..2], &[]);
    cluster.set_code("a", 1);
    cluster.set_code("b", 0);
    let lines = "n1: a\nn1: /usr/local/bin/deltaproxy\nn1: show\n\
                 n2: b\nn2: /usr/local/bin/deltaproxy\nn2: show\n";
    check(&cluster.run("show --all-nodes"), 1, lines, &["n1: kubectl exec", "n2: kubectl exec"]);
    let with_two = Cluster::new(&pods, &[]);
    with_two.set_code("a", 1);
    with_two.set_code("b", 0);
    check(&with_two.run("show --all-nodes"), 2, lines, &["n3 has several pods"]);
}
