//! URL schemes of stores that are not part of Ratchet.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ratchet_core::store::Checked;
use ratchet_core::{InvalidInput, SharedStore, Store, StoreError};

use crate::backends::{Opening, is_built_in, scheme};

type Connect = dyn Fn(String) -> Opening<'static, SharedStore> + Send + Sync;

static SCHEMES: RwLock<BTreeMap<&'static str, Arc<Connect>>> = RwLock::new(BTreeMap::new());

/// Registers a URL scheme in this process, for a store that is not part of Ratchet. After that,
/// [`connect`](crate::connect), configurations and the command line accept such URLs.
///
/// Call it at the beginning of `main`, before a configuration is loaded. `open` gets the whole URL,
/// and the store that it returns is wrapped in [`Checked`]. The settings in the section `store` do
/// not apply to such a store, except its URL. A later call for the same scheme replaces the earlier
/// one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::MemoryStore;
///
/// ratchet::register_scheme("mine", |_url| async { Ok(MemoryStore::new()) })?;
/// let store = ratchet::connect("mine://host/jobs").await?;
/// assert_eq!(store.info().backend, "memory");
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the text is not a URL scheme in lowercase, or if it is a scheme of Ratchet.
pub fn register_scheme<S: Store, F>(
    name: &'static str,
    open: impl Fn(String) -> F + Send + Sync + 'static,
) -> Result<(), InvalidInput>
where
    F: Future<Output = Result<S, StoreError>> + Send + 'static,
{
    let is_scheme = !name.is_empty() && scheme(&format!("{name}:")) == name;
    if !is_scheme || name != name.to_ascii_lowercase() {
        return Err(InvalidInput::new(
            "scheme",
            format!("`{name}` is not a URL scheme"),
        ));
    }
    if is_built_in(name) {
        return Err(InvalidInput::new(
            "scheme",
            format!("`{name}` is reserved for a store of Ratchet"),
        ));
    }
    let connect: Arc<Connect> = Arc::new(move |url| {
        let opening = open(url);
        Box::pin(async move { Ok(Checked::shared(Arc::new(opening.await?))) })
    });
    let mut schemes = SCHEMES.write().unwrap_or_else(PoisonError::into_inner);
    schemes.insert(name, connect);
    #[cfg(feature = "config")]
    ratchet_config::register_scheme(name);
    Ok(())
}

/// Returns the function that opens the URLs of a registered scheme.
pub(crate) fn registered(name: &str) -> Option<Arc<Connect>> {
    let schemes = SCHEMES.read().unwrap_or_else(PoisonError::into_inner);
    schemes.get(name).cloned()
}

/// Returns the registered schemes.
pub(crate) fn names() -> Vec<&'static str> {
    let schemes = SCHEMES.read().unwrap_or_else(PoisonError::into_inner);
    schemes.keys().copied().collect()
}

#[cfg(test)]
mod tests {
    use ratchet_core::MemoryStore;

    use super::*;

    #[test]
    fn a_scheme_that_cannot_be_registered_is_named() {
        for (name, problem) in [
            ("memory", "is reserved for a store of Ratchet"),
            ("postgresql", "is reserved for a store of Ratchet"),
            ("my store", "is not a URL scheme"),
            ("Mine", "is not a URL scheme"),
            ("", "is not a URL scheme"),
        ] {
            let refused = register_scheme(name, |_| async { Ok(MemoryStore::new()) });
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(problem), "{error}");
        }
    }

    #[cfg(feature = "config")]
    #[tokio::test]
    async fn a_registered_scheme_is_known_to_configurations_and_messages() {
        use crate::config::Config;

        register_scheme("elsewhere", |url| async move {
            assert_eq!(url, "elsewhere://host/jobs");
            Ok(MemoryStore::new())
        })
        .unwrap();
        let text = "[store]\nurl = 'elsewhere://host/jobs'\n";
        let config = Config::loader().text("ratchet.toml", text).load().unwrap();
        crate::configured::check(&config).unwrap();
        let store = crate::connect_configured(&config.store).await.unwrap();
        assert!(store.is_checked());
        assert_eq!(crate::migrations(&config.store).unwrap(), []);
        let error = crate::connect("nowhere://host").await.unwrap_err();
        assert!(error.to_string().contains("elsewhere"), "{error}");
    }
}
