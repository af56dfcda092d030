//! When the process is asked to end.

use std::io;

/// Waits until the process is asked to end: what [`Node::run`](crate::Node::run) listens to, for
/// those who compose.
///
/// On Unix that is SIGTERM, which Kubernetes, systemd and Docker send, or SIGINT, which Ctrl-C
/// sends; on Windows it is Ctrl-C, Ctrl-Break, the close of the console or the shutdown of the
/// system. It listens from the call on, not only once it is polled, and for the rest of the
/// process. After the first signal, a second one ends the process at once, with the exit code 128 +
/// its number (Windows: 1); nothing is cleaned up then, as after a crash.
///
/// If the system does not let the process listen, this is logged, and the call waits for ever.
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
/// A signal that came before the future was dropped is not seen by the next call. A process that
/// goes on after its node has left, because an operator drained it, has to call this again: the
/// signals are not given back, and without a listener they do nothing.
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
            tracing::warn!(signal, "second signal received, exiting at once");
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

    /// The name of the next signal, and the exit code of a process that it ends.
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
