//! All connections of a store.

use std::fmt;
use std::sync::Arc;

use crate::connector::Connector;
use crate::generation::Generation;
use crate::liveness::Liveness;
use crate::pool::Pool;
use crate::settings::Settings;

/// The connections of a store: a pool of connections for jobs, and one connection for heartbeats
/// and locks. Calls for jobs use the pool, so they do not delay heartbeats and locks. The only
/// exception is the storing of new routes, which uses the other connection.
pub struct Connections<C: Connector> {
    /// The pool of connections for jobs.
    pub pool: Pool<C>,
    /// The connection for heartbeats and locks.
    pub liveness: Liveness<C>,
}

impl<C: Connector> Connections<C> {
    /// Prepares the connections, and opens none. `lender` is the pool of the application, if the
    /// store uses one. `first` is a connection for heartbeats and locks that is open already.
    pub fn new(
        connector: C,
        settings: &Settings,
        lender: Option<C::Lender>,
        first: Option<C::Connection>,
    ) -> Self {
        let connector = Arc::new(connector);
        let generation = Generation::new(settings.max_lifetime);
        let pool = match lender {
            Some(lender) => Pool::theirs(Arc::clone(&connector), generation.clone(), lender),
            None => Pool::own(
                Arc::clone(&connector),
                generation.clone(),
                settings.max_connections(),
                settings.acquire_timeout,
            ),
        };
        let liveness = Liveness::new(connector, generation, first);
        Self { pool, liveness }
    }

    /// Closes all connections, including those of the application's pool. Leased connections of the
    /// store's own pool are closed when they are returned, for which [`Pool::returned`] waits.
    pub async fn close(&self) {
        // At its first poll, each of these futures marks its connections as closed. So no new call
        // can begin while connections are being closed.
        tokio::join!(self.pool.close(), self.liveness.close());
    }
}

impl<C: Connector> fmt::Debug for Connections<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("pool", &self.pool)
            .field("liveness", &self.liveness)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use ratchet_core::StoreErrorKind;
    use tokio::time::advance;

    use super::*;
    use crate::connector::Purpose;
    use crate::failure::{Failure, Loss, Result};
    use crate::generation::LIFETIME;
    use crate::leased::Leased;

    /// A driver whose connections are numbers.
    #[derive(Clone, Default)]
    struct Numbers {
        opened: Arc<AtomicU32>,
        is_down: Arc<AtomicBool>,
        told: Arc<Mutex<Vec<u32>>>,
    }

    /// A connection. Tells the driver when it is closed in order.
    struct Number(u32, Numbers);

    impl Connector for Numbers {
        type Connection = Number;
        type Lease = Leased<Self>;
        type Lender = Infallible;

        async fn connect(&self, _: Purpose) -> Result<Number> {
            if self.is_down.load(Ordering::SeqCst) {
                return Err(Failure::lost("down"));
            }
            let number = self.opened.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(Number(number, self.clone()))
        }

        async fn close(connection: Number) {
            connection.1.told.lock().unwrap().push(connection.0);
        }
    }

    type Lease = Leased<Numbers>;

    fn connections(max: u32) -> (Arc<Connections<Numbers>>, Numbers) {
        let numbers = Numbers::default();
        let mut settings = Settings::new(&[]);
        settings.max_connections = Some(max);
        let connections = Connections::new(numbers.clone(), &settings, None, None);
        (Arc::new(connections), numbers)
    }

    fn number(lease: &mut Lease) -> u32 {
        lease.connection().unwrap().0
    }

    fn fail(lease: &mut Lease, loss: Loss) {
        let mut failure = Failure::new(StoreErrorKind::Unavailable, "failed");
        failure.loss = loss;
        lease.begin_call().unwrap();
        lease.end_call::<()>(Err(failure)).unwrap_err();
    }

    /// Leases a connection `from` the pool or the reserved one, and returns its number.
    macro_rules! lease {
        ($from:expr) => {
            number(&mut $from.lease().await.unwrap())
        };
    }

    #[tokio::test(start_paused = true)]
    async fn both_kinds_of_connections_are_replaced_after_a_quiet_time_and_at_their_age() {
        let (all, _) = connections(1);
        let (mut pooled, mut live) = (lease!(all.pool), lease!(all.liveness));
        assert_ne!(pooled, live);
        // They are used every minute until they are too old.
        let mut age = Duration::ZERO;
        while age < LIFETIME {
            assert_eq!((lease!(all.pool), lease!(all.liveness)), (pooled, live));
            advance(Duration::from_secs(60)).await;
            age += Duration::from_secs(60);
        }
        for quiet in [Duration::ZERO, Duration::from_secs(200)] {
            advance(quiet).await;
            let now = (lease!(all.pool), lease!(all.liveness));
            assert!(now.0 != pooled && now.1 != live, "{quiet:?}: {now:?}");
            (pooled, live) = now;
            assert_eq!(all.pool.open_connections(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_connection_is_kept_only_while_it_works() {
        let (all, numbers) = connections(1);
        let first = lease!(all.liveness);
        numbers.is_down.store(true, Ordering::SeqCst);
        let mut age = Duration::ZERO;
        while age <= LIFETIME {
            assert_eq!(lease!(all.liveness), first);
            advance(Duration::from_secs(60)).await;
            age += Duration::from_secs(60);
        }
        advance(Duration::from_secs(200)).await;
        all.liveness.lease().await.unwrap_err();
        numbers.is_down.store(false, Ordering::SeqCst);
        let mut lease = all.liveness.lease().await.unwrap();
        assert_ne!(number(&mut lease), first);
        fail(&mut lease, Loss::ReadOnly);
        drop(lease);
        numbers.is_down.store(true, Ordering::SeqCst);
        all.liveness.lease().await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_connection_is_another_one() {
        let (all, numbers) = connections(1);
        let first = lease!(all.liveness);
        all.liveness.renew().await.unwrap();
        assert_ne!(lease!(all.liveness), first);
        // A connection that leads to another database is not kept.
        numbers.is_down.store(true, Ordering::SeqCst);
        all.liveness.renew().await.unwrap_err();
        all.liveness.lease().await.unwrap_err();
        numbers.is_down.store(false, Ordering::SeqCst);
        all.liveness.close().await;
        all.liveness.renew().await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn only_connections_in_a_known_state_are_used_again() {
        let (all, _) = connections(3);
        let mut lease = all.pool.lease().await.unwrap();
        let first = number(&mut lease);
        fail(&mut lease, Loss::No);
        drop(lease);
        // Each of these leases is dropped in the middle of something.
        for spoil in [
            |lease: &mut Lease| drop(lease.begin_call()),
            |lease: &mut Lease| lease.in_transaction = true,
            |lease: &mut Lease| lease.discard(),
        ] {
            let mut other = all.pool.lease().await.unwrap();
            let mut lease = all.pool.lease().await.unwrap();
            assert_eq!(number(&mut other), first);
            let spoiled = number(&mut lease);
            spoil(&mut lease);
            assert_eq!(all.pool.open_connections(), 2);
            drop(lease);
            assert_eq!(all.pool.open_connections(), 1);
            assert!(lease!(all.pool) > spoiled);
            all.pool.drop_idle();
            let mut live = all.liveness.lease().await.unwrap();
            let spoiled = number(&mut live);
            spoil(&mut live);
            drop(live);
            assert!(lease!(all.liveness) > spoiled);
        }
        let mut lease = all.pool.lease().await.unwrap();
        assert!(lease.begin_call().is_ok() && lease.is_broken());
        assert!(lease.begin_call().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_takes_the_idle_ones_with_it() {
        for loss in [Loss::Told, Loss::Silent, Loss::ReadOnly] {
            let (all, _) = connections(3);
            let live = lease!(all.liveness);
            let mut one = all.pool.lease().await.unwrap();
            let (other, third) = (all.pool.lease().await, all.pool.lease().await);
            drop(other);
            fail(&mut one, loss);
            drop(one);
            assert_eq!(all.pool.open_connections(), 1, "{loss:?}");
            // No connection of a read-only generation is used again.
            let read_only = loss == Loss::ReadOnly;
            let third = number(&mut third.unwrap());
            assert_eq!(lease!(all.pool) != third, read_only);
            assert_eq!(lease!(all.liveness) != live, read_only);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_limits_its_connections_and_how_long_a_call_waits() {
        let (all, numbers) = connections(2);
        let one = all.pool.lease().await.unwrap();
        let two = all.pool.lease().await.unwrap();
        let refused = all.pool.lease().await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Timeout);
        assert_eq!(all.pool.open_connections(), all.pool.max_connections());
        drop(one);
        assert_eq!(all.pool.open_connections(), 2);
        assert_eq!(lease!(all.pool), 1);
        all.pool.drop_idle();
        assert_eq!(all.pool.open_connections(), 1);
        numbers.is_down.store(true, Ordering::SeqCst);
        all.pool.lease().await.unwrap_err();
        assert_eq!(all.pool.open_connections(), 1);
        drop(two);
        assert_eq!(lease!(all.pool), 2);
        assert!(numbers.told.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_waits_for_calls_and_lets_none_begin() {
        let (all, numbers) = connections(2);
        let lease = all.pool.lease().await.unwrap();
        drop(all.pool.lease().await.unwrap());
        lease!(all.liveness);
        let closing = tokio::spawn({
            let all = Arc::clone(&all);
            async move {
                all.close().await;
                all.pool.returned().await;
            }
        });
        while !all.pool.is_closed() || numbers.told.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        for refused in [all.pool.lease().await, all.liveness.lease().await] {
            assert_eq!(refused.unwrap_err().kind, StoreErrorKind::Unavailable);
        }
        assert!(!closing.is_finished());
        assert_eq!(all.pool.open_connections(), 1);
        drop(lease);
        closing.await.unwrap();
        assert_eq!(all.pool.open_connections(), 0);
        all.close().await;
        all.pool.returned().await;
    }
}
