/// A backend's section and URL schemes.
///
/// ```
/// use ratchet_config::BACKENDS;
///
/// let servers = BACKENDS.iter().filter(|backend| backend.server);
/// let schemes: Vec<&str> = servers.map(|backend| backend.schemes[0]).collect();
/// assert_eq!(schemes, ["postgres", "sqlserver", "mongodb"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// The section of the backend's own settings, or `None` if it has none.
    pub section: Option<&'static str>,
    /// The schemes of the backend's URLs. Messages name the first.
    pub schemes: &'static [&'static str],
    /// Whether the backend is a server. The URLs of a server have a host, and may have a password.
    pub server: bool,
}

/// The table of backends.
pub const BACKENDS: &[Backend] = &[
    Backend::new(Some("store.sqlite"), &["sqlite"], false),
    Backend::new(Some("store.postgres"), &["postgres", "postgresql"], true),
    Backend::new(Some("store.sqlserver"), &["sqlserver", "mssql"], true),
    Backend::new(Some("store.mongo"), &["mongodb", "mongodb+srv"], true),
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

    /// Returns the backend of a scheme.
    pub(crate) fn of(scheme: &str) -> Option<&'static Self> {
        let mut backends = BACKENDS.iter();
        backends.find(|backend| backend.schemes.contains(&scheme))
    }
}
