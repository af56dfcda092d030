//! What can go wrong inside the store, and how it is told to callers.

use ratchet_core::{InvalidInput, StoreError, StoreErrorKind};
use tiberius::error::TokenError;

/// A result inside the store, before it is known what the caller had asked for.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A failure without the operation that failed. The text never has values that were stored or
/// bound, nor credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: StoreErrorKind,
    pub(crate) loss: Loss,
    /// Whether it was given up because somebody held a lock for too long.
    pub(crate) held: bool,
    /// Whether it was given up because a key or an id is taken.
    pub(crate) duplicate: bool,
    text: String,
    /// What of the input was refused.
    refused: Option<InvalidInput>,
}

/// Whether the connection is lost with the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It can be used further.
    #[default]
    No,
    /// The server said good-bye: what the call was doing was rolled back.
    Told,
    /// It lets nobody write, perhaps for as long as it lasts: the call was rolled back.
    ReadOnly,
    /// Nobody knows what became of the call.
    Silent,
}

impl Failure {
    pub(crate) fn new(kind: StoreErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            loss: Loss::No,
            held: false,
            duplicate: false,
            text: text.into(),
            refused: None,
        }
    }

    /// For input that only the database could show to be wrong.
    pub(crate) fn refused(problem: InvalidInput) -> Self {
        Self {
            text: problem.to_string(),
            refused: Some(problem),
            ..Self::new(StoreErrorKind::Invalid, "")
        }
    }

    pub(crate) fn closed() -> Self {
        Self::new(StoreErrorKind::Unavailable, "the store is closed")
    }

    pub(crate) fn lost(text: impl Into<String>) -> Self {
        Self {
            loss: Loss::Silent,
            ..Self::new(StoreErrorKind::Unavailable, text)
        }
    }

    /// The same with a sentence behind it that says what is to be done.
    pub(crate) fn advised(mut self, advice: &str) -> Self {
        self.text = format!("{}; {advice}", self.text);
        self
    }

    /// The error the caller of `operation` gets.
    pub(crate) fn during(self, operation: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, operation);
        match self.refused {
            Some(problem) => error.with_source(problem),
            None => error.with_source(self),
        }
    }

    fn from_server(error: &TokenError) -> Self {
        let what = Meaning::of(error.code(), error.message());
        // These messages may quote the value.
        let message = match error.code() {
            245 | 248 | 295 | 2601 | 2627 | 2628 | 8114 | 8115 | 8152 | 8169 | 13609 => {
                "a value was refused"
            }
            _ => error.message(),
        };
        Self {
            kind: what.kind(),
            loss: loss_of(error.code(), error.class()),
            held: what == Meaning::Held,
            duplicate: what == Meaning::Taken,
            text: format!("{message} (error {})", error.code()),
            refused: None,
        }
    }
}

/// Errors of this class and above end the connection.
const FATAL: u8 = 20;

fn loss_of(code: u32, class: u8) -> Loss {
    match code {
        // The database is read-only, or a copy that is; or was failed over and lets nobody write yet.
        3906 | 3908 | 979 | 978 | 976 => Loss::ReadOnly,
        // The session was killed; the server goes down. What was going on is rolled back.
        596 | 6001 | 6002 | 6004 | 6005 | 6006 => Loss::Told,
        // The driver and the server do not mean the same transaction.
        3988 | 3989 => Loss::Silent,
        _ if class >= FATAL => Loss::Silent,
        _ => Loss::No,
    }
}

impl From<tiberius::error::Error> for Failure {
    fn from(error: tiberius::error::Error) -> Self {
        use tiberius::error::Error;
        match &error {
            Error::Server(error) => Self::from_server(error),
            Error::Io { message, .. } => Self::lost(format!("the connection failed: {message}")),
            Error::Protocol(text) => Self::lost(format!("the connection broke: {text}")),
            Error::Routing { .. } => Self::lost("the server sends its callers elsewhere"),
            Error::Tls(text) => Self::new(StoreErrorKind::Misconfigured, text.clone()),
            Error::Encoding(_) | Error::Conversion(_) | Error::Utf8 | Error::Utf16 => Self {
                // The rest of the answer may be unread.
                loss: Loss::Silent,
                ..Self::new(StoreErrorKind::Corrupt, "a stored value cannot be read")
            },
            _ => Self::lost("the driver failed"),
        }
    }
}

impl From<InvalidInput> for Failure {
    /// For stored values that the model refuses.
    fn from(problem: InvalidInput) -> Self {
        Self::new(StoreErrorKind::Corrupt, problem.to_string())
    }
}

/// What an error of the server means to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The call was given up because of others: again.
    Raced,
    /// A key or an id is there already, which a look at it before the next try shows.
    Taken,
    /// A lock was not to be had in the time that was given.
    Held,
    Other(StoreErrorKind),
}

/// Of the store's own statements: a lock of the application's kind was not to be had.
const GATE: u32 = 50_001;

/// The number that a server which stands in for SQL Server gives to errors it has no number for.
const UNNUMBERED: u32 = 33_557_097;

impl Meaning {
    fn of(code: u32, message: &str) -> Self {
        use StoreErrorKind::{
            Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Unavailable,
        };
        match code {
            // A deadlock; an update that met another under row versions; schema that is changed.
            1205 | 3960 | 3961 | 41302 | 41305 | 41325 => Self::Raced,
            2601 | 2627 => Self::Taken,
            1222 => Self::Held,
            // No answer of the lock manager, of memory, of a session: the limits of the server.
            1204 | 1221 | 701 | 802 | 8645 | 8651 => Self::Other(Unavailable),
            // The command was cancelled by its caller, or by a limit of the server.
            3617 | 8649 | 10_053 | 10_054 | 10_060 => Self::Other(Unavailable),
            1101 | 1105 | 9002 | 1132 | 40_544 => Self::Other(Full),
            3906 | 3908 | 979 | 978 | 976 => Self::Other(ReadOnly),
            // Wrong login, no such database, no right, a setting or a level that will not do.
            18_452 | 18_456 | 18_470 | 18_486 | 18_487 | 18_488 | 4060 | 4064 | 911 | 916 | 229
            | 230 | 262 | 297 | 300 | 1088 | 2760 | 3701 | 3704 | 15_151 | 15_247 | 1934 | 3952
            | 40_515 | 40_532 => Self::Other(Misconfigured),
            // A firewall or a network that lets nobody in from here, logins of other kinds; no plan with the
            // indexes that the statements name, so they are others.
            4061 | 4062 | 4063 | 18_450 | 18_471 | 40_615 | 40_914 | 8622 => {
                Self::Other(Misconfigured)
            }
            3988 | 3989 => Self::Other(Unavailable),
            // A table, column, function or procedure that is not there or not ours.
            207 | 208 | 213 | 2812 | 4121 | 195 | 4104 | 4902 | 4924 | 15_009 => {
                Self::Other(SchemaMismatch)
            }
            823 | 824 | 825 | 605 | 2570 => Self::Other(Corrupt),
            // The session, the database or the server goes down, comes up, or is moved.
            596 | 6001 | 6002 | 6004 | 6005 | 6006 | 904 | 921 | 922 | 923 | 924 | 926 | 927
            | 942 | 945 | 952 | 983 | 988 | 10_928 | 10_929 | 17_142 | 17_809 | 17_830 | 18_401
            | 40_143 | 40_197 | 40_501 | 40_540 | 40_613 | 42_108 | 42_109 | 49_918 | 49_919
            | 49_920 => Self::Other(Unavailable),
            GATE => Self::Other(StoreErrorKind::Timeout),
            UNNUMBERED => Self::unnumbered(message),
            _ => Self::Other(Other),
        }
    }

    /// By the message, where there is no number.
    fn unnumbered(message: &str) -> Self {
        use StoreErrorKind::{Misconfigured, Other, SchemaMismatch};
        let says = |text: &str| message.contains(text);
        if says("lock timeout") {
            Self::Held
        } else if says("could not serialize") || says("deadlock") {
            Self::Raced
        } else if says("permission denied") || says("must be owner") {
            Self::Other(Misconfigured)
        } else if says("does not exist") {
            Self::Other(SchemaMismatch)
        } else {
            Self::Other(Other)
        }
    }

    /// What it means to the caller.
    fn kind(self) -> StoreErrorKind {
        match self {
            Self::Raced | Self::Taken => StoreErrorKind::Contention,
            Self::Held => StoreErrorKind::Timeout,
            Self::Other(kind) => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_tells_the_caller_what_to_do() {
        use StoreErrorKind::{
            Contention, Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Timeout,
            Unavailable,
        };
        let table = [
            (1205, Contention),
            (3960, Contention),
            (2627, Contention),
            (2601, Contention),
            (1222, Timeout),
            (GATE, Timeout),
            (1105, Full),
            (9002, Full),
            (1204, Unavailable),
            (701, Unavailable),
            (3906, ReadOnly),
            (978, ReadOnly),
            (979, ReadOnly),
            (3989, Unavailable),
            (8622, Misconfigured),
            (40_615, Misconfigured),
            (40_914, Misconfigured),
            (596, Unavailable),
            (6005, Unavailable),
            (40_613, Unavailable),
            (40_501, Unavailable),
            (18_456, Misconfigured),
            (4060, Misconfigured),
            (229, Misconfigured),
            (262, Misconfigured),
            (2760, Misconfigured),
            (1934, Misconfigured),
            (207, SchemaMismatch),
            (208, SchemaMismatch),
            (2812, SchemaMismatch),
            (824, Corrupt),
            (245, Other),
            (8134, Other),
            (0, Other),
            (UNNUMBERED, Other),
        ];
        for (code, kind) in table {
            assert_eq!(Meaning::of(code, "").kind(), kind, "error {code}");
        }
    }

    #[test]
    fn duplicates_and_held_locks_are_told_apart_from_other_races() {
        assert_eq!(Meaning::of(2601, ""), Meaning::Taken);
        assert_eq!(Meaning::of(2627, ""), Meaning::Taken);
        assert_eq!(Meaning::of(1205, ""), Meaning::Raced);
        assert_eq!(Meaning::of(1222, ""), Meaning::Held);
    }

    #[test]
    fn an_error_without_a_number_is_known_by_its_message() {
        let of = |message| Meaning::of(UNNUMBERED, message);
        assert_eq!(of("canceling statement due to lock timeout"), Meaning::Held);
        assert_eq!(
            of("could not serialize access due to concurrent update"),
            Meaning::Raced
        );
        let missing = of("relation \"jobs\" does not exist");
        assert_eq!(missing.kind(), StoreErrorKind::SchemaMismatch);
        let forbidden = of("permission denied for table jobs");
        assert_eq!(forbidden.kind(), StoreErrorKind::Misconfigured);
    }

    #[test]
    fn a_connection_is_lost_by_what_ends_it() {
        assert_eq!(loss_of(1205, 13), Loss::No);
        assert_eq!(loss_of(596, 21), Loss::Told);
        assert_eq!(loss_of(6005, 14), Loss::Told);
        assert_eq!(loss_of(3906, 16), Loss::ReadOnly);
        assert_eq!(loss_of(979, 14), Loss::ReadOnly);
        assert_eq!(loss_of(3989, 16), Loss::Silent);
        assert_eq!(loss_of(824, 24), Loss::Silent);
    }

    #[test]
    fn failures_of_the_driver_are_told_apart() {
        use tiberius::error::{Error, IoErrorKind};
        let failure = Failure::from(Error::Io {
            kind: IoErrorKind::ConnectionReset,
            message: "reset".into(),
        });
        assert_eq!(failure.kind, StoreErrorKind::Unavailable);
        assert_eq!(failure.loss, Loss::Silent);
        let failure = Failure::from(Error::Tls("bad certificate".into()));
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        let failure = Failure::from(Error::Conversion("secret".into()));
        assert_eq!(failure.kind, StoreErrorKind::Corrupt);
        assert!(!failure.to_string().contains("secret"));
    }
}
