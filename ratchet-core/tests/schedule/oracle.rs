//! Compares the slots of random cron expressions in UTC with those that the crate `croner` finds.

use chrono::{DateTime, TimeDelta, Utc};
use croner::Cron;
use proptest::prelude::*;
use proptest::strategy::Union;
use ratchet_core::Schedule;

/// Generates an item of a field, of a form that croner reads as Ratchet does: a value, a range that
/// does not wrap around, or a range with a step.
fn item(first: u32, last: u32) -> impl Strategy<Value = String> {
    let range = move || (first..=last).prop_flat_map(move |low| (Just(low), low..=last));
    prop_oneof![
        (first..=last).prop_map(|value| value.to_string()),
        range().prop_map(|(low, high)| format!("{low}-{high}")),
        (range(), 1..9_u32).prop_map(|((low, high), step)| format!("{low}-{high}/{step}")),
    ]
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(item, 1..4).prop_map(|items| items.join(","))
}

fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
    let step = (1..40_u32).prop_map(|step| format!("*/{step}"));
    prop_oneof![Just("*".to_owned()), step, list(item(first, last))]
}

fn day_of_month() -> impl Strategy<Value = String> {
    let special = Union::new([
        Just("L".to_owned()).boxed(),
        (1..32_u32).prop_map(|day| format!("{day}W")).boxed(),
        item(1, 31).boxed(),
    ]);
    // `LW` is generated only alone, because croner confuses its `W` with that of another item.
    prop_oneof![
        Just("*".to_owned()),
        Just("LW".to_owned()),
        list(item(1, 31)),
        special
    ]
}

fn day_of_week() -> impl Strategy<Value = String> {
    let special = prop_oneof![
        (0..8_u32, 1..6_u32).prop_map(|(day, nth)| format!("{day}#{nth}")),
        (1..4_u32, 4..7_u32, 1..6_u32).prop_map(|(low, high, nth)| format!("{low}-{high}#{nth}")),
        (0..8_u32).prop_map(|day| format!("{day}L")),
        item(0, 7),
    ];
    prop_oneof![Just("*".to_owned()), list(special)]
}

fn fields() -> impl Strategy<Value = String> {
    let days = (day_of_month(), field(1, 12), day_of_week(), any::<bool>());
    let days = days.prop_map(|(day, month, weekday, both)| match both {
        true => format!("{day} {month} +{weekday}"),
        false => format!("{day} {month} {weekday}"),
    });
    (field(0, 59), field(0, 59), field(0, 23), days)
        .prop_map(|(second, minute, hour, days)| format!("{second} {minute} {hour} {days}"))
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn the_slots_are_those_that_croner_finds(
        expression in fields(),
        after in 0_i64..4_000_000_000,
    ) {
        let theirs: Cron = expression.parse().unwrap();
        let mut at: DateTime<Utc> = DateTime::from_timestamp(after, 0).unwrap();
        // If Ratchet rejects an expression because it never matches, croner must not find a slot
        // either. It searches until the year 5000.
        let Ok(ours) = Schedule::cron(&expression, "UTC") else {
            let soon = theirs.iter_after(at).next();
            prop_assert_eq!(soon, None, "{}", expression);
            return Ok(());
        };
        for _ in 0..5 {
            let next = ours.next_after(at, at);
            prop_assert_eq!(next, theirs.find_next_occurrence(&at, false).ok(), "{}", expression);
            at = next.unwrap() + TimeDelta::seconds(after % 3);
        }
    }
}
