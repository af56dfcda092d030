//! Routes: the properties of jobs that decide which node may claim them.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::model::ClaimRequest;
use crate::name::Name;

/// The properties that decide whether a node may claim a job: its queue, its kind, the capability
/// it requires, and the resource whose permit it needs.
///
/// A store has few routes and many jobs. So it can index the due jobs of each route separately. A
/// claim then reads only jobs that its node may claim.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for due in client.due_routes().await? {
///     println!("{}/{}: {:?} overdue", due.route.queue, due.route.kind, due.overdue);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    /// The queue the job is in.
    pub queue: Name,
    /// The kind of the job.
    pub kind: Name,
    /// The capability that a node must have to run the job; `None` if the job requires none.
    pub capability: Option<Name>,
    /// The resource of which the job holds one permit while it runs; `None` if the job needs no
    /// permit. See [`permit`](crate::permit).
    pub permit: Option<Name>,
}

impl Route {
    /// Creates a route from the texts that stores keep. `capability` is empty if the job requires
    /// no capability, and `permit` is empty if the job needs no permit.
    /// [`capability_text`](Self::capability_text) and [`permit_text`](Self::permit_text) return
    /// these texts.
    ///
    /// # Errors
    /// [`InvalidInput`] naming the text that is not a valid name.
    pub fn from_texts(
        queue: &str,
        kind: &str,
        capability: &str,
        permit: &str,
    ) -> Result<Self, InvalidInput> {
        let optional = |field, text| match text {
            "" => Ok(None),
            text => Name::new(field, text).map(Some),
        };
        Ok(Self {
            queue: Name::new("queue", queue)?,
            kind: Name::new("kind", kind)?,
            capability: optional("capability", capability)?,
            permit: optional("permit", permit)?,
        })
    }

    /// Returns the text that stores keep for the required capability: its name, or an empty text if
    /// the route requires no capability. No valid name is empty.
    #[must_use]
    pub fn capability_text(&self) -> &str {
        self.capability.as_ref().map_or("", Name::as_str)
    }

    /// Returns the text that stores keep for the resource whose permit the job needs: its name, or
    /// an empty text if the job needs no permit. No valid name is empty.
    #[must_use]
    pub fn permit_text(&self) -> &str {
        self.permit.as_ref().map_or("", Name::as_str)
    }

    /// Returns whether jobs of this route match the request.
    ///
    /// The request must select the queue and the kind, and contain the required capability. If the
    /// route requires no capability, `untagged` of the request must be true. The function does not
    /// check whether the queue is paused or whether a permit is free; the store must check both.
    #[must_use]
    pub fn matches(&self, request: &ClaimRequest) -> bool {
        self.is_selected(
            &request.queues,
            &request.kinds,
            &request.capabilities,
            request.untagged,
        )
    }

    pub(crate) fn is_selected(
        &self,
        queues: &Selection,
        kinds: &Selection,
        capabilities: &[Name],
        untagged: bool,
    ) -> bool {
        queues.contains(&self.queue)
            && kinds.contains(&self.kind)
            && self
                .capability
                .as_ref()
                .map_or(untagged, |required| capabilities.contains(required))
    }
}

/// A selection of names: all, only some, or all but some.
///
/// ```
/// use ratchet::Name;
/// use ratchet_core::route::Selection;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let (mail, images) = (Name::new("queue", "mail")?, Name::new("queue", "images")?);
/// let selection = Selection::Except(vec![images.clone()]);
/// assert!(selection.contains(&mail));
/// assert!(!selection.contains(&images));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    /// Every name.
    All,
    /// Only these names; an empty list selects nothing.
    Only(Vec<Name>),
    /// Every name but these; an empty list selects everything.
    Except(Vec<Name>),
}

impl Selection {
    /// Returns whether `name` is selected.
    #[must_use]
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
            Self::Except(names) => !names.contains(name),
        }
    }

    /// Removes these names from the selection.
    #[must_use]
    pub(crate) fn without(self, names: &[Name]) -> Self {
        match self {
            Self::All => Self::Except(names.to_vec()),
            Self::Only(mut only) => {
                only.retain(|name| !names.contains(name));
                Self::Only(only)
            }
            Self::Except(mut except) => {
                except.extend_from_slice(names);
                Self::Except(except)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::NodeId;

    fn name(text: &str) -> Name {
        Name::new("test", text).unwrap()
    }

    fn route(capability: Option<&str>) -> Route {
        Route {
            queue: name("images"),
            kind: name("resize"),
            capability: capability.map(name),
            permit: None,
        }
    }

    #[test]
    fn untagged_jobs_run_anywhere_and_tagged_ones_where_the_tag_is() {
        let plain = ClaimRequest::new(NodeId::new(), 1);
        let gpu = plain.clone().capabilities([name("gpu"), name("arm")]);
        assert!(route(None).matches(&plain));
        assert!(route(None).matches(&gpu));
        assert!(!route(Some("gpu")).matches(&plain));
        assert!(route(Some("gpu")).matches(&gpu));
        assert!(!route(None).matches(&gpu.clone().untagged(false)));
        assert!(route(Some("gpu")).matches(&gpu.untagged(false)));
    }

    #[test]
    fn queue_and_kind_must_be_selected() {
        let request = ClaimRequest::new(NodeId::new(), 1);
        let other = Selection::Only(vec![name("mail")]);
        let both = Selection::Only(vec![name("mail"), name("images"), name("resize")]);
        assert!(!route(None).matches(&request.clone().queues(other.clone())));
        assert!(!route(None).matches(&request.clone().kinds(other)));
        assert!(!route(None).matches(&request.clone().kinds(Selection::Only(vec![]))));
        assert!(route(None).matches(&request.clone().queues(both.clone()).kinds(both)));
        let others = Selection::Except(vec![name("mail")]);
        let none = Selection::Except(vec![name("images"), name("resize")]);
        assert!(route(None).matches(&request.clone().queues(others.clone()).kinds(others)));
        assert!(!route(None).matches(&request.clone().queues(none.clone())));
        assert!(!route(None).matches(&request.kinds(none)));
    }

    #[test]
    fn without_takes_names_out_of_every_selection() {
        let texts = ["a", "b", "c"].map(name);
        let [a, b, c] = &texts;
        for (selection, left) in [
            (Selection::All, vec![c]),
            (Selection::Only(vec![a.clone(), c.clone()]), vec![c]),
            (Selection::Except(vec![c.clone()]), vec![]),
        ] {
            let rest = selection.without(&[a.clone(), b.clone()]);
            let selected: Vec<&Name> = texts.iter().filter(|name| rest.contains(name)).collect();
            assert_eq!(selected, left);
        }
    }

    proptest! {
        /// A node that advertises more capabilities can still claim every route that it could claim
        /// before.
        #[test]
        fn capabilities_only_add(
            required in prop::option::of("[a-c]"),
            has in prop::collection::vec("[a-c]", 0..3),
            more in "[a-c]",
        ) {
            let route = route(required.as_deref());
            let names = |texts: &[String]| texts.iter().map(|t| name(t)).collect::<Vec<_>>();
            let before = ClaimRequest::new(NodeId::new(), 1).capabilities(names(&has));
            let mut all = has.clone();
            all.push(more);
            let after = before.clone().capabilities(names(&all));
            prop_assert!(!route.matches(&before) || route.matches(&after));
        }
    }
}
