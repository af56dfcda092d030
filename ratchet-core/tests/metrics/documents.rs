//! Tests that `docs/metrics.md` lists every metric, and that it and the Grafana dashboard name no
//! unknown ones.

use std::collections::BTreeSet;

use ratchet_core::metrics::{CATALOG, Kind, Label, Metric, Values};

const DOCS: &str = include_str!("../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../docs/grafana/ratchet.json");

/// Returns the row that `docs/metrics.md` must contain for this metric.
fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let labels: Vec<String> = metric.labels.iter().map(shown).collect();
    let (name, text) = (metric.name, metric.description);
    format!("| `{name}` | {kind} | {} | {text} |", labels.join("; "))
}

fn shown(label: &Label) -> String {
    match label.values {
        Values::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{}`: {}", label.name, values.join(", "))
        }
        _ => format!("`{}`", label.name),
    }
}

#[test]
fn the_tables_are_those_of_the_catalog() {
    let rows: BTreeSet<&str> = DOCS
        .lines()
        .filter(|line| line.starts_with("| `ratchet_"))
        .collect();
    let expected: Vec<String> = CATALOG.iter().map(row).collect();
    for row in &expected {
        assert!(rows.contains(row.as_str()), "docs/metrics.md lacks\n{row}");
    }
    assert_eq!(
        rows.len(),
        expected.len(),
        "expected no rows of unknown metrics in the tables"
    );
}

/// Returns the words of a text that look like metrics, in the form of the catalog: without the
/// suffixes that an exporter adds to histograms.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named = words.filter(|word| word.starts_with("ratchet_"));
    let plain = named.map(|word| {
        let endings = ["_bucket", "_sum", "_count"];
        let without = endings.iter().find_map(|end| word.strip_suffix(end));
        without.unwrap_or(word)
    });
    plain.collect()
}

/// Returns the counters that the alerts in `docs/metrics.md` use.
pub(crate) fn counters_of_alerts() -> impl Iterator<Item = &'static Metric> {
    let rows = DOCS.lines().filter(|line| line.starts_with("| "));
    let alerts = rows.filter(|line| !line.starts_with("| `ratchet_"));
    let named: BTreeSet<&str> = alerts.flat_map(metrics_in).collect();
    let counters = CATALOG.iter().filter(|one| one.kind == Kind::Counter);
    counters.filter(move |counter| named.contains(counter.name))
}

#[test]
fn what_the_documents_name_is_in_the_catalog() {
    let known: BTreeSet<&str> = CATALOG.iter().map(|metric| metric.name).collect();
    // The documents also name these crates, whose names begin with the prefix of the metrics.
    let crates = BTreeSet::from(["ratchet_core", "ratchet_http"]);
    for (file, text) in [("metrics.md", DOCS), ("grafana/ratchet.json", DASHBOARD)] {
        let unknown: Vec<&str> = metrics_in(text)
            .into_iter()
            .filter(|name| !known.contains(name) && !crates.contains(name))
            .collect();
        assert!(unknown.is_empty(), "docs/{file} names {unknown:?}");
    }
}

#[test]
fn every_expression_of_the_dashboard_asks_for_a_metric_as_it_is() {
    let board: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut expressions = 0;
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "id of {title}");
        let targets = panel["targets"].as_array();
        for target in targets.into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let named = metrics_in(expression);
            assert!(!named.is_empty(), "{title}: {expression}");
            for name in named {
                let metric = CATALOG.iter().find(|metric| metric.name == name).unwrap();
                check(title, expression, metric);
            }
            expressions += 1;
        }
    }
    assert!(expressions >= 20, "{expressions} expressions");
}

#[test]
fn every_line_of_the_dashboard_has_the_unit_of_what_it_shows() {
    let board: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let (title, letter) = (&panel["title"], &target["refId"]);
            let field = &panel["fieldConfig"];
            let overrides = field["overrides"].as_array().unwrap().iter();
            let of_target = overrides
                .clone()
                .find(|one| one["matcher"]["options"] == *letter);
            let properties = of_target.and_then(|one| one["properties"].as_array());
            let property = |id: &str| {
                let mut all = properties.into_iter().flatten();
                all.find(|one| one["id"] == id).map(|one| &one["value"])
            };
            let unit = property("unit").unwrap_or(&field["defaults"]["unit"]);
            let expression = target["expr"].as_str().unwrap();
            assert_eq!(unit, shown_in(expression), "{title} {letter}: {expression}");
            // A line whose unit differs from the unit of the panel has a separate axis on the
            // right.
            if property("unit").is_some() {
                let axis = property("custom.axisPlacement");
                assert_eq!(axis.unwrap(), "right", "{title} {letter}");
            }
        }
    }
}

/// Returns the unit that the dashboard must use for this expression.
fn shown_in(expression: &str) -> &'static str {
    let of_histogram = expression.starts_with("histogram_quantile(");
    if expression.contains(") / ") {
        "percentunit"
    } else if expression.starts_with("60 * ") {
        "none"
    } else if expression.contains("rate(") && !of_histogram {
        "ops"
    } else if expression.contains("_seconds") {
        "s"
    } else {
        "none"
    }
}

/// Checks that an expression uses a metric in a way that the metric's kind allows, and only with
/// labels that the metric has.
fn check(title: &str, expression: &str, metric: &Metric) {
    let after: Vec<&str> = expression.split(metric.name).skip(1).collect();
    for rest in after {
        let ending = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find(|end| rest.starts_with(end));
        let is_histogram = metric.kind == Kind::Histogram;
        assert_eq!(ending.is_some(), is_histogram, "{title}: {expression}");
        let rest = &rest[ending.map_or(0, str::len)..];
        let ranged = rest
            .split([')', ' '])
            .next()
            .unwrap()
            .contains("[$__rate_interval]");
        let rated = metric.kind != Kind::Gauge;
        assert_eq!(ranged, rated, "{title}: {expression}");
    }
    let grouped = expression.split("by (").skip(1);
    let labels = grouped.flat_map(|rest| rest.split(')').next().unwrap().split(','));
    for label in labels
        .map(str::trim)
        .filter(|label| !["le", "instance"].contains(label))
    {
        let has = metric.labels.iter().any(|one| one.name == label);
        assert!(
            has,
            "{title}: expected the metric {} to have the label {label}",
            metric.name
        );
    }
}
