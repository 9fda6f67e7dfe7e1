//! A Service in a network namespace, without a cluster and without root.
//!
//! Shows the steps of a test of another project: apply objects as text, connect through the
//! Service, change it once. `cargo run --example in_namespace` runs it and needs `ip` of iproute2.
//! docs/testing.md has the same without Rust.

#![allow(clippy::print_stdout)] // The program prints its result.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use daemon::converge::converge;
use daemon::source::files::ManifestReader;
use engine::Engine;
use engine::routing::Routing;
use measure::bench::enter_own;
use nft::TableFlags;
use nft::kernel::Nftables;

const SERVICE: &str = "10.96.0.10:80";
const ENDPOINTS: [&str; 2] = ["10.244.1.5", "10.244.1.6"];

/// A Service and its EndpointSlice with one endpoint.
fn objects(endpoint: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec:
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports: [{{name: http, protocol: TCP, port: 80, targetPort: 8080}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  namespace: default
  labels: {{kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{{name: http, protocol: TCP, port: 8080}}]
endpoints: [{{addresses: [{endpoint}], nodeName: node-1, conditions: {{ready: true}}}}]
"
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    // Before any thread starts. From here on no packet reaches the machine's network.
    enter_own()?;
    ip("link set lo up")?;
    for address in ENDPOINTS {
        ip(&format!("address add {address}/32 dev lo"))?;
        serve(address)?;
    }
    // Routing comes before the translation of the destination, so the service range needs a route.
    ip("route add 10.96.0.0/16 dev lo")?;

    let mut kernel = Nftables::open()?;
    let mut engine = Engine::new(Routing::default(), TableFlags::default());
    let mut reader = ManifestReader::new("node-1");
    for endpoint in ENDPOINTS {
        let text = objects(endpoint).into_bytes();
        let update = reader.update([(PathBuf::from("web.yaml"), Ok(text))]);
        if let Some(problem) = update.problems.first() {
            return Err(problem.to_string().into());
        }
        engine.apply(update.events);
        let mut in_kernel = Duration::ZERO;
        converge(&mut engine, &mut kernel, &mut |_, committed| in_kernel += committed.kernel_time)?;
        if let Some(problem) = engine.take_problems().first() {
            return Err(problem.to_string().into());
        }
        let answer = connect()?;
        println!("{SERVICE} reached {answer}; the kernel took {in_kernel:?}");
        if answer != endpoint {
            return Err(format!("expected {endpoint} to answer").into());
        }
    }
    Ok(())
}

/// Runs `ip` of iproute2 in the current namespace.
fn ip(arguments: &str) -> Result<(), Box<dyn Error>> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments}: {status}").into()) }
}

/// Starts a server that answers each connection with `address`.
fn serve(address: &'static str) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind((address, 8080))?;
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The client may have closed the connection.
            let _ = stream.write_all(address.as_bytes());
        }
    });
    Ok(())
}

/// Connects to the Service and returns the endpoint that answered.
fn connect() -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect_timeout(&SERVICE.parse()?, Duration::from_secs(5))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
