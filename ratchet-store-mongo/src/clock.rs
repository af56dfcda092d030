//! The database's clock, in milliseconds.

use mongodb::bson::{Bson, doc};
use ratchet_core::StoreErrorKind;

use crate::connection::{Rows, Side};
use crate::error::{Failure, Result};

/// The clock from which the store reads the time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The server's clock.
    Server,
    /// A test's clock: the field `now_ms` of the only document of this collection.
    Test(Rows),
}

/// The current time as used by one statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now {
    /// The time at which the server runs the statement.
    Server,
    /// A constant time, in milliseconds since 1970.
    Fixed(i64),
}

impl Now {
    /// Returns an expression for this time that an aggregation pipeline can use.
    pub(crate) fn expression(self) -> Bson {
        match self {
            Self::Server => doc! { "$toLong": "$$NOW" }.into(),
            Self::Fixed(now) => now.into(),
        }
    }
}

impl Clock {
    /// Returns the time for a statement in which the server can evaluate expressions. With the
    /// server's clock, this needs no round trip.
    pub(crate) async fn now(&self, side: &Side) -> Result<Now> {
        match self {
            Self::Server => Ok(Now::Server),
            Self::Test(_) => self.millis(side).await.map(Now::Fixed),
        }
    }

    /// Reads the time, in milliseconds since 1970. Use it where the server evaluates no expression:
    /// in an insert, or for the bound of an index range.
    pub(crate) async fn millis(&self, side: &Side) -> Result<i64> {
        match self {
            Self::Server => {
                let hello = side.database.run_command(doc! { "hello": 1 }).await?;
                match hello.get_datetime("localTime") {
                    Ok(time) => Ok(time.timestamp_millis()),
                    Err(_) => Err(no_time()),
                }
            }
            Self::Test(rows) => {
                let row = side.plain().find_one(rows, doc! {}).await?;
                let row = row.ok_or_else(no_time)?;
                row.get_i64("now_ms").map_err(|_| no_time())
            }
        }
    }
}

fn no_time() -> Failure {
    Failure::new(
        StoreErrorKind::Other,
        "the server's reply does not contain the server's time",
    )
}
