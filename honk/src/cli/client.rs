//! The client side of the API: one connection to the daemon, one request at a time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, StatusCode,
    body::{Bytes, Incoming},
    header,
};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    task::JoinSet,
};

use super::exit::{Exit, Failure};
use crate::socket;

/// Largest answer a client takes.
const BODY_LIMIT: usize = 64 << 20;
/// Longest line of an answer that goes on.
const LINE_LIMIT: usize = 1 << 20;
/// Total wait when `--timeout` is not given.
pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// Port of an address without one.
const PORT: u16 = 80;

/// A daemon to talk to.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    target: Target,
    token: Option<Token>,
    wait: Duration,
}

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Unix(PathBuf),
    /// Host and port, as the `Host` header has them.
    Tcp(String),
}

/// What a TCP listener asks for.
#[derive(Clone)]
pub(crate) struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Token {
    /// From the file that was named, the environment, or the file of a daemon beside us, which
    /// only some may read.
    pub(crate) fn find(
        file: Option<&Path>,
        variable: Option<String>,
        own: &Path,
    ) -> Result<Option<Self>, Failure> {
        let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|e| {
                let text = format!("cannot read the token in {}: {e}", path.display());
                Failure::new(Exit::Permission, "permission", text)
            })?;
            return Ok(Some(Self(first(text))));
        }
        let own = || std::fs::read_to_string(own).ok();
        Ok(variable.or_else(own).map(|text| Self(first(text))))
    }
}

impl Client {
    /// `api` is `--api`, if given.
    pub(crate) fn new(
        api: Option<&str>,
        default: PathBuf,
        wait: Option<Duration>,
    ) -> Result<Self, Failure> {
        let target = match api {
            None => Target::Unix(default),
            Some(url) => target(url).ok_or_else(|| {
                let text = format!("--api {url}: write unix:PATH or http://HOST:PORT");
                Failure::new(Exit::Usage, "usage", text)
            })?,
        };
        Ok(Self {
            target,
            token: None,
            wait: wait.unwrap_or(DEFAULT_WAIT),
        })
    }

    /// Shows a token to a daemon that is reached over TCP.
    pub(crate) fn with_token(
        mut self,
        find: impl FnOnce() -> Result<Option<Token>, Failure>,
    ) -> Result<Self, Failure> {
        if let Target::Tcp(_) = self.target {
            self.token = find()?;
        }
        Ok(self)
    }

    /// Total time one request may take.
    #[must_use]
    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// A document.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let body = self.send(Method::GET, path, None).await?;
        decode(path, &body)
    }

    /// Any other request.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Failure> {
        let body = self.send(method, path, body).await?;
        decode(path, &body)
    }

    /// The body of an answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, Failure> {
        let exchange = self.exchange(method, path, body);
        match tokio::time::timeout(self.wait, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(
                Exit::Timeout,
                "timeout",
                format!("no answer from honk within {:?}", self.wait),
            )),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, Failure> {
        match &self.target {
            Target::Unix(path_of_socket) => {
                let stream = UnixStream::connect(path_of_socket).await;
                let stream = stream.map_err(|e| self.unreachable(&e))?;
                self.over(stream, "localhost", method, path, body).await
            }
            Target::Tcp(authority) => {
                let stream = socket::connect_plain(authority).await;
                let stream = stream.map_err(|e| self.unreachable(&e))?;
                self.over(stream, authority, method, path, body).await
            }
        }
    }

    async fn over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        host: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Bytes, Failure> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host);
        if let Some(Token(token)) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let bytes = body.map_or_else(Bytes::new, |b| Bytes::from(b.to_string()));
        let request = request
            .body(Full::new(bytes))
            .map_err(|e| Failure::new(Exit::Usage, "usage", format!("bad request path: {e}")))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_LIMIT)
                .collect()
                .await
                .map_err(|e| broken(&e))?
                .to_bytes();
            if status.is_success() {
                Ok(body)
            } else {
                Err(refused(status, &body))
            }
        };
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            result = answer.as_mut() => result,
            // The connection must be driven while the answer is awaited.
            ended = connection => match ended {
                Ok(()) => answer.await,
                Err(e) => Err(broken(&e)),
            },
        }
    }

    /// Lines of an answer that goes on; the time limit holds until it begins.
    pub(crate) async fn follow(&self, path: &str) -> Result<Lines, Failure> {
        let begin = async {
            match &self.target {
                Target::Unix(path_of_socket) => {
                    let stream = UnixStream::connect(path_of_socket).await;
                    let stream = stream.map_err(|e| self.unreachable(&e))?;
                    self.begin(stream, "localhost", path).await
                }
                Target::Tcp(authority) => {
                    let stream = socket::connect_plain(authority).await;
                    let stream = stream.map_err(|e| self.unreachable(&e))?;
                    self.begin(stream, authority, path).await
                }
            }
        };
        let time_over = |_| {
            let text = format!("no answer from honk within {:?}", self.wait);
            Failure::new(Exit::Timeout, "timeout", text)
        };
        let begun = tokio::time::timeout(self.wait, begin).await;
        begun.map_err(time_over)?
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        host: &str,
        path: &str,
    ) -> Result<Lines, Failure> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its end is the end of the body, which is read below.
            let _ = connection.await;
        });
        let mut request = Request::builder().uri(path).header(header::HOST, host);
        if let Some(Token(token)) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(Bytes::new()))
            .map_err(|e| Failure::new(Exit::Usage, "usage", format!("bad request path: {e}")))?;
        let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Lines {
                body: response.into_body(),
                rest: Vec::new(),
                _driver: driver,
            });
        }
        let body = Limited::new(response.into_body(), BODY_LIMIT).collect();
        let body = body.await.map_err(|e| broken(&e))?.to_bytes();
        Err(refused(status, &body))
    }

    fn unreachable(&self, e: &std::io::Error) -> Failure {
        let socket = match &self.target {
            Target::Unix(path) => path,
            Target::Tcp(authority) => {
                let text = format!("cannot reach honk at http://{authority}: {e}");
                return Failure::new(Exit::Unreachable, "unreachable", text);
            }
        };
        let path = socket.display();
        let text = match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("honk does not run here: no socket {path}; start it with `honk run`")
            }
            std::io::ErrorKind::ConnectionRefused => {
                format!("honk does not run: nobody listens on {path}; start it with `honk run`")
            }
            std::io::ErrorKind::PermissionDenied => {
                format!("not allowed to use {path}; be root or a member of the group honk")
            }
            _ => format!("cannot reach honk at {path}: {e}"),
        };
        Failure::new(Exit::Unreachable, "unreachable", text)
    }
}

/// `unix:PATH` or `http://HOST[:PORT]`.
fn target(url: &str) -> Option<Target> {
    if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Some(Target::Unix(PathBuf::from(path)));
    }
    let authority = url.strip_prefix("http://")?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let uri: hyper::Uri = format!("http://{authority}/").parse().ok()?;
    let plain = uri.path_and_query().is_some_and(|p| p.as_str() == "/");
    let host = uri.host().filter(|_| plain && !authority.contains('@'))?;
    let port = uri.port_u16().unwrap_or(PORT);
    Some(Target::Tcp(format!("{host}:{port}")))
}

/// An answer that goes on, line by line.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    rest: Vec<u8>,
    /// Moves the connection; ends with this.
    _driver: JoinSet<()>,
}

impl Lines {
    /// The next line without its end; `None` when the answer is over.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(at) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).take(at).collect();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            if self.rest.len() > LINE_LIMIT {
                return Err(broken(&"a line without end"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                // The daemon ended in the middle of it.
                Some(Err(_)) => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.rest.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

fn broken(e: &dyn std::fmt::Display) -> Failure {
    let text = format!("the connection to honk broke ({e}); see its log");
    Failure::new(Exit::Unreachable, "unreachable", text)
}

fn decode<T: DeserializeOwned>(path: &str, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|e| {
        let text = format!("{path}: the answer is not what this client expects ({e}); is the daemon of another version?");
        Failure::new(Exit::Failure, "bad_answer", text)
    })
}

/// An error answer, as the exit code of a command.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &value["error"];
    let code = error["code"].as_str().unwrap_or("http");
    let message = error["message"].as_str().map_or_else(
        || format!("honk answered {status} without a reason"),
        str::to_owned,
    );
    let exit = match (status, code) {
        (StatusCode::UNPROCESSABLE_ENTITY, "not_a_member") => Exit::NotFound,
        (StatusCode::UNPROCESSABLE_ENTITY, _) => Exit::Config,
        (StatusCode::BAD_REQUEST, "bad_query") => Exit::Usage,
        (StatusCode::NOT_FOUND, _) => Exit::NotFound,
        (StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED, _) => Exit::Conflict,
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Exit::Unreachable,
        (StatusCode::TOO_MANY_REQUESTS, _) => Exit::Conflict,
        (StatusCode::GATEWAY_TIMEOUT, _) => Exit::Timeout,
        (StatusCode::SERVICE_UNAVAILABLE, _) => Exit::Unreachable,
        _ => Exit::Failure,
    };
    let failure = Failure::new(exit, code, message);
    match error.get("details") {
        Some(details) => failure.details(details.clone()),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_answers_become_exit_codes() {
        let exit = |status: u16, code: &str| {
            let body = serde_json::json!({"error": {"code": code, "message": "m"}}).to_string();
            refused(StatusCode::from_u16(status).unwrap(), body.as_bytes()).exit
        };
        assert_eq!(exit(404, "not_found"), Exit::NotFound);
        assert_eq!(exit(409, "reload_in_progress"), Exit::Conflict);
        assert_eq!(exit(422, "not_a_member"), Exit::NotFound);
        assert_eq!(exit(422, "invalid"), Exit::Config);
        assert_eq!(exit(400, "bad_query"), Exit::Usage);
        assert_eq!(exit(504, "timeout"), Exit::Timeout);
        assert_eq!(exit(503, "starting"), Exit::Unreachable);
        assert_eq!(exit(500, "internal"), Exit::Failure);
    }

    #[test]
    fn addresses_are_sockets_and_plain_http() {
        let target = |api| Client::new(Some(api), "/d".into(), None).map(|c| c.target);
        let unix = Target::Unix("/x/api.sock".into());
        assert_eq!(target("unix:/x/api.sock").unwrap(), unix);
        for (url, authority) in [
            ("http://127.0.0.1:9090", "127.0.0.1:9090"),
            ("http://[::1]:9090/", "[::1]:9090"),
            ("http://gate.lan", "gate.lan:80"),
        ] {
            assert_eq!(target(url).unwrap(), Target::Tcp(authority.to_owned()));
        }
        for url in [
            "unix:",
            "http://",
            "https://x",
            "http://x/y",
            "http://u@x",
            "x",
        ] {
            assert_eq!(target(url).unwrap_err().exit, Exit::Usage, "{url}");
        }
    }

    #[test]
    fn tokens_come_from_the_named_file_the_environment_or_the_daemon_s_file() {
        let dir = crate::state::file::tests::scratch("token");
        let path = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            dir.join(name)
        };
        let (named, own) = (path("named", "n\nmore"), path("own", "o\n"));
        let missing = dir.join("missing");
        let find = |file: Option<&Path>, variable: Option<&str>, own: &Path| {
            let found = Token::find(file, variable.map(str::to_owned), own);
            found.map(|t| t.map(|t| t.0))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(find(Some(&named), Some("v"), &own).unwrap(), some("n"));
        assert_eq!(find(None, Some("v"), &own).unwrap(), some("v"));
        assert_eq!(find(None, None, &own).unwrap(), some("o"));
        assert_eq!(find(None, None, &missing).unwrap(), None);
        let failure = find(Some(&missing), Some("v"), &own).unwrap_err();
        assert_eq!(failure.exit, Exit::Permission);
        let client = |api| {
            let client = Client::new(Some(api), "/d".into(), None).unwrap();
            client.with_token(|| Token::find(None, None, &own)).unwrap()
        };
        assert!(client("unix:/x").token.is_none());
        let text = format!("{:?}", client("http://127.0.0.1:1"));
        assert!(text.contains("***"), "{text}");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn no_socket_is_exit_5_and_says_so() {
        let client = Client::new(None, "/nonexistent/api.sock".into(), None).unwrap();
        let failure = client.get::<Value>("/api/v1/status").await.unwrap_err();
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.message.contains("/nonexistent/api.sock"));
    }

    #[tokio::test]
    async fn a_silent_daemon_is_exit_8() {
        let dir = crate::state::file::tests::scratch("silent");
        let path = dir.join("api.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let client = Client::new(None, path, Some(Duration::from_millis(20))).unwrap();
        let failure = client.get::<Value>("/api/v1/status").await.unwrap_err();
        assert_eq!(failure.exit, Exit::Timeout);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
