//! A server with a certificate: verified, or not spoken to.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

/// An authority, and a server's certificate of it for `127.0.0.1`, as PEM: authority, certificate, key.
fn certificates() -> (String, String, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&key).unwrap();
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().unwrap();
    let server =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (root.pem(), server.pem(), key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_spoken_to_over_tls_if_its_certificate_is_trusted() {
    let Some(server) = TestPostgres::start(&[]) else {
        return crate::testing::report_skipped("there is no PostgreSQL server");
    };
    let (authority, certificate, key) = certificates();
    let owner = std::fs::metadata(server.directory()).unwrap();
    for (name, text) in [("server.crt", &certificate), ("server.key", &key)] {
        let path = server.directory().join("data").join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    server.sql("ALTER SYSTEM SET ssl = on");
    server.sql("SELECT pg_reload_conf()");
    let directory = tempfile::tempdir().unwrap();
    let (right, wrong) = (directory.path().join("right.pem"), directory.path().join("wrong.pem"));
    std::fs::write(&right, authority).unwrap();
    std::fs::write(&wrong, certificates().0).unwrap();
    let address = |root: &std::path::Path| {
        let url = server.url_over(server.port(), "encrypted");
        PostgresOptions::new(&format!("{url}&sslmode=verify-full&sslrootcert={}", root.display())).unwrap()
    };
    PostgresStore::migrate(&address(&right)).await.unwrap();
    let store = PostgresStore::open(address(&right)).await.unwrap();
    store.append(submission(id("secret"))).await.unwrap();
    let encrypted = server.sql("SELECT count(*) FROM pg_stat_ssl WHERE ssl");
    assert!(encrypted.parse::<usize>().unwrap() >= 2, "{encrypted} connections are encrypted");
    let refused = PostgresStore::open(address(&wrong)).await.unwrap_err().to_string();
    assert!(refused.contains("TLS") && refused.contains("sslrootcert"), "{refused}");
    assert!(!refused.contains(TestPostgres::PASSWORD), "{refused}");
    drop(store);
}
