//! The scripts of `deploy/release` make a release of one version, with all files, their checksums and
//! the section of the changelog.
//!
//! Programs that need a network record their calls.

#![allow(clippy::unwrap_used)] // An unreadable file is a failed test.

mod recorder;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const VERSION: &str = "0.3.0-rc.1";

const CHANGELOG: &str = "\
# Changelog

## Unreleased

- later

## 0.3.0-rc.1 - 2026-12-01

### Added

- A [page](docs/page.md#part), and [another site](https://example.com/a.md).

## 0.3.0 - 2026-11-01

- of 0.3.0
";

/// The names of a release's architectures: of the kernel, of Debian, of images, and of Rust.
const ARCHITECTURES: [[&str; 4]; 4] = [
    ["x86_64", "amd64", "amd64", "x86_64"],
    ["aarch64", "arm64", "arm64", "aarch64"],
    ["ppc64le", "ppc64el", "ppc64le", "powerpc64le"],
    ["s390x", "s390x", "s390x", "s390x"],
];

/// Builds as `make release man sbom packages` does: files with names alone.
const MAKE: &str = r#"
dist=$CARGO_TARGET_DIR/dist
mkdir -p "$dist/man" "$dist/completions"
for name in deltaproxy.cdx.json man/deltaproxy.1 completions/_deltaproxy \
    deltaproxy_0.3.0~rc.1-1_amd64.deb deltaproxy_0.3.0~rc.1-1_arm64.deb \
    deltaproxy_0.3.0~rc.1-1_ppc64el.deb deltaproxy_0.3.0~rc.1-1_s390x.deb; do
    echo "$name" >"$dist/$name"
done
for architecture in x86_64 aarch64 ppc64le s390x; do
    echo rpm >"$dist/deltaproxy-0.3.0~rc.1-1.$architecture.rpm"
    cp "$world/$architecture" "$dist/deltaproxy-0.3.0-rc.1-$architecture"
done
"#;

const HELM: &str = r#"
case $1 in
package) cp "$2/values.yaml" "$4/deltaproxy-0.3.0-rc.1.tgz" ;;
push) printf 'Pushed: %s\nDigest: sha256:%064d\n' "$3" 2 ;;
esac
"#;

const SKOPEO: &str = r#"
while [ $# -gt 1 ]; do
    [ "$1" != --digestfile ] || printf 'sha256:%064d' 1 >"$2"
    shift
done
"#;

const GH: &str = r#"
case "$*" in
"release view"*) cat "$world/draft" 2>/dev/null || exit 1 ;;
*--notes-file*) while [ $# -gt 1 ]; do
        [ "$1" != --notes-file ] || cp "$2" "$world/notes"
        shift
    done ;;
esac
"#;

/// A checkout of version [`VERSION`] with what the scripts read, and programs that record their calls.
struct Checkout(TempDir);

fn repository(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        for path in [
            "deploy/architectures",
            "deploy/release",
            "deploy/helm",
            "deploy/kustomize",
            "deploy/oci-image",
        ] {
            let to = checkout.path(path);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let copy = Command::new("cp").arg("-R").arg(repository(path)).arg(to).status().unwrap();
            assert!(copy.success());
        }
        for name in ["Cargo.toml", "Cargo.lock"] {
            fs::copy(repository(name), checkout.path(name)).unwrap();
        }
        let present = checkout.succeed("check", &[]);
        for name in [
            "Cargo.toml",
            "Cargo.lock",
            "deploy/helm/deltaproxy/Chart.yaml",
            "deploy/helm/deltaproxy/values.yaml",
            "deploy/kustomize/daemonset.yaml",
        ] {
            checkout.replace(name, present.trim(), VERSION);
        }
        checkout.write("CHANGELOG.md", CHANGELOG);
        fs::create_dir(checkout.path("bin")).unwrap();
        let programs =
            [("make", MAKE), ("helm", HELM), ("skopeo", SKOPEO), ("gh", GH), ("cosign", "")];
        for (name, text) in programs {
            checkout.add_program(name, text);
        }
        for (name, machine) in [("x86_64", 62), ("aarch64", 183), ("ppc64le", 21)] {
            fs::write(checkout.path(name), binary(machine)).unwrap();
        }
        fs::write(checkout.path("s390x"), big_endian_binary(22)).unwrap();
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn replace(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} has no {from}");
        self.write(name, &text.replace(from, to));
    }

    fn add_program(&self, name: &str, text: &str) {
        recorder::add_program(&self.path("bin").join(name), self.0.path(), text);
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.path("deploy/release").join(script));
        command.args(arguments).current_dir(self.0.path()).env("PATH", path);
        command.env("CARGO_TARGET_DIR", self.path("target")).env("HOME", self.0.path());
        command.env_remove("DOCKER_CONFIG").env("GITHUB_REPOSITORY", "Owner/name");
        command.output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, script: &str, arguments: &[&str]) -> String {
        let output = self.run(script, arguments);
        assert!(output.status.success(), "{output:#?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fail(&self, script: &str, arguments: &[&str]) -> String {
        let output = self.run(script, arguments);
        assert!(!output.status.success(), "{output:#?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The calls of the programs, a line each.
    fn calls(&self) -> String {
        recorder::calls(self.0.path())
    }

    /// Builds the files of the release into the folder `files`, and signs their checksums.
    fn build(&self) {
        self.succeed("build", &["files", "registry.example/owner/name"]);
        self.write("files/SHA256SUMS.sigstore.json", "{}");
    }
}

/// The header of a static program for Linux, in big-endian byte order.
fn big_endian_binary(machine: u8) -> Vec<u8> {
    let mut program = vec![0; 64 + 56];
    program[..7].copy_from_slice(b"\x7fELF\x02\x02\x01");
    (program[19], program[39], program[55], program[57], program[67]) = (machine, 64, 56, 1, 1);
    program
}

/// The header of a static program for Linux, in little-endian byte order.
fn binary(machine: u8) -> Vec<u8> {
    let mut program = vec![0; 64 + 56];
    program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (program[18], program[32], program[54], program[56], program[64]) = (machine, 64, 56, 1, 1);
    program
}

#[test]
fn all_files_of_this_repository_name_one_version() {
    let output = Command::new(repository("deploy/release/check")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn each_file_with_another_version_is_named() {
    assert_eq!(Checkout::new().succeed("check", &["v0.3.0-rc.1"]).trim(), VERSION);
    for (file, line) in [
        ("deploy/helm/deltaproxy/Chart.yaml", "\nversion: 0.3.0-rc.1"),
        ("deploy/helm/deltaproxy/Chart.yaml", "\nappVersion: 0.3.0-rc.1"),
        ("deploy/helm/deltaproxy/values.yaml", "  tag: 0.3.0-rc.1"),
        ("deploy/kustomize/daemonset.yaml", "image: deltaproxy:0.3.0-rc.1"),
        ("Cargo.lock", "name = \"deltaproxy\"\nversion = \"0.3.0-rc.1\""),
    ] {
        let checkout = Checkout::new();
        checkout.replace(file, line, &line.replace("rc.1", "rc.2"));
        let error = checkout.fail("check", &[]);
        assert!(error.contains(&format!("{file}: ")) && error.contains("rc.2"), "{error}");
    }
}

#[test]
fn a_tag_needs_its_version_and_a_section_of_the_changelog() {
    let checkout = Checkout::new();
    assert!(checkout.fail("check", &["v0.3.0"]).contains("is not v0.3.0-rc.1"));
    assert!(checkout.fail("check", &["0.3.0-rc.1"]).contains("is not v0.3.0-rc.1"));
    checkout.replace("CHANGELOG.md", "## 0.3.0-rc.1 - ", "## 0.3.0-rc.10 - ");
    assert!(checkout.fail("check", &["v0.3.0-rc.1"]).contains("CHANGELOG.md has no section"));
    checkout.write("CHANGELOG.md", "## 0.3.0-rc.1 - 2026-12-01\n\n## 0.3.0 - 2026-11-01\n\n- a\n");
    assert!(checkout.fail("check", &["v0.3.0-rc.1"]).contains("or an empty one"));
}

#[test]
fn the_notes_are_the_section_of_the_version_with_links_to_its_files() {
    let checkout = Checkout::new();
    let link = "](docs/page.md#part), and [another site](https://example.com/a.md).\n";
    let notes = checkout.succeed("notes", &[VERSION]);
    assert_eq!(notes, format!("### Added\n\n- A [page{link}"));
    let notes = checkout.succeed("notes", &[VERSION, "https://example.com/tag/"]);
    let link = link.replacen("docs", "https://example.com/tag/docs", 1);
    assert_eq!(notes, format!("### Added\n\n- A [page{link}"));
    assert_eq!(checkout.succeed("notes", &["0.3.0"]), "- of 0.3.0\n");
}

#[test]
fn a_build_has_all_files_and_their_checksums() {
    let checkout = Checkout::new();
    checkout.build();
    assert!(
        checkout.calls().starts_with("make release man sbom packages\n"),
        "{}",
        checkout.calls()
    );
    let sums = checkout.read("files/SHA256SUMS");
    let names: Vec<_> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let expected = [
        "deltaproxy-0.3.0-rc.1-aarch64",
        "deltaproxy-0.3.0-rc.1-image.tar",
        "deltaproxy-0.3.0-rc.1-man-and-completions.tar.gz",
        "deltaproxy-0.3.0-rc.1-ppc64le",
        "deltaproxy-0.3.0-rc.1-s390x",
        "deltaproxy-0.3.0-rc.1-x86_64",
        "deltaproxy-0.3.0-rc.1.cdx.json",
        "deltaproxy-0.3.0-rc.1.tgz",
        "deltaproxy-0.3.0.rc.1-1.aarch64.rpm",
        "deltaproxy-0.3.0.rc.1-1.ppc64le.rpm",
        "deltaproxy-0.3.0.rc.1-1.s390x.rpm",
        "deltaproxy-0.3.0.rc.1-1.x86_64.rpm",
        "deltaproxy_0.3.0.rc.1-1_amd64.deb",
        "deltaproxy_0.3.0.rc.1-1_arm64.deb",
        "deltaproxy_0.3.0.rc.1-1_ppc64el.deb",
        "deltaproxy_0.3.0.rc.1-1_s390x.deb",
    ];
    assert_eq!(names, expected);
    let chart = checkout.read("files/deltaproxy-0.3.0-rc.1.tgz");
    assert!(chart.contains("  repository: registry.example/owner/name\n"), "{chart}");
    let image = Command::new("tar").arg("-tf").arg(checkout.path("files").join(names[1])).output();
    let image = String::from_utf8(image.unwrap().stdout).unwrap();
    // Layer, configuration and manifest of four architectures, and their index.
    let blobs = image.lines().filter(|name| name.len() > 64).count();
    assert_eq!((image.contains("./oci-layout"), blobs), (true, 13), "{image}");

    let error = checkout.fail("build", &["files"]);
    assert!(error.contains("is not empty"), "{error}");
    checkout.add_program("make", &MAKE.replace("deltaproxy_0.3.0~rc.1-1_arm64.deb", ""));
    fs::remove_dir_all(checkout.path("target")).unwrap();
    let error = checkout.fail("build", &["others"]);
    assert!(error.contains("arm64.deb was not built"), "{error}");
}

#[test]
fn every_list_of_architectures_is_the_same() {
    let read = |path: &str| fs::read_to_string(repository(path)).unwrap();
    let names: Vec<_> = ARCHITECTURES.iter().map(|[kernel, ..]| *kernel).collect();
    let list = format!("architectures='{}'\n", names.join(" "));
    assert!(read("deploy/architectures").contains(&list), "deploy/architectures");
    let platforms = ARCHITECTURES.map(|[_, _, image, _]| format!("linux/{image}")).join(",");
    let mut lists = vec![
        ("deploy/Dockerfile", format!("--platform {platforms} ")),
        ("docs/install.md", format!("--platform {platforms} ")),
    ];
    for [kernel, _, image, rust] in ARCHITECTURES {
        let copied = format!("COPY target/dist/deltaproxy-*-{kernel} /{image}/deltaproxy\n");
        lists.push(("deploy/Dockerfile", copied));
        lists.push(("deny.toml", format!("\"{rust}-unknown-linux-gnu\"")));
        lists.push((".github/workflows/release.yml", format!("architecture: {kernel}}}")));
        lists.push(("src/daemon/observe/metrics.rs", format!("\"linux/{image}\"")));
        for page in ["README.md", "docs/releases.md", "docs/install.md", "Makefile"] {
            lists.push((page, kernel.to_owned()));
        }
    }
    for (path, text) in lists {
        assert!(read(path).contains(&text), "{path} has no {text}");
    }
}

#[test]
fn a_changed_an_added_and_a_lost_file_are_found() {
    let checkout = Checkout::new();
    checkout.build();
    checkout.succeed("checksums", &["--check", "files"]);
    let chart = checkout.read("files/deltaproxy-0.3.0-rc.1.tgz");
    checkout.write("files/deltaproxy-0.3.0-rc.1.tgz", "changed");
    assert!(checkout.fail("checksums", &["--check", "files"]).contains("differs"));
    checkout.write("files/deltaproxy-0.3.0-rc.1.tgz", &chart);
    checkout.write("files/more", "more");
    assert!(checkout.fail("checksums", &["--check", "files"]).contains("< more"));
    fs::remove_file(checkout.path("files/more")).unwrap();
    checkout.succeed("checksums", &["--check", "files"]);
    fs::remove_file(checkout.path("files/deltaproxy-0.3.0-rc.1.cdx.json")).unwrap();
    checkout.fail("checksums", &["--check", "files"]);
    fs::create_dir(checkout.path("empty")).unwrap();
    assert!(checkout.fail("checksums", &["empty"]).contains("has no files"));
}

#[test]
fn image_and_chart_are_pushed_and_signed_by_digest() {
    let checkout = Checkout::new();
    checkout.build();
    let printed = checkout.succeed("push", &["files", "registry.example/owner/name"]);
    let digest = |number: u8| format!("sha256:{number:064}");
    assert_eq!(printed, format!("image={}\nchart={}\n", digest(1), digest(2)));
    let calls = checkout.calls();
    for call in [
        "image.tar:0.3.0-rc.1 docker://registry.example/owner/name:0.3.0-rc.1".to_owned(),
        "oci://registry.example/owner/name/charts".to_owned(),
        format!("cosign sign --yes --recursive registry.example/owner/name@{}", digest(1)),
        format!("cosign sign --yes registry.example/owner/name/charts/deltaproxy@{}", digest(2)),
    ] {
        assert!(calls.contains(&call), "{call} is missing in\n{calls}");
    }
    checkout.add_program("helm", "echo denied >&2; exit 1");
    assert!(checkout.fail("push", &["files", "registry.example/o"]).contains("denied"));
    checkout.add_program("helm", "echo Pushed");
    assert!(
        checkout.fail("push", &["files", "registry.example/o"]).contains("instead of a digest")
    );
    checkout.write("files/deltaproxy-0.3.0-rc.1.tgz", "changed");
    fs::remove_file(checkout.path("calls")).unwrap();
    checkout.fail("push", &["files", "registry.example/o"]);
    assert_eq!(checkout.calls(), "");
}

#[test]
fn a_release_is_a_draft_until_it_has_all_files() {
    let checkout = Checkout::new();
    checkout.build();
    let before = checkout.calls();
    checkout.succeed("publish", &["v0.3.0-rc.1", "files"]);
    let calls = checkout.calls();
    let calls: Vec<_> = calls.strip_prefix(&before).unwrap().lines().collect();
    let [view, create, publish] = calls[..] else { panic!("{calls:#?}") };
    assert!(view.starts_with("gh release view v0.3.0-rc.1"), "{view}");
    assert!(create.starts_with("gh release create v0.3.0-rc.1 --draft --verify-tag"), "{create}");
    assert!(create.contains("--prerelease"), "{create}");
    for name in ["SHA256SUMS ", "SHA256SUMS.sigstore.json", "x86_64.rpm", "image.tar"] {
        assert!(create.contains(name), "{name} is missing in {create}");
    }
    assert_eq!(publish, "gh release edit v0.3.0-rc.1 --draft=false");
    let link = "](https://github.com/Owner/name/blob/v0.3.0-rc.1/docs/page.md#part)";
    assert!(checkout.read("notes").contains(link));
}

#[test]
fn a_draft_is_replaced_and_a_published_release_stays() {
    let checkout = Checkout::new();
    checkout.build();
    checkout.write("draft", "true\n");
    checkout.succeed("publish", &["v0.3.0-rc.1", "files"]);
    assert!(checkout.calls().contains("gh release delete v0.3.0-rc.1 --yes\ngh release create"));
    fs::remove_file(checkout.path("calls")).unwrap();
    checkout.write("draft", "false\n");
    assert!(checkout.fail("publish", &["v0.3.0-rc.1", "files"]).contains("is published already"));
    assert_eq!(checkout.calls().lines().count(), 1, "{}", checkout.calls());
}

#[test]
fn nothing_is_published_without_a_signature_or_under_another_tag() {
    let checkout = Checkout::new();
    checkout.build();
    fs::remove_file(checkout.path("calls")).unwrap();
    checkout.fail("publish", &["v0.4.0", "files"]);
    fs::remove_file(checkout.path("files/SHA256SUMS.sigstore.json")).unwrap();
    let error = checkout.fail("publish", &["v0.3.0-rc.1", "files"]);
    assert!(error.contains("is not signed"), "{error}");
    assert_eq!(checkout.calls(), "");
}
