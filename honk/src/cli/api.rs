//! `honk api`: the token of the TCP API.

use std::io;

use serde_json::json;

use super::{
    Invocation,
    args::Api,
    exit::{Exit, Failure},
};
use crate::state::secret::{self, Unusable};

/// Runs the command; whoever may read or replace the file may do everything anyway.
pub(crate) fn run(invocation: &Invocation, command: &Api) -> Result<Exit, Failure> {
    let Api::Secret { rotate } = command;
    let path = invocation.dirs(None)?.secret();
    let token = match rotate {
        true => secret::make(&path).map_err(Unusable::Io),
        false => secret::read(&path),
    };
    let token = token.map_err(|e| {
        let shown = path.display();
        match e {
            Unusable::Io(e) if e.kind() == io::ErrorKind::NotFound => {
                let text = format!(
                    "there is no {shown}: the configuration names the token, or no TCP listener was ever open"
                );
                Failure::new(Exit::NotFound, "not_found", text)
            }
            Unusable::Io(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let text = format!("not allowed to use {shown}; run as root");
                Failure::new(Exit::Permission, "permission", text)
            }
            e => Failure::new(Exit::Failure, "secret", format!("{shown}: {e}")),
        }
    })?;
    let out = &invocation.out;
    if *rotate {
        out.note("the daemon takes the new token at its next start");
    }
    if out.json {
        let data = json!({ "secret": token, "path": path });
        let none: [String; 0] = [];
        out.document("api.secret/1", &data, &none)?;
    } else {
        out.text(&token)?;
    }
    Ok(Exit::Success)
}
