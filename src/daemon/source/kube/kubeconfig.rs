//! A kubeconfig, read as client-go reads it.
//!
//! An empty string, an empty list and null are the same as an absent field. Fields of other names
//! have no meaning.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use base64::alphabet;
use base64::engine::{Engine, GeneralPurpose, GeneralPurposeConfig};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::yaml;

/// What is wrong with a part of the settings.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {problem}")]
pub(super) struct Fault {
    what: String,
    problem: String,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>, problem: impl Display) -> Self {
        Self { what: what.into(), problem: problem.to_string() }
    }
}

/// Bytes, in base64 in the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Base64(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const LENIENT: GeneralPurposeConfig =
            GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
        let mut text = String::deserialize(deserializer)?;
        text.retain(|letter| letter != '\r' && letter != '\n');
        let bytes = GeneralPurpose::new(&alphabet::STANDARD, LENIENT).decode(text);
        bytes.map(Self).map_err(|_| D::Error::custom("expected base64"))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Kubeconfig {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
    current_context: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: ContextOf,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextOf {
    cluster: String,
    user: String,
}

/// How to reach an API server.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) tls_server_name: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: Base64,
    pub(super) proxy_url: String,
    pub(super) disable_compression: bool,
    pub(super) extensions: Vec<Extension>,
}

/// Base64 of another program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Value,
}

/// Credentials of a client.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: Base64,
    pub(super) client_key: String,
    pub(super) client_key_data: Base64,
    pub(super) token: String,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: String,
    pub(super) username: String,
    pub(super) password: String,
    #[serde(flatten)]
    pub(super) impersonated: Impersonated,
    pub(super) auth_provider: Option<Value>,
    pub(super) exec: Option<Exec>,
}

/// Another user, whose permissions requests have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Impersonated {
    #[serde(rename = "as")]
    pub(super) name: String,
    #[serde(rename = "as-uid")]
    pub(super) uid: String,
    #[serde(rename = "as-groups")]
    pub(super) groups: Vec<String>,
    #[serde(rename = "as-user-extra")]
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// A credential plugin.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) api_version: String,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

/// A variable of the environment of a credential plugin.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

/// Cluster and user of the current context, with the paths of files from the kubeconfig's folder.
#[derive(Debug, Default)]
pub(super) struct Selected {
    pub(super) cluster_name: String,
    /// `None` if the context names none, or one that does not exist.
    pub(super) cluster: Option<Cluster>,
    pub(super) user_name: String,
    pub(super) user: User,
}

impl Selected {
    /// Reads a kubeconfig of this folder.
    ///
    /// # Errors
    /// It is no kubeconfig.
    pub(super) fn parse(bytes: &[u8], folder: &Path) -> Result<Self, Fault> {
        let text = str::from_utf8(bytes).map_err(|error| Fault::new("its text", error))?;
        let documents = yaml::parse(text.trim_start_matches('\u{feff}'))
            .map_err(|error| Fault::new("its text", error))?;
        let value = documents.into_iter().next().map_or(Value::Null, |document| document.value);
        let file: Option<Kubeconfig> = serde_path_to_error::deserialize(without_nulls(value))
            .map_err(|error| {
                let (path, problem) = (error.path().to_string(), error.into_inner().to_string());
                // What is found there may be a password.
                let expected = problem.split_once("expected ").map_or(&*problem, |(_, it)| it);
                let path = if path == "." { "its text" } else { &path };
                Fault::new(path, format!("expected {expected}"))
            })?;
        file.unwrap_or_default().select(folder)
    }

    /// Returns the files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let user = &self.user;
        let authority = self.cluster.as_ref().map(|cluster| &cluster.certificate_authority);
        let of_user = [&user.client_certificate, &user.client_key, &user.token_file];
        let named = authority.into_iter().chain(of_user).filter(|path| !path.is_empty());
        named.map(PathBuf::from)
    }
}

impl Kubeconfig {
    fn select(self, folder: &Path) -> Result<Selected, Fault> {
        if !["", "Config"].contains(&&*self.kind) {
            return Err(Fault::new("kind", "expected Config"));
        }
        if !["", "v1"].contains(&&*self.api_version) {
            return Err(Fault::new("apiVersion", "expected v1"));
        }
        let contexts = self.contexts.into_iter().map(|it| (it.name, it.context));
        let contexts = by_name("contexts", contexts)?;
        let clusters = self.clusters.into_iter().map(|it| (it.name, it.cluster));
        let mut clusters = by_name("clusters", clusters)?;
        let users = self.users.into_iter().map(|it| (it.name, it.user));
        let mut users = by_name("users", users)?;
        let current = contexts.get(&self.current_context);
        if current.is_none() && !self.current_context.is_empty() {
            let problem = format!("contexts has no {:?}", self.current_context);
            return Err(Fault::new("current-context", problem));
        }
        let named =
            |name: fn(&ContextOf) -> &String| current.map(name).cloned().unwrap_or_default();
        let (cluster_name, user_name) = (named(|it| &it.cluster), named(|it| &it.user));
        let mut cluster = clusters.remove(&cluster_name);
        let mut user = users.remove(&user_name).unwrap_or_default();
        let resolve = |path: &mut String| {
            if !path.is_empty() {
                *path = folder.join(&*path).to_string_lossy().into_owned();
            }
        };
        cluster.iter_mut().for_each(|cluster| resolve(&mut cluster.certificate_authority));
        let of_user = [&mut user.client_certificate, &mut user.client_key, &mut user.token_file];
        of_user.into_iter().for_each(resolve);
        // Other commands are searched in `PATH`.
        let command = user.exec.as_mut().map(|exec| &mut exec.command);
        command.filter(|command| command.contains('/')).map(resolve);
        Ok(Selected { cluster_name, cluster, user_name, user })
    }
}

/// Returns the entries of a list by name.
fn by_name<T>(
    list: &str,
    entries: impl Iterator<Item = (String, T)>,
) -> Result<BTreeMap<String, T>, Fault> {
    let mut named = BTreeMap::new();
    for (name, content) in entries {
        let problem = format!("two have the name {name:?}");
        if named.insert(name, content).is_some() {
            return Err(Fault::new(list, problem));
        }
    }
    Ok(named)
}

/// Removes fields that are null.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}
