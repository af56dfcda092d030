//! Recurring definitions: stored, edited, listed, paused, deleted, retired.

use ratchet_core::Incarnation;
use ratchet_core::schedule::{Misfire, Overlap};

use super::prelude::*;

/// Returns the names of all recurring definitions, in the order in which the store lists them.
/// Reads pages of up to `limit` definitions.
async fn walk(node: &TestNode, limit: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut after: Option<Name> = None;
    let mut walk = Walk::new();
    loop {
        let page = ok(node.recurring().definitions(after.as_ref(), limit).await);
        assert!(page.definitions.len() <= limit, "{page:?}");
        names.extend(
            page.definitions
                .iter()
                .map(|one| one.definition.name().to_string()),
        );
        after = walk.on(page.next);
        if after.is_none() {
            return names;
        }
    }
}

async fn declare(node: &TestNode, named: &str) {
    let put = put(minutely().named(named)).declared(true);
    assert_eq!(ok(node.recurring().put(&put).await), PutOutcome::Created);
}

/// Acquires the lock `startup` for `node`. Returns a guard that is valid while the node holds the
/// lock.
async fn tenure(node: &TestNode) -> Guard {
    let Acquired::Acquired { fence } = node.acquire("startup", HOUR).await else {
        panic!("expected to acquire the free lock, found it held");
    };
    Guard {
        lock: name("startup"),
        owner: node.label.clone(),
        fence,
    }
}

cases! {
    "recurring" on Cx;

    #[proves("recurring.get")]
    async fn a_store_keeps_definitions_if_and_only_if_its_suite_was_told(cx: &Cx) {
        let store = cx.node().await.store;
        assert_eq!(store.recurring().is_some(), cx.has(Power::Recurring));
    }

    #[proves("recurring.create", "recurring.get", "time.clock")]
    #[needs(Clock, Recurring)]
    async fn a_definition_is_stored_whole_and_seen_by_every_handle(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let now = a.now().await;
        let template = NewJob::new("kind", &("ü\n\0", 1.5))
            .queue("Größe")
            .capability("gpu")
            .priority(Priority::High)
            .retry(RetryPolicy::fixed(3, 7 * SECOND))
            .timeout(90 * MILLI)
            .stall_timeout(80 * MILLI);
        let cron = put(Recurring::cron("*/5 * * * *")
            .zone("Europe/Berlin")
            .job(template)
            .misfire(Misfire::CatchUp(7))
            .overlap(Overlap::Skip)
            .starts_at(now + HOUR)
            .ends_at(now + DAY)
            .named("nächtlich"))
        .declared(true);
        let interval = put(minutely().named("minutely"));
        cx.proving(["recurring.create", "time.clock"]);
        for put in [&cron, &interval] {
            assert_eq!(ok(a.recurring().put(put).await), PutOutcome::Created);
            let stored = b.definition(put.definition.name().as_str()).await;
            assert_eq!(stored, RecurringRecord::created(put, now));
        }
        assert_eq!(b.definition("minutely").await.next_fire, Some(now + MINUTE));
        cx.proving(["recurring.get"]);
        assert_eq!(ok(b.recurring().find(&name("other")).await), None);
    }

    #[proves("recurring.create")]
    #[needs(Recurring)]
    async fn of_many_racers_that_put_a_definition_one_creates_it(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let outcomes = race(16, |racer| {
            let node = nodes[racer % 4].sibling();
            async move { node.put(minutely().named("n")).await }
        })
        .await;
        let created = |outcome: &&PutOutcome| **outcome == PutOutcome::Created;
        assert_eq!(outcomes.iter().filter(created).count(), 1, "{outcomes:?}");
        let same = |outcome: &&PutOutcome| **outcome == PutOutcome::Unchanged;
        assert_eq!(outcomes.iter().filter(same).count(), 15, "{outcomes:?}");
        assert_eq!(nodes[0].definition("n").await.revision, 1);
    }

    #[proves("recurring.edit", "recurring.due")]
    #[needs(Clock, Recurring)]
    async fn an_edit_to_a_shorter_interval_fires_soon(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let hourly = Recurring::every(HOUR).job(job()).named("n");
        let before = a.define(hourly).await;
        cx.advance(90 * SECOND).await;
        let edit = put(minutely().named("n"));
        assert_eq!(ok(b.recurring().put(&edit).await), PutOutcome::Changed);
        let after = a.definition("n").await;
        assert_eq!(Some(&after), before.edited(&edit, a.now().await).as_ref());
        assert_eq!(after.next_fire, Some(before.created_at + 2 * MINUTE));
        assert_eq!(after.incarnation, before.incarnation);
        cx.advance(30 * SECOND).await;
        assert_eq!(a.claim_due(1).await.definitions.len(), 1);
    }

    #[proves("recurring.edit")]
    #[needs(Clock, Recurring)]
    async fn an_edit_of_something_else_leaves_an_overdue_slot_and_a_pause(cx: &Cx) {
        let node = cx.node().await;
        node.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.set_definition_paused("n", true).await, Changed::Changed);
        let edit = minutely().overlap(Overlap::Skip).named("n");
        assert_eq!(node.put(edit).await, PutOutcome::Changed);
        let record = node.definition("n").await;
        assert!(record.paused);
        assert_eq!(record.next_fire, Some(record.created_at + MINUTE));
    }

    #[proves("recurring.edit", "recurring.stale")]
    #[needs(Clock, Recurring)]
    async fn putting_the_same_again_changes_nothing_and_keeps_a_claim_good(cx: &Cx) {
        let node = cx.node().await;
        node.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let firing = node.plan_one().await;
        let before = node.definition("n").await;
        assert_eq!(node.put(minutely().named("n")).await, PutOutcome::Unchanged);
        assert_eq!(node.definition("n").await, before);
        assert!(matches!(node.fire(&firing).await, Fired::Applied(_)));
    }

    #[proves("recurring.list")]
    #[needs(Recurring)]
    async fn a_walk_visits_every_definition_once_by_name(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(walk(&node, 3).await, [""; 0]);
        let mut names = ["b", "a", "B", "ä", "a b", "日本", "_", "～", "🦀", "a～", "a🦀"].map(str::to_owned);
        for named in &names {
            node.define(minutely().named(named)).await;
        }
        names.sort();
        for limit in [1, 2, 11, 100] {
            assert_eq!(walk(&node, limit).await, names, "pages of {limit}");
        }
        assert_refused(node.recurring().definitions(None, 0).await, "limit");
    }

    #[proves("recurring.pause", "recurring.resume", "recurring.hint")]
    #[needs(Clock, Recurring)]
    async fn a_paused_definition_is_not_due_and_goes_on_in_the_future(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let record = a.define(minutely().misfire(Misfire::CatchUp(9)).named("n")).await;
        cx.proving(["recurring.pause"]);
        assert_eq!(a.set_definition_paused("n", true).await, Changed::Changed);
        assert_eq!(b.set_definition_paused("n", true).await, Changed::Unchanged);
        cx.advance(5 * MINUTE + SECOND).await;
        let due = b.claim_due(1).await;
        assert_eq!((due.definitions, due.next_in), (vec![], None));
        cx.proving(["recurring.pause"]);
        assert_eq!(b.set_definition_paused("n", false).await, Changed::Changed);
        assert_eq!(a.set_definition_paused("n", false).await, Changed::Unchanged);
        cx.proving(["recurring.resume", "recurring.hint"]);
        let due = a.claim_due(1).await;
        assert_eq!((due.definitions, due.next_in), (vec![], Some(59 * SECOND)));
        let resumed = a.definition("n").await;
        assert_eq!(resumed.next_fire, Some(record.created_at + 6 * MINUTE));
        assert_eq!(resumed.revision, 3);
    }

    #[proves("recurring.hint", "recurring.pause", "recurring.claim")]
    #[needs(Clock, Recurring)]
    async fn the_hint_is_for_the_first_that_is_neither_paused_nor_claimed(cx: &Cx) {
        let node = cx.node().await;
        for (named, seconds) in [("paused", 10), ("claimed", 20), ("later", 3_600)] {
            let recurring = Recurring::every(seconds * SECOND).job(job());
            node.define(recurring.named(named)).await;
        }
        node.set_definition_paused("paused", true).await;
        let hint = async || {
            let due = node.claim_due(10).await;
            assert_eq!(due.definitions, []);
            due.next_in
        };
        assert_eq!(hint().await, Some(20 * SECOND));
        cx.advance(20 * SECOND).await;
        // The hint `next_in` ignores the definitions that the same call claims. In later calls,
        // these definitions count as due again when their lease ends.
        let due = node.claim_due(10).await;
        assert_eq!((due.definitions.len(), due.next_in), (1, Some(HOUR - 20 * SECOND)));
        assert_eq!(hint().await, Some(MINUTE));
        cx.advance(MINUTE - MILLI).await;
        assert_eq!(hint().await, Some(MILLI));
        node.set_definition_paused("claimed", true).await;
        assert_eq!(hint().await, Some(HOUR - 80 * SECOND + MILLI));
        // The resumed definition is unclaimed, and its next slot is at 80 s.
        node.set_definition_paused("claimed", false).await;
        assert_eq!(hint().await, Some(MILLI));
        for named in ["later", "claimed"] {
            node.set_definition_paused(named, true).await;
        }
        assert_eq!(hint().await, None);
    }

    #[proves("recurring.pause", "recurring.delete")]
    #[needs(Recurring)]
    async fn what_does_not_exist_is_neither_paused_nor_deleted(cx: &Cx) {
        let node = cx.node().await;
        for paused in [true, false] {
            assert_eq!(node.set_definition_paused("n", paused).await, Changed::Unchanged);
        }
        assert_eq!(node.delete_definition("n").await, Changed::Unchanged);
        assert_eq!(walk(&node, 1).await, [""; 0]);
    }

    #[proves("recurring.delete", "recurring.create")]
    #[needs(Clock, Recurring)]
    async fn a_definition_that_is_created_again_knows_nothing_of_the_one_before(cx: &Cx) {
        let node = cx.node().await;
        let first = node.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let firing = node.plan_one().await;
        let Fired::Applied(old) = node.fire(&firing).await else {
            panic!("expected a firing with the current token to be applied, found it stale");
        };
        node.set_definition_paused("n", true).await;
        assert_eq!(node.delete_definition("n").await, Changed::Changed);
        assert_eq!(node.delete_definition("n").await, Changed::Unchanged);
        assert_eq!(ok(node.recurring().find(&name("n")).await), None);
        // The clock is set back, so that the same slot is due again.
        cx.set_back(MINUTE).await;
        let second = node.define(minutely().named("n")).await;
        assert_ne!(second.incarnation, first.incarnation);
        assert_eq!((second.last_slot, second.paused, second.revision), (None, false, 1));
        cx.advance(MINUTE).await;
        let again = node.plan_one().await;
        assert_eq!(again.last_slot(), firing.last_slot());
        let Fired::Applied(new) = node.fire(&again).await else {
            panic!("expected a firing with the current token to be applied, found it stale");
        };
        assert_ne!(new, old);
        assert_eq!(node.everything().await.len(), 2);
    }

    #[proves("recurring.retire")]
    #[needs(Clock, Recurring, Guards)]
    async fn what_is_no_longer_declared_and_older_than_the_node_is_retired(cx: &Cx) {
        let (node, other) = (cx.node().await, cx.node().await);
        for named in ["gone", "known", "also gone"] {
            declare(&node, named).await;
        }
        node.define(minutely().named("made at run time")).await;
        cx.advance(MILLI).await;
        node.join().await;
        declare(&other, "of that moment").await;
        cx.advance(MILLI).await;
        declare(&other, "newer").await;
        let guard = tenure(&node).await;
        let retire = |node: NodeId| {
            RetireRecurring::new(names(["known"]).to_vec(), node, guard.clone())
        };
        // A node without a row has no start time, so it retires no definition.
        let nothing = retire(other.id);
        assert!(landed(ok(other.recurring().retire(&nothing).await)).is_empty());
        let retired = landed(ok(node.recurring().retire(&retire(node.id)).await));
        assert_eq!(retired, names(["also gone", "gone"]));
        let left = ["known", "made at run time", "newer", "of that moment"];
        assert_eq!(walk(&node, 10).await, left);
        assert!(landed(ok(node.recurring().retire(&retire(node.id)).await)).is_empty());
    }

    #[proves("recurring.retire", "guard.write")]
    #[needs(Clock, Recurring, Guards)]
    async fn a_tenure_that_is_over_retires_nothing(cx: &Cx) {
        let node = cx.node().await;
        declare(&node, "n").await;
        cx.advance(MILLI).await;
        node.join().await;
        let guard = tenure(&node).await;
        let locks = node.store.locks();
        ok(locks.release(&guard.lock, &guard.owner, guard.fence).await);
        let request = RetireRecurring::new(Vec::new(), node.id, guard);
        assert_eq!(ok(node.recurring().retire(&request).await), Guarded::Stale);
        assert_eq!(walk(&node, 10).await, ["n"]);
        let many = vec![name("n"); ratchet_core::limits::MAX_BATCH + 1];
        let mut request = request;
        request.known = many;
        assert_refused(node.recurring().retire(&request).await, "known");
    }

    #[proves("errors.poison", "recurring.get", "recurring.list", "recurring.unreadable")]
    #[needs(Clock, Vandal, Recurring)]
    async fn a_definition_that_cannot_be_read_harms_only_itself(cx: &Cx) {
        let node = cx.node().await;
        for named in ["a", "bad", "c"] {
            node.define(minutely().named(named)).await;
        }
        if let Err(error) = cx.vandal().spoil_recurring(&name("bad")).await {
            panic!("the fixture could not damage the definition: {error}");
        }
        cx.advance(MINUTE).await;
        cx.proving(["recurring.unreadable"]);
        let (mut claimed, mut unreadable) = (Vec::new(), 0);
        // The unreadable definition may use up the limit of one call, but not of the calls after
        // it.
        for _ in 0..4 {
            let due = node.claim_due(1).await;
            unreadable += due.unreadable;
            claimed.extend(due.definitions.iter().map(|one| one.definition.name().to_string()));
        }
        assert_eq!((claimed.as_slice(), unreadable), (&["a".to_owned(), "c".to_owned()][..], 1));
        assert_eq!(node.claim_due(1).await.next_in, Some(MINUTE), "expected no definition that can be claimed at once");
        cx.proving(["errors.poison", "recurring.list"]);
        assert_eq!(walk(&node, 1).await, ["a", "c"]);
        cx.proving(["errors.poison", "recurring.get"]);
        let unreadable = node.recurring().find(&name("bad")).await;
        assert_eq!(unreadable.expect_err("it is").kind(), StoreErrorKind::Corrupt);
        // Putting a definition repairs it.
        assert_eq!(node.put(minutely().named("bad")).await, PutOutcome::Changed);
        let repaired = node.definition("bad").await;
        assert_eq!(repaired.next_fire, Some(node.now().await + MINUTE));
    }

    #[proves("recurring.repair", "recurring.stale")]
    #[needs(Clock, Vandal, Recurring)]
    async fn a_put_over_an_unreadable_definition_starts_afresh(cx: &Cx) {
        let node = cx.node().await;
        for named in ["fired", "paused"] {
            node.define(minutely().named(named)).await;
        }
        node.set_definition_paused("paused", true).await;
        cx.advance(MINUTE).await;
        let firing = node.plan_one().await;
        assert!(matches!(node.fire(&firing).await, Fired::Applied(_)));
        cx.advance(MINUTE).await;
        let open = node.plan_one().await;
        for named in ["fired", "paused"] {
            if let Err(error) = cx.vandal().spoil_recurring(&name(named)).await {
                panic!("the fixture could not damage the definition: {error}");
            }
            let again = put(minutely().named(named));
            assert_eq!(ok(node.recurring().put(&again).await), PutOutcome::Changed);
            let fresh = RecurringRecord::created(&again, node.now().await);
            assert_eq!(node.definition(named).await, fresh);
        }
        assert_eq!(node.fire(&open).await, Fired::Stale);
        assert_eq!(node.everything().await.len(), 1);
    }

    #[proves("recurring.create")]
    #[needs(Recurring)]
    async fn a_definition_is_identified_as_its_first_put_says(cx: &Cx) {
        let node = cx.node().await;
        let mut put = put(minutely().named("n"));
        put.incarnation = Incarnation::from_bytes([7; 16]);
        let first = put.incarnation;
        assert_eq!(ok(node.recurring().put(&put).await), PutOutcome::Created);
        put.incarnation = Incarnation::from_bytes([8; 16]);
        assert_eq!(ok(node.recurring().put(&put).await), PutOutcome::Unchanged);
        assert_eq!(node.definition("n").await.incarnation, first);
    }
}
