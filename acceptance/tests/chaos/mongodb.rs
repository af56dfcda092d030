//! The disturbances of MongoDB.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use tokio::time::sleep;

use crate::worker::Order;

async fn admin(order: &Order) -> mongodb::Database {
    let client = Client::with_uri_str(&order.url).await.unwrap();
    client.database("admin")
}

pub(crate) async fn drop_database(order: &Order) {
    let client = admin(order).await.client().clone();
    client.database(&order.schema).drop().await.unwrap();
}

pub(crate) async fn create_clock(order: &Order, view: &str) {
    let database = admin(order).await.client().database(&order.schema);
    let offsets = database.collection("chaos_offset");
    offsets.insert_one(doc! { "ms": 0_i64 }).await.unwrap();
    let now = doc! { "$add": [{ "$toLong": "$$NOW" }, "$ms"] };
    let shown = doc! { "$project": { "now_ms": now } };
    let view = doc! { "create": view, "viewOn": "chaos_offset", "pipeline": [shown] };
    database.run_command(view).await.unwrap();
}

pub(crate) async fn step_clock(order: &Order, by_ms: i64) {
    let database = admin(order).await.client().database(&order.schema);
    let offsets = database.collection::<Document>("chaos_offset");
    let step = doc! { "$inc": { "ms": by_ms } };
    offsets.update_one(doc! {}, step).await.unwrap();
}

/// Every 20 ms, kills the operations of the workers and the producer on the server. If such an
/// operation waits on a change stream, the kill also ends the stream's cursor.
pub(crate) async fn kill_operations(order: &Order) {
    let admin = admin(order).await;
    let mut killed = 0;
    for _ in 0..60 {
        let theirs = doc! { "currentOp": true, "appName": &order.schema, "active": true };
        let running = admin.run_command(theirs).await.unwrap();
        for operation in running.get_array("inprog").unwrap() {
            let operation = operation.as_document().unwrap();
            if let Some(id @ (Bson::Int32(_) | Bson::Int64(_))) = operation.get("opid") {
                let kill = doc! { "killOp": 1, "op": id.clone() };
                admin.run_command(kill).await.unwrap();
                killed += 1;
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    println!("    {killed} operations killed");
    assert!(killed > 0, "expected at least one operation to kill");
}

/// Makes the primary step down for a second. The server may close the connection instead of
/// answering.
pub(crate) async fn step_down(order: &Order) {
    let admin = admin(order).await;
    let down = doc! { "replSetStepDown": 1, "force": true };
    if let Err(error) = admin.run_command(down).await {
        println!("    {error}");
    }
}

/// Returns the port of the primary, and whether another member can take over.
pub(crate) async fn primary(order: &Order) -> (String, bool) {
    let hello = admin(order).await.run_command(doc! { "hello": 1 }).await;
    let hello = hello.unwrap();
    let primary = hello.get_str("primary").unwrap();
    let port = primary.rsplit(':').next().unwrap().to_owned();
    (port, hello.get_array("hosts").unwrap().len() > 1)
}
