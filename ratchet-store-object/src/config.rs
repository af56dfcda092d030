//! The settings of the store: where the bucket is and how to use it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use ratchet_core::memory::ManualClock;
use ratchet_core::store::Checked;
use ratchet_core::{InvalidInput, Result, StoreError, StoreErrorKind};
use url::Url;

use crate::bucket::{self, Bucket};
use crate::clock::{self, Clock};
use crate::error::Failure;
use crate::log::Log;
use crate::open;
use crate::store::ObjectStore;

/// Processes rely on what they have read [`STALE_AFTER`](crate::log::STALE_AFTER) ago, whatever
/// the retention of the other processes is.
const SHORTEST_RETENTION: Duration = Duration::from_secs(30 * 60);

/// URL schemes that this backend accepts.
pub const SCHEMES: [&str; 4] = ["s3", "az", "gs", "file"];

/// Settings of an [`ObjectStore`]. Created by [`ObjectStore::builder`] or [`ObjectStore::on`].
///
/// | URL | where | feature | settings |
/// |---|---|---|---|
/// | `s3://bucket/prefix` | Amazon S3 and compatible services | `aws` | the variables `AWS_…` |
/// | `az://container/prefix` | Azure Blob Storage | `azure` | the variables `AZURE_…` |
/// | `gs://bucket/prefix` | Google Cloud Storage | `gcp` | the variables `GOOGLE_…` |
/// | `file:///directory` | a directory, for development | none | none |
///
/// The names of the variables are those of the crate `object_store`, such as `AWS_REGION` and
/// `AWS_ENDPOINT`. For other settings, create the client yourself: see [`ObjectStore::on`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet_core::Result<()> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratchet_store_object::ObjectStore;
/// use ratchet_store_object::object_store::memory::InMemory;
///
/// let store = ObjectStore::on(Arc::new(InMemory::new()), "jobs")
///     .deadline(Duration::from_secs(20))
///     .connect()
///     .await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "the builder opens nothing before `connect` is called"]
pub struct Builder {
    target: Target,
    deadline: Duration,
    retention: Duration,
    snapshot_every: u32,
    pauses: [Duration; 2],
    migrate: bool,
    clock: TestClock,
}

/// A change of the format of a bucket. There is none: this type has no values.
#[derive(Clone, Copy, Debug)]
pub enum Migration {}

/// Where the objects are.
#[derive(Clone)]
enum Target {
    Url(String),
    Store(Arc<dyn object_store::ObjectStore>, String),
}

/// The clocks that a test replaces.
#[derive(Clone)]
enum TestClock {
    None,
    Store(ManualClock),
    Machine(ManualClock),
}

impl Builder {
    pub(crate) fn new(url: String) -> Self {
        Self::made(Target::Url(url))
    }

    pub(crate) fn on(store: Arc<dyn object_store::ObjectStore>, prefix: String) -> Self {
        Self::made(Target::Store(store, prefix))
    }

    fn made(target: Target) -> Self {
        Self {
            target,
            deadline: Duration::from_secs(30),
            retention: Duration::from_secs(60 * 60),
            snapshot_every: 1_000,
            pauses: [Duration::from_millis(500), Duration::from_secs(30)],
            migrate: true,
            clock: TestClock::None,
        }
    }

    /// Sets how long a call may take in total before it fails with `Timeout`. The default is 30 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how old segments and snapshots must be before they are deleted. The default is one
    /// hour, and the minimum is 30 minutes.
    ///
    /// A process that has not looked at the log for five minutes first makes sure that the log
    /// still contains what it needs. If not, it starts again from a snapshot.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets after how many segments a snapshot follows. The default is 1,000.
    pub fn snapshot_every(mut self, segments: u32) -> Self {
        self.snapshot_every = segments;
        self
    }

    /// Sets the shortest and the longest pause between two looks for the jobs of other processes.
    /// Without such jobs, each pause is twice as long as the one before. The default is 0.5 s to
    /// 30 s.
    pub fn poll(mut self, shortest: Duration, longest: Duration) -> Self {
        self.pauses = [shortest, longest];
        self
    }

    /// Sets whether connecting begins a new log if the bucket contains none. The default is `true`.
    /// If `false`, connecting then fails with `SchemaMismatch`.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// Returns all migrations: none, because a bucket has no schema.
    #[must_use]
    pub fn migrations(&self) -> Vec<Migration> {
        Vec::new()
    }

    /// Returns the migrations that [`connect`](Self::connect) would apply: none.
    ///
    /// # Errors
    /// `Misconfigured` if a setting or the URL is invalid.
    pub async fn pending_migrations(self) -> Result<Vec<Migration>> {
        std::future::ready(self.check().map(|()| Vec::new())).await
    }

    /// Makes the store read the time from this clock instead of estimating the server's time. For
    /// tests: if this clock is set back, so is the time in the log.
    pub fn manual_clock(mut self, clock: ManualClock) -> Self {
        self.clock = TestClock::Store(clock);
        self
    }

    /// Makes the estimate of the server's time use this clock instead of the clock of the machine.
    /// For tests.
    pub fn machine_clock(mut self, clock: ManualClock) -> Self {
        self.clock = TestClock::Machine(clock);
        self
    }

    /// Checks the settings, as far as this is possible without access to the bucket.
    ///
    /// # Errors
    /// `Misconfigured`, which names the first invalid setting.
    pub fn check(&self) -> Result<()> {
        let checked = self.check_settings().and_then(|()| self.bucket().map(drop));
        checked.map_err(|error| error.during("check settings"))
    }

    /// Opens the store. If the bucket contains none, begins a new one.
    ///
    /// Checks that the service supports conditional writes: of several puts of a probe, exactly one
    /// must succeed.
    ///
    /// # Errors
    /// `Misconfigured` if a setting or the URL is invalid, the credentials are refused, or the
    /// service ignores the condition of a put. `SchemaMismatch` if a newer version of Ratchet has
    /// written the log. `Corrupt` if objects are missing or damaged. `Unavailable` if the service
    /// cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping the future changes no data.
    pub async fn connect(self) -> Result<Checked<ObjectStore>> {
        const OPERATION: &str = "connect";
        self.check_settings()?;
        let bucket = self.bucket()?;
        let opened = self.open(bucket).await;
        let log = opened.map_err(|failure| failure.during(OPERATION))?;
        Ok(Checked::new(ObjectStore::new(
            Arc::new(log),
            self.pauses,
            self.deadline,
        )))
    }

    pub(crate) async fn open(&self, bucket: Bucket) -> std::result::Result<Log, Failure> {
        bucket::check_conditions(&bucket).await?;
        let machine = match &self.clock {
            TestClock::Machine(clock) => Some(clock.clone()),
            _ => None,
        };
        let clock = match &self.clock {
            TestClock::Store(clock) => Clock::Manual(clock.clone()),
            _ => {
                let moment = || clock::moment(machine.as_ref());
                let measured = bucket::measure(&bucket, moment).await?;
                Clock::estimate(measured, machine)
            }
        };
        let opened = open::open(&bucket, self.migrate).await?;
        Ok(Log::new(
            bucket,
            clock,
            self.retention,
            self.snapshot_every.into(),
            opened,
        ))
    }

    fn check_settings(&self) -> Result<()> {
        let [shortest, longest] = self.pauses;
        if self.deadline.is_zero() {
            return Err(misconfigured("deadline", "is zero"));
        }
        if self.retention < SHORTEST_RETENTION {
            let problem = format!(
                "is {:?}; the minimum is {SHORTEST_RETENTION:?}, because processes that were \
                 suspended need the log of that time",
                self.retention
            );
            return Err(misconfigured("retention", problem));
        }
        if self.snapshot_every == 0 {
            return Err(misconfigured("snapshot_every", "is zero"));
        }
        if shortest.is_zero() || shortest > longest {
            let problem = format!("has the pauses {shortest:?} to {longest:?}");
            return Err(misconfigured("poll", problem));
        }
        Ok(())
    }

    pub(crate) fn bucket(&self) -> Result<Bucket> {
        let (store, prefix) = match &self.target {
            Target::Store(store, prefix) => (Arc::clone(store), parse_prefix(prefix)?),
            Target::Url(url) => parse(url)?,
        };
        Ok(Bucket::new(store, prefix, self.deadline))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Builder")
    }
}

fn misconfigured(what: &'static str, problem: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, "connect")
        .with_source(InvalidInput::new(what, problem))
}

type Located = (Arc<dyn object_store::ObjectStore>, Path);

fn parse_prefix(prefix: &str) -> Result<Path> {
    Path::parse(prefix).map_err(|error| misconfigured("the prefix", format!("is invalid: {error}")))
}

/// Parses a URL. Returns the client and the prefix of all names.
fn parse(text: &str) -> Result<Located> {
    let url = Url::parse(text).map_err(|error| misconfigured("the URL", error.to_string()))?;
    if url.query().is_some() || !url.username().is_empty() || url.password().is_some() {
        let problem = "has settings or credentials; set the variables of the environment instead";
        return Err(misconfigured("the URL", problem));
    }
    if url.scheme() == "file" {
        return directory(&url);
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(misconfigured("the URL", "names no bucket"));
    }
    let prefix = Path::from_url_path(url.path())
        .map_err(|error| misconfigured("the URL", format!("has an invalid path: {error}")))?;
    let store = match url.scheme() {
        "s3" => s3(&url),
        "az" => azure(&url),
        "gs" => google(&url),
        other => {
            let known = SCHEMES.join(", ");
            let problem = format!("has the scheme `{other}`; the schemes are {known}");
            return Err(misconfigured("the URL", problem));
        }
    }?;
    Ok((store, prefix))
}

/// Creates the client for a directory, and the directory.
fn directory(url: &Url) -> Result<Located> {
    let path = url
        .to_file_path()
        .map_err(|()| misconfigured("the URL", "names no absolute path; write file:///path"))?;
    let failed = |error: &dyn fmt::Display| {
        misconfigured("the URL", format!("names an unusable directory: {error}"))
    };
    std::fs::create_dir_all(&path).map_err(|error| failed(&error))?;
    let store = LocalFileSystem::new_with_prefix(path).map_err(|error| failed(&error))?;
    let store = store.with_fsync(true);
    Ok((Arc::new(store), Path::default()))
}

/// The client does not repeat requests: of a put, the log must know that an earlier request may
/// still take effect.
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
fn repeats() -> object_store::RetryConfig {
    object_store::RetryConfig {
        max_retries: 0,
        ..object_store::RetryConfig::default()
    }
}

/// Defines how to create the client of a service, whose feature may be disabled.
macro_rules! service {
    ($name:ident, $feature:literal, $builder:path) => {
        #[cfg(feature = $feature)]
        fn $name(url: &Url) -> Result<Arc<dyn object_store::ObjectStore>> {
            let builder = <$builder>::from_env().with_url(url.as_str());
            let store = builder.with_retry(repeats()).build();
            let store = store.map_err(|error| misconfigured("the URL", error.to_string()))?;
            Ok(Arc::new(store))
        }

        #[cfg(not(feature = $feature))]
        fn $name(url: &Url) -> Result<Arc<dyn object_store::ObjectStore>> {
            let problem = format!(
                "has the scheme `{}`, which needs the Cargo feature `{}` of \
                 ratchet-jobs-store-object",
                url.scheme(),
                $feature
            );
            Err(misconfigured("the URL", problem))
        }
    };
}

service!(s3, "aws", object_store::aws::AmazonS3Builder);
service!(azure, "azure", object_store::azure::MicrosoftAzureBuilder);
service!(google, "gcp", object_store::gcp::GoogleCloudStorageBuilder);
