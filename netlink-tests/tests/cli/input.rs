//! Arguments and manifests that are wrong, and rights that are missing.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use netlink_tests::reader::Family;
use netlink_tests::scenario::Manifests;
use netlink_tests::{Net, deltaproxy_binary};
use serde_json::json;

use super::{SOON, manifests, tables, wait_for_endpoints};

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
fn each_problem_is_printed_on_one_line() {
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
fn a_closed_pipe_is_not_an_error_and_problems_keep_their_exit_code() {
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
fn output_that_cannot_be_written_is_an_error_of_every_command() {
    let net = Net::new();
    let manifests = manifests("a");
    let _daemon = manifests.run(net.node());
    wait_for_endpoints(net.node(), 1);
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let config = manifests.path().join("config.txt");
    fs::write(&config, "mode: nftables\n").unwrap();
    for (command, code) in [
        ("--version", 1),
        ("--help", 1),
        ("help plan", 1),
        ("problems", 2),
        ("problems --output json", 2),
        ("history", 1),
        ("history --output yaml", 1),
        ("top --once --interval 100ms", 1),
        ("show", 2),
        ("show --output json", 2),
        ("explain 10.96.0.10:80", 2),
        ("explain 10.96.0.10:80 --output json", 2),
        ("plan --manifests FOLDER --hostname-override=node-a", 2),
        ("verify --manifests FOLDER --hostname-override=node-a", 2),
        ("config check CONFIG", 1),
        ("cleanup", 1),
    ] {
        let command = command.replace("CONFIG", config.to_str().unwrap());
        let command = command.replace("FOLDER", manifests.path().to_str().unwrap());
        let run = |errors: Stdio| {
            let mut program = Command::new(deltaproxy_binary());
            program.args(command.split(' ')).stdout(full()).stderr(errors);
            net.node().run(|| program.output().unwrap())
        };
        let output = run(Stdio::piped());
        assert_eq!(output.status.code(), Some(code), "{command}: {output:?}");
        assert!(!output.stderr.is_empty(), "{command}");
        // Messages that cannot be written change nothing.
        assert_eq!(run(full().into()).status.code(), Some(code), "{command}");
    }
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
        let ignored: Vec<_> = lines.iter().filter(|line| line.contains("ignored")).collect();
        assert!(ignored.len() == 1 && ignored[0].ends_with(line), "{lines:?}");
    }
    let mut daemon = manifests.run(net.node());
    daemon.wait_for_line(line, SOON);
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

#[test]
fn run_without_a_source_names_the_flags_to_give() {
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
    daemon.wait_for_line(" at 127.0.0.1:1: the API server cannot be reached", SOON);
    let stderr = daemon.terminate(SOON).stderr;
    let ours = |line: &str| {
        line.contains("started") || line.contains("stopped") || line.contains("following ")
    };
    assert!(stderr.lines().all(ours), "{stderr}");
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
        &["run", "--manifests", "/tmp", "--nodeport-addresses", "primary,loopback"],
        &["run", "--manifests", "/tmp", "--healthz-bind-address", "somewhere"],
    ] {
        let finished = net.node().output(deltaproxy_binary(), args);
        assert_eq!(finished.code(), Some(2), "{args:?}: {}", finished.stderr);
        assert!(!finished.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(tables(net.node()), [None, None]);
}

#[test]
fn without_permission_every_command_reports_it_in_one_line() {
    let net = Net::new();
    let manifests = manifests("a");
    let binary = deltaproxy_binary();
    for (command, code) in
        [("apply", 1), ("plan", 2), ("verify", 2), ("run", 1), ("cleanup", 1), ("explain", 2)]
    {
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

/// As a container runtime starts it. Root of a user namespace that an ordinary user made has no other
/// user and may not change its groups (`setgroups` in user_namespaces(7)).
#[test]
fn any_user_with_cap_net_admin_alone_may_run_it() {
    let net = Net::new();
    let manifests = manifests("a");
    let folder = tempfile::tempdir().unwrap();
    let readable = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    [folder.path(), manifests.path()].into_iter().for_each(readable);
    let binary = folder.path().join("deltaproxy");
    // By another process: one that this one starts meanwhile would have the file open for writing.
    assert!(Command::new("cp").args([&deltaproxy_binary(), &binary]).status().unwrap().success());
    let nobody = NOBODY.to_string();
    let mut args = vec!["--no-new-privs"];
    if has_nobody() {
        args.extend(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
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
