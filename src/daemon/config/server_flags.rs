//! The flags of commands that send requests of their own to the API server.

use std::path::PathBuf;

use clap::Args;

use super::{ConfigError, Source, node_name, server_url};

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
    if server_url::is_valid(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected {}", server_url::EXPECTED))
    }
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
}
