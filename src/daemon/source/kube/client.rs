//! Credentials and the client of the API server.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::config::{Config, KubeConfigOptions, KubeconfigError};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tower::util::MapRequestLayer;

use super::error::{SourceError, causes};
use super::kubeconfig::{IN_CLUSTER, check, named_files, read_kubeconfig};
use super::requests::{OnRequest, Report};
use crate::named_file::{self, LONGEST};

/// Time limit of a TCP connection and its TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// Environment variable that the kubelet sets in every container.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// Location of the API server's address and of our credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServer {
    /// The current context of a kubeconfig file.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Address that replaces the one in the file.
        server: Option<String>,
    },
    /// This address, without credentials.
    Anonymous(String),
    /// The service account of a pod.
    InCluster,
}

impl ApiServer {
    /// Returns the API server of a kubeconfig file.
    pub fn of_kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self::Kubeconfig { path: path.into(), server: None }
    }

    /// Checks that an API server is given. Files are read later and may be created later.
    ///
    /// # Errors
    /// [`SourceError::Nowhere`] outside a pod.
    pub fn check(&self) -> Result<(), SourceError> {
        match self {
            Self::InCluster if std::env::var_os(SERVICE_HOST).is_none() => {
                Err(SourceError::Nowhere)
            }
            Self::InCluster | Self::Kubeconfig { .. } | Self::Anonymous(_) => Ok(()),
        }
    }

    /// Returns the error for an address or credentials that cannot be used.
    pub(super) fn unusable(&self, error: &dyn std::error::Error) -> SourceError {
        let message = causes(error);
        match self.clone() {
            Self::Kubeconfig { path, .. } => SourceError::KubeconfigInvalid { path, message },
            Self::Anonymous(url) => SourceError::AddressInvalid { url, message },
            Self::InCluster => SourceError::NotInCluster(message),
        }
    }
}

/// Loads address and credentials. Does not connect: an unreachable server is no error here. The
/// client reports its requests to `listener`. Must be called in a tokio runtime.
///
/// # Errors
/// [`SourceError::KubeconfigMissing`], [`SourceError::KubeconfigInvalid`],
/// [`SourceError::NotInCluster`], [`SourceError::AddressInvalid`].
pub async fn load_client(server: &ApiServer, listener: OnRequest) -> Result<Client, SourceError> {
    Ok(load(server, listener).await?.client)
}

/// A client, and the server that it uses.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) client: Client,
    /// Host and port.
    pub(super) server: Arc<str>,
    pub(super) loaded_at: Instant,
}

/// A client that is being loaded.
pub(super) type Loading = JoinHandle<Result<Connected, SourceError>>;

/// Does the same as [`load_client`], and returns the server too.
pub(super) async fn load(
    server: &ApiServer,
    listener: OnRequest,
) -> Result<Connected, SourceError> {
    start_load(server, listener).await.unwrap_or_else(|error| Err(server.unusable(&error)))
}

/// Starts to load a client on a thread for blocking calls: this reads files, which may be pipes, and
/// may run a credential plugin.
pub(super) fn start_load(server: &ApiServer, listener: OnRequest) -> Loading {
    let (server, runtime) = (server.clone(), Handle::current());
    spawn_blocking(move || runtime.block_on(load_here(&server, listener)))
}

async fn load_here(server: &ApiServer, listener: OnRequest) -> Result<Connected, SourceError> {
    let mut config = match server {
        ApiServer::Kubeconfig { path, server: address } => {
            let mut config = from_kubeconfig(path).await.map_err(|error| {
                // The kubeconfig itself, not a file to which it refers.
                if let KubeconfigError::ReadConfig(cause, _) = &error
                    && cause.kind() == ErrorKind::NotFound
                {
                    return SourceError::KubeconfigMissing(path.clone());
                }
                server.unusable(&error)
            })?;
            if let Some(address) = address {
                let scheme = config.cluster_url.scheme_str().unwrap_or("http");
                config.cluster_url = url(address, scheme)?;
            }
            config
        }
        ApiServer::Anonymous(address) => Config::new(url(address, "http")?),
        ApiServer::InCluster => {
            let files = IN_CLUSTER.map(PathBuf::from);
            check(&files).map_err(|error| server.unusable(&error))?;
            Config::incluster().map_err(|error| server.unusable(&error))?
        }
    };
    read_token(&mut config).map_err(|error| server.unusable(&error))?;
    config.connect_timeout = Some(CONNECT);
    // Disabled because our own backoff retries and reports.
    config.default_retry = false;
    let host = config.cluster_url.authority().map_or("", |authority| authority.as_str()).into();
    let address = host_and_port(&config.cluster_url);
    let client = ClientBuilder::try_from(config).map_err(|error| server.unusable(&error))?;
    let client = client.with_layer(&MapRequestLayer::new(name_program));
    let client = client.with_layer(&Report { host, listener }).build();
    Ok(Connected { client, server: address, loaded_at: Instant::now() })
}

/// Names the program to the server, for its audit log and the managers of fields.
fn name_program(mut request: Request<Body>) -> Request<Body> {
    const NAME: HeaderValue =
        HeaderValue::from_static(concat!("deltaproxy/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().insert(USER_AGENT, NAME);
    request
}

/// Parses the URL of an address, with this scheme if it has none.
fn url(address: &str, scheme: &str) -> Result<Uri, SourceError> {
    let has_scheme = address.contains("://");
    let url = if has_scheme { address.parse() } else { format!("{scheme}://{address}").parse() };
    url.map_err(|error| ApiServer::Anonymous(address.to_owned()).unusable(&error))
}

/// Returns host and port of a URL, whose port may be that of its scheme.
fn host_and_port(url: &Uri) -> Arc<str> {
    let usual = if url.scheme_str() == Some("http") { 80 } else { 443 };
    format!("{}:{}", url.host().unwrap_or_default(), url.port_u16().unwrap_or(usual)).into()
}

/// Reads the token now. The library would read it again while a request waits; the source loads
/// another client when the file changes.
fn read_token(config: &mut Config) -> io::Result<()> {
    let Some(path) = config.auth_info.token_file.take() else { return Ok(()) };
    let named = |error| io::Error::other(format!("{path}: {error}"));
    let token = named_file::read(Path::new(&path), LONGEST).map_err(named)?;
    config.auth_info.token = Some(String::from_utf8_lossy(&token).trim().to_owned().into());
    Ok(())
}

async fn from_kubeconfig(path: &Path) -> Result<Config, KubeconfigError> {
    let mut kubeconfig = read_kubeconfig(path)?;
    let unreadable = |error| KubeconfigError::ReadConfig(error, path.to_owned());
    check(&named_files(&mut kubeconfig)).map_err(unreadable)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_a_port_has_that_of_its_scheme() {
        for (url, expected) in [
            ("https://api.example.com", "api.example.com:443"),
            ("http://10.0.0.1/prefix", "10.0.0.1:80"),
            ("https://[fd00::1]:6443", "[fd00::1]:6443"),
        ] {
            assert_eq!(&*host_and_port(&url.parse().unwrap()), expected);
        }
    }
}
