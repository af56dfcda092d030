//! Classifies the errors of the driver and the server.

use ratchet_core::{SchemaProblem, StoreErrorKind};
use ratchet_sql::{Failure, Loss, Result};
use tiberius::error::TokenError;

/// Converts the driver's errors in a result to failures of the store.
pub(crate) trait Classified<T> {
    /// Converts the error, if any, to a [`Failure`].
    fn classified(self) -> Result<T>;
}

impl<T> Classified<T> for tiberius::Result<T> {
    fn classified(self) -> Result<T> {
        self.map_err(|error| classify(&error))
    }
}

/// Converts an error of the driver to a failure of the store.
pub(crate) fn classify(error: &tiberius::error::Error) -> Failure {
    use tiberius::error::Error;
    match error {
        Error::Server(error) => of_server(error),
        Error::Io { message, .. } => Failure::lost(format!("the connection failed: {message}")),
        Error::Protocol(text) => Failure::lost(format!("the connection broke: {text}")),
        Error::Routing { .. } => Failure::lost("the server redirects to another server"),
        Error::Tls(text) => Failure::new(StoreErrorKind::Misconfigured, text.clone()),
        Error::Encoding(_) | Error::Conversion(_) | Error::Utf8 | Error::Utf16 => {
            let mut failure = Failure::unreadable();
            // The rest of the answer may not have been read, so the connection is unusable.
            failure.loss = Loss::Silent;
            failure
        }
        _ => Failure::lost("the driver failed"),
    }
}

fn of_server(error: &TokenError) -> Failure {
    let what = Meaning::of(error.code(), error.message());
    let mut failure = Failure::new(what.kind(), told(error.code(), error.message()));
    failure.loss = match what.kind() {
        // A server behind a proxy is shutting down or starting up.
        StoreErrorKind::Unavailable if error.code() == UNNUMBERED => Loss::Silent,
        _ => loss_of(error.code(), error.class()),
    };
    failure.held = what == Meaning::Held;
    failure.duplicate = what == Meaning::Taken;
    failure.forbidden = what == Meaning::Forbidden;
    failure
}

/// Returns the text to show for an error of the server. A message may quote stored values. So the
/// message is shown only for codes whose messages name nothing except the server's own objects.
fn told(code: u32, message: &str) -> String {
    let meaning = Meaning::of(code, message);
    let message = match code {
        // The messages of these codes quote the key.
        2601 | 2627 => "duplicate key",
        // Syntax errors, missing values, constraints.
        102 | 156 | 515 | 547 => message,
        _ if meaning != Meaning::Other(StoreErrorKind::Other) => message,
        _ => "the server refused the call or a value; see the server's log for the reason",
    };
    format!("{message} (error {code})")
}

/// Lowest severity class of an error after which the server closes the connection.
const FATAL: u8 = 20;

fn loss_of(code: u32, class: u8) -> Loss {
    match code {
        // The database is read-only, is a read-only replica, or does not accept writes yet after a
        // failover.
        3906 | 3908 | 979 | 978 | 976 => Loss::ReadOnly,
        // The session was killed, or the server shuts down. Running transactions are rolled back.
        596 | 6001 | 6002 | 6004 | 6005 | 6006 => Loss::Told,
        // The driver and the server disagree about the current transaction.
        3988 | 3989 => Loss::Silent,
        _ if class >= FATAL => Loss::Silent,
        _ => Loss::No,
    }
}

/// What an error of the server means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The call conflicts with a concurrent call. The caller may retry it.
    Raced,
    /// A key or an id already exists. A retry reads the existing key or id before it writes.
    Taken,
    /// A lock was not available within the lock timeout.
    Held,
    /// The user lacks a privilege.
    Forbidden,
    Other(StoreErrorKind),
}

/// Number of the error that the store's own statements throw if an application lock is not
/// available in time.
pub(crate) const GATE: u32 = 50_001;

/// Number of the error that the store's own statements throw if a statement of the application has
/// ended the transaction or begun another one.
pub(crate) const NOT_ONE: u32 = 50_002;

/// Error code that Babelfish uses for all errors that have no code in SQL Server.
const UNNUMBERED: u32 = 33_557_097;

impl Meaning {
    fn of(code: u32, message: &str) -> Self {
        use StoreErrorKind::{
            Corrupt, Full, Misconfigured, Other, ReadOnly, SchemaMismatch, Unavailable,
        };
        match code {
            // A deadlock, a conflict of row versions, a concurrent change of the schema.
            1205 | 3960 | 3961 | 41302 | 41305 | 41325 => Self::Raced,
            2601 | 2627 => Self::Taken,
            1222 => Self::Held,
            // The server has no locks, memory or workers left.
            1204 | 1221 | 701 | 802 | 8645 | 8651 => Self::Other(Unavailable),
            // The command was cancelled, or the network connection failed.
            3617 | 8649 | 10_053 | 10_054 | 10_060 => Self::Other(Unavailable),
            1101 | 1105 | 9002 | 1132 | 40_544 => Self::Other(Full),
            3906 | 3908 | 979 | 978 | 976 => Self::Other(ReadOnly),
            // Missing privileges. 2760 and 1088 mean that a schema or a table does not exist or
            // that the user may not use it.
            229 | 230 | 262 | 297 | 300 | 916 | 1088 | 2760 | 3701 | 3704 | 15_151 | 15_247 => {
                Self::Forbidden
            }
            // A wrong login, an unknown database, an unusable setting or isolation level.
            18_452
            | 18_456
            | 18_470
            | 18_486
            | 18_487
            | 18_488
            | 4060
            | 4064
            | 911
            | 1934
            | 3952
            | 40_515
            | 40_532
            | 40_615
            | 40_914
            | 4061..=4063
            | 18_450
            | 18_471 => Self::Other(Misconfigured),
            // The server has no plan with the indexes that the statement names. So the indexes in
            // the database differ from Ratchet's.
            8622 => Self::Other(Misconfigured),
            // The driver and the server disagree about the current transaction.
            3988 | 3989 => Self::Other(Unavailable),
            // A table, column, function or procedure is missing or not Ratchet's, or already exists
            // although no migration recorded it.
            207 | 208 | 213 | 1913 | 2705 | 2714 | 2812 | 4121 | 195 | 4104 | 4902 | 4924
            | 15_009 => Self::Other(SchemaMismatch(SchemaProblem::Altered)),
            823 | 824 | 825 | 605 | 2570 => Self::Other(Corrupt),
            // The session, the database or the server is shutting down, starting up or being moved.
            596 | 6001 | 6002 | 6004 | 6005 | 6006 | 904 | 921 | 922 | 923 | 924 | 926 | 927
            | 942 | 945 | 952 | 983 | 988 | 10_928 | 10_929 | 17_142 | 17_809 | 17_830 | 18_401
            | 40_143 | 40_197 | 40_501 | 40_540 | 40_613 | 42_108 | 42_109 | 49_918 | 49_919
            | 49_920 => Self::Other(Unavailable),
            GATE => Self::Other(StoreErrorKind::Timeout),
            // The operation needs a transaction, but none is open.
            NOT_ONE | 628 | 3902 | 3903 => Self::Other(StoreErrorKind::Invalid),
            UNNUMBERED => Self::unnumbered(message),
            _ => Self::Other(Other),
        }
    }

    /// Determines the meaning of an error without its own code from the error's message.
    fn unnumbered(message: &str) -> Self {
        use StoreErrorKind::{Other, SchemaMismatch, Unavailable};
        let says = |text: &str| message.contains(text);
        if says("lock timeout") {
            Self::Held
        } else if says("could not serialize") || says("deadlock") {
            Self::Raced
        } else if says("permission denied") || says("must be owner") {
            Self::Forbidden
        } else if says("shutting down")
            || says("starting up")
            || says("recovery mode")
            || says("accepting connections")
            || says("terminating connection")
        {
            Self::Other(Unavailable)
        } else if says("already exists") || says("does not exist") {
            Self::Other(SchemaMismatch(SchemaProblem::Altered))
        } else {
            Self::Other(Other)
        }
    }

    /// Returns the kind of the error that the caller gets.
    fn kind(self) -> StoreErrorKind {
        match self {
            Self::Raced | Self::Taken => StoreErrorKind::Contention,
            Self::Held => StoreErrorKind::Timeout,
            Self::Forbidden => StoreErrorKind::Misconfigured,
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
            Contention, Corrupt, Full, Invalid, Misconfigured, Other, ReadOnly, SchemaMismatch,
            Timeout, Unavailable,
        };
        let table: &[(StoreErrorKind, &[u32])] = &[
            // Deadlocks, conflicts of row versions, concurrent changes of the schema, duplicates.
            (
                Contention,
                &[1205, 3960, 3961, 41_302, 41_305, 41_325, 2627, 2601],
            ),
            // A locked row, and a held application lock of the store.
            (Timeout, &[1222, GATE]),
            // A transaction that the application has ended by a statement.
            (Invalid, &[NOT_ONE, 628, 3902, 3903]),
            (Full, &[1101, 1105, 1132, 9002, 40_544]),
            // No locks, memory or workers left.
            (Unavailable, &[1204, 1221, 701, 802, 8645, 8651, 8649, 3617]),
            // A broken network connection, as reported by the server.
            (Unavailable, &[10_053, 10_054, 10_060]),
            // A session or a server that shuts down, and a database that is not available.
            (Unavailable, &[596, 6001, 6002, 6004, 6005, 6006, 17_142]),
            (
                Unavailable,
                &[904, 921, 922, 923, 924, 926, 927, 942, 945, 952, 983, 988],
            ),
            (Unavailable, &[17_809, 17_830, 18_401, 3988, 3989]),
            // A database of Azure SQL that is being moved, is throttled or is paused.
            (
                Unavailable,
                &[
                    10_928, 10_929, 40_143, 40_197, 40_501, 40_540, 40_613, 42_108, 42_109, 49_918,
                    49_919, 49_920,
                ],
            ),
            (ReadOnly, &[3906, 3908, 979, 978, 976]),
            // Refused logins, unknown databases, and connections that a firewall blocks.
            (
                Misconfigured,
                &[
                    18_452, 18_456, 18_470, 18_486, 18_487, 18_488, 4060, 4064, 911, 40_515,
                    40_532, 40_615, 40_914, 4061, 4062, 4063, 18_450, 18_471,
                ],
            ),
            // Unsuitable settings of the session or the database, and unsuitable indexes.
            (Misconfigured, &[1934, 3952, 8622]),
            // Missing privileges.
            (
                Misconfigured,
                &[
                    229, 230, 262, 297, 300, 916, 1088, 2760, 3701, 3704, 15_151, 15_247,
                ],
            ),
            // Missing objects, and objects that already exist.
            (
                SchemaMismatch(SchemaProblem::Altered),
                &[
                    207, 208, 213, 195, 1913, 2705, 2714, 2812, 4104, 4121, 4902, 4924, 15_009,
                ],
            ),
            (Corrupt, &[605, 823, 824, 825, 2570]),
            // Errors in a statement, and unknown errors.
            (
                Other,
                &[0, 102, 156, 245, 515, 547, 8134, 8178, 50_000, 50_003],
            ),
            (Other, &[UNNUMBERED]),
        ];
        for (kind, codes) in table {
            for code in *codes {
                assert_eq!(Meaning::of(*code, "").kind(), *kind, "error {code}");
            }
        }
    }

    #[test]
    fn duplicates_and_held_locks_are_told_apart_from_other_races() {
        assert_eq!(Meaning::of(2601, ""), Meaning::Taken);
        assert_eq!(Meaning::of(2627, ""), Meaning::Taken);
        assert_eq!(Meaning::of(1205, ""), Meaning::Raced);
        assert_eq!(Meaning::of(3960, ""), Meaning::Raced);
        assert_eq!(Meaning::of(1222, ""), Meaning::Held);
        // This is also a timeout, but of an application lock, not of a row that the caller could
        // skip.
        assert_eq!(Meaning::of(GATE, "").kind(), StoreErrorKind::Timeout);
        assert_ne!(Meaning::of(GATE, ""), Meaning::Held);
    }

    #[test]
    fn missing_rights_are_told_apart_from_other_settings() {
        for code in [229, 230, 262, 916, 2760, 15_247] {
            assert_eq!(Meaning::of(code, ""), Meaning::Forbidden, "error {code}");
        }
        for code in [18_456, 4060, 1934] {
            assert_ne!(Meaning::of(code, ""), Meaning::Forbidden, "error {code}");
        }
    }

    #[test]
    fn messages_that_quote_values_are_not_told() {
        let quoting = [220, 232, 244, 245, 248, 295, 2601, 2627, 2628, 8114, 13_609];
        let unknown = [50_000, 51_234, 99_999, UNNUMBERED];
        for code in quoting.into_iter().chain(unknown) {
            let told = told(code, "the value secret");
            assert!(!told.contains("secret"), "{told}");
            assert!(told.contains(&code.to_string()), "{told}");
        }
        let told = told(229, "The SELECT permission was denied on the object 'jobs'");
        assert!(told.contains("SELECT permission") && told.contains("229"));
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
        assert_eq!(
            missing.kind(),
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        );
        let there = of("relation \"jobs\" already exists");
        assert_eq!(
            there.kind(),
            StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
        );
        assert_eq!(of("permission denied for table jobs"), Meaning::Forbidden);
        assert_eq!(of("deadlock detected"), Meaning::Raced);
        for message in [
            "the database system is shutting down",
            "the database system is starting up",
            "the database system is in recovery mode",
            "the database system is not yet accepting connections",
            "terminating connection due to administrator command",
        ] {
            assert_eq!(of(message).kind(), StoreErrorKind::Unavailable, "{message}");
        }
        assert_eq!(of("syntax error").kind(), StoreErrorKind::Other);
    }

    #[test]
    fn a_connection_is_lost_by_what_ends_it() {
        assert_eq!(loss_of(1205, 13), Loss::No);
        assert_eq!(loss_of(596, 21), Loss::Told);
        assert_eq!(loss_of(6005, 14), Loss::Told);
        assert_eq!(loss_of(3906, 16), Loss::ReadOnly);
        assert_eq!(loss_of(978, 14), Loss::ReadOnly);
        for code in [596, 6001, 6002, 6004, 6005, 6006] {
            assert_eq!(loss_of(code, 21), Loss::Told, "error {code}");
        }
        assert_eq!(loss_of(979, 14), Loss::ReadOnly);
        assert_eq!(loss_of(3989, 16), Loss::Silent);
        assert_eq!(loss_of(824, 24), Loss::Silent);
        assert_eq!(loss_of(1222, 16), Loss::No);
    }

    #[test]
    fn failures_of_the_driver_are_told_apart() {
        use tiberius::error::{Error, IoErrorKind};
        let failure = classify(&Error::Io {
            kind: IoErrorKind::ConnectionReset,
            message: "reset".into(),
        });
        assert_eq!(failure.kind, StoreErrorKind::Unavailable);
        assert_eq!(failure.loss, Loss::Silent);
        for lost in [
            Error::Protocol("out of step".into()),
            Error::Routing {
                host: "elsewhere".into(),
                port: 1,
            },
        ] {
            let failure = classify(&lost);
            assert_eq!(failure.kind, StoreErrorKind::Unavailable);
            assert_eq!(failure.loss, Loss::Silent);
        }
        let failure = classify(&Error::Tls("bad certificate".into()));
        assert_eq!(failure.kind, StoreErrorKind::Misconfigured);
        let failure = classify(&Error::Conversion("secret".into()));
        assert_eq!(failure.kind, StoreErrorKind::Corrupt);
        assert!(!failure.to_string().contains("secret"));
    }
}
