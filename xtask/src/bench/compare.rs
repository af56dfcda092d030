//! Compares the figures of the working tree with those of another revision, in turns.
//!
//! Two runs of a pair follow each other, on the same server, so both meet nearly the same load on
//! the machine. Which revision runs first alternates between rounds. Each pair gives one ratio, and
//! each figure gets the median of its ratios and a confidence interval, see [`estimate`].

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ratchet_bench::figures::{Outcome, median};

use super::{
    Args, SUBJECTS, Scenario, Subject, build, fail_if_wrong, grouped, is_available, measure,
    or_gap, print_origin, row, servers, wrong_counts,
};
use crate::process;

/// The default number of rounds, and the minimum: four rounds give no interval of at least
/// [`CONFIDENCE`].
pub(super) const ROUNDS: u64 = 5;
/// The backends that are compared by default.
const DEFAULT: [&str; 2] = ["sqlite", "postgres"];
/// The minimum confidence of an interval.
const CONFIDENCE: f64 = 0.9;

/// The error if a figure of the working tree is worse than that of the other revision.
#[derive(Debug)]
pub(crate) struct Slower {
    rows: usize,
    threshold: f64,
}

impl Slower {
    /// The exit status of the command. Other errors have status 1, and wrong arguments status 2.
    pub(crate) const STATUS: u8 = 3;
}

impl fmt::Display for Slower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, threshold } = self;
        write!(f, "figures whose interval lies below {threshold}: {rows}")
    }
}

impl std::error::Error for Slower {}

/// Both outcomes of one round.
struct Pair {
    other: Outcome,
    this: Outcome,
}

/// The pairs of one scenario on one backend.
struct Measured<'a> {
    scenario: &'a Scenario,
    subject: &'a Subject,
    pairs: Vec<Pair>,
}

/// Builds both revisions, measures them in turns, and prints the table. Fails with [`Slower`] if a
/// figure of the working tree is worse.
pub(super) fn run(
    args: &Args,
    revision: &str,
    rounds: u64,
    scenarios: &[Scenario],
    target: &Path,
) -> Result<()> {
    ensure!(
        rounds >= ROUNDS,
        "--compare needs at least {ROUNDS} rounds, found --rounds {rounds}"
    );
    let programs = Programs::build(revision, &args.profile, target)?;
    let chosen = |backend: &str| match args.backend.is_empty() {
        true => DEFAULT.contains(&backend),
        false => args.backend.iter().any(|chosen| chosen == backend),
    };
    let servers = servers(args, chosen);
    let engines = SUBJECTS.iter().filter(|subject| subject.engine);
    let subjects: Vec<_> = engines
        .filter(|subject| is_available(subject, &servers, chosen))
        .collect();
    let mut measured = Vec::new();
    for scenario in scenarios {
        for subject in subjects.iter().filter(|subject| scenario.is_for(subject)) {
            measured.push(Measured {
                scenario,
                subject,
                pairs: Vec::new(),
            });
        }
    }
    ensure!(!measured.is_empty(), "no chosen backend can be measured");
    for round in 1..=rounds {
        for one in &mut measured {
            let (who, what) = (&one.subject.heading, &one.scenario.heading);
            eprintln!("round {round} of {rounds}: {who}, {what}");
            let run = |program| measure(program, target, &servers, one.subject, one.scenario);
            let pair = if round % 2 == 1 {
                let other = run(&programs.other)?;
                let this = run(&programs.this)?;
                Pair { other, this }
            } else {
                let this = run(&programs.this)?;
                let other = run(&programs.other)?;
                Pair { other, this }
            };
            one.pairs.push(pair);
        }
    }

    print_origin(&servers, &args.profile);
    if let Some((_, confidence)) = rank(usize::try_from(rounds)?) {
        println!(
            "{rounds} rounds in turns; medians, and the interval of the ratio with a confidence of \
             {:.1} %; a ratio above 1 means that the working tree is better",
            100.0 * confidence
        );
    }
    let (table, slower) = table(revision, args.threshold, &measured);
    print!("\n{table}");
    fail_if_wrong(&wrong_runs(revision, &measured))?;
    match slower {
        0 => Ok(()),
        rows => Err(Slower {
            rows,
            threshold: args.threshold,
        }
        .into()),
    }
}

/// `ratchet-bench` of both revisions.
struct Programs {
    other: PathBuf,
    this: PathBuf,
}

impl Programs {
    /// Builds both programs. The other revision has a target directory of its own. In a shared one,
    /// cargo cannot tell the crates of two worktrees apart, and may take crates that it built for
    /// the other revision.
    fn build(revision: &str, profile: &str, target: &Path) -> Result<Self> {
        let folder = target.join("xtask").join("compare");
        let worktree = Worktree::add(revision, folder.join("worktree"))?;
        let other = build(&worktree.0, &folder.join("target"), profile)?;
        // A copy, because a build during the measurement would replace the program.
        let this = folder.join("this");
        fs::copy(build(&process::root(), target, profile)?, &this)?;
        Ok(Self { other, this })
    }
}

/// A temporary worktree of git, which is removed when this is dropped.
struct Worktree(PathBuf);

impl Worktree {
    fn add(revision: &str, path: PathBuf) -> Result<Self> {
        let commit = format!("{revision}^{{commit}}");
        let mut parse = process::program("git");
        let parse = parse.args(["rev-parse", "--verify", "--end-of-options", &commit]);
        let commit = process::read(parse).context("--compare expects a revision of git")?;
        let worktree = Self(path);
        // A killed run leaves its worktree.
        worktree.remove()?;
        let mut add = process::program("git");
        let add = add.args(["worktree", "add", "--force", "--detach"]);
        process::run(add.arg(&worktree.0).arg(commit.trim()))?;
        Ok(worktree)
    }

    fn remove(&self) -> Result<()> {
        if self.0.exists() {
            let mut remove = process::program("git");
            let remove = remove.args(["worktree", "remove", "--force"]);
            process::run(remove.arg(&self.0))?;
        }
        Ok(())
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("note: could not remove the worktree: {error:#}");
        }
    }
}

/// The median of some ratios, and its confidence interval.
#[derive(Debug, PartialEq)]
struct Estimate {
    median: f64,
    low: f64,
    high: f64,
}

/// Estimates the median of the population from which `ratios` are drawn. Returns `None` if there
/// are fewer than five ratios.
///
/// The interval is that of the sign test: it reaches from the k-th smallest to the k-th largest
/// ratio. Each ratio is below the true median with a probability of one half, so the number of
/// ratios below it has a binomial distribution. This holds for every continuous distribution, so
/// outliers and skewed figures need no special treatment. Sources: W. R. Thompson, "On confidence
/// ranges for the median and other expectation distributions for populations of unknown
/// distribution form", Annals of Mathematical Statistics 7 (1936), pages 122–128; W. J. Conover,
/// Practical Nonparametric Statistics, section on the estimation of quantiles.
///
/// The bootstrap was not chosen, because it is too narrow for as few as five ratios.
fn estimate(mut ratios: Vec<f64>) -> Option<Estimate> {
    let (k, _) = rank(ratios.len())?;
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios[k], ratios[ratios.len() - 1 - k]);
    let median = median(ratios)?;
    Some(Estimate { median, low, high })
}

/// Returns how many of `count` values are left out at each end of the interval, and the confidence
/// of the interval. Chooses the shortest interval whose confidence is at least [`CONFIDENCE`].
/// Returns `None` if `count` values give no such interval.
#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn rank(count: usize) -> Option<(usize, f64)> {
    // The probability that exactly `k` values are below the median, and that at most `k` are.
    let (mut exactly, mut at_most) = ((0..count).fold(1.0, |half, _| half / 2.0), 0.0);
    let mut chosen = None;
    for k in 0..count / 2 {
        at_most += exactly;
        let confidence = 1.0 - 2.0 * at_most;
        if confidence < CONFIDENCE {
            break;
        }
        chosen = Some((k, confidence));
        exactly *= (count - k) as f64 / (k + 1) as f64;
    }
    chosen
}

/// Returns by how much a figure of the working tree is better: the ratio of rates, and the inverse
/// ratio of times and costs. Returns `None` if a figure is 0.
fn ratio(unit: &str, other: f64, this: f64) -> Option<f64> {
    let ratio = match unit {
        "jobs/s" => this / other,
        _ => other / this,
    };
    (this > 0.0 && other > 0.0).then_some(ratio)
}

/// Returns the table, and the number of rows whose interval lies below the threshold.
fn table(revision: &str, threshold: f64, measured: &[Measured<'_>]) -> (String, usize) {
    let headings = [
        "scenario",
        "backend",
        "unit",
        revision,
        "working tree",
        "ratio",
        "interval",
        "",
    ];
    let mut slower = 0;
    let mut lines = vec![
        row(&headings.map(str::to_owned)),
        "|---|---|---|---:|---:|---:|---:|---|".to_owned(),
    ];
    for one in measured {
        for (field, unit) in one.scenario.fields {
            let pairs = one.pairs.iter();
            let pairs = pairs.filter_map(|pair| field(&pair.other).zip(field(&pair.this)));
            let (others, these): (Vec<f64>, Vec<f64>) = pairs.unzip();
            if others.is_empty() {
                continue;
            }
            let ratios = others.iter().zip(&these);
            let ratios = ratios.filter_map(|(other, this)| ratio(unit, *other, *this));
            let estimate = estimate(ratios.collect());
            let worse = estimate.as_ref().is_some_and(|it| it.high < threshold);
            slower += usize::from(worse);
            let interval = |it: &Estimate| format!("{:.2} to {:.2}", it.low, it.high);
            lines.push(row(&[
                one.scenario.heading.clone(),
                one.subject.heading.clone(),
                (*unit).to_owned(),
                or_gap(median(others).map(grouped)),
                or_gap(median(these).map(grouped)),
                or_gap(estimate.as_ref().map(|it| format!("{:.2}", it.median))),
                or_gap(estimate.as_ref().map(interval)),
                if worse { "worse" } else { "" }.to_owned(),
            ]));
        }
    }
    (lines.join("\n") + "\n", slower)
}

/// Returns the runs in which a job was lost or ran twice.
fn wrong_runs(revision: &str, measured: &[Measured<'_>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in measured {
        for pair in &one.pairs {
            for (name, outcome) in [(revision, &pair.other), ("working tree", &pair.this)] {
                let who = format!("{} ({name})", one.subject.heading);
                wrong.extend(wrong_counts(&who, &one.scenario.heading, outcome));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::{LATENCY, RATE};
    use super::*;

    fn scenario(heading: &str, fields: super::super::Fields) -> Scenario {
        Scenario {
            heading: heading.to_owned(),
            args: Vec::new(),
            engine: false,
            server: false,
            fields,
        }
    }

    fn pairs(figures: [(f64, f64); 5]) -> Vec<Pair> {
        let outcome = |figure: f64| Outcome {
            jobs_per_s: figure,
            p50_ms: figure,
            ..Outcome::default()
        };
        let pair = |(other, this)| Pair {
            other: outcome(other),
            this: outcome(this),
        };
        figures.map(pair).into()
    }

    /// The expected values are from a table of the binomial distribution with p = 0.5.
    #[test]
    fn the_interval_has_at_least_the_confidence() {
        let chosen = |count| rank(count).map(|(k, confidence)| (k, (confidence * 1e4).round()));
        assert_eq!(chosen(0), None);
        assert_eq!(chosen(4), None);
        assert_eq!(chosen(5), Some((0, 9375.0)));
        assert_eq!(chosen(7), Some((0, 9844.0)));
        assert_eq!(chosen(8), Some((1, 9297.0)));
        assert_eq!(chosen(10), Some((1, 9785.0)));
        assert_eq!(chosen(20), Some((5, 9586.0)));
    }

    #[test]
    fn an_estimate_is_a_median_between_two_ratios() {
        assert_eq!(estimate(vec![1.0; 4]), None);
        let five = estimate(vec![1.2, 0.9, 1.0, 1.1, 0.8]);
        let expected = |median, low, high| Some(Estimate { median, low, high });
        assert_eq!(five, expected(1.0, 0.8, 1.2));
        let with_outliers = estimate(vec![9.0, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 0.1]);
        assert_eq!(with_outliers, expected(1.25, 1.0, 1.5));
    }

    #[test]
    fn a_ratio_above_one_is_better() {
        assert_eq!(ratio("jobs/s", 100.0, 200.0), Some(2.0));
        assert_eq!(ratio("p50 ms", 2.0, 4.0), Some(0.5));
        assert_eq!(ratio("p50 ms", 0.0, 4.0), None);
        assert_eq!(ratio("jobs/s", 1.0, 0.0), None);
    }

    #[test]
    fn the_table_marks_only_what_is_worse_in_every_round() {
        let (drain, latency) = (scenario("drain", RATE), scenario("latency", LATENCY));
        let subject = &SUBJECTS[0];
        let worse = [
            (100.0, 80.0),
            (50.0, 45.0),
            (100.0, 90.0),
            (10.0, 9.0),
            (10.0, 8.0),
        ];
        let as_before = [(1.0, 1.0), (1.0, 2.0), (1.0, 0.5), (2.0, 1.0), (1.0, 1.0)];
        let one = |scenario, figures| Measured {
            scenario,
            subject,
            pairs: pairs(figures),
        };
        let measured = [one(&drain, worse), one(&latency, as_before)];
        let (shown, slower) = table("main", 0.95, &measured);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[2..4],
            [
                "| drain | memory | jobs/s | 50 | 45 | 0.90 | 0.80 to 0.90 | worse |",
                "| latency | memory | p50 ms | 1 | 1 | 1.00 | 0.50 to 2.00 |  |",
            ]
        );
        assert_eq!(lines[4], "| latency | memory | p99 ms | 0 | 0 | – | – |  |");
        assert_eq!(slower, 1);
        let (_, slower) = table("main", 0.9, &measured);
        assert_eq!(
            slower, 0,
            "an interval that touches the threshold is not below it"
        );
        assert_eq!(wrong_runs("main", &measured), Vec::<String>::new());
    }

    #[test]
    fn lost_jobs_are_named_with_the_revision() {
        let drain = scenario("drain", RATE);
        let mut pairs = pairs([(1.0, 1.0); 5]);
        pairs[2].this.missing = 3;
        let measured = [Measured {
            scenario: &drain,
            subject: &SUBJECTS[0],
            pairs,
        }];
        let wrong = wrong_runs("main", &measured);
        assert_eq!(wrong, ["memory (working tree), drain: 3 missing"]);
    }
}
