//! `honk run`.

use super::{
    Invocation,
    args::{LogFormat, Run},
    exit::{Exit, Failure},
};
use crate::{
    app::run::{Plan, run as daemon},
    log::{self, Style},
};

/// Variables of ours that mean something; others are probably misspelt.
const KNOWN: [&str; 6] = [
    "HONK_API",
    "HONK_API_TOKEN",
    "HONK_API_TOKEN_FILE",
    "HONK_CONFIG",
    "HONK_CONFIG_PERM",
    "HONK_LOG",
];

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: Run) -> Result<Exit, Failure> {
    let spec = invocation.spec()?;
    let filter = invocation.log_filter();
    let log = log::install(filter.as_deref(), style(&args))
        .map_err(|e| Failure::new(Exit::Usage, "usage", e.to_string()))?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in unknown(names) {
        tracing::warn!("the variable {name} is not known and has no effect");
    }
    let plan = Plan {
        spec,
        log,
        pin_root: args.bpf_pin_root,
        api: !args.no_api,
        pidfile: !args.disable_pidfile,
        keep_checking: args.keep_checking,
        check: args.check,
    };
    daemon(plan, |data_dir| invocation.dirs(data_dir))
}

fn style(args: &Run) -> Style {
    let auto = Style::auto();
    let json = args.log_format == LogFormat::Json;
    Style {
        json,
        time: auto.time && !args.disable_timestamp,
        color: auto.color && !json,
    }
}

fn unknown(names: impl Iterator<Item = String>) -> Vec<String> {
    names
        .filter(|n| n.starts_with("HONK_") && !KNOWN.contains(&n.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_are_found() {
        let names = ["PATH", "HONK_LOG", "HONK_CONIFG"].map(str::to_owned);
        assert_eq!(unknown(names.into_iter()), ["HONK_CONIFG"]);
    }
}
