//! The client side of the API: one connection to the unix socket, one request at a time.

use std::{path::PathBuf, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::exit::{Exit, Failure};

/// Largest answer a client takes.
const BODY_LIMIT: usize = 64 << 20;
/// Total wait when `--timeout` is not given.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// A daemon to talk to.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    wait: Duration,
}

impl Client {
    /// `api` is `--api`, if given.
    pub(crate) fn new(
        api: Option<&str>,
        default: PathBuf,
        wait: Option<Duration>,
    ) -> Result<Self, Failure> {
        let socket = match api {
            None => default,
            Some(url) => match url.strip_prefix("unix:") {
                Some(path) if !path.is_empty() => PathBuf::from(path),
                _ => {
                    let text = format!("--api {url}: write unix:PATH; the API has no TCP listener");
                    return Err(Failure::new(Exit::Usage, "usage", text));
                }
            },
        };
        Ok(Self {
            socket,
            wait: wait.unwrap_or(DEFAULT_WAIT),
        })
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

    async fn send(
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
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|e| self.unreachable(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| broken(&e))?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost");
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

    fn unreachable(&self, e: &std::io::Error) -> Failure {
        let path = self.socket.display();
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
    fn only_unix_addresses_are_understood() {
        let client = |api| Client::new(Some(api), "/d".into(), None).map(|c| c.socket);
        assert_eq!(
            client("unix:/x/api.sock").unwrap(),
            PathBuf::from("/x/api.sock")
        );
        assert_eq!(
            client("http://127.0.0.1:9090").unwrap_err().exit,
            Exit::Usage
        );
        assert!(client("unix:").is_err());
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
