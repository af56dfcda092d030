//! A primary, its standby or copy, and endpoints that move between them.

use std::time::Duration;

use tokio::time::sleep;

use super::endpoint::Endpoint;
use super::now;
use super::scene::{ENDPOINTS, Event, STALE, Scene};
use super::server::Server;

/// A fault of the database.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Kills the primary and promotes a standby that lags this much behind. Zero means a
    /// synchronous standby.
    Promotion(Duration),
    /// Kills the primary and restores a copy of this age.
    Restore(Duration),
    /// Promotes a standby while the primary continues to run. Some processes still reach the old
    /// primary for a while.
    StaleEndpoint,
    /// Drops connections without notifying the clients.
    Silence,
}

/// The replication lag with [`Fault::StaleEndpoint`].
const BEHIND: Duration = Duration::from_millis(200);
/// How long the old primary continues to run. This is shorter than `dead_after`, so no node may be
/// declared dead.
const GOES_ON: Duration = Duration::from_secs(5);
/// The time under load before the fault.
const BEFORE: Duration = Duration::from_secs(5);

pub(crate) struct Pair<S> {
    primary: S,
    standby: Option<S>,
    /// Servers that no client uses.
    _others: Vec<S>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl<S: Server> Pair<S> {
    pub(crate) async fn new(fault: Fault) -> Self {
        let primary = S::primary().await;
        let standby = match fault {
            Fault::Promotion(behind) => Some(primary.standby(behind.is_zero()).await),
            Fault::StaleEndpoint => Some(primary.standby(false).await),
            Fault::Restore(_) | Fault::Silence => None,
        };
        Self::of(primary, standby, Vec::new()).await
    }

    pub(crate) async fn of(primary: S, standby: Option<S>, others: Vec<S>) -> Self {
        let mut endpoints = Vec::new();
        for _ in 0..ENDPOINTS {
            endpoints.push(Endpoint::new(primary.port()).await);
        }
        Self {
            primary,
            standby,
            _others: others,
            endpoints,
        }
    }

    /// Returns the primary before the fault.
    pub(crate) const fn server_at_first(&self) -> &S {
        &self.primary
    }

    /// Returns the primary after the fault.
    pub(crate) fn server(&self) -> &S {
        self.standby.as_ref().unwrap_or(&self.primary)
    }

    pub(crate) async fn disturb(&mut self, fault: Fault, scene: &mut Scene) -> Event {
        match fault {
            Fault::Promotion(behind) => {
                sleep(BEFORE).await;
                if behind.is_zero() {
                    scene.begin_late().await;
                    self.primary.kill();
                    self.server().promote().await;
                    let mut event = self.follow(scene).await;
                    // `None`: a synchronous standby must have every acknowledged job.
                    event.present = None;
                    return event;
                }
                let held = self.hold(scene, behind).await;
                self.primary.kill();
                self.server().promote_as_held(held).await;
                self.follow(scene).await
            }
            Fault::Restore(age) => {
                sleep(BEFORE).await;
                self.standby = Some(self.primary.copy(&scene.order.schema));
                sleep(age / 2).await;
                scene.begin_late().await;
                sleep(age / 2).await;
                self.primary.kill();
                self.server().restore().await;
                self.follow(scene).await
            }
            Fault::StaleEndpoint => {
                sleep(BEFORE).await;
                let held = self.hold(scene, BEHIND).await;
                self.server().promote_as_held(held).await;
                let mut event = self.present(scene).await;
                self.move_some(&mut event, 0..STALE);
                sleep(GOES_ON).await;
                self.primary.kill();
                self.move_some(&mut event, STALE..ENDPOINTS);
                event.since = now();
                event
            }
            Fault::Silence => {
                sleep(BEFORE).await;
                scene.begin_late().await;
                scene.warm().await;
                for endpoint in &self.endpoints {
                    endpoint.forget();
                }
                Event::nothing_lost(now())
            }
        }
    }

    /// Makes the standby lag at least this much behind.
    async fn hold(&self, scene: &Scene, behind: Duration) -> S::Held {
        let held = self.server().hold().await;
        let lag = sleep(behind);
        scene.begin_late().await;
        lag.await;
        held
    }

    /// Moves all endpoints to the new server.
    async fn follow(&self, scene: &mut Scene) -> Event {
        let mut event = self.present(scene).await;
        self.move_some(&mut event, 0..ENDPOINTS);
        event
    }

    /// Reads the jobs of the new server before any client reaches it. Then starts a producer that
    /// is connected to the new server only.
    async fn present(&self, scene: &mut Scene) -> Event {
        let server = self.server();
        let mut event = Event::nothing_lost(now());
        event.present = Some(server.jobs(&scene.order.schema).await);
        scene
            .welcome(S::url(format_args!("127.0.0.1:{}", server.port())))
            .await;
        event
    }

    fn move_some(&self, event: &mut Event, some: std::ops::Range<usize>) {
        for place in some {
            self.endpoints[place].move_to(self.server().port());
            event.moved[place] = now();
        }
        event.since = now();
    }
}
