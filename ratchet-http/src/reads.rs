//! Limits concurrent reads from the store, and shares them fairly between clients.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::client::ClientAddr;
use crate::problem::{Code, Problem};

/// A limiter of concurrent reads from the store.
///
/// When a read ends, the next read goes to the waiting client with the fewest reads in progress. If
/// several clients have the fewest, the request that arrived first gets the read. One client has at
/// most three quarters of the reads, so its slow reads do not block other clients. Requests of
/// unknown clients count as one client, which may have all reads.
#[derive(Clone, Debug)]
pub(crate) struct Reads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    /// The maximum number of concurrent reads of one client.
    share: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    total: usize,
    running: HashMap<Client, usize>,
    waiting: VecDeque<(Client, oneshot::Sender<Read>)>,
}

type Client = Option<IpAddr>;

/// Returns the maximum number of reads or event listeners of one client, if all clients together
/// may have `most`: about three quarters of `most`. The result equals `most` only if `most` is 1.
pub(crate) fn share(most: usize) -> usize {
    (most - most / 4).min(most - usize::from(most > 1))
}

/// A read in progress. The read ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Read {
    client: Client,
    shared: Arc<Shared>,
}

impl Reads {
    /// Maximum time that a request waits for a read.
    const PATIENCE: Duration = Duration::from_secs(1);

    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shared {
            most,
            share: share(most),
            queue: Mutex::default(),
        }))
    }

    /// Begins a read, which ends when the returned guard is dropped. Waits for up to
    /// [`PATIENCE`](Self::PATIENCE) if the limit is reached.
    pub(crate) async fn begin(&self, client: Option<ClientAddr>) -> Result<Read, Problem> {
        let client = client.map(ClientAddr::key);
        let granted = {
            let mut queue = self.0.queue();
            if queue.total < self.0.most && self.0.allows(&queue, client) {
                return Ok(self.0.grant(&mut queue, client));
            }
            queue.waiting.retain(|(_, waiter)| !waiter.is_closed());
            let (grant, granted) = oneshot::channel();
            queue.waiting.push_back((client, grant));
            granted
        };
        let read = tokio::time::timeout(Self::PATIENCE, granted).await;
        read.ok().and_then(Result::ok).ok_or_else(|| {
            Problem::new(
                Code::TooManyClients,
                "too many requests are reading from the store; try again soon",
            )
            .retry_after(Self::PATIENCE)
        })
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allows(&self, queue: &Queue, client: Client) -> bool {
        client.is_none() || queue.running_of(client) < self.share
    }

    fn grant(self: &Arc<Self>, queue: &mut Queue, client: Client) -> Read {
        queue.total += 1;
        *queue.running.entry(client).or_default() += 1;
        Read {
            client,
            shared: Arc::clone(self),
        }
    }

    /// Ends a read of this client, and begins the next waiting read.
    fn end(self: &Arc<Self>, client: Client) {
        let next = {
            let mut queue = self.queue();
            queue.total -= 1;
            let running = queue.running_of(client) - 1;
            match running {
                0 => queue.running.remove(&client),
                _ => queue.running.insert(client, running),
            };
            queue.waiting.retain(|(_, waiter)| !waiter.is_closed());
            let waiting = queue.waiting.iter().enumerate();
            let allowed = waiting.filter(|(_, (client, _))| self.allows(&queue, *client));
            let fewest = allowed.min_by_key(|(_, (client, _))| queue.running_of(*client));
            let index = fewest.map(|(index, _)| index);
            let next = index.and_then(|index| queue.waiting.remove(index));
            next.map(|(client, waiter)| (self.grant(&mut queue, client), waiter))
        };
        // If the waiting request was dropped, sending fails and the read is dropped here. Dropping
        // the read locks the queue again, so the lock must be released before: the block above
        // releases it.
        if let Some((read, waiter)) = next {
            drop(waiter.send(read));
        }
    }
}

impl Queue {
    fn running_of(&self, client: Client) -> usize {
        self.running.get(&client).copied().unwrap_or_default()
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.shared.end(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Option<ClientAddr> {
        Some(ClientAddr([192, 0, 2, last].into()))
    }

    #[tokio::test(start_paused = true)]
    async fn reads_at_once_are_bounded_and_wait_for_a_moment() {
        let reads = Reads::new(1);
        let first = reads.begin(None).await.unwrap();
        let refused = reads.begin(None).await.unwrap_err();
        assert_eq!(refused.code, Code::TooManyClients);
        let ends = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(reads.begin(None), ends);
        assert!(second.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_does_not_take_all_reads() {
        let reads = Reads::new(8);
        let mut held = Vec::new();
        while let Ok(read) = reads.begin(client(1)).await {
            held.push(read);
        }
        assert_eq!(held.len(), 6);
        let others = [reads.begin(client(2)).await, reads.begin(client(3)).await];
        assert!(others.iter().all(Result::is_ok));
        assert!(reads.begin(client(2)).await.is_err(), "the limit is 8");
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_least_is_next_and_who_has_gone_is_passed_over() {
        let reads = Reads::new(2);
        let (one, other) = (reads.begin(client(1)).await, reads.begin(client(2)).await);
        let begin = |last| {
            let reads = reads.clone();
            tokio::spawn(async move { reads.begin(client(last)).await })
        };
        let queue = || reads.0.queue();
        let mut waiting = Vec::new();
        for (place, last) in [1, 1, 3].into_iter().enumerate() {
            waiting.push(begin(last));
            while queue().waiting.len() <= place {
                tokio::task::yield_now().await;
            }
        }
        waiting[0].abort();
        let gone = waiting.remove(0).await;
        assert!(gone.unwrap_err().is_cancelled());
        drop(other);
        let third = waiting.remove(1).await.unwrap();
        assert!(
            third.is_ok(),
            "a client without a running read should get a slot before a client that has one"
        );
        drop(one);
        assert!(waiting.remove(0).await.unwrap().is_ok());
        drop(third);
        let queue = queue();
        assert_eq!(
            (queue.total, queue.running.len(), queue.waiting.len()),
            (0, 0, 0)
        );
    }
}
