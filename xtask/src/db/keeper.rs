use std::io::Write;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// Runs a shell line when the keeper is dropped. Also runs the line if this process is interrupted
/// or killed, and so cannot drop the keeper.
///
/// A separate shell runs the line. It waits for input from a pipe, and continues once no process
/// holds the other end of the pipe.
pub(super) struct Keeper {
    waiting: Child,
}

impl Keeper {
    /// Script of the waiting shell. The shell ignores the terminal's signals, which also reach it.
    /// It does not inherit our standard output. Otherwise a reader of our output would wait until
    /// the shell ends too.
    const WAIT: &str = r#"
        trap '' INT TERM HUP
        read -r order
        [ "$order" = leave ] || eval "$1""#;

    pub(super) fn new(line: &str) -> Result<Self> {
        let waiting = Command::new("sh")
            .args(["-c", Self::WAIT, "keeper", line])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { waiting })
    }

    /// Ends the shell without running the line.
    pub(super) fn leave(mut self) -> Result<()> {
        if let Some(order) = &mut self.waiting.stdin {
            order.write_all(b"leave\n")?;
        }
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.waiting.stdin.take());
        // No caller is left that could handle a failure.
        let _ = self.waiting.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::quoted;
    use super::*;

    fn marker(name: &str) -> std::path::PathBuf {
        let name = format!("ratchet-keeper-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn the_line_runs_at_the_end() {
        let marker = marker("end");
        let keeper = Keeper::new(&format!("touch {}", quoted(&marker))).unwrap();
        assert!(!marker.exists());
        drop(keeper);
        assert!(marker.exists());
        std::fs::remove_file(marker).unwrap();
    }

    #[test]
    fn the_line_does_not_run_when_told_to_leave() {
        let marker = marker("leave");
        let keeper = Keeper::new(&format!("touch {}", quoted(&marker))).unwrap();
        keeper.leave().unwrap();
        assert!(!marker.exists());
    }
}
