use super::builder::NodeBuilder;
use crate::client::Client;
use crate::store::SharedStore;

/// The entry point: creates clients and builds nodes.
///
/// ```
/// # async fn example() -> Result<(), ratchet::BoxError> {
/// use ratchet::Ratchet;
///
/// let client = Ratchet::client(ratchet::connect("sqlite:jobs.db").await?);
/// println!("{} nodes", client.nodes().await?.len());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ratchet;

impl Ratchet {
    /// Creates a builder for a node on this store.
    pub fn builder(store: SharedStore) -> NodeBuilder {
        NodeBuilder::new(store)
    }

    /// Creates a client of this store, which enqueues and manages jobs without running any.
    #[must_use]
    pub fn client(store: SharedStore) -> Client {
        Client::new(store)
    }
}
