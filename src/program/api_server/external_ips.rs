//! The Services of a cluster that use `externalIPs`, which Kubernetes plans to remove.

use daemon::config::Source;
use daemon::source::kube::{RestClient, RestError};
use engine::printable::Printable;
use serde_json::Value;

use super::server::server_of;
use crate::failure::Failure;
use crate::threads;

/// Services in an answer, at most.
const PAGE: usize = 500;

/// Answers, at most: a server that always has more does not hold the command for ever.
const PAGES: usize = 10_000;

/// Returns a line for each Service with external IPs.
///
/// # Errors
/// The source is no API server, or it does not list the Services.
pub(crate) fn users_of_external_ips(source: &Source) -> Result<Vec<String>, Failure> {
    let server = server_of(source)?;
    server.check().map_err(Failure::new)?;
    let runtime = threads::runtime(1, 0)?;
    let listed = runtime.block_on(async {
        let rest = RestClient::load(&server).await.map_err(Failure::new)?;
        list(&rest).await.map_err(Failure::new)
    });
    Ok(listed?.into_iter().map(|name| line(&name)).collect())
}

async fn list(rest: &RestClient) -> Result<Vec<String>, RestError> {
    let (mut names, mut next) = (Vec::new(), String::new());
    for _ in 0..PAGES {
        let answer = rest.read(&format!("/api/v1/services?limit={PAGE}{next}")).await?;
        let services = answer["items"].as_array().into_iter().flatten();
        names.extend(services.filter(|it| has_external_ips(it)).map(name));
        match answer["metadata"]["continue"].as_str().unwrap_or_default() {
            "" => break,
            token => next = format!("&continue={token}"),
        }
    }
    Ok(names)
}

fn has_external_ips(service: &Value) -> bool {
    service["spec"]["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty())
}

fn name(service: &Value) -> String {
    let part = |key: &str| service["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}

fn line(name: &str) -> String {
    format!(
        "Service {}: spec.externalIPs: Kubernetes plans to serve them from 1.40 on (August 2027) \
         only with the gate AllowServiceExternalIPs, and to remove that with 1.46: move to load \
         balancer addresses",
        Printable(name)
    )
}
