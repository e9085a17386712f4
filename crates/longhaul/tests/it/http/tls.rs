//! A provider behind TLS that speaks HTTP/2, and throws back every key that it is shown.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::http::server::says;

type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// The provider.
pub(crate) struct Secure {
    at: SocketAddr,
    certificate: PathBuf,
    seen: Seen,
    _tasks: JoinSet<()>,
}

impl Secure {
    /// Starts it, with a certificate of its own that is left in this folder.
    pub(crate) async fn start(folder: &Path) -> Secure {
        Secure::start_crowded(folder, 1).await
    }

    /// The same, but it answers only when this many requests are there. A connection takes 100 at once.
    pub(crate) async fn start_crowded(folder: &Path, crowd: usize) -> Secure {
        let crowd = Arc::new(tokio::sync::Barrier::new(crowd));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = folder.join("certificate.pem");
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (at, seen) = (listener.local_addr().unwrap(), Seen::default());
        let mut tasks = JoinSet::new();
        let notes = seen.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, acceptor.clone(), notes.clone(), crowd.clone()));
            }
        });
        Secure { at, certificate, seen, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/v1", self.at.port())
    }

    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// All headers that it was sent.
    pub(crate) fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().unwrap().clone()
    }
}

/// One connection. Whatever goes wrong with it is its end.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: Seen, crowd: Arc<tokio::sync::Barrier>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) = builder.max_concurrent_streams(100).handshake(stream).await else { return };
    let mut answers = JoinSet::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (seen, crowd) = (seen.clone(), crowd.clone());
        answers.spawn(async move {
            let (parts, mut body) = request.into_parts();
            let mut asked = Vec::new();
            while let Some(Ok(bytes)) = body.data().await {
                let _ = body.flow_control().release_capacity(bytes.len());
                asked.extend_from_slice(&bytes);
            }
            crowd.wait().await;
            let headers: Vec<(String, String)> = parts
                .headers
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            let shown = format!("{headers:?}").replace('"', "'");
            let key = headers.iter().find(|(name, _)| name.contains("key") || name == "authorization");
            let key = key.map(|(_, value)| value.trim_start_matches("Bearer ")).unwrap_or_default();
            let (status, answer) = match String::from_utf8_lossy(&asked).contains("refused") {
                true => {
                    let said = format!("Incorrect API key provided: {key}. I was shown {shown}");
                    (401, serde_json::json!({"error": {"message": said}}).to_string())
                }
                false => (200, says("Safe.").concat()),
            };
            seen.lock().unwrap().extend(headers.iter().cloned());
            let response =
                http::Response::builder().status(status).header("x-request-id", key).body(()).unwrap();
            if let Ok(mut send) = respond.send_response(response, false) {
                let _ = send.send_data(Bytes::from(answer), true);
            }
        });
    }
}
