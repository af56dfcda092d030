//! Tests of one store beside the suite, each in an empty database of its own.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use libtest_mimic::Failed;

use crate::BoxError;

/// An empty database, or an empty part of one, for one test.
#[async_trait]
pub trait Place: Sized + Send + Sync + 'static {
    /// Creates it on the server of this URL.
    ///
    /// # Errors
    /// Why it cannot be created; the test then fails.
    async fn create(url: &str) -> Result<Self, BoxError>;

    /// Removes it, or leaves it for a later test. Called after the test, even if it panicked.
    async fn take_away(&self);
}

/// A test that runs in a place.
pub type PlaceTest<P> = fn(Arc<P>) -> BoxFuture<'static, ()>;

/// Lists tests by module, each with its name for [`run_in_place`]:
/// `place_tests! { links: a_test another_test; locks: a_third; }` is a
/// `&[(&str, PlaceTest<_>)]` of the functions `links::a_test` and so on.
#[macro_export]
macro_rules! place_tests {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($(
            (
                concat!(stringify!($module), "::", stringify!($name)),
                |place| Box::pin($module::$name(place)),
            ),
        )*)*]
    };
}

/// Runs a test in a new place, on a runtime of its own with two threads, and takes the place away.
///
/// # Errors
/// If the place cannot be created, or the test panics.
pub fn run_in_place<P: Place>(url: &str, test: PlaceTest<P>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let place = match P::create(url).await {
            Ok(place) => Arc::new(place),
            Err(error) => return Err(error.to_string().into()),
        };
        let ended = tokio::spawn(test(Arc::clone(&place))).await;
        place.take_away().await;
        ended.map_err(|_| Failed::without_message())
    })
}
