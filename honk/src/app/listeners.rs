//! The listeners of the API: where, for whom, with which token.
//!
//! A listener that cannot be opened, or must not be, stays closed and is told; it never keeps
//! the daemon from its work.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use axum::Router;
use honk_grammar::diag::{Diagnostic, Severity};
use honk_policy::config::{Config, MIN_SECRET, Typed, listen_address};
use tokio::{sync::watch, task::JoinSet};

use super::{diag, engine::Engine};
use crate::{
    api::{
        Api,
        doc::Diag,
        guard::{Access, Guard, Hosts, Origins, Token},
        mask::Mask,
        server::{ApiSocket, Peers},
        tcp::ApiListener,
        ui,
    },
    socket,
    state::{
        dirs::{Dirs, Env},
        secret,
    },
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// What the configuration says about listeners.
#[derive(Debug)]
struct Wanted {
    api: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    hosts: Vec<String>,
    origins: Vec<String>,
    private_network: bool,
}

/// The tokens of the TCP listeners.
#[derive(Debug, Default)]
struct Tokens {
    /// `None`: there is none; an empty one: whoever reaches the listener may do everything.
    full: Option<String>,
    read: Option<String>,
}

/// Open listeners.
#[derive(Debug)]
pub(super) struct Listeners {
    api: Vec<ApiListener>,
    metrics: Option<(ApiListener, Guard)>,
    guard: Option<Guard>,
    mask: Mask,
    ui: Option<ui::Folder>,
    warnings: Vec<Diag>,
}

impl Listeners {
    /// Opens what can be opened. Must be called inside a tokio runtime.
    pub(super) fn open(config: &Config, dirs: &Dirs, env: Env<'_>) -> Self {
        let settings = Settings(config);
        let wanted = settings.wanted();
        let mut listeners = Self {
            api: Vec::new(),
            metrics: None,
            guard: None,
            mask: Mask::default(),
            ui: settings.ui(dirs).map(ui::Folder::new),
            warnings: Vec::new(),
        };
        if let Some(problem) = listeners.ui.as_ref().and_then(ui::Folder::problem) {
            listeners.warn("ui-missing", problem);
        }
        if wanted.api.is_empty() && wanted.metrics.is_none() {
            return listeners;
        }
        let read = settings.secret("read_secret").filter(|s| !s.is_empty());
        let own_only =
            wanted.api.is_empty() && wanted.metrics.is_some_and(|m| m.ip().is_loopback());
        // Where nobody is asked for a token, none is made.
        let full = match (!own_only).then(|| settings.full(dirs, env)) {
            None => None,
            Some(Ok(full)) => Some(full),
            Some(Err(text)) => {
                listeners.warn("api-open", format!("{text}; TCP listeners stay closed"));
                None
            }
        };
        let tokens = Tokens { full, read };
        let known = [&tokens.full, &tokens.read].into_iter().flatten();
        listeners.mask = Mask::new(known.map(String::as_str));
        let usable = tokens.full.is_some();
        for address in wanted.api.iter().filter(|_| usable) {
            if let Some(listener) = listeners.bind(*address, &tokens, "the API") {
                listeners.api.push(listener);
            }
        }
        if !listeners.api.is_empty() {
            listeners.guard = Some(wanted.guard(tokens.access()));
        }
        if let Some(address) = wanted.metrics {
            let local = address.ip().is_loopback();
            let access = match local {
                true => Access::Anonymous,
                false => tokens.access(),
            };
            if (local || usable)
                && let Some(listener) = listeners.bind(address, &tokens, "metrics")
            {
                listeners.metrics = Some((listener, wanted.guard(access)));
            }
        }
        listeners
    }

    fn bind(&mut self, address: SocketAddr, tokens: &Tokens, what: &str) -> Option<ApiListener> {
        if !address.ip().is_loopback() && !tokens.are_long() {
            let text = format!(
                "{address} is reachable by others and a token is shorter than {MIN_SECRET} \
                 bytes: {what} does not listen there"
            );
            self.warn("api-open", text);
            return None;
        }
        match socket::listen(address, BACKLOG).and_then(ApiListener::new) {
            Ok(listener) => {
                let address = listener.address();
                tracing::info!(target: "honk::api", %address, "{what} listens");
                Some(listener)
            }
            Err(error) => {
                let text = format!("{what} does not listen on {address}: {error}");
                tracing::error!(target: "honk::api", "{text}");
                self.warnings.push(warning("api-port-taken", text));
                None
            }
        }
    }

    fn warn(&mut self, code: &'static str, text: String) {
        tracing::warn!(target: "honk::api", "{text}");
        self.warnings.push(warning(code, text));
    }

    /// Serves all of them, and the socket.
    pub(super) fn serve(
        self,
        engine: &Arc<Engine>,
        socket: Option<(ApiSocket, Peers)>,
        tasks: &mut JoinSet<()>,
        stop: &watch::Receiver<bool>,
    ) {
        let api = Api::new(Arc::clone(engine), self.mask, self.warnings).with_ui(self.ui);
        if let Some((socket, peers)) = socket {
            tasks.spawn(socket.serve(api.socket(), peers, stop.clone()));
        }
        let router: Option<Router> = self.guard.map(|guard| api.tcp(&Arc::new(guard)));
        for (listener, router) in self.api.into_iter().zip(router.iter().cycle()) {
            tasks.spawn(listener.serve(router.clone(), stop.clone()));
        }
        if let Some((listener, guard)) = self.metrics {
            let router = api.metrics(&Arc::new(guard));
            tasks.spawn(listener.serve(router, stop.clone()));
        }
    }
}

fn warning(code: &'static str, text: String) -> Diag {
    diag::placeless(&Diagnostic::new(Severity::Warning, "", code, None, text))
}

impl Wanted {
    fn guard(&self, access: Access) -> Guard {
        let secured = matches!(access, Access::Tokens { .. });
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let hosts = Hosts::new(&machine, &self.hosts);
        let origins = Origins::new(&self.origins, secured);
        Guard::new(access, hosts, origins).private_network(self.private_network)
    }
}

impl Tokens {
    fn access(&self) -> Access {
        match self.full.as_deref() {
            Some("") => Access::Anonymous,
            full => Access::Tokens {
                full: full.map(Token::new),
                read: self.read.as_deref().map(Token::new),
            },
        }
    }

    /// None of them can be guessed.
    fn are_long(&self) -> bool {
        let long = |token: &Option<String>| token.as_ref().is_none_or(|t| t.len() >= MIN_SECRET);
        self.full.is_some() && long(&self.full) && long(&self.read)
    }
}

/// Keys of `clash_api` and `metrics`.
struct Settings<'a>(&'a Config);

impl Settings<'_> {
    fn get(&self, key: &str) -> Option<&Typed> {
        self.0.settings.get(&format!("experimental.{key}"))
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.get(&format!("clash_api.{key}")) {
            Some(Typed::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Typed::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn secret(&self, key: &str) -> Option<String> {
        match self.get(&format!("clash_api.{key}")) {
            Some(Typed::Secret(secret)) => Some(secret.reveal().to_owned()),
            _ => None,
        }
    }

    /// Addresses that are none are findings of the configuration.
    fn wanted(&self) -> Wanted {
        let api = self.list("external_controller");
        Wanted {
            api: api.iter().filter_map(|text| listen_address(text)).collect(),
            metrics: self.text("metrics.listen").and_then(listen_address),
            hosts: self.list("allow_hosts"),
            origins: self.list("allow_origins"),
            private_network: self.get("clash_api.allow_private_network")
                == Some(&Typed::Bool(true)),
        }
    }

    /// The folder of a dashboard; a relative one is below the state directory.
    fn ui(&self, dirs: &Dirs) -> Option<PathBuf> {
        let path = self.text("clash_api.external_ui");
        path.filter(|p| !p.is_empty()).map(|p| dirs.state.join(p))
    }

    /// The token with all rights, from the first source that is there.
    fn full(&self, dirs: &Dirs, env: Env<'_>) -> Result<String, String> {
        let told =
            |path: &PathBuf, e: secret::Unusable| format!("no token: {}: {e}", path.display());
        if let Some(dir) = env("CREDENTIALS_DIRECTORY") {
            let path = PathBuf::from(dir).join("honk.secret");
            if path.exists() {
                return secret::credential(&path).map_err(|e| told(&path, e));
            }
        }
        if let Some(path) = self.text("clash_api.secret_file").filter(|p| !p.is_empty()) {
            let path = PathBuf::from(path);
            return secret::read(&path).map_err(|e| told(&path, e));
        }
        if let Some(secret) = self.secret("secret") {
            return Ok(secret);
        }
        let path = dirs.secret();
        let token = secret::read_or_make(&path).map_err(|e| told(&path, e))?;
        tracing::info!(target: "honk::api", path = %path.display(), "the token of the API is in a file");
        Ok(token)
    }
}

/// Where the unix socket is wanted; `None`: nowhere.
pub(super) fn socket_path(config: &Config, dirs: &Dirs) -> Option<PathBuf> {
    match Settings(config).text("clash_api.external_controller_unix") {
        Some("") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => Some(dirs.socket()),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;
    use crate::{
        app::testkit::{CONFIG, World},
        state::file::tests::scratch,
    };

    const LONG: &str = "a-token-of-24-characters";

    /// Opens what `experimental` asks for, in directories of its own.
    fn open(experimental: &str, dir: &Path, env: Env<'_>) -> Listeners {
        let world = World::new(&format!("{CONFIG} experimental {{ {experimental} }}"));
        let (state, runtime) = (dir.to_owned(), dir.to_owned());
        let config = Arc::clone(&world.engine.snapshot().config);
        Listeners::open(&config, &Dirs { state, runtime }, env)
    }

    fn none(_: &str) -> Option<OsString> {
        None
    }

    fn told(listeners: &Listeners) -> Vec<&str> {
        listeners.warnings.iter().map(|w| w.code.as_str()).collect()
    }

    fn with_mode(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn nothing_listens_unless_asked_for() {
        let dir = scratch("quiet");
        let listeners = open("clash_api { allow_hosts: router.lan }", &dir, &none);
        assert!(listeners.api.is_empty() && listeners.metrics.is_none());
        assert!(told(&listeners).is_empty());
        assert_eq!(
            std::fs::read_dir(&dir).unwrap().count(),
            0,
            "no token either"
        );
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_listener_without_a_secret_gets_one_that_stays() {
        let dir = scratch("made");
        let key = "clash_api { external_controller: '127.0.0.1:0', '0.0.0.0:0' }";
        let listeners = open(key, &dir, &none);
        assert_eq!(listeners.api.len(), 2, "{:?}", listeners.warnings);
        let guard = listeners.guard.as_ref().unwrap();
        assert!(!format!("{guard:?}").contains("Anonymous"));
        let token = secret::read(&dir.join("api.secret")).unwrap();
        assert_eq!(listeners.mask.text(&token), "***");
        let again = open(key, &dir, &none);
        assert_eq!(again.mask.text(&token), "***");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn others_are_let_in_by_long_secrets_only() {
        let dir = scratch("open");
        for (keys, open_ones) in [
            (format!("secret: '{LONG}'"), 2),
            ("secret: short".to_owned(), 1),
            ("secret: ''".to_owned(), 1),
            (format!("secret: '{LONG}' read_secret: short"), 1),
            (format!("secret: '{LONG}' read_secret: '{LONG}-r'"), 2),
        ] {
            let both = "external_controller: '127.0.0.1:0', '0.0.0.0:0'";
            let listeners = open(&format!("clash_api {{ {both} {keys} }}"), &dir, &none);
            assert_eq!(listeners.api.len(), open_ones, "{keys}");
            let closed = 2 - open_ones;
            assert_eq!(told(&listeners), vec!["api-open"; closed], "{keys}");
            let text = format!("{listeners:?}");
            assert!(!text.contains(LONG) && !text.contains("short\""), "{text}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_secret_file_that_gives_none_keeps_tcp_closed() {
        let dir = scratch("file");
        let path = dir.join("token");
        let keys = format!(
            "clash_api {{ external_controller: '127.0.0.1:0' secret_file: '{}' }}",
            path.display()
        );
        let opened = || {
            let listeners = open(&keys, &dir, &none);
            let messages: Vec<_> = listeners.warnings.iter().map(|w| &w.message).collect();
            assert!(!format!("{messages:?}").contains(LONG), "{messages:?}");
            (listeners.api.len(), listeners.warnings.len())
        };
        assert_eq!(opened(), (0, 1), "missing");
        with_mode(&path, LONG, 0o644);
        assert_eq!(opened(), (0, 1), "readable by others");
        with_mode(&path, "\n", 0o600);
        assert_eq!(opened(), (0, 1), "empty");
        with_mode(&path, LONG, 0o600);
        assert_eq!(opened(), (1, 0));
        let credentials = dir.join("credentials");
        std::fs::create_dir(&credentials).unwrap();
        with_mode(
            &credentials.join("honk.secret"),
            "from-the-service-manager",
            0o444,
        );
        let env =
            |name: &str| (name == "CREDENTIALS_DIRECTORY").then(|| credentials.clone().into());
        let listeners = open(&keys, &dir, &env);
        assert_eq!(listeners.mask.text("from-the-service-manager"), "***");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_told_and_the_rest_listens() {
        let dir = scratch("taken");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let keys = format!(
            "clash_api {{ external_controller: '127.0.0.1:{port}', '127.0.0.1:0' }}
             metrics {{ listen: '127.0.0.1:{port}' }}"
        );
        let listeners = open(&keys, &dir, &none);
        assert_eq!(listeners.api.len(), 1);
        assert!(listeners.metrics.is_none());
        assert_eq!(told(&listeners), ["api-port-taken", "api-port-taken"]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn metrics_for_others_need_a_token_and_for_ourselves_none() {
        let dir = scratch("metrics");
        let own = open("metrics { listen: '127.0.0.1:0' }", &dir, &none);
        let guard = format!("{:?}", own.metrics.unwrap().1);
        assert!(guard.contains("Anonymous"), "{guard}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "no token made");
        let all = open("metrics { listen: ':0' }", &dir, &none);
        let guard = format!("{:?}", all.metrics.unwrap().1);
        assert!(!guard.contains("Anonymous"), "{guard}");
        let anonymous = "clash_api { secret: '' } metrics { listen: ':0' }";
        let listeners = open(anonymous, &dir, &none);
        assert!(listeners.metrics.is_none());
        assert_eq!(told(&listeners), ["api-open"]);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_unix_socket_can_be_moved_and_switched_off() {
        let dir = scratch("socket");
        let (state, runtime) = (dir.clone(), dir.clone());
        let dirs = Dirs { state, runtime };
        for (key, path) in [
            ("", Some(dirs.socket())),
            ("external_controller_unix: ''", None),
            (
                "external_controller_unix: '/x/honk.sock'",
                Some("/x/honk.sock".into()),
            ),
        ] {
            let world = World::new(&format!(
                "{CONFIG} experimental {{ clash_api {{ {key} }} }}"
            ));
            let config = Arc::clone(&world.engine.snapshot().config);
            assert_eq!(socket_path(&config, &dirs), path, "{key}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
