//! The probe's objects in the cluster, and their removal.

use std::net::IpAddr;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::source::kube::{RestClient, RestError};
use nft::family::Family;
use serde_json::Value;
use tokio::runtime::Handle;

use super::error::ProbeError;
use super::objects::{
    self, LABEL, NAME, NAMESPACES, NODE, namespace_path, service_path, services_path, slice_path,
    slices_path,
};
use super::settings::Protocol;

/// The namespace that may still exist, if any. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Left(Arc<Mutex<Option<String>>>);

impl Left {
    /// Returns its name.
    pub fn name(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, name: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }
}

/// A namespace with the probe's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Name of the namespace.
    pub namespace: String,
    /// Name of the node of the probe that created it.
    pub node: String,
}

/// The cluster, and the probe's objects in it.
pub struct Testbed {
    pub(super) rest: RestClient,
    pub(super) runtime: Handle,
    /// Name of this node.
    pub(super) node: String,
    namespace: String,
    left: Left,
}

impl Testbed {
    /// Creates a testbed without objects, for the probe of this node.
    pub fn new(rest: RestClient, runtime: Handle, node: String) -> Self {
        let number = jiff::Timestamp::now().as_nanosecond() / 1_000 % 0x1_0000_0000;
        let namespace = format!("{NAME}-{number:08x}-{:x}", process::id());
        Self { rest, runtime, node, namespace, left: Left::default() }
    }

    /// Returns the namespace that may still exist.
    pub fn left(&self) -> Left {
        self.left.clone()
    }

    /// Lists the probe's namespaces, including that of this run.
    ///
    /// # Errors
    /// The request fails.
    pub fn leftovers(&self) -> Result<Vec<Leftover>, ProbeError> {
        let path = format!("{NAMESPACES}?labelSelector={}%3D{NAME}", LABEL.replace('/', "%2F"));
        let list = self.runtime.block_on(self.rest.read(&path))?;
        let items = list["items"].as_array().into_iter().flatten();
        Ok(items.filter_map(leftover).collect())
    }

    /// Deletes a namespace of the probe and its objects.
    ///
    /// # Errors
    /// The namespace cannot be deleted.
    pub fn delete(&self, namespace: &str) -> Result<(), ProbeError> {
        let (rest, runtime) = (&self.rest, &self.runtime);
        // The server deletes them with the namespace too, but later.
        for path in [slice_path(namespace), service_path(namespace)] {
            let _ = runtime.block_on(rest.delete(&path));
        }
        runtime.block_on(rest.delete(&namespace_path(namespace)))?;
        Ok(())
    }

    /// Deletes the objects of this run, if any.
    ///
    /// # Errors
    /// The namespace cannot be deleted.
    pub fn clean_up(&self) -> Result<(), ProbeError> {
        if let Some(namespace) = self.left.name() {
            self.delete(&namespace)?;
            self.left.set(None);
        }
        Ok(())
    }

    /// Returns the name of the namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns this machine's Node object; `None` without permission to read it.
    ///
    /// # Errors
    /// The server has no such Node, or does not answer.
    pub(super) fn read_node(&self) -> Result<Option<Value>, RestError> {
        let path = format!("/api/v1/nodes/{}", self.node);
        match self.runtime.block_on(self.rest.read(&path)) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.is_forbidden() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create_namespace(&self) -> Result<(), ProbeError> {
        // Even without an answer the namespace may exist.
        self.left.set(Some(self.namespace.clone()));
        let object = objects::namespace(&self.namespace, &self.node);
        let created = self.runtime.block_on(self.rest.create(NAMESPACES, &object));
        if created.as_ref().is_err_and(RestError::is_refusal) {
            self.left.set(None);
        }
        created?;
        Ok(())
    }

    /// Creates the Service. Returns its ClusterIP.
    pub(super) fn create_service(
        &self,
        protocol: Protocol,
        family: Option<Family>,
    ) -> Result<IpAddr, ProbeError> {
        let object = objects::service(&self.namespace, protocol, family);
        let path = services_path(&self.namespace);
        let created = self.runtime.block_on(self.rest.create(&path, &object))?;
        objects::cluster_ip(&created).ok_or_else(|| ProbeError::Answer {
            request: "a new Service",
            field: "spec.clusterIP",
            found: created["spec"]["clusterIP"].to_string(),
        })
    }

    /// Creates the EndpointSlice. Returns its resource version.
    pub(super) fn create_slice(&self, slice: &Value) -> Result<String, ProbeError> {
        let path = slices_path(&self.namespace);
        let created = self.runtime.block_on(self.rest.create(&path, slice))?;
        version(&created)
    }
}

/// Returns the resource version of an EndpointSlice from the server.
pub(super) fn version(slice: &Value) -> Result<String, ProbeError> {
    let version = objects::version(slice).map(str::to_owned);
    version.ok_or_else(|| ProbeError::Answer {
        request: "an EndpointSlice",
        field: "metadata.resourceVersion",
        found: slice["metadata"]["resourceVersion"].to_string(),
    })
}

/// Parses a namespace; `None` while it is being deleted.
fn leftover(namespace: &Value) -> Option<Leftover> {
    let metadata = &namespace["metadata"];
    let name = metadata["name"].as_str()?.to_owned();
    let node = metadata["annotations"][NODE].as_str().unwrap_or_default().to_owned();
    metadata["deletionTimestamp"].is_null().then_some(Leftover { namespace: name, node })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_that_is_being_deleted_is_no_leftover() {
        let mut namespace = objects::namespace("a", "node1");
        let expected = Leftover { namespace: "a".into(), node: "node1".into() };
        assert_eq!(leftover(&namespace), Some(expected));
        namespace["metadata"]["deletionTimestamp"] = json!("2026-11-22T00:00:00Z");
        assert_eq!(leftover(&namespace), None);
    }
}
