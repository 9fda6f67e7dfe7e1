//! TLS with the API server, with the rules of Go for certificates.

use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, verify_server_cert_signed_by_trust_anchor, verify_server_name,
};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use rustls_native_certs::load_native_certs;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::db::rfc5280::{ANY_EXTENDED_KEY_USAGE, ID_KP_SERVER_AUTH};
use x509_cert::ext::pkix::ExtendedKeyUsage;

use super::kubeconfig::Fault;
use super::p521::PROVIDER;

/// What TLS needs.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// Certificate authorities; `None` for those of the system.
    pub(super) roots: Option<Vec<CertificateDer<'static>>>,
    /// The server's certificate is not verified.
    pub(super) is_insecure: bool,
    /// Name of the server, in place of its host.
    pub(super) name: Option<ServerName<'static>>,
    pub(super) identity: Option<Arc<CertifiedKey>>,
}

/// Returns the certificates of a PEM file. Other parts of it have no meaning.
///
/// # Errors
/// It has none.
pub(super) fn roots(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let found = certificates(pem);
    if store(&found).is_empty() {
        return Err(Fault::new(what, "expected a certificate in PEM"));
    }
    Ok(found)
}

/// Returns a client's certificate with its key, both from PEM.
///
/// # Errors
/// One is missing, or they do not belong together.
pub(super) fn identity(
    what: &str,
    certificate: &[u8],
    key: &[u8],
) -> Result<Arc<CertifiedKey>, Fault> {
    let chain = certificates(certificate);
    if chain.is_empty() {
        return Err(Fault::new(what, "expected a certificate in PEM"));
    }
    let key = PrivateKeyDer::pem_slice_iter(key).find_map(Result::ok);
    let key = key.ok_or_else(|| Fault::new(what, "its key is no private key in PEM"))?;
    // The name of the part may be that of another form, which Go ignores.
    let key = PrivateKeyDer::try_from(key.secret_der())
        .map_or_else(|_| key.clone_key(), |key| key.clone_key());
    let pair = CertifiedKey::from_der(chain, key, &PROVIDER);
    pair.map(Arc::new).map_err(|error| Fault::new(what, error))
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn store(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(certificates.iter().cloned());
    store
}

/// Adds TLS to connections.
pub(super) struct Connectors {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl Connectors {
    /// `other` gives a certificate of the client, if `tls` has none.
    pub(super) fn new(tls: Tls, other: Option<Arc<dyn ResolvesClientCert>>) -> Result<Self, Error> {
        let trusted = (!tls.is_insecure).then(|| {
            let trusted = tls.roots.unwrap_or_else(|| load_native_certs().certs);
            (store(&trusted), trusted)
        });
        let builder = ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier(trusted)));
        let config = match (tls.identity, other) {
            (Some(identity), _) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            (None, Some(other)) => builder.with_client_cert_resolver(other),
            (None, None) => builder.with_no_client_auth(),
        };
        Ok(Self { config: config.into(), name: tls.name })
    }

    /// Adds TLS to the connections that `inner` makes to servers with `https`.
    pub(super) fn around<T>(&self, inner: T) -> HttpsConnector<T> {
        let config = Arc::clone(&self.config);
        match &self.name {
            None => (inner, config).into(),
            Some(name) => {
                let resolver = FixedServerNameResolver::new(name.clone());
                HttpsConnector::new(inner, config, false, Arc::new(resolver))
            }
        }
    }
}

/// Verifies servers. Unlike `webpki`, Go accepts a certificate that is itself trusted, also one of an
/// authority. Without certificates, for `insecure-skip-tls-verify`, any server is accepted.
#[derive(Debug)]
struct Verifier(Option<(RootCertStore, Vec<CertificateDer<'static>>)>);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some((roots, trusted)) = &self.0 else { return Ok(ServerCertVerified::assertion()) };
        let parsed = ParsedCertificate::try_from(certificate)?;
        if trusted.contains(certificate) {
            verify_trusted(certificate, now)?;
        } else {
            let algorithms = PROVIDER.signature_verification_algorithms.all;
            let chain = intermediates;
            verify_server_cert_signed_by_trust_anchor(&parsed, roots, chain, now, algorithms)?;
        }
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.0.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &PROVIDER.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.0.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &PROVIDER.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

/// Verifies time and use of a certificate that is trusted itself.
fn verify_trusted(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let parsed = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let parsed = parsed.tbs_certificate();
    let (validity, now) = (parsed.validity(), Duration::from_secs(now.as_secs()));
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    let usage = parsed.get_extension::<ExtendedKeyUsage>();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    let is_for_servers = usage.is_none_or(|(_, usage)| {
        usage.0.iter().any(|it| [ID_KP_SERVER_AUTH, ANY_EXTENDED_KEY_USAGE].contains(it))
    });
    if is_for_servers { Ok(()) } else { Err(CertificateError::InvalidPurpose.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa,
        KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, date_time_ymd,
    };
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConnection, ServerConfig, ServerConnection};

    use super::super::p521::tests::{CERTIFICATE, KEY, SEC1};
    use super::*;

    /// A certificate and its key in PEM.
    type Pair = (String, String);

    /// Returns a certificate that signs itself, for 127.0.0.1 and `localhost`.
    fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn pair(certificate: &str, key: &str) -> Arc<CertifiedKey> {
        identity("test", certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    /// Returns the error of a handshake between a server with this certificate and a client that
    /// trusts `authority`. The server demands a certificate that `clients` signed.
    fn handshake(server: &Pair, client: Tls, name: &str, clients: Option<&str>) -> Option<Error> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = store(&certificates(pem.as_bytes())).into();
                let provider = Arc::clone(&PROVIDER);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let resolver = SingleCertAndKey::from(pair(&server.0, &server.1));
        let mut server =
            ServerConnection::new(builder.with_cert_resolver(Arc::new(resolver)).into()).unwrap();
        let config = Connectors::new(client, None).unwrap().config;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(config, name).unwrap();
        for _ in 0..5 {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut Cursor::new(sent)).unwrap();
            if let Err(error) = server.process_new_packets() {
                return Some(error);
            }
            let mut answered = Vec::new();
            server.write_tls(&mut answered).unwrap();
            client.read_tls(&mut Cursor::new(answered)).unwrap();
            if let Err(error) = client.process_new_packets() {
                return Some(error);
            }
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        None
    }

    fn trusting(pem: &str) -> Tls {
        Tls { roots: Some(roots("ca", pem.as_bytes()).unwrap()), ..Tls::default() }
    }

    #[test]
    fn a_server_with_the_certificate_that_is_also_the_authority_is_accepted() {
        let server = self_signed(|_| ());
        let of_servers = self_signed(|it| {
            it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        for server in [&server, &of_servers] {
            assert_eq!(handshake(server, trusting(&server.0), "127.0.0.1", None), None);
            assert_eq!(handshake(server, trusting(&server.0), "localhost", None), None);
        }
        let bundle = format!("{}text\n{}", self_signed(|_| ()).0, server.0);
        assert_eq!(handshake(&server, trusting(&bundle), "127.0.0.1", None), None);
    }

    #[test]
    fn a_certificate_of_a_server_that_is_trusted_itself_needs_no_authority() {
        let authority = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, authority).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap().pem();
        let server = (certificate, key.serialize_pem());
        assert_eq!(handshake(&server, trusting(&server.0), "127.0.0.1", None), None);
        assert_eq!(handshake(&server, trusting(&authority.pem()), "127.0.0.1", None), None);
        assert!(handshake(&server, trusting(&self_signed(|_| ()).0), "127.0.0.1", None).is_some());
    }

    /// Each would be accepted if a trusted certificate were not verified.
    #[test]
    fn a_trusted_certificate_of_another_name_time_or_use_is_refused() {
        let refused = |name: &str, change: &dyn Fn(&mut CertificateParams)| {
            let server = self_signed(change);
            match handshake(&server, trusting(&server.0), name, None) {
                Some(Error::InvalidCertificate(error)) => error,
                other => panic!("{other:?}"),
            }
        };
        let error = refused("127.0.0.2", &|_| ());
        assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
        let error = refused("localhost", &|it| it.not_after = date_time_ymd(2020, 1, 1));
        assert_eq!(error, CertificateError::Expired);
        let error = refused("localhost", &|it| it.not_before = date_time_ymd(4000, 1, 1));
        assert_eq!(error, CertificateError::NotValidYet);
        let error = refused("localhost", &|it| {
            it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert_eq!(error, CertificateError::InvalidPurpose);
        let (server, other) = (self_signed(|_| ()), self_signed(|_| ()));
        let error = handshake(&server, trusting(&other.0), "127.0.0.1", None);
        assert!(matches!(error, Some(Error::InvalidCertificate(_))), "{error:?}");
        let insecure = Tls { is_insecure: true, ..Tls::default() };
        assert_eq!(handshake(&server, insecure, "other", None), None);
    }

    #[test]
    fn keys_of_all_curves_and_forms_are_accepted_from_servers_and_clients() {
        let generated = |algorithm| {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let fixed = |key: &str| (CERTIFICATE.to_owned(), key.to_owned());
        let renamed = SEC1.replace("EC PRIVATE", "RSA PRIVATE");
        let curve = "-----BEGIN EC PARAMETERS-----\nBgUrgQQAIw==\n-----END EC PARAMETERS-----\n";
        for server in [
            generated(&PKCS_ECDSA_P256_SHA256),
            generated(&PKCS_ECDSA_P384_SHA384),
            generated(&PKCS_ED25519),
            fixed(KEY),
            fixed(SEC1),
            fixed(&renamed),
            fixed(&format!("{curve}{SEC1}")),
            fixed(&format!("{CERTIFICATE}{KEY}")),
        ] {
            let identity = Some(pair(&server.0, &server.1));
            let client = Tls { identity, ..trusting(&server.0) };
            assert_eq!(handshake(&server, client, "127.0.0.1", None), None, "{}", server.1);
        }
        // The authority of the client's certificate is of the curve too.
        let key = KeyPair::generate().unwrap();
        let server = self_signed(|_| ());
        let client = |pair: &Pair| Tls {
            identity: Some(self::pair(&pair.0, &pair.1)),
            ..trusting(&server.0)
        };
        let leaf = CertificateParams::default().self_signed(&key).unwrap().pem();
        let own = (leaf, key.serialize_pem());
        assert_eq!(handshake(&server, client(&own), "localhost", Some(&own.0)), None);
        assert!(handshake(&server, trusting(&server.0), "localhost", Some(&own.0)).is_some());
    }

    #[test]
    fn parts_of_pem_that_are_no_certificate_are_passed_over_and_other_pairs_are_refused() {
        let own = self_signed(|_| ());
        let list = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        let header =
            "-----BEGIN CERTIFICATE-----\nProc-Type: 4\n\nAAAA\n-----END CERTIFICATE-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let text =
            format!("a\r\n{list}{}{header}b\n{broken}{}", own.1, own.0.replace('\n', "\r\n"));
        assert_eq!(handshake(&own, trusting(&text), "localhost", None), None);
        for text in ["", "text", list, header, broken, &own.1] {
            let error = roots("ca", text.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, "ca: expected a certificate in PEM");
        }
        let refused = |certificate: &str, key: &str| {
            identity("a", certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(refused("", &own.1), "a: expected a certificate in PEM");
        assert_eq!(refused(&own.0, &own.0), "a: its key is no private key in PEM");
        let other = self_signed(|_| ());
        for key in [&*other.1, KEY] {
            assert!(
                refused(&own.0, key).contains("keys may not be consistent"),
                "{}",
                refused(&own.0, key)
            );
        }
    }
}
