//! Clients that are slow, large or many, and TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_server::listen::{ListenError, ListenOptions, Listener, TlsFiles};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::{Options, SOON, Server, client, problem, read_to_end};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_and_without_a_length() {
    let mut options = Options::default();
    options.limits.body_bytes = 10_000;
    let server = Server::with(options).await;
    for path in ["/api/v1/tasks", "/v1/responses"] {
        let body = format!("\"{}\"", "x".repeat(20_000));
        let sent = server.post(path, &server.admin).body(body.clone()).send().await.unwrap();
        assert_eq!(problem(sent, path).await["status"], 413);
        let fits =
            server.post(path, &server.admin).body(format!("\"{}\"", "x".repeat(9_000))).send().await.unwrap();
        assert_eq!(fits.status(), 200);
        let own = server.address;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n4e20\r\n",
            server.admin
        );
        let answer = server.raw(format!("{head}{}\r\n0\r\n\r\n", &body[..20_000])).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("problem+json"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_trickles_in_is_cut_off() {
    let mut options = Options::default();
    (options.limits.body_pause, options.limits.body_time) = (SHORT, 2 * SHORT);
    let server = Server::with(options).await;
    let own = server.address;
    let head = |token: &str| {
        format!(
            "POST /v1/responses HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\nx"
        )
    };
    // It stops.
    let answer = server.raw(head(&server.admin)).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    // It never pauses for long, and never ends.
    let mut stream = server.connect().await;
    stream.write_all(head(&server.admin).as_bytes()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let trickle = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(SOON, reading.read_to_end(&mut answer)).await.expect("it goes on");
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    trickle.abort();
}

#[tokio::test]
async fn heads_that_are_too_large_or_too_slow_end_the_connection() {
    let mut options = Options::default();
    options.connections.head_time = SHORT;
    let server = Server::with(options).await;
    let own = server.address;
    let start = format!("GET /api/v1/tasks HTTP/1.1\r\nHost: {own}\r\n");
    let large = server.raw(format!("{start}X-Large: {}\r\n\r\n", "x".repeat(100_000))).await;
    assert!(large.is_empty() || large.starts_with("HTTP/1.1 431"), "{large}");
    let many: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    let many = server.raw(format!("{start}{many}\r\n")).await;
    assert!(many.starts_with("HTTP/1.1 431"), "{many}");
    for (what, bytes) in [
        ("nothing", ""),
        ("one letter that could begin HTTP/2", "P"),
        ("half the preface of HTTP/2", "PRI * HTTP/2"),
        ("half a head", start.as_str()),
    ] {
        let answer = server.raw(bytes).await;
        assert!(!answer.contains("200"), "{what}: {answer}");
    }
}

#[tokio::test]
async fn too_many_connections_are_turned_away() {
    let mut options = Options::default();
    options.connections.connections = 3;
    let server = Server::with(options).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = server.get("/api/v1/events", &server.admin).send().await.unwrap();
        assert!(stream.chunk().await.unwrap().is_some());
        streams.push(stream);
    }
    let mut fourth = server.connect().await;
    assert!(read_to_end(&mut fourth).await.starts_with("HTTP/1.1 503"));
    drop(streams.pop());
    let began = std::time::Instant::now();
    while server.get("/api/v1/tasks", &server.admin).send().await.map_or(true, |sent| sent.status() != 200) {
        assert!(began.elapsed() < SOON, "there is room again");
    }
}

#[tokio::test]
async fn a_client_that_never_reads_is_cut_off() {
    let mut options = Options::default();
    (options.connections.connections, options.connections.write_stall) = (1, SHORT);
    let server = Server::with(options).await;
    let own = server.address;
    let mut stream = server.connect().await;
    let head = format!(
        "GET /api/v1/endless HTTP/1.1\r\nHost: {own}\r\nAuthorization: Bearer {}\r\n\r\n",
        server.admin
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // Its place becomes free, although it never hangs up.
    let began = std::time::Instant::now();
    while server.get("/api/v1/tasks", &server.admin).send().await.map_or(true, |sent| sent.status() != 200) {
        assert!(began.elapsed() < SOON, "its place never becomes free");
    }
    drop(stream);
}

// opencode #38857: `--hostname 0.0.0.0` and no token.
#[tokio::test]
async fn an_address_that_others_reach_is_refused_without_tls() {
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let address: SocketAddr = open.parse().unwrap();
        let refused = Listener::bind(ListenOptions::new(address)).await.err();
        assert!(matches!(refused, Some(ListenError::NotPrivate(_))), "{open}");
    }
    let listener = Listener::bind(ListenOptions::new("127.0.0.1:0".parse().unwrap())).await.unwrap();
    assert!(listener.url().starts_with("http://127.0.0.1:"));
    let insecure = ListenOptions { insecure: true, ..ListenOptions::new("0.0.0.0:0".parse().unwrap()) };
    assert!(Listener::bind(insecure).await.unwrap().url().starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn tls_is_served_with_the_given_certificate_and_plain_http_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles { certificate: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let server = Server::with(Options { tls: Some(files.clone()), ..Options::default() }).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let https = client().tls_backend_preconfigured(tls).build().unwrap();
    let url = format!("https://localhost:{}/api/v1/tasks", server.address.port());
    let sent = https.get(&url).bearer_auth(&server.admin).send().await.unwrap();
    assert_eq!((sent.status().as_u16(), sent.version()), (200, http::Version::HTTP_2));
    assert!(sent.headers().contains_key("strict-transport-security"));
    assert_eq!(https.get(&url).send().await.unwrap().status(), 401);
    let plain =
        server.raw(format!("GET / HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.address.port())).await;
    assert!(!plain.contains("HTTP/1.1 2"), "{plain}");

    std::fs::write(&files.key, "not a key").unwrap();
    let wrong = ListenOptions { tls: Some(files), ..ListenOptions::new("127.0.0.1:0".parse().unwrap()) };
    let error = Listener::bind(wrong).await.err().unwrap().to_string();
    assert!(error.contains("key.pem") && !error.contains("not a key"), "{error}");
}
