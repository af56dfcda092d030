use crate::section::{ANY, Key};
use crate::value::Setting;

/// Description of the section `[permits]`. Each key of the section is the name of a resource.
pub(crate) const ABOUT: &[&str] = &[
    " Maximum number of jobs that may use a resource at once in the cluster. If the database",
    " already has a limit for the resource, that limit stays until an operator changes it.",
];

pub(crate) const KEYS: &[Key] = &[Key {
    section: "permits",
    name: ANY,
    doc: &[" Maximum number of running jobs that use the resource. With 0, none run."],
    default: None,
    example: Some("4"),
    setting: "permit",
    secret: false,
    kind: <u32 as Setting>::KIND,
}];
