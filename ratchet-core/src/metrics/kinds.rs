//! Metrics of enqueued jobs. A process may enqueue jobs of any kind, so only a limited number of
//! kinds have a label value of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use ::metrics::SharedString;

use super::catalog::{JOBS_ENQUEUED, MAX_KINDS, OTHER};
use crate::model::{Enqueued, NewJob};
use crate::name::Name;

/// The kinds that have their own label value. All other kinds share the value [`OTHER`].
#[derive(Debug, Default)]
struct Kinds(BTreeSet<Name>);

impl Kinds {
    const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Returns the label value of this kind. A new kind gets its own value, unless [`MAX_KINDS`]
    /// kinds already have one.
    fn label(&mut self, kind: &Name) -> SharedString {
        if !self.0.contains(kind) {
            if self.0.len() >= MAX_KINDS {
                return OTHER.into();
            }
            self.0.insert(kind.clone());
        }
        kind.shared()
    }
}

/// The first [`MAX_KINDS`] kinds that this process has enqueued.
static KINDS: Mutex<Kinds> = Mutex::new(Kinds::new());

/// Counts the jobs of an enqueue by kind and outcome.
pub(crate) fn enqueued(jobs: &[NewJob], answers: &[Enqueued]) {
    let mut counts: BTreeMap<(&Name, &'static str), u64> = BTreeMap::new();
    for (job, answer) in jobs.iter().zip(answers) {
        let outcome = match answer {
            Enqueued::Created(_) => "created",
            Enqueued::Duplicate(_) => "duplicate",
            Enqueued::Replaced(_) => "replaced",
            Enqueued::Withheld(_) => "withheld",
        };
        *counts.entry((&job.spec().route.kind, outcome)).or_default() += 1;
    }
    for ((kind, outcome), count) in counts {
        let kind = KINDS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .label(kind);
        let values = [kind, outcome.into()];
        JOBS_ENQUEUED.counter(values).increment(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_kinds_are_told_apart() {
        let mut kinds = Kinds::default();
        let label = |kinds: &mut Kinds, number: usize| {
            let kind = Name::new("kind", format!("kind {number}")).unwrap();
            kinds.label(&kind).to_string()
        };
        for number in 0..MAX_KINDS {
            assert_eq!(label(&mut kinds, number), format!("kind {number}"));
        }
        assert_eq!(label(&mut kinds, MAX_KINDS), OTHER);
        assert_eq!(label(&mut kinds, 7), "kind 7");
    }
}
