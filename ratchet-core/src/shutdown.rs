//! Waits for the signals that ask the process to end.

use std::io;

/// Waits for a signal that asks the process to end.
///
/// [`Node::run`](crate::Node::run) waits for the same signals. Use this function to stop other
/// parts of the program together with the node.
///
/// On Unix the signals are SIGTERM, which Kubernetes, systemd and Docker send, and SIGINT, which
/// Ctrl-C sends. On Windows they are Ctrl-C, Ctrl-Break, closing the console, and the shutdown of
/// the system. Listening begins with the call, before the future is polled, and continues until the
/// process ends. After the first signal, a second signal ends the process at once, without cleanup,
/// as in a crash. The exit code is then 128 + the number of the signal (Windows: 1).
///
/// If the process cannot listen for signals, the function logs an error, and the future never
/// completes.
///
/// ```no_run
/// # use ratchet::Node;
/// # async fn serve(stop: impl Future<Output = ()>) {}
/// # async fn example(node: Node) -> Result<(), Box<dyn std::error::Error>> {
/// let (served, ran) = tokio::join!(serve(ratchet::shutdown_signal()), node.run());
/// # let () = served; ran?;
/// # Ok(()) }
/// ```
///
/// # Panics
/// Outside of a Tokio runtime with I/O enabled.
///
/// # Cancel safety
/// If the future is dropped, a later call does not see the signals that came before. A process that
/// continues to run, for example after an operator drained its node, must call this function again.
/// The default action of the signals is not restored, so signals are ignored until the next call.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = Signals::listen().inspect_err(|error| {
        tracing::error!(%error, "cannot listen for signals: graceful shutdown is not available");
    });
    async move {
        let Ok(mut signals) = signals else {
            return std::future::pending().await;
        };
        let (signal, _) = signals.next().await;
        tracing::info!(
            signal,
            "shutting down; a second signal ends the process at once"
        );
        tokio::spawn(async move {
            let (signal, exit_code) = signals.next().await;
            tracing::warn!(signal, "received a second signal; exiting at once");
            std::process::exit(exit_code);
        });
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal. Returns the name of the signal, and the exit code of a process
    /// that the signal ends.
    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}

#[cfg(windows)]
struct Signals {
    c: tokio::signal::windows::CtrlC,
    r#break: tokio::signal::windows::CtrlBreak,
    close: tokio::signal::windows::CtrlClose,
    shutdown: tokio::signal::windows::CtrlShutdown,
}

#[cfg(windows)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::windows;
        Ok(Self {
            c: windows::ctrl_c()?,
            r#break: windows::ctrl_break()?,
            close: windows::ctrl_close()?,
            shutdown: windows::ctrl_shutdown()?,
        })
    }

    async fn next(&mut self) -> (&'static str, i32) {
        tokio::select! {
            _ = self.c.recv() => ("Ctrl-C", 1),
            _ = self.r#break.recv() => ("Ctrl-Break", 1),
            _ = self.close.recv() => ("close", 1),
            _ = self.shutdown.recv() => ("shutdown", 1),
        }
    }
}
