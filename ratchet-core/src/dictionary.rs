//! The dictionary of routes, and which queues share their routes.
//!
//! A store with an index for each [`Route`] keeps every route once, in a dictionary, and a job
//! contains only the id of its route. If each queue had routes of its own there, the dictionary
//! would grow with every queue that was ever used, and so would the cost of each claim. So only
//! some queues are *own*. All others are *shared*: the jobs of one kind and capability of all
//! shared queues have one entry, and each of these jobs names its queue itself.
//!
//! Own are the first [`OWN_QUEUES`] queues, and those whose jobs claims would often skip in a
//! shared route: queues that were paused or that a claim has excluded by name. Jobs with a permit
//! or a fair key always have routes of their own.
//!
//! Whether a queue is own decides what a call costs, and never what it returns. The jobs of one
//! queue may even be in both kinds of routes, because another process has an older view of the
//! dictionary. So a claim looks for the jobs of a queue in both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use crate::error::InvalidInput;
use crate::model::{ClaimRequest, JobFilter};
use crate::name::Name;
use crate::route::{Route, Selection};

/// The number of queues of a database that get routes of their own because they were used first.
pub const OWN_QUEUES: usize = 16;

/// An entry of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RouteEntry {
    /// The route of the jobs of one queue.
    Own(Route),
    /// The route of the jobs of this kind and capability, without a permit, of all shared queues.
    Shared(SharedRoute),
    /// No job has this entry. It makes the queue an own queue.
    Marker(Name),
}

/// A route without its queue, for jobs that need no permit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SharedRoute {
    /// The kind of the jobs.
    pub kind: Name,
    /// The capability that a node must have to run the jobs.
    pub capability: Option<Name>,
}

impl SharedRoute {
    /// Returns the route of a job in this queue.
    #[must_use]
    pub fn in_queue(&self, queue: Name) -> Route {
        Route {
            queue,
            kind: self.kind.clone(),
            capability: self.capability.clone(),
            permit: None,
        }
    }
}

impl RouteEntry {
    /// Creates an entry from the texts that stores keep. A shared route has no queue, and a marker
    /// has no kind. [`texts`](Self::texts) returns the texts.
    ///
    /// # Errors
    /// [`InvalidInput`] naming the text that is not a valid name.
    pub fn from_texts(
        queue: &str,
        kind: &str,
        capability: &str,
        permit: &str,
    ) -> Result<Self, InvalidInput> {
        if queue.is_empty() {
            // Any queue serves to check the other texts.
            let Route {
                kind,
                capability,
                permit: None,
                ..
            } = Route::from_texts("any", kind, capability, permit)?
            else {
                return Err(InvalidInput::new("permit", "belongs to no queue"));
            };
            return Ok(Self::Shared(SharedRoute { kind, capability }));
        }
        if kind.is_empty() {
            return Name::new("queue", queue).map(Self::Marker);
        }
        Route::from_texts(queue, kind, capability, permit).map(Self::Own)
    }

    /// Returns the texts that stores keep: the queue, the kind, the capability and the permit.
    #[must_use]
    pub fn texts(&self) -> [&str; 4] {
        match self {
            Self::Own(route) => [
                route.queue.as_str(),
                route.kind.as_str(),
                route.capability_text(),
                route.permit_text(),
            ],
            Self::Shared(shared) => {
                let capability = shared.capability.as_ref().map_or("", Name::as_str);
                ["", shared.kind.as_str(), capability, ""]
            }
            Self::Marker(queue) => [queue.as_str(), "", "", ""],
        }
    }
}

/// The entry of a new job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<I> {
    /// The id of the entry.
    pub id: I,
    /// Whether the entry is a shared route, so that the job must name its queue itself.
    pub shared: bool,
}

/// What a claim reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams<I> {
    /// The routes of single queues that match the request, in the order of their ids.
    pub own: Vec<(I, Route)>,
    /// The shared routes that match the request, whatever the queue.
    pub shared: Vec<(I, SharedRoute)>,
    /// The queues whose jobs of the shared routes match, each once.
    pub queues: Selection,
}

/// A cache of the dictionary. `I` are the ids of its entries.
///
/// ```
/// use ratchet::Route;
/// use ratchet_core::dictionary::{Dictionary, RouteEntry, Place};
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let mut dictionary = Dictionary::new(1);
/// let route = |queue| Route::from_texts(queue, "send", "", "");
/// for (id, queue) in [(1, "mail"), (2, "images"), (3, "reports")] {
///     if let Err(entry) = dictionary.place(&route(queue)?, false) {
///         dictionary.add(id, entry, false);
///     }
/// }
/// assert_eq!(dictionary.place(&route("mail")?, false), Ok(Place { id: 1, shared: false }));
/// assert_eq!(dictionary.place(&route("reports")?, false), Ok(Place { id: 2, shared: true }));
/// assert_eq!(dictionary.route(2, Some("images")), Some(route("images")?));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Dictionary<I> {
    routes: BTreeMap<I, Route>,
    /// The ids of the routes for jobs with a fair key.
    fair: BTreeSet<I>,
    shared: BTreeMap<I, SharedRoute>,
    /// The ids of each route, for jobs without and for jobs with a fair key.
    ids: HashMap<Route, [Option<I>; 2]>,
    /// The ids of the shared routes of each kind.
    shared_ids: HashMap<Name, Vec<(Option<Name>, I)>>,
    /// The own queues.
    own: HashSet<Name>,
    /// The queues that have a marker.
    marked: HashSet<Name>,
    own_queues: usize,
}

impl<I: Copy + Ord + Hash> Dictionary<I> {
    /// Creates an empty cache. `own_queues` is the number of queues that get routes of their own
    /// because they were used first: [`OWN_QUEUES`] except in tests.
    #[must_use]
    pub fn new(own_queues: usize) -> Self {
        Self {
            routes: BTreeMap::new(),
            fair: BTreeSet::new(),
            shared: BTreeMap::new(),
            ids: HashMap::new(),
            shared_ids: HashMap::new(),
            own: HashSet::new(),
            marked: HashSet::new(),
            own_queues,
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::new(self.own_queues);
    }

    /// Adds a stored entry. `fair` tells whether its jobs have a fair key.
    pub fn add(&mut self, id: I, entry: RouteEntry, fair: bool) {
        match entry {
            RouteEntry::Own(route) => {
                if fair {
                    self.fair.insert(id);
                }
                if is_plain(&route, fair) {
                    self.own.insert(route.queue.clone());
                }
                self.ids.entry(route.clone()).or_default()[usize::from(fair)] = Some(id);
                self.routes.insert(id, route);
            }
            RouteEntry::Shared(shared) => {
                let of_kind = self.shared_ids.entry(shared.kind.clone()).or_default();
                of_kind.push((shared.capability.clone(), id));
                self.shared.insert(id, shared);
            }
            RouteEntry::Marker(queue) => {
                self.own.insert(queue.clone());
                self.marked.insert(queue);
            }
        }
    }

    /// Returns the entry of a new job with this route. `fair` tells whether the job has a fair key.
    ///
    /// # Errors
    /// If the cache lacks the entry, returns the entry to add. The caller must first make sure that
    /// the cache is up to date, because a stored entry that the cache lacks may change the answer.
    pub fn place(&self, route: &Route, fair: bool) -> Result<Place<I>, RouteEntry> {
        if let Some(id) = self.ids.get(route).and_then(|ids| ids[usize::from(fair)]) {
            return Ok(Place { id, shared: false });
        }
        if !is_plain(route, fair)
            || self.own.len() < self.own_queues
            || self.own.contains(&route.queue)
        {
            return Err(RouteEntry::Own(route.clone()));
        }
        let of_kind = self.shared_ids.get(&route.kind).into_iter().flatten();
        let found = of_kind
            .into_iter()
            .find(|(capability, _)| *capability == route.capability);
        match found {
            Some((_, id)) => Ok(Place {
                id: *id,
                shared: true,
            }),
            None => Err(RouteEntry::Shared(SharedRoute {
                kind: route.kind.clone(),
                capability: route.capability.clone(),
            })),
        }
    }

    /// Returns the id of this route for plain jobs of its queue alone, if the cache has it.
    #[must_use]
    pub fn own(&self, route: &Route) -> Option<I> {
        self.ids.get(route)?[0]
    }

    /// Returns the routes of single queues, in the order of their ids.
    pub fn routes(&self) -> impl Iterator<Item = (I, &Route)> {
        self.routes.iter().map(|(id, route)| (*id, route))
    }

    /// Returns the routes of jobs with a fair key, in the order of their ids.
    pub fn fair_routes(&self) -> impl Iterator<Item = (I, &Route)> {
        let route = |id| self.routes.get(id).map(|route| (*id, route));
        self.fair.iter().filter_map(route)
    }

    /// Returns the shared routes, in the order of their ids.
    pub fn shared(&self) -> impl Iterator<Item = (I, &SharedRoute)> {
        self.shared.iter().map(|(id, shared)| (*id, shared))
    }

    /// Returns the queues that have a marker.
    pub fn marked(&self) -> impl Iterator<Item = &Name> {
        self.marked.iter()
    }

    /// Returns whether the entry is the route of jobs with a fair key.
    #[must_use]
    pub fn is_fair(&self, id: I) -> bool {
        self.fair.contains(&id)
    }

    /// Returns the route of a job with this entry. `queue` is the queue that the job names itself.
    /// Returns `None` if the cache lacks the entry, or if a job of a shared route names no valid
    /// queue.
    #[must_use]
    pub fn route(&self, id: I, queue: Option<&str>) -> Option<Route> {
        let queue = queue.map(|queue| Name::new("queue", queue)).transpose();
        let queue = queue.ok()?;
        match (self.routes.get(&id), queue) {
            (Some(route), None) => Some(route.clone()),
            (Some(route), Some(queue)) => Some(Route {
                queue,
                ..route.clone()
            }),
            (None, queue) => Some(self.shared.get(&id)?.in_queue(queue?)),
        }
    }

    /// Returns what a claim reads. The cost depends on the number of entries, and not on the number
    /// of shared queues.
    #[must_use]
    pub fn streams(&self, request: &ClaimRequest) -> Streams<I> {
        let own = self.routes.iter();
        let own = own.filter(|(_, route)| route.matches(request));
        let mut queues = request.queues.clone();
        if let Selection::Only(names) | Selection::Except(names) = &mut queues {
            names.sort_unstable();
            names.dedup();
        }
        let shared = match &queues {
            Selection::Only(names) if names.is_empty() => Vec::new(),
            _ => self.shared_for(request),
        };
        Streams {
            own: own.map(|(id, route)| (*id, route.clone())).collect(),
            shared,
            queues,
        }
    }

    fn shared_for(&self, request: &ClaimRequest) -> Vec<(I, SharedRoute)> {
        let matches = |shared: &SharedRoute| {
            let capability = shared.capability.as_ref();
            request.kinds.contains(&shared.kind)
                && capability.map_or(request.untagged, |required| {
                    request.capabilities.contains(required)
                })
        };
        let shared = self.shared.iter().filter(|(_, shared)| matches(shared));
        shared.map(|(id, shared)| (*id, shared.clone())).collect()
    }

    /// Returns the entries to add so that the jobs of the queues that the request excludes are
    /// moved to routes of their own. Without them, claims would skip these jobs again and again. An
    /// own queue needs one too: jobs that were stored before it became own may become pending
    /// again.
    #[must_use]
    pub fn markers(&self, request: &ClaimRequest) -> Vec<RouteEntry> {
        let Selection::Except(excluded) = &request.queues else {
            return Vec::new();
        };
        if self.shared.is_empty() {
            return Vec::new();
        }
        let unmarked = excluded
            .iter()
            .filter(|queue| !self.marked.contains(*queue));
        let unmarked: BTreeSet<&Name> = unmarked.collect();
        unmarked
            .into_iter()
            .cloned()
            .map(RouteEntry::Marker)
            .collect()
    }

    /// Returns the entries of jobs that may match the filter. A job of a shared route matches only
    /// if it names the queue of the filter itself. Returns `None` if the filter selects neither by
    /// queue nor by kind.
    #[must_use]
    pub fn filtered(&self, filter: &JobFilter) -> Option<Vec<I>> {
        if filter.queue.is_none() && filter.kind.is_none() {
            return None;
        }
        let own = self.routes.iter();
        let own = own.filter(|(_, route)| filter.matches_route(route));
        let of_kind = |kind: &Name| filter.kind.as_ref().is_none_or(|wanted| wanted == kind);
        let shared = self.shared.iter().filter(|(_, one)| of_kind(&one.kind));
        let shared = shared.map(|(id, _)| *id);
        Some(own.map(|(id, _)| *id).chain(shared).collect())
    }
}

/// Returns whether jobs of this route may be in a shared route.
fn is_plain(route: &Route, fair: bool) -> bool {
    route.permit.is_none() && !fair
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::NodeId;

    fn route(queue: &str, kind: &str) -> Route {
        Route::from_texts(queue, kind, "", "").unwrap()
    }

    fn name(text: &str) -> Name {
        Name::new("test", text).unwrap()
    }

    /// Places a job, and adds the entry if it is missing.
    fn put(dictionary: &mut Dictionary<i32>, route: &Route, fair: bool) -> Place<i32> {
        loop {
            match dictionary.place(route, fair) {
                Ok(place) => return place,
                Err(entry) => {
                    let known = dictionary.routes.len() + dictionary.shared.len();
                    let id = i32::try_from(known).unwrap() + 1;
                    dictionary.add(id, entry, fair);
                }
            }
        }
    }

    fn own(id: i32) -> Place<i32> {
        Place { id, shared: false }
    }

    #[test]
    fn queues_after_the_first_ones_share_a_route_for_each_kind() {
        let mut all = Dictionary::new(2);
        assert_eq!(put(&mut all, &route("a", "k"), false), own(1));
        assert_eq!(put(&mut all, &route("b", "k"), false), own(2));
        assert_eq!(put(&mut all, &route("a", "l"), false), own(3));
        for queue in ["c", "d"] {
            let shared = Place {
                id: 4,
                shared: true,
            };
            assert_eq!(put(&mut all, &route(queue, "k"), false), shared);
        }
        let tagged = Route::from_texts("c", "k", "gpu", "").unwrap();
        let shared = Place {
            id: 5,
            shared: true,
        };
        assert_eq!(put(&mut all, &tagged, false), shared);
        assert_eq!(all.route(4, Some("d")), Some(route("d", "k")));
        assert_eq!(all.route(4, None), None);
        assert_eq!(all.route(4, Some("")), None);
        assert_eq!(all.route(1, None), Some(route("a", "k")));
    }

    #[test]
    fn jobs_with_a_permit_or_a_fair_key_never_share_and_make_no_queue_own() {
        let mut all = Dictionary::new(1);
        put(&mut all, &route("a", "k"), false);
        let permitted = Route::from_texts("b", "k", "", "p").unwrap();
        assert!(!put(&mut all, &permitted, false).shared);
        assert!(!put(&mut all, &route("b", "k"), true).shared);
        assert!(put(&mut all, &route("b", "k"), false).shared);
    }

    #[test]
    fn a_marker_makes_a_queue_own_for_the_next_job() {
        let mut all = Dictionary::new(0);
        let excluding = ClaimRequest::new(NodeId::new(), 1)
            .queues(Selection::Except(vec![name("a"), name("a")]));
        assert_eq!(all.markers(&excluding), []);
        assert!(put(&mut all, &route("a", "k"), false).shared);
        let markers = all.markers(&excluding);
        assert_eq!(markers, [RouteEntry::Marker(name("a"))]);
        for marker in markers {
            all.add(9, marker, false);
        }
        assert_eq!(all.markers(&excluding), []);
        assert_eq!(put(&mut all, &route("a", "k"), false), own(2));
        let streams = all.streams(&excluding);
        assert_eq!(streams.shared.len(), 1);
        assert_eq!(streams.queues, Selection::Except(vec![name("a")]));
        // A queue may be own for another reason while jobs of it are in the shared route.
        let own_queue =
            ClaimRequest::new(NodeId::new(), 1).queues(Selection::Except(vec![name("own")]));
        all.add(10, RouteEntry::Own(route("own", "k")), false);
        assert_eq!(all.markers(&own_queue), [RouteEntry::Marker(name("own"))]);
    }

    #[test]
    fn a_claim_reads_own_routes_of_its_queues_and_all_shared_routes_of_its_kinds() {
        let mut all = Dictionary::new(1);
        for (queue, kind) in [("a", "k"), ("b", "k"), ("b", "l")] {
            put(&mut all, &route(queue, kind), false);
        }
        let request = ClaimRequest::new(NodeId::new(), 1);
        let only = |names: &[&str]| Selection::Only(names.iter().map(|text| name(text)).collect());
        let ids = |streams: Streams<i32>| {
            let own: Vec<i32> = streams.own.iter().map(|(id, _)| *id).collect();
            let shared: Vec<i32> = streams.shared.iter().map(|(id, _)| *id).collect();
            (own, shared)
        };
        let of_queue = |names: &[&str]| request.clone().queues(only(names));
        assert_eq!(ids(all.streams(&request)), (vec![1], vec![2, 3]));
        assert_eq!(ids(all.streams(&of_queue(&["a"]))), (vec![1], vec![2, 3]));
        assert_eq!(ids(all.streams(&of_queue(&["b"]))), (vec![], vec![2, 3]));
        assert_eq!(ids(all.streams(&of_queue(&[]))), (vec![], vec![]));
        let of_kind = request.clone().kinds(only(&["l"]));
        assert_eq!(ids(all.streams(&of_kind)), (vec![], vec![3]));
        let tagged = request.clone().untagged(false);
        assert_eq!(ids(all.streams(&tagged)), (vec![], vec![]));
    }

    #[test]
    fn a_filter_by_queue_or_kind_selects_entries() {
        let mut all = Dictionary::new(1);
        for (queue, kind) in [("a", "k"), ("b", "k"), ("b", "l")] {
            put(&mut all, &route(queue, kind), false);
        }
        let filter = |queue: &str, kind: &str| {
            let mut filter = JobFilter::all();
            filter.queue = (!queue.is_empty()).then(|| name(queue));
            filter.kind = (!kind.is_empty()).then(|| name(kind));
            filter
        };
        assert_eq!(all.filtered(&filter("", "")), None);
        assert_eq!(all.filtered(&filter("a", "")), Some(vec![1, 2, 3]));
        assert_eq!(all.filtered(&filter("b", "k")), Some(vec![2]));
        assert_eq!(all.filtered(&filter("", "l")), Some(vec![3]));
    }

    #[test]
    fn entries_round_trip_through_their_texts() {
        let shared = SharedRoute {
            kind: name("k"),
            capability: Some(name("gpu")),
        };
        let permitted = Route::from_texts("a", "k", "", "p").unwrap();
        let entries = [
            RouteEntry::Own(permitted),
            RouteEntry::Shared(shared),
            RouteEntry::Marker(name("a")),
        ];
        for entry in entries {
            let [queue, kind, capability, permit] = entry.texts();
            let read = RouteEntry::from_texts(queue, kind, capability, permit);
            assert_eq!(read, Ok(entry));
        }
        for [queue, kind, capability, permit] in [["", "", "", ""], ["", "k", "", "p"]] {
            assert!(RouteEntry::from_texts(queue, kind, capability, permit).is_err());
        }
    }
}
