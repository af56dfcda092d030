//! Compares the claims that a run holds with those that the store lists under its node.
//!
//! A claim call whose answer is lost may have claimed jobs. Such jobs are `Running` in the store,
//! but the node never received them. Each heartbeat reply lists the node's claims. A listed claim
//! is undelivered if the node does not hold it and no claim call under way can still return it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::id::ClaimToken;
use crate::model::OwnedClaim;

/// Number of consecutive claim lists without a given-up claim, after which the ledger forgets this
/// claim. A single list may lack a claim that another call is writing.
const ABSENCES: u32 = 3;

/// Records the claims that the node holds and the claim calls under way. Compares the held claims
/// with claim lists, in which the store lists all claims of the node.
#[derive(Debug, Default)]
pub(crate) struct ClaimLedger {
    entries: Mutex<Entries>,
    compared: Notify,
}

#[derive(Debug, Default)]
struct Entries {
    /// Claims that the node received. They are neither settled nor known to be lost.
    held: HashSet<ClaimToken>,
    /// Claims whose job bodies stalled. The value is the number of latest claim lists in a row that
    /// did not contain the claim. The node does not settle these claims, so that the cluster
    /// reclaims them and counts a crash.
    given_up: HashMap<ClaimToken, u32>,
    /// Number that the next claim call gets.
    next_call: u64,
    /// Numbers of the claim calls under way.
    calls: BTreeSet<u64>,
    /// Claims that the store listed and the node has not received. The value is the number that the
    /// next claim call had when the claim was first listed. Any earlier claim call may still return
    /// the claim while that call is under way.
    unreceived: HashMap<ClaimToken, u64>,
    /// Claims that the node must hand back, because no claim call can return them any more.
    undelivered: Vec<ClaimToken>,
    /// Claims that the store listed and that the node neither holds nor has given up. The value is
    /// the number of latest claim lists in a row that contained the claim.
    unheld: HashMap<ClaimToken, u32>,
    /// Number of calls under way that list the node's claims.
    lists: usize,
    /// Claims that were settled while a call that lists the node's claims was under way. The answer
    /// to that call may still contain them.
    settled: HashSet<ClaimToken>,
}

/// Claim call under way. Dropping this value ends the call without an answer.
#[derive(Debug)]
pub(crate) struct ClaimCall<'a> {
    ledger: &'a ClaimLedger,
    number: u64,
}

impl ClaimCall<'_> {
    /// Ends the call with an answer. The node now holds the claims with these tokens.
    pub(crate) fn deliver(self, tokens: impl IntoIterator<Item = ClaimToken>) {
        let mut entries = self.ledger.entries();
        entries.held.extend(tokens);
        entries.calls.remove(&self.number);
    }
}

impl Drop for ClaimCall<'_> {
    fn drop(&mut self) {
        self.ledger.entries().calls.remove(&self.number);
    }
}

/// Call under way that lists the node's claims in the store. Dropping this value ends the call
/// without an answer.
#[derive(Debug)]
pub(crate) struct ClaimList<'a>(&'a ClaimLedger);

impl ClaimList<'_> {
    /// Ends the call with an answer. Compares the claims that the node holds with the claims that
    /// the store lists under the node.
    pub(crate) fn compare(self, listed: &[OwnedClaim]) {
        self.0.compare(listed);
    }
}

impl Drop for ClaimList<'_> {
    fn drop(&mut self) {
        let mut entries = self.0.entries();
        entries.lists -= 1;
        if entries.lists == 0 {
            entries.settled.clear();
        }
    }
}

impl ClaimLedger {
    /// Records that a call which lists the node's claims begins. The call ends when the returned
    /// value is dropped.
    pub(crate) fn begin_list(&self) -> ClaimList<'_> {
        self.entries().lists += 1;
        ClaimList(self)
    }

    /// Records that a claim call begins. The call ends when the returned value is dropped.
    pub(crate) fn begin_call(&self) -> ClaimCall<'_> {
        let mut entries = self.entries();
        let number = entries.next_call;
        entries.next_call += 1;
        entries.calls.insert(number);
        drop(entries);
        ClaimCall {
            ledger: self,
            number,
        }
    }

    /// Removes claims that were settled.
    pub(crate) fn settled(&self, tokens: impl IntoIterator<Item = ClaimToken>) {
        let mut entries = self.entries();
        for token in tokens {
            entries.held.remove(&token);
            if entries.lists > 0 {
                entries.settled.insert(token);
            }
        }
    }

    /// Removes a claim that the node has lost.
    pub(crate) fn lost(&self, token: ClaimToken) {
        self.entries().held.remove(&token);
    }

    /// Moves a claim whose job body stalled from the held claims to the given-up claims.
    pub(crate) fn give_up(&self, token: ClaimToken) {
        let mut entries = self.entries();
        entries.held.remove(&token);
        entries.given_up.insert(token, 0);
    }

    /// Returns whether the last claim list of the store contained claims that the node has not
    /// received yet. A claim call under way may still return these claims.
    pub(crate) fn awaits_calls(&self) -> bool {
        !self.entries().unreceived.is_empty()
    }

    /// Returns the number of claims that the node neither holds nor has given up, although the last
    /// two claim lists of the store contain them. A single list often contains a claim whose claim
    /// call has not returned yet.
    pub(crate) fn unheld(&self) -> usize {
        let entries = self.entries();
        entries.unheld.values().filter(|lists| **lists > 1).count()
    }

    fn compare(&self, listed: &[OwnedClaim]) {
        let mut entries = self.entries();
        let Entries {
            held,
            given_up,
            next_call,
            calls,
            unreceived,
            undelivered,
            unheld,
            settled,
            ..
        } = &mut *entries;
        let listed: HashSet<ClaimToken> = listed.iter().map(|claim| claim.token).collect();
        given_up.retain(|token, absences| {
            *absences = if listed.contains(token) {
                0
            } else {
                *absences + 1
            };
            *absences < ABSENCES
        });
        let is_unreceived = |token: &&ClaimToken| {
            !held.contains(*token) && !given_up.contains_key(*token) && !settled.contains(*token)
        };
        unreceived.retain(|token, _| listed.contains(token) && is_unreceived(&token));
        unheld.retain(|token, _| listed.contains(token) && is_unreceived(&token));
        for token in listed.iter().filter(is_unreceived) {
            unreceived.entry(*token).or_insert(*next_call);
            *unheld.entry(*token).or_default() += 1;
        }
        let oldest_call = calls.first().copied().unwrap_or(*next_call);
        // If a claim cannot be handed back, the next list contains it again. So replacing
        // `undelivered` loses no claim.
        let taken = unreceived.extract_if(|_, seen| *seen <= oldest_call);
        *undelivered = taken.map(|(token, _)| token).collect();
        self.compared.notify_one();
    }

    /// Waits until a claim list of the store has been compared with the held claims. After that,
    /// there may be claims to hand back.
    pub(crate) async fn compared(&self) {
        self.compared.notified().await;
    }

    /// Removes and returns the claims that the node must hand back.
    pub(crate) fn take_undelivered(&self) -> Vec<ClaimToken> {
        std::mem::take(&mut self.entries().undelivered)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::time::Timestamp;

    fn token() -> ClaimToken {
        ClaimToken::new(JobId::new(), 1, None, Timestamp::UNIX_EPOCH)
    }

    /// Compares a claim list with the ledger, and returns the claims that the node must hand back.
    fn undelivered(ledger: &ClaimLedger, listed: &[ClaimToken]) -> Vec<ClaimToken> {
        let listed = listed.iter().map(|token| OwnedClaim::new(*token, false));
        ledger.begin_list().compare(&listed.collect::<Vec<_>>());
        ledger.take_undelivered()
    }

    #[test]
    fn a_listed_claim_that_no_call_can_deliver_is_undelivered() {
        let ledger = ClaimLedger::default();
        let (held, lost) = (token(), token());
        ledger.begin_call().deliver([held]);
        drop(ledger.begin_call());
        assert_eq!(undelivered(&ledger, &[held, lost]), [lost]);
        assert_eq!(undelivered(&ledger, &[held]), []);
    }

    #[test]
    fn a_claim_that_a_call_under_way_may_deliver_is_not_undelivered() {
        let ledger = ClaimLedger::default();
        let (early, late) = (token(), token());
        let first = ledger.begin_call();
        assert_eq!(undelivered(&ledger, &[early]), []);
        assert!(ledger.awaits_calls());
        // A call that began after the claim was listed cannot have made the claim.
        let second = ledger.begin_call();
        assert_eq!(undelivered(&ledger, &[early, late]), []);
        drop(first);
        assert_eq!(undelivered(&ledger, &[early, late]), [early]);
        second.deliver([late]);
        assert_eq!(undelivered(&ledger, &[early, late]), [early]);
        assert!(!ledger.awaits_calls());
    }

    #[test]
    fn a_claim_that_was_received_after_its_list_and_given_up_is_not_undelivered() {
        let ledger = ClaimLedger::default();
        let stalled = token();
        let call = ledger.begin_call();
        assert_eq!(undelivered(&ledger, &[stalled]), []);
        call.deliver([stalled]);
        ledger.give_up(stalled);
        assert_eq!(undelivered(&ledger, &[stalled]), []);
    }

    #[test]
    fn a_claim_that_two_lists_in_a_row_had_is_unheld_until_it_is_received_or_gone() {
        let ledger = ClaimLedger::default();
        let (late, lost) = (token(), token());
        let call = ledger.begin_call();
        undelivered(&ledger, &[late, lost]);
        assert_eq!(ledger.unheld(), 0);
        undelivered(&ledger, &[late, lost]);
        assert_eq!(ledger.unheld(), 2);
        call.deliver([late]);
        // The list contains `lost` again, so the claim could not be handed back.
        assert_eq!(undelivered(&ledger, &[late, lost]), [lost]);
        assert_eq!(ledger.unheld(), 1);
        undelivered(&ledger, &[late]);
        assert_eq!(ledger.unheld(), 0);
    }

    #[test]
    fn a_claim_that_was_settled_while_it_was_listed_is_not_undelivered() {
        let ledger = ClaimLedger::default();
        let token = token();
        ledger.begin_call().deliver([token]);
        let listed = [OwnedClaim::new(token, false)];
        let (early, late) = (ledger.begin_list(), ledger.begin_list());
        ledger.settled([token]);
        early.compare(&listed);
        assert_eq!(ledger.take_undelivered(), []);
        late.compare(&listed);
        assert_eq!(ledger.take_undelivered(), []);
        assert_eq!(
            undelivered(&ledger, &[token]),
            [token],
            "expected the claim as undelivered, because it was listed after its settlement"
        );
    }

    #[test]
    fn a_claim_that_was_listed_before_it_was_received_and_settled_is_not_undelivered() {
        let ledger = ClaimLedger::default();
        let token = token();
        let call = ledger.begin_call();
        assert_eq!(undelivered(&ledger, &[token]), []);
        let list = ledger.begin_list();
        call.deliver([token]);
        ledger.settled([token]);
        list.compare(&[OwnedClaim::new(token, false)]);
        assert_eq!(ledger.take_undelivered(), []);
    }

    #[test]
    fn what_is_no_longer_listed_is_forgotten() {
        let ledger = ClaimLedger::default();
        let token = token();
        let first = ledger.begin_call();
        assert_eq!(undelivered(&ledger, &[token]), []);
        assert_eq!(undelivered(&ledger, &[]), []);
        let second = ledger.begin_call();
        drop(first);
        assert_eq!(undelivered(&ledger, &[token]), []);
        drop(second);
        assert_eq!(undelivered(&ledger, &[token]), [token]);
    }

    #[test]
    fn a_lost_claim_that_is_listed_again_is_undelivered() {
        let ledger = ClaimLedger::default();
        let token = token();
        ledger.begin_call().deliver([token]);
        ledger.lost(token);
        drop(ledger.begin_call());
        assert_eq!(undelivered(&ledger, &[token]), [token]);
    }

    #[test]
    fn the_cluster_takes_back_what_the_node_gave_up() {
        let ledger = ClaimLedger::default();
        let (settled, given_up) = (token(), token());
        ledger.begin_call().deliver([settled, given_up]);
        ledger.settled([settled]);
        ledger.give_up(given_up);
        // A single list may lack the claim.
        for listed in [&[given_up][..], &[], &[], &[given_up], &[], &[], &[]] {
            assert_eq!(undelivered(&ledger, listed), []);
        }
        let entries = ledger.entries();
        assert!(entries.given_up.is_empty() && entries.held.is_empty());
    }
}
