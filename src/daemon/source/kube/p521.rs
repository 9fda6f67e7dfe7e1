//! Signatures with keys of the curve P-521, which `ring` does not have.

use std::sync::{Arc, LazyLock};

use p521::SecretKey;
use p521::ecdsa::signature::Signer as _;
use p521::ecdsa::signature::hazmat::PrehashVerifier;
use p521::ecdsa::{DerSignature, Signature, SigningKey, VerifyingKey};
use p521::pkcs8::DecodePrivateKey;
use ring::digest;
use rustls::crypto::{CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer, alg_id,
};
use rustls::sign::{Signer, SigningKey as TlsKey, public_key_to_spki};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

/// The cryptography of all TLS connections: that of `ring`, and P-521.
pub(super) static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let ring = rustls::crypto::ring::default_provider();
    let algorithms = ring.signature_verification_algorithms;
    let all = algorithms.all.iter().copied().chain(ALL).collect::<Vec<_>>();
    let scheme = (SignatureScheme::ECDSA_NISTP521_SHA512, &ALL[..1]);
    let mapping = [scheme].into_iter().chain(algorithms.mapping.iter().copied());
    Arc::new(CryptoProvider {
        // Made once, for the whole life of the process.
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: Vec::leak(all),
            mapping: Vec::leak(mapping.collect()),
        },
        key_provider: &Keys,
        ..ring
    })
});

static ALL: [&dyn SignatureVerificationAlgorithm; 3] = [
    &Verification { hash: &digest::SHA512, signature: alg_id::ECDSA_SHA512 },
    &Verification { hash: &digest::SHA384, signature: alg_id::ECDSA_SHA384 },
    &Verification { hash: &digest::SHA256, signature: alg_id::ECDSA_SHA256 },
];

/// ECDSA with P-521 and a hash.
#[derive(Debug)]
struct Verification {
    hash: &'static digest::Algorithm,
    signature: AlgorithmIdentifier,
}

impl SignatureVerificationAlgorithm for Verification {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        /// Longest number of whole bytes in the order of the curve, which has 521 bits. The crate
        /// refuses a hash shorter than half of it, so zeros are put before it.
        const LENGTH: usize = 65;
        let hash = digest::digest(self.hash, message);
        let mut number = [0; LENGTH];
        number[LENGTH - hash.as_ref().len()..].copy_from_slice(hash.as_ref());
        let key = VerifyingKey::from_sec1_bytes(key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify_prehash(&number, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.signature
    }
}

/// Loads keys of all kinds.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn TlsKey>, Error> {
        let key = if let PrivateKeyDer::Pkcs8(der) = &der {
            SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok()
        } else {
            SecretKey::from_sec1_der(der.secret_der()).ok()
        };
        match key {
            Some(key) => Ok(Arc::new(P521Key(Arc::new(key.into())))),
            None => rustls::crypto::ring::sign::any_supported_type(&der),
        }
    }
}

/// A private key of the curve P-521.
#[derive(Clone, Debug)]
struct P521Key(Arc<SigningKey>);

impl TlsKey for P521Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&self.scheme()).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        let key = self.0.verifying_key().to_sec1_point(false);
        Some(public_key_to_spki(&alg_id::ECDSA_P521, key.as_bytes()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for P521Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature: Result<DerSignature, _> = self.0.try_sign(message);
        Ok(signature.map_err(|error| Error::General(error.to_string()))?.as_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP521_SHA512
    }
}

#[cfg(test)]
pub(super) mod tests {
    //! A certificate of 127.0.0.1 that openssl 3 signed with itself, SHA-256 and P-521. It is valid
    //! until 2126, and nothing outside of tests trusts it.

    use super::*;

    pub(in super::super) const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIICDjCCAW+gAwIBAgIUKfvTubBFO0YKsIuJMc/FMWVqziEwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgwMDIwMTJaGA8yMTI2MTEwNDAwMjAx
MlowDzENMAsGA1UEAwwEdGVzdDCBmzAQBgcqhkjOPQIBBgUrgQQAIwOBhgAEAdFX
2kObVDbs5cJzstrE8LiDHy19Uu4n84NQUQJNXJZ8vFp+oEttptv8FbCbGYR6ge+B
dlPLnCTUQGq8Khnti63CAINLriiukNxlqkpAJ9GbWKWGgSTpOjbTsYtntiE0caAc
Btl1vLFcS0QRLFRA/9L6k8TtnlAWoR3HddT0M6Y3J9lJo2QwYjAdBgNVHQ4EFgQU
xAaAMyMZ/wyxy7vEYvJ2PN62eE8wHwYDVR0jBBgwFoAUxAaAMyMZ/wyxy7vEYvJ2
PN62eE8wDwYDVR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49
BAMCA4GMADCBiAJCAQ03CiE0HMKX77zin3M7wiesx9GZ6YtomHCybRlsow9GUDKl
AM2ASEJN3r8S909/lxSMnNS/t+n5miysm1W6MIgTAkIA4I93cZkmBmx57ZgNn2MD
Q5aQ8nFDREgoZVkHm0TTfbdxnmIZGreC9IjYJ9q0sBm5xZcBDju2dSeohBJR87NE
V9A=
-----END CERTIFICATE-----
";

    /// Its key in PKCS#8.
    pub(in super::super) const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIHuAgEAMBAGByqGSM49AgEGBSuBBAAjBIHWMIHTAgEBBEIBmIN/enqn9Lh8/UuU
t0a5bO0Ff9x2p2ISHiCWBV6Aq7mKr76wTVxOvLosSMFRB6+ZOnN1PQ1JN9GL+0FP
ubfpPuShgYkDgYYABAHRV9pDm1Q27OXCc7LaxPC4gx8tfVLuJ/ODUFECTVyWfLxa
fqBLbabb/BWwmxmEeoHvgXZTy5wk1EBqvCoZ7YutwgCDS64orpDcZapKQCfRm1il
hoEk6To207GLZ7YhNHGgHAbZdbyxXEtEESxUQP/S+pPE7Z5QFqEdx3XU9DOmNyfZ
SQ==
-----END PRIVATE KEY-----
";

    /// Its key in the form of SEC 1.
    pub(in super::super) const SEC1: &str = "\
-----BEGIN EC PRIVATE KEY-----
MIHcAgEBBEIBmIN/enqn9Lh8/UuUt0a5bO0Ff9x2p2ISHiCWBV6Aq7mKr76wTVxO
vLosSMFRB6+ZOnN1PQ1JN9GL+0FPubfpPuSgBwYFK4EEACOhgYkDgYYABAHRV9pD
m1Q27OXCc7LaxPC4gx8tfVLuJ/ODUFECTVyWfLxafqBLbabb/BWwmxmEeoHvgXZT
y5wk1EBqvCoZ7YutwgCDS64orpDcZapKQCfRm1ilhoEk6To207GLZ7YhNHGgHAbZ
dbyxXEtEESxUQP/S+pPE7Z5QFqEdx3XU9DOmNyfZSQ==
-----END EC PRIVATE KEY-----
";

    #[test]
    fn a_signature_is_verified_with_each_hash_and_no_other_message() {
        use rustls::pki_types::pem::PemObject;
        for pem in [KEY, SEC1] {
            let key = PROVIDER.key_provider;
            let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            let key = key.load_private_key(der).unwrap();
            assert!(key.choose_scheme(&[SignatureScheme::ECDSA_NISTP384_SHA384]).is_none());
            let offered = [SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP521_SHA512];
            let signature = key.choose_scheme(&offered).unwrap().sign(b"message").unwrap();
            let spki = key.public_key().unwrap();
            let point = &spki[spki.len() - 133..];
            assert!(ALL[0].verify_signature(point, b"message", &signature).is_ok());
            assert!(ALL[0].verify_signature(point, b"massage", &signature).is_err());
            assert!(ALL[1].verify_signature(point, b"message", &signature).is_err());
        }
    }
}
