use super::*;
use crate::model::JobFlags;

fn field(job: &NewJob) -> &'static str {
    job.validate().unwrap_err().field()
}

#[test]
fn the_first_problem_is_told_and_named() {
    let job = || NewJob::new("kind", &1);
    assert!(job().validate().is_ok());
    assert_eq!(field(&NewJob::new("", &1)), "kind");
    assert_eq!(field(&job().queue("a\0b")), "queue");
    assert_eq!(field(&job().capability("").queue("")), "capability");
    assert_eq!(field(&job().timeout(Duration::ZERO)), "timeout");
    assert_eq!(field(&job().stall_timeout(Duration::ZERO)), "stall_timeout");
    assert_eq!(field(&job().unique_key(&"k".repeat(129))), "unique_key");
    assert_eq!(field(&job().unique_key("recurring/d")), "unique_key");
    assert_eq!(field(&job().idempotency_key(" k")), "idempotency_key");
    assert_eq!(field(&job().lane("")), "lane");
    assert_eq!(field(&job().tag("a\tb")), "tag");
    assert_eq!(field(&job().payload_version(0)), "payload_version");
    assert_eq!(field(&job().payload_version(u32::MAX)), "payload_version");
    assert_eq!(field(&job().permit("a\nb")), "permit");
    assert_eq!(field(&job().run_at(time::from_millis(-1))), "run_at");
    assert_eq!(field(&job().run_at(time::from_millis(i64::MAX))), "run_at");
    assert_eq!(field(&job().delay(Duration::MAX)), "delay");
    assert_eq!(field(&job().wait_for("", MAX_DELAY)), "signal");
    assert_eq!(field(&job().wait_for("s", Duration::ZERO)), "timeout");
    assert_eq!(field(&job().wait_for("s", Duration::MAX)), "timeout");
    let bad = BatchCondition::FailuresReach(0);
    assert_eq!(field(&job().after_batch(BatchId::new(), bad)), "condition");
}

#[test]
fn a_job_in_a_lane_waits_for_nothing_else() {
    let job = || NewJob::new("kind", &1).lane("l");
    let (parent, second) = (JobId::new(), Duration::from_secs(1));
    assert!(job().in_batch(BatchId::new()).validate().is_ok());
    assert_eq!(field(&job().after(parent, Condition::Ended)), "lane");
    assert_eq!(field(&job().wait_for("s", second)), "lane");
    let callback = job().after_batch(BatchId::new(), BatchCondition::Ended);
    assert_eq!(field(&callback), "lane");
}

#[test]
fn a_job_needs_a_transaction_for_what_it_shares_with_others() {
    let job = || NewJob::new("kind", &1);
    let linked = [
        job().after(JobId::new(), Condition::Ended),
        job().after_batch(BatchId::new(), BatchCondition::Ended),
        job().wait_for("s", Duration::from_secs(1)),
        job().in_batch(BatchId::new()),
    ];
    for job in linked {
        assert!(job.spec().is_linked() && job.spec().needs_transaction());
        assert!(JobFlags::of(job.spec()).has_any(JobFlags::LINKED));
    }
    let keyed = [job().unique_key("k"), job().idempotency_key("k")];
    for job in keyed.into_iter().chain([job().tag("t").permit("p")]) {
        assert!(!job.spec().is_linked() && !job.spec().needs_transaction());
        assert!(!JobFlags::of(job.spec()).has_any(JobFlags::LINKED));
    }
    let in_lane = job().lane("l");
    assert!(!in_lane.spec().is_linked() && in_lane.spec().needs_transaction());
}

#[test]
fn both_kinds_of_keys_are_keys() {
    let job = || NewJob::new("kind", &1);
    assert!(job().unique_key("k").spec().has_keys());
    assert!(job().idempotency_key("k").spec().has_keys());
    assert!(!job().tag("k").lane("k").spec().has_keys());
}

#[test]
fn a_job_that_may_change_the_holder_of_its_key_has_one_and_can_wait_for_it() {
    let (zero, second, minute) = (
        Duration::ZERO,
        Duration::from_secs(1),
        Duration::from_secs(60),
    );
    let keyed = || NewJob::new("kind", &1).unique_key("k");
    for mode in [OnConflict::Replace, OnConflict::Restart] {
        let job = || keyed().on_conflict(mode);
        assert!(job().validate().is_ok());
        assert!(job().needs_transaction());
        assert!(job().run_at(time::from_millis(7)).validate().is_ok());
        assert_eq!(
            field(&NewJob::new("kind", &1).on_conflict(mode)),
            "on_conflict"
        );
        assert_eq!(field(&job().lane("l")), "on_conflict");
        let parents = |count| {
            let parents = (0..count).map(|_| JobId::new());
            parents.fold(job(), |job, id| job.after(id, Condition::Ended))
        };
        assert!(parents(MAX_PARENTS - 1).validate().is_ok());
        assert_eq!(field(&parents(MAX_PARENTS)), "on_conflict");
    }
    assert!(keyed().debounce(second, second).validate().is_ok());
    assert!(keyed().debounce(second, MAX_DELAY).validate().is_ok());
    assert_eq!(field(&keyed().debounce(zero, second)), "delay");
    assert_eq!(field(&keyed().debounce(minute, second)), "max_delay");
    assert_eq!(field(&keyed().debounce(second, Duration::MAX)), "max_delay");
    let debounce = || keyed().debounce(second, minute);
    assert_eq!(
        field(&debounce().run_at(time::from_millis(7))),
        "on_conflict"
    );
    assert!(!keyed().needs_transaction());
    assert!(
        keyed()
            .lane("l")
            .on_conflict(OnConflict::Keep)
            .validate()
            .is_ok()
    );
}

#[test]
fn only_an_idempotency_key_has_a_lifetime() {
    let job = || NewJob::new("kind", &1).idempotency_key("k");
    let second = Duration::from_secs(1);
    assert!(job().unique_for(MAX_DELAY).validate().is_ok());
    assert_eq!(job().unique_for(second).key_expiry(7), Some(1_007));
    assert_eq!(job().key_expiry(7), None);
    assert_eq!(field(&job().unique_for(Duration::ZERO)), "unique_for");
    assert_eq!(field(&job().unique_for(Duration::MAX)), "unique_for");
    let unique = NewJob::new("kind", &1).unique_key("k");
    assert_eq!(field(&unique.unique_for(second)), "unique_for");
}

#[test]
fn a_call_contends_for_a_key_only_once() {
    let keyed = |key| NewJob::new("kind", &1).unique_key(key);
    let replaces = |key| keyed(key).on_conflict(OnConflict::Replace);
    let valid = |jobs: &[NewJob]| NewJob::validate_all(jobs);
    assert!(valid(&[keyed("k"), keyed("k")]).is_ok());
    assert!(valid(&[replaces("k"), replaces("l"), keyed("m"), keyed("m")]).is_ok());
    for jobs in [[replaces("k"), keyed("k")], [keyed("k"), replaces("k")]] {
        let error = valid(&jobs).unwrap_err();
        assert_eq!(error.invalid_input().unwrap().field(), "unique_key");
    }
}

#[test]
fn parents_have_a_limit() {
    let mut job = NewJob::new("kind", &1);
    for _ in 0..MAX_PARENTS {
        job = job.after(JobId::new(), Condition::Ended);
    }
    assert!(job.validate().is_ok());
    assert_eq!(field(&job.after(JobId::new(), Condition::Ended)), "parent");
}

#[test]
fn a_clone_is_the_same_job_and_another_is_not() {
    let job = NewJob::new("kind", &1);
    let error = NewJob::validate_all(&[job.clone(), job.clone()]).unwrap_err();
    assert_eq!(error.invalid_input().unwrap().field(), "jobs");
    assert!(NewJob::validate_all(&[job.another(), job]).is_ok());
}

#[test]
fn payloads_have_a_limit() {
    let fits = "x".repeat(MAX_PAYLOAD_BYTES - 2);
    assert!(NewJob::new("kind", &fits).validate().is_ok());
    assert_eq!(field(&NewJob::new("kind", &(fits + "x"))), "payload");
}

#[test]
fn tags_are_a_bounded_set_of_names() {
    let tagged = |count: usize| {
        let tags = (0..count).map(|number| format!("tag {number}"));
        tags.fold(NewJob::new("kind", &1), |job, tag| job.tag(&tag).tag(&tag))
    };
    assert!(tagged(MAX_TAGS).validate().is_ok());
    assert_eq!(field(&tagged(MAX_TAGS + 1)), "tag");
    assert_eq!(tagged(3).tag("Tag 0").spec().tags.len(), 4);
}
