//! The log: appends the commands of this process, and follows those of the others.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::select;
use futures_util::{FutureExt, StreamExt, stream};
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup};
use ratchet_core::memory::{Answer, Command, CommandLog, Entry, Snapshot};
use ratchet_core::{StoreErrorKind, time};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::bucket::{self, Bucket, Created, Found};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::document::{self, Header, Segment};
use crate::error::{Failure, Result};
use crate::group::{Append, Plan, Request};
use crate::open::{self, Opened};
use crate::snapshots::Snapshots;
use crate::turns::Turns;
use crate::view::View;

/// How many segments a process that is far behind requests at once at most, and after how many
/// bytes it requests fewer. A process that reads slowly must still be faster than others write.
const WINDOW: u64 = 64;
const WINDOW_BYTES: usize = 16 << 20;
/// How often a process starts again from a snapshot, because the segments it needs were deleted.
const RELOADS: u32 = 5;
/// How long after a process has asked for a snapshot it asks again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The pauses before a put whose outcome is unknown is examined: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// The log, and the data of this process.
pub(crate) struct Log {
    pub(crate) bucket: Bucket,
    pub(crate) clock: Clock,
    pub(crate) retention: Duration,
    /// A snapshot follows each segment whose number is a multiple of this one.
    pub(crate) snapshot_every: u64,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) data: Arc<Mutex<Snapshot>>,
    /// The time of the last command in the data.
    at: AtomicI64,
    /// The number of the last segment whose commands were applied, or are being applied.
    applied: AtomicU64,
    queue: Mutex<Queue>,
    /// Notified when a call is added to the queue.
    arrived: Notify,
    /// Whether the task runs that serves the queue.
    serving: watch::Sender<bool>,
    pub(crate) view: tokio::sync::Mutex<View>,
    turns: Mutex<Turns>,
    pub(crate) wakeups: InProcessCoordinator,
    pub(crate) hooks: Hooks,
    /// How many segments of other processes were applied that may have made jobs claimable.
    news: AtomicU64,
    /// When this process last asked for a snapshot.
    asked: Mutex<Option<Instant>>,
}

/// The calls that no group contains yet.
#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    is_served: bool,
    is_closed: bool,
}

/// What a test does at certain lines. Nothing in other builds.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Runs before each command is applied.
    #[cfg(test)]
    pub(crate) before_apply: Mutex<Option<Box<Hook>>>,
}

#[cfg(test)]
type Hook = dyn Fn(&Command<'_>) + Send;

impl Hooks {
    #[cfg(not(test))]
    pub(crate) const fn apply(&self, _: &Command<'_>) {}

    #[cfg(test)]
    pub(crate) fn apply(&self, command: &Command<'_>) {
        let hook = self.before_apply.lock();
        if let Some(hook) = &*hook.unwrap_or_else(PoisonError::into_inner) {
            hook(command);
        }
    }
}

/// The result of a put.
enum Outcome {
    /// The segment with this header is in the log.
    Won(Header),
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
            snapshots: Arc::new(Snapshots::new(opened.view.number)),
            at: AtomicI64::new(opened.view.at),
            applied: AtomicU64::new(opened.view.number),
            data: Arc::new(Mutex::new(opened.data)),
            queue: Mutex::default(),
            arrived: Notify::new(),
            serving: watch::Sender::new(false),
            view: tokio::sync::Mutex::new(opened.view),
            turns: Mutex::new(Turns::new()),
            wakeups: InProcessCoordinator::new(),
            hooks: Hooks::default(),
            news: AtomicU64::new(0),
            asked: Mutex::default(),
        }
    }

    /// Locks the data. Fails if a panic has left half of a segment in it: then nothing may be
    /// applied to it or read from it any more.
    pub(crate) fn data(&self) -> Result<MutexGuard<'_, Snapshot>> {
        self.data.lock().map_err(|_| {
            let segment = self.bucket.segment(self.applied.load(Ordering::SeqCst));
            Failure::new(
                StoreErrorKind::Other,
                format!(
                    "this process panicked while it applied a command of the object {segment}, so \
                     its data is incomplete; restart the process; if it panics at this object \
                     again, so does every process: use a version of Ratchet without this mistake"
                ),
            )
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
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
        if mem::replace(&mut queue.is_served, true) {
            self.arrived.notify_one();
            return;
        }
        self.serving.send_replace(true);
        drop(queue);
        // If the task cannot begin, it is dropped, which fails the calls.
        let service = Serving::begun(Arc::clone(self)).serve();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(service);
        }
    }

    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<()> {
        self.wait_for(Request::Refresh).await
    }

    /// Applies the commands that other processes have added to the log.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<()> {
        self.wait_for(Request::Look).await
    }

    async fn wait_for(
        self: &Arc<Self>,
        request: impl FnOnce(oneshot::Sender<Result<()>>) -> Request,
    ) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.submit(request(done));
        answer.await.unwrap_or_else(|_| Err(interrupted()))
    }

    /// Refuses new calls, and waits until those that have begun have ended.
    pub(crate) async fn close(&self) {
        self.queue().is_closed = true;
        let mut serving = self.serving.subscribe();
        // The sender exists as long as the log.
        let _ = serving.wait_for(|serving| !serving).await;
        self.snapshots.stored().await;
    }

    fn is_closed(&self) -> bool {
        self.queue().is_closed
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
    /// Returns false if all of them wait until this process may put again.
    async fn serve_group(&self, view: &mut View, group: &mut Vec<Request>) -> bool {
        let prepared = self.prepare(view, group).await.and_then(|is_current| {
            let at = self.clock.after(view.at);
            let may_put = self.next_put().is_none();
            let plan = Plan::take(group, &*self.data()?, at, may_put);
            Ok((is_current, at, plan))
        });
        let (is_current, at, mut plan) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                group.drain(..).for_each(|call| call.fail(&failure));
                return true;
            }
        };
        if plan.is_empty() {
            return false;
        }
        let served = if !plan.writes.is_empty() {
            self.append(view, &mut plan, at).await
        } else if is_current {
            Ok(true)
        } else {
            self.catch_up(view, None).await
        };
        let answered = served.and_then(|is_current| {
            if is_current {
                let at = self.clock.after(view.at);
                plan.answer_reads(&*self.data()?, at);
            }
            Ok(())
        });
        match answered {
            Ok(()) => plan.give_back(group),
            Err(failure) => plan.fail(&failure),
        }
        true
    }

    /// Returns when this process may put again, if that is later than now.
    fn next_put(&self) -> Option<Instant> {
        self.bucket.budget.as_ref().and_then(Budget::wait)
    }

    /// Waits until this process may put again, or a call is added to the queue.
    async fn rest(&self) {
        if let Some(next) = self.next_put() {
            let arrived = pin!(self.arrived.notified());
            select(pin!(tokio::time::sleep_until(next)), arrived).await;
        }
    }

    /// Makes sure that the clock and the view are fit for a put: a put with a view from long ago
    /// can succeed although the log has passed its number. Returns whether the data has become
    /// current.
    async fn prepare(&self, view: &mut View, group: &[Request]) -> Result<bool> {
        let need_time = |request: &Request| !matches!(request, Request::Look(_));
        if self.clock.is_old() && group.iter().any(need_time) {
            match bucket::measure(&self.bucket, || self.clock.moment()).await {
                Ok(measured) => self.clock.set(measured),
                Err(failure) if failure.refused => return Err(failure),
                Err(failure) => {
                    tracing::debug!(?failure, "could not measure the server's time");
                    self.clock.postpone();
                }
            }
        }
        if self.is_stale(view) {
            return self.catch_up(view, None).await;
        }
        Ok(false)
    }

    /// Puts a segment with the writes of this plan. Applies and answers them if the put wins.
    /// Returns whether the data was current after the calls of the plan had begun.
    async fn append(&self, view: &mut View, plan: &mut Plan, at: i64) -> Result<bool> {
        let began = self.clock.moment();
        match self.put(view, plan, at).await? {
            Outcome::Lost => {
                self.lose(began.monotonic).await;
                Ok(false)
            }
            Outcome::Won(header) => {
                {
                    let mut data = self.data()?;
                    self.at.store(at, Ordering::SeqCst);
                    self.applied.store(header.number, Ordering::SeqCst);
                    plan.apply(&mut data, at, &self.hooks);
                }
                view.advance(&header);
                view.is_current_at(began);
                let ended = self.clock.moment();
                self.turns().won(began.monotonic, ended.monotonic);
                self.tend_snapshots(view).await;
                Ok(true)
            }
        }
    }

    /// Puts a segment, until it is known whether the log contains it.
    ///
    /// Each put has its own id. So if a put takes effect after the log has passed its number, its
    /// object differs from the segment that an earlier put has stored and that others have applied.
    async fn put(&self, view: &mut View, plan: &Plan, at: i64) -> Result<Outcome> {
        let number = view.number + 1;
        let name = self.bucket.segment(number);
        let mut puts = Vec::new();
        let mut pause = PAUSES[0];
        loop {
            let header = Header::new(number, Uuid::new_v4(), at).after(view.id);
            let lines = plan.writes.iter().map(|write: &Append| &*write.text);
            let object = document::encode(&header, lines)?;
            puts.push(header.id);
            let failure = match self.bucket.create(&name, object).await {
                Ok(Created::Created) => {
                    self.confirm(view).await?;
                    return Ok(Outcome::Won(header));
                }
                Ok(Created::Taken) => None,
                Err(failure) if failure.refused && puts.len() == 1 => return Err(failure),
                Err(failure) => Some(failure),
            };
            // The object that has the name decides: it can be the one of an earlier put, whose
            // answer was lost.
            let failure = match (self.bucket.get_once(&name).await, failure) {
                (Ok(Some(found)), _) => {
                    self.confirm(view).await?;
                    let header = document::header(&found);
                    if let Ok(header) = &header
                        && puts.contains(&header.id)
                    {
                        return Ok(Outcome::Won(header.clone()));
                    }
                    self.catch_up(view, Some(found)).await?;
                    return match header {
                        Ok(_) => Ok(Outcome::Lost),
                        // It was damaged, and a snapshot contains its commands.
                        Err(failure) => Err(failure.unknown()),
                    };
                }
                (Ok(None), None) => {
                    self.confirm(view).await?;
                    Failure::conflict()
                }
                // The put may still be on its way. To put the segment again does no harm: only one
                // of the objects can get the name.
                (Ok(None), Some(failure)) | (Err(failure), _) => failure,
            };
            tracing::debug!(?failure, %name, "the outcome of a put is unknown");
            tokio::time::sleep(pause).await;
            if !plan.is_awaited() || self.is_closed() {
                return Err(failure.unknown());
            }
            pause = (pause * 2).min(PAUSES[1]);
        }
    }

    /// Checks that what a put has found or created under its number belongs to the log: that no
    /// segment after the view had been deleted by now. Otherwise nothing is known about the put:
    /// its segment may have been applied and deleted, or may be in no log.
    async fn confirm(&self, view: &View) -> Result<()> {
        if !self.is_stale(view) {
            return Ok(());
        }
        let floor = self.bucket.floor().await.map_err(Failure::unknown)?;
        if floor <= view.number + 1 {
            return Ok(());
        }
        Err(Failure::new(
            StoreErrorKind::Unavailable,
            "this process was suspended during a put until the log had passed its number; whether \
             the call took effect is unknown",
        ))
    }

    /// Returns whether the segment after the view may have been deleted already.
    fn is_stale(&self, view: &View) -> bool {
        view.is_stale(&self.clock.moment())
    }

    /// Returns whether the log still contains all segments after the view. Fails if it does not
    /// contain the last segment of the data although nothing may have deleted it.
    ///
    /// `has_next` is whether the next segment was read: it names the last one of the data itself.
    async fn is_complete(&self, view: &View, has_next: bool) -> Result<bool> {
        let name = self.bucket.segment(view.number);
        let last = if has_next {
            None
        } else {
            self.bucket.get(&name).await?
        };
        // The floor is read last: whatever is missing before was deleted under this floor.
        let floor = self.bucket.floor().await?;
        if has_next || floor > view.number {
            return Ok(floor <= view.number + 1);
        }
        match last.map(|last| document::header(&last)) {
            Some(Ok(header)) if header.id == view.id => return Ok(true),
            // It was damaged after a process had applied it.
            Some(Err(failure)) if failure.kind == StoreErrorKind::Corrupt => return Ok(true),
            Some(Err(failure)) => return Err(failure),
            Some(Ok(_)) | None => {}
        }
        let problem = "is missing or was replaced, although the store has not deleted it; were \
                       objects deleted, or restored from a backup?";
        Err(Failure::corrupt(name.as_ref(), problem))
    }

    /// Replaces the data by a snapshot of a later segment. Returns whether there is one.
    async fn reload(&self, view: &mut View) -> Result<bool> {
        let Some(opened) = open::newer(&self.bucket, view.number).await? else {
            return Ok(false);
        };
        tracing::warn!(
            from = view.number,
            to = opened.view.number,
            "this process continues with a snapshot, because segments that it needs are deleted \
             or damaged"
        );
        let mut data = self.data()?;
        view.replace(opened.view);
        self.at.store(view.at, Ordering::SeqCst);
        *data = opened.data;
        drop(data);
        self.announce();
        Ok(true)
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
            if self.is_stale(view) && !self.is_complete(view, !segments.is_empty()).await? {
                if reloads == RELOADS {
                    return Err(Failure::new(
                        StoreErrorKind::Unavailable,
                        "segments are deleted before this process can read them; increase the \
                         retention",
                    ));
                }
                reloads += 1;
                if self.reload(view).await? {
                    continue;
                }
                let problem = "is deleted, and no snapshot of a later segment can be read; were \
                               objects deleted? Restore them from a backup, or use another prefix";
                let name = self.bucket.segment(view.number + 1);
                return Err(Failure::corrupt(name.as_ref(), problem));
            }
            let bytes: usize = segments.iter().map(|found| found.bytes.len()).sum();
            let mut is_reloaded = false;
            for found in segments {
                match Segment::decode(&found) {
                    Ok(segment) => self.follow(view, segment)?,
                    // Processes that had applied the segment before it was damaged store newer
                    // snapshots.
                    Err(failure) if failure.kind == StoreErrorKind::Corrupt => {
                        if !self.reload(view).await? {
                            self.ask_again(view.number + 1).await;
                            return Err(failure);
                        }
                        is_reloaded = true;
                        break;
                    }
                    Err(failure) => return Err(failure),
                }
            }
            if is_reloaded {
                continue;
            }
            if is_end {
                view.check_end(&self.bucket)?;
                view.is_current_at(began);
                return Ok(true);
            }
            window = if bytes > WINDOW_BYTES {
                (window / 2).max(1)
            } else {
                (window * 2).min(WINDOW)
            };
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

    /// Asks the other processes for a snapshot that contains this segment, which is damaged. Does
    /// nothing if this process has asked recently.
    async fn ask_again(&self, number: u64) {
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.is_some_and(|asked| asked.elapsed() < ASKED_AGAIN_AFTER) {
                return;
            }
            *asked = Some(time::monotonic());
        }
        self.ask_for_snapshot(number).await;
    }

    /// Applies a segment that was read from the log.
    fn follow(&self, view: &mut View, segment: Segment) -> Result<()> {
        let at = segment.header.at;
        if segment.header.previous != view.id {
            let name = self.bucket.segment(segment.header.number);
            let problem = "follows another segment than the one that this process has applied, so \
                           it belongs to another log; were objects deleted, or restored from a \
                           backup, while processes ran? Stop all processes, and use another prefix \
                           or a backup of all objects";
            return Err(Failure::corrupt(name.as_ref(), problem));
        }
        let mut commands = segment.commands.iter();
        let is_news = commands.any(Command::may_make_claimable);
        {
            let mut data = self.data()?;
            self.at.store(at, Ordering::SeqCst);
            let number = segment.header.number;
            self.applied.store(number, Ordering::SeqCst);
            for command in segment.commands {
                self.hooks.apply(&command);
                data.apply(&Entry::new(at, command));
            }
        }
        view.advance(&segment.header);
        self.turns().passed();
        if is_news {
            self.announce();
        }
        Ok(())
    }

    /// Wakes the nodes of this process, because another process may have made jobs claimable.
    fn announce(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        self.wakeups.notify(Wakeup::any()).now_or_never();
    }
}

fn interrupted() -> Failure {
    Failure::new(
        StoreErrorKind::Unavailable,
        "the task of the log has ended before it answered the call",
    )
}

/// The service of the queue by one task. Ends the service if the task is dropped.
struct Serving {
    log: Arc<Log>,
    is_done: bool,
}

impl Serving {
    const fn begun(log: Arc<Log>) -> Self {
        let is_done = false;
        Self { log, is_done }
    }

    /// Serves the queue until it is empty.
    async fn serve(mut self) {
        let log = Arc::clone(&self.log);
        let mut view = log.view.lock().await;
        let mut group = Vec::new();
        loop {
            log.gather(&mut group).await;
            group.retain(Request::is_awaited);
            if group.is_empty() {
                if self.end() {
                    return;
                }
                continue;
            }
            if log.take_turns().await {
                log.gather(&mut group).await;
            }
            if !log.serve_group(&mut view, &mut group).await {
                // All calls wait for the next put.
                log.rest().await;
            }
        }
    }

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

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.is_done {
            let mut queue = self.log.queue();
            queue.is_served = false;
            for request in queue.requests.drain(..) {
                request.fail(&interrupted());
            }
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
        let appended = match Append::new(&command, sender) {
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
        self.0.clock.after(self.0.at.load(Ordering::SeqCst))
    }
}
