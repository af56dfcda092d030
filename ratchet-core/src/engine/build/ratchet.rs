use super::builder::NodeBuilder;
use crate::client::Client;
use crate::store::SharedStore;

/// The entry point: makes clients and builds nodes.
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
    /// Begins a node on this store.
    pub fn builder(store: SharedStore) -> NodeBuilder {
        NodeBuilder::new(store)
    }

    /// A client of this store: to enqueue and look after jobs without running any.
    #[must_use]
    pub fn client(store: SharedStore) -> Client {
        Client::new(store)
    }
}
