//! Outages, as far as the driver notices them.

use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::options::ClientOptions;
use tokio::sync::watch;

/// Tells when a client has lost its connections to a server.
///
/// A cursor does not always tell: one that is between two questions just then goes on over a new
/// connection as if nothing had been.
#[derive(Clone, Debug)]
pub(crate) struct Outages(Option<watch::Receiver<()>>);

impl Outages {
    /// Those of the client that is made with these options.
    pub(crate) fn of(options: &mut ClientOptions) -> Self {
        let (lost, outages) = watch::channel(());
        options.cmap_event_handler = Some(EventHandler::callback(move |event| {
            if matches!(event, CmapEvent::PoolCleared(_)) {
                lost.send_replace(());
            }
        }));
        Self(Some(outages))
    }

    /// Those of a client of the application's own, which tells nobody.
    pub(crate) const fn untold() -> Self {
        Self(None)
    }

    /// Whether there has been one since those that do not count.
    pub(crate) fn have_been(&self) -> bool {
        let outages = self.0.as_ref();
        outages.is_some_and(|outages| outages.has_changed().unwrap_or(true))
    }

    /// Those until now do not count.
    pub(crate) fn forget(&mut self) {
        if let Some(outages) = &mut self.0 {
            outages.mark_unchanged();
        }
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        if let Some(outages) = &mut self.0
            && outages.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
