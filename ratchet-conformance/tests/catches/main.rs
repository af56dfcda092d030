//! Tests of the suite itself: each sabotaged store must fail its case, and the correct store must
//! pass the same cases.

mod answers;
mod archive;
mod expiry;
mod fair;
mod flows;
mod jobs;
mod messages;
mod mutants;
mod pairs;
mod permits;
mod rates;
mod recurring;
mod roles;
mod sabotage;

use ratchet_conformance::{Factory, Failure, Suite};

use sabotage::{Sabotage, SabotagedFixture, powers};

/// Returns every sabotage together with the case that catches it.
fn catches() -> impl Iterator<Item = (Sabotage, &'static str)> {
    let all = [
        pairs::CATCHES,
        answers::CATCHES,
        mutants::CATCHES,
        fair::CATCHES,
        expiry::CATCHES,
    ];
    all.into_iter().flatten().copied()
}

/// The sabotages that the differential cases must also find, by comparing random histories with the
/// model.
const FOUND_BY_HISTORIES: &[Sabotage] = &[
    Sabotage::IgnoresDueTimes,
    Sabotage::NeverFreesUniqueKeys,
    Sabotage::FreesUniqueKeysOnClaim,
    Sabotage::NeverExpiresJobs,
    Sabotage::HidesExpiriesFromClaims,
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
    Sabotage::IgnoresFairLimits,
    Sabotage::LimitsAllKeysOfTheQueue,
    Sabotage::KeepsRemovedFairLimits,
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
