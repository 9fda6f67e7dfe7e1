//! The workflows have the least permissions, pin what they use, and call scripts and targets of the
//! repository alone. `make workflows-check` checks their syntax.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

mod recorder;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use daemon::yaml;
use serde_json::{Value, json};

/// The actions that workflows may use, with their commits and versions.
const ACTIONS: [(&str, &str, &str); 5] = [
    ("actions/attest", "a1948c3f048ba23858d222213b7c278aabede763", "v4.1.1"),
    ("actions/checkout", "3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    ("actions/download-artifact", "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "v8.0.1"),
    ("actions/upload-artifact", "043fb46d1a93c77aae656e7c1c64a875d1fc6a0a", "v7.0.1"),
    ("sigstore/cosign-installer", "6f9f17788090df1f26f669e9d70d6ae9567deba6", "v4.1.2"),
];

/// The permissions beside reading the source, by job.
const PERMISSIONS: [(&str, &[&str]); 3] = [
    ("sign", &["attestations: write", "id-token: write"]),
    ("push", &["attestations: write", "contents: read", "id-token: write", "packages: write"]),
    ("publish", &["contents: write"]),
];

/// Commands that are no scripts of the repository, with the reason.
const COMMANDS: [(&str, &str); 2] = [
    ("cosign sign-blob", "the job has no checkout"),
    ("docker login", "its password is the token of the run"),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The workflows by name: their texts and contents.
fn workflows() -> BTreeMap<String, (String, Value)> {
    let files = fs::read_dir(root().join(".github/workflows")).unwrap();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let value = yaml::parse(&text).unwrap().remove(0).value;
        (path.file_name().unwrap().to_str().unwrap().to_owned(), (text, value))
    };
    files.map(|file| read(file.unwrap().path())).collect()
}

/// The jobs of all workflows: where they are, and their contents.
fn jobs() -> Vec<(String, String, Value)> {
    let mut jobs = Vec::new();
    for (file, (_, workflow)) in workflows() {
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            jobs.push((file.clone(), name.clone(), job.clone()));
        }
    }
    jobs
}

/// The steps of all jobs: where they are, and their contents.
fn steps() -> Vec<(String, Value)> {
    let of = |(file, name, job): (String, String, Value)| {
        let steps = job["steps"].as_array().unwrap().clone();
        steps.into_iter().map(move |step| (format!("{file}: {name}"), step))
    };
    jobs().into_iter().flat_map(of).collect()
}

/// Values of a list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|value| value.as_str().unwrap()).collect()
}

#[test]
fn the_workflows_are_those_that_the_documents_name() {
    let names: Vec<_> = workflows().into_keys().collect();
    assert_eq!(names, ["advisories.yml", "ci.yml", "cluster.yml", "fuzz.yml", "release.yml"]);
}

#[test]
fn each_job_has_the_least_permissions_and_a_limit_of_time() {
    for (file, (_, workflow)) in workflows() {
        assert_eq!(workflow["permissions"], json!({}), "{file}");
        assert!(workflow["concurrency"]["group"].is_string(), "{file}");
    }
    for (file, name, job) in jobs() {
        let permissions = job["permissions"].as_object().unwrap().iter();
        let permissions: Vec<_> = permissions
            .map(|(scope, level)| format!("{scope}: {}", level.as_str().unwrap()))
            .collect();
        let found = PERMISSIONS.iter().find(|(job, _)| file == "release.yml" && *job == name);
        let expected = found.map_or(&["contents: read"][..], |(_, permissions)| permissions);
        assert_eq!(permissions, expected, "{file}: {name}");
        assert!(job["timeout-minutes"].as_u64().unwrap() <= 150, "{file}: {name}");
    }
}

#[test]
fn actions_are_pinned_and_leave_no_credentials() {
    let mut used = BTreeMap::new();
    for (file, (text, _)) in workflows() {
        for line in text.lines().filter_map(|line| line.split_once("uses: ").map(|it| it.1)) {
            let known = ACTIONS
                .iter()
                .find(|(action, commit, version)| line == format!("{action}@{commit} # {version}"));
            let (action, ..) = known.unwrap_or_else(|| panic!("{file}: {line} is not in the list"));
            used.insert(*action, ());
        }
        let secrets = text.matches("secrets.").count();
        assert_eq!(secrets, text.matches("secrets.GITHUB_TOKEN").count(), "{file}");
        assert!(!text.contains("pull_request_target"), "{file}");
    }
    assert_eq!(used.len(), ACTIONS.len(), "an action of the list is not used");
    for (place, step) in steps() {
        let is_checkout =
            step["uses"].as_str().is_some_and(|it| it.starts_with("actions/checkout@"));
        if is_checkout {
            assert_eq!(step["with"]["persist-credentials"], json!(false), "{place}");
        }
    }
}

/// What is wrong with a command of a workflow; `None` if it calls the repository.
fn wrong(command: &str, makefile: &str) -> Option<String> {
    if COMMANDS.iter().any(|(start, _)| command.starts_with(start)) {
        return None;
    }
    if let Some(target) = command.strip_prefix("make ") {
        let target = target.split(' ').next().unwrap();
        let is_there = makefile.contains(&format!("\n{target}:"));
        return (!is_there).then(|| format!("no target {target}"));
    }
    let script = command
        .split(' ')
        .find(|word| [".ci/", ".github/", "deploy/"].iter().any(|folder| word.starts_with(folder)));
    let Some(script) = script else { return Some("no script of the repository".to_owned()) };
    let is_program = fs::metadata(root().join(script))
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    (!is_program).then(|| format!("{script} is no program"))
}

#[test]
fn each_command_is_a_script_or_a_target_and_takes_no_expression() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut count = 0;
    for (place, step) in steps() {
        let Some(command) = step["run"].as_str() else { continue };
        count += 1;
        assert_eq!(command.trim().lines().count(), 1, "{place}: {command}");
        assert!(!command.contains("${{"), "{place}: {command}");
        assert_eq!(wrong(command, &makefile), None, "{place}: {command}");
    }
    assert!(count > 10, "{count} commands");
    assert!(wrong("make no-such", &makefile).is_some());
    assert!(wrong("deploy/kind/none ipv4", &makefile).is_some());
    assert!(wrong("deploy/Dockerfile", &makefile).is_some());
    assert!(wrong("curl https://example.com", &makefile).is_some());
}

#[test]
fn the_kernels_are_those_that_the_virtual_machine_knows() {
    let script = fs::read_to_string(root().join("netlink-tests/in-kernel")).unwrap();
    let (_, workflow) = &workflows()["ci.yml"];
    let kernels = texts(&workflow["jobs"]["kernels"]["strategy"]["matrix"]["kernel"]);
    for kernel in &kernels {
        let is_suite = kernel.chars().all(char::is_alphabetic);
        assert!(is_suite || script.contains(&format!("\n    {kernel}) suite=")), "{kernel}");
    }
    assert_eq!(kernels, ["5.15", "6.1", "6.6", "6.12", "sid"]);
}

#[test]
fn every_fuzz_target_has_its_job() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let targets = makefile.lines().find_map(|line| line.strip_prefix("FUZZ_TARGETS = ")).unwrap();
    let (_, workflow) = &workflows()["fuzz.yml"];
    let matrix = &workflow["jobs"]["fuzz"]["strategy"]["matrix"]["target"];
    assert_eq!(texts(matrix).join(" "), targets);
}

#[test]
fn each_version_of_kubernetes_has_a_pinned_image() {
    let (_, workflow) = &workflows()["cluster.yml"];
    let matrix = &workflow["jobs"]["cluster"]["strategy"]["matrix"];
    assert_eq!(texts(&matrix["addresses"]), ["ipv4", "ipv6", "dual"]);
    let versions = texts(&matrix["kubernetes"]);
    assert_eq!(versions.len(), 3);
    let images = matrix["include"].as_array().unwrap();
    assert_eq!(images.len(), versions.len());
    for (version, image) in versions.iter().zip(images) {
        assert_eq!(image["kubernetes"], json!(version));
        let (name, digest) = image["image"].as_str().unwrap().split_once("@sha256:").unwrap();
        assert!(name.starts_with(&format!("kindest/node:v{version}.")), "{name}");
        assert!(digest.len() == 64 && digest.chars().all(|it| it.is_ascii_hexdigit()), "{digest}");
    }
}

/// Runs `.github/prepare-runner` with programs that record their calls; returns these too. The
/// distribution has no further modules for the kernel.
fn prepare(arguments: &[&str], file: Option<&str>) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["sudo", "rustup"] {
        let text = "case $* in *linux-modules-extra*) exit 1 ;; esac\n";
        recorder::add_program(&folder.path().join(name), folder.path(), text);
    }
    let script = fs::read_to_string(root().join(".github/prepare-runner")).unwrap();
    let script = script.replace("/dev/kvm", file.unwrap_or("/dev/kvm"));
    let checkout = folder.path().join("checkout/.github");
    fs::create_dir_all(&checkout).unwrap();
    fs::create_dir_all(folder.path().join("checkout/src/nft")).unwrap();
    for manifest in ["Cargo.toml", "src/nft/Cargo.toml"] {
        let copy = folder.path().join("checkout").join(manifest);
        fs::copy(root().join(manifest), copy).unwrap();
    }
    fs::write(checkout.join("prepare-runner"), script).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.arg(checkout.join("prepare-runner")).args(arguments).env("PATH", path);
    let output = command.output().unwrap();
    (output, recorder::calls(folder.path()))
}

/// The version of Rust in a manifest.
fn rust_of(manifest: &str) -> String {
    let manifest = fs::read_to_string(root().join(manifest)).unwrap();
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
    rust.trim_end_matches('"').to_owned()
}

#[test]
fn nft_netlink_supports_the_rust_of_two_releases_ago() {
    let minor =
        |manifest: &str| -> u32 { rust_of(manifest).strip_prefix("1.").unwrap().parse().unwrap() };
    assert_eq!(minor("src/nft/Cargo.toml") + 2, minor("Cargo.toml"));
    let ci = fs::read_to_string(root().join(".github/workflows/ci.yml")).unwrap();
    assert!(ci.contains("make minimum-rust"));
}

#[test]
fn a_runner_gets_what_its_jobs_need() {
    let rust = format!("{}.0", rust_of("Cargo.toml"));
    for (role, needed) in [
        ("build", &["--component clippy,rustfmt"][..]),
        (
            "checks",
            &["nftables", "linux-modules-extra-", "apparmor_restrict_unprivileged_userns=0"],
        ),
        ("minimum", &["rustup toolchain install --profile minimal 1."]),
        ("kernels", &["qemu-system-x86", "debian-archive-keyring", "chmod 666 /dev/null"]),
        ("fuzz", &["g++"]),
        (
            "release",
            &["qemu-user-static", "rpm", "rust-src --target x86_64-unknown-linux-musl,aarch64-"],
        ),
        ("cluster", &["sigs.k8s.io/kind@v0.33.0"]),
    ] {
        let (output, calls) = prepare(&[role], Some("/dev/null"));
        assert!(output.status.success(), "{output:?}");
        for text in needed {
            assert!(calls.contains(text), "{role}: {text} is missing in\n{calls}");
        }
        assert_eq!(
            calls.contains(&format!("rustup default {rust}\n")),
            !matches!(role, "cluster" | "minimum"),
            "{calls}"
        );
    }
    let (output, calls) = prepare(&["kernels"], Some("/dev/no-such"));
    assert!(!output.status.success() && !calls.contains("chmod"), "{output:?}");
    let (output, calls) = prepare(&["others"], None);
    assert!(!output.status.success() && calls.is_empty(), "{output:?}");
}

#[test]
fn the_linters_are_pinned_for_both_architectures() {
    let text = fs::read_to_string(root().join(".ci/workflow-linters.txt")).unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.contains("==") && line.matches("--hash=sha256:").count() == 2, "{line}");
    }
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(ci.contains("make workflows-check"));
}
