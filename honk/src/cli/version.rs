//! `honk -V` and `honk version`.

/// Everything behind the name: `0.1.0 (rev, target, rustc, bpf abi)`.
pub(crate) const LINE: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("HONK_REVISION"),
    ", ",
    env!("HONK_TARGET"),
    ", ",
    env!("HONK_RUSTC"),
    ", bpf abi 4)"
);

// The literal above must follow the ABI crate.
const _: () = assert!(honk_common::ABI_VERSION == 4);

/// Short revision of the source, or `unknown`.
pub(crate) const REVISION: &str = env!("HONK_REVISION");
/// Target triple.
pub(crate) const TARGET: &str = env!("HONK_TARGET");
/// Package version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `honk version`
pub(crate) fn run(out: &super::output::Output) -> Result<super::exit::Exit, super::exit::Failure> {
    if out.json {
        let data = serde_json::json!({
            "name": "honk",
            "version": VERSION,
            "git": REVISION,
            "target": TARGET,
            "rustc": env!("HONK_RUSTC"),
            "bpf_abi": honk_common::ABI_VERSION,
        });
        out.document("version/1", &data, &[] as &[String])?;
    } else {
        out.text(&format!("honk {LINE}"))?;
    }
    Ok(super::exit::Exit::Success)
}
