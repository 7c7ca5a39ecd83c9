//! The standard `process_*` families, read from `/proc/self`.

use super::{names, page::Page};

/// What one look at `/proc/self` gave; fields that could not be read are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident: u64,
    pub(crate) virtual_size: u64,
    pub(crate) threads: u64,
    pub(crate) start_seconds: f64,
}

/// Reads it now.
pub(crate) fn read() -> Option<Process> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let boot = std::fs::read_to_string("/proc/stat").ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    parse(&stat, &boot, page, rustix::param::clock_ticks_per_second())
}

#[expect(clippy::cast_precision_loss, reason = "seconds as floats")]
fn parse(stat: &str, boot: &str, page: u64, ticks: u64) -> Option<Process> {
    // The second field is the name in parentheses and may hold anything.
    let fields: Vec<&str> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .collect();
    // Numbers of proc(5), counted from 1; the state is field 3.
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let booted = boot.lines().find_map(|l| l.strip_prefix("btime "))?;
    let booted: u64 = booted.trim().parse().ok()?;
    let seconds = |t: u64| t as f64 / ticks.max(1) as f64;
    Some(Process {
        cpu_seconds: seconds(field(14)? + field(15)?),
        threads: field(20)?,
        start_seconds: booted as f64 + seconds(field(22)?),
        virtual_size: field(23)?,
        resident: field(24)?.saturating_mul(page),
    })
}

/// Adds the families.
pub(crate) fn collect(page: &mut Page) {
    if let Some(p) = read() {
        page.add(&names::PROCESS_CPU, &[], p.cpu_seconds);
        page.count(&names::PROCESS_RSS, &[], p.resident);
        page.count(&names::PROCESS_VIRTUAL, &[], p.virtual_size);
        page.count(&names::PROCESS_THREADS, &[], p.threads);
        page.add(&names::PROCESS_START, &[], p.start_seconds);
    }
    if let Ok(fds) = std::fs::read_dir("/proc/self/fd") {
        page.count(&names::PROCESS_FDS, &[], fds.count() as u64);
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    page.count(
        &names::PROCESS_MAX_FDS,
        &[],
        limit.current.unwrap_or(u64::MAX),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 9 0 4000 \
                    123456789 2500 18446744073709551615";
        let boot = "cpu 1 2 3\nbtime 1700000000\n";
        let process = parse(stat, boot, 4096, 100).unwrap();
        assert_eq!(
            process,
            Process {
                cpu_seconds: 2.0,
                threads: 9,
                start_seconds: 1_700_000_040.0,
                virtual_size: 123_456_789,
                resident: 2500 * 4096,
            }
        );
    }
}
