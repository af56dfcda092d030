//! Tests of the suite for coordinators: each sabotaged coordinator must fail its case, and the
//! correct coordinator must pass the same cases.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_conformance::{
    BoxError, CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Failure, Outage, Power,
};
use ratchet_core::NodeId;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::sync::broadcast;

/// The defect of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sabotage {
    None,
    ForgetsTheSource,
    SignsForTheSender,
    ForgetsTheAddress,
    ForgetsHowLongTheSenderLeads,
    KeepsBackWhatIsForTheSender,
    KeepsEchoesBack,
    WaitsForTheSlowest,
    StopsAtADeadListener,
    PanicsDuringOutages,
    HangsDuringOutages,
    SaysNothingAfterOutages,
    NeverComesBack,
    NoticesNoSilence,
    LeavesATaskBehind,
}

/// Every sabotage with the case that catches it.
const CATCHES: &[(Sabotage, &str)] = &[
    (
        Sabotage::ForgetsTheSource,
        "wakeup::a_subscriber_knows_its_own_echoes_by_their_source",
    ),
    (
        Sabotage::SignsForTheSender,
        "wakeup::a_subscriber_knows_its_own_echoes_by_their_source",
    ),
    (
        Sabotage::ForgetsTheAddress,
        "wakeup::a_wakeup_says_which_node_it_is_for",
    ),
    (
        Sabotage::ForgetsHowLongTheSenderLeads,
        "wakeup::a_beacon_says_for_how_long_its_sender_leads",
    ),
    (
        Sabotage::KeepsBackWhatIsForTheSender,
        "wakeup::a_beacon_says_for_how_long_its_sender_leads",
    ),
    (
        Sabotage::KeepsEchoesBack,
        "wakeup::every_subscription_gets_its_own_copy",
    ),
    (
        Sabotage::WaitsForTheSlowest,
        "wakeup::a_subscription_that_never_reads_blocks_no_other",
    ),
    (
        Sabotage::StopsAtADeadListener,
        "wakeup::a_listener_that_panics_or_never_reads_harms_no_other",
    ),
    (
        Sabotage::PanicsDuringOutages,
        "wakeup::an_outage_is_silent_and_every_node_is_woken_after_it",
    ),
    (
        Sabotage::HangsDuringOutages,
        "wakeup::an_outage_is_silent_and_every_node_is_woken_after_it",
    ),
    (
        Sabotage::SaysNothingAfterOutages,
        "wakeup::an_outage_is_silent_and_every_node_is_woken_after_it",
    ),
    (
        Sabotage::NeverComesBack,
        "wakeup::an_outage_is_silent_and_every_node_is_woken_after_it",
    ),
    (
        Sabotage::NoticesNoSilence,
        "wakeup::a_transport_that_falls_silent_is_noticed",
    ),
    (
        Sabotage::LeavesATaskBehind,
        "wakeup::nothing_is_left_of_a_coordinator_that_was_dropped",
    ),
];

/// An in-process transport that a test can interrupt.
struct Bus {
    sabotage: Sabotage,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Debug, Default)]
struct Lines {
    is_cut: bool,
    /// Whether the transport drops all wakeups without closing its connections.
    is_frozen: bool,
    /// For each subscription, the node that subscribed and the sender of its wakeups.
    listeners: Vec<(NodeId, broadcast::Sender<Wakeup>)>,
}

#[async_trait]
impl CoordinatorFixture for Bus {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        let end = End {
            sabotage: self.sabotage,
            me: NodeId::new(),
            lines: Arc::clone(&self.lines),
        };
        if self.sabotage == Sabotage::LeavesATaskBehind {
            tokio::spawn(std::future::pending::<()>());
        }
        Ok(Arc::new(end))
    }

    fn outage(&self) -> Option<&dyn Outage> {
        Some(self)
    }
}

#[async_trait]
impl Outage for Bus {
    async fn cut(&self) {
        self.lines.lock().unwrap().is_cut = true;
    }

    async fn freeze(&self) {
        self.lines.lock().unwrap().is_frozen = true;
    }

    async fn mend(&self) {
        let mut lines = self.lines.lock().unwrap();
        let is_noticed = match self.sabotage {
            Sabotage::SaysNothingAfterOutages => false,
            Sabotage::NoticesNoSilence => !lines.is_frozen,
            _ => true,
        };
        if is_noticed {
            for (_, listener) in &lines.listeners {
                let _ = listener.send(Wakeup::any());
            }
        }
        lines.is_cut = self.sabotage == Sabotage::NeverComesBack;
        lines.is_frozen = false;
    }
}

#[derive(Debug)]
struct End {
    sabotage: Sabotage,
    me: NodeId,
    lines: Arc<Mutex<Lines>>,
}

impl End {
    const CAPACITY: usize = 64;

    /// Returns whether the buffer of any subscription is full.
    fn is_full(&self) -> bool {
        let lines = self.lines.lock().unwrap();
        let mut listeners = lines.listeners.iter();
        listeners.any(|(_, listener)| listener.len() == Self::CAPACITY)
    }
}

#[async_trait]
impl ClusterCoordinator for End {
    async fn notify(&self, mut wakeup: Wakeup) {
        let (is_cut, is_frozen) = {
            let lines = self.lines.lock().unwrap();
            (lines.is_cut, lines.is_frozen)
        };
        let is_for_the_sender = wakeup.to.is_some() && wakeup.to == wakeup.source;
        match self.sabotage {
            Sabotage::ForgetsTheSource => wakeup.source = None,
            Sabotage::ForgetsTheAddress => wakeup.to = None,
            Sabotage::ForgetsHowLongTheSenderLeads => wakeup.leads_for_ms = None,
            Sabotage::KeepsBackWhatIsForTheSender if is_for_the_sender => return,
            Sabotage::SignsForTheSender => wakeup.source = Some(self.me),
            Sabotage::WaitsForTheSlowest => {
                while self.is_full() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            Sabotage::PanicsDuringOutages => assert!(
                !is_cut,
                "planned panic during an outage of \
                 the transport"
            ),
            Sabotage::HangsDuringOutages if is_cut => std::future::pending().await,
            _ => {}
        }
        if is_cut || is_frozen {
            return;
        }
        for (end, listener) in &self.lines.lock().unwrap().listeners {
            if self.sabotage == Sabotage::KeepsEchoesBack && *end == self.me {
                continue;
            }
            let sent = listener.send(wakeup.clone());
            if self.sabotage == Sabotage::StopsAtADeadListener && sent.is_err() {
                return;
            }
        }
    }

    fn subscribe(&self) -> WakeupStream {
        let listener = broadcast::Sender::new(Self::CAPACITY);
        let stream = listener.subscribe().into();
        self.lines
            .lock()
            .unwrap()
            .listeners
            .push((self.me, listener));
        stream
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

async fn check(sabotage: Sabotage, case: &str) -> Result<(), Failure> {
    let case = CoordinatorSuite::case(case).unwrap_or_else(|| {
        panic!(
            "the suite should have the \
             case {case}"
        )
    });
    let factory = CoordinatorFactory::new(move || async move {
        let lines = Arc::default();
        Ok(Bus { sabotage, lines })
    });
    CoordinatorSuite::check(case, &[Power::Delivery, Power::Outage], factory).await
}

#[tokio::test(start_paused = true)]
async fn every_sabotage_is_caught_by_its_case() {
    let mut missed = Vec::new();
    for (sabotage, case) in CATCHES {
        if check(*sabotage, case).await.is_ok() {
            missed.push((sabotage, case));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:#?}");
}

#[tokio::test(start_paused = true)]
async fn the_honest_coordinator_passes_all_cases() {
    for case in CoordinatorSuite::cases() {
        if let Err(failure) = check(Sabotage::None, &case.full_name()).await {
            panic!("{case:?}: {failure}");
        }
    }
}

#[tokio::test]
async fn a_fixture_and_a_suite_that_disagree_about_outages_run_nothing() {
    let case = CoordinatorSuite::cases().next().unwrap();
    let factory = CoordinatorFactory::new(|| async {
        let (sabotage, lines) = (Sabotage::None, Arc::default());
        Ok(Bus { sabotage, lines })
    });
    let refused = CoordinatorSuite::check(case, &[Power::Delivery], factory).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("Outage"), "{refused}");
}
