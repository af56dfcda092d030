//! The table of all calls of a store, from which decorators are generated.

/// Calls the macro `$then` with a list of all methods of all store traits, from which decorators
/// are generated.
///
/// A method is `idempotent` if a second call returns the same answer as the first. Such a call can
/// be repeated after a timeout. Every other method is `once`. A trait is `optional` if
/// [`Store`](crate::store::Store) returns it as an `Option`. The code that uses this macro must
/// import the types that occur in the signatures.
#[doc(hidden)]
#[macro_export]
macro_rules! store_calls {
    ($then:ident) => {
        $then! {
            required JobStore as jobs {
                idempotent enqueue(jobs: &[NewJob]) -> Vec<Enqueued>;
                once claim_next_batch(request: &ClaimRequest) -> Vec<ClaimedJob>;
                once claim_next_batch_optimized(request: &ClaimRequest) -> Vec<Claim>;
                idempotent load_inputs(tokens: &[ClaimToken]) -> Vec<Option<JobInput>>;
                idempotent settle(settlements: &[Settlement]) -> Vec<Fenced>;
                idempotent report(reports: &[Report]) -> Vec<Reported>;
                once reclaim(request: &ReclaimRequest) -> Vec<Reclaimed>;
                once act(jobs: &JobSelector, action: JobAction) -> Vec<Acted>;
                once act_on(jobs: &[JobId], from: &[JobState], action: JobAction) -> Vec<Acted>;
                idempotent get(ids: &[JobId], detail: Detail) -> Vec<Option<JobRecord>>;
                idempotent list(filter: &JobFilter, page: &PageRequest) -> JobPage;
                idempotent select(filter: &JobFilter, page: &PageRequest) -> Vec<JobId>;
                idempotent count_jobs(filter: &JobFilter) -> StateCounts;
                idempotent history(job: JobId) -> Vec<Attempt>;
                once purge(request: &PurgeRequest) -> Guarded<u64>;
                once expire_jobs(limit: usize) -> Vec<JobId>;
            }
            required QueueStore as queues {
                once pause(request: &PauseRequest) -> Changed;
                once resume(scope: &PauseScope) -> Changed;
                idempotent pauses() -> Vec<PauseInfo>;
                idempotent queues() -> Vec<QueueInfo>;
                idempotent due_routes(within: Duration) -> Vec<DueRoute>;
                idempotent count_due(queue: &Name, limit: u64) -> u64;
                once separate_queues(limit: usize) -> u64;
            }
            required NodeStore as nodes {
                once heartbeat(heartbeat: &Heartbeat) -> HeartbeatReply;
                once set_node_status(node: NodeId, status: NodeStatus) -> Changed;
                idempotent nodes() -> Vec<NodeRecord>;
                once sweep_nodes(sweep: &NodeSweep) -> Guarded<SweptNodes>;
                idempotent database_time() -> Timestamp;
            }
            required LockStore as locks {
                once acquire(name: &Name, owner: &Name, ttl: Duration) -> Acquired;
                idempotent renew(name: &Name, owner: &Name, fence: Fence, ttl: Duration) -> Fenced;
                once release(name: &Name, owner: &Name, fence: Fence) -> Fenced;
                idempotent inspect(name: &Name) -> Option<LockInfo>;
                idempotent list_locks(after: Option<&Name>, limit: usize) -> Vec<(Name, LockInfo)>;
            }
            required VersionStore as versions {
                once bump(namespace: &Name, guard: Option<&Guard>) -> Guarded<u64>;
                idempotent versions(namespaces: &[Name]) -> Vec<u64>;
            }
            optional RecurringStore as recurring {
                once put(put: &PutRecurring) -> PutOutcome;
                idempotent find(name: &Name) -> Option<RecurringRecord>;
                idempotent definitions(after: Option<&Name>, limit: usize) -> RecurringPage;
                once claim_due_recurring(request: &RecurringClaimRequest) -> DueRecurring;
                once fire(firings: &[RecurringFiring]) -> Vec<Fired>;
                once set_paused(name: &Name, paused: bool) -> Changed;
                once delete(name: &Name) -> Changed;
                once retire(request: &RetireRecurring) -> Guarded<Vec<Name>>;
            }
            optional ArchiveStore as archive {
                once archive(request: &PurgeRequest) -> Guarded<u64>;
                idempotent archived(ids: &[JobId]) -> Vec<Option<ArchivedJob>>;
                idempotent list_archived(filter: &ArchiveFilter, page: &PageRequest) -> ArchivePage;
                once purge_archive(request: &ArchivePurge) -> Guarded<u64>;
            }
            optional PermitStore as permits {
                once set_permits(resource: &Name, max: u32, if_known: IfKnown) -> Changed;
                idempotent permits() -> Vec<PermitInfo>;
            }
            optional FairStore as fair {
                once set_fair_limit(scope: &FairScope, max: Option<u32>) -> Changed;
                idempotent fair_limits() -> Vec<FairLimit>;
            }
            optional RateStore as rates {
                once take(requests: &[RateRequest]) -> Vec<RateAnswer>;
                once forget_idle(limit: usize) -> u64;
            }
            optional WorkflowStore as workflows {
                once create_batch(batch: BatchId) -> Changed;
                once close_batch(batch: BatchId) -> BatchClosed;
                idempotent batches(ids: &[BatchId]) -> Vec<Option<BatchRecord>>;
                idempotent recent_batches(limit: usize, before: Option<BatchId>) -> Vec<BatchRecord>;
                once purge_batches(request: &BatchPurge) -> Guarded<u64>;
                idempotent parents_of(jobs: &[JobId]) -> Vec<Vec<Link>>;
                idempotent children_of(parent: Parent, limit: usize, after: Option<JobId>) -> Vec<Link>;
            }
            optional SignalStore as signals {
                once deliver(signal: &Signal) -> Delivered;
                once expire(limit: usize) -> Vec<JobId>;
            }
            optional DiagnosticStore as diagnostics {
                idempotent findings() -> Vec<Finding>;
            }
        }
    };
}
