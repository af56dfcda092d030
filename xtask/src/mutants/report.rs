//! Prints the results of a store's mutants.

use super::set::Mutant;
use super::trial::Verdict;

/// How many of the mutants that are not equivalent must be killed, in percent.
const REQUIRED: f64 = 95.0;

/// A mutant and its result.
pub(super) struct Outcome {
    pub(super) mutant: Mutant,
    pub(super) verdict: Verdict,
}

/// Prints the line of a mutant that has just finished.
pub(super) fn line(mutant: &Mutant, verdict: &Verdict) {
    let Mutant {
        name, statement, ..
    } = mutant;
    let (how, by) = match verdict {
        Verdict::Killed(case) => ("killed", format!(", by {case}")),
        Verdict::Hung(group) => ("timeout", format!(", in {group}")),
        Verdict::Survived if mutant.equivalent.is_some() => ("equivalent", String::new()),
        Verdict::Survived => ("SURVIVED", String::new()),
        Verdict::NeverReached => ("NEVER REACHED", String::new()),
    };
    println!("{how:<13} {statement}: {name}{by}");
}

/// Counts of mutants.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    killed: u32,
    timeouts: u32,
    survived: u32,
    never_reached: u32,
    equivalent: u32,
    /// Mutants that are marked equivalent, but were killed.
    wrongly_marked: u32,
}

impl Counts {
    fn of<'a>(outcomes: impl IntoIterator<Item = (bool, &'a Verdict)>) -> Self {
        let mut counts = Self::default();
        for (equivalent, verdict) in outcomes {
            *match (equivalent, verdict) {
                (true, Verdict::Killed(_) | Verdict::Hung(_)) => &mut counts.wrongly_marked,
                (_, Verdict::NeverReached) => &mut counts.never_reached,
                (true, Verdict::Survived) => &mut counts.equivalent,
                (false, Verdict::Survived) => &mut counts.survived,
                (false, Verdict::Killed(_)) => &mut counts.killed,
                (false, Verdict::Hung(_)) => &mut counts.timeouts,
            } += 1;
        }
        counts
    }

    /// Returns how many of the mutants that are not equivalent were killed, in percent.
    fn score(&self) -> f64 {
        let killed = self.killed + self.timeouts + self.wrongly_marked;
        let all = killed + self.survived + self.never_reached;
        100.0 * f64::from(killed) / f64::from(all.max(1))
    }

    fn suffice(&self) -> bool {
        self.wrongly_marked == 0
            && (self.survived + self.never_reached == 0 || self.score() >= REQUIRED)
    }
}

/// Prints the survivors and a summary. Returns whether enough mutants were killed.
pub(super) fn print(package: &str, outcomes: &[Outcome]) -> bool {
    for Outcome { mutant, verdict } in outcomes {
        let marked = mutant.equivalent.as_deref();
        let what = match (verdict, marked) {
            (Verdict::Survived, None) => "survived".to_owned(),
            (Verdict::NeverReached, _) => "never reached".to_owned(),
            (Verdict::Killed(by) | Verdict::Hung(by), Some(why)) => {
                format!("marked equivalent ({why}), but killed by {by}")
            }
            _ => continue,
        };
        println!("\n{what}: {}", mutant.name);
        println!(
            "  {}.sql, groups {}",
            mutant.statement,
            mutant.groups.join(" ")
        );
        let side = |sign, text: &str| text.lines().for_each(|line| println!("  {sign} {line}"));
        side('-', &mutant.find);
        side('+', &mutant.replace);
    }
    let each = outcomes
        .iter()
        .map(|Outcome { mutant, verdict }| (mutant.equivalent.is_some(), verdict));
    let counts = Counts::of(each);
    println!(
        "\n{package}: {} mutants, {} killed by a case, {} by a timeout, {} survived, {} never reached, \
         {} equivalent, {} wrongly marked equivalent: {:.1} % of those not equivalent are killed \
         ({REQUIRED} % required)",
        outcomes.len(),
        counts.killed,
        counts.timeouts,
        counts.survived,
        counts.never_reached,
        counts.equivalent,
        counts.wrongly_marked,
        counts.score(),
    );
    counts.suffice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_mutants_do_not_count_and_the_unreached_do() {
        let killed = Verdict::Killed("a::b".to_owned());
        let mut outcomes = vec![(false, killed.clone()); 18];
        outcomes.extend([
            (false, Verdict::Hung("a".to_owned())),
            (true, Verdict::Survived),
        ]);
        let counts = |outcomes: &[(bool, Verdict)]| {
            Counts::of(outcomes.iter().map(|(marked, verdict)| (*marked, verdict)))
        };
        assert!((counts(&outcomes).score() - 100.0).abs() < 1e-9);
        outcomes.push((false, Verdict::Survived));
        assert!((counts(&outcomes).score() - 95.0).abs() < 1e-9);
        assert!(counts(&outcomes).suffice());
        outcomes.push((false, Verdict::NeverReached));
        assert!(!counts(&outcomes).suffice());
        assert!(!counts(&[(true, killed)]).suffice());
    }
}
