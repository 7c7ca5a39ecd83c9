//! `honk diag`: what is attached, how full it is, and the faults that people meet, each with the
//! sentence that helps.
//!
//! [`facts`] reads the host and, where one runs, the daemon; it changes nothing. [`checks`] turns
//! facts into verdicts and knows no host. Works as any user: what may not be read is skipped.

mod checks;
mod facts;
mod host;

use serde::Serialize;
use serde_json::json;

use self::facts::Facts;
use super::{
    Invocation,
    args::Diag,
    exit::{Exit, Failure},
    output::{Output, clean},
    plural,
};

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
    Skip,
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    id: &'static str,
    status: Verdict,
    message: String,
    /// What to do, where something is to be done.
    fix: Option<String>,
}

impl Check {
    fn ok(id: &'static str, message: impl Into<String>) -> Self {
        Self::new(id, Verdict::Ok, message.into(), None)
    }

    fn skip(id: &'static str, message: impl Into<String>) -> Self {
        Self::new(id, Verdict::Skip, message.into(), None)
    }

    fn warn(id: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Verdict::Warn, message.into(), Some(fix.into()))
    }

    fn fail(id: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, Verdict::Fail, message.into(), Some(fix.into()))
    }

    fn new(id: &'static str, status: Verdict, message: String, fix: Option<String>) -> Self {
        Self {
            id,
            status,
            message,
            fix,
        }
    }
}

/// Runs the command.
pub(crate) fn run(invocation: &Invocation, args: &Diag) -> Result<Exit, Failure> {
    let facts = Facts::gather(invocation, &args.bpf_pin_root)?;
    let checks = checks::all(&facts);
    let out = &invocation.out;
    let problems = count(&checks, Verdict::Fail);
    if out.json {
        let warnings = count(&checks, Verdict::Warn);
        let data = json!({ "checks": checks, "issues": problems, "warnings": warnings });
        out.document("diag/1", &data, &[] as &[String])?;
    } else {
        out.text(&report(out, &checks))?;
    }
    match exit(&checks) {
        Exit::Success => Ok(Exit::Success),
        bad => Err(Failure::silent(bad)),
    }
}

fn count(checks: &[Check], status: Verdict) -> usize {
    checks.iter().filter(|c| c.status == status).count()
}

/// 9 when the kernel cannot do it, 10 when anything else is wrong.
fn exit(checks: &[Check]) -> Exit {
    let mut failed = checks.iter().filter(|c| c.status == Verdict::Fail);
    if failed.clone().any(|c| c.id.starts_with("kernel")) {
        Exit::Unsupported
    } else if failed.next().is_some() {
        Exit::Found
    } else {
        Exit::Success
    }
}

fn report(out: &Output, checks: &[Check]) -> String {
    let width = checks.iter().map(|c| c.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let (color, word) = match check.status {
            Verdict::Ok => ("32", "ok  "),
            Verdict::Warn => ("33", "warn"),
            Verdict::Fail => ("31", "FAIL"),
            Verdict::Skip => ("2", "skip"),
        };
        text.push_str(&format!(
            "{}  {:width$}  {}\n",
            out.paint(color, word),
            check.id,
            clean(&check.message)
        ));
        if let Some(fix) = &check.fix {
            text.push_str(&format!("      {:width$}  -> {}\n", "", clean(fix)));
        }
    }
    let warnings = count(checks, Verdict::Warn);
    if warnings > 0 {
        text.push_str(&format!("diag: {}\n", plural(warnings, "warning")));
    }
    text.push_str(&match count(checks, Verdict::Fail) {
        0 => "diag: all checks passed\n".to_owned(),
        n => format!("diag: {n} issue(s) found\n"),
    });
    text
}

#[cfg(test)]
mod tests;
