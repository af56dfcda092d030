//! The failures of commands: their exit codes, and how they are reported.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use ratchet::{ConnectError, InvalidInput, SchemaProblem, StoreError, StoreErrorKind};

use crate::output::{BAD, WARN, paint};

/// The list of all exit codes. The option `--help` of every command shows it.
pub(crate) const CODES: &str = "\
Exit codes:
  0    done
  1    the database, the network or the file system failed
  2    the command line is invalid
  3    the named job, node, queue or definition does not exist
  4    refused: the present state does not allow the action
  5    needs confirmation: no terminal to ask on and no --yes, or the answer was no
  6    doctor: found an error (--strict: or a warning); migrate --check: migrations are missing
  7    the configuration is invalid
  130  interrupted by Ctrl-C";

/// The failure of a command: its exit code, its message, and a remedy that the user can try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The program that reads the output closed the pipe. The exit code is that of success.
    Closed = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Unconfirmed = 5,
    /// A check found problems. The output of the command lists them.
    Found = 6,
    Configuration = 7,
    Interrupted = 130,
}

impl Failure {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            remedy: None,
        }
    }

    /// Creates a failure for the database or another external system that failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }

    /// Creates a failure for arguments that the parser accepts and the command refuses.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Creates a failure for a job, node, queue or definition that the user named and that does not
    /// exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// Creates a failure for an action that the present state of the cluster or of a job does not
    /// allow.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// Creates a failure for an action that the user did not confirm.
    pub(crate) fn unconfirmed(message: impl Into<String>) -> Self {
        Self::new(Kind::Unconfirmed, message)
    }

    /// Creates the failure of a check that found problems. The output of the command lists the
    /// problems.
    pub(crate) fn found() -> Self {
        Self::new(Kind::Found, "the check found problems")
    }

    /// Creates a failure for an invalid configuration.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(Kind::Configuration, message)
    }

    /// Creates a failure for a command that Ctrl-C or another signal interrupted.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    /// Creates a failure from an error of the command-line parser. The first paragraph of the
    /// error's text becomes the message, and the rest of the text becomes the remedy.
    pub(crate) fn not_understood(error: &clap::Error) -> Self {
        if matches!(
            error.kind(),
            ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        ) {
            return Self::usage("no command is given").remedy("`--help` lists the commands.");
        }
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
        let failure = Self::usage(message.trim());
        match rest.trim() {
            "" => failure,
            rest => failure.remedy(rest),
        }
    }

    /// Creates a failure from an error of a store call that is not idempotent. After a timeout, the
    /// remedy warns that repeating the command may enqueue the job twice.
    pub(crate) fn of_unrepeatable(error: StoreError) -> Self {
        let unknown = error.kind() == StoreErrorKind::Timeout;
        let failure = Self::from(error);
        match unknown {
            true => failure.remedy(
                "It is unknown whether the command took effect, and repeating it may enqueue the \
                 job twice: check first with `ratchet jobs list`.",
            ),
            false => failure,
        }
    }

    /// Sets the remedy: advice on how the user can solve the problem.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the exit code of the process.
    pub(crate) const fn code(&self) -> u8 {
        self.kind as u8
    }

    /// Writes the message and the remedy to stderr. Writes nothing if the output has no reader, or
    /// if the output already lists the problems.
    fn report(&self, json: bool) {
        if matches!(self.kind, Kind::Closed | Kind::Found) {
            return;
        }
        let mut text = format!("{} {}", paint(BAD.bold(), "error:"), self.message);
        if let Some(remedy) = &self.remedy {
            text += &format!("\n  {remedy}");
        }
        if json {
            text = serde_json::json!({ "error": {
                "exit_code": self.code(),
                "message": self.message,
                "remedy": self.remedy,
            }})
            .to_string();
        }
        // If writing fails, stderr has no reader.
        drop(writeln!(anstream::stderr(), "{text}"));
    }
}

/// Writes a warning to stderr, as JSON if `json` is true.
pub(crate) fn warn(message: &str, json: bool) {
    let text = match json {
        true => serde_json::json!({ "warning": message }).to_string(),
        false => format!("{} {message}", paint(WARN.bold(), "warning:")),
    };
    // If writing fails, stderr has no reader.
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// Combines the result of a command with the result of writing its output.
pub(crate) trait Verdict {
    /// Returns one result from the command's result, `self`, and from `telling`, the result of
    /// writing its output.
    ///
    /// If the command failed, returns its failure. Otherwise returns `telling`. There is one
    /// exception: if the failure is [`Failure::found`] and writing failed, returns the failure of
    /// writing, because the listed problems are incomplete. The exception does not apply if the
    /// reader closed the output.
    ///
    /// # Errors
    /// Fails with the failure of the command, or with the failure of writing the output.
    fn told(self, telling: Result<(), Failure>) -> Result<(), Failure>;
}

impl Verdict for Result<(), Failure> {
    fn told(self, telling: Result<(), Failure>) -> Result<(), Failure> {
        match telling {
            Err(closed) if closed.kind == Kind::Closed => self.and(Err(closed)),
            // The list of problems is incomplete, so the failure of writing takes precedence.
            Err(other) if self.as_ref().is_err_and(|own| own.kind == Kind::Found) => Err(other),
            telling => self.and(telling),
        }
    }
}

/// Returns the remedy for a database schema that does not match this program. `ratchet migrate`
/// solves only `Behind`, and `NoFile` if the user wants a new database.
pub(crate) const fn schema_remedy(problem: SchemaProblem) -> &'static str {
    match problem {
        SchemaProblem::NoFile => {
            "Check the path in --url or store.url. If you want a new, empty database there, \
             `ratchet migrate` creates it."
        }
        SchemaProblem::Behind => {
            "`ratchet migrate --dry-run` prints what is missing; `ratchet migrate` applies it."
        }
        SchemaProblem::Newer => {
            "Use the version of `ratchet` that migrated this database, or a later one."
        }
        _ => {
            "Check that --url and the configured schema or prefix name Ratchet's own tables. If \
             they were changed, undo the change or restore a backup: `ratchet migrate` repairs \
             nothing."
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if let Some(problem) = error.invalid_input() {
            return Self::usage(problem.to_string());
        }
        let problem = error.to_string();
        match error.kind() {
            StoreErrorKind::Misconfigured => Self::configuration(problem),
            StoreErrorKind::Unavailable => Self::failed(problem).remedy(
                "Check that the database is running, and that --url or the configuration names the \
                 right database.",
            ),
            StoreErrorKind::SchemaMismatch(schema) => {
                Self::failed(problem).remedy(schema_remedy(schema))
            }
            StoreErrorKind::Timeout => Self::failed(problem).remedy(
                "It is unknown whether the command took effect; the command can be \
                 repeated.",
            ),
            _ => Self::failed(problem),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Store(error) => error.into(),
            other => Self::configuration(other.to_string()),
        }
    }
}

impl From<InvalidInput> for Failure {
    fn from(problem: InvalidInput) -> Self {
        Self::usage(problem.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Kind::Closed, "the output was closed"),
            _ => Self::failed(error.to_string()),
        }
    }
}

/// Writes the failure to stderr if the result is an error, and returns the exit code of the
/// process.
pub(crate) fn conclude(result: Result<(), Failure>, json: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report(json);
            ExitCode::from(failure.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        let kinds = [
            Kind::Closed,
            Kind::Failed,
            Kind::Usage,
            Kind::NotFound,
            Kind::Refused,
            Kind::Unconfirmed,
            Kind::Found,
            Kind::Configuration,
            Kind::Interrupted,
        ];
        for kind in kinds {
            let line = format!("\n  {:<3}  ", Failure::new(kind, "").code());
            assert!(CODES.contains(&line), "{kind:?}");
        }
    }

    #[test]
    fn what_may_have_happened_is_not_said_to_be_repeatable() {
        let late = || StoreError::new(StoreErrorKind::Timeout, "enqueue");
        let remedy = |failure: Failure| failure.remedy.unwrap_or_default();
        assert!(remedy(Failure::from(late())).contains("can be repeated"));
        assert!(remedy(Failure::of_unrepeatable(late())).contains("twice"));
    }

    #[test]
    fn a_reader_that_goes_away_changes_no_verdict() {
        let closed = || Err(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)));
        let code =
            |result: Result<(), Failure>| result.map_or_else(|failure| failure.code(), |()| 0);
        assert_eq!(code(Err(Failure::found()).told(closed())), 6);
        assert_eq!(code(Err(Failure::failed("")).told(closed())), 1);
        assert_eq!(code(Ok(()).told(closed())), 0);
        let full = || Err(Failure::from(io::Error::from(io::ErrorKind::StorageFull)));
        assert_eq!(code(Err(Failure::found()).told(full())), 1);
        assert_eq!(code(Err(Failure::interrupted("")).told(Ok(()))), 130);
    }

    #[test]
    fn each_problem_of_a_schema_has_a_remedy_of_its_own() {
        use SchemaProblem::{Altered, Behind, Newer, NoFile};
        let remedy = |problem| {
            let kind = StoreErrorKind::SchemaMismatch(problem);
            Failure::from(StoreError::new(kind, "connect"))
                .remedy
                .unwrap()
        };
        assert!(remedy(NoFile).starts_with("Check the path"));
        assert!(remedy(Behind).ends_with("`ratchet migrate` applies it."));
        assert!(!remedy(Newer).contains("ratchet migrate"));
        assert!(remedy(Altered).ends_with("`ratchet migrate` repairs nothing."));
    }

    #[test]
    fn failures_of_the_store_have_codes_by_kind() {
        let code = |kind| Failure::from(StoreError::new(kind, "connect")).code();
        assert_eq!(code(StoreErrorKind::Unavailable), 1);
        assert_eq!(
            code(StoreErrorKind::SchemaMismatch(SchemaProblem::Behind)),
            1
        );
        assert_eq!(code(StoreErrorKind::Misconfigured), 7);
        let refused = InvalidInput::new("queue", "is empty");
        assert_eq!(Failure::from(StoreError::from(refused)).code(), 2);
    }
}
