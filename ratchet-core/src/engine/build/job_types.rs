use super::NodeBuilder;
use crate::handler::Job;

/// A job type, or a tuple of up to twelve of them, for [`NodeBuilder::register`].
///
/// ```
/// use ratchet::{JobResult, Ratchet};
///
/// #[ratchet::job(kind = "measure")]
/// async fn measure(photo: String) -> JobResult<usize> {
///     Ok(photo.len())
/// }
///
/// #[ratchet::job(kind = "report")]
/// async fn report() -> JobResult {
///     Ok(())
/// }
///
/// # async fn example() -> Result<(), ratchet::BoxError> {
/// let store = ratchet::connect("memory:").await?;
/// let node = Ratchet::builder(store).register::<(Measure, Report)>().build()?;
/// # drop(node);
/// # Ok(()) }
/// ```
pub trait JobTypes {
    #[doc(hidden)]
    fn register_with(builder: NodeBuilder) -> NodeBuilder;
}

impl<J: Job> JobTypes for J {
    fn register_with(builder: NodeBuilder) -> NodeBuilder {
        builder.register_one::<J>()
    }
}

macro_rules! tuples {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<$first: JobTypes, $($rest: JobTypes),*> JobTypes for ($first, $($rest,)*) {
            fn register_with(builder: NodeBuilder) -> NodeBuilder {
                let builder = $first::register_with(builder);
                $(let builder = $rest::register_with(builder);)*
                builder
            }
        }

        tuples! { $($rest)* }
    };
}

tuples! { A B C D E F G H I J K L }
