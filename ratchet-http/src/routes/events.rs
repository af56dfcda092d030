//! The route of live updates: a stream of server-sent events, the same for every client.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::table::{Content, Route, get};
use crate::api::Api;
use crate::client::ClientAddr;
use crate::problem::{Code, Problem};
use crate::sampler::{Listener, Seat, frame};
use crate::view::Lagged;

/// If no event is sent for this time, the server sends a comment, so that proxies keep the
/// connection open.
const SILENCE: Duration = Duration::from_secs(15);

/// The maximum number of events that wait to be written to the connection of one client.
const WAITING: usize = 4;

/// The first frame of the stream. It sets the time that a browser waits before it reconnects, in
/// milliseconds.
const GREETING: &[u8] = b"retry: 3000\n\n";

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/events", events)
            .says("Streams server-sent events: tick, jobs, failures, nodes, lagged.")
            .answer(
                StatusCode::OK,
                "Events, until the client or the API closes the connection.",
                Content::Other("text/event-stream"),
            )
            .refuses(&[Code::TooManyClients]),
    ]
}

async fn events(
    State(api): State<Api>,
    client: Option<Extension<ClientAddr>>,
) -> Result<Response, Problem> {
    let limits = api.limits();
    let client = client.map(|Extension(client)| client);
    let (listener, seat) = api.sampler().listen(client, limits.event_clients)?;
    let (send, mut receive) = mpsc::channel(WAITING);
    let line = Line {
        send,
        patience: limits.write_timeout,
    };
    let closing = api.closing().clone();
    tokio::spawn(forward(listener, seat, line, closing));
    let body = stream::poll_fn(move |cx| {
        let frame = receive.poll_recv(cx);
        frame.map(|frame| frame.map(Ok::<Bytes, Infallible>))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        // Proxies must not buffer events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// The sending half of the stream to one client.
struct Line {
    send: mpsc::Sender<Bytes>,
    patience: Duration,
}

impl Line {
    /// Sends a frame. Returns false if the client has disconnected or does not read the stream.
    async fn write(&self, frame: Bytes) -> bool {
        let sent = tokio::time::timeout(self.patience, self.send.send(frame));
        matches!(sent.await, Ok(Ok(())))
    }
}

/// Forwards events until the client disconnects, the client stops reading, or the API closes. Then
/// drops `seat`, so that another client can listen even if the connection stays open.
async fn forward(mut listener: Listener, seat: Seat, line: Line, closing: CancellationToken) {
    let first = listener.last.take();
    let greeting = [Some(Bytes::from_static(GREETING)), first];
    for frame in greeting.into_iter().flatten() {
        if !line.write(frame).await {
            return;
        }
    }
    loop {
        let frame = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            () = line.send.closed() => break,
            event = listener.events.recv() => match event {
                Ok(frame) => Some(frame),
                Err(RecvError::Lagged(missed)) => frame("lagged", &Lagged { missed }),
                Err(RecvError::Closed) => break,
            },
            () = tokio::time::sleep(SILENCE) => Some(Bytes::from_static(b":\n\n")),
        };
        if let Some(frame) = frame
            && !line.write(frame).await
        {
            break;
        }
    }
    drop(seat);
}
