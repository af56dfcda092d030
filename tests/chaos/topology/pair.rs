//! PostgreSQL: a primary, a standby or a copy of it, and endpoints that move from one to the other.

use std::time::Duration;

use tokio::time::sleep;

use super::endpoint::Endpoint;
use super::now;
use super::postgres::{Place, Server};
use super::scene::{ENDPOINTS, Event, STALE, Scene};

/// What happens to the pair.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// The primary is killed, and a standby that is so much behind is promoted; a synchronous one
    /// if that is nothing.
    Promotion(Duration),
    /// The primary is killed, and a copy of its data that is so old takes its place.
    Restore(Duration),
    /// A standby is promoted while the primary goes on, and some processes reach that one for a
    /// while.
    StaleEndpoint,
    /// Connections are forgotten.
    Silence,
}

/// The lag of a standby that is promoted beside a primary that goes on.
const BEHIND: Duration = Duration::from_millis(200);
/// How long the primary goes on. Shorter than the silence that means death.
const GOES_ON: Duration = Duration::from_secs(5);
/// The undisturbed time before.
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

    /// The server that there is before the fault.
    pub(crate) const fn server_at_first(&self) -> &Server {
        &self.primary
    }

    /// The server that there is in the end.
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
                    // Promised is that it has everything.
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

    /// All endpoints lead to the new server.
    async fn follow(&self, scene: &mut Scene) -> Event {
        let mut event = self.present(scene).await;
        self.move_some(&mut event, 0..ENDPOINTS);
        event
    }

    /// What the new server has before anybody else reaches it; then one process does, which knew
    /// nothing of the old one.
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
