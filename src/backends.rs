//! The table of backends: the URLs of each, its Cargo feature, and how to open it.
//!
//! A new backend needs one line of `backends!`, its feature, and its module in `lib.rs`. The module
//! creates the backend's builder from a configuration, and formats a migration script.

use std::pin::Pin;
use std::sync::Arc;

use ratchet_core::store::Checked;
use ratchet_core::{MemoryStore, SharedStore, StoreError, StoreErrorKind};

use crate::connect::ConnectError;
use crate::schemes;

/// Future that a call on a backend returns.
pub(crate) type Opening<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A backend, which may or may not be compiled in.
pub(crate) struct Backend {
    /// Schemes of the backend's URLs.
    schemes: &'static [&'static str],
    /// Cargo feature that compiles the backend in. `None` if the backend is always compiled in.
    feature: Option<&'static str>,
    /// Functions that open the backend. `None` if the backend is not compiled in.
    driver: Option<Driver>,
}

/// Functions that open a backend which is compiled in.
#[derive(Clone, Copy)]
pub(crate) struct Driver {
    pub(crate) connect: fn(&str) -> Opening<'_, SharedStore>,
    #[cfg(feature = "config")]
    pub(crate) configured: config::Configure,
}

/// Generates the table of backends, and the code that opens each backend with its own builder.
macro_rules! backends {
    ($($feature:literal: $module:ident::$store:ident, $schemes:expr;)+) => {
        pub(crate) const BACKENDS: &[Backend] = &[
            $(Backend {
                schemes: &$schemes,
                feature: Some($feature),
                #[cfg(feature = $feature)]
                driver: Some(Driver {
                    connect: |url| {
                        Box::pin(async move {
                            let store = crate::$module::$store::connect(url).await?;
                            Ok(Arc::new(store) as SharedStore)
                        })
                    },
                    #[cfg(feature = "config")]
                    configured: |store| Ok(Box::new(crate::$module::configured(store)?)),
                }),
                #[cfg(not(feature = $feature))]
                driver: None,
            },)+
            Backend { schemes: &["memory"], feature: None, driver: Some(MEMORY) },
        ];

        $(#[cfg(all(feature = "config", feature = $feature))]
        impl config::Configured for crate::$module::Builder {
            fn check(&self) -> Result<(), StoreError> {
                self.check()
            }

            fn connect(self: Box<Self>) -> Opening<'static, SharedStore> {
                Box::pin(async move { Ok(Arc::new((*self).connect().await?) as SharedStore) })
            }

            fn migrations(&self) -> Vec<config::Migration> {
                let steps = self.migrations().into_iter();
                steps.map(crate::$module::step).collect()
            }

            fn pending_migrations(self: Box<Self>) -> Opening<'static, Vec<config::Migration>> {
                Box::pin(async move {
                    let pending = (*self).pending_migrations().await?;
                    Ok(pending.into_iter().map(crate::$module::step).collect())
                })
            }
        })+
    };
}

backends! {
    "sqlite": sqlite::SqliteStore, ["sqlite"];
    "postgres": postgres::PostgresStore, ["postgres", "postgresql"];
    "mysql": mysql::MysqlStore, ["mysql", "mariadb"];
    "sqlserver": sqlserver::SqlServerStore, ["sqlserver", "mssql"];
    "mongo": mongo::MongoStore, ["mongodb", "mongodb+srv"];
    "object": object::ObjectStore, ["s3", "az", "gs", "file"];
}

const MEMORY: Driver = Driver {
    connect: |_| Box::pin(async { Ok(memory()) }),
    #[cfg(feature = "config")]
    configured: |_| Ok(Box::new(config::Memory)),
};

/// Opens the stores of registered schemes.
const REGISTERED: Driver = Driver {
    connect: |url| {
        Box::pin(async move {
            match schemes::registered(scheme(url)) {
                Some(connect) => connect(url.to_owned()).await,
                None => Err(StoreError::new(StoreErrorKind::Misconfigured, "connect")),
            }
        })
    },
    #[cfg(feature = "config")]
    configured: |store| {
        let url = crate::configured::url(store)?.to_owned();
        Ok(Box::new(config::Registered { url }))
    },
};

fn memory() -> SharedStore {
    Arc::new(Checked::new(MemoryStore::new()))
}

/// Returns whether a backend of Ratchet has this scheme, also if it is not compiled in.
pub(crate) fn is_built_in(scheme: &str) -> bool {
    BACKENDS
        .iter()
        .any(|backend| backend.schemes.contains(&scheme))
}

/// Returns the driver for a URL.
///
/// # Errors
/// - [`ConnectError::UnknownScheme`] if no backend has the URL's scheme.
/// - [`ConnectError::MissingFeature`] if the backend is not compiled in.
pub(crate) fn driver(url: &str) -> Result<Driver, ConnectError> {
    let scheme = scheme(url);
    if schemes::registered(scheme).is_some() {
        return Ok(REGISTERED);
    }
    let mut schemes = BACKENDS.iter().flat_map(|backend| {
        let schemes = backend.schemes.iter();
        schemes.map(move |scheme| (*scheme, backend))
    });
    let (scheme, backend) = schemes
        .find(|(name, _)| *name == scheme)
        .ok_or_else(|| ConnectError::UnknownScheme(scheme.to_owned()))?;
    backend.driver.ok_or(ConnectError::MissingFeature {
        scheme,
        // The services of object storage have features of their own.
        feature: match scheme {
            "s3" => "object-aws",
            "az" => "object-azure",
            "gs" => "object-gcp",
            _ => backend.feature.unwrap_or_default(),
        },
    })
}

/// Returns the names of all schemes as one text, for messages.
pub(crate) fn known_schemes() -> String {
    let built_in = BACKENDS.iter().flat_map(|backend| backend.schemes);
    let all = built_in.copied().chain(schemes::names());
    all.collect::<Vec<_>>().join(", ")
}

/// Returns the text before the first colon if this text can be a scheme. Otherwise returns an empty
/// text. In a connection string of another form, the text before the colon may contain a password,
/// which must not appear in messages.
pub(crate) fn scheme(url: &str) -> &str {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match url.split_once(':') {
        Some((scheme, _)) if scheme.len() <= 32 && scheme.chars().all(allowed) => scheme,
        _ => "",
    }
}

/// A trait for opening a backend with the settings of a configuration, and its implementation for
/// the in-memory store.
#[cfg(feature = "config")]
pub(crate) mod config {
    use ratchet_config::StoreConfig;
    use ratchet_core::{SharedStore, StoreError};

    use super::{Opening, memory};
    pub(crate) use crate::configured::Migration;
    use crate::connect::ConnectError;

    /// A function that creates the builder of a backend, with the settings of a configuration.
    pub(crate) type Configure = fn(&StoreConfig) -> Result<Box<dyn Configured>, ConnectError>;

    /// The builder of any backend, with its settings.
    pub(crate) trait Configured: Send {
        fn check(&self) -> Result<(), StoreError>;
        fn connect(self: Box<Self>) -> Opening<'static, SharedStore>;
        fn migrations(&self) -> Vec<Migration>;
        fn pending_migrations(self: Box<Self>) -> Opening<'static, Vec<Migration>>;
    }

    /// A store of a registered scheme, which has no settings and no migrations.
    pub(crate) struct Registered {
        pub(crate) url: String,
    }

    impl Configured for Registered {
        fn check(&self) -> Result<(), StoreError> {
            Ok(())
        }

        fn connect(self: Box<Self>) -> Opening<'static, SharedStore> {
            Box::pin(async move { (super::REGISTERED.connect)(&self.url).await })
        }

        fn migrations(&self) -> Vec<Migration> {
            Vec::new()
        }

        fn pending_migrations(self: Box<Self>) -> Opening<'static, Vec<Migration>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    /// The builder of the in-memory store, which has no settings and no migrations.
    pub(crate) struct Memory;

    impl Configured for Memory {
        fn check(&self) -> Result<(), StoreError> {
            Ok(())
        }

        fn connect(self: Box<Self>) -> Opening<'static, SharedStore> {
            Box::pin(async { Ok(memory()) })
        }

        fn migrations(&self) -> Vec<Migration> {
            Vec::new()
        }

        fn pending_migrations(self: Box<Self>) -> Opening<'static, Vec<Migration>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }
}

/// Checks that this table and the table in `ratchet-config` list the same backends. There are two
/// tables because `ratchet-config` does not depend on the stores.
#[cfg(all(test, feature = "config"))]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_knows_the_same_backends() {
        let opened = BACKENDS.iter().map(|backend| {
            let section = backend.feature.map(|feature| format!("store.{feature}"));
            (section, backend.schemes)
        });
        let configured = ratchet_config::BACKENDS.iter();
        let configured = configured.map(|it| (it.section.map(str::to_owned), it.schemes));
        assert_eq!(opened.collect::<Vec<_>>(), configured.collect::<Vec<_>>());
    }
}
