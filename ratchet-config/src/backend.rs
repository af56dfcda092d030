/// A backend as the configuration knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backend {
    /// The section of its own settings. `None` if it has none.
    pub section: Option<&'static str>,
    /// The schemes of its URLs. Messages name the first.
    pub schemes: &'static [&'static str],
    /// Whether it is a server: then its URLs have a host, and may have a password.
    pub server: bool,
}

/// The table of backends.
pub const BACKENDS: &[Backend] = &[
    Backend {
        section: None,
        schemes: &["memory"],
        server: false,
    },
    Backend {
        section: Some("store.sqlite"),
        schemes: &["sqlite"],
        server: false,
    },
    Backend {
        section: Some("store.postgres"),
        schemes: &["postgres", "postgresql"],
        server: true,
    },
    Backend {
        section: Some("store.sqlserver"),
        schemes: &["sqlserver", "mssql"],
        server: true,
    },
    Backend {
        section: Some("store.mongo"),
        schemes: &["mongodb", "mongodb+srv"],
        server: true,
    },
];

impl Backend {
    /// Finds the backend of a scheme.
    pub(crate) fn of(scheme: &str) -> Option<&'static Self> {
        let mut backends = BACKENDS.iter();
        backends.find(|backend| backend.schemes.contains(&scheme))
    }
}
