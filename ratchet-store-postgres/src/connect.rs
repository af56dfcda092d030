//! Opens connections, with a timeout for their statements if the server accepts one.

use std::io::ErrorKind;
use std::time::Duration;

use ratchet_core::time;
use ratchet_sql::{IDLE_IN_TRANSACTION, Loss, Result, connect_within};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};

use crate::error::{Classified, classify};

/// Options of connections, with a `statement_timeout` if the server accepts one.
pub(crate) struct Limited {
    pub(crate) options: PgConnectOptions,
    /// A connection with these options. `None` if no connection was needed to determine the
    /// options.
    pub(crate) connection: Option<PgConnection>,
}

const IDLE_SETTING: &str = "idle_in_transaction_session_timeout";

/// Settings with which the server detects a vanished client. They also keep load balancers and NAT
/// gateways from dropping idle connections. The driver has no such settings to detect a vanished
/// server. If the server vanishes, a call waits until its deadline, and a step of opening a
/// connection waits until the acquire timeout.
const PROBES: [(&str, i64); 4] = [
    ("tcp_keepalives_idle", 30),
    ("tcp_keepalives_interval", 10),
    ("tcp_keepalives_count", 3),
    ("tcp_user_timeout", 60_000),
];

/// Adds a `statement_timeout` of `limit` to the options, and with it the idle timeout and the TCP
/// keepalives. The server then ends long statements, even if the caller no longer waits for them.
/// If the options, the role, the database or the server already set a `statement_timeout`, returns
/// the options unchanged. Also returns them unchanged if a pooler or the server rejects the
/// setting.
pub(crate) async fn limited(
    options: PgConnectOptions,
    limit: Duration,
    patience: Duration,
) -> Result<Limited> {
    const SETTING: &str = "statement_timeout";
    let present_options = options.get_options();
    if present_options.is_some_and(|present| present.contains(SETTING)) {
        return Ok(Limited {
            options,
            connection: None,
        });
    }
    let mut plain = connect(&options, patience).await?;
    let show = plain.fetch_one(sqlx::raw_sql("SHOW statement_timeout"));
    let present = connect_within(patience, show).await?.classified()?;
    if present.try_get::<&str, _>(0).classified()? != "0" {
        return Ok(Limited {
            options,
            connection: Some(plain),
        });
    }
    let limited = options.clone().options([
        (SETTING, setting(limit)),
        (IDLE_SETTING, setting(limit.min(IDLE_IN_TRANSACTION))),
    ]);
    let probes = PROBES
        .into_iter()
        .filter(|(probe, _)| present_options.is_none_or(|present| !present.contains(probe)));
    let limited = limited.options(probes);
    match connect_within(patience, PgConnection::connect_with(&limited)).await? {
        Ok(connection) => {
            // Even if this fails, the server notices that the connection was closed.
            let _ = plain.close().await;
            Ok(Limited {
                options: limited,
                connection: Some(connection),
            })
        }
        // Poolers reject an unknown setting with different codes, so any error of the server counts
        // as a rejection.
        Err(sqlx::Error::Database(error)) => {
            tracing::info!(
                code = error.code().as_deref(),
                "statement_timeout cannot be set on these connections; the server does not end \
                 abandoned statements"
            );
            Ok(Limited {
                options,
                connection: Some(plain),
            })
        }
        Err(error) => Err(classify(&error)),
    }
}

/// Opens a connection. Fails with `Unavailable` after `patience`.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection> {
    connect_within(patience, PgConnection::connect_with(options))
        .await?
        .classified()
}

/// Opens a connection for jobs. While the server refuses connections because it starts or has too
/// many, tries again until `patience` is over. Then fails with the last refusal, or with `Timeout`
/// if the server did not answer.
pub(crate) async fn connect_for_jobs(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection> {
    let mut refusal = sqlx::Error::PoolTimedOut;
    let connecting = async {
        let mut pause = Duration::from_millis(10);
        loop {
            match PgConnection::connect_with(options).await {
                Err(error) if may_pass(&error) => refusal = error,
                connected => return connected,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(patience / 5);
        }
    };
    match tokio::time::timeout(patience, connecting).await {
        Ok(connected) => connected.classified(),
        Err(_) => {
            let mut failure = classify(&refusal);
            // The store would repeat the call, and wait again, if a connection had been lost.
            failure.loss = Loss::No;
            Err(failure)
        }
    }
}

/// Returns whether a new connection failed for a reason that may pass soon.
fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
        _ => false,
    }
}

/// Converts a limit to milliseconds for the server. Returns at least 1, because 0 would mean no
/// limit. Returns at most `i32::MAX`.
fn setting(limit: Duration) -> i64 {
    time::duration_millis(limit).clamp(1, i32::MAX.into())
}

#[cfg(test)]
mod tests {
    use ratchet_core::StoreErrorKind;

    use super::*;

    #[test]
    fn every_limit_is_one_that_the_server_takes() {
        assert_eq!(setting(Duration::from_nanos(1)), 1);
        assert_eq!(setting(Duration::from_secs(10)), 10_000);
        assert_eq!(setting(Duration::MAX), i64::from(i32::MAX));
    }

    /// Nothing listens on the port, as while the server restarts.
    #[tokio::test]
    async fn a_server_that_refuses_connections_is_tried_until_the_patience_is_over() {
        let options = PgConnectOptions::new_without_pgpass();
        let options = options.host("127.0.0.1").port(1);
        let patience = Duration::from_millis(300);
        let failure = connect_for_jobs(&options, patience).await.unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Unavailable);
        assert_eq!(failure.loss, Loss::No);
        let error = failure.during("connect").to_string();
        assert!(error.contains("refused"), "{error}");
        let failure = connect(&options, Duration::from_secs(60)).await;
        assert_eq!(failure.unwrap_err().kind, StoreErrorKind::Unavailable);
    }
}
