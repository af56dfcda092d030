//! PostgreSQL topologies: a primary, its standby or copy, and endpoints that move between them.

use std::time::Duration;

use tokio::time::sleep;

use super::endpoint::Endpoint;
use super::now;
use super::postgres::{Place, Server};
use super::scene::{ENDPOINTS, Event, STALE, Scene};

/// A fault of the database.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Kills the primary and promotes a standby with this replication lag. Zero means a synchronous
    /// standby.
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

pub(crate) struct Pair {
    primary: Server,
    standby: Option<Server>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Pair {
    pub(crate) async fn new(place: &Place, fault: Fault) -> Self {
        let primary = place.primary();
        let standby = match fault {
            Fault::Promotion(behind) => Some(primary.standby(behind).await),
            Fault::StaleEndpoint => Some(primary.standby(BEHIND).await),
            Fault::Restore(_) | Fault::Silence => None,
        };
        let mut endpoints = Vec::new();
        for _ in 0..ENDPOINTS {
            endpoints.push(Endpoint::new(primary.port).await);
        }
        Self {
            primary,
            standby,
            endpoints,
        }
    }

    /// Returns the primary before the fault.
    pub(crate) const fn server_at_first(&self) -> &Server {
        &self.primary
    }

    /// Returns the primary after the fault.
    pub(crate) fn server(&self) -> &Server {
        self.standby.as_ref().unwrap_or(&self.primary)
    }

    pub(crate) async fn disturb(&mut self, fault: Fault, scene: &mut Scene) -> Event {
        match fault {
            Fault::Promotion(behind) => {
                sleep(BEFORE + behind).await;
                scene.begin_late().await;
                if behind.is_zero() {
                    self.primary.kill();
                    self.server().promote().await;
                    let mut event = self.follow(scene).await;
                    // `None`: a synchronous standby must have every acknowledged job.
                    event.present = None;
                    return event;
                }
                let applied = self.server().hold().await;
                self.primary.kill();
                self.server().promote_as_held(&applied).await;
                self.follow(scene).await
            }
            Fault::Restore(age) => {
                sleep(BEFORE).await;
                self.standby = Some(self.primary.copy(""));
                sleep(age / 2).await;
                scene.begin_late().await;
                sleep(age / 2).await;
                self.primary.kill();
                self.server().start("");
                self.server().wait_for_writes().await;
                self.follow(scene).await
            }
            Fault::StaleEndpoint => {
                sleep(BEFORE).await;
                scene.begin_late().await;
                let applied = self.server().hold().await;
                self.server().promote_as_held(&applied).await;
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
        scene.welcome(server.port).await;
        event
    }

    fn move_some(&self, event: &mut Event, some: std::ops::Range<usize>) {
        for place in some {
            self.endpoints[place].move_to(self.server().port);
            event.moved[place] = now();
        }
        event.since = now();
    }
}
