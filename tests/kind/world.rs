//! A folder with programs that record their calls, and the scripts run with them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::recorder;

/// What the scripts use of the machine.
const TOOLS: [&str; 39] = [
    "awk",
    "bash",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dirname",
    "env",
    "expr",
    "find",
    "grep",
    "gzip",
    "head",
    "install",
    "ln",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "od",
    "printf",
    "python3",
    "readlink",
    "realpath",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "sort",
    "tail",
    "tar",
    "tee",
    "touch",
    "tr",
    "true",
    "uname",
    "uniq",
    "wc",
];

/// Docker as kind uses it, with three nodes once they run.
const DOCKER: &str = r#"
case "$*" in
info*) [ ! -e "$world/no-docker" ] || exit 1
    echo '{"SecurityOptions":[],"MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"CgroupVersion":"2"}' ;;
"network ls"*) echo id ;;
"run --name "*) echo "$3" >>"$world/nodes" ;;
"ps "*Label*) [ ! -e "$world/nodes" ] || echo deltaproxy ;;
"ps "*) cat "$world/nodes" 2>/dev/null || true ;;
"rm "*) rm -f "$world/nodes" ;;
"logs "*) echo 'Reached target Multi-User System.' ;;
"inspect -f {{range .NetworkSettings.Networks}}"*) echo 172.18.0.2,fc00:f853:ccd:e793::2 ;;
"inspect "*kind.role*control-plane) echo control-plane ;;
"inspect "*kind.role*) echo worker ;;
"inspect "*) echo 127.0.0.1:6443 ;;
*"cat /kind/version") echo v1.36.4 ;;
*"cp /dev/stdin /kind/kubeadm.conf") cat >"$world/kubeadm-$4" ;;
*"cat /etc/kubernetes/admin.conf") cat <<END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://deltaproxy-control-plane:6443"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
END
    ;;
*" get nodes --selector="*) echo "'True'" ;;
*" images import "*) cat >"$world/image-$3.tar" ;;
esac
"#;

const KIND: &str = r#"
case "$*" in
"create cluster "*) printf 'deltaproxy-%s\n' control-plane worker worker2 >"$world/nodes" ;;
"delete cluster "*) rm -f "$world/nodes" ;;
"get clusters") [ ! -e "$world/nodes" ] || echo deltaproxy ;;
"get nodes "*) cat "$world/nodes" ;;
version) echo 'kind v0.33.0' ;;
esac
"#;

const KUBECTL: &str = r#"
case "$*" in
"apply --kustomize "*) [ -z "$DELTAPROXY_KIND" ] ||
    "$DELTAPROXY_KIND/kubectl" kustomize "$3" >"$world/rendered.yaml" ;;
"get --raw /version") printf '{\n  "major": "1",\n  "gitVersion": "v1.36.4"\n}\n' ;;
*restartCount*) echo 0 0 1 ;;
"exec "*) cat "$world/answers" ;;
esac
"#;

/// Fetches the archive of tests and its checksum.
const CURL: &str = r#"
while [ $# -gt 1 ]; do
    [ "$1" != --output ] || cp "$world/tests.tar.gz" "$2"
    shift
done
case $1 in *.sha256) cat "$world/sum" ;; esac
"#;

const GINKGO: &str = r#"
for argument in "$@"; do
    case $argument in --report-dir=*) cp "$world/report.xml" "${argument#*=}/junit_01.xml" ;; esac
done
exit "$(cat "$world/failed")"
"#;

/// A path of the repository.
pub(crate) fn folder(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

/// The report of `tests/kind/junit.xml` without its failed test.
pub(crate) fn without_failure(report: &str) -> String {
    let (before, rest) = report
        .split_once("          <testcase name=\"[It] [sig-network] Services should be rejected")
        .unwrap();
    before.to_owned() + rest.split_once("</testcase>\n").unwrap().1
}

pub(crate) struct World {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() };
        for name in ["bin", "tools", "target"] {
            fs::create_dir(world.path(name)).unwrap();
        }
        for tool in TOOLS {
            symlink(found(tool), world.path("tools").join(tool)).unwrap();
        }
        for (name, text) in
            [("docker", DOCKER), ("kind", KIND), ("kubectl", KUBECTL), ("curl", CURL)]
        {
            world.add_program(&world.path("bin"), name, text);
        }
        if let Some(kind) = kind_itself() {
            let call = format!("PATH=\"{}:$PATH\" exec \"{0}/kind\" \"$@\"", kind.display());
            world.add_program(&world.path("bin"), "kind", &call);
        }
        world.note("answers", &["hello-a\n", "hello-b\n", "hello-c\n"].concat().repeat(10));
        fs::write(world.path("binary"), program()).unwrap();
        world
    }

    pub(crate) fn with(mut self, variable: &'static str, value: &str) -> Self {
        self.variables.push((variable, value.to_owned()));
        self
    }

    /// Adds the archive of Kubernetes' tests, whose run ends with a status.
    pub(crate) fn with_tests(self, status: &str) -> Self {
        let bin = self.path("kubernetes/test/bin");
        fs::create_dir_all(&bin).unwrap();
        self.add_program(&bin, "ginkgo", GINKGO);
        self.add_program(&bin, "e2e.test", "");
        self.note("failed", status);
        let report = fs::read_to_string(folder("tests/kind/junit.xml")).unwrap();
        let is_good = status == "0";
        self.note("report.xml", &if is_good { without_failure(&report) } else { report });
        let mut tar = Command::new("tar");
        tar.current_dir(self.folder.path()).args(["-czf", "tests.tar.gz", "kubernetes"]);
        assert!(tar.status().unwrap().success());
        let sum = Command::new("sha256sum").arg(self.path("tests.tar.gz")).output().unwrap();
        self.note("sum", std::str::from_utf8(&sum.stdout).unwrap().split(' ').next().unwrap());
        self
    }

    fn add_program(&self, folder: &Path, name: &str, text: &str) {
        recorder::add_program(&folder.join(name), self.folder.path(), text);
    }

    pub(crate) fn remove_program(&self, name: &str) {
        fs::remove_file(self.path("bin").join(name)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn target(&self, name: &str) -> PathBuf {
        self.path("target").join(name)
    }

    pub(crate) fn note(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs a script of the repository with the programs of this world.
    pub(crate) fn run(&self, script: &str, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), self.path("tools").display());
        let kind = kind_itself().unwrap_or_default();
        let mut command = Command::new(folder(script));
        command.args(arguments).env_clear().env("PATH", path).env("HOME", self.folder.path());
        command.env("CARGO_TARGET_DIR", self.path("target")).env("BINARY", self.path("binary"));
        command.env("DELTAPROXY_KIND", kind).envs(self.variables.iter().cloned());
        command.output().unwrap()
    }

    /// Runs a script that must succeed; returns what it printed.
    #[track_caller]
    pub(crate) fn succeed(&self, script: &str, arguments: &[&str]) -> String {
        let output = self.run(script, arguments);
        assert!(output.status.success(), "{output:#?}\n{}", self.calls());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a script that must fail; returns its message.
    #[track_caller]
    pub(crate) fn fail(&self, script: &str, arguments: &[&str]) -> String {
        let output = self.run(script, arguments);
        assert!(!output.status.success(), "{output:#?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The calls of the programs, a line each.
    pub(crate) fn calls(&self) -> String {
        recorder::calls(self.folder.path())
    }

    /// Fails unless the texts are in the calls in this order.
    #[track_caller]
    pub(crate) fn check_order(&self, texts: &[&str]) {
        let calls = self.calls();
        let mut rest = &*calls;
        for text in texts {
            rest = rest.split_once(text).unwrap_or_else(|| panic!("no {text} there in\n{calls}")).1;
        }
    }

    /// The names of the files in the image that a node imported.
    pub(crate) fn imported(&self, node: &str) -> Vec<String> {
        let archive = self.path(&format!("image-{node}.tar"));
        let listed = Command::new("tar").arg("-tf").arg(archive).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// The configuration that kind itself gave to kubeadm on the control plane.
    pub(crate) fn kubeadm(&self) -> Option<String> {
        kind_itself()?;
        Some(fs::read_to_string(self.path("kubeadm-deltaproxy-control-plane")).unwrap())
    }
}

/// The folder with kind and kubectl, if they are to be used.
fn kind_itself() -> Option<PathBuf> {
    std::env::var_os("DELTAPROXY_KIND").map(PathBuf::from)
}

/// The path of a program of the machine.
fn found(tool: &str) -> PathBuf {
    if tool == "python3" {
        return python();
    }
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(tool));
    files.find(|file| file.is_file()).unwrap_or_else(|| panic!("{tool} is missing"))
}

/// The path of the interpreter, which the one in `PATH` may only start.
fn python() -> PathBuf {
    let program = ["-c", "import sys; print(sys.executable, end='')"];
    let output = Command::new("python3").args(program).output();
    let output = output.unwrap_or_else(|error| panic!("{error}: apt-get install python3"));
    PathBuf::from(String::from_utf8(output.stdout).unwrap())
}

/// A static program that prints a version: an ELF header, a segment, and the instructions.
fn program() -> Vec<u8> {
    let message = b"deltaproxy 0.0.0\n";
    let length = u8::try_from(message.len()).unwrap();
    #[cfg(target_arch = "x86_64")]
    let (machine, code) = (
        62,
        vec![
            0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
            0xbf, 1, 0, 0, 0, // mov edi, 1
            0x48, 0x8d, 0x35, 16, 0, 0, 0, // lea rsi, [rip + 16]
            0xba, length, 0, 0, 0, // mov edx, length
            0x0f, 0x05, // syscall
            0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
            0x31, 0xff, // xor edi, edi
            0x0f, 0x05, // syscall
        ],
    );
    #[cfg(target_arch = "aarch64")]
    let (machine, code) = (
        183,
        [
            0xd280_0020,                          // mov x0, 1
            0x1000_00e1,                          // adr x1, 28
            0xd280_0002 | u32::from(length) << 5, // mov x2, length
            0xd280_0808,                          // mov x8, 64 (write)
            0xd400_0001,                          // svc 0
            0xd280_0000,                          // mov x0, 0
            0xd280_0ba8,                          // mov x8, 93 (exit)
            0xd400_0001,                          // svc 0
        ]
        .iter()
        .flat_map(|it: &u32| it.to_le_bytes())
        .collect::<Vec<u8>>(),
    );
    let start = 0x40_0000_u64;
    let size = 120 + code.len() as u64 + message.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, machine, 0, 1, 0, 0, 0]);
    for value in [start + 120, 64, 0] {
        file.extend(u64::to_le_bytes(value));
    }
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    // PT_LOAD, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for value in [0, start, start, size, size, 0x1000] {
        file.extend(u64::to_le_bytes(value));
    }
    file.extend(code);
    file.extend(message);
    file
}
