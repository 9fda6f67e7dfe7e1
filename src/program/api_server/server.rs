//! The API server of a source.

use daemon::config::{Config, Source};
use daemon::source::kube::{ApiServer, Formats};

use crate::failure::Failure;

/// Checks that a source that is not a path of manifests gives an API server.
///
/// # Errors
/// The service account of a pod is to be used outside a pod.
pub(crate) fn check(source: &Source) -> Result<(), Failure> {
    if matches!(source, Source::Manifests(_)) {
        return Ok(());
    }
    server_of(source)?.check().map_err(Failure::new)
}

/// Returns the API server of a source.
///
/// # Errors
/// The source is a path of manifests.
pub(crate) fn server_of(source: &Source) -> Result<ApiServer, Failure> {
    match source {
        Source::Manifests(path) => {
            let path = path.display();
            Err(Failure::new(format!("this needs an API server, not the manifests of {path}")))
        }
        Source::Kubeconfig(path) => Ok(ApiServer::of_kubeconfig(path)),
        Source::InCluster => Ok(ApiServer::InCluster),
        Source::Server { url, kubeconfig: Some(path) } => {
            Ok(ApiServer::Kubeconfig { path: path.clone(), server: Some(url.clone()) })
        }
        Source::Server { url, kubeconfig: None } => Ok(ApiServer::Anonymous(url.clone())),
    }
}

/// Returns the formats in which objects are requested.
pub(crate) fn formats_of(config: &Config) -> Formats {
    if config.content_types.are_json() { Formats::Json } else { Formats::Any }
}
