use std::fmt::{self, Write as _};

use crate::client::Client;
use crate::engine::Node;
use crate::error::StoreError;
use crate::handler::{Job, decode};
use crate::model::{JobFilter, JobRecord, PageRequest};
use crate::name::Name;
use crate::priority::Priority;
use crate::state::JobState;

use super::TestContext;

/// The number of jobs that the message of a failed assertion lists.
const SHOWN: usize = 20;
/// The number of jobs in each page that an assertion reads.
const PAGE: usize = 500;
/// The states of jobs that have not ended.
const UNFINISHED: [JobState; 4] = [
    JobState::Pending,
    JobState::Blocked,
    JobState::Paused,
    JobState::Running,
];

/// Asserts that a job is enqueued, on any store, and returns the matching jobs, newest first.
///
/// The first argument is a [`Client`](crate::Client), a [`Node`](crate::Node) or a
/// [`TestContext`](crate::testing::TestContext). The other arguments are a pattern of a job type,
/// with an optional guard, and conditions. Either the pattern or the conditions may be left out. A
/// condition is one of these:
///
/// | condition | the job |
/// |---|---|
/// | `kind = "resize"` | is stored under this name, whatever its type |
/// | `queue = "images"` | is in this queue |
/// | `lane = "customer-42"` | is in this lane |
/// | `capability = "gpu"` | requires this capability |
/// | `unique_key = "cat.png"` | has this unique key |
/// | `tag = "tenant:7"` | has this tag |
/// | `priority = Priority::High` | has this stored priority |
/// | `delayed = true` | is due later than it was enqueued; with `false`, is due at once |
/// | `state = JobState::Succeeded` | is in this state; by default, it has not ended |
/// | `count = 2` | is one of exactly 2 matches; by default, at least one is expected |
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// # use std::sync::Arc;
/// use ratchet::testing::{assert_enqueued, refute_enqueued};
/// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Resize { path: String, width: u32 }
/// # impl Job for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Output = ();
/// #     async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
/// # }
/// # let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// client.enqueue(Resize { path: "cat.png".into(), width: 5 }.into_job().queue("images")).await?;
///
/// assert_enqueued!(client, Resize { width: 5, .. });
/// assert_enqueued!(client, Resize { path, .. } if path.ends_with(".png"), queue = "images");
/// let jobs = assert_enqueued!(client, kind = "resize", count = 1);
/// assert_eq!(jobs[0].spec.route.queue, "images");
/// refute_enqueued!(client, Resize { width: 640, .. });
/// refute_enqueued!(client, queue = "mail");
/// # Ok(()) }
/// ```
///
/// The macro awaits calls of the store, so it can be used only where `.await` is allowed.
///
/// # Panics
/// If no job matches, or if the number of matching jobs is not `count`. The message lists the
/// newest existing jobs. Also if the store fails.
#[macro_export]
macro_rules! assert_enqueued {
    ($in:expr, $($wanted:tt)+) => {
        match $crate::__wanted!(stringify!($($wanted)+), $($wanted)+).find(&$in).await {
            Ok(jobs) => jobs,
            Err(message) => panic!("{message}"),
        }
    };
}

/// Asserts that no enqueued job matches. The arguments are those of
/// [`assert_enqueued!`](crate::testing::assert_enqueued), except for `count`, which is always 0.
///
/// # Panics
/// If a job matches. The message lists the newest existing jobs. Also if the store fails.
#[macro_export]
macro_rules! refute_enqueued {
    ($in:expr, $($wanted:tt)+) => {
        match $crate::__wanted!(stringify!($($wanted)+), $($wanted)+).count(0).find(&$in).await {
            Ok(_) => {}
            Err(message) => panic!("{message}"),
        }
    };
}

/// Builds the [`Wanted`](crate::testing::Wanted) of an assertion from its arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __wanted {
    ($text:expr, $($key:ident = $value:expr),+ $(,)?) => {
        $crate::testing::Wanted::any($text)$(.$key($value))+
    };
    ($text:expr, $($job:ident)::+ { $($fields:tt)* } $(if $guard:expr)?
     $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::testing::Wanted::of::<$($job)::+>(
            $text,
            |job| matches!(job, $($job)::+ { $($fields)* } $(if $guard)?),
        )$(.$key($value))*
    };
    ($text:expr, $($job:ident)::+ ( $($fields:tt)* ) $(if $guard:expr)?
     $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::testing::Wanted::of::<$($job)::+>(
            $text,
            |job| matches!(job, $($job)::+ ( $($fields)* ) $(if $guard)?),
        )$(.$key($value))*
    };
    ($text:expr, $($job:ident)::+ $(, $key:ident = $value:expr)* $(,)?) => {
        $crate::testing::Wanted::of::<$($job)::+>($text, |_| true)$(.$key($value))*
    };
}

/// A type that has a client. The macros such as
/// [`assert_enqueued!`](crate::testing::assert_enqueued) search the store of this client.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// # use ratchet::Ratchet;
/// use ratchet::testing::{HasClient, assert_enqueued, memory_store};
/// use ratchet::{Client, NewJob};
///
/// /// The application under test.
/// struct Shop { jobs: Client }
///
/// impl HasClient for Shop {
///     fn client_of(&self) -> &Client { &self.jobs }
/// }
///
/// let shop = Shop { jobs: Ratchet::client(memory_store().0) };
/// shop.jobs.enqueue(NewJob::new("welcome", "Ada").queue("mail")).await?;
/// assert_enqueued!(shop, kind = "welcome", queue = "mail");
/// # Ok(()) }
/// ```
pub trait HasClient {
    /// Returns the client whose store the macros search.
    fn client_of(&self) -> &Client;
}

impl HasClient for Client {
    fn client_of(&self) -> &Client {
        self
    }
}

impl HasClient for Node {
    fn client_of(&self) -> &Client {
        self.client()
    }
}

impl HasClient for TestContext {
    fn client_of(&self) -> &Client {
        self.client()
    }
}

impl<T: HasClient + ?Sized> HasClient for &T {
    fn client_of(&self) -> &Client {
        T::client_of(self)
    }
}

type Condition<'a> = Box<dyn Fn(&JobRecord) -> bool + Send + Sync + 'a>;

/// The conditions on the jobs that an assertion searches for. The macros create this type.
#[doc(hidden)]
#[must_use]
pub struct Wanted<'a> {
    text: &'static str,
    filter: JobFilter,
    conditions: Vec<Condition<'a>>,
    count: Option<usize>,
}

impl fmt::Debug for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wanted").field(&self.text).finish()
    }
}

impl<'a> Wanted<'a> {
    pub fn any(text: &'static str) -> Self {
        Self {
            text,
            filter: JobFilter::all(),
            conditions: Vec::new(),
            count: None,
        }
    }

    pub fn of<J: Job>(text: &'static str, is: impl Fn(&J) -> bool + Send + Sync + 'a) -> Self {
        Self::any(text).when(move |job| {
            let kind = job.spec.route.kind.as_str();
            (kind == J::KIND || J::ALIASES.contains(&kind))
                && decode(&job.spec.payload, job.spec.payload_version).is_ok_and(|job| is(&job))
        })
    }

    pub fn kind(self, kind: &'a str) -> Self {
        self.when(move |job| job.spec.route.kind == kind)
    }

    pub fn queue(self, queue: &'a str) -> Self {
        self.when(move |job| job.spec.route.queue == queue)
    }

    pub fn lane(self, lane: &'a str) -> Self {
        self.when(move |job| is(job.spec.lane.as_ref(), lane))
    }

    pub fn capability(self, capability: &'a str) -> Self {
        self.when(move |job| is(job.spec.route.capability.as_ref(), capability))
    }

    pub fn unique_key(self, key: &'a str) -> Self {
        self.when(move |job| is(job.spec.unique_key.as_ref(), key))
    }

    pub fn tag(self, tag: &'a str) -> Self {
        self.when(move |job| job.spec.tags.iter().any(|name| name == tag))
    }

    pub fn priority(self, priority: Priority) -> Self {
        self.when(move |job| job.spec.priority == priority)
    }

    pub fn delayed(self, delayed: bool) -> Self {
        self.when(move |job| (job.run_at > job.created_at) == delayed)
    }

    pub fn state(mut self, state: JobState) -> Self {
        self.filter = self.filter.state(state);
        self
    }

    /// Sets the expected number of matching jobs.
    ///
    /// # Panics
    /// If the method is called twice, which happens if `refute_enqueued!` gets a `count`.
    pub fn count(mut self, count: usize) -> Self {
        assert!(
            self.count.is_none(),
            "expected one condition `count`, found two"
        );
        self.count = Some(count);
        self
    }

    fn when(mut self, condition: impl Fn(&JobRecord) -> bool + Send + Sync + 'a) -> Self {
        self.conditions.push(Box::new(condition));
        self
    }

    /// Returns the matching jobs, newest first, if their number is the expected one.
    ///
    /// # Errors
    /// The message of the failed assertion, which lists the newest existing jobs.
    pub async fn find(self, place: &impl HasClient) -> Result<Vec<JobRecord>, String> {
        let client = place.client_of();
        let failed = |error: StoreError| format!("the store failed: {error}");
        let mut filter = self.filter.clone();
        if filter.states.is_empty() {
            filter.states.extend(UNFINISHED);
        }
        let (mut found, mut page) = (Vec::new(), PageRequest::first(PAGE));
        loop {
            let read = client.list(&filter, &page).await.map_err(failed)?;
            let matching = |job: &JobRecord| self.conditions.iter().all(|is| is(job));
            found.extend(read.jobs.into_iter().filter(matching));
            if read.next.is_none() {
                break;
            }
            page = page.after(read.next);
        }
        let as_wanted = match self.count {
            Some(count) => found.len() == count,
            None => !found.is_empty(),
        };
        if as_wanted {
            return Ok(found);
        }
        let page = PageRequest::first(SHOWN);
        let there = client
            .list(&JobFilter::all(), &page)
            .await
            .map_err(failed)?;
        let more = there.next.is_some();
        Err(self.message(found.len(), &there.jobs, more))
    }

    fn message(&self, found: usize, there: &[JobRecord], more: bool) -> String {
        let wanted = match self.count {
            None => "no enqueued job matches".to_owned(),
            Some(0) => format!("{found} enqueued jobs match, expected none:"),
            Some(count) => format!("{found} enqueued jobs match, expected {count}:"),
        };
        let mut message = format!("{wanted} {}", self.text);
        if there.is_empty() {
            message.push_str("\nthe store has no jobs");
            return message;
        }
        message.push_str("\nthe store has these jobs, newest first:");
        for job in there {
            // Writing to a string does not fail.
            let _ = write!(message, "\n  {}", described(job));
        }
        if more {
            message.push_str("\n  …");
        }
        message
    }
}

/// Describes a job in one line, for the message of a failed assertion.
fn described(job: &JobRecord) -> String {
    let spec = &job.spec;
    let mut line = format!(
        "{:<9} {} {} in queue {}",
        job.state,
        spec.route.kind,
        spec.payload.as_str(),
        spec.route.queue
    );
    let optional = [
        ("lane", spec.lane.as_ref()),
        ("capability", spec.route.capability.as_ref()),
        ("unique key", spec.unique_key.as_ref()),
    ];
    for (what, name) in optional {
        if let Some(name) = name {
            let _ = write!(line, ", {what} {name}");
        }
    }
    for tag in &spec.tags {
        let _ = write!(line, ", tag {tag}");
    }
    if spec.priority != Priority::default() {
        let _ = write!(line, ", priority {:?}", spec.priority);
    }
    if job.run_at > job.created_at {
        let _ = write!(line, ", due {}", job.run_at);
    }
    line
}

fn is(name: Option<&Name>, text: &str) -> bool {
    name.is_some_and(|name| name == text)
}
