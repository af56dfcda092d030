//! `ratchet locks`: lists the locks and their owners.

use std::time::Duration;

use ratchet_http::view;

use crate::app::App;
use crate::exit::Failure;
use crate::output::{Cell, DIM, GOOD, Table, WARN, since};

pub(super) async fn run(app: &mut App) -> Result<(), Failure> {
    let client = app.client().await?;
    let locks = client.locks().await?;
    let locks: Vec<view::Lock> = locks
        .iter()
        .map(|(name, lock)| view::Lock::new(name, lock))
        .collect();
    if app.out.is_json() {
        return app.out.document(&view::Locks { locks });
    }
    let mut table = Table::new(["LOCK", "STATE", "OWNER", ">FENCE", "TIME"]);
    for lock in locks {
        let span = |millis: u64| since(Duration::from_millis(millis));
        let (state, time) = match (lock.expires_in_ms, lock.expired_for_ms) {
            (Some(left), _) => (Cell::styled("held", GOOD), format!("{} left", span(left))),
            (None, Some(past)) => (Cell::styled("expired", WARN), format!("{} ago", span(past))),
            (None, None) => (Cell::styled("free", DIM), String::new()),
        };
        table.row([
            lock.name.into(),
            state,
            lock.owner.unwrap_or_default().into(),
            lock.fence.into(),
            time.into(),
        ]);
    }
    app.out.table(&table, "no locks: none was ever acquired")
}
