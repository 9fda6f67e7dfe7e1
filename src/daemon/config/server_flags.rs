//! The flags of commands that send requests of their own to the API server.

use std::path::PathBuf;

use clap::Args;
use hyper::Uri;

use super::{ConfigError, Source, node_name};

/// Flags about the API server, and the name of this node.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerFlags {
    /// Kubeconfig file of the API server; without it the service account of the pod is used
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server, instead of the file's
    #[arg(long, value_name = "URL", value_parser = server)]
    pub master: Option<String>,
    /// Name of this machine's Node object, if it is not the host name
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
}

impl ServerFlags {
    /// Returns the API server, and the name of the node.
    ///
    /// # Errors
    /// The node has no name.
    pub fn load(&self) -> Result<(Source, String), ConfigError> {
        let node = node_name(self.hostname_override.as_deref())?;
        let kubeconfig = self.kubeconfig.clone();
        let source = match &self.master {
            Some(url) => Source::Server { url: url.clone(), kubeconfig },
            None => kubeconfig.map_or(Source::InCluster, Source::Kubeconfig),
        };
        Ok((source, node))
    }
}

fn server(text: &str) -> Result<String, String> {
    if is_server(text) { Ok(text.to_owned()) } else { Err(format!("expected {}", EXPECTED_SERVER)) }
}

/// The expectation of errors.
pub(super) const EXPECTED_SERVER: &str = "the URL of an API server, such as https://192.0.2.1:6443";

/// Returns whether a text is the address of an API server. As in client-go, the scheme is optional.
pub(super) fn is_server(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let Some(authority) = url.authority() else { return false };
    // An invalid port is kept in the authority, and so is a user.
    let is_plain = match authority.port_u16() {
        Some(port) => authority.as_str() == format!("{}:{port}", authority.host()),
        None => authority.as_str() == authority.host(),
    };
    let is_http = url.scheme_str().is_none_or(|scheme| matches!(scheme, "http" | "https"));
    is_plain && is_http && !authority.host().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_replaces_that_of_the_file() {
        let flags = |kubeconfig: Option<&str>, master: Option<&str>| ServerFlags {
            kubeconfig: kubeconfig.map(PathBuf::from),
            master: master.map(str::to_owned),
            hostname_override: Some("Node1".to_owned()),
        };
        let load = |kubeconfig, master| flags(kubeconfig, master).load().unwrap();
        assert_eq!(load(None, None), (Source::InCluster, "node1".to_owned()));
        assert_eq!(load(Some("/k"), None).0, Source::Kubeconfig("/k".into()));
        let (url, kubeconfig) = ("http://a:1".to_owned(), Some("/k".into()));
        assert_eq!(load(Some("/k"), Some("http://a:1")).0, Source::Server { url, kubeconfig });
        assert!(server("/x").unwrap_err().contains("https://192.0.2.1:6443"));
    }

    #[test]
    fn urls_and_addresses_without_scheme_are_accepted() {
        for text in ["https://a:6443", "http://[fd00::1]:80/x", "192.0.2.1:8080", "server"] {
            assert!(is_server(text), "{text}");
        }
        for text in ["", "/path", "ftp://a", "https://", "a b", "http://a:99999", "u@a", "https//a"]
        {
            assert!(!is_server(text), "{text}");
        }
    }
}
