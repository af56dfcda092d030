//! Checks what must hold after any failover.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ratchet::{AttemptOutcome, Client, JobId, JobState};

/// An observation: a process led in a term at some time between `from` and `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) process: usize,
    /// The earliest time of the observation.
    pub(crate) from: i64,
    /// The latest time of the observation. The process may have been stopped between the two.
    pub(crate) to: i64,
    /// The term; 0 means that the process did not lead.
    pub(crate) term: u64,
}

/// Reads the samples of a process.
pub(crate) fn samples(process: usize, file: &Path) -> Vec<Sample> {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let sample = |line: &str| {
        let mut words = line.split(' ');
        Some(Sample {
            process,
            from: words.next()?.parse().ok()?,
            to: words.next()?.parse().ok()?,
            term: words.next()?.parse().ok()?,
        })
    };
    whole.lines().filter_map(sample).collect()
}

/// A summary of the samples.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) samples: usize,
    pub(crate) terms: usize,
}

/// Checks that at most one process leads in each term, that none leads after another began to lead
/// in a later term, and that some process was seen leading.
pub(crate) fn judge_leaders(samples: &[Sample]) -> Result<Reign, String> {
    let mut leaders: BTreeMap<u64, usize> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.term > 0) {
        let leader = *leaders.entry(sample.term).or_insert(sample.process);
        if leader != sample.process {
            return Err(format!(
                "expected one leader per term, but {leader} and {} led in one term: {sample:?}",
                sample.process
            ));
        }
    }
    for (term, last) in ends(samples) {
        let mut later = samples.iter().filter(|sample| sample.term > term);
        if let Some(successor) = later.find(|later| later.to < last.from) {
            return Err(format!(
                "expected one leader at a time, but {last:?} still led after {successor:?} had \
                 begun to lead"
            ));
        }
    }
    if leaders.is_empty() {
        return Err(format!(
            "expected a leader, but no process led in {} samples",
            samples.len()
        ));
    }
    Ok(Reign {
        samples: samples.len(),
        terms: leaders.len(),
    })
}

/// Returns the last sample of each term.
fn ends(samples: &[Sample]) -> BTreeMap<u64, Sample> {
    let mut ends = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.term > 0) {
        let end = ends.entry(sample.term).or_insert(*sample);
        if sample.from > end.from {
            *end = *sample;
        }
    }
    ends
}

/// Returns how long after `since` a process led in a later term than any seen before.
pub(crate) fn promotion(samples: &[Sample], since: i64) -> Option<Duration> {
    let before = samples.iter().filter(|sample| sample.to <= since);
    let last_term = before.map(|sample| sample.term).max()?;
    let later = samples.iter().filter(|sample| sample.term > last_term);
    let first = later.map(|sample| sample.to).min()?;
    Some(Duration::from_millis(
        (first - since).max(0).cast_unsigned(),
    ))
}

/// Returns the lines of steps that began after a later step of their lane had begun, except the
/// lines of the process `stopped`. That process may have been stopped just before a body wrote its
/// line. It writes the line when it continues, although the claim has been reclaimed by then.
pub(crate) fn inversions(bodies: &str, stopped: Option<u32>) -> Vec<&str> {
    let stopped = stopped.map(|process| process.to_string());
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let mut inversions = Vec::new();
    for line in bodies.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(lane), Some(number), process) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Ok(number) = number.parse::<u64>() else {
            continue;
        };
        let last = last.entry(lane).or_insert(number);
        // Equal numbers are allowed: the same step ran again after a crash.
        if number < *last && (process != stopped.as_deref() || stopped.is_none()) {
            inversions.push(line);
        }
        *last = (*last).max(number);
    }
    inversions
}

/// Checks that every acknowledged job succeeded, and began again only under a new claim after a
/// lost one. Returns how many jobs began again.
pub(crate) async fn judge_jobs(client: &Client, acknowledged: &[JobId], bodies: &str) -> usize {
    let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
    for line in bodies.lines() {
        *begun
            .entry(line.split(' ').next().unwrap_or_default())
            .or_default() += 1;
    }
    let mut again = 0;
    for id in acknowledged {
        let job = client.job(*id).await.unwrap();
        let job = job.unwrap_or_else(|| {
            panic!(
                "the job {id} was acknowledged, so it should be \
                 stored"
            )
        });
        assert_eq!(job.state, JobState::Succeeded, "{job:?}");
        let begun = begun
            .get(id.to_string().as_str())
            .copied()
            .unwrap_or_default();
        assert!(
            begun > 0,
            "the job {id} succeeded, so it should have a body"
        );
        if begun > 1 {
            again += begun - 1;
            let history = client.history(*id).await.unwrap();
            let lost = history
                .iter()
                .filter(|attempt| attempt.outcome == AttemptOutcome::Lost);
            assert!(
                begun <= 1 + lost.count(),
                "the body of job {id} began {begun} times, which is too often for its lost claims: \
                 {history:?}"
            );
            assert!(job.claim_seq >= begun as u64, "{job:?}");
        }
    }
    again
}

/// Checks that the judge itself rejects wrong and empty samples.
pub(crate) fn check_itself() {
    let sample = |process, from, term| Sample {
        process,
        from,
        to: from + 1,
        term,
    };
    judge_leaders(&[]).unwrap_err();
    judge_leaders(&[sample(0, 1, 0), sample(1, 1, 0)]).unwrap_err();
    judge_leaders(&[sample(0, 1, 7), sample(1, 9, 7)]).unwrap_err();
    judge_leaders(&[sample(0, 1, 7), sample(1, 9, 8), sample(0, 12, 7)]).unwrap_err();
    let good = [
        sample(0, 1, 7),
        sample(0, 8, 7),
        sample(1, 8, 8),
        sample(0, 12, 0),
    ];
    let reign = Reign {
        samples: 4,
        terms: 2,
    };
    assert_eq!(judge_leaders(&good), Ok(reign));
    assert_eq!(promotion(&good, 3), Some(Duration::from_millis(6)));
    assert_eq!(promotion(&good, 10), None);
    assert!(inversions("a l 1 7\na l 1 7\nb l 2 7\nc m 1 7\n", None).is_empty());
    let late = "a l 1 7\nb l 2 7\na l 1 8\n";
    for other in [None, Some(7)] {
        assert_eq!(inversions(late, other), ["a l 1 8"]);
    }
    assert!(inversions(late, Some(8)).is_empty());
}
