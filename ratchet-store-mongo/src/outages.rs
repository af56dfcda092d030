//! Watches for outages, which the driver reports.

use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::options::ClientOptions;
use tokio::sync::watch;

/// Reports when a client of the driver loses its connections to a server.
///
/// The store needs these reports because an idle cursor does not notice an outage: the cursor
/// continues on a new connection without an error.
#[derive(Clone, Debug)]
pub(crate) struct Outages(Option<watch::Receiver<()>>);

impl Outages {
    /// Installs a handler in `options`, and returns a watcher for the client that will be created
    /// with these options.
    pub(crate) fn of(options: &mut ClientOptions) -> Self {
        let (lost, outages) = watch::channel(());
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            if matches!(event, CmapEvent::PoolCleared(_)) {
                lost.send_replace(());
            }
        }));
        Self(Some(outages))
    }

    /// Returns a watcher that never reports an outage. Used for a client of the application,
    /// because the store cannot watch such a client.
    pub(crate) const fn untold() -> Self {
        Self(None)
    }

    /// Returns whether an outage occurred since the last call of [`forget`](Self::forget).
    pub(crate) fn have_been(&self) -> bool {
        let outages = self.0.as_ref();
        outages.is_some_and(|outages| outages.has_changed().unwrap_or(true))
    }

    /// Ignores all outages that have occurred so far.
    pub(crate) fn forget(&mut self) {
        if let Some(outages) = &mut self.0 {
            outages.mark_unchanged();
        }
    }

    /// Waits for the next outage.
    pub(crate) async fn next(&mut self) {
        if let Some(outages) = &mut self.0
            && outages.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
