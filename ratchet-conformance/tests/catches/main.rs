//! Tests of the suite itself: each sabotaged store must fail its case, and the correct store must
//! pass the same cases.

mod answers;
mod archive;
mod flows;
mod jobs;
mod messages;
mod mutants;
mod permits;
mod rates;
mod recurring;
mod roles;
mod sabotage;

use ratchet_conformance::{Factory, Failure, Suite};

use sabotage::{Sabotage, SabotagedFixture, powers};

/// The sabotages, each with the case that catches it; `answers` and [`mutants`] have more.
const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::StoresPartOfABatch,
        "permit::a_permit_of_an_unknown_resource_is_refused_and_nothing_is_stored",
    ),
    (
        Sabotage::TruncatesTimesToSeconds,
        "time::every_time_is_kept_to_the_millisecond",
    ),
    (
        Sabotage::IgnoresDueTimes,
        "claim::a_job_is_claimed_from_the_millisecond_it_is_due",
    ),
    (
        Sabotage::ForgetsIdempotencyKeysOnPurge,
        "keys::an_idempotency_key_stays_used_when_the_job_was_purged",
    ),
    (
        Sabotage::NeverFreesUniqueKeys,
        "keys::a_unique_key_is_free_in_every_terminal_state",
    ),
    (
        Sabotage::FreesUniqueKeysOnClaim,
        "keys::a_unique_key_is_taken_while_its_job_is_unfinished",
    ),
    (
        Sabotage::ChecksKeysBeforeItInserts,
        "keys::of_many_racers_with_an_idempotency_key_one_creates",
    ),
    (
        Sabotage::ClaimsTwice,
        "claim::a_claimed_job_is_not_claimed_by_another_node",
    ),
    (
        Sabotage::ClaimsTwice,
        "concurrency::many_claimers_get_every_job_exactly_once",
    ),
    (
        Sabotage::ExceedsTheLimit,
        "claim::a_claim_gives_as_many_as_asked_while_there_are_so_many",
    ),
    (
        Sabotage::ForgetsToFillTheBatch,
        "claim::many_jobs_for_others_in_front_do_not_empty_the_batch",
    ),
    (
        Sabotage::ClaimsFirstInFirstOut,
        "order::a_higher_priority_goes_first",
    ),
    (
        Sabotage::ReturnsBatchesOutOfOrder,
        "order::random_backlogs_are_claimed_in_the_order_of_the_rule",
    ),
    (
        Sabotage::IgnoresAging,
        "order::a_job_gains_one_level_with_every_whole_interval",
    ),
    (
        Sabotage::SaysThatOthersWait,
        "link::a_claim_shows_whether_others_wait_for_its_end",
    ),
    (
        Sabotage::IgnoresCapabilities,
        "capability::a_job_with_a_requirement_runs_only_where_it_is_met",
    ),
    (
        Sabotage::ClaimsUntaggedJobsUnasked,
        "capability::a_request_may_leave_jobs_without_a_requirement_out",
    ),
    (
        Sabotage::IgnoresExceptions,
        "claim::a_request_may_leave_queues_and_kinds_out",
    ),
    (
        Sabotage::SendsPayloadsUnasked,
        "claim::the_optimized_claim_leaves_only_the_inputs_out",
    ),
    (
        Sabotage::LosesCheckpoints,
        "report::a_checkpoint_outlives_its_claim",
    ),
    (
        Sabotage::IgnoresTokensOnSettle,
        "token::an_older_claim_of_the_same_node_is_stale",
    ),
    (
        Sabotage::IgnoresTokensOnReport,
        "token::the_token_of_a_reclaimed_job_is_stale",
    ),
    (
        Sabotage::AnswersRepeatsAsStale,
        "token::an_end_told_twice_is_applied_once",
    ),
    (
        Sabotage::StopsAtTheFirstStaleSettlement,
        "settle::one_call_ends_claims_in_every_way",
    ),
    (
        Sabotage::CountsSnoozesAsAttempts,
        "settle::a_snooze_costs_no_attempt",
    ),
    (
        Sabotage::CountsReleasesAsAttempts,
        "retry::hand_backs_and_snoozes_never_count",
    ),
    (
        Sabotage::KeepsResultsOfCancelledRuns,
        "settle::a_requested_cancel_wins_over_every_outcome",
    ),
    (
        Sabotage::KeepsOnlyTheLastAttempt,
        "settle::every_end_adds_one_entry_to_the_history",
    ),
    (
        Sabotage::ReclaimsLate,
        "reclaim::a_silent_nodes_claim_is_taken_after_its_patience",
    ),
    (
        Sabotage::ReclaimsFromLiveNodes,
        "reclaim::a_long_job_on_a_live_node_is_never_taken",
    ),
    (
        Sabotage::IgnoresTheCrashBudget,
        "reclaim::a_crash_beyond_the_budget_is_left_to_be_settled",
    ),
    (
        Sabotage::IgnoresCancels,
        "cancel::a_running_job_keeps_its_claim_and_its_node_is_told",
    ),
    (
        Sabotage::RequeuesWithoutTheKey,
        "retry::a_requeue_is_refused_while_another_has_the_key",
    ),
    (
        Sabotage::ActsInWhateverState,
        "act::a_job_that_left_the_states_it_was_selected_in_is_left_alone",
    ),
    (
        Sabotage::SelectsFromTheBeginning,
        "page::a_selection_has_the_ids_of_the_page",
    ),
    (
        Sabotage::SkipsOneJobPerPage,
        "page::a_walk_visits_every_job_once_in_both_orders",
    ),
    (
        Sabotage::IgnoresCursors,
        "page::a_walk_visits_every_job_once_in_both_orders",
    ),
    (
        Sabotage::ShowsWholeJobsInOutlines,
        "page::an_outline_has_all_but_what_may_be_large",
    ),
    (
        Sabotage::ListsWholeJobsForOutlines,
        "page::an_outline_has_all_but_what_may_be_large",
    ),
    (
        Sabotage::PagesByOffset,
        "page::a_walk_misses_nothing_while_jobs_are_added",
    ),
    (
        Sabotage::PurgesTooYoung,
        "purge::a_job_is_purged_when_it_is_older_than_asked_and_not_before",
    ),
    (
        Sabotage::IgnoresPausedQueues,
        "queue::no_handle_claims_from_a_paused_queue",
    ),
    (
        Sabotage::IgnoresPausedKinds,
        "queue::no_handle_claims_a_job_of_a_paused_kind",
    ),
    (
        Sabotage::ReplacesPauses,
        "queue::pauses_are_listed_with_their_time_operator_and_reason",
    ),
    (
        Sabotage::LosesReasonsOfPauses,
        "queue::pauses_are_listed_with_their_time_operator_and_reason",
    ),
    (
        Sabotage::ResumesKindsWithQueues,
        "queue::a_queue_and_a_kind_of_one_name_are_paused_separately",
    ),
    (
        Sabotage::ForgetsPayloadVersions,
        "claim::the_version_of_a_payload_comes_with_every_claim",
    ),
    (
        Sabotage::IgnoresLanes,
        "lane::jobs_go_in_the_order_of_their_enqueues_whatever_the_clock_says",
    ),
    (
        Sabotage::OrdersLanesByTime,
        "lane::a_batch_enters_its_lanes_in_its_own_order",
    ),
    (
        Sabotage::LetsDuplicatesTakePlaces,
        "lane::what_is_not_stored_takes_no_place",
    ),
    (
        Sabotage::ForgetsToPromoteAfterSettle,
        "lane::one_call_ends_the_heads_of_many_lanes",
    ),
    (
        Sabotage::ForgetsToPromoteAfterCancel,
        "lane::every_end_of_a_head_lets_exactly_the_next_go",
    ),
    (
        Sabotage::PromotesOnRetry,
        "lane::a_head_that_backs_off_snoozes_or_is_handed_back_keeps_its_lane",
    ),
    (
        Sabotage::ClaimsForInactiveNodes,
        "claim::only_an_active_node_gets_jobs",
    ),
    (
        Sabotage::HoldsSilenceAgainstAll,
        "reclaim::after_an_outage_silence_counts_against_no_node",
    ),
    (
        Sabotage::TakesLateClaimsInAnOutage,
        "reclaim::while_silence_does_not_count_no_claim_of_a_live_node_is_too_old",
    ),
    (
        Sabotage::AgesAcrossSteps,
        "reclaim::what_a_step_of_the_clock_makes_look_late_is_not",
    ),
    (
        Sabotage::AgesAcrossSteps,
        "node::a_step_of_the_clock_makes_no_node_look_silent",
    ),
    (
        Sabotage::TrustsEveryTime,
        "reclaim::a_pass_that_meets_a_step_takes_only_from_the_ended",
    ),
    (
        Sabotage::TrustsEveryTime,
        "node::a_step_of_the_clock_makes_no_node_look_silent",
    ),
    (
        Sabotage::BlamesNobody,
        "reclaim::a_job_that_crashed_before_is_blamed_only_if_its_body_had_begun",
    ),
    (
        Sabotage::KeepsCancelsFromHeartbeats,
        "node::a_node_is_told_of_its_own_claims_only",
    ),
    (
        Sabotage::LetsLabelsBeShared,
        "node::a_new_node_displaces_the_others_with_its_label",
    ),
    (
        Sabotage::RevivesDeadNodes,
        "node::a_status_follows_the_rule",
    ),
    (
        Sabotage::ReadsTheProcessClock,
        "time::the_time_read_agrees_with_the_times_written",
    ),
    (
        Sabotage::ReusesFences,
        "lock::fences_grow_over_releases_and_expiries",
    ),
    (
        Sabotage::CountsFences,
        "lock::a_fence_is_never_below_the_databases_time",
    ),
    (
        Sabotage::ComparesNoNodes,
        "token::a_claim_of_the_same_number_by_another_node_is_stale",
    ),
    (
        Sabotage::ComparesNoTimes,
        "token::a_claim_of_the_same_number_and_node_from_another_time_is_stale",
    ),
    (
        Sabotage::ForgetsWhenNodesWereSeen,
        "node::a_heartbeat_says_when_its_node_was_seen_before",
    ),
    (
        Sabotage::LetsLocksNeverExpire,
        "lock::a_lock_is_free_when_its_time_has_passed_and_not_before",
    ),
    (
        Sabotage::LetsLocksExpireEarly,
        "lock::a_lock_is_free_when_its_time_has_passed_and_not_before",
    ),
    (
        Sabotage::ChecksLocksBeforeItTakesThem,
        "lock::of_many_racers_one_acquires",
    ),
    (
        Sabotage::LetsAnyoneRelease,
        "lock::only_its_owner_with_its_fence_releases_it",
    ),
    (
        Sabotage::IgnoresGuards,
        "guard::writes_of_an_expired_tenure_are_stale_even_without_a_successor",
    ),
    (
        Sabotage::ChecksOnlyTheOwnerOfAGuard,
        "guard::a_leader_elected_again_writes_in_its_new_term_only",
    ),
    (
        Sabotage::ForgetsThatLocksWereReleased,
        "guard::a_role_given_up_is_free_at_once_and_one_abandoned_after_the_delay",
    ),
    (
        Sabotage::ReadsVersionsBeforeItBumps,
        "version::of_bumps_at_once_each_has_its_own_version",
    ),
    (
        Sabotage::HidesTheOtherNodes,
        "node::a_node_is_told_whether_it_is_alone",
    ),
    (
        Sabotage::ListsOnlyClaimsToCancel,
        "node::a_heartbeat_lists_the_claims_of_its_node",
    ),
    (
        Sabotage::ListsTheClaimsOfOtherNodes,
        "node::a_heartbeat_lists_the_claims_of_its_node",
    ),
    (
        Sabotage::RecordsUndeliveredAsReleased,
        "settle::a_claim_that_its_node_never_received_goes_back_at_no_cost",
    ),
    (
        Sabotage::TakesEveryRegistryForOld,
        "reclaim::where_all_nodes_lost_their_rows_each_has_time_to_register_again",
    ),
    (
        Sabotage::RenewsWhatIsLost,
        "concurrency::a_renewal_and_a_takeover_at_the_expiry_agree",
    ),
    (
        Sabotage::ForgetsIdempotencyKeysOnPurge,
        "concurrency::an_enqueue_and_the_purge_of_its_first_job_agree",
    ),
    (
        Sabotage::IgnoresRecurringTokens,
        "recurring_fire::whatever_happens_to_a_definition_makes_an_open_claim_stale",
    ),
    (
        Sabotage::IgnoresRecurringTokens,
        "recurring_fire::of_many_that_fire_one_slot_one_makes_its_job",
    ),
    (
        Sabotage::MovesOnWithoutJobs,
        "recurring_fire::racing_tickers_make_one_job_for_every_slot",
    ),
    (
        Sabotage::ClaimsPausedDefinitions,
        "recurring::a_paused_definition_is_not_due_and_goes_on_in_the_future",
    ),
    (
        Sabotage::ClaimsDefinitionsEarly,
        "recurring_fire::a_definition_is_due_from_the_millisecond_of_its_slot",
    ),
    (
        Sabotage::ForgetsLeases,
        "recurring_fire::a_claimed_definition_is_left_to_its_node_until_the_lease_ends",
    ),
    (
        Sabotage::LeavesGhosts,
        "recurring::a_definition_that_is_created_again_knows_nothing_of_the_one_before",
    ),
    (
        Sabotage::HidesTheNextSlot,
        "recurring_fire::the_longest_due_go_first_and_what_is_left_is_told",
    ),
    (
        Sabotage::FiresLaterSlotsFirst,
        "recurring_fire::overdue_slots_run_as_the_misfire_policy_says",
    ),
    (
        Sabotage::RetiresWhateverItDoesNotKnow,
        "recurring::what_is_no_longer_declared_and_older_than_the_node_is_retired",
    ),
    (
        Sabotage::DeletesRunningJobs,
        "act::an_unfinished_job_is_never_deleted",
    ),
    (
        Sabotage::ReschedulesEndedJobs,
        "act::running_and_ended_jobs_keep_their_due_time",
    ),
    (
        Sabotage::SetsPrioritiesOfWaitingJobsOnly,
        "act::a_running_job_keeps_its_claim_and_has_the_priority_when_it_waits_again",
    ),
    (
        Sabotage::IgnoresCaseOfTags,
        "tag::listings_and_counts_by_tag_are_exact",
    ),
    (
        Sabotage::StartsEveryPassAnew,
        "act::passes_go_on_behind_the_last_job_until_there_is_none",
    ),
    (
        Sabotage::LosesArchivedJobs,
        "archive::an_archived_job_is_whole_and_no_longer_among_the_jobs",
    ),
    (
        Sabotage::ArchivesWithoutHistory,
        "archive::an_archived_job_is_whole_and_no_longer_among_the_jobs",
    ),
    (
        Sabotage::ArchivesTooYoung,
        "archive::a_job_is_archived_when_it_is_older_than_asked_and_not_before",
    ),
    (
        Sabotage::PurgesTheArchiveTooYoung,
        "archive::the_archive_forgets_the_longest_finished_first",
    ),
    (
        Sabotage::IgnoresGuards,
        "archive::a_deposed_leader_neither_archives_nor_empties_the_archive",
    ),
    (
        Sabotage::CountsPermitsBeforeItClaims,
        "permit::of_many_claimers_at_once_as_many_jobs_are_had_as_there_are_permits",
    ),
    (
        Sabotage::IgnoresPermits,
        "permit::no_more_jobs_run_than_there_are_permits",
    ),
    (
        Sabotage::ChangesDeclaredPermits,
        "permit::a_resource_that_is_known_keeps_its_number_when_it_is_declared",
    ),
    (
        Sabotage::HoldsPermitsForEver,
        "permit::every_end_of_a_claim_frees_its_permit_at_once",
    ),
    (
        Sabotage::FreesPermitsTwice,
        "permit::settling_twice_frees_one_permit",
    ),
    (
        Sabotage::LetsPermitsHoldOthersUp,
        "permit::a_used_up_resource_blocks_no_other_job",
    ),
    (
        Sabotage::TakesUnknownPermits,
        "permit::a_permit_of_an_unknown_resource_is_refused_and_nothing_is_stored",
    ),
    (
        Sabotage::ChangesPermitsLate,
        "permit::a_resource_can_get_more_permits_and_fewer",
    ),
    (
        Sabotage::GrantsEveryStart,
        "rate::all_handles_together_get_a_burst_and_then_wait",
    ),
    (
        Sabotage::SharesOneRate,
        "rate::keys_have_nothing_to_do_with_each_other",
    ),
    (
        Sabotage::RefillsByTheProcessClock,
        "rate::a_start_is_granted_when_the_wait_is_over_and_not_before",
    ),
    (
        Sabotage::LooksAtRatesBeforeItTakes,
        "rate::of_many_takers_at_once_as_many_are_granted_as_the_burst_has",
    ),
    (
        Sabotage::ForgetsRatesInUse,
        "rate::only_keys_that_are_as_if_unused_are_forgotten",
    ),
    (
        Sabotage::ForgetsToPromoteAfterSettle,
        "link::a_released_job_is_due_when_it_was_or_now",
    ),
    (
        Sabotage::ForgetsToPromoteAfterSettle,
        "batch::callbacks_are_decided_as_soon_as_they_can_be",
    ),
    (
        Sabotage::ForgetsToPromoteAfterCancel,
        "link::cancelling_a_whole_subtree_answers_for_each_that_was_named",
    ),
    (
        Sabotage::ForgetsToReleaseAfterReclaim,
        "link::every_end_of_a_parent_decides_every_condition",
    ),
    (
        Sabotage::CallsBackTwice,
        "batch::fifty_children_that_end_at_once_are_all_counted_and_one_calls_back",
    ),
    (
        Sabotage::CallsBackTwice,
        "batch::the_last_two_children_end_at_once_and_the_batch_ends_once",
    ),
    (
        Sabotage::CallsBackTwice,
        "link::of_parents_that_end_at_once_exactly_one_releases_the_child",
    ),
    (
        Sabotage::LosesCancelledChildren,
        "batch::children_join_in_chunks_and_are_counted_by_the_write_that_ends_them",
    ),
    (
        Sabotage::CountsRequeuedChildrenAgain,
        "batch::a_requeued_child_is_not_counted_again",
    ),
    (
        Sabotage::LetsClosedBatchesGrow,
        "batch::only_what_is_stored_joins_and_only_an_open_batch",
    ),
    (
        Sabotage::ForgetsToDecideAtTheClose,
        "batch::an_open_batch_has_not_ended_and_its_close_decides",
    ),
    (
        Sabotage::LosesLinksOfPurgedParents,
        "link::links_outlive_their_parents_and_go_with_their_children",
    ),
    (
        Sabotage::SwallowsBadLinks,
        "link::a_missing_parent_keeps_the_whole_enqueue_out",
    ),
    (
        Sabotage::SwallowsBadLinks,
        "link::jobs_that_would_wait_for_themselves_are_refused",
    ),
    (
        Sabotage::DeliversLateSignals,
        "signal::a_signal_without_a_receiver_says_why",
    ),
    (
        Sabotage::ForgetsDeadlines,
        "signal::a_job_whose_signal_does_not_come_fails_at_its_deadline",
    ),
    (
        Sabotage::LosesSignalPayloads,
        "signal::a_job_runs_when_its_signal_has_come_and_can_read_it",
    ),
    (
        Sabotage::AnswersRepeatedSignalsAsDelivered,
        "signal::a_job_runs_when_its_signal_has_come_and_can_read_it",
    ),
    (
        Sabotage::LeavesPausedRoutesOut,
        "queue::routes_are_due_from_the_millisecond_their_first_job_is",
    ),
    (
        Sabotage::ListsNoUpcomingRoutes,
        "queue::a_route_that_comes_due_in_the_given_time_is_listed_with_what_is_left",
    ),
    (
        Sabotage::CountsWhatIsNotDue,
        "queue::due_jobs_of_a_queue_are_counted_up_to_a_limit",
    ),
    (
        Sabotage::CountsBeyondTheLimit,
        "queue::due_jobs_of_a_queue_are_counted_up_to_a_limit",
    ),
    (
        Sabotage::ListsHeldLocksOnly,
        "lock::locks_are_listed_by_name_as_each_is",
    ),
    (
        Sabotage::ListsLocksByTheirUnits,
        "lock::names_of_any_characters_are_listed_by_their_bytes",
    ),
    (
        Sabotage::StumblesOverSpoiledLocks,
        "lock::a_lock_that_cannot_be_read_is_left_out_of_the_list",
    ),
    (
        Sabotage::LetsSpoiledLocksTakePlaces,
        "lock::a_lock_that_cannot_be_read_is_left_out_of_the_list",
    ),
    (
        Sabotage::TakesNoKindsForSilence,
        "node::a_node_says_which_kinds_it_runs_or_nothing",
    ),
    (
        Sabotage::LosesTotals,
        "node::a_node_says_what_it_has_done_or_nothing",
    ),
    (Sabotage::LooksByWriting, "diag::to_look_changes_nothing"),
    (
        Sabotage::CriesWolf,
        "diag::a_database_as_it_is_made_has_no_errors",
    ),
    (
        Sabotage::ListsFindingsAsTheyCome,
        "diag::a_database_as_it_is_made_has_no_errors",
    ),
    (
        Sabotage::EndsAtALookThatFails,
        "diag::a_look_that_fails_keeps_no_other_finding_away",
    ),
];

/// Returns every sabotage together with the case that catches it.
fn catches() -> impl Iterator<Item = (Sabotage, &'static str)> {
    let all = [CATCHES, answers::CATCHES, mutants::CATCHES];
    all.into_iter().flatten().copied()
}

/// The sabotages that the differential cases must also find, by comparing random histories with the
/// model.
const FOUND_BY_HISTORIES: &[Sabotage] = &[
    Sabotage::IgnoresDueTimes,
    Sabotage::NeverFreesUniqueKeys,
    Sabotage::FreesUniqueKeysOnClaim,
    Sabotage::ClaimsTwice,
    Sabotage::ClaimsFirstInFirstOut,
    Sabotage::IgnoresAging,
    Sabotage::ClaimsUntaggedJobsUnasked,
    Sabotage::IgnoresExceptions,
    Sabotage::SaysThatOthersWait,
    Sabotage::IgnoresTokensOnSettle,
    Sabotage::IgnoresTokensOnReport,
    Sabotage::AnswersRepeatsAsStale,
    Sabotage::CountsSnoozesAsAttempts,
    Sabotage::ReclaimsLate,
    Sabotage::IgnoresTheCrashBudget,
    Sabotage::SkipsOneJobPerPage,
    Sabotage::PurgesTooYoung,
    Sabotage::IgnoresPausedQueues,
    Sabotage::IgnoresPausedKinds,
    Sabotage::ReplacesPauses,
    Sabotage::LosesReasonsOfPauses,
    Sabotage::ForgetsPayloadVersions,
    Sabotage::ForgetsToPromoteAfterSettle,
    Sabotage::ForgetsToPromoteAfterCancel,
    Sabotage::PromotesOnRetry,
    Sabotage::LetsLabelsBeShared,
    Sabotage::ReusesFences,
    Sabotage::ComparesNoNodes,
    Sabotage::IgnoresRecurringTokens,
    Sabotage::MovesOnWithoutJobs,
    Sabotage::ClaimsPausedDefinitions,
    Sabotage::SetsPrioritiesOfWaitingJobsOnly,
    Sabotage::IgnoresCaseOfTags,
    Sabotage::LosesArchivedJobs,
    Sabotage::ArchivesTooYoung,
    Sabotage::IgnoresPermits,
    Sabotage::HoldsPermitsForEver,
    Sabotage::FreesPermitsTwice,
    Sabotage::LetsPermitsHoldOthersUp,
    Sabotage::GrantsEveryStart,
    Sabotage::LosesCancelledChildren,
    Sabotage::CountsRequeuedChildrenAgain,
    Sabotage::LetsClosedBatchesGrow,
    Sabotage::ForgetsToDecideAtTheClose,
    Sabotage::SwallowsBadLinks,
    Sabotage::DeliversLateSignals,
    Sabotage::ForgetsDeadlines,
    Sabotage::LosesSignalPayloads,
    Sabotage::AnswersRepeatedSignalsAsDelivered,
    Sabotage::LeavesPausedRoutesOut,
    Sabotage::ListsNoUpcomingRoutes,
    Sabotage::ListsHeldLocksOnly,
    Sabotage::TakesNoKindsForSilence,
    Sabotage::LosesTotals,
];

async fn check(sabotage: Sabotage, case: &str) -> Result<(), Failure> {
    let found =
        Suite::case(case).unwrap_or_else(|| panic!("the suite should have the case {case}"));
    Suite::check_without_shrinking(found, &powers(), sabotaged(sabotage)).await
}

fn sabotaged(sabotage: Sabotage) -> Factory {
    Factory::new(move || async move { Ok(SabotagedFixture::new(sabotage)) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sabotage_is_caught_by_its_case() {
    let mut missed = Vec::new();
    for (sabotage, case) in catches() {
        if check(sabotage, case).await.is_ok() {
            missed.push((sabotage, case));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_honest_store_passes_the_same_cases() {
    for (_, case) in catches() {
        if let Err(failure) = check(Sabotage::None, case).await {
            panic!("{case}: {failure}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_find_sabotages_by_themselves() {
    let mut missed = Vec::new();
    for sabotage in FOUND_BY_HISTORIES {
        let mut told = None;
        for part in ["zero", "one", "two", "three", "four"] {
            let case = format!("differential::histories_ending_in_{part}_match_the_model");
            told = check(*sabotage, &case).await.err();
            if told.is_some() {
                break;
            }
        }
        match told.map(|failure| failure.to_string()) {
            None => missed.push(sabotage),
            Some(told) => assert!(told.contains("RATCHET_SEED="), "{told}"),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// A sabotage that its case notices only after a minute without a wakeup, so its test pauses the
/// clock.
const SILENT: (Sabotage, &str) = (
    Sabotage::OverstatesItsReach,
    "node::wakeups_reach_every_handle_if_the_store_says_so",
);

#[tokio::test(start_paused = true)]
async fn a_silent_sabotage_is_caught_by_its_case() {
    let (sabotage, case) = SILENT;
    assert!(check(sabotage, case).await.is_err());
    check(Sabotage::None, case).await.unwrap();
}

#[test]
fn every_sabotage_is_tried() {
    for sabotage in Sabotage::ALL {
        let tried = catches()
            .chain([SILENT])
            .any(|(other, _)| other == *sabotage);
        assert!(
            tried,
            "expected a case that catches {sabotage:?}, found none"
        );
    }
}
