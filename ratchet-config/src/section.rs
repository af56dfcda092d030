//! The table of keys, and the sections that are made from it.

use crate::value::Raw;

/// One setting: what there is to know of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Key {
    /// The section, as `store` or `store.postgres`.
    pub section: &'static str,
    /// Its name in the section.
    pub name: &'static str,
    /// What it does, line by line.
    pub doc: &'static [&'static str],
    /// What is to be written, in a sentence.
    pub meant: &'static str,
    /// The value without it, as it would stand in a file; none if it is then unset.
    pub default: Option<&'static str>,
    /// A value for a setting without a default, as it would stand in a file.
    pub example: Option<&'static str>,
    /// What the engine calls it when it refuses it; the name, unless that differs.
    pub setting: &'static str,
    /// Whether its value is hidden where it is shown.
    pub secret: bool,
}

impl Key {
    /// Section and name: `cluster.ttl`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The variable that sets it: `RATCHET_CLUSTER__TTL`.
    #[must_use]
    pub fn variable(&self) -> String {
        variable(&self.path())
    }
}

/// The variable of a key or a section.
pub(crate) fn variable(path: &str) -> String {
    format!("RATCHET_{}", path.replace('.', "__").to_ascii_uppercase())
}

/// The settings of one section, by name.
pub(crate) trait Section {
    /// Sets one.
    ///
    /// # Errors
    /// What is wrong with the value. `None` if there is no such setting.
    fn set(&mut self, name: &str, raw: &Raw) -> Option<Result<(), String>>;

    /// Makes one as if it had never been set.
    fn unset(&mut self, name: &str);

    /// The value of one as it would stand in a file, with secrets hidden; none if it is not set.
    fn show(&self, name: &str) -> Option<String>;

    fn keys(&self) -> &'static [Key];
}

/// Makes a section, its defaults and its part of the table of keys.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty
                    $(, default $default:literal)?
                    $(, example $example:literal)?
                    $(, setting $setting:literal)?;
            )*
        }
        $(with {
            $($(#[doc = $sub_doc:literal])+ $sub:ident: $sub_type:ty,)*
        })?
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)*
            $($($(#[doc = $sub_doc])+ pub $sub: $sub_type,)*)?
        }

        impl $name {
            /// The table of this section's keys.
            pub const KEYS: &'static [$crate::section::Key] = &[$(
                $crate::section::Key {
                    section: $section,
                    name: stringify!($field),
                    doc: &[$($doc),+],
                    meant: <$type as $crate::value::Value>::MEANT,
                    default: $crate::section::last(&[$(stringify!($default))?]),
                    example: $crate::section::last(&[$($example)?]),
                    setting: $crate::section::named(stringify!($field), &[$($setting)?]),
                    secret: <$type as $crate::value::Value>::SECRET,
                },
            )*];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: <$type as $crate::value::Value>::initial(
                        $crate::section::last(&[$(stringify!($default))?]),
                    ),)*
                    $($($sub: Default::default(),)*)?
                }
            }
        }

        impl $crate::section::Section for $name {
            fn set(
                &mut self,
                name: &str,
                raw: &$crate::value::Raw,
            ) -> Option<Result<(), String>> {
                match name {
                    $(stringify!($field) => Some(
                        <$type as $crate::value::Value>::read(raw).map(|value| self.$field = value),
                    ),)*
                    _ => None,
                }
            }

            fn unset(&mut self, name: &str) {
                let untouched = Self::default();
                match name {
                    $(stringify!($field) => self.$field = untouched.$field,)*
                    _ => {}
                }
            }

            fn show(&self, name: &str) -> Option<String> {
                match name {
                    $(stringify!($field) => $crate::value::Value::show(&self.$field),)*
                    _ => None,
                }
            }

            fn keys(&self) -> &'static [$crate::section::Key] {
                Self::KEYS
            }
        }
    };
}
pub(crate) use section;

/// What was given at most once.
pub(crate) const fn last(given: &[&'static str]) -> Option<&'static str> {
    match given {
        [] => None,
        [given, ..] => Some(given),
    }
}

/// What was given at most once, or the name.
pub(crate) const fn named(name: &'static str, given: &[&'static str]) -> &'static str {
    match given {
        [] => name,
        [given, ..] => given,
    }
}
