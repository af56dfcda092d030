//! The HTTP API of the shop, with Ratchet's API below `/ops`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ratchet::http::Api;
use ratchet::{
    BatchCondition, BatchId, Client, Delivered, Job, NewJob, StoreError, StoreErrorKind,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::db::{Db, OrderRow};
use crate::jobs::{ImportOrder, RecordImport};
use crate::orders::{Order, approval};

#[derive(Clone)]
struct Shop {
    db: Db,
    client: Client,
}

/// A request to import orders. If a client repeats a request, both requests must have the same
/// batch id, so that they fill one batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Import {
    /// The id of the batch. By default, the server creates a new id.
    #[serde(default = "BatchId::new")]
    pub batch: BatchId,
    /// The orders to import.
    pub orders: Vec<Order>,
}

/// Returns the routes of the shop. Ratchet's own HTTP API is below `/ops`.
pub fn router(db: Db, client: Client, ops: &Api) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{id}", get(show))
        .route("/orders/{id}/approve", post(approve))
        .route("/import", post(import))
        .with_state(Shop { db, client })
        .nest_service("/ops", ops.router())
}

async fn place(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<StatusCode, Refused> {
    let new = order.place(&shop.db, &shop.client).await?;
    Ok(if new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    })
}

async fn show(State(shop): State<Shop>, Path(id): Path<String>) -> Result<Json<OrderRow>, Refused> {
    shop.db
        .order(id)
        .await?
        .map(Json)
        .ok_or(Refused::Because(StatusCode::NOT_FOUND))
}

async fn approve(State(shop): State<Shop>, Path(id): Path<String>) -> Result<StatusCode, Refused> {
    match shop
        .client
        .signal(&approval(&id), &())
        .await
        .map_err(anyhow::Error::from)?
    {
        Delivered::To(_) => Ok(StatusCode::ACCEPTED),
        Delivered::Already => Ok(StatusCode::OK),
        Delivered::NotFound => Err(Refused::Because(StatusCode::NOT_FOUND)),
        _ => Err(Refused::Because(StatusCode::CONFLICT)),
    }
}

async fn import(State(shop): State<Shop>, Json(import): Json<Import>) -> Result<Response, Refused> {
    let batch = enqueue_import(&shop.client, import).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "batch": batch }))).into_response())
}

/// Enqueues a job for each order, and a job that records the results when all orders are processed.
/// Returns the id of the batch.
async fn enqueue_import(client: &Client, import: Import) -> anyhow::Result<BatchId> {
    let batch = import.batch;
    client.open_batch(batch).await?;
    let record = RecordImport {}
        .into_job()
        .after_batch(batch, BatchCondition::Ended);
    client
        .enqueue(record.idempotency_key(&format!("import:{batch}")))
        .await?;
    let job = |order: Order| {
        let once = format!("import:{batch}:{}", order.id);
        ImportOrder { order }
            .into_job()
            .in_batch(batch)
            .idempotency_key(&once)
    };
    let jobs: Vec<NewJob> = import.orders.into_iter().map(job).collect();
    for chunk in jobs.chunks(500) {
        client.enqueue_all(chunk).await?;
    }
    client.close_batch(batch).await?;
    Ok(batch)
}

/// The reason why the shop refused a request, or why the request failed.
enum Refused {
    Because(StatusCode),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Because(status) => status.into_response(),
            Self::Failed(error) => match error.downcast_ref::<StoreError>() {
                Some(store) if store.kind() == StoreErrorKind::Invalid => {
                    (StatusCode::UNPROCESSABLE_ENTITY, store.to_string()).into_response()
                }
                _ => {
                    tracing::error!("a request failed with an unexpected error: {error:#}");
                    StatusCode::SERVICE_UNAVAILABLE.into_response()
                }
            },
        }
    }
}
