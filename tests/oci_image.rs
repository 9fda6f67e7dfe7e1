//! `deploy/oci-image` writes an image whose digests are right, and the layer that it promises.

#![allow(clippy::unwrap_used)] // A missing file is a failed test.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Program header types of ELF.
const LOAD: u8 = 1;
const INTERP: u8 = 3;

/// Architectures of ELF.
const X86_64: u8 = 62;
const AARCH64: u8 = 183;
const PPC64: u8 = 21;
const S390: u8 = 22;

/// A folder with a program of each architecture, and the image that is made of some.
struct Image(TempDir);

impl Image {
    /// Writes programs with one program header of this type.
    fn of(header: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for architecture in [X86_64, AARCH64, PPC64, S390] {
            let path = folder.path().join(architecture.to_string());
            fs::write(path, program(header, architecture)).unwrap();
        }
        Self(folder)
    }

    fn write(&self) -> Output {
        self.write_of(&[X86_64])
    }

    fn write_of(&self, architectures: &[u8]) -> Output {
        let path = |it: &u8| format!("{}/{it}", self.0.path().display());
        let programs = architectures.iter().map(path);
        let arguments = [self.folder(), "0.1.0".to_owned()].into_iter().chain(programs);
        run(&arguments.collect::<Vec<_>>())
    }

    /// The folder that the script makes.
    fn folder(&self) -> String {
        format!("{}/image", self.0.path().display())
    }

    fn check(&self) -> bool {
        run(&["--check".to_owned(), self.folder()]).status.success()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&fs::read(Path::new(&self.folder()).join(path)).unwrap()).unwrap()
    }

    /// The path of the blob that a descriptor names; fails if its size is another.
    fn blob(&self, descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{digest}");
        let whole = Path::new(&self.folder()).join(&path);
        assert_eq!(fs::metadata(&whole).unwrap().len(), descriptor["size"].as_u64().unwrap());
        let sum = Command::new("sha256sum").arg(&whole).output().unwrap().stdout;
        assert!(sum.starts_with(digest.as_bytes()), "{path}");
        path
    }
}

/// S390 is big-endian: the last byte of a number is the lowest.
fn program(header: u8, architecture: u8) -> Vec<u8> {
    let big_endian = architecture == S390;
    let mut program = vec![0; 64 + 56];
    program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    program[5] += u8::from(big_endian);
    for (offset, size, value) in
        [(18, 2, architecture), (32, 8, 64), (54, 2, 56), (56, 2, 1), (64, 4, header)]
    {
        program[if big_endian { offset + size - 1 } else { offset }] = value;
    }
    program.resize(700, 7);
    program
}

fn run<T: AsRef<OsStr>>(arguments: &[T]) -> Output {
    let script = concat!(concat!(env!("CARGO_MANIFEST_DIR"), "/.."), "/deploy/oci-image");
    Command::new("sh").arg(script).args(arguments).output().unwrap()
}

/// A member of a tar archive: its name, type, link and content.
type Member = (String, char, String, Vec<u8>);

/// Reads an archive of the form ustar; fails if a checksum is wrong.
fn members(mut archive: &[u8]) -> Vec<Member> {
    let text = |bytes: &[u8]| {
        let text = bytes.split(|byte| *byte == 0).next().unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    };
    let number = |bytes: &[u8]| usize::from_str_radix(text(bytes).trim(), 8).unwrap();
    let mut members = Vec::new();
    while archive[0] != 0 {
        let (header, rest) = archive.split_at(512);
        let spaced = [&header[..148], b"        ", &header[156..]].concat();
        let sum: usize = spaced.iter().map(|byte| usize::from(*byte)).sum();
        assert_eq!(number(&header[148..155]), sum);
        assert_eq!(&header[257..265], b"ustar\x0000");
        let size = number(&header[124..136]);
        let link = text(&header[157..257]);
        members.push((text(&header[..100]), header[156] as char, link, rest[..size].to_vec()));
        archive = &rest[size.next_multiple_of(512)..];
    }
    assert_eq!(archive, [0; 1024]);
    members
}

#[test]
fn an_image_has_the_program_its_capability_and_a_link_named_kube_proxy() {
    let image = Image::of(LOAD);
    let output = image.write();
    assert!(output.status.success(), "{output:?}");
    assert!(image.check());

    let index = image.json("index.json");
    let found = &index["manifests"][0];
    assert_eq!(found["annotations"]["org.opencontainers.image.ref.name"], "0.1.0");
    let manifest = image.json(&image.blob(found));
    let config = image.json(&image.blob(&manifest["config"]));
    let layer = &manifest["layers"][0];
    assert_eq!(config["rootfs"]["diff_ids"], json!([layer["digest"]]));
    assert_eq!((&config["architecture"], &config["os"]), (&json!("amd64"), &json!("linux")));
    assert_eq!(config["config"]["User"], "65532:65532");

    let layer = fs::read(Path::new(&image.folder()).join(image.blob(layer))).unwrap();
    let members = members(&layer);
    let names: Vec<_> = members.iter().map(|(name, kind, ..)| (name.as_str(), *kind)).collect();
    let expected = [
        ("usr/", '5'),
        ("usr/local/", '5'),
        ("usr/local/bin/", '5'),
        ("PaxHeaders/deltaproxy", 'x'),
        ("usr/local/bin/deltaproxy", '0'),
        ("usr/local/bin/kube-proxy", '2'),
    ];
    assert_eq!(names, expected);
    // vfs_cap_data of linux/capability.h: revision 2 with the effective bit, CAP_NET_ADMIN.
    let mut capability = b"57 SCHILY.xattr.security.capability=".to_vec();
    capability.extend([1, 0, 0, 2, 0, 0x10, 0, 0]);
    capability.extend([0; 12]);
    capability.push(b'\n');
    assert_eq!(members[3].3, capability);
    assert_eq!(members[4].3, fs::read(image.0.path().join("62")).unwrap());
    assert_eq!(members[5].2, "deltaproxy");
}

#[test]
fn binaries_of_all_architectures_are_one_image() {
    let image = Image::of(LOAD);
    let output = image.write_of(&[X86_64, AARCH64, PPC64, S390]);
    assert!(output.status.success(), "{output:?}");
    assert!(image.check());

    let outer = image.json("index.json");
    assert_eq!(outer["manifests"].as_array().unwrap().len(), 1);
    let named = &outer["manifests"][0];
    assert_eq!(named["mediaType"], "application/vnd.oci.image.index.v1+json");
    assert_eq!(named["annotations"]["org.opencontainers.image.ref.name"], "0.1.0");
    let index = image.json(&image.blob(named));
    let programs = [("amd64", X86_64), ("arm64", AARCH64), ("ppc64le", PPC64), ("s390x", S390)];
    assert_eq!(index["manifests"].as_array().unwrap().len(), programs.len());
    for (found, (name, architecture)) in index["manifests"].as_array().unwrap().iter().zip(programs)
    {
        assert_eq!(found["platform"], json!({"architecture": name, "os": "linux"}));
        let manifest = image.json(&image.blob(found));
        let config = image.json(&image.blob(&manifest["config"]));
        assert_eq!(config["architecture"], name);
        let layer = Path::new(&image.folder()).join(image.blob(&manifest["layers"][0]));
        let content = fs::read(&layer).unwrap();
        assert_eq!(members(&content)[4].3, program(LOAD, architecture));
        fs::write(&layer, "changed").unwrap();
        assert!(!image.check());
        fs::write(layer, content).unwrap();
    }
}

#[test]
fn a_changed_or_missing_blob_and_a_wrong_size_are_found() {
    let image = Image::of(LOAD);
    image.write();
    let found = &image.json("index.json")["manifests"][0];
    let manifest = image.json(&image.blob(found));
    let layer = Path::new(&image.folder()).join(image.blob(&manifest["layers"][0]));
    let content = fs::read(&layer).unwrap();
    let mut changed = content.clone();
    *changed.last_mut().unwrap() = 1;
    fs::write(&layer, changed).unwrap();
    assert!(!image.check());
    fs::remove_file(&layer).unwrap();
    assert!(!image.check());
    fs::write(&layer, content).unwrap();
    assert!(image.check());

    let index = Path::new(&image.folder()).join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"size\":", "\"size\":1")).unwrap();
    assert!(!image.check());
}

#[test]
fn a_program_that_needs_a_dynamic_loader_is_refused() {
    for architecture in [X86_64, S390] {
        let output = Image::of(INTERP).write_of(&[architecture]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains("dynamic loader"), "{message}");
    }
}

#[test]
fn a_program_for_another_architecture_is_refused() {
    let image = Image::of(LOAD);
    let mut big_endian = program(LOAD, S390);
    big_endian[19] = PPC64;
    let mut arm = program(LOAD, X86_64);
    arm[18] = 40;
    for program in [big_endian, arm] {
        fs::write(image.0.path().join(X86_64.to_string()), program).unwrap();
        let output = image.write();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && message.contains("is for "), "{message}");
    }
}

#[test]
fn a_failure_leaves_no_folder_that_blocks_the_next_try() {
    let image = Image::of(INTERP);
    assert!(!image.write().status.success());
    assert!(!Path::new(&image.folder()).exists());
    let program = program(LOAD, X86_64);
    fs::write(image.0.path().join(X86_64.to_string()), program).unwrap();
    let output = image.write();
    assert!(output.status.success(), "{output:?}");
    assert!(image.check());
    let again = image.write();
    assert!(String::from_utf8(again.stderr).unwrap().contains("exists already"));
    assert!(image.check(), "a folder of someone else stays as it was");
}
