//! The table of keys, and the macro that generates the sections.

use crate::value::Kind;

/// The properties of a setting.
///
/// ```
/// for key in ratchet_config::keys() {
///     println!("{} or {}: default {:?}", key.path(), key.variable(), key.default);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Key {
    /// The section, such as `store` or `store.postgres`.
    pub section: &'static str,
    /// The name of the setting in its section.
    pub name: &'static str,
    /// The description of the setting, line by line.
    pub doc: &'static [&'static str],
    /// The default, as it is written in a file, or `None` if the setting has no default.
    pub default: Option<&'static str>,
    /// An example for a setting without a default, as it is written in a file.
    pub example: Option<&'static str>,
    /// The name of the setting in the engine's errors.
    pub setting: &'static str,
    /// Whether the value is hidden in all output.
    pub secret: bool,
    pub(crate) kind: Kind,
}

impl Key {
    /// Returns the section and the name: `cluster.ttl`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns the variable that sets the key: `RATCHET_CLUSTER__TTL`.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(&self.path())
    }
}

/// The placeholder for a name that the configuration chooses.
pub(crate) const ANY: &str = "NAME";

/// Returns the environment variable of a key, or the prefix that the variables of a section share.
pub(crate) fn variable(path: &str) -> String {
    format!("RATCHET_{}", path.replace('.', "__").to_ascii_uppercase())
}

/// Declares a section, its defaults and its part of the table of keys.
///
/// A setting names, in this order: a function that reads it for serde (`as`), its default, an
/// example, the engine's name for it, and its initial value in code.
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

/// Returns the initial value of a setting in code: the given expression, or the type's default.
macro_rules! initial {
    () => {
        Default::default()
    };
    ($initial:expr) => {
        $initial
    };
}
pub(crate) use initial;

/// Returns the value of an optional part of a setting, if it was given.
pub(crate) const fn given(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [] => None,
        [given, ..] => Some(given),
    }
}
