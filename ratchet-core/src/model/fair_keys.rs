//! How many jobs the fair keys have.

use crate::name::Name;

/// How many jobs a fair key has in a queue; see [`Client::fair_keys`](crate::Client::fair_keys).
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for info in client.fair_keys(20).await?.keys {
///     println!("{} {}: {} run, {} wait", info.queue, info.key, info.running, info.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairKeyInfo {
    /// The queue.
    pub queue: Name,
    /// The fair key.
    pub key: Name,
    /// The number of running jobs.
    pub running: u64,
    /// The number of pending jobs, whether they are due or not.
    pub waiting: u64,
}

/// The fair keys with the most running and waiting jobs; see
/// [`Client::fair_keys`](crate::Client::fair_keys).
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let usage = client.fair_keys(1).await?;
/// let at_least = if usage.complete { "" } else { "at least " };
/// if let Some(first) = usage.keys.first() {
///     println!("{} has {at_least}{} jobs", first.key, first.running + first.waiting);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FairKeyUsage {
    /// The keys, those with the most jobs first, and then by queue and key.
    pub keys: Vec<FairKeyInfo>,
    /// Whether every job was read. Otherwise there are more than 10,000 jobs, of which older ones
    /// may be pending, or more than 10,000 running ones.
    pub complete: bool,
}
