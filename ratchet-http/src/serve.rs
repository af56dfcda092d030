use std::io;

/// Why the API is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The listener failed.
    #[error("the listener failed: {0}")]
    Listen(#[from] io::Error),
}

/// Serves the API.
///
/// # Errors
/// [`ServeError`].
#[expect(clippy::unused_async, reason = "replaced next")]
pub async fn serve() -> Result<(), ServeError> {
    Ok(())
}
