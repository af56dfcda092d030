//! The history that the overview plots: the last two hours, in steps of 10 s.

use std::collections::VecDeque;
use std::time::Duration;

use crate::view::{Point, Series};

/// The time between two points of the history.
pub(super) const STEP: Duration = Duration::from_secs(10);

/// The maximum number of points, which cover two hours.
const KEPT: usize = 2 * 60 * 60 / 10;

/// The points of the history, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<Point>);

impl Ring {
    /// Adds a point. Removes the oldest point if there are [`KEPT`] points already.
    pub(super) fn push(&mut self, point: Point) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(point);
    }

    /// Returns all points.
    pub(super) fn series(&self) -> Series {
        Series {
            step_ms: crate::view::millis(STEP),
            points: self.0.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::time::from_millis;

    use super::*;
    use crate::view::At;

    #[test]
    fn two_hours_are_kept() {
        let mut ring = Ring::default();
        for step in 0..1_000 {
            ring.push(Point::new(At(from_millis(step * 10_000))));
        }
        let points = ring.series().points;
        assert_eq!(points.len(), 720);
        assert_eq!(points[0].at, At(from_millis(280 * 10_000)));
        assert_eq!(points[719].at, At(from_millis(999 * 10_000)));
    }
}
