//! Looks up the recorder's handles for the metrics of the catalog.

use std::sync::atomic::{AtomicI64, Ordering};

use ::metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, SharedString};

use super::catalog::{Kind, Metric, Values};

/// The metadata of all metrics. The level is `INFO`, because all metrics are for operators.
static METADATA: Metadata<'static> = Metadata::new("ratchet", Level::INFO, Some("ratchet"));

impl Metric {
    /// Returns the counter with these label values. They are in the order of the metric's labels.
    pub(super) fn counter<const N: usize>(&self, values: [SharedString; N]) -> Counter {
        let key = self.key(values);
        ::metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
    }

    /// Returns the gauge with these label values. They are in the order of the metric's labels.
    pub(super) fn gauge<const N: usize>(&self, values: [SharedString; N]) -> Gauge {
        let key = self.key(values);
        ::metrics::with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    /// Returns the histogram with these label values. They are in the order of the metric's labels.
    pub(super) fn histogram<const N: usize>(&self, values: [SharedString; N]) -> Histogram {
        let key = self.key(values);
        ::metrics::with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    /// Creates the counter with the value 0 for every combination of label values. If a counter did
    /// not exist before its first event, monitoring would not see this event as an increase.
    ///
    /// `unbounded` has the values of the labels whose values the catalog does not list, in the
    /// order of these labels. If a value is missing, no counter is created.
    pub(super) fn begin(&self, unbounded: &[SharedString]) {
        let mut unbounded = unbounded.iter();
        let mut series: Vec<Vec<Label>> = vec![Vec::new()];
        for label in self.labels {
            let values: Vec<SharedString> = match label.values {
                Values::OneOf(values) => values.iter().map(|value| (*value).into()).collect(),
                _ => unbounded.next().cloned().into_iter().collect(),
            };
            let mut longer = Vec::with_capacity(series.len() * values.len());
            for before in &series {
                for value in &values {
                    let last = Label::new(label.name, value.clone());
                    longer.push(before.iter().cloned().chain([last]).collect());
                }
            }
            series = longer;
        }
        for labels in series {
            let key = Key::from_parts(self.name, labels);
            let counter =
                ::metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA));
            counter.increment(0);
        }
    }

    pub(super) fn describe(&self) {
        let (name, text) = (self.name.into(), self.description.into());
        ::metrics::with_recorder(|recorder| match self.kind {
            Kind::Counter => recorder.describe_counter(name, self.unit, text),
            Kind::Gauge => recorder.describe_gauge(name, self.unit, text),
            Kind::Histogram => recorder.describe_histogram(name, self.unit, text),
        });
    }

    fn key<const N: usize>(&self, values: [SharedString; N]) -> Key {
        debug_assert_eq!(self.labels.len(), N, "labels of {}", self.name);
        if N == 0 {
            return Key::from_static_name(self.name);
        }
        let labels = self.labels.iter().zip(values);
        let labels: Vec<Label> = labels
            .map(|(label, value)| Label::new(label.name, value))
            .collect();
        Key::from_parts(self.name, labels)
    }
}

/// The amount that one owner contributes to a gauge. The gauge shows the sum for all owners, such
/// as several nodes of one process. Dropping an `Amount` subtracts it from the gauge.
pub(crate) struct Amount {
    gauge: Gauge,
    told: AtomicI64,
}

impl Amount {
    pub(super) const fn new(gauge: Gauge) -> Self {
        Self {
            gauge,
            told: AtomicI64::new(0),
        }
    }

    /// Sets the amount of this owner, and changes the gauge by the difference.
    pub(crate) fn set(&self, now: usize) {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        self.add(now - self.told.swap(now, Ordering::Relaxed));
    }

    /// Increases the amount by one until the returned value is dropped.
    pub(crate) fn enter(&self) -> impl Drop + '_ {
        struct Entered<'a>(&'a Amount);
        impl Drop for Entered<'_> {
            fn drop(&mut self) {
                self.0.told.fetch_sub(1, Ordering::Relaxed);
                self.0.add(-1);
            }
        }
        self.told.fetch_add(1, Ordering::Relaxed);
        self.add(1);
        Entered(self)
    }

    fn add(&self, change: i64) {
        if change != 0 {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            self.gauge.increment(change as f64);
        }
    }
}

impl Drop for Amount {
    fn drop(&mut self) {
        self.set(0);
    }
}
