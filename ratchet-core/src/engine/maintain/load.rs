//! Measures the processor time and the memory of the process, which heartbeats report.

use std::sync::{Mutex, PoisonError};

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Measures the processor time and the memory that this process uses.
#[derive(Debug)]
pub(crate) struct Gauge(Mutex<System>);

impl Gauge {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(System::new()))
    }

    /// Returns the processor time that the process used since the last call, in percent of one
    /// processor, and its memory in bytes. Returns `None` if the operating system does not report
    /// these values.
    pub(crate) fn read(&self) -> Option<(u32, u64)> {
        let pid = Pid::from_u32(std::process::id());
        let mut system = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let what = ProcessRefreshKind::nothing().with_cpu().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), false, what);
        let process = system.process(pid)?;
        Some((percent(process.cpu_usage()), process.memory()))
    }
}

/// Rounds a processor usage to a whole number of percent. Returns 0 for NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is intended"
)]
fn percent(usage: f32) -> u32 {
    usage.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_memory() {
        let gauge = Gauge::new();
        let (_, bytes) = gauge.read().expect(
            "the operating system should report the memory use of \
             this process",
        );
        assert!(bytes > 100_000, "{bytes} bytes");
        assert_eq!(percent(f32::NAN), 0);
        assert_eq!(percent(180.4), 180);
    }
}
