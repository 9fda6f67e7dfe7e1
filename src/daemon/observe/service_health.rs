//! Health check ports of Services (`spec.healthCheckNodePort`), through which load balancers check
//! whether this node has endpoints of the Service. Bodies and headers are those of kube-proxy.
//!
//! All servers are tasks, and share the limits of connections.

use std::collections::BTreeMap;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use engine::model::Problem;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use hyper::{Request, Response, StatusCode};
use nft::family::Family;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::debug;

use super::closed_ports::ClosedPorts;
use super::connections::Connections;
use super::health_checks::ClosedPort;
use super::hub::Observe;
use super::response::{JSON, text};
use super::server::{BIND_RETRY, is_absent, listen, listen_until, serve_with};
use super::shares::Shares;
use super::times::now;

/// Serves the health check ports as they change, and never returns. A port that cannot be opened is
/// sent to `notify` once, and retried every 5 seconds. One above the share of the open files is also
/// sent once, and opened when another one closes.
pub async fn serve_health_checks(
    observe: Observe,
    shares: Shares,
    notify: impl Fn(Problem) + Send + Sync + 'static,
) {
    let closed = ClosedPorts::of_health_checks(observe.clone(), notify);
    let connections = Arc::new(Mutex::new(Connections::within(shares.open_files)));
    let mut servers = BTreeMap::<SocketAddr, (Arc<str>, JoinHandle<()>)>::new();
    loop {
        let (sockets, contested) = observe.health_checks().sockets();
        let unwanted: Vec<_> = servers
            .extract_if(.., |socket, (service, _)| sockets.get(socket) != Some(service))
            .collect();
        for (_, (_, server)) in unwanted {
            server.abort();
            // The socket is closed only when the task has ended.
            let _ = server.await;
        }
        closed.retain(|service, port| observe.health_checks().has(service, port));
        let new = sockets.into_iter().filter(|(socket, _)| !servers.contains_key(socket));
        let (opened, unopened) = within_share(by_service(new), servers.len(), shares);
        for (service, port, error) in contested.into_iter().chain(unopened) {
            closed.closed(&service, port, &error);
        }
        for (socket, service) in opened {
            let (observe, closed) = (observe.clone(), closed.clone());
            let (of, connections) = (Arc::clone(&service), Arc::clone(&connections));
            let server = Server { observe, closed, service: of, socket, connections };
            servers.insert(socket, (service, tokio::spawn(server.run())));
        }
        observe.health_checks().changed().await;
    }
}

/// Groups sockets by their service.
fn by_service(
    sockets: impl Iterator<Item = (SocketAddr, Arc<str>)>,
) -> BTreeMap<Arc<str>, Vec<SocketAddr>> {
    let mut services = BTreeMap::<_, Vec<_>>::new();
    sockets.for_each(|(socket, service)| services.entry(service).or_default().push(socket));
    services
}

/// Returns the sockets to open beside `open` others, and the ports that stay closed because the
/// share of the open files is used up. All sockets of a service are opened, or none.
fn within_share(
    services: BTreeMap<Arc<str>, Vec<SocketAddr>>,
    mut open: usize,
    shares: Shares,
) -> (Vec<(SocketAddr, Arc<str>)>, Vec<ClosedPort>) {
    let Shares { open_files, health_check_sockets: share, .. } = shares;
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    for (service, sockets) in services {
        if open + sockets.len() <= share {
            open += sockets.len();
            opened.extend(sockets.into_iter().map(|socket| (socket, Arc::clone(&service))));
        } else if let Some(socket) = sockets.first() {
            let why = format!("the limit of {open_files} open files allows {share} such sockets");
            let (port, error) = (socket.port(), io::Error::other(why));
            closed.push((service, port, error));
        }
    }
    (opened, closed)
}

/// A socket of a service.
struct Server {
    observe: Observe,
    closed: ClosedPorts,
    service: Arc<str>,
    socket: SocketAddr,
    connections: Arc<Mutex<Connections>>,
}

impl Server {
    async fn run(self) {
        let listener = self.listen().await;
        self.closed.solved(&self.service, self.socket.port());
        let Self { observe, service, .. } = self;
        let respond = move |_: &Request<Incoming>, local| ready(respond(&observe, &service, local));
        serve_with(listener, &self.connections, respond).await;
    }

    async fn listen(&self) -> TcpListener {
        let failed = |error: io::Error| {
            if is_absent(&error) {
                // The node lacks this address at present, or IPv6.
                debug!(socket = %self.socket, %error);
            } else {
                self.closed.closed(&self.service, self.socket.port(), &error);
            }
        };
        listen_until(BIND_RETRY, || listen(self.socket, true), failed).await
    }
}

/// Returns the answer to any request at this address of the node.
fn respond(observe: &Observe, service: &str, local: IpAddr) -> Response<Full<Bytes>> {
    let count = observe.health_checks().local_endpoints(service, Family::of(local));
    let healthy = observe.shared.health.lock().verdict(now()).healthy();
    let (namespace, name) = service.split_once('/').unwrap_or_default();
    // No character of these names needs an escape of JSON.
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\
         \t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {healthy}\n}}"
    );
    let status =
        if count > 0 && healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = text(status, JSON, body);
    let weight = HeaderValue::from(count);
    response.headers_mut().insert("X-Load-Balancing-Endpoint-Weight", weight);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sockets_of_a_service_fit_into_the_share_or_its_port_stays_closed() {
        let socket = |last: u8, port| SocketAddr::new([10, 0, 0, last].into(), port);
        let services = [("a/a", 1), ("a/b", 2), ("a/c", 3)];
        let sockets = services.iter().flat_map(|(service, port)| {
            [1, 2].map(|last| (socket(last, *port), Arc::<str>::from(*service)))
        });
        // 12 sockets of health checks, see `Shares`.
        let (opened, closed) = within_share(by_service(sockets), 9, Shares::of(64));
        let opened: Vec<_> = opened.into_iter().map(|(socket, _)| socket).collect();
        assert_eq!(opened, [socket(1, 1), socket(2, 1)]);
        let closed: Vec<_> = closed.iter().map(|it| (&*it.0, it.1, it.2.to_string())).collect();
        let why = || "the limit of 64 open files allows 12 such sockets".to_owned();
        assert_eq!(closed, [("a/b", 2, why()), ("a/c", 3, why())]);
    }
}
