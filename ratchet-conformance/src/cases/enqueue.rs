//! Enqueueing: what a call stores, and that it stores either all of its jobs or none.

use futures_util::FutureExt;
use ratchet_core::limits::MAX_PAYLOAD_BYTES;

use super::prelude::*;

cases! {
    "enqueue" on Cx;

    #[proves("enqueue.created", "get.whole")]
    async fn a_job_is_stored_pending_as_it_was_given(cx: &Cx) {
        let node = cx.node().await;
        let trace = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .and_then(|trace| trace.with_state("vendor=1,other=2"))
            .expect("a valid trace");
        let new = NewJob::new("resize", &("cat.png", 640))
            .queue("images")
            .capability("gpu")
            .payload_version(3)
            .priority(Priority::High)
            .retry(RetryPolicy::linear(7, SECOND, MINUTE).with_jitter(10))
            .timeout(90 * SECOND)
            .stall_timeout(1_500 * MILLI)
            .unique_key("cat")
            .trace(trace);
        let new = cx.once(new, "upload 7");
        let before = node.now().await;
        let id = node.add(new.clone()).await;
        let after = node.now().await;
        let stored = node.get(id).await;
        assert_eq!(stored.spec, *new.spec());
        assert!(before <= stored.created_at && stored.created_at <= after);
        let expected = JobRecord::new(id, new.spec().clone(), stored.created_at, stored.created_at);
        assert_eq!(stored, expected);
    }

    #[proves("enqueue.created")]
    async fn a_plain_job_has_the_defaults(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(NewJob::new("k", &())).await;
        let spec = node.get(id).await.spec;
        assert_eq!(spec.route.queue, NewJob::DEFAULT_QUEUE);
        assert_eq!((spec.priority, spec.payload_version), (Priority::Normal, 1));
        assert_eq!(spec.retry, RetryPolicy::default());
        assert_eq!((spec.timeout, spec.stall_timeout), (None, None));
        assert_eq!((spec.unique_key, spec.idempotency_key), (None, None));
        assert_eq!((spec.route.capability, spec.trace), (None, None));
    }

    #[proves("enqueue.created")]
    async fn the_answers_are_in_the_order_of_the_jobs(cx: &Cx) {
        let node = cx.node().await;
        let mut batch = jobs(50);
        batch.reverse();
        let ids = node.add_all(&batch).await;
        let stored: Vec<JobId> = node.everything().await.iter().map(|job| job.id).collect();
        assert_eq!(stored, ids.into_iter().rev().collect::<Vec<_>>());
    }

    #[proves("enqueue.created")]
    async fn an_empty_batch_does_nothing(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(node.enqueue(&[]).await, []);
        assert!(node.everything().await.is_empty());
    }

    #[proves("enqueue.created")]
    async fn every_handle_sees_a_job_once_its_enqueue_has_returned(cx: &Cx) {
        let nodes = cx.nodes(3).await;
        for writer in &nodes {
            let id = writer.add(job()).await;
            for reader in &nodes {
                assert_eq!(reader.state(id).await, JobState::Pending);
            }
        }
    }

    #[proves("enqueue.atomic", "enqueue.validate")]
    async fn one_bad_job_keeps_the_whole_batch_out(cx: &Cx) {
        let node = cx.node().await;
        let good = || cx.once(job().unique_key("unique"), "once");
        for position in 0..3 {
            let mut batch = vec![good(), job(), job()];
            batch[position] = job().queue("");
            assert_refused(node.jobs().enqueue(&batch).await, "queue");
            assert!(node.everything().await.is_empty());
        }
        let taken = node.offer(&good()).await;
        assert!(matches!(taken, Enqueued::Created(_)), "expected the refused call to leave the unique key unused");
    }

    #[proves("enqueue.atomic")]
    async fn a_dropped_enqueue_has_stored_all_of_its_jobs_or_none(cx: &Cx) {
        let node = cx.node().await;
        let batches: Vec<Vec<NewJob>> = (0..20).map(|_| jobs(10)).collect();
        for (polls, batch) in batches.iter().enumerate() {
            let mut call = node.jobs().enqueue(batch);
            // Polls the call `polls` times and then drops it, even if it has not completed.
            for _ in 0..polls {
                if (&mut call).now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // The dropped calls have left the store usable.
        node.add(NewJob::new("last", &())).await;
        for batch in &batches {
            let ids: Vec<JobId> = batch.iter().map(NewJob::id).collect();
            let stored = node.get_all(&ids).await.iter().flatten().count();
            assert!(stored == 0 || stored == 10, "expected all 10 jobs or none to be stored, found {stored}");
        }
    }

    #[proves("enqueue.repeat")]
    async fn a_repeated_enqueue_leaves_one_job(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let new = job();
        a.add(new.clone()).await;
        let stored = a.get(new.id()).await;
        b.add(new.clone()).await;
        assert_eq!(a.everything().await, [stored]);
    }

    #[proves("enqueue.repeat")]
    async fn a_repeat_after_the_job_ran_changes_nothing(cx: &Cx) {
        let node = cx.node().await;
        let new = cx.once(job().unique_key("u"), "i");
        node.add(new.clone()).await;
        let token = node.take().await;
        let running = node.get(new.id()).await;
        node.add(new.clone()).await;
        assert_eq!(node.get(new.id()).await, running);
        node.succeed(token).await;
        let ended = node.get(new.id()).await;
        node.add(new.clone()).await;
        assert_eq!(node.get(new.id()).await, ended);
        assert!(node.claim(10).await.is_empty());
    }

    #[proves("enqueue.repeat")]
    async fn the_same_job_twice_in_one_batch_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let twice = cx.once(job().unique_key("u"), "i");
        let batch = [twice.clone(), job(), twice.clone()];
        assert_refused(node.jobs().enqueue(&batch).await, "jobs");
        assert_eq!(node.everything().await.len(), 0);
        // To enqueue the same content twice, a program needs a second job with its own id. Here
        // both jobs also have the same keys, so the second one is a duplicate.
        let batch = [twice.another(), twice];
        let answers = node.enqueue(&batch).await;
        assert_eq!(answers[1], Enqueued::Duplicate(answers[0].id()));
    }

    #[proves("enqueue.repeat")]
    async fn a_repeated_batch_adds_only_what_was_not_there(cx: &Cx) {
        let node = cx.node().await;
        let batch: Vec<NewJob> = (0..6)
            .map(|number| job().unique_key(&format!("key {number}")))
            .collect();
        node.add_all(&batch[1..3]).await;
        node.add_all(&batch).await;
        assert_eq!(node.everything().await.len(), 6);
    }

    #[proves("enqueue.due", "time.clock")]
    #[needs(Clock)]
    async fn a_delay_counts_from_the_databases_clock(cx: &Cx) {
        let node = cx.node().await;
        cx.advance(1_000 * DAY).await;
        let now = node.now().await;
        let at_once = node.add(job()).await;
        let later = node.add(job().delay(90 * SECOND)).await;
        assert_eq!(node.get(at_once).await.run_at, now);
        assert_eq!(node.get(later).await.run_at, time::add(now, 90 * SECOND));
    }

    #[proves("enqueue.due")]
    async fn a_due_time_in_the_past_is_kept(cx: &Cx) {
        let node = cx.node().await;
        for millis in [0, 1, 999_999_999_999] {
            let past = time::from_millis(millis);
            let id = node.add(job().run_at(past)).await;
            assert_eq!(node.get(id).await.run_at, past);
        }
        assert_eq!(node.claim(10).await.len(), 3);
    }

    #[proves("enqueue.due")]
    async fn due_times_up_to_the_year_9999_are_kept(cx: &Cx) {
        let node = cx.node().await;
        let last = time::from_millis(253_402_300_799_999);
        let id = node.add(job().run_at(last)).await;
        assert_eq!(node.get(id).await.run_at, last);
        let id = node.add(job().delay(365_000 * DAY)).await;
        assert!(node.get(id).await.run_at > time::from_millis(0));
        assert!(node.claim(10).await.is_empty());
    }

    #[proves("enqueue.validate", "errors.kind")]
    async fn everything_that_cannot_be_stored_is_refused_by_name(cx: &Cx) {
        let node = cx.node().await;
        let long = "x".repeat(129);
        let table = [
            (NewJob::new("", &()), "kind"),
            (NewJob::new("nul\0", &()), "kind"),
            (job().queue(&long), "queue"),
            (job().queue("line\nbreak"), "queue"),
            (job().capability(" space"), "capability"),
            (job().unique_key("\u{7f}"), "unique_key"),
            (job().idempotency_key(&long), "idempotency_key"),
            (job().timeout(Duration::ZERO), "timeout"),
            (job().stall_timeout(Duration::ZERO), "stall_timeout"),
            (job().retry(RetryPolicy::new(0, Backoff::None)), "retry"),
            (job().run_at(time::from_millis(-1)), "run_at"),
            (
                job().run_at(time::from_millis(253_402_300_800_000)),
                "run_at",
            ),
            (job().delay(Duration::MAX), "delay"),
            (job().payload_version(0), "payload_version"),
            (job().payload_version(u32::MAX), "payload_version"),
        ];
        for (bad, field) in table {
            assert_refused(node.jobs().enqueue(&[bad]).await, field);
        }
        assert!(node.everything().await.is_empty());
    }

    #[proves("enqueue.validate", "limits.batch")]
    async fn a_payload_is_taken_up_to_its_limit_and_not_beyond(cx: &Cx) {
        let node = cx.node().await;
        // `ä` has two bytes, and the quotes of the JSON string add two more.
        let largest = "ä".repeat(MAX_PAYLOAD_BYTES / 2 - 1);
        let id = node.add(NewJob::new("kind", &largest)).await;
        let stored = node.get(id).await.spec.payload;
        assert_eq!(stored.decode::<String>().ok(), Some(largest.clone()));
        for bytes in [largest.len() + 1, 1024 * 1024] {
            let too_large = NewJob::new("kind", &"x".repeat(bytes));
            assert_refused(node.jobs().enqueue(&[too_large]).await, "payload");
        }
    }

    #[proves("enqueue.created", "claim.whole")]
    async fn payloads_come_back_byte_for_byte(cx: &Cx) {
        let node = cx.node().await;
        let texts = [
            "",
            " ",
            "x",
            "odd",
            "größe",
            "日本語",
            "🦀👩‍👩‍👧",
            "quote \" and \\ and '",
            "%_[]^",
            "\u{0}",
            "\u{1}\u{1f}\u{7f}",
            "\u{feff}mark",
            "line\r\nend\u{2028}",
            "\u{fffd}",
            "--; DROP TABLE jobs",
            "$1 ?1 :x @p",
            "{{x}}",
        ];
        let mut batch: Vec<NewJob> = texts.iter().map(|text| NewJob::new("kind", text)).collect();
        batch.push(NewJob::new(
            "kind",
            &(u64::MAX, i64::MIN, 0.1, f64::MIN_POSITIVE),
        ));
        batch.push(NewJob::new("kind", &[[(); 3]; 2]));
        node.add_all(&batch).await;
        let claimed = node.claim(batch.len()).await;
        assert_eq!(claimed.len(), batch.len());
        for (new, claimed) in batch.iter().zip(claimed) {
            assert_eq!(input(&claimed).payload.as_str(), new.spec().payload.as_str());
            let stored = node.get(new.id()).await;
            assert_eq!(stored.spec.payload, new.spec().payload);
        }
    }

    #[proves("enqueue.created", "claim.match")]
    async fn names_of_every_kind_are_kept_apart_and_found_again(cx: &Cx) {
        let node = cx.node().await;
        let longest = "n".repeat(Name::MAX_BYTES);
        let widest = "日".repeat(Name::MAX_BYTES / 3);
        let odd = [
            "a",
            "A",
            "á",
            "a\u{301}",
            "ａ",
            "ß",
            "ss",
            "with space",
            "per%cent",
            "under_score",
            "quote'd",
            "\"double\"",
            "back\\slash",
            "semi;colon",
            "dots.and-dashes",
            "日本",
            "🦀",
            "null",
            "1",
            "01",
            &longest,
            &widest,
        ];
        let batch: Vec<NewJob> = odd
            .iter()
            .map(|text| {
                NewJob::new(text, &())
                    .queue(text)
                    .capability(text)
                    .unique_key(text)
            })
            .collect();
        let ids_in = node.add_all(&batch).await;
        for (text, id) in odd.iter().zip(ids_in) {
            let only = || Selection::Only(names([text]));
            let request = node
                .request(100)
                .queues(only())
                .kinds(only())
                .capabilities(names([text]));
            let claimed = node.claim_with(&request).await;
            assert_eq!(ids(&claimed), [id], "{text:?}");
            assert_eq!(claimed[0].claim.route.queue, *text);
        }
    }
}
