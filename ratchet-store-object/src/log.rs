//! The log: appends the commands of this process, and follows those of the others.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use ratchet_core::StoreErrorKind;
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup};
use ratchet_core::memory::{Answer, Command, CommandLog, Entry, Snapshot};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::bucket::{Bucket, Created, Found};
use crate::clock::{Clock, Moment};
use crate::document::{self, Header, Segment};
use crate::error::{Failure, Result};
use crate::group::{Append, Plan, Request};
use crate::open::{self, Opened};
use crate::view::View;

/// How many segments a process that is far behind requests at once.
const WINDOW: u64 = 16;
/// How often a process starts again from a snapshot, because the segments it needs were deleted.
const RELOADS: u32 = 5;
/// The pauses before a put whose outcome is unknown is examined: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// The log, and the data of this process.
pub(crate) struct Log {
    pub(crate) bucket: Bucket,
    pub(crate) clock: Clock,
    pub(crate) retention: Duration,
    /// A snapshot follows each segment whose number is a multiple of this one.
    pub(crate) snapshot_every: u64,
    /// Whether this process is storing a snapshot.
    pub(crate) is_storing: Arc<AtomicBool>,
    pub(crate) data: Arc<Mutex<Snapshot>>,
    /// The time of the last command in the data.
    at: AtomicI64,
    /// The latest time that a read has had.
    read_at: AtomicI64,
    queue: Mutex<Queue>,
    /// Whether the task runs that serves the queue.
    serving: watch::Sender<bool>,
    view: tokio::sync::Mutex<View>,
    pub(crate) wakeups: InProcessCoordinator,
    /// How many segments of other processes were applied that may have made jobs claimable.
    news: AtomicU64,
}

/// The calls that no group contains yet.
#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    is_served: bool,
    is_closed: bool,
}

/// The result of a put.
enum Outcome {
    /// The segment is in the log.
    Won,
    /// Another segment has the number. The data contains it.
    Lost,
}

impl Log {
    pub(crate) fn new(
        bucket: Bucket,
        clock: Clock,
        retention: Duration,
        snapshot_every: u64,
        opened: Opened,
    ) -> Self {
        Self {
            bucket,
            clock,
            retention,
            snapshot_every,
            is_storing: Arc::default(),
            at: AtomicI64::new(opened.view.at),
            read_at: AtomicI64::new(i64::MIN),
            data: Arc::new(Mutex::new(opened.data)),
            queue: Mutex::default(),
            serving: watch::Sender::new(false),
            view: tokio::sync::Mutex::new(opened.view),
            wakeups: InProcessCoordinator::new(),
            news: AtomicU64::new(0),
        }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Snapshot> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a number that increases when another process may have made jobs claimable.
    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Returns whether a call of this process has seen the end of the log within this time.
    pub(crate) fn was_current_within(&self, duration: Duration) -> bool {
        // The view is locked while calls are served, which look at the log themselves.
        let Ok(view) = self.view.try_lock() else {
            return true;
        };
        view.was_current_within(&self.clock.moment(), duration)
    }

    /// Adds a call to the queue, and starts the task that serves it.
    fn submit(self: &Arc<Self>, request: Request) {
        let mut queue = self.queue();
        if queue.is_closed {
            drop(queue);
            request.fail(&Failure::closed());
            return;
        }
        queue.requests.push_back(request);
        if !mem::replace(&mut queue.is_served, true) {
            self.serving.send_replace(true);
            tokio::spawn(Arc::clone(self).serve());
        }
    }

    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.submit(Request::Refresh(done));
        answer.await.unwrap_or_else(|_| Err(interrupted()))
    }

    /// Refuses new calls, and waits until those that have begun have ended.
    pub(crate) async fn close(&self) {
        self.queue().is_closed = true;
        let mut serving = self.serving.subscribe();
        // The sender exists as long as the log.
        let _ = serving.wait_for(|serving| !serving).await;
    }

    fn is_closed(&self) -> bool {
        self.queue().is_closed
    }

    /// Serves the queue until it is empty.
    async fn serve(self: Arc<Self>) {
        let mut serving = Serving {
            log: &self,
            is_done: false,
        };
        let mut view = self.view.lock().await;
        let mut group = Vec::new();
        loop {
            self.gather(&mut group).await;
            group.retain(Request::is_awaited);
            if group.is_empty() && serving.end() {
                return;
            }
            self.serve_group(&mut view, &mut group).await;
        }
    }

    /// Moves the calls of the queue to the group. First lets the callers run that have just got
    /// their answers, because they may call again.
    async fn gather(&self, group: &mut Vec<Request>) {
        let mut before = 0;
        loop {
            tokio::task::yield_now().await;
            let waiting = self.queue().requests.len();
            if waiting <= before {
                break;
            }
            before = waiting;
        }
        group.extend(mem::take(&mut self.queue().requests));
    }

    /// Serves one group: puts at most one segment. Calls that have no answer yet remain in it.
    async fn serve_group(&self, view: &mut View, group: &mut Vec<Request>) {
        let at = self.clock.after(view.at);
        let plan = Plan::take(group, &self.data(), at);
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(failure) => return group.drain(..).for_each(|call| call.fail(&failure)),
        };
        let served = if plan.writes.is_empty() {
            self.catch_up(view, None).await
        } else {
            self.append(view, &mut plan, at).await
        };
        match served {
            Ok(true) => {
                let at = self.clock.after(view.at);
                plan.answer_reads(&self.data(), at);
                plan.give_back(group);
            }
            Ok(false) => plan.give_back(group),
            Err(failure) => plan.fail(&failure),
        }
    }

    /// Puts a segment with the writes of this plan. Applies and answers them if the put wins.
    /// Returns whether the data was current after the calls of the plan had begun.
    async fn append(&self, view: &mut View, plan: &mut Plan, at: i64) -> Result<bool> {
        let header = Header::new(view.number + 1, Uuid::new_v4(), at);
        let lines = plan.writes.iter().map(|write: &Append| &*write.text);
        let object = document::encode(&header, lines)?;
        let began = self.clock.moment();
        match self.put(view, &header, object, plan).await? {
            Outcome::Lost => Ok(false),
            Outcome::Won => {
                let ended = self.clock.moment();
                {
                    let mut data = self.data();
                    self.at.store(at, Ordering::SeqCst);
                    plan.apply(&mut data, at);
                }
                view.advance(&header);
                view.is_current_at(began);
                self.follow_put(view, began, ended).await;
                Ok(true)
            }
        }
    }

    /// Measures the server's time again if it is time, and stores a snapshot if it is time.
    async fn follow_put(&self, view: &View, began: Moment, ended: Moment) {
        if self.clock.is_old() {
            match self.bucket.put_at(&self.bucket.segment(view.number)).await {
                Ok(put_at) => self.clock.measure(put_at, began, ended),
                Err(failure) => tracing::debug!(?failure, "could not measure the server's time"),
            }
        }
        if view.number.is_multiple_of(self.snapshot_every) {
            self.begin_snapshot(view);
        }
    }

    /// Puts a segment, until it is known whether the log contains it.
    async fn put(
        &self,
        view: &mut View,
        header: &Header,
        object: Bytes,
        plan: &Plan,
    ) -> Result<Outcome> {
        let name = self.bucket.segment(header.number);
        // Whether no earlier put of this object can be in the log, or get there later.
        let mut is_first = true;
        let mut pause = PAUSES[0];
        loop {
            let failure = match self.bucket.create(&name, object.clone()).await {
                Ok(Created::Created) => return self.confirm(view, &name).await,
                Ok(Created::Taken) => None,
                Err(failure) if failure.refused && is_first => return Err(failure),
                Err(failure) => Some(failure),
            };
            is_first = false;
            // The object that has the name decides: it can be the one of an earlier put, whose
            // answer was lost.
            let failure = match (self.bucket.get(&name).await, failure) {
                (Ok(Some(found)), _) => {
                    let (other, _) = document::decode(&found)?;
                    if other.id == header.id {
                        return self.confirm(view, &name).await;
                    }
                    self.catch_up(view, Some(found)).await?;
                    return Ok(Outcome::Lost);
                }
                (Ok(None), None) => {
                    if self.is_stale(view) && !self.is_in_log(view).await? {
                        // The log has passed this number, and its segment has been deleted.
                        self.catch_up(view, None).await?;
                        return Ok(Outcome::Lost);
                    }
                    // The service refused one of several puts at the same time, and none of them
                    // has taken effect yet.
                    Failure::new(
                        StoreErrorKind::Unavailable,
                        "puts of the same number conflict",
                    )
                }
                // The put may still be on its way. To put the same object again does no harm: only
                // one of them can get the name.
                (Ok(None), Some(failure)) | (Err(failure), _) => failure,
            };
            tracing::debug!(?failure, %name, "the outcome of a put is unknown");
            tokio::time::sleep(pause).await;
            if !plan.is_awaited() || self.is_closed() {
                return Err(failure);
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Checks that a segment which this process has put follows the log that its data contains.
    async fn confirm(&self, view: &mut View, name: &object_store::path::Path) -> Result<Outcome> {
        if !self.is_stale(view) || self.is_in_log(view).await? {
            return Ok(Outcome::Won);
        }
        // The log has passed this number and deleted its segment. So the object is in no log.
        if let Err(failure) = self.bucket.delete(name).await {
            tracing::debug!(?failure, %name, "could not delete a segment that came too late");
        }
        self.reload(view).await?;
        self.catch_up(view, None).await?;
        Ok(Outcome::Lost)
    }

    /// Returns whether the segment after the view may have been deleted already.
    fn is_stale(&self, view: &View) -> bool {
        view.is_stale(&self.clock.moment(), self.retention)
    }

    /// Returns whether the log still contains the last segment of the data. If so, no later segment
    /// has been deleted, because segments are deleted in their order.
    async fn is_in_log(&self, view: &View) -> Result<bool> {
        let Some(found) = self.bucket.get(&self.bucket.segment(view.number)).await? else {
            return Ok(false);
        };
        Ok(document::decode(&found)?.0.id == view.id)
    }

    /// Replaces the data by the newest snapshot.
    async fn reload(&self, view: &mut View) -> Result<()> {
        let opened = open::newest(&self.bucket, false).await?;
        tracing::warn!(
            from = view.number,
            to = opened.view.number,
            "this process was behind the log until segments that it needs were deleted; it \
             continues with a snapshot"
        );
        *view = opened.view;
        let mut data = self.data();
        self.at.store(view.at, Ordering::SeqCst);
        *data = opened.data;
        drop(data);
        self.announce();
        Ok(())
    }

    /// Applies all segments after the view. `first` is the next segment, if it was read already.
    /// Returns true.
    pub(crate) async fn catch_up(&self, view: &mut View, mut first: Option<Found>) -> Result<bool> {
        let mut window = 1;
        let mut reloads = 0;
        loop {
            let began = self.clock.moment();
            let (segments, is_end) = match first.take() {
                Some(found) => (vec![found], false),
                None => self.read(view.number + 1, window).await?,
            };
            if self.is_stale(view) && !self.is_in_log(view).await? {
                if reloads == RELOADS {
                    return Err(Failure::new(
                        StoreErrorKind::Unavailable,
                        "segments are deleted before this process can read them; increase the \
                         retention",
                    ));
                }
                reloads += 1;
                self.reload(view).await?;
                continue;
            }
            for found in segments {
                let segment = Segment::decode(&found)?;
                self.follow(view, segment);
            }
            if is_end {
                view.is_current_at(began);
                return Ok(true);
            }
            window = (window * 2).min(WINDOW);
        }
    }

    /// Reads up to `window` segments from this number on. Returns those before the first missing
    /// one, and whether one is missing.
    async fn read(&self, number: u64, window: u64) -> Result<(Vec<Found>, bool)> {
        let numbers = stream::iter(number..number + window);
        let mut reads = numbers
            .map(|number| {
                let name = self.bucket.segment(number);
                async move { self.bucket.get(&name).await }
            })
            .buffered(usize::try_from(WINDOW).unwrap_or(1));
        let mut segments = Vec::new();
        while let Some(read) = reads.next().await {
            match read? {
                Some(found) => segments.push(found),
                None => return Ok((segments, true)),
            }
        }
        Ok((segments, false))
    }

    /// Applies a segment that was read from the log.
    fn follow(&self, view: &mut View, segment: Segment) {
        let at = segment.header.at;
        let is_news = segment.commands.iter().any(may_make_claimable);
        {
            let mut data = self.data();
            self.at.store(at, Ordering::SeqCst);
            for command in segment.commands {
                data.apply(&Entry::new(at, command));
            }
        }
        view.advance(&segment.header);
        if is_news {
            self.announce();
        }
    }

    /// Wakes the nodes of this process, because another process may have made jobs claimable.
    fn announce(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        self.wakeups.notify(Wakeup::any()).now_or_never();
    }
}

/// Returns whether a command may make a job claimable.
fn may_make_claimable(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Enqueue(_)
            | Command::Settle(_)
            | Command::Reclaim(_)
            | Command::ActOn { .. }
            | Command::Resume(_)
            | Command::SetPermits { .. }
            | Command::SetFairLimit { .. }
            | Command::CloseBatch(_)
            | Command::Deliver(_)
            | Command::Expire { .. }
            | Command::Fire(_)
    )
}

fn interrupted() -> Failure {
    Failure::new(
        StoreErrorKind::Unavailable,
        "the task of the log has ended before it answered the call",
    )
}

/// The service of the queue by one task. Ends the service if the task is dropped.
struct Serving<'a> {
    log: &'a Log,
    is_done: bool,
}

impl Serving<'_> {
    /// Ends the service if no call waits. Returns whether it has ended.
    fn end(&mut self) -> bool {
        let mut queue = self.log.queue();
        if queue.requests.is_empty() {
            queue.is_served = false;
            self.is_done = true;
            self.log.serving.send_replace(false);
        }
        self.is_done
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.log.queue().is_served = false;
            self.log.serving.send_replace(false);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.bucket).finish()
    }
}

/// The log as the memory store calls it.
#[derive(Clone, Debug)]
pub(crate) struct SharedLog(pub(crate) Arc<Log>);

#[async_trait]
impl CommandLog for SharedLog {
    async fn append(&self, command: Command<'static>) -> ratchet_core::Result<Answer> {
        let operation = command.operation();
        let (sender, answer) = oneshot::channel();
        let appended = match Append::new(command, sender) {
            Ok(append) => {
                self.0.submit(Request::Append(append));
                answer.await.unwrap_or_else(|_| Err(interrupted()))
            }
            Err(failure) => Err(failure),
        };
        appended.map_err(|failure| failure.during(operation))
    }

    async fn refresh(&self) -> ratchet_core::Result<()> {
        let refreshed = self.0.refresh().await;
        refreshed.map_err(|failure| failure.during("refresh"))
    }

    fn now(&self) -> i64 {
        let now = self.0.clock.after(self.0.at.load(Ordering::SeqCst));
        match &self.0.clock {
            // A test can set its clock back.
            Clock::Manual(_) => now,
            Clock::Estimate(_) => self.0.read_at.fetch_max(now, Ordering::SeqCst).max(now),
        }
    }
}
