use crate::section::{ANY, Key};
use crate::value::Setting;

/// Describes `[permits]`, whose keys are the resources that the configuration names.
pub(crate) const ABOUT: &[&str] = &[
    " How many jobs with the permit of a resource may run at once in the cluster. A resource that is known",
    " keeps its number: an operator changes it.",
];

pub(crate) const KEYS: &[Key] = &[Key {
    section: "permits",
    name: ANY,
    doc: &[" How many jobs; 0 lets none run."],
    default: None,
    example: Some("4"),
    setting: "permit",
    secret: false,
    kind: <u32 as Setting>::KIND,
}];
