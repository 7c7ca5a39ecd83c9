//! Running tools: where the workspace is, how a command is echoed, what a failure says.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

/// Root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or_else(|| Path::new("."))
}

/// Folder for build results; honours `CARGO_TARGET_DIR`.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Folder of the binaries of a profile.
pub(crate) fn bin_dir(release: bool) -> PathBuf {
    target_dir().join(if release { "release" } else { "debug" })
}

/// A command that starts in the workspace root.
pub(crate) fn tool(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    command
}

/// Cargo of the toolchain that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    tool(
        &std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()),
        args,
    )
}

/// Cargo of the nightly toolchain; through rustup, because a pinned `CARGO` ignores `+nightly`.
pub(crate) fn cargo_nightly(args: &[&str]) -> Command {
    let mut command = tool("cargo", &["+nightly"]);
    command
        .args(args)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC");
    command
}

/// The command as a person would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// Runs with inherited output; a failure is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", show(command));
    }
    Ok(())
}

/// Runs with inherited output after printing the command.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    eprintln!("  $ {}", show(command));
    command
        .status()
        .with_context(|| format!("cannot start `{}`", show(command)))
}

/// Runs silently and returns standard output; `None` when the tool is absent or fails.
pub(crate) fn capture(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether `name` is an executable file in `PATH` (or in the usual system folders).
pub(crate) fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .any(|dir| dir.join(name).is_file())
}

/// Whether we run as root.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Replaces success and failure by an exit code, keeping the child's own code.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Seconds since `start`, for progress lines.
pub(crate) fn secs(start: Instant) -> String {
    format!("{:.1} s", start.elapsed().as_secs_f64())
}
