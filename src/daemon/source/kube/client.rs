//! Credentials and the client of the API server.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::Config;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tower::{BoxError, Service, service_fn};

use super::kubeconfig::Selected;
use super::plugin::Plugin;
use super::request_counts::{CountedBody, OnRequest, RequestCount};
use super::route::Route;
use super::settings::{SERVICE, Settings};
use super::source_error::{SourceError, causes};
use super::tls::Connectors;
use super::url::usual_port;
use crate::named_file::{self, LONGEST};

/// Time limit of a TCP connection and its TLS handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// Longest time of a write of a request.
const WRITE: Duration = Duration::from_secs(295);

/// Most bytes of an answer that are read at once, and of its headers. A watch keeps the buffer.
const READ_BUFFER: usize = 64 << 10;

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
            Self::InCluster if std::env::var_os(SERVICE[0]).is_none() => Err(SourceError::Nowhere),
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
    let settings = settings(server)?;
    let (url, address) = (settings.server.clone(), host_and_port(&settings.server));
    let service = service(settings, listener).await.map_err(|error| server.unusable(&*error))?;
    let client = ClientBuilder::new(service, "default");
    let client = client.with_layer(&Config::new(url).base_uri_layer()).build();
    Ok(Connected { client, server: address, loaded_at: Instant::now() })
}

/// Reads address and credentials.
fn settings(server: &ApiServer) -> Result<Settings, SourceError> {
    let settings = match server {
        ApiServer::Kubeconfig { path, server: address } => {
            let bytes = named_file::read(path, LONGEST).map_err(|error| {
                // The kubeconfig itself, not a file to which it refers.
                if error.kind() == ErrorKind::NotFound {
                    return SourceError::KubeconfigMissing(path.clone());
                }
                server.unusable(&error)
            })?;
            Selected::parse(&bytes, folder(path))
                .and_then(|selected| Settings::of_kubeconfig(selected, address.as_deref()))
        }
        ApiServer::Anonymous(address) => Settings::anonymous(address),
        ApiServer::InCluster => Settings::in_cluster(),
    };
    settings.map_err(|error| server.unusable(&error))
}

/// Returns the folder in which relative paths of a kubeconfig begin.
pub(super) fn folder(kubeconfig: &Path) -> &Path {
    kubeconfig.parent().unwrap_or(Path::new(""))
}

/// Names the program to the server, for its audit log and the managers of fields.
const NAME: HeaderValue =
    HeaderValue::from_static(concat!("deltaproxy/", env!("CARGO_PKG_VERSION")));

/// Returns a service that sends requests to the server.
async fn service(
    mut settings: Settings,
    listener: OnRequest,
) -> Result<
    impl Service<
        Request<Body>,
        Response = Response<CountedBody<Incoming>>,
        Error = BoxError,
        Future: Send,
    > + Send,
    BoxError,
> {
    if let Some(plugin) = &settings.plugin {
        plugin.credential().await?;
    }
    let host: Arc<str> = settings.server.authority().map_or("", |it| it.as_str()).into();
    let is_tls = settings.server.scheme_str() == Some("https");
    let proxy = settings.proxy.as_ref();
    if !is_tls && proxy.is_none_or(|proxy| proxy.scheme != "https") {
        // Those of the system are not read in vain.
        settings.tls.roots.get_or_insert_default();
    }
    let plugin = settings.plugin.clone().map(|plugin| Arc::new(plugin) as Arc<_>);
    let tls = Connectors::new(settings.tls, plugin)?;
    let (route, authorization) = Route::new(proxy, is_tls, |tcp| tls.around(tcp));
    settings.headers.extend(authorization.map(|value| (PROXY_AUTHORIZATION, value)));
    settings.headers.insert(USER_AGENT, NAME);
    let mut connector = TimeoutConnector::new(tls.around(route));
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_write_timeout(Some(WRITE));
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    let client = builder.http1_max_buf_size(READ_BUFFER).build(connector);
    let credentials = Arc::new((settings.headers, settings.plugin));
    Ok(service_fn(move |request: Request<Body>| {
        let (client, credentials) = (client.clone(), Arc::clone(&credentials));
        let count = RequestCount::of(&request, &host, &listener);
        let size = request.body().size_hint().exact().unwrap_or_default();
        async move { count.answered(size, send(&client, &credentials, request).await) }
    }))
}

/// Adds the credentials to a request, and sends it.
async fn send(
    client: &legacy::Client<TimeoutConnector<HttpsConnector<Route>>, Body>,
    (headers, plugin): &(HeaderMap, Option<Plugin>),
    mut request: Request<Body>,
) -> Result<Response<Incoming>, BoxError> {
    request.headers_mut().extend(headers.clone());
    let Some(plugin) = plugin else { return Ok(client.request(request).await?) };
    let used = plugin.credential().await?;
    let authorization = used.authorization.clone().map(|value| (AUTHORIZATION, value));
    request.headers_mut().extend(authorization);
    let answer = client.request(request).await?;
    if answer.status() == StatusCode::UNAUTHORIZED {
        plugin.rejected(&used);
    }
    Ok(answer)
}

/// Returns host and port of a URL, whose port may be that of its scheme.
fn host_and_port(url: &Uri) -> Arc<str> {
    let port = url.port_u16().unwrap_or_else(|| usual_port(url.scheme_str().unwrap_or_default()));
    format!("{}:{port}", url.host().unwrap_or_default()).into()
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
