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
use crate::budget::Budget;
use crate::clock::{self, Clock};
use crate::error::Failure;
use crate::log::Log;
use crate::open;
use crate::store::ObjectStore;

/// How much longer than a request can live the retention must be. Processes rely on what they have
/// read [`STALE_AFTER`](crate::view::STALE_AFTER) ago, whatever the retention of the others is.
const RETENTION_MARGIN: Duration = Duration::from_secs(15 * 60);
/// The retention if the requests live shorter.
const RETENTION: Duration = Duration::from_secs(60 * 60);
/// Services refuse requests that were signed more than 15 minutes ago.
const SIGNED_LIFE: Duration = Duration::from_secs(15 * 60);
/// Services accept a request as long as its token is valid: often an hour, and up to a day.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

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
    retention: Option<Duration>,
    request_life: Option<Duration>,
    snapshot_every: u32,
    puts_per_minute: Option<u32>,
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
            retention: None,
            request_life: None,
            snapshot_every: 1_000,
            puts_per_minute: None,
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

    /// Sets how old segments and snapshots must be before they are deleted. The minimum is 15
    /// minutes more than [`request_life`](Self::request_life). The default is one hour, or the
    /// minimum if that is longer.
    ///
    /// A process that has not looked at the log for five minutes first makes sure that the log
    /// still contains what it needs. If not, it starts again from a snapshot.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Sets for how long the service may accept a request of any process of this log after it was
    /// made. Set the same in all processes.
    ///
    /// A virtual machine that was paused may not notice it: its clocks stand still. Then a process
    /// of this machine relies on the service to refuse its old requests, or on the
    /// [retention](Self::retention) to keep the objects with which its puts conflict.
    ///
    /// The default depends on the URL:
    ///
    /// | requests | accepted for |
    /// |---|---|
    /// | `s3://`, and `az://` with an account key: each request is signed, with its time | 15 minutes |
    /// | `gs://`, other `az://`, and clients of the application: tokens, which may be valid for an hour or a day | 24 hours |
    /// | `file://`: a directory of one machine, whose processes are paused together | 15 minutes |
    pub fn request_life(mut self, life: Duration) -> Self {
        self.request_life = Some(life);
        self
    }

    /// Sets after how many segments a snapshot follows. The default is 1,000.
    pub fn snapshot_every(mut self, segments: u32) -> Self {
        self.snapshot_every = segments;
        self
    }

    /// Sets how many objects this process puts in a minute at most, after it has opened the store.
    /// The default is no limit.
    ///
    /// Puts are the most expensive requests. With a limit, calls that change something wait until
    /// the next put may begin, and share it. Calls that only read do not wait. The time between two
    /// puts may be at most half of the [deadline](Self::deadline).
    pub fn puts_per_minute(mut self, puts: u32) -> Self {
        self.puts_per_minute = Some(puts);
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
        let checked = self.check_settings().and_then(|()| self.locate().map(drop));
        checked.map_err(|error| error.during("check settings"))
    }

    /// Opens the store. If the bucket contains none, begins a new one.
    ///
    /// Checks that the service supports conditional writes: of several puts of a probe, exactly one
    /// must succeed. Then replaces the probe, and deletes it.
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
        let (bucket, retention) = self.locate()?;
        let opened = self.open(bucket, retention).await;
        let log = opened.map_err(|failure| failure.during(OPERATION))?;
        Ok(Checked::new(ObjectStore::new(
            Arc::new(log),
            self.pauses,
            self.deadline,
        )))
    }

    async fn open(
        &self,
        mut bucket: Bucket,
        retention: Duration,
    ) -> std::result::Result<Log, Failure> {
        bucket::check_service(&bucket).await?;
        let machine = match &self.clock {
            TestClock::Machine(clock) => Some(clock.clone()),
            _ => None,
        };
        let clock = match &self.clock {
            TestClock::Store(clock) => Clock::Manual(clock.clone()),
            _ => {
                let moment = || clock::moment(machine.as_ref());
                let measured = bucket::repeated(|| bucket::measure(&bucket, moment)).await?;
                Clock::estimate(measured, machine)
            }
        };
        let opened = open::open(&bucket, self.migrate).await?;
        bucket.budget = self.puts_per_minute.map(Budget::new);
        Ok(Log::new(
            bucket,
            clock,
            retention,
            self.snapshot_every.into(),
            opened,
        ))
    }

    fn check_settings(&self) -> Result<()> {
        let [shortest, longest] = self.pauses;
        if self.deadline.is_zero() {
            return Err(misconfigured("deadline", "is zero"));
        }
        if self.snapshot_every == 0 {
            return Err(misconfigured("snapshot_every", "is zero"));
        }
        if let Some(puts) = self.puts_per_minute
            && Budget::interval(puts) > self.deadline / 2
        {
            let problem = format!(
                "is {puts}; with a deadline of {:?}, a call may wait half as long for a put",
                self.deadline
            );
            return Err(misconfigured("puts_per_minute", problem));
        }
        if shortest.is_zero() || shortest > longest {
            let problem = format!("has the pauses {shortest:?} to {longest:?}");
            return Err(misconfigured("poll", problem));
        }
        Ok(())
    }

    /// Returns the bucket and the retention.
    fn locate(&self) -> Result<(Bucket, Duration)> {
        let (client, prefix) = match &self.target {
            Target::Store(store, prefix) => {
                let client = Client::new(Arc::clone(store), TOKEN_LIFE);
                (client, parse_prefix(prefix)?)
            }
            Target::Url(url) => parse(url)?,
        };
        let life = self.request_life.unwrap_or(client.request_life);
        let shortest = life.saturating_add(RETENTION_MARGIN);
        let retention = self.retention.unwrap_or(RETENTION.max(shortest));
        if retention < shortest {
            let problem = format!(
                "is {retention:?}; the minimum is {shortest:?}, because the service may accept a \
                 request {life:?} after it was made (`request_life`), and processes that were \
                 suspended need the log of that time"
            );
            return Err(misconfigured("retention", problem));
        }
        let bucket = Bucket::new(client.store, prefix, self.deadline);
        Ok((bucket, retention))
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

/// The client for a service.
struct Client {
    store: Arc<dyn object_store::ObjectStore>,
    /// How long after it was made the service may accept a request.
    request_life: Duration,
}

impl Client {
    fn new(store: Arc<dyn object_store::ObjectStore>, request_life: Duration) -> Self {
        Self {
            store,
            request_life,
        }
    }
}

type Located = (Client, Path);

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
    let client = match url.scheme() {
        "s3" => s3(&url),
        "az" => azure(&url),
        "gs" => google(&url),
        other => {
            let known = SCHEMES.join(", ");
            let problem = format!("has the scheme `{other}`; the schemes are {known}");
            return Err(misconfigured("the URL", problem));
        }
    }?;
    Ok((client, prefix))
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
    Ok((Client::new(Arc::new(store), SIGNED_LIFE), Path::default()))
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

/// Defines how to create the client of a service, whose feature may be disabled. `$signs` returns
/// whether the builder's client signs each request.
macro_rules! service {
    ($name:ident, $feature:literal, $builder:path, $signs:expr) => {
        #[cfg(feature = $feature)]
        fn $name(url: &Url) -> Result<Client> {
            let builder = <$builder>::from_env().with_url(url.as_str());
            let signs: fn(&$builder) -> bool = $signs;
            let life = if signs(&builder) {
                SIGNED_LIFE
            } else {
                TOKEN_LIFE
            };
            let store = builder.with_retry(repeats()).build();
            let store = store.map_err(|error| misconfigured("the URL", error.to_string()))?;
            Ok(Client::new(Arc::new(store), life))
        }

        #[cfg(not(feature = $feature))]
        fn $name(url: &Url) -> Result<Client> {
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

service!(s3, "aws", object_store::aws::AmazonS3Builder, |builder| {
    let unsigned = builder.get_config_value(&object_store::aws::AmazonS3ConfigKey::SkipSignature);
    unsigned.as_deref() != Some("true")
});
service!(
    azure,
    "azure",
    object_store::azure::MicrosoftAzureBuilder,
    |builder| {
        use object_store::azure::AzureConfigKey::{AccessKey, Token};
        let value = |key| builder.get_config_value(key);
        value(&AccessKey).is_some() && value(&Token).is_none()
    }
);
service!(
    google,
    "gcp",
    object_store::gcp::GoogleCloudStorageBuilder,
    |_| false
);
