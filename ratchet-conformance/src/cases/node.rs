//! Nodes: heartbeats, their replies, and which nodes count as dead.

use ratchet_core::cluster::Wakeup;
use ratchet_core::schedule::ZoneData;

use super::prelude::*;
use crate::coordinator::cases::reach;

const DEAD_AFTER: Duration = Duration::from_secs(15);

cases! {
    "node" on Cx;

    #[proves("node.heartbeat")]
    #[needs(Clock)]
    async fn a_heartbeat_writes_what_it_says(cx: &Cx) {
        let node = cx.node().await;
        let started_at = node.now().await;
        let beat = node
            .heartbeat(NodeStatus::Joining)
            .load(NodeLoad::new(0, 8));
        node.beat_with(&beat).await;
        let mut expected = NodeRecord::joined(&beat, started_at);
        assert_eq!(node.nodes().await, [expected.clone()]);
        cx.advance(SECOND).await;
        let mut load = NodeLoad::new(7, 9);
        load.connections = Some(10);
        load.cpu_percent = Some(180);
        load.memory_bytes = Some(9 << 30);
        let mut profile = NodeProfile::new(
            vec![name("worker"), name("größe 🦀")],
            vec![name("gpu"), name("a, b")],
        );
        let mut pool = PoolProfile::new(9, 2);
        pool.queues = Selection::Except(vec![name("größe 🦀")]);
        profile.pools = Some(vec![pool]);
        let mut beat = node.heartbeat(NodeStatus::Active);
        beat = beat.load(load).profile(profile.clone());
        beat.interval = 30_250 * MILLI;
        beat.label = name("größe 🦀");
        node.beat_with(&beat).await;
        expected.status = NodeStatus::Active;
        expected.load = load;
        expected.profile = profile;
        expected.interval = beat.interval;
        expected.label = beat.label;
        expected.last_seen = node.now().await;
        assert_eq!(node.nodes().await, [expected]);
    }

    #[proves("node.kinds")]
    async fn a_node_says_which_kinds_it_runs_or_nothing(cx: &Cx) {
        let node = cx.node().await;
        let profile = || NodeProfile::new(names(["worker"]), names(["gpu"]));
        for profile in [
            profile(),
            profile().kinds(Vec::new()),
            profile().kinds(names(["resize", "größe 🦀", "Resize"])),
            profile().kinds(Vec::new()),
            profile(),
        ] {
            let beat = node.heartbeat(NodeStatus::Active).profile(profile.clone());
            node.beat_with(&beat).await;
            let row = node.node(node.id).await.map(|row| row.profile);
            assert_eq!(row, Some(profile));
        }
    }

    #[proves("node.totals")]
    async fn a_node_says_what_it_has_done_or_nothing(cx: &Cx) {
        let node = cx.node().await;
        for totals in [
            None,
            Some(NodeTotals::default()),
            Some(NodeTotals::new(9, 12_345, 5, 1, 3)),
            Some(NodeTotals::new(u64::MAX, u64::MAX, 5, 1, 4)),
            None,
        ] {
            let mut load = NodeLoad::new(1, 8);
            load.totals = totals;
            let beat = node.heartbeat(NodeStatus::Active).load(load);
            node.beat_with(&beat).await;
            let row = node.node(node.id).await.map(|row| row.load);
            assert_eq!(row, Some(load));
        }
    }

    #[proves("node.zone_data")]
    async fn a_node_says_which_zone_data_it_uses_or_nothing(cx: &Cx) {
        let node = cx.node().await;
        let version = |version: &str| Some(version.to_owned());
        for (zone_data, totals) in [
            (Some(ZoneData::new("/usr/share/zoneinfo", None)), None),
            (Some(ZoneData::new("größe 🦀 \"'", version("2026f"))), None),
            (None, Some(NodeTotals::new(9, 12_345, 5, 1, 3))),
            (
                Some(ZoneData::new("built-in", version("2026f"))),
                Some(NodeTotals::default()),
            ),
            (None, None),
        ] {
            let mut load = NodeLoad::new(1, 8);
            load.totals = totals;
            let mut profile = NodeProfile::new(names(["worker"]), names(["gpu"]));
            profile.zone_data = zone_data;
            let beat = node.heartbeat(NodeStatus::Active).load(load);
            node.beat_with(&beat.profile(profile.clone())).await;
            let row = node.node(node.id).await.map(|row| (row.load, row.profile));
            assert_eq!(row, Some((load, profile)));
        }
    }

    #[proves("node.heartbeat")]
    async fn a_status_follows_the_rule(cx: &Cx) {
        for stored in NodeStatus::ALL {
            for said in NodeStatus::ALL {
                let node = cx.node().await;
                node.beat_with(&node.heartbeat(stored)).await;
                let reply = node.beat_with(&node.heartbeat(said)).await;
                let expected = stored.after_heartbeat(said);
                assert_eq!(reply.status, expected, "{stored:?}, said {said:?}");
                let row = node.node(node.id).await.map(|row| row.status);
                assert_eq!(row, Some(expected), "{stored:?}, said {said:?}");
            }
        }
    }

    #[proves("node.alone")]
    async fn a_node_is_told_whether_it_is_alone(cx: &Cx) {
        let (a, b, c) = (cx.node().await, cx.node().await, cx.node().await);
        assert!(a.join().await.alone);
        assert!(!b.join().await.alone);
        assert!(!a.beat().await.alone);
        c.join().await;
        // A node that left or died no longer counts.
        c.beat_with(&c.heartbeat(NodeStatus::Left)).await;
        a.set_status(b.id, NodeStatus::Draining).await;
        assert!(!a.beat().await.alone);
        a.set_status(b.id, NodeStatus::Dead).await;
        assert!(a.beat().await.alone);
    }

    #[proves("node.reply", "time.read")]
    async fn the_reply_has_the_databases_time(cx: &Cx) {
        let node = cx.node().await;
        let before = node.now().await;
        let reply = node.beat().await;
        let after = node.now().await;
        assert!(before <= reply.database_time && reply.database_time <= after);
        assert_eq!(reply.status, NodeStatus::Active);
        let row = node.node(node.id).await.map(|row| row.last_seen);
        assert_eq!(row, Some(reply.database_time));
    }

    #[proves("node.previous")]
    #[needs(Clock)]
    async fn a_heartbeat_says_when_its_node_was_seen_before(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let mut last = None;
        for _ in 0..3 {
            let reply = a.beat().await;
            assert_eq!(reply.previous, last);
            last = Some(reply.database_time);
            cx.advance(SECOND).await;
        }
        assert_eq!(b.join().await.previous, None);
        assert_eq!(b.beat_with(&b.heartbeat(NodeStatus::Left)).await.status, NodeStatus::Left);
        let reply = a.beat().await;
        assert_eq!(reply.previous, last);
        let row = a.node(a.id).await.expect("the node should have a row");
        assert_eq!(row.last_seen, reply.database_time);
    }

    #[proves("node.claims")]
    async fn a_heartbeat_lists_the_claims_of_its_node(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let tokens = async |node: &TestNode| -> Vec<ClaimToken> {
            let claims = node.beat().await.claims;
            claims.iter().map(|claim| claim.token).collect()
        };
        assert_eq!(a.beat().await.claims, []);
        let all = a.add_all(&jobs(250)).await;
        let mut mine: Vec<ClaimToken> = Vec::new();
        for limit in [3, 200] {
            mine.extend(a.claim(limit).await.iter().map(|job| job.claim.token));
        }
        let request = ClaimRequest::new(b.id, 10);
        let others: Vec<Claim> = b.claim_lean(&request).await;
        let mut others: Vec<ClaimToken> = others.iter().map(|claim| claim.token).collect();
        mine.sort();
        others.sort();
        assert_eq!((mine.len(), others.len()), (203, 10));
        assert_eq!(tokens(&a).await, mine);
        assert_eq!(tokens(&b).await, others);
        // A cancel request or a report does not end a claim. A settlement or a release does.
        a.act(mine[0].job, JobAction::Cancel).await;
        a.alive(mine[1]).await;
        a.succeed(mine[2]).await;
        a.release(mine[3]).await;
        let left: Vec<ClaimToken> = [&mine[..2], &mine[4..]].concat();
        assert_eq!(tokens(&a).await, left);
        assert_eq!(cx.node().await.beat().await.claims, []);
        assert_eq!(all.len(), 250);
    }

    #[proves("node.claims")]
    #[needs(Clock)]
    async fn a_claim_that_was_taken_back_is_listed_no_more(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        b.add(job()).await;
        a.beat().await;
        let token = a.take().await;
        assert_eq!(a.beat().await.claims, [OwnedClaim::new(token, false)]);
        cx.advance(HOUR).await;
        a.beat().await;
        assert_eq!(b.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(a.beat().await.claims, []);
        let next = a.take().await;
        assert_eq!(a.beat().await.claims, [OwnedClaim::new(next, false)]);
    }

    #[proves("node.cancel")]
    async fn a_node_is_told_of_its_own_claims_only(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let all = a.add_all(&jobs(3)).await;
        let mine = a.take().await;
        let other = b.take().await;
        for id in all {
            a.act(id, JobAction::Cancel).await;
        }
        assert_eq!(a.beat().await.cancel_requested(), [mine]);
        assert_eq!(b.beat().await.cancel_requested(), [other]);
        assert_eq!(cx.node().await.beat().await.cancel_requested(), []);
    }

    #[proves("node.label")]
    async fn a_new_node_displaces_the_others_with_its_label(cx: &Cx) {
        let (old, bystander) = (cx.node().await, cx.node().await);
        let mut gone = cx.node().await;
        gone.label = old.label.clone();
        gone.beat_with(&gone.heartbeat(NodeStatus::Left)).await;
        old.beat().await;
        bystander.beat().await;
        let mut new = cx.node().await;
        new.label = old.label.clone();
        new.join().await;
        assert_eq!(new.beat().await.status, NodeStatus::Active);
        let status = async |node: &TestNode| bystander.node(node.id).await.map(|row| row.status);
        assert_eq!(status(&old).await, Some(NodeStatus::Dead));
        assert_eq!(status(&gone).await, Some(NodeStatus::Left));
        assert_eq!(status(&bystander).await, Some(NodeStatus::Active));
        assert_eq!(status(&new).await, Some(NodeStatus::Active));
        assert_eq!(
            old.beat().await.status,
            NodeStatus::Dead,
            "expected the old node to learn that it is dead"
        );
        assert_eq!(
            status(&new).await,
            Some(NodeStatus::Active),
            "expected the new node to stay active, because a dead node displaces no other"
        );
    }

    #[proves("node.label")]
    async fn only_the_first_heartbeat_displaces(cx: &Cx) {
        let (a, mut b) = (cx.node().await, cx.node().await);
        a.beat().await;
        b.join().await;
        b.label = a.label.clone();
        b.join().await;
        b.beat().await;
        assert_eq!(a.beat().await.status, NodeStatus::Active);
    }

    #[proves("node.label")]
    async fn a_forgotten_node_that_wakes_up_displaces_no_other(cx: &Cx) {
        let (successor, mut sleeper) = (cx.node().await, cx.node().await);
        successor.join().await;
        successor.beat().await;
        sleeper.label = successor.label.clone();
        assert_eq!(sleeper.beat().await.status, NodeStatus::Active);
        assert_eq!(successor.beat().await.status, NodeStatus::Active);
    }

    #[proves("node.status")]
    async fn a_node_learns_its_status_from_elsewhere(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.beat().await;
        assert_eq!(
            b.set_status(a.id, NodeStatus::Draining).await,
            Changed::Changed
        );
        assert_eq!(a.beat().await.status, NodeStatus::Draining);
        assert_eq!(
            b.set_status(a.id, NodeStatus::Draining).await,
            Changed::Unchanged
        );
        assert_eq!(b.set_status(a.id, NodeStatus::Dead).await, Changed::Changed);
        assert_eq!(a.beat().await.status, NodeStatus::Dead);
    }

    #[proves("node.status")]
    async fn an_unknown_or_ended_node_keeps_its_status(cx: &Cx) {
        let node = cx.node().await;
        let unknown = node.set_status(NodeId::new(), NodeStatus::Draining).await;
        assert_eq!(unknown, Changed::Unchanged);
        assert_eq!(node.nodes().await, []);
        for ended in [NodeStatus::Left, NodeStatus::Dead] {
            let node = cx.node().await;
            node.beat_with(&node.heartbeat(ended)).await;
            for status in NodeStatus::ALL {
                assert_eq!(node.set_status(node.id, status).await, Changed::Unchanged);
            }
            assert_eq!(node.beat().await.status, ended);
        }
    }

    #[proves("node.list")]
    #[needs(Clock)]
    async fn nodes_are_listed_the_newest_first(cx: &Cx) {
        let nodes = cx.nodes(5).await;
        for (number, node) in nodes.iter().enumerate() {
            // The third and fourth node start at the same time.
            cx.advance(SECOND * u32::from(number != 3)).await;
            node.beat().await;
        }
        nodes[0].beat().await;
        let listed: Vec<NodeId> = nodes[0].nodes().await.iter().map(|row| row.node).collect();
        let mut pair = [nodes[2].id, nodes[3].id];
        pair.sort();
        assert_eq!(
            listed,
            [nodes[4].id, pair[0], pair[1], nodes[1].id, nodes[0].id]
        );
    }

    #[proves("node.silent", "time.clock")]
    #[needs(Clock)]
    async fn a_node_is_dead_when_its_silence_exceeds_its_patience(cx: &Cx) {
        let (quick, slow, watcher) = (cx.node().await, cx.node().await, cx.node().await);
        quick.beat().await;
        let mut beat = slow.heartbeat(NodeStatus::Draining);
        beat.interval = 20 * SECOND;
        slow.beat_with(&beat).await;
        let sweep = || watcher.sweep(DEAD_AFTER, DAY);
        cx.advance(DEAD_AFTER).await;
        assert_eq!(sweep().await, SweptNodes::default());
        cx.advance(MILLI).await;
        assert_eq!(sweep().await.died, [quick.id]);
        cx.advance(MINUTE - DEAD_AFTER - MILLI).await;
        assert_eq!(sweep().await, SweptNodes::default());
        cx.advance(MILLI).await;
        assert_eq!(sweep().await.died, [slow.id]);
        assert_eq!(sweep().await, SweptNodes::default());
        assert_eq!(quick.beat().await.status, NodeStatus::Dead);
        assert_eq!(slow.beat().await.status, NodeStatus::Left);
    }

    #[proves("node.step", "time.clock")]
    #[needs(Clock)]
    async fn a_step_of_the_clock_makes_no_node_look_silent(cx: &Cx) {
        let (early, late) = (cx.node().await, cx.node().await);
        early.beat().await;
        let before = early.now().await;
        cx.advance(HOUR).await;
        let stepped = early.now().await;
        late.beat().await;
        let sweep = NodeSweep::new(DEAD_AFTER, DAY).clock(ClockTrust::FULL.stepped(before, HOUR));
        let died = async || landed(ok(early.store.nodes().sweep_nodes(&sweep).await)).died;
        assert_eq!(died().await, []);
        cx.advance(DEAD_AFTER).await;
        assert_eq!(died().await, []);
        cx.advance(MILLI).await;
        // Here, the clock shows a later time than `met` allows. So the clock has stepped again, and
        // the sweep must not mark any node as dead.
        let met = sweep.clone().clock(ClockTrust::FULL.until(stepped));
        let swept = landed(ok(early.store.nodes().sweep_nodes(&met).await));
        assert_eq!(swept, SweptNodes::default());
        let mut both = [early.id, late.id];
        both.sort();
        assert_eq!(died().await, both);
    }

    #[proves("node.silent")]
    #[needs(Clock)]
    async fn a_node_that_beats_stays_alive(cx: &Cx) {
        let node = cx.node().await;
        for _ in 0..20 {
            node.beat().await;
            cx.advance(DEAD_AFTER).await;
            assert_eq!(node.sweep(DEAD_AFTER, MINUTE).await, SweptNodes::default());
        }
    }

    #[proves("node.forget")]
    #[needs(Clock)]
    async fn an_ended_node_is_forgotten_after_a_while(cx: &Cx) {
        let (left, dead, live) = (cx.node().await, cx.node().await, cx.node().await);
        left.beat_with(&left.heartbeat(NodeStatus::Left)).await;
        dead.beat().await;
        live.set_status(dead.id, NodeStatus::Dead).await;
        cx.advance(HOUR).await;
        live.beat().await;
        assert_eq!(live.sweep(DEAD_AFTER, HOUR).await, SweptNodes::default());
        cx.advance(MILLI).await;
        assert_eq!(live.sweep(DEAD_AFTER, HOUR).await.forgotten, 2);
        let rows: Vec<NodeId> = live.nodes().await.iter().map(|row| row.node).collect();
        assert_eq!(rows, [live.id]);
    }

    #[proves("node.forget", "reclaim.dead")]
    #[needs(Clock)]
    async fn a_dead_node_is_remembered_while_it_owns_claims(cx: &Cx) {
        let (dead, live) = (cx.node().await, cx.node().await);
        dead.beat().await;
        dead.add(job()).await;
        let token = dead.take().await;
        cx.advance(DAY).await;
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.died, [dead.id]);
        cx.advance(DAY).await;
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.forgotten, 0);
        let taken = live.reclaim(&reclaim()).await;
        assert_eq!(taken[0].token, token);
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.forgotten, 1);
        assert_eq!(live.nodes().await, []);
    }

    #[proves("node.forget", "reclaim.requeue")]
    #[needs(Clock)]
    async fn a_dead_node_is_remembered_while_a_claim_of_it_is_to_be_cancelled(cx: &Cx) {
        let (dead, live) = (cx.node().await, cx.node().await);
        dead.beat().await;
        let id = dead.add(job()).await;
        dead.take().await;
        assert_eq!(live.act(id, JobAction::Cancel).await, ActionOutcome::CancelRequested);
        cx.advance(DAY).await;
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.died, [dead.id]);
        cx.advance(DAY).await;
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.forgotten, 0);
        assert_eq!(live.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(live.state(id).await, JobState::Cancelled);
        assert_eq!(live.sweep(DEAD_AFTER, MINUTE).await.forgotten, 1);
    }

    #[proves("node.heartbeat")]
    async fn concurrent_first_heartbeats_make_one_row(cx: &Cx) {
        let handles = cx.nodes(4).await;
        let (id, label) = (handles[0].id, handles[0].label.clone());
        race(16, |racer| {
            let mut node = handles[racer % handles.len()].clone();
            (node.id, node.label) = (id, label.clone());
            async move { node.beat().await }
        })
        .await;
        assert_eq!(handles[0].nodes().await.len(), 1);
    }

    #[proves("node.label")]
    async fn of_racing_nodes_with_one_label_one_stays_alive(cx: &Cx) {
        let nodes = cx.nodes(8).await;
        let label = nodes[0].label.clone();
        race(8, |racer| {
            let mut node = nodes[racer].clone();
            node.label = label.clone();
            async move { node.join().await }
        })
        .await;
        let rows = nodes[0].nodes().await;
        let live = rows.iter().filter(|row| row.status.is_live());
        assert_eq!((rows.len(), live.count()), (8, 1));
    }

    #[proves("node.silent", "node.heartbeat")]
    #[needs(Clock)]
    async fn a_heartbeat_is_measured_from_the_last_one(cx: &Cx) {
        let node = cx.node().await;
        let started_at = node.now().await;
        node.beat().await;
        cx.advance(DEAD_AFTER).await;
        node.beat().await;
        let row = node.node(node.id).await.expect("the row of the node should not be deleted");
        assert_eq!(row.started_at, started_at);
        assert_eq!(row.last_seen, time::add(started_at, DEAD_AFTER));
        cx.advance(DEAD_AFTER).await;
        assert_eq!(node.sweep(DEAD_AFTER, DAY).await.died, []);
    }

    #[proves("node.forget", "node.silent")]
    #[needs(Clock)]
    async fn a_node_that_was_silent_for_long_dies_and_is_forgotten_in_one_pass(cx: &Cx) {
        let (idle, busy, live) = (cx.node().await, cx.node().await, cx.node().await);
        idle.beat().await;
        busy.beat().await;
        busy.add(job()).await;
        busy.take().await;
        cx.advance(HOUR + MILLI).await;
        live.beat().await;
        let mut died = vec![idle.id, busy.id];
        died.sort();
        let forgotten = 1;
        let swept = live.sweep(DEAD_AFTER, HOUR).await;
        assert_eq!(swept, SweptNodes { died, forgotten });
        let left = live.nodes().await;
        let left: Vec<_> = left.iter().map(|row| (row.node, row.status)).collect();
        assert_eq!(left, [(live.id, NodeStatus::Active), (busy.id, NodeStatus::Dead)]);
    }

    #[proves("wakeup.reach")]
    async fn wakeups_reach_every_handle_if_the_store_says_so(cx: &Cx) {
        let (here, there) = (cx.node().await, cx.node().await);
        let ends = (here.store.coordinator(), there.store.coordinator());
        let (Some(from), Some(to)) = ends else {
            return;
        };
        if from.reaches_all_nodes() {
            let wakeup = Wakeup::queue(name("images")).from_node(here.id).to(there.id);
            reach(&*from, &wakeup, &mut [to.subscribe()]).await;
        }
    }

    #[proves("node.silent")]
    #[needs(Clock)]
    async fn nodes_that_die_in_one_pass_are_listed_in_order_of_their_ids(cx: &Cx) {
        let nodes = cx.nodes(5).await;
        let mut ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        ids.sort();
        // The nodes start neither in the order of their ids nor in the reverse order.
        for place in [2, 0, 4, 1, 3] {
            let mut node = nodes[0].clone();
            (node.id, node.label) = (ids[place], name(&format!("node {place}")));
            node.beat().await;
            cx.advance(MILLI).await;
        }
        cx.advance(HOUR).await;
        assert_eq!(nodes[0].sweep(DEAD_AFTER, DAY).await.died, ids);
    }
}
