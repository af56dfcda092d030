//! A recorder that keeps all recorded values, and checks them against the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, LocalRecorderGuard,
    Metadata, Recorder, SharedString, Unit,
};
use ratchet_core::metrics::{CATALOG, Kind, Metric, OTHER, Values};

type Labels = Vec<(String, String)>;
type AllSeries = BTreeMap<(String, Labels), (Kind, Arc<Series>)>;
type Descriptions = BTreeMap<String, (Kind, Option<Unit>, String)>;

/// A recorder of metrics for one thread. It keeps the recorded values and the descriptions.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    series: Arc<Mutex<AllSeries>>,
    described: Arc<Mutex<Descriptions>>,
}

/// The values that were recorded for one metric with one set of labels, in order. Setting a gauge
/// removes the earlier values.
#[derive(Default)]
struct Series(Mutex<Vec<f64>>);

impl Series {
    fn tell(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }

    fn all(&self) -> Vec<f64> {
        self.0.lock().unwrap().clone()
    }
}

impl CounterFn for Series {
    #[expect(clippy::cast_precision_loss, reason = "tests count little")]
    fn increment(&self, value: u64) {
        self.tell(value as f64);
    }

    fn absolute(&self, _value: u64) {
        panic!("no metric should set a counter to an absolute value");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.tell(value);
    }

    fn decrement(&self, value: f64) {
        self.tell(-value);
    }

    fn set(&self, value: f64) {
        let mut all = self.0.lock().unwrap();
        all.clear();
        all.push(value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.tell(value);
    }
}

impl Metrics {
    /// Installs the recorder for this thread.
    pub(crate) fn install(&self) -> LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(self)
    }

    /// Returns the sum of a counter or a gauge, over all series that have these labels.
    pub(crate) fn sum(&self, metric: Metric, labels: &[(&str, &str)]) -> f64 {
        self.values(metric, labels).iter().sum()
    }

    /// Returns the recorded values of a metric, over all series that have these labels.
    pub(crate) fn values(&self, metric: Metric, labels: &[(&str, &str)]) -> Vec<f64> {
        let series = self.series.lock().unwrap();
        let has = |all: &Labels, (name, value): &(&str, &str)| {
            all.iter().any(|(n, v)| n == name && v == value)
        };
        let matching = series.iter().filter(|((name, all), _)| {
            name == metric.name && labels.iter().all(|label| has(all, label))
        });
        matching.flat_map(|(_, (_, one))| one.all()).collect()
    }

    /// Returns the names of the metrics that have recorded a value. For counters, only increments
    /// count.
    pub(crate) fn emitted(&self) -> BTreeSet<String> {
        let series = self.series.lock().unwrap();
        let told = series.iter().filter(|(_, (kind, one))| match kind {
            Kind::Counter => one.all().iter().sum::<f64>() > 0.0,
            Kind::Gauge | Kind::Histogram => !one.all().is_empty(),
        });
        told.map(|((name, _), _)| name.clone()).collect()
    }

    /// Checks that every recorded metric is in the catalog with its kind, labels and description,
    /// and that its labels have only allowed values.
    pub(crate) fn check(&self) {
        for ((name, labels), (kind, _)) in &*self.series.lock().unwrap() {
            let metric = CATALOG.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| {
                panic!(
                    "expected {name} in the catalog of \
                     metrics"
                )
            });
            assert_eq!(metric.kind, *kind, "{name}");
            let names: Vec<&str> = labels.iter().map(|(name, _)| name.as_str()).collect();
            let declared: Vec<&str> = metric.labels.iter().map(|label| label.name).collect();
            assert_eq!(names, declared, "labels of {name}");
            for (label, (_, value)) in metric.labels.iter().zip(labels) {
                assert!(is_among(label.values, value), "{name} of {value}");
            }
        }
        for (name, (kind, unit, text)) in &*self.described.lock().unwrap() {
            let metric = CATALOG.iter().find(|metric| metric.name == name).unwrap();
            assert_eq!((metric.kind, metric.unit), (*kind, *unit), "{name}");
            assert_eq!(metric.description, text);
        }
    }

    /// Returns how many metrics were described.
    pub(crate) fn described(&self) -> usize {
        self.described.lock().unwrap().len()
    }

    fn series(&self, key: &Key, kind: Kind) -> Arc<Series> {
        let labels = key.labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        let mut series = self.series.lock().unwrap();
        let one = series.entry((key.name().to_owned(), labels.collect()));
        let (first, one) = one.or_insert_with(|| (kind, Arc::default()));
        assert_eq!(
            *first,
            kind,
            "expected one kind of metric for {}, found two",
            key.name()
        );
        Arc::clone(one)
    }

    fn describe(&self, key: &KeyName, kind: Kind, unit: Option<Unit>, text: &SharedString) {
        let what = (kind, unit, text.to_string());
        let mut described = self.described.lock().unwrap();
        described.insert(key.as_str().to_owned(), what);
    }
}

/// Returns whether a label may have this value in these tests.
fn is_among(values: Values, value: &str) -> bool {
    match values {
        Values::OneOf(all) => all.contains(&value),
        Values::Kinds => ["scripted", "mail", "unheard of", OTHER].contains(&value),
        Values::Queues => ["mail", "quiet"].contains(&value),
        Values::Pools => ["default", "system", "small"].contains(&value),
        Values::Roles => ["maintenance", "pricing", "feed"].contains(&value),
        Values::Operations => value.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
        other => panic!("expected a label with known bounds, found {other:?}"),
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, Kind::Counter, unit, &text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, Kind::Gauge, unit, &text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&key, Kind::Histogram, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key, Kind::Counter))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key, Kind::Gauge))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key, Kind::Histogram))
    }
}
