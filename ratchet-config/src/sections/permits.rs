use crate::section::{ANY, Key};
use crate::value::Setting;

/// Description of the section `[permits]`. Each key of the section is the name of a resource.
pub(crate) const ABOUT: &[&str] = &[
    " How many jobs that need a permit of a resource may run at once in the cluster. If the",
    " database already has a limit for the resource, it stays until an operator changes it.",
];

pub(crate) const KEYS: &[Key] = &[Key {
    section: "permits",
    name: ANY,
    doc: &[" The maximum number of running jobs. With 0, none run."],
    default: None,
    example: Some("4"),
    setting: "permit",
    secret: false,
    kind: <u32 as Setting>::KIND,
}];
