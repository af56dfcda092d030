//! Tracks the open connections, and chooses which one to close to make room for a new one.
//!
//! A connection is busy from the arrival of a complete request head until its write buffer holds
//! the end of the response. Otherwise it is idle, even if a part of a head has arrived. At the
//! limit, the connection that has been idle longest is closed. So clients that hold unused
//! connections do not block other clients, and a new connection does not wait for a timeout.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The table of open connections.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    most_per_peer: usize,
    table: Mutex<Table>,
    /// Notified whenever a connection in the table has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// The last number that was assigned to an event. Events are the opening of a connection, and
    /// its changes between idle and busy. Later events have larger numbers.
    next: u64,
    open: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    /// Whether the limit per peer applies to this connection.
    bounded: bool,
    busy: bool,
    /// The number of the last event of this connection: its opening or the last change of `busy`.
    since: u64,
    close: CancellationToken,
}

impl Connections {
    pub(crate) fn new(most: usize, most_per_peer: usize) -> Self {
        Self(Arc::new(Shared {
            most,
            most_per_peer,
            table: Mutex::default(),
            ended: Notify::new(),
        }))
    }

    /// Registers a connection, and closes another connection if a limit is reached.
    ///
    /// At the limit per peer, the method closes the peer's connection that has been idle longest.
    /// If all connections of the peer are busy, only the limit on the total number of connections
    /// applies.
    pub(crate) fn open(&self, peer: IpAddr, bounded: bool) -> Open {
        let mut table = self.0.table();
        if bounded {
            let own = |one: &Connection| one.bounded && one.peer == peer;
            if table.count(own) >= self.0.most_per_peer {
                table.close_idle(own);
            }
        }
        if table.count(|_| true) >= self.0.most && !table.close_idle(|_| true) {
            table.close_busy();
        }
        let close = CancellationToken::new();
        let since = table.moment();
        let connection = Connection {
            peer,
            bounded,
            busy: false,
            since,
            close: close.clone(),
        };
        table.open.insert(since, connection);
        drop(table);
        Open {
            id: since,
            shared: Arc::clone(&self.0),
            close,
        }
    }

    /// Closes a connection to free a file descriptor, and waits until a connection has ended.
    ///
    /// The method closes the connection that has been idle longest, or a busy connection if none is
    /// idle. Returns false if no connection is open.
    pub(crate) async fn make_room(&self) -> bool {
        let ended = self.0.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let closed = {
            let table = self.0.table();
            table.close_idle(|_| true) || table.close_busy()
        };
        if closed {
            ended.await;
        }
        closed
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn moment(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the connections that have not been asked to close.
    fn staying(&self) -> impl Iterator<Item = &Connection> {
        let open = self.open.values();
        open.filter(|one| !one.close.is_cancelled())
    }

    fn count(&self, of: impl Fn(&Connection) -> bool) -> usize {
        self.staying().filter(|one| of(one)).count()
    }

    /// Of the connections for which `of` returns true, closes the one that has been idle longest.
    /// Returns false if none of these connections is idle.
    fn close_idle(&self, of: impl Fn(&Connection) -> bool) -> bool {
        let idle = self.staying().filter(|one| !one.busy && of(one));
        let longest = idle.min_by_key(|one| one.since);
        longest.map(|one| one.close.cancel()).is_some()
    }

    /// Closes the connection that has been busy longest, of those whose peer has the most
    /// connections. Returns false if no connection is open.
    ///
    /// This method is called only while no connection is idle.
    fn close_busy(&self) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for one in self.staying() {
            *counts.entry(one.peer).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let of_them = self
            .staying()
            .filter(|one| counts.get(&one.peer).copied() == most);
        let longest = of_them.min_by_key(|one| one.since);
        longest.map(|one| one.close.cancel()).is_some()
    }

    fn set(&mut self, id: u64, busy: bool) {
        let since = self.moment();
        if let Some(connection) = self.open.get_mut(&id) {
            (connection.busy, connection.since) = (busy, since);
        }
    }
}

/// The entry of a connection in the table. When this value is dropped, the entry is removed.
#[derive(Debug)]
pub(crate) struct Open {
    id: u64,
    shared: Arc<Shared>,
    close: CancellationToken,
}

impl Open {
    /// Waits until the server decides to close this connection to make room for another one.
    pub(crate) fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.close.clone().cancelled_owned()
    }

    /// Returns a marker, which can mark this connection as busy.
    pub(crate) fn marker(&self) -> Marker {
        Marker {
            id: self.id,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.table().open.remove(&self.id);
        self.shared.ended.notify_waiters();
    }
}

/// A handle that can mark one connection as busy.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    id: u64,
    shared: Arc<Shared>,
}

impl Marker {
    /// Marks the connection as busy until the returned guard is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.shared.table().set(self.id, true);
        Busy(self.clone())
    }
}

/// A guard that keeps its connection marked as busy.
#[derive(Debug)]
pub(crate) struct Busy(Marker);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.shared.table().set(self.0.id, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    /// Maximum time that a test waits for a connection to end.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    /// Returns the indexes of the connections in `open` that were closed.
    fn closed(open: &[Open]) -> Vec<usize> {
        let numbered = open.iter().enumerate();
        let closed = numbered.filter(|(_, one)| one.close.is_cancelled());
        closed.map(|(index, _)| index).collect()
    }

    #[test]
    fn the_longest_idle_makes_room() {
        let connections = Connections::new(3, 3);
        let mut open: Vec<Open> = (0..3).map(|_| connections.open(ONE, true)).collect();
        // The first connection has just been used, and the second is in use.
        drop(open[0].marker().busy());
        let busy = open[1].marker().busy();
        open.push(connections.open(OTHER, true));
        assert_eq!(closed(&open), [2]);
        open.push(connections.open(OTHER, true));
        assert_eq!(closed(&open), [0, 2]);
        drop(busy);
        open.push(connections.open(OTHER, true));
        assert_eq!(
            closed(&open),
            [0, 2, 3],
            "expected connection 3 to be closed before connection 1, because it has been idle for \
             longer"
        );
    }

    #[test]
    fn a_peer_makes_room_for_itself_and_a_proxy_is_not_bounded() {
        let connections = Connections::new(100, 2);
        let other = [connections.open(OTHER, true)];
        let mut open: Vec<Open> = (0..2).map(|_| connections.open(ONE, true)).collect();
        open.push(connections.open(ONE, true));
        assert_eq!((closed(&open), closed(&other)), (vec![0], vec![]));
        // The busy connections of the peer stay open.
        let busy: Vec<Busy> = open[1..].iter().map(|one| one.marker().busy()).collect();
        open.push(connections.open(ONE, true));
        assert_eq!(closed(&open), [0]);
        drop(busy);
        let proxied: Vec<Open> = (0..50).map(|_| connections.open(ONE, false)).collect();
        assert_eq!((closed(&open), closed(&proxied)), (vec![0], vec![]));
    }

    #[test]
    fn while_all_are_busy_the_peer_with_most_makes_room() {
        let connections = Connections::new(3, 3);
        let open: Vec<Open> = [OTHER, ONE, ONE]
            .map(|peer| connections.open(peer, true))
            .into();
        let _busy: Vec<Busy> = open.iter().map(|one| one.marker().busy()).collect();
        let _next = connections.open(OTHER, true);
        assert_eq!(closed(&open), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_made_when_a_connection_has_ended() {
        let connections = Connections::new(3, 3);
        assert!(!connections.make_room().await);
        for is_busy in [false, true] {
            let open = connections.open(ONE, true);
            let _busy = is_busy.then(|| open.marker().busy());
            let ends = async {
                open.closed().await;
                drop(open);
            };
            let made = async { tokio::join!(connections.make_room(), ends).0 };
            let made = tokio::time::timeout(PATIENCE, made).await;
            assert_eq!(made, Ok(true), "busy: {is_busy}");
        }
    }
}
