//! Captures log lines, for assertions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// Captures the log lines of the current thread until the value is dropped. During this time, other
/// subscribers of the thread receive no lines.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet::testing::{Logs, drain, memory_store};
/// use tracing::Level;
/// # use ratchet::{Job, JobContext, JobResult, Ratchet};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Charge;
/// # impl Job for Charge {
/// #     const KIND: &'static str = "charge";
/// #     type Output = ();
/// #     async fn run(self, _ctx: JobContext) -> JobResult<()> { Err("card declined".into()) }
/// # }
/// let logs = Logs::capture();
/// let node = Ratchet::builder(memory_store().0).register::<Charge>().build()?;
/// node.enqueue(Charge.into_job()).await?;
/// drain(&node).await?;
/// logs.assert_logged(Level::WARN, "ratchet::job", &[("kind", "charge"), ("error", "card declined")]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "lines are captured only until this value is dropped"]
pub struct Logs {
    lines: Lines,
    _installed: DefaultGuard,
}

/// A captured line of the log.
///
/// ```
/// use ratchet::testing::Logs;
///
/// let logs = Logs::capture();
/// tracing::warn!(target: "shop", order = 7, "the card was declined");
///
/// let lines = logs.lines_of("shop");
/// assert_eq!(lines[0].field("order"), Some("7"));
/// assert_eq!(lines[0].field("message"), Some("the card was declined"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// The level of the line.
    pub level: Level,
    /// The target of the line.
    pub target: String,
    /// The fields as text. The message is the field `message`.
    pub fields: BTreeMap<&'static str, String>,
}

impl LogLine {
    /// Returns the field of this name as text.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}:", self.level, self.target)?;
        let mut fields = self.fields.iter();
        fields.try_for_each(|(name, value)| write!(f, " {name}={value:?}"))
    }
}

impl Logs {
    /// Starts to capture the log lines of the current thread. Log lines of other threads are not
    /// captured, so use the default, single-threaded runtime of `#[tokio::test]`.
    pub fn capture() -> Self {
        let lines = Lines::default();
        Self {
            _installed: tracing::subscriber::set_default(lines.clone()),
            lines,
        }
    }

    /// Returns the log lines captured so far, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        self.lines.lock().clone()
    }

    /// Returns the log lines of one target captured so far, oldest first.
    #[must_use]
    pub fn lines_of(&self, target: &str) -> Vec<LogLine> {
        let mut lines = self.lines();
        lines.retain(|line| line.target == target);
        lines
    }

    /// Asserts that a line of this level and target has these fields with these values.
    ///
    /// # Panics
    /// If there is no such line. The message lists the lines of the target.
    #[track_caller]
    pub fn assert_logged(&self, level: Level, target: &str, fields: &[(&str, &str)]) {
        let lines = self.lines_of(target);
        let has = |line: &LogLine| {
            let mut fields = fields.iter();
            line.level == level && fields.all(|(name, value)| line.field(name) == Some(*value))
        };
        if !lines.iter().any(has) {
            let found: Vec<String> = lines.iter().map(|line| format!("\n  {line}")).collect();
            let found = found.concat();
            panic!("expected {level} of `{target}` with {fields:?}, found:{found}");
        }
    }
}

/// The `tracing` subscriber that collects the log lines.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<LogLine>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<LogLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.lock().push(LogLine {
            level: *event.metadata().level(),
            target: event.metadata().target().to_owned(),
            fields: fields.0,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
