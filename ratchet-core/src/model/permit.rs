//! The permits of a resource, as an operator sees them.

use crate::name::Name;

/// A resource, the number of its permits, and how many of them are held.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for permit in client.permits().await? {
///     println!("{}: {} of {} held", permit.resource, permit.held, permit.max);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInfo {
    /// The resource.
    pub resource: Name,
    /// The maximum number of jobs that may hold a permit of the resource at once.
    pub max: u32,
    /// The number of running jobs that hold a permit. It can exceed `max` after `max` was lowered.
    pub held: u64,
}

impl PermitInfo {
    /// Creates the entry of a resource with `max` permits, of which `held` are held.
    #[must_use]
    pub const fn new(resource: Name, max: u32, held: u64) -> Self {
        Self {
            resource,
            max,
            held,
        }
    }
}
