//! The files of a dashboard under `/ui/`, which need no token: what they show is asked for with
//! one.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path as Named, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use futures_util::stream;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use sha2::{Digest as _, Sha256};

use super::{Shared, error::ApiError};

/// What is read at a time.
const CHUNK: usize = 64 * 1024;
/// Pages are read at once, for their scripts; larger ones get no permission for those.
const PAGE: u64 = 1 << 20;
const START: &str = "index.html";

/// Whether a path belongs to the dashboard.
pub(super) fn owns(path: &str) -> bool {
    path == "/ui" || path.starts_with("/ui/")
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/ui", get(|| async { Redirect::permanent("/ui/") }))
        .route("/ui/", get(start))
        .route("/ui/{*path}", get(file))
}

/// The folder a dashboard is served from, as configured.
#[derive(Clone, Debug)]
pub(crate) struct Folder(Arc<Path>);

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path.into())
    }

    /// What is missing, for people.
    pub(crate) fn problem(&self) -> Option<String> {
        let start = self.0.join(START);
        (!start.is_file())
            .then(|| format!("no dashboard is served: {} is missing", start.display()))
    }
}

async fn start(state: State<Shared>, headers: HeaderMap) -> Result<Response, ApiError> {
    serve(state, START.to_owned(), headers).await
}

async fn file(
    state: State<Shared>,
    Named(path): Named<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    serve(state, path, headers).await
}

async fn serve(
    State(shared): State<Shared>,
    path: String,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("file", "no such file of the dashboard");
    let folder = shared.ui.clone().ok_or_else(missing)?;
    let found = tokio::task::spawn_blocking(move || find(&folder, &path)).await;
    let found = found.ok().flatten().ok_or_else(missing)?;
    Ok(found.response(&headers))
}

/// An open file of the folder.
struct Found {
    file: File,
    kind: &'static str,
    tag: String,
    length: u64,
    /// All of it, and the digests of its scripts.
    page: Option<(Vec<u8>, String)>,
}

/// The file, or the first page for a path that only the scripts of the page know.
fn find(folder: &Folder, path: &str) -> Option<Found> {
    let known = !path.is_empty() && !path.ends_with('/');
    let opened = known.then(|| open(folder, path));
    let last = path.rsplit('/').next().unwrap_or_default();
    match opened {
        Some(Ok(found)) => Some(found),
        _ if last.contains('.') => None,
        _ => open(folder, START).ok(),
    }
}

/// Nothing outside the folder, whatever links point at, and nothing but plain files.
fn open(folder: &Folder, path: &str) -> io::Result<Found> {
    let at = OFlags::RDONLY | OFlags::CLOEXEC;
    let top: OwnedFd = rustix::fs::open(&*folder.0, at | OFlags::DIRECTORY, Mode::empty())?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // A pipe would wait for a writer.
    let file = openat2(top, path, at | OFlags::NONBLOCK, Mode::empty(), beneath)?;
    let mut file = File::from(file);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let age = meta.modified()?.duration_since(UNIX_EPOCH);
    let nanos = age.map_or(0, |age| age.as_nanos());
    let kind = kind(path);
    let mut page = None;
    if kind.starts_with("text/html") && meta.len() <= PAGE {
        let mut text = Vec::new();
        (&mut file).take(PAGE).read_to_end(&mut text)?;
        let scripts = scripts(&text);
        page = Some((text, scripts));
    }
    Ok(Found {
        kind,
        tag: format!("\"{:x}-{nanos:x}\"", meta.len()),
        length: meta.len(),
        file,
        page,
    })
}

impl Found {
    fn response(self, asked: &HeaderMap) -> Response {
        let known = asked.get(header::IF_NONE_MATCH);
        let same = known.is_some_and(|known| known.as_bytes() == self.tag.as_bytes());
        let scripts = self.page.as_ref().map_or("", |(_, scripts)| scripts);
        let policy = policy(scripts);
        let mut response = match (same, self.page) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, Some((text, _))) => text.into_response(),
            (false, None) => {
                let mut response = body(self.file).into_response();
                let length = HeaderValue::from(self.length);
                response
                    .headers_mut()
                    .insert(header::CONTENT_LENGTH, length);
                response
            }
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        for (name, value) in [
            (header::ETAG, self.tag),
            (header::CONTENT_SECURITY_POLICY, policy),
        ] {
            // Both are made of plain characters.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        for (name, value) in [
            (header::CACHE_CONTROL, "no-cache"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The file in pieces: what a slow client has not taken stays on disk.
fn body(file: File) -> Body {
    let pieces = stream::try_unfold(file, |mut file| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; CHUNK];
            let length = file.read(&mut piece)?;
            piece.truncate(length);
            Ok::<_, io::Error>((piece, file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        Ok::<_, io::Error>((!piece.is_empty()).then(|| (Bytes::from(piece), file)))
    });
    Body::from_stream(pieces)
}

/// Own scripts and those written into the page, styles of any kind, data from any API: a
/// dashboard may be told to show another gateway.
fn policy(scripts: &str) -> String {
    format!(
        "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'{scripts}; \
         style-src 'self' 'unsafe-inline'; font-src 'self' data:; img-src 'self' data: blob: \
         https:; worker-src 'self' blob:; connect-src 'self' http: https: ws: wss:; \
         base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    )
}

/// Digests of the scripts that stand in a page itself.
fn scripts(page: &[u8]) -> String {
    let text = String::from_utf8_lossy(page);
    let mut digests = String::new();
    let mut rest = &*text;
    while let Some(at) = rest.find("<script") {
        let Some((tag, after)) = rest[at..].split_once('>') else {
            break;
        };
        let (inside, after) = after.split_once("</script").unwrap_or((after, ""));
        if !tag.contains(" src=") {
            let digest = BASE64.encode(Sha256::digest(inside.as_bytes()));
            digests.push_str(&format!(" 'sha256-{digest}'"));
        }
        rest = after;
    }
    digests
}

fn kind(path: &str) -> &'static str {
    let extension = path.rsplit('.').next().unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "wasm" => "application/wasm",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// `GET /` of a browser leads to the dashboard, if there is one.
pub(super) fn wants_page(shared: &Shared, headers: &HeaderMap) -> Option<Response> {
    let page = shared.ui.is_some() && is_browser(headers);
    page.then(|| (StatusCode::FOUND, [(header::LOCATION, "/ui/")]).into_response())
}

/// Whether a page is asked for, and not data. Browsers cannot bring a token with that.
pub(super) fn is_browser(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT);
    let accepts = accepts.and_then(|value| value.to_str().ok());
    accepts.is_some_and(|kinds| kinds.contains("text/html") && !kinds.contains("json"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        api::{
            Api,
            guard::{Access, Guard, Hosts, Origins, Peer, Token},
            mask::Mask,
        },
        app::testkit::{CONFIG, World},
        state::file::tests::scratch,
    };

    struct Site {
        world: World,
        dir: PathBuf,
    }

    impl Site {
        fn new(name: &str) -> Self {
            let dir = scratch(name);
            let ui = dir.join("ui");
            fs::create_dir_all(ui.join("assets")).unwrap();
            let page = "<html><script src=\"a.js\"></script><script>let x = 1</script></html>";
            fs::write(ui.join(START), page).unwrap();
            fs::write(ui.join("assets/app.js"), "x".repeat(3 * CHUNK + 1)).unwrap();
            fs::write(dir.join("secret.txt"), "secret").unwrap();
            symlink(dir.join("secret.txt"), ui.join("absolute.txt")).unwrap();
            symlink("../secret.txt", ui.join("relative.txt")).unwrap();
            symlink("assets/app.js", ui.join("inside.js")).unwrap();
            Self {
                world: World::new(CONFIG),
                dir,
            }
        }

        async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (Response, Bytes) {
            let ui = Some(Folder::new(self.dir.join("ui")));
            let api = Api::new(self.world.engine.clone(), Mask::default(), Vec::new()).with_ui(ui);
            let access = Access::Tokens {
                full: Some(Token::new("0123456789abcdef")),
                read: None,
            };
            let guard = Guard::new(access, Hosts::default(), Origins::default());
            let mut request = Request::get(path).header("host", "127.0.0.1");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let peer = Peer("192.0.2.1".parse().unwrap());
            let request = request.extension(peer).body(Body::empty()).unwrap();
            let response = api.tcp(&Arc::new(guard)).oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            (Response::from_parts(parts, Body::empty()), bytes)
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    #[tokio::test]
    async fn files_are_served_to_anybody_and_data_is_not() {
        let site = Site::new("ui-files");
        let (head, page) = site.get("/ui/", &[]).await;
        assert_eq!(head.status(), 200);
        assert!(page.starts_with(b"<html>"));
        let header = |head: &Response, name: &str| {
            let value = head.headers().get(name).map(|v| v.to_str().unwrap());
            value.unwrap_or_default().to_owned()
        };
        assert_eq!(header(&head, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header(&head, "x-content-type-options"), "nosniff");
        assert_eq!(header(&head, "x-frame-options"), "DENY");
        assert_eq!(header(&head, "referrer-policy"), "no-referrer");
        let policy = header(&head, "content-security-policy");
        // The digest of `let x = 1`, as browsers work it out.
        let digest = "'sha256-+9RIDzvx0TGl4PMcwUdjIf3oi5QYiuHS1C+f52uNBBc='";
        assert!(policy.contains(digest), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        // Paths that scripts made up lead to the page; files that are not there do not.
        assert_eq!(site.get("/ui/setup/x", &[]).await.1, page);
        assert_eq!(site.get("/ui/assets/", &[]).await.1, page);
        assert_eq!(site.get("/ui/assets/nope.js", &[]).await.0.status(), 404);
        let (head, script) = site.get("/ui/assets/app.js", &[]).await;
        assert_eq!(script.len(), 3 * CHUNK + 1);
        assert_eq!(header(&head, "content-length"), script.len().to_string());
        let tag = header(&head, "etag");
        let (head, none) = site
            .get("/ui/assets/app.js", &[("if-none-match", &tag)])
            .await;
        assert_eq!((head.status().as_u16(), none.len()), (304, 0));
        let (head, _) = site.get("/ui", &[]).await;
        assert_eq!(
            (head.status().as_u16(), header(&head, "location").as_str()),
            (308, "/ui/")
        );
        assert_eq!(site.get("/proxies", &[]).await.0.status(), 401);
        assert_eq!(site.get("/uix", &[]).await.0.status(), 401);
        // A wrong token is refused on open paths, too.
        let wrong = [("authorization", "Bearer nope")];
        assert_eq!(site.get("/ui/", &wrong).await.0.status(), 401);
        let stranger = [("origin", "http://evil.example")];
        assert_eq!(site.get("/ui/", &stranger).await.0.status(), 403);
    }

    #[tokio::test]
    async fn nothing_outside_the_folder_is_served() {
        let site = Site::new("ui-outside");
        for path in [
            "/ui/../secret.txt",
            "/ui/%2e%2e/secret.txt",
            "/ui/assets/..%2f..%2fsecret.txt",
            "/ui/%2Fetc%2Fpasswd.txt",
            "/ui/absolute.txt",
            "/ui/relative.txt",
            "/ui/assets%00.txt",
        ] {
            let (head, body) = site.get(path, &[]).await;
            assert_eq!(head.status(), 404, "{path}");
            assert!(!body.windows(6).any(|w| w == b"secret"), "{path}");
        }
        assert_eq!(site.get("/ui/inside.js", &[]).await.0.status(), 200);
        fs::remove_file(site.dir.join("ui").join(START)).unwrap();
        assert_eq!(site.get("/ui/", &[]).await.0.status(), 404);
        let problem = Folder::new(site.dir.join("ui")).problem().unwrap();
        assert!(problem.contains(START), "{problem}");
    }

    #[tokio::test]
    async fn browsers_are_led_to_the_page_and_programs_are_answered() {
        let site = Site::new("ui-root");
        let page = ("accept", "text/html,*/*");
        // Browsers have no token.
        let (head, _) = site.get("/", &[page]).await;
        assert_eq!(head.status(), 302);
        assert_eq!(head.headers()["location"], "/ui/");
        for other in [("accept", "*/*"), ("accept", "text/html,application/json")] {
            assert_eq!(site.get("/", &[other]).await.0.status(), 401);
        }
        assert_eq!(site.get("/version", &[page]).await.0.status(), 401);
        let wrong = ("authorization", "Bearer nope");
        assert_eq!(site.get("/", &[wrong, page]).await.0.status(), 401);
        let token = ("authorization", "Bearer 0123456789abcdef");
        let (head, body) = site.get("/", &[token, ("accept", "*/*")]).await;
        assert_eq!(head.status(), 200);
        assert_eq!(&body[..], br#"{"hello":"honk"}"#);
    }
}
