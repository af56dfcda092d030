use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Description of a backend: its section in the configuration file, and the schemes of its URLs.
///
/// ```
/// use ratchet_config::BACKENDS;
///
/// let servers = BACKENDS.iter().filter(|backend| backend.server);
/// let schemes: Vec<&str> = servers.map(|backend| backend.schemes[0]).collect();
/// assert_eq!(schemes, ["postgres", "mysql", "sqlserver", "mongodb"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// Section for the settings of this backend only, or `None` if the backend has no such
    /// settings.
    pub section: Option<&'static str>,
    /// Schemes of the backend's URLs. Error messages show the first scheme.
    pub schemes: &'static [&'static str],
    /// Whether the backend connects to a database server. If `true`, its URLs have a host and may
    /// have a password.
    pub server: bool,
}

/// All backends that Ratchet supports.
pub const BACKENDS: &[Backend] = &[
    Backend::new(Some("store.sqlite"), &["sqlite"], false),
    Backend::new(Some("store.postgres"), &["postgres", "postgresql"], true),
    Backend::new(Some("store.mysql"), &["mysql", "mariadb"], true),
    Backend::new(Some("store.sqlserver"), &["sqlserver", "mssql"], true),
    Backend::new(Some("store.mongo"), &["mongodb", "mongodb+srv"], true),
    Backend::new(Some("store.object"), &["s3", "az", "gs", "file"], false),
    Backend::new(None, &["memory"], false),
];

impl Backend {
    const fn new(
        section: Option<&'static str>,
        schemes: &'static [&'static str],
        server: bool,
    ) -> Self {
        Self {
            section,
            schemes,
            server,
        }
    }

    /// Returns the backend whose URLs have this scheme.
    pub(crate) fn of(scheme: &str) -> Option<&'static Self> {
        let mut backends = BACKENDS.iter();
        let built_in = backends.find(|backend| backend.schemes.contains(&scheme));
        built_in.or_else(|| {
            let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
            registered.get(scheme).copied()
        })
    }

    /// Returns the names of all schemes as one text, for messages.
    pub(crate) fn known_schemes() -> String {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        let built_in = BACKENDS.iter().flat_map(|backend| backend.schemes);
        let all = built_in.chain(registered.keys());
        all.copied().collect::<Vec<_>>().join(", ")
    }
}

/// The schemes that [`register_scheme`] has added, with their backends.
static REGISTERED: RwLock<BTreeMap<&'static str, &'static Backend>> = RwLock::new(BTreeMap::new());

/// Accepts URLs with this scheme, which belongs to a store that is not part of Ratchet. A program
/// calls `ratchet::register_scheme` instead, which also registers how to open such a store.
///
/// Messages hide the password in these URLs.
pub fn register_scheme(scheme: &'static str) {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    registered.entry(scheme).or_insert_with(|| {
        let schemes = Box::leak(Box::new([scheme]));
        Box::leak(Box::new(Backend::new(None, schemes, true)))
    });
}
