//! The addresses of the API server. Packets to them are never dropped, whatever a ServiceCIDR says.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use engine::model::HostAddresses;
use tokio::net::lookup_host;
use tokio::sync::watch;

use super::access::Access;

/// Time between two lookups of a name.
const LOOK: Duration = Duration::from_secs(30);

/// Keeps the addresses of the server in `addresses`. After a lookup that fails, those of before stay.
/// Never returns.
pub(super) async fn follow(mut access: Access, addresses: Option<watch::Sender<HostAddresses>>) {
    let Some(addresses) = addresses else { return pending().await };
    loop {
        let server = access.server();
        if let Ok(found) = lookup_host(&*server).await {
            let mut found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            found.sort_unstable();
            found.dedup();
            addresses.send_if_modified(|known| {
                let is_new = known.api_server != found;
                known.api_server = found;
                is_new
            });
        }
        let is_name = server.parse::<SocketAddr>().is_err();
        tokio::select! {
            () = access.changed() => {}
            () = tokio::time::sleep(LOOK), if is_name => {}
        }
    }
}
