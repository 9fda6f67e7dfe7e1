//! The commands of docs/testing.md for tests of other projects.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use netlink_tests::deltaproxy_binary;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[track_caller]
fn lines(output: &Output) -> Vec<String> {
    let [text, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{}\n{text}{errors}", output.status);
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_example_of_the_library_follows_a_change_of_endpoints() {
    let example = deltaproxy_binary().with_file_name("examples").join("in_namespace");
    let lines = lines(&Command::new(example).output().unwrap());
    let starts = ["10.96.0.10:80 reached 10.244.1.5;", "10.96.0.10:80 reached 10.244.1.6;"];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
}

#[test]
fn the_commands_of_the_page_apply_manifests_without_root() {
    let page = include_str!("../../docs/testing.md");
    let (_, rest) = page.split_once("```sh\nunshare").expect("the first block");
    let (block, _) = rest.split_once("```").expect("its end");
    let folder = deltaproxy_binary().with_file_name("");
    let path = format!("{}:{}:/usr/sbin:/sbin", folder.display(), env::var("PATH").unwrap());
    let shell = Command::new("sh")
        .args(["-euc", &format!("unshare{block}")])
        .env("PATH", path)
        .current_dir(root())
        .output()
        .unwrap();
    let lines = lines(&shell);
    assert!(lines.iter().any(|line| line.contains("messages in ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("nothing would change")), "{lines:?}");
}
