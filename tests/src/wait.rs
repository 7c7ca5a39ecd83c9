//! Waiting for conditions with a deadline; tests never sleep for a fixed time.
//!
//! A deadline says when to give up, not how fast something must be: however short the caller's
//! limit is, a busy machine gets [`FLOOR`], and only a test that fails takes it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is asked.
const STEP: Duration = Duration::from_millis(10);
/// No wait is given up earlier.
const FLOOR: Duration = Duration::from_secs(60);

/// Asks `probe` until it gives a value; an error names what was awaited.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Result<T> {
    let (start, limit) = (Instant::now(), limit.max(FLOOR));
    loop {
        if let Some(value) = probe() {
            return Ok(value);
        }
        if start.elapsed() > limit {
            bail!("waited {:.1} s in vain: {what}", limit.as_secs_f64());
        }
        std::thread::sleep(STEP);
    }
}

/// Asks `probe` until it succeeds; the error carries the last failure.
pub fn ok<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T>) -> Result<T> {
    let (start, limit) = (Instant::now(), limit.max(FLOOR));
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > limit => {
                return Err(error.context(format!(
                    "waited {:.1} s in vain: {what}",
                    limit.as_secs_f64()
                )));
            }
            Err(_) => std::thread::sleep(STEP),
        }
    }
}
