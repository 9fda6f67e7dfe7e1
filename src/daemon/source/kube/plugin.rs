//! Credential plugins: programs that print a token or a certificate of the client.
//!
//! As in client-go, all clients of the process share what a plugin printed, until it expires or the
//! server answers 401. At most one plugin runs at a time.

use std::io::{self, IsTerminal};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::headers::bearer;
use super::kubeconfig::{Cluster, Exec, Fault};
use super::tls;
use crate::child_process::{ChildLimits, EndedChild, ended};
use crate::yaml;

/// Versions of the API of plugins.
const VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// Extension of a cluster with settings of plugins.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Longest time of a plugin.
const LIMIT: Duration = Duration::from_secs(60);

/// Least time between two runs that end with 401.
const APART: Duration = Duration::from_secs(2);

/// Most bytes of an output of a plugin.
const LONGEST: u64 = 1 << 20;

/// Most characters of its error output in a message.
const SHORT: usize = 200;

/// What the last plugin printed.
static KEPT: Mutex<Option<(Plugin, Credential)>> = Mutex::new(None);

/// Held while a plugin runs.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A credential plugin, with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plugin {
    exec: Exec,
    /// Field `cluster` of the plugin's input (`provideClusterInfo`).
    cluster: Option<Value>,
    /// Where it is named.
    what: String,
}

/// What a plugin printed.
#[derive(Clone, Debug)]
pub(super) struct Credential {
    /// Value of `Authorization`.
    pub(super) authorization: Option<HeaderValue>,
    identity: Option<Arc<CertifiedKey>>,
    expires: Option<Timestamp>,
    made: Instant,
}

/// Output of a plugin.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Output {
    kind: Option<String>,
    api_version: Option<String>,
    status: Option<PluginStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PluginStatus {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Exec {
    /// Checks the fields.
    ///
    /// # Errors
    /// A field is missing or has an unknown value.
    pub(super) fn check(&self, what: &str) -> Result<(), Fault> {
        let fault =
            |field: &str, problem: &str| Err(Fault::new(format!("{field} in {what}"), problem));
        if self.command.is_empty() {
            return fault("command", "it is needed");
        }
        if self.env.iter().any(|variable| variable.name.is_empty()) {
            return fault("env", "a variable needs a name");
        }
        match (&*self.interactive_mode, &*self.api_version) {
            (_, "") => fault("apiVersion", "it is needed"),
            // Older versions mean IfAvailable.
            ("", version) if version.ends_with("/v1alpha1") || version.ends_with("/v1beta1") => {
                Ok(())
            }
            ("Never" | "IfAvailable" | "Always", _) => Ok(()),
            _ => fault("interactiveMode", "expected Never, IfAvailable or Always"),
        }
    }
}

impl Plugin {
    /// `authority` is the certificate authority of the cluster.
    ///
    /// # Errors
    /// The version of its API is unknown.
    pub(super) fn new(
        exec: &Exec,
        cluster: &Cluster,
        authority: Option<Vec<u8>>,
        what: &str,
    ) -> Result<Self, Fault> {
        if !VERSIONS.contains(&&*exec.api_version) {
            let problem = format!("expected {} or {}", VERSIONS[0], VERSIONS[1]);
            return Err(Fault::new(format!("apiVersion in {what}"), problem));
        }
        let config = cluster.extensions.iter().find(|it| it.name == EXTENSION);
        let mut fields = json!({
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": authority.map(|pem| STANDARD.encode(pem)),
            "proxy-url": cluster.proxy_url,
            "disable-compression": cluster.disable_compression,
            "config": config.map(|it| &it.extension),
        });
        if let Some(fields) = fields.as_object_mut() {
            fields.retain(|name, value| {
                name == "server" || !(value.is_null() || value == "" || value == false)
            });
        }
        let cluster = exec.provide_cluster_info.then_some(fields);
        Ok(Self { exec: exec.clone(), cluster, what: what.to_owned() })
    }

    /// Returns a credential that is not expired. Runs the plugin if there is none.
    ///
    /// # Errors
    /// The plugin failed, or what it printed cannot be used.
    pub(super) async fn credential(&self) -> Result<Credential, Fault> {
        let _turn = TURN.lock().await;
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let output = self.run().await.map_err(|problem| Fault::new(&self.what, problem))?;
        let credential = self.read(&output)?;
        *KEPT.lock() = Some((self.clone(), credential.clone()));
        Ok(credential)
    }

    /// The server answered 401 to this credential.
    pub(super) fn rejected(&self, used: &Credential) {
        if used.made.elapsed() >= APART {
            KEPT.lock().take_if(|(_, kept)| kept.made == used.made);
        }
    }

    fn kept(&self) -> Option<Credential> {
        let kept = KEPT.lock();
        let (_, credential) = kept.as_ref().filter(|(plugin, _)| plugin == self)?;
        let is_valid = credential.expires.is_none_or(|end| Timestamp::now() <= end);
        is_valid.then(|| credential.clone())
    }

    /// Runs the plugin, and returns its output.
    async fn run(&self) -> Result<Vec<u8>, String> {
        let Exec { command, args, env, .. } = &self.exec;
        let is_interactive = self.is_interactive()?;
        let mut spec = json!({ "interactive": is_interactive });
        if let Some(cluster) = &self.cluster {
            spec["cluster"] = cluster.clone();
        }
        let version = &self.exec.api_version;
        let info = json!({ "kind": "ExecCredential", "apiVersion": version, "spec": spec });
        let mut process = Command::new(command);
        process.args(args).envs(env.iter().map(|it| (&it.name, &it.value)));
        process.env("KUBERNETES_EXEC_INFO", info.to_string()).stdout(Stdio::piped());
        // A person sees its questions.
        if is_interactive {
            process.stdin(Stdio::inherit()).stderr(Stdio::inherit());
        } else {
            process.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        }
        let limits = ChildLimits { time: LIMIT, output: LONGEST };
        let child = process.kill_on_drop(true).spawn().map_err(|error| {
            let hint = shortened(self.exec.install_hint.as_bytes());
            format!("{command} cannot be run: {error}. {hint}")
        })?;
        let ended = ended(child, &[], limits).await;
        let ended = ended.map_err(|error| format!("{command}: {error}"))?;
        let ended = ended.ok_or_else(|| format!("{command} ran for {} s", LIMIT.as_secs()))?;
        let EndedChild { status, output, errors } = ended;
        let failed = || format!("{command} failed ({status}): {}", shortened(&errors));
        if status.success() { Ok(output) } else { Err(failed()) }
    }

    fn is_interactive(&self) -> Result<bool, String> {
        let is_terminal = io::stdin().is_terminal();
        match &*self.exec.interactive_mode {
            "Never" => Ok(false),
            "Always" if !is_terminal => Err("interactiveMode is Always, without a terminal".into()),
            _ => Ok(is_terminal),
        }
    }

    fn read(&self, output: &[u8]) -> Result<Credential, Fault> {
        let fault = |problem: &str| Fault::new(format!("output of {}", self.what), problem);
        let text = str::from_utf8(output).map_err(|_| fault("it is no text"))?;
        let documents = yaml::parse(text).map_err(|error| fault(&error.to_string()))?;
        let value = documents.into_iter().next().map_or(Value::Null, |document| document.value);
        let read: Option<Output> = serde_path_to_error::deserialize(value)
            .map_err(|error| fault(&format!("{} has another type", error.path())))?;
        let (read, version) = (read.unwrap_or_default(), &self.exec.api_version);
        if read.kind.as_deref() != Some("ExecCredential")
            || read.api_version.as_ref() != Some(version)
        {
            return Err(fault(&format!("expected kind ExecCredential of {version}")));
        }
        let status = read.status.ok_or_else(|| fault("status is missing"))?;
        let given = |field: Option<String>| field.filter(|text| !text.is_empty());
        let certificate = given(status.client_certificate_data);
        let identity = match (certificate, given(status.client_key_data)) {
            (Some(certificate), Some(key)) => {
                Some(tls::identity(&self.what, certificate.as_bytes(), key.as_bytes())?)
            }
            (None, None) => None,
            _ => return Err(fault("a certificate needs a key, and a key a certificate")),
        };
        let token = given(status.token);
        let authorization = token.map(|token| bearer(&self.what, &token)).transpose()?;
        if authorization.is_none() && identity.is_none() {
            return Err(fault("it has neither a token nor a certificate"));
        }
        let expires = status.expiration_timestamp.map(|text| text.parse()).transpose();
        let expires = expires.map_err(|_| fault("expirationTimestamp is no time"))?;
        Ok(Credential { authorization, identity, expires, made: Instant::now() })
    }
}

impl ResolvesClientCert for Plugin {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.kept()?.identity
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Forgets what the last plugin printed.
pub(super) fn forget() {
    *KEPT.lock() = None;
}

/// Returns the first characters of a text, without line ends and control characters.
fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = text.split(|it: char| it.is_whitespace() || it.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    line.chars().take(SHORT).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::kubeconfig::Variable;
    use super::super::p521::tests::{CERTIFICATE, KEY};
    use super::*;

    const V1: &str = VERSIONS[0];

    /// Held by tests that run plugins, because these share what is kept.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    fn exec(script: &str) -> Exec {
        let text = |text: &str| text.to_owned();
        Exec {
            command: text("sh"),
            args: vec![text("-c"), text(script)],
            api_version: text(V1),
            interactive_mode: text("Never"),
            ..Exec::default()
        }
    }

    fn plugin(exec: &Exec) -> Plugin {
        let extension = serde_json::from_value(json!({"name": EXTENSION, "extension": {"a": 1}}));
        let cluster = Cluster {
            server: "https://a".into(),
            extensions: vec![extension.unwrap()],
            ..Cluster::default()
        };
        Plugin::new(exec, &cluster, Some(b"ca".to_vec()), "exec").unwrap()
    }

    fn output(status: &Value) -> String {
        json!({"apiVersion": V1, "kind": "ExecCredential", "status": status}).to_string()
    }

    /// A plugin that counts its runs in `runs` and prints `output`.
    fn counting(folder: &Path, status: &Value) -> Plugin {
        fs::write(folder.join("output"), output(status)).unwrap();
        let folder = folder.display();
        plugin(&exec(&format!("echo run >> {folder}/runs; cat {folder}/output")))
    }

    fn runs(folder: &Path) -> usize {
        fs::read_to_string(folder.join("runs")).map_or(0, |text| text.lines().count())
    }

    async fn failure(exec: &Exec) -> String {
        plugin(exec).credential().await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_plugin_runs_once_until_its_token_ends_or_is_rejected() {
        let _alone = ALONE.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let status = json!({"token": "t", "expirationTimestamp": "2126-01-01T00:00:00Z"});
        let lasting = counting(folder, &status);
        let all = futures::future::join_all((0..6).map(|_| lasting.credential())).await;
        assert!(
            all.iter().all(|it| it.as_ref().unwrap().authorization.as_ref().unwrap() == "Bearer t")
        );
        assert_eq!(runs(folder), 1);
        let mut used = lasting.credential().await.unwrap();
        lasting.rejected(&used);
        lasting.credential().await.unwrap();
        assert_eq!(runs(folder), 1, "twice within {APART:?}");
        tokio::time::sleep(APART).await;
        lasting.rejected(&used);
        used = lasting.credential().await.unwrap();
        lasting.rejected(&Credential { made: used.made - APART, ..used });
        lasting.credential().await.unwrap();
        assert_eq!(runs(folder), 2, "the rejected one was replaced already");
        forget();
        lasting.credential().await.unwrap();
        assert_eq!(runs(folder), 3);
        let status = json!({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00Z"});
        let ended = counting(folder, &status);
        forget();
        ended.credential().await.unwrap();
        ended.credential().await.unwrap();
        assert_eq!(runs(folder), 5);
    }

    #[tokio::test]
    async fn a_plugin_is_told_about_the_cluster_and_has_its_variables() {
        let _alone = ALONE.lock().await;
        let token = "printf '%s' \"$KUBERNETES_EXEC_INFO\" | tr -d '\"' | tr -d '\\n'";
        let script = format!(
            "test -t 0 && exit 1; printf '{{\"apiVersion\":\"{V1}\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"%s %s\"}}}}' \"$A\" \"$({token})\""
        );
        let mut exec = Exec { provide_cluster_info: true, ..exec(&script) };
        exec.env = vec![Variable { name: "A".into(), value: "b".into() }];
        let credential = plugin(&exec).credential().await.unwrap();
        let expected = format!(
            "Bearer b {{apiVersion:{V1},kind:ExecCredential,spec:{{cluster:{{\
             certificate-authority-data:Y2E=,config:{{a:1}},server:https://a}},interactive:false}}}}"
        );
        assert_eq!(credential.authorization.unwrap(), *expected);
        exec.provide_cluster_info = false;
        let credential = plugin(&exec).credential().await.unwrap().authorization.unwrap();
        assert!(
            credential.to_str().unwrap().ends_with("spec:{interactive:false}}"),
            "{credential:?}"
        );
    }

    #[tokio::test]
    async fn the_failure_of_a_plugin_says_why_in_short() {
        let _alone = ALONE.lock().await;
        let error = failure(&exec("echo 'first\nsecond' >&2; exit 3")).await;
        assert_eq!(error, "exec: sh failed (exit status: 3): first second");
        let error = failure(&exec("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3")).await;
        assert!(error.len() < 300, "{error}");
        let missing =
            Exec { command: "/missing".into(), install_hint: "install\nit".into(), ..exec("") };
        let error = failure(&missing).await;
        assert!(error.starts_with("exec: /missing cannot be run: No such file"), "{error}");
        assert!(error.ends_with(" install it"), "{error}");
        let error = failure(&exec("yes")).await;
        assert_eq!(error, "exec: sh: it printed more than 1 MiB");
        let error = failure(&Exec { interactive_mode: "Always".into(), ..exec("") }).await;
        assert!(io::stdin().is_terminal() || error.contains("without a terminal"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_does_not_end_is_stopped_with_its_children() {
        let _alone = ALONE.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait", path.display());
        // The time stands still until the child is there.
        let exec = exec(&script);
        let error = failure(&exec);
        let exists = async {
            while !path.exists() {
                std::thread::sleep(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        };
        let (error, ()) = futures::join!(error, exists);
        assert_eq!(error, "exec: sh ran for 60 s");
        let child = fs::read_to_string(path).unwrap().trim().to_owned();
        let mut waits = 0..2_000;
        while is_running(&child) && waits.next().is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_running(&child));
    }

    fn is_running(process: &str) -> bool {
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !(state.is_empty() || state.contains(") Z "))
    }

    #[test]
    fn what_a_plugin_prints_is_read_as_by_client_go() {
        let plugin = plugin(&exec(""));
        let read = |text: &str| plugin.read(text.as_bytes()).map_err(|fault| fault.to_string());
        let token =
            output(&json!({"token": "t", "clientKeyData": "", "expirationTimestamp": null}));
        assert_eq!(read(&token).unwrap().authorization.unwrap(), "Bearer t");
        let yaml = format!("kind: ExecCredential\napiVersion: {V1}\nstatus: {{token: t}}\nx: y\n");
        assert_eq!(read(&yaml).unwrap().authorization.unwrap(), "Bearer t");
        let pair = json!({"clientCertificateData": CERTIFICATE, "clientKeyData": KEY});
        assert!(read(&output(&pair)).unwrap().identity.is_some());
        for (text, expected) in [
            (String::new(), "expected kind ExecCredential"),
            (token.replace("ExecCredential", "Pod"), "expected kind ExecCredential"),
            (token.replace("/v1", "/v1beta1"), "expected kind ExecCredential of client.auth"),
            (token.replace("status", "state"), "status is missing"),
            (output(&json!({})), "neither a token nor a certificate"),
            (output(&json!({"token": ""})), "neither a token nor a certificate"),
            (output(&json!({"token": 1})), "status.token has another type"),
            (output(&json!({"token": "a\nb"})), "it has a character that no header can have"),
            (output(&json!({"token": "t", "expirationTimestamp": "soon"})), "is no time"),
            (output(&json!({"token": "t", "clientKeyData": KEY})), "a certificate needs a key"),
            (
                output(&json!({"clientCertificateData": CERTIFICATE, "clientKeyData": "x"})),
                "no private key",
            ),
            ("{".to_owned(), "output of exec: line "),
        ] {
            match read(&text) {
                Err(error) => assert!(error.contains(expected), "{text}: {error}"),
                Ok(credential) => panic!("{text}: {credential:?}"),
            }
        }
    }
}
