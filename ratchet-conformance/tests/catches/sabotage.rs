//! An in-memory store that has one deliberate defect, the sabotage.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, Fixture, MemoryFixture, Power, Residue, Restart, TestClock, Vandal,
};
use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup, WakeupStream};
use ratchet_core::model::ClaimedJob;
use ratchet_core::store::{
    ArchiveStore, CallPolicy, DiagnosticStore, FairStore, JobStore, LockStore, NodeStore,
    PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, Store, StoreInfo,
    VersionStore, WorkflowStore,
};
use ratchet_core::{
    BatchId, ClaimToken, Condition, Enqueued, Fence, Incarnation, JobId, JobRecord, Json,
    MemoryStore, Name, NewJob, SharedStore,
};
use tokio::sync::Notify;

macro_rules! sabotages {
    ($($name:ident),+ $(,)?) => {
        /// The defect of a [`Sabotaged`] store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Sabotage {
            /// No defect.
            None,
            $($name),+
        }

        impl Sabotage {
            /// Every sabotage.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

sabotages! {
    StoresPartOfABatch,
    TruncatesTimesToSeconds,
    IgnoresDueTimes,
    ForgetsIdempotencyKeysOnPurge,
    SharesOneFairKey,
    ForgetsFairWeights,
    IgnoresFairLimits,
    LimitsAllKeysOfTheQueue,
    TakesPatternsForQueues,
    KeepsRemovedFairLimits,
    FreesNoPlaceBySettlements,
    FreesNoPlaceByReclaims,
    FreesNoPlaceByActions,
    FreesNoPlaceByExpiries,
    FreesNoPlaceByEnqueues,
    FreesNoPlaceByLimits,
    TakesTurnsAway,
    NeverFreesUniqueKeys,
    FreesUniqueKeysOnClaim,
    ChecksKeysBeforeItInserts,
    ClaimsTwice,
    ExceedsTheLimit,
    ForgetsToFillTheBatch,
    ClaimsFirstInFirstOut,
    ReturnsBatchesOutOfOrder,
    IgnoresAging,
    IgnoresCapabilities,
    ClaimsUntaggedJobsUnasked,
    IgnoresExceptions,
    SendsPayloadsUnasked,
    LosesCheckpoints,
    SaysThatOthersWait,
    IgnoresTokensOnSettle,
    IgnoresTokensOnReport,
    AnswersRepeatsAsStale,
    StopsAtTheFirstStaleSettlement,
    CountsSnoozesAsAttempts,
    CountsReleasesAsAttempts,
    KeepsResultsOfCancelledRuns,
    KeepsOnlyTheLastAttempt,
    ReclaimsLate,
    ReclaimsFromLiveNodes,
    IgnoresTheCrashBudget,
    IgnoresCancels,
    RequeuesWithoutTheKey,
    ActsInWhateverState,
    SelectsFromTheBeginning,
    SkipsOneJobPerPage,
    PagesByOffset,
    IgnoresCursors,
    ShowsWholeJobsInOutlines,
    ListsWholeJobsForOutlines,
    PurgesTooYoung,
    IgnoresPausedQueues,
    IgnoresPausedKinds,
    ReplacesPauses,
    LosesReasonsOfPauses,
    ResumesKindsWithQueues,
    ForgetsPayloadVersions,
    IgnoresLanes,
    OrdersLanesByTime,
    LetsDuplicatesTakePlaces,
    ForgetsToPromoteAfterSettle,
    ForgetsToPromoteAfterCancel,
    PromotesOnRetry,
    ClaimsForInactiveNodes,
    HoldsSilenceAgainstAll,
    TakesLateClaimsInAnOutage,
    AgesAcrossSteps,
    TrustsEveryTime,
    BlamesNobody,
    KeepsCancelsFromHeartbeats,
    LetsLabelsBeShared,
    RevivesDeadNodes,
    ReadsTheProcessClock,
    ReusesFences,
    CountsFences,
    ComparesNoNodes,
    ComparesNoTimes,
    ForgetsWhenNodesWereSeen,
    LetsLocksNeverExpire,
    LetsLocksExpireEarly,
    ChecksLocksBeforeItTakesThem,
    LetsAnyoneRelease,
    IgnoresGuards,
    ChecksOnlyTheOwnerOfAGuard,
    ForgetsThatLocksWereReleased,
    ReadsVersionsBeforeItBumps,
    HidesTheOtherNodes,
    ListsOnlyClaimsToCancel,
    ListsTheClaimsOfOtherNodes,
    RecordsUndeliveredAsReleased,
    TakesEveryRegistryForOld,
    RenewsWhatIsLost,
    IgnoresRecurringTokens,
    MovesOnWithoutJobs,
    ClaimsPausedDefinitions,
    ClaimsDefinitionsEarly,
    ForgetsLeases,
    LeavesGhosts,
    HidesTheNextSlot,
    FiresLaterSlotsFirst,
    RetiresWhateverItDoesNotKnow,
    DeletesRunningJobs,
    ReschedulesEndedJobs,
    SetsPrioritiesOfWaitingJobsOnly,
    IgnoresCaseOfTags,
    StartsEveryPassAnew,
    LosesArchivedJobs,
    ArchivesWithoutHistory,
    ArchivesTooYoung,
    PurgesTheArchiveTooYoung,
    CountsPermitsBeforeItClaims,
    IgnoresPermits,
    ChangesDeclaredPermits,
    HoldsPermitsForEver,
    FreesPermitsTwice,
    LetsPermitsHoldOthersUp,
    TakesUnknownPermits,
    ChangesPermitsLate,
    GrantsEveryStart,
    SharesOneRate,
    RefillsByTheProcessClock,
    LooksAtRatesBeforeItTakes,
    ForgetsRatesInUse,
    ForgetsToReleaseAfterReclaim,
    CallsBackTwice,
    LosesCancelledChildren,
    CountsRequeuedChildrenAgain,
    LetsClosedBatchesGrow,
    ForgetsToDecideAtTheClose,
    LosesLinksOfPurgedParents,
    SwallowsBadLinks,
    DeliversLateSignals,
    ForgetsDeadlines,
    LosesSignalPayloads,
    AnswersRepeatedSignalsAsDelivered,
    LeavesPausedRoutesOut,
    ListsNoUpcomingRoutes,
    OverstatesItsReach,
    CountsWhatIsNotDue,
    CountsBeyondTheLimit,
    ListsHeldLocksOnly,
    ListsLocksByTheirUnits,
    StumblesOverSpoiledLocks,
    LetsSpoiledLocksTakePlaces,
    TakesNoKindsForSilence,
    PausesJobsThatItSeparates,
    LosesTotals,
    LooksByWriting,
    CriesWolf,
    ListsFindingsAsTheyCome,
    EndsAtALookThatFails,
    LooksAtUniqueKeysFirst,
    TakesUnknownPermitsOfDuplicates,
    ForgetsEndsAtTheNextClaim,
    RemembersEveryEnd,
    RevivesGivenUpJobs,
    SparesReportedClaims,
    NamesSomeNode,
    ReturnsGivenUpClaimsFirst,
    ReturnsLostClaimsAsTheyCome,
    ActsOnEachIdOnce,
    HidesTakenKeys,
    StoresWhatIsWithheld,
    KeepsKeysForEver,
    FreesKeysEarly,
    KeepsPayloads,
    DebouncesWithoutEnd,
    ForgetsToRestart,
    RestartsOnReplace,
    ReplacesOnce,
    NeverExpiresJobs,
    ExpiresJobsEarly,
    ExpiresBegunJobs,
    KeepsExpiriesOfBegunJobs,
    BeginsEveryClaimedJob,
    ExpiresOnlyPendingJobs,
    ForgetsWhyJobsExpired,
    RecordsExpiredAsCancelled,
    ExpiresTooManyJobs,
    HidesExpiriesFromClaims,
    KeepsExpiriesOfHolders,
    ExpiresRequeuedJobs,
    KeepsTheNewlyDead,
    ListsTheDeadAsTheyCome,
    ListsClaimsAsTheyCome,
    RequeuesWithoutTheSignal,
    MergesOneChunkOfEachStream,
    KeepsRefusedCallsOfGroups,
    LeavesNotes,
    LeavesSignals,
    LeavesRowsBehind,
    ForgetsAtRestart,
    ArchivesParentsOfRunningChildren,
    ListsEndedJobsByTheirEnds,
    ListsTheArchiveByTheEnds,
    PassesOverWholeMilliseconds,
    DecidesOneConditionPerParent,
    IgnoresTagsOfBatchesNewestFirst,
    ForgetsOwnersOfClaimsToCancel,
    HidesWhatComesAfterAPause,
    TakesTheLastSlotOfEveryFiring,
    EditsWhatItCannotRead,
    ForgetsRatesEarly,
    PurgesInPieces,
    PurgesOneBatchLess,
    LooksAtTheFrontOnly,
    LetsTheSecondOfALanePass,
    ResumesHeadsOnCancel,
    LosesCancelledJobsNewestFirst,
    TrustsCachedRoutes,
}

/// The state that sabotages keep, shared by all handles of one database.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) keys: HashMap<Name, JobId>,
    /// The jobs that replaced the payloads of other jobs, with the answers.
    pub(crate) replaced: HashMap<JobId, Enqueued>,
    pub(crate) claimed: Vec<ClaimedJob>,
    pub(crate) settled: Vec<ClaimToken>,
    /// The expiries with which jobs were enqueued, in milliseconds since 1970.
    pub(crate) expiries: HashMap<JobId, i64>,
    pub(crate) results: HashMap<JobId, Json>,
    pub(crate) fences: HashMap<Name, Fence>,
    /// How many fences the store has returned for each lock.
    pub(crate) fences_given: HashMap<Name, u64>,
    /// The batch of each child that was requeued.
    pub(crate) requeued: Vec<BatchId>,
    pub(crate) pages: usize,
    pub(crate) incarnations: HashMap<Name, Incarnation>,
    /// The number of permits that callers set for each resource.
    pub(crate) permits: HashMap<Name, u32>,
    /// The difference between the permits in the inner store and those that callers set.
    pub(crate) extra: HashMap<Name, i64>,
    /// How many times the store has forgotten idle rates.
    pub(crate) generation: usize,
    /// The theoretical arrival time of each rate key, for sabotages that decide rates themselves.
    pub(crate) rates: HashMap<Name, i64>,
    /// The lock that the vandal has spoiled.
    pub(crate) spoiled_lock: Option<Name>,
    pub(crate) spoiled_schema: bool,
    pub(crate) spoiled_definitions: BTreeSet<Name>,
    /// How many ended jobs the vandal has spoiled.
    pub(crate) spoiled_jobs: usize,
    /// The deleted jobs, for sabotages that keep data of them.
    pub(crate) former: HashMap<JobId, JobRecord>,
    /// The definitions whose last slot the store does not show.
    pub(crate) without_slot: BTreeSet<Name>,
    /// The kind of each stored route. Its index is the id of the route.
    pub(crate) routes: Vec<Name>,
    /// The id that processes have cached for the route of each kind.
    pub(crate) cached: HashMap<Name, usize>,
    /// How many callers have entered the race window of each name, such as a key or a resource.
    looked: HashMap<Name, usize>,
}

/// The in-memory store with one defect.
#[derive(Clone, Debug)]
pub(crate) struct Sabotaged {
    pub(crate) inner: MemoryStore,
    pub(crate) how: Sabotage,
    memory: Arc<Mutex<Memory>>,
    second: Arc<Notify>,
    /// The lock of calls that must run one at a time.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

impl Sabotaged {
    pub(crate) fn is(&self, how: Sabotage) -> bool {
        self.how == how
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no saboteur panics")
    }

    /// Delays the first caller until a second one has read the same data, so that both are in the
    /// race window of the defective store.
    pub(crate) async fn let_another_look(&self, name: &Name) {
        let looked = {
            let mut memory = self.memory();
            let looked = memory.looked.entry(name.clone()).or_default();
            *looked += 1;
            *looked
        };
        match looked {
            // The wait has a timeout, in case no second caller comes.
            1 => {
                let second = self.second.notified();
                let _ = tokio::time::timeout(Duration::from_secs(10), second).await;
            }
            2 => self.second.notify_one(),
            _ => {}
        }
    }
}

impl Sabotaged {
    /// Wakes a call that waits in [`another_comes`](Self::another_comes).
    pub(crate) fn come(&self) {
        self.second.notify_waiters();
    }

    /// Returns whether another call arrives within half a second.
    pub(crate) async fn another_comes(&self) -> bool {
        let second = self.second.notified();
        let soon = Duration::from_millis(500);
        tokio::time::timeout(soon, second).await.is_ok()
    }
}

impl Store for Sabotaged {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    /// The deadline is long because some sabotages wait for another call.
    fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(Duration::from_secs(60)).retries(0)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        match self.how {
            Sabotage::OverstatesItsReach => Some(Arc::new(Overstating::default())),
            _ => self.inner.coordinator(),
        }
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(self)
    }

    fn fair(&self) -> Option<&dyn FairStore> {
        Some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }
}

/// Delivers only the wakeups of one handle, but claims to deliver the wakeups of all handles.
#[derive(Debug, Default)]
struct Overstating(InProcessCoordinator);

#[async_trait]
impl ClusterCoordinator for Overstating {
    async fn notify(&self, wakeup: Wakeup) {
        self.0.notify(wakeup).await;
    }

    fn subscribe(&self) -> WakeupStream {
        self.0.subscribe()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

pub(crate) struct SabotagedFixture {
    memory: MemoryFixture,
    store: Sabotaged,
}

impl SabotagedFixture {
    pub(crate) fn new(how: Sabotage) -> Self {
        let memory = MemoryFixture::new();
        let store = Sabotaged {
            inner: memory.store(),
            how,
            memory: Arc::default(),
            second: Arc::default(),
            turn: Arc::default(),
        };
        Self { memory, store }
    }
}

#[async_trait]
impl Fixture for SabotagedFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        Ok(Arc::new(self.store.clone()))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(self.memory.clock())
    }

    fn vandal(&self) -> Option<&dyn Vandal> {
        Some(self)
    }

    fn residue(&self) -> Option<&dyn Residue> {
        Some(self)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}

/// Returns the powers of the fixture. [`Power::Processes`] is missing, because the data is only in
/// this process.
pub(crate) fn powers() -> Vec<Power> {
    let mut powers = Power::STORE.to_vec();
    powers.extend([Power::FairKeys, Power::FairLimits]);
    powers.retain(|power| *power != Power::Processes);
    powers
}

#[async_trait]
impl Restart for SabotagedFixture {
    async fn end_processes(&self) -> Result<(), BoxError> {
        if self.store.how == Sabotage::ForgetsAtRestart {
            self.memory.store().rewind(&MemoryStore::new().snapshot());
        }
        Ok(())
    }
}

/// Counts the stored jobs, plus those that a defective store has left behind.
#[async_trait]
impl Residue for SabotagedFixture {
    async fn rows_of_jobs(&self) -> Result<u64, BoxError> {
        let stored = self.store.everything().await?.len();
        let left = match self.store.how {
            Sabotage::LeavesRowsBehind => self.store.memory().former.len(),
            _ => 0,
        };
        Ok((stored + left) as u64)
    }
}

/// Damages no data: records which rows the store must treat as unreadable.
#[async_trait]
impl Vandal for SabotagedFixture {
    async fn spoil(&self, job: JobId) -> Result<(), BoxError> {
        Err(format!("cannot damage the row of {job}, which is in memory").into())
    }

    /// Links to the job a child that is never due. The child keeps the job in its table, as an
    /// unreadable row would.
    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        let child = NewJob::new("child", &()).after(job, Condition::Ended);
        let never = Duration::from_secs(1_000_000_000);
        self.store.inner.enqueue(&[child.delay(never)]).await?;
        self.store.memory().spoiled_jobs += 1;
        Ok(())
    }

    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        let spoiled = name.clone();
        self.store.memory().spoiled_definitions.insert(spoiled);
        Ok(())
    }

    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError> {
        self.store.memory().spoiled_lock = Some(name.clone());
        Ok(())
    }

    async fn lose_routes(&self) -> Result<(), BoxError> {
        self.store.memory().routes.truncate(1);
        Ok(())
    }

    async fn spoil_schema(&self) -> Result<(), BoxError> {
        self.store.memory().spoiled_schema = true;
        Ok(())
    }
}
