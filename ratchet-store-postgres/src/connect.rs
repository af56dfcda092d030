//! Making connections, with a limit for their statements where the server takes one.

use std::time::Duration;

use ratchet_core::{StoreErrorKind, time};
use ratchet_sql::{Failure, Result};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};

use crate::error::{Classified, classify};

/// How to connect so that the server ends long statements.
pub(crate) struct Limited {
    pub(crate) options: PgConnectOptions,
    /// One that was made so, if one had to be made to find out.
    pub(crate) connection: Option<PgConnection>,
}

/// A transaction whose client went away between two statements keeps its locks, among them that of
/// a leader's lock ([guard.write]) or of the nodes; not for longer than this, which is well within
/// the time that a lock lasts.
const IDLE: Duration = Duration::from_secs(5);
const IDLE_SETTING: &str = "idle_in_transaction_session_timeout";

/// How the server finds out that a client has vanished: the driver has no setting for the other
/// direction, which the deadlines of the calls look after. The probes also keep load balancers and
/// NAT gateways from forgetting the connection.
const PROBES: [(&str, i64); 4] = [
    ("tcp_keepalives_idle", 30),
    ("tcp_keepalives_interval", 10),
    ("tcp_keepalives_count", 3),
    ("tcp_user_timeout", 60_000),
];

/// The same options with this limit for each statement, kept by the server: it outlives a caller
/// that went away. A limit that is there already stays, whether the options, the role, the database
/// or the server has it; and where the setting is refused, as by a pooler, there is none.
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
    let present = within(patience, show).await?.classified()?;
    if present.try_get::<&str, _>(0).classified()? != "0" {
        return Ok(Limited {
            options,
            connection: Some(plain),
        });
    }
    let limited = options.clone().options([
        (SETTING, setting(limit)),
        (IDLE_SETTING, setting(limit.min(IDLE))),
    ]);
    let probes = PROBES
        .into_iter()
        .filter(|(probe, _)| present_options.is_none_or(|present| !present.contains(probe)));
    let limited = limited.options(probes);
    match within(patience, PgConnection::connect_with(&limited)).await? {
        Ok(connection) => {
            // The server notices either way.
            let _ = plain.close().await;
            Ok(Limited {
                options: limited,
                connection: Some(connection),
            })
        }
        // Poolers refuse a setting that they do not know in one way or another.
        Err(sqlx::Error::Database(error)) => {
            tracing::info!(
                code = error.code().as_deref(),
                "no statement_timeout can be set from here; abandoned statements go on"
            );
            Ok(Limited {
                options,
                connection: Some(plain),
            })
        }
        Err(error) => Err(classify(&error)),
    }
}

/// Opens a connection within the time.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection> {
    within(patience, PgConnection::connect_with(options))
        .await?
        .classified()
}

async fn within<T>(patience: Duration, connecting: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(patience, connecting)
        .await
        .map_err(|_| {
            Failure::new(
                StoreErrorKind::Unavailable,
                format!("no connection within {patience:?}"),
            )
        })
}

/// The limit as the server takes it: in milliseconds, where 0 is none, and no larger number.
fn setting(limit: Duration) -> i64 {
    time::duration_millis(limit).clamp(1, i32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_one_that_the_server_takes() {
        assert_eq!(setting(Duration::from_nanos(1)), 1);
        assert_eq!(setting(Duration::from_secs(10)), 10_000);
        assert_eq!(setting(Duration::MAX), i64::from(i32::MAX));
    }
}
