//! `kubectl deltaproxy`: runs a command of this program in the pod of a node, or of each node.
//!
//! Every request is one of kubectl, so that credentials, contexts and proxies are those of its user.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use engine::printable::Printable;
use serde_json::Value;

use super::failure::Failure;
use super::outcome::Exit;
use super::output::{print, printed, warn};

/// Selectors of our pods. The second is that of kubeadm's kube-proxy, whose image may be ours; it
/// counts where the first finds nothing.
const SELECTORS: [&str; 2] = ["app=deltaproxy", "k8s-app=kube-proxy"];

/// Path of the program in its image.
const PROGRAM: &str = "/usr/local/bin/deltaproxy";

/// Maximum number of commands at a time with `--all-nodes`.
const AT_A_TIME: usize = 16;

/// Exit code if the command did not run. 1 is the answer of some commands.
const NOT_RUN: u8 = 2;

const HELP: &str = "\
Run a command of deltaproxy in its pod on a node

Usage: kubectl deltaproxy COMMAND [ARGUMENTS] --node NODE [FLAGS] [-- ARGUMENTS]

Flags:
      --node NODE            Run it in the pod of this node
      --all-nodes            Run it in the pods of all nodes; the node's name begins each line
  -n, --namespace NAMESPACE  Namespace of the pods [default: all]
      --context, --kubeconfig, --cluster, --user, --request-timeout VALUE
                             As for kubectl

Arguments after -- belong to COMMAND alone, as do flags that are not listed here.

Exit codes:
  that of COMMAND; with --all-nodes, the highest
  2  COMMAND did not run: no such pod, or kubectl failed to list pods
";

/// Runs the command line of the plugin; `arguments` are those after the program's name.
pub fn kubectl(arguments: Vec<String>) -> Exit {
    let (code, failure) = match Line::parse(arguments).and_then(|line| line.run().and_then(printed))
    {
        Ok(code) => (code, None),
        Err(failure) => (NOT_RUN, Some(failure)),
    };
    Exit { code, failure, restart: false }
}

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    /// Flags for each request.
    flags: Vec<String>,
    namespace: Option<String>,
    nodes: Option<Nodes>,
    /// Command of this program, and its arguments.
    command: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Nodes {
    One(String),
    All,
}

impl Line {
    fn parse(arguments: Vec<String>) -> Result<Self, Failure> {
        let mut line = Self::default();
        let mut words = arguments.into_iter();
        while let Some(word) = words.next() {
            let (flag, joined) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*word, None),
            };
            let mut value = || {
                let value = joined.clone().or_else(|| words.next());
                value.ok_or_else(|| Failure::new(format!("{flag} needs a value")))
            };
            match flag {
                "--" => line.command.extend(words.by_ref()),
                "--node" => line.select(Nodes::One(value()?))?,
                "--all-nodes" => line.select(Nodes::All)?,
                "-n" | "--namespace" => line.namespace = Some(value()?),
                "--context" | "--kubeconfig" | "--cluster" | "--user" | "--request-timeout" => {
                    line.flags.push(format!("{flag}={}", value()?));
                }
                _ => line.command.push(word),
            }
        }
        Ok(line)
    }

    fn select(&mut self, nodes: Nodes) -> Result<(), Failure> {
        match self.nodes.replace(nodes) {
            None => Ok(()),
            Some(_) => Err(Failure::new("give one --node, or --all-nodes")),
        }
    }

    /// Returns the exit code.
    fn run(&self) -> Result<u8, Failure> {
        let asks_for_help = || self.command.iter().any(|word| is_help(word));
        if self.command.is_empty() || self.nodes.is_none() && asks_for_help() {
            print(&HELP);
            return Ok(0);
        }
        match &self.nodes {
            None => Err(Failure::new("--node NODE or --all-nodes is missing")),
            Some(Nodes::One(node)) => {
                let pods = self.pods(Some(node))?.remove(node).unwrap_or_default();
                let pod = only(node, &pods)?;
                // Returns only on failure.
                Err(failed(&self.command_in(pod, is_interactive()).exec()))
            }
            Some(Nodes::All) => self.run_everywhere(),
        }
    }

    /// Runs the command on all nodes, some at a time, and prints the output in order of the nodes.
    fn run_everywhere(&self) -> Result<u8, Failure> {
        let pods = self.pods(None)?;
        if pods.is_empty() {
            return Err(none(""));
        }
        let mut highest = 0;
        for some in pods.iter().collect::<Vec<_>>().chunks(AT_A_TIME) {
            let mut running = Vec::new();
            for &(node, pods) in some {
                let pod = match only(node, pods) {
                    Ok(pod) => pod,
                    Err(failure) => {
                        warn(&format_args!("{failure}\n"));
                        highest = highest.max(NOT_RUN);
                        continue;
                    }
                };
                let mut command = self.command_in(pod, false);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
                running.push((node, command.spawn().map_err(|error| failed(&error))?));
            }
            for (node, command) in running {
                let output = command.wait_with_output().map_err(|error| failed(&error))?;
                print(&prefixed(node, &output.stdout));
                warn(&prefixed(node, &output.stderr));
                let code = output.status.code().and_then(|code| u8::try_from(code).ok());
                highest = highest.max(code.unwrap_or(NOT_RUN));
            }
        }
        Ok(highest)
    }

    /// Returns our running pods, by the name of the node.
    fn pods(&self, node: Option<&str>) -> Result<BTreeMap<String, Vec<Pod>>, Failure> {
        let mut pods: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
        for selector in SELECTORS {
            let found = self.listed(selector, node)?;
            let mut of_selector: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
            for (node, pod) in found.iter().filter_map(running) {
                of_selector.entry(node).or_default().push(pod);
            }
            for (node, found) in of_selector {
                pods.entry(node).or_insert(found);
            }
        }
        Ok(pods)
    }

    fn listed(&self, selector: &str, node: Option<&str>) -> Result<Vec<Value>, Failure> {
        let mut command = self.request("get");
        command.args(["pods", "--output=json", &format!("--selector={selector}")]);
        match &self.namespace {
            Some(namespace) => command.arg(format!("--namespace={namespace}")),
            None => command.arg("--all-namespaces"),
        };
        command.args(node.map(|node| format!("--field-selector=spec.nodeName={node}")));
        let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
        if !output.status.success() {
            return Err(Failure::new(format!("kubectl get pods: {}", output.status)));
        }
        let mut list: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Failure::new(format!("kubectl get pods: {error}")))?;
        match list.get_mut("items").map(Value::take) {
            Some(Value::Array(pods)) => Ok(pods),
            _ => Err(Failure::new("kubectl get pods: its output has no list `items`")),
        }
    }

    fn command_in(&self, pod: &Pod, is_interactive: bool) -> Command {
        let mut command = self.request("exec");
        command.args(is_interactive.then_some(["--stdin", "--tty"]).into_iter().flatten());
        let Pod { namespace, name } = pod;
        command.args([&format!("--namespace={namespace}"), name, "--", PROGRAM]);
        command.args(&self.command);
        command
    }

    fn request(&self, verb: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg(verb).args(&self.flags);
        command
    }
}

struct Pod {
    namespace: String,
    name: String,
}

/// Returns the node of a pod in the JSON of the API, and the pod, if it is running.
fn running(item: &Value) -> Option<(String, Pod)> {
    let text = |part: &Value| part.as_str().map(str::to_owned);
    let metadata = &item["metadata"];
    let is_running =
        item["status"]["phase"] == "Running" && metadata["deletionTimestamp"].is_null();
    let pod = Pod { namespace: text(&metadata["namespace"])?, name: text(&metadata["name"])? };
    is_running.then(|| (text(&item["spec"]["nodeName"]).unwrap_or_default(), pod))
}

/// Returns the pod of a node.
fn only<'a>(node: &str, pods: &'a [Pod]) -> Result<&'a Pod, Failure> {
    match pods {
        [] => Err(none(&format!(" on node {node}"))),
        [pod] => Ok(pod),
        several => {
            let name = |pod: &Pod| format!("{}/{}", pod.namespace, pod.name);
            let names = several.iter().map(name).collect::<Vec<_>>().join(", ");
            let error = format!("{node} has several pods, --namespace selects one: {names}");
            Err(Failure::new(error))
        }
    }
}

fn none(place: &str) -> Failure {
    let labels = SELECTORS.join(" or ");
    Failure::new(format!("no pod with {labels} is running{place}"))
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::new(format!("kubectl: {error}"))
}

fn is_help(word: &str) -> bool {
    ["--help", "-h"].contains(&word)
}

/// Returns whether a person uses the command, as `top` demands.
fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Returns the lines of `output` with the node's name before each.
fn prefixed(node: &str, output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    output.lines().map(|line| format!("{node}: {}\n", Printable(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Line, String> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        Line::parse(words).map_err(|failure| failure.to_string())
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_of_kubectl_and_arguments_of_the_command_are_told_apart() {
        let line = Line {
            flags: words("--context=c --kubeconfig=/k"),
            namespace: Some("kube-system".to_owned()),
            nodes: Some(Nodes::One("n7".to_owned())),
            command: words("show default/web --output=json"),
        };
        let separate = "show --node n7 default/web --context c -n kube-system --kubeconfig /k \
                        --output=json";
        let joined = "--kubeconfig=/k";
        assert_eq!(parse(separate), Ok(line));
        assert_eq!(parse(joined).unwrap().flags, [joined]);
    }

    #[test]
    fn arguments_after_two_dashes_belong_to_the_command() {
        let line = parse("show --all-nodes -- --node n8 -n default --").unwrap();
        assert_eq!(line.nodes, Some(Nodes::All));
        assert_eq!(line.command, words("show --node n8 -n default --"));
        assert_eq!(line.namespace, None);
    }

    #[test]
    fn a_flag_without_a_value_and_two_selections_are_refused() {
        assert_eq!(parse("show --node"), Err("--node needs a value".to_owned()));
        for line in ["show --node a --node b", "show --node a --all-nodes"] {
            assert_eq!(parse(line), Err("give one --node, or --all-nodes".to_owned()));
        }
    }

    #[test]
    fn each_line_begins_with_the_node() {
        assert_eq!(prefixed("n1", b"a\nb\x1b[0m"), "n1: a\nn1: b\\u{1b}[0m\n");
        assert_eq!(prefixed("n1", b""), "");
    }
}
