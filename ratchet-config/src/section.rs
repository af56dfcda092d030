//! The table of keys, and the macro that generates the sections.

use crate::value::Kind;

/// The properties of a setting: its name, description, default and type.
///
/// ```
/// for key in ratchet_config::keys() {
///     println!("{} or {}: default {:?}", key.path(), key.variable(), key.default);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Key {
    /// Name of the section, such as `store` or `store.postgres`.
    pub section: &'static str,
    /// Name of the setting within its section.
    pub name: &'static str,
    /// Lines of the description.
    pub doc: &'static [&'static str],
    /// Default in the syntax of the file, or `None` if the setting has no default.
    pub default: Option<&'static str>,
    /// Example in the syntax of the file, for a setting without a default.
    pub example: Option<&'static str>,
    /// Name of the setting in the error messages of the engine or of the backend.
    pub setting: &'static str,
    /// Whether all output hides the value.
    pub secret: bool,
    pub(crate) kind: Kind,
}

impl Key {
    /// Returns the full name of the setting, which consists of section and name, such as
    /// `cluster.ttl`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns the name of the environment variable that sets this setting, such as
    /// `RATCHET_CLUSTER__TTL`.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(&self.path())
    }
}

/// Placeholder in a key for a name that the user chooses, such as the name of a pool.
pub(crate) const ANY: &str = "NAME";

/// Returns the name of the environment variable for a key. For a section, returns the common prefix
/// of its variables.
pub(crate) fn variable(path: &str) -> String {
    format!("RATCHET_{}", path.replace('.', "__").to_ascii_uppercase())
}

/// Declares a section: its struct, the struct's defaults, and the table of its keys.
///
/// After the type of a setting, these parts may follow, in this order:
///
/// - `as`: the function that deserializes the value.
/// - `default`: the default, in the syntax of the file.
/// - `example`: an example, in the syntax of the file.
/// - `setting`: the name of the setting in the errors of the engine or of the backend.
/// - `initially`: the initial value of the struct's field.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty
                    $(as $read:literal)?
                    $(, default $default:literal)?
                    $(, example $example:literal)?
                    $(, setting $setting:literal)?
                    $(, initially $initial:expr)?;
            )*
        }
        $(with {
            $($(#[doc = $sub_doc:literal])+ $sub:ident: $sub_type:ty,)*
        })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $doc])+ $(#[serde(deserialize_with = $read)])? pub $field: $type,)*
            $($($(#[doc = $sub_doc])+ pub $sub: $sub_type,)*)?
        }

        impl $name {
            pub(crate) const ABOUT: &'static [&'static str] = &[$($about),+];

            /// The keys of this section.
            pub const KEYS: &'static [$crate::section::Key] = &[$(
                $crate::section::Key {
                    section: $section,
                    name: stringify!($field),
                    doc: &[$($doc),+],
                    default: $crate::section::given(&[$(stringify!($default))?]),
                    example: $crate::section::given(&[$($example)?]),
                    setting: match $crate::section::given(&[$($setting)?]) {
                        Some(setting) => setting,
                        None => stringify!($field),
                    },
                    secret: matches!(<$type as $crate::value::Setting>::KIND, $crate::value::Kind::Secret(..)),
                    kind: <$type as $crate::value::Setting>::KIND,
                },
            )*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $crate::section::initial!($($initial)?),)*
                    $($($sub: Default::default(),)*)?
                }
            }
        }
    };
}
pub(crate) use section;

/// Returns the initial value of a field: the given expression, or the default of the type.
macro_rules! initial {
    () => {
        Default::default()
    };
    ($initial:expr) => {
        $initial
    };
}
pub(crate) use initial;

/// Returns the first element of a list, or `None` if the list is empty. The macro `section` passes
/// each optional part of a setting as such a list.
pub(crate) const fn given(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [] => None,
        [given, ..] => Some(given),
    }
}
