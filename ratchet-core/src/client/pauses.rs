//! Pausing and resuming queues and kinds.

use super::Client;
use crate::cluster::Wakeup;
use crate::error::Result;
use crate::model::{PauseInfo, PauseRequest, PauseScope};
use crate::store::Changed;

impl Client {
    /// Pauses a queue or a kind, and records who paused it and why: its pending jobs are no longer
    /// claimed. Running jobs continue. [`pauses`](Self::pauses) lists what is paused.
    ///
    /// A pause that exists already is kept as it is. To change its reason, resume and pause again.
    ///
    /// # Errors
    /// `Invalid` for a text that [`PauseRequest::validate`] refuses, or a failure of the store.
    pub async fn begin_pause(&self, request: &PauseRequest) -> Result<Changed> {
        let calls = &self.0.calls;
        calls
            .call("pause", |store| store.queues().pause(request))
            .await
    }

    /// Resumes a queue or a kind: its jobs can be claimed again.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn end_pause(&self, scope: &PauseScope) -> Result<Changed> {
        let calls = &self.0.calls;
        let resumed = calls.call("resume", |store| store.queues().resume(scope));
        let resumed = resumed.await?;
        self.wake(match scope {
            PauseScope::Queue(queue) => Wakeup::queue(queue.clone()),
            PauseScope::Kind(_) => Wakeup::any(),
        })
        .await;
        Ok(resumed)
    }

    /// Lists what is paused, since when, by whom and why: first the queues, then the kinds, each
    /// ordered by name.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        let calls = &self.0.calls;
        calls.call("pauses", |store| store.queues().pauses()).await
    }

    /// Pauses a queue, without an operator or a reason; see [`begin_pause`](Self::begin_pause).
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn pause_queue(&self, queue: &str) -> Result<Changed> {
        let request = PauseRequest::new(PauseScope::queue(queue)?);
        self.begin_pause(&request).await
    }

    /// Resumes a queue; see [`end_pause`](Self::end_pause).
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn resume_queue(&self, queue: &str) -> Result<Changed> {
        self.end_pause(&PauseScope::queue(queue)?).await
    }

    /// Pauses a kind, without an operator or a reason; see [`begin_pause`](Self::begin_pause).
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn pause_kind(&self, kind: &str) -> Result<Changed> {
        let request = PauseRequest::new(PauseScope::kind(kind)?);
        self.begin_pause(&request).await
    }

    /// Resumes a kind; see [`end_pause`](Self::end_pause).
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn resume_kind(&self, kind: &str) -> Result<Changed> {
        self.end_pause(&PauseScope::kind(kind)?).await
    }
}
