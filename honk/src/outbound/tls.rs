//! TLS towards servers of the public web: roots and settings, loaded once.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

/// Client settings with the roots of the system, else the compiled ones. `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` name other roots. Reads files at the first call.
pub(crate) fn web() -> Arc<ClientConfig> {
    static WEB: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(WEB.get_or_init(|| Arc::new(with_roots(roots()))))
}

/// Client settings with these roots.
pub(crate) fn with_roots(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // The provider is a constant of this build and has suites for both versions.
    let versions = versions.expect("the provider serves TLS 1.2 and 1.3");
    let mut config = versions.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

fn roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (used, _) = store.add_parsable_certificates(system.certs);
    if used == 0 {
        store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    store
}
