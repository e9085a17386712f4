use std::future::poll_fn;
use std::pin::pin;
use std::task::Waker;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;
use crate::model::http::client::POOL_IDLE_TIMEOUT;

const TIMEOUT: Duration = Duration::from_secs(20);
const OK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// A server whose connections the test plays itself.
async fn server() -> (TcpListener, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/chat?a=1", listener.local_addr().unwrap()).parse().unwrap();
    (listener, url)
}

fn client() -> Arc<PlainHttpClient> {
    Arc::new(PlainHttpClient::new(TIMEOUT, false))
}

/// Sends a request and reads its response to the end.
fn ask(client: &Arc<PlainHttpClient>, url: &Url) -> tokio::task::JoinHandle<Result<String, String>> {
    tokio::spawn(whole_answer(client.clone(), url.clone()))
}

async fn whole_answer(client: Arc<PlainHttpClient>, url: Url) -> Result<String, String> {
    let uri = client.accepts(&url).unwrap();
    let sent = client.send(Method::POST, uri, HeaderMap::new(), b"{}".to_vec()).await;
    read_whole(sent.map_err(|error| error.to_string())?.into_body()).await
}

async fn read_whole(mut body: PlainBody) -> Result<String, String> {
    let mut said = String::new();
    while let Some(bytes) =
        poll_fn(|context| body.poll_chunk(context)).await.map_err(|error| error.to_string())?
    {
        said.push_str(str::from_utf8(&bytes).unwrap());
    }
    Ok(said)
}

/// Reads one request.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n{}") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the client closed the connection");
    }
    String::from_utf8(request).unwrap()
}

async fn reply(stream: &mut TcpStream, words: &[&str]) {
    let chunks = words.iter().map(|word| format!("{:x}\r\n{word}\r\n", word.len())).collect::<String>();
    stream.write_all(format!("{OK}{chunks}0\r\n\r\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn the_request_has_the_path_and_the_host_of_the_url() {
    let (listener, url) = server().await;
    let answer = ask(&client(), &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    let request = read_request(&mut stream).await;
    reply(&mut stream, &["yes"]).await;
    assert_eq!(answer.await.unwrap().unwrap(), "yes");
    let host = format!("host: 127.0.0.1:{}\r\n", url.port().unwrap());
    for part in ["POST /v1/chat?a=1 HTTP/1.1\r\n", &host, "user-agent: longhaul/", "content-length: 2\r\n"] {
        assert!(request.contains(part), "{part} is not in {request}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_not() {
    let (listener, url) = server().await;
    let client = client();
    let first = ask(&client, &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    reply(&mut stream, &["one"]).await;
    assert_eq!(first.await.unwrap().unwrap(), "one");

    let second = ask(&client, &url);
    read_request(&mut stream).await;
    reply(&mut stream, &["two"]).await;
    assert_eq!(second.await.unwrap().unwrap(), "two");

    drop(stream);
    // Until the client can know it.
    let open = |idle: &IdleConnections| {
        let mut state = idle.lock();
        let (_, connection) = &mut state.by_host.values_mut().next().unwrap()[0];
        connection.is_idle()
    };
    while open(&client.idle) {
        tokio::task::yield_now().await;
    }
    let third = ask(&client, &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    reply(&mut stream, &["three"]).await;
    assert_eq!(third.await.unwrap().unwrap(), "three");
}

/// Perhaps the server has begun to work on it: whoever counts requests decides whether there is another.
#[tokio::test]
async fn a_request_that_was_sent_and_got_no_response_is_not_sent_again() {
    let (listener, url) = server().await;
    let client = client();
    let first = ask(&client, &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    reply(&mut stream, &["one"]).await;
    first.await.unwrap().unwrap();
    // On the connection that was used before.
    let second = ask(&client, &url);
    read_request(&mut stream).await;
    drop(stream);
    assert_eq!(second.await.unwrap().unwrap_err(), "the server closed the connection without a response");
    assert!(listener.accept().now_or_never().is_none(), "it connects again");
}

#[tokio::test]
async fn what_has_come_is_read_without_waiting_in_between() {
    let (listener, url) = server().await;
    let client = client();
    let uri = client.accepts(&url).unwrap();
    let sent = client.send(Method::POST, uri, HeaderMap::new(), b"{}".to_vec());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        reply(&mut stream, &["word"; 50]).await;
        stream
    };
    let (response, _stream) = tokio::join!(sent, serve);
    let mut body = response.unwrap().into_body();
    let (mut said, mut waits) = (Vec::new(), 0);
    poll_fn(|context| {
        loop {
            match body.poll_chunk(context) {
                Poll::Ready(data) => match data.unwrap() {
                    Some(data) => said.extend_from_slice(&data),
                    None => return Poll::Ready(()),
                },
                Poll::Pending => {
                    waits += 1;
                    return Poll::Pending;
                }
            }
        }
    })
    .await;
    assert_eq!(str::from_utf8(&said), Ok("word".repeat(50).as_str()));
    assert!(waits <= 2, "50 pieces that came together took {waits} waits");
}

/// Tokio's sockets say "not ready" once a task has used up its budget, and wake it: that wake must arrive.
#[tokio::test]
async fn a_task_without_a_budget_is_polled_again() {
    for budget in 1..12 {
        let (listener, url) = server().await;
        let answer = tokio::spawn(on_a_budget(budget, whole_answer(client(), url)));
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        reply(&mut stream, &["word"; 50]).await;
        let answer = tokio::time::timeout(TIMEOUT, answer).await;
        assert_eq!(answer.expect("it hangs").unwrap().unwrap(), "word".repeat(50), "budget {budget}");
    }
}

/// Polls a future as if its task had only this much of its budget left.
async fn on_a_budget<T>(budget: usize, work: impl Future<Output = T>) -> T {
    const WHOLE: usize = 128;
    let mut work = pin!(work);
    poll_fn(|context| {
        for _ in budget..WHOLE {
            let used =
                pin!(tokio::task::coop::consume_budget()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(used.is_ready(), "a task has a budget of {WHOLE}");
        }
        work.as_mut().poll(context)
    })
    .await
}

#[tokio::test]
async fn dropping_a_body_before_its_end_closes_the_connection() {
    let (listener, url) = server().await;
    let client = client();
    let sent = client.send(Method::POST, client.accepts(&url).unwrap(), HeaderMap::new(), b"{}".to_vec());
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(format!("{OK}4\r\nword\r\n").as_bytes()).await.unwrap();
        stream
    };
    let (response, mut stream) = tokio::join!(sent, serve);
    drop(response.unwrap());
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0, "the server hears that nobody reads on");
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error() {
    let (listener, url) = server().await;
    let answer = ask(&client(), &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream.write_all(format!("{OK}4\r\nword\r\n4\r\nwo").as_bytes()).await.unwrap();
    drop(stream);
    let error = answer.await.unwrap().unwrap_err();
    assert_eq!(error, "the server closed the connection before the end of its response");
}

/// Plays one response to one request. Returns what the client makes of it, and whether it would use the connection again.
async fn hear(response: &[u8], closes: bool) -> (Result<String, String>, bool) {
    let (listener, url) = server().await;
    let client = client();
    let answer = ask(&client, &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream.write_all(response).await.unwrap();
    let open = (!closes).then_some(stream);
    let answer = tokio::time::timeout(TIMEOUT, answer).await.expect("it hangs").unwrap();
    drop(open);
    (answer, client.idle.lock().by_host.values().any(|kept| !kept.is_empty()))
}

#[tokio::test]
async fn every_way_to_say_where_a_body_ends() {
    for (response, body, reused) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nword", "word", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", true),
        ("HTTP/1.1 204 \r\n\r\n", "", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n4;a=b\r\nword\r\n0\r\nX: y\r\n\r\n",
            "word",
            true,
        ),
        // The length in chunks counts, not the other one.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
            "x",
            true,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx",
            "x",
            true,
        ),
        ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\nx", "x", false),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", "x", false),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx", "x", true),
        // More than was announced.
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxy", "x", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nxy", "", false),
    ] {
        assert_eq!(hear(response.as_bytes(), false).await, (Ok(body.to_owned()), reused), "{response}");
    }
    let (answer, reused) = hear(b"HTTP/1.1 200 OK\r\n\r\nuntil it closes", true).await;
    assert_eq!((answer.as_deref(), reused), (Ok("until it closes"), false));
}

#[tokio::test]
async fn what_is_wrong_with_a_response_is_said() {
    let long = format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "x".repeat(17 << 10));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101));
    for (response, error) in [
        ("", "the server closed the connection without a response"),
        ("HTTP/1.1 200", "the server closed the connection before the end of its response"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nword", "before the end of its response"),
        ("HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nwords", "no valid content-length"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5, 6\r\n\r\nwords", "no valid content-length"),
        (
            "HTTP/1.1 101 Go\r\n\r\n",
            "not answer in HTTP/1.1 (it switches to another protocol): check base_url",
        ),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "not answer in HTTP/1.1 (invalid HTTP version): check base_url"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nword",
            "a chunk of the server's response is malformed",
        ),
        (&long, "the headers of the server's response have more than 16 KiB"),
        (&many, "more than 100 headers"),
        ("\u{15}\u{3}\u{1}\0\u{2}\u{2}\n", "the server speaks TLS: use https:// in base_url"),
    ] {
        let (answer, reused) = hear(response.as_bytes(), true).await;
        let said = answer.unwrap_err();
        assert!(said.contains(error) && !reused, "{response:?}: {said}");
    }
}

/// A request that is refused before the server has read it: servers then close the connection.
#[tokio::test]
async fn an_answer_to_half_a_request_counts() {
    let (listener, url) = server().await;
    let client = client();
    let uri = client.accepts(&url).unwrap();
    let sent = client.send(Method::POST, uri, HeaderMap::new(), vec![b'x'; 32 << 20]);
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
        let refusal = "HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!";
        stream.write_all(refusal.as_bytes()).await.unwrap();
        stream
    };
    let (response, _stream) = tokio::join!(sent, serve);
    let response = response.unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(read_whole(response.into_body()).await.unwrap(), "no!");
    assert!(client.idle.lock().by_host.is_empty(), "the rest of the request was never sent");
}

/// The same, but the server closes the connection: with what it has not read, that cuts off the client's writes.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_though_the_connection_is_reset() {
    for n in 0..30 {
        let (listener, url) = server().await;
        let client = client();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut vec![0; 100 << (n % 8)]).await.unwrap();
            stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno!").await.unwrap();
        };
        let uri = client.accepts(&url).unwrap();
        let sent = tokio::spawn(async move {
            client.send(Method::POST, uri, HeaderMap::new(), vec![b'x'; 8 << 20]).await
        });
        serve.await;
        let response = sent.await.unwrap();
        assert_eq!(
            response.map(|response| response.status().as_u16()).map_err(|e| e.to_string()),
            Ok(413),
            "{n}"
        );
    }
}

/// A server that begins its response early and reads the rest of the request meanwhile.
#[tokio::test]
async fn a_request_is_sent_to_its_end_while_the_response_comes() {
    const SIZE: usize = 8 << 20;
    let (listener, url) = server().await;
    let client = client();
    let uri = client.accepts(&url).unwrap();
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 100]).await.unwrap();
        stream.write_all(format!("{OK}4\r\nword\r\n").as_bytes()).await.unwrap();
        let (mut read, mut buffer) = (100, vec![0; 1 << 20]);
        while read < SIZE {
            read += stream.read(&mut buffer).await.unwrap();
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        stream
    });
    let sent = client.send(Method::POST, uri, HeaderMap::new(), vec![b'x'; SIZE]).await;
    assert_eq!(read_whole(sent.unwrap().into_body()).await.unwrap(), "word");
    serve.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed() {
    let (listener, url) = server().await;
    let client = client();
    let answer = ask(&client, &url);
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    reply(&mut stream, &["one"]).await;
    answer.await.unwrap().unwrap();
    // The clock of the test jumps whenever everything waits.
    tokio::time::pause();
    let kept = Instant::now();
    assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    assert!(kept.elapsed() >= POOL_IDLE_TIMEOUT && kept.elapsed() <= POOL_IDLE_TIMEOUT * 2);
}

#[test]
fn tls_logins_and_proxies_are_for_the_other_client() {
    let mut client = PlainHttpClient::new(TIMEOUT, false);
    let accepts = |client: &PlainHttpClient, url: &str| client.accepts(&url.parse().unwrap()).is_some();
    assert!(accepts(&client, "http://10.0.0.1:8000/v1"));
    assert!(!accepts(&client, "https://10.0.0.1/v1"));
    assert!(!accepts(&client, "http://me:secret@10.0.0.1/v1"));
    client.proxies = Some(Matcher::builder().http("http://10.0.0.9:3128").no("localhost").build());
    assert!(!accepts(&client, "http://10.0.0.1:8000/v1"));
    assert!(accepts(&client, "http://localhost:8000/v1"));
}

#[tokio::test]
async fn each_piece_of_a_body_wakes_the_task_that_reads_it_once() {
    const PIECES: usize = 30;
    let (listener, url) = server().await;
    let (client, uri) = (client(), client().accepts(&url).unwrap());
    let (taken, mut next) = tokio::sync::mpsc::unbounded_channel();
    let reader = tokio::spawn(async move {
        let sent = client.send(Method::POST, uri, HeaderMap::new(), b"{}".to_vec()).await;
        let mut body = sent.unwrap().into_body();
        let (mut said, mut waits) = (String::new(), 0);
        loop {
            let chunk = poll_fn(|context| {
                let polled = body.poll_chunk(context);
                waits += usize::from(polled.is_pending());
                polled
            });
            match chunk.await.unwrap() {
                Some(bytes) => said.push_str(str::from_utf8(&bytes).unwrap()),
                None => return (said, waits),
            }
            taken.send(()).unwrap();
        }
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream.write_all(OK.as_bytes()).await.unwrap();
    for _ in 0..PIECES {
        stream.write_all(b"1\r\nx\r\n").await.unwrap();
        next.recv().await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let (said, waits) = reader.await.unwrap();
    assert_eq!(said, "x".repeat(PIECES));
    assert!(waits <= PIECES + 2, "it was polled in vain {waits} times for {PIECES} pieces");
}
