//! Certificate authorities, for servers with TLS and their clients.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::{
    NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier,
};
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// An authority that signs certificates of servers and of clients.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// An authority like no other.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, key).expect("the parameters are valid"))
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate of a client.
    pub fn client(&self) -> Identity {
        let (certificate, key) = self.sign(ExtendedKeyUsagePurpose::ClientAuth);
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Accepts connections with a new certificate of 127.0.0.1, from all clients or from those with
    /// a certificate of `clients`.
    pub(super) fn acceptor(&self, clients: Option<&Self>) -> TlsAcceptor {
        let (certificate, key) = self.sign(ExtendedKeyUsagePurpose::ServerAuth);
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
        let verifier: Arc<dyn ClientCertVerifier> = match clients {
            None => Arc::new(NoClientAuth),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.0.der().clone()).expect("it is a certificate");
                WebPkiClientVerifier::builder(roots.into()).build().expect("there is a root")
            }
        };
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("the key is the certificate's");
        Arc::new(config).into()
    }

    fn sign(&self, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params =
            CertificateParams::new(["127.0.0.1".to_owned()]).expect("an address is a name");
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.0).expect("the parameters are valid");
        (certificate, key)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
