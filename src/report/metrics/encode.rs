//! The two text formats, and which of them a scraper gets.

use std::fmt::Write as _;

use prometheus::TextEncoder;
use prometheus::proto::{LabelPair, MetricFamily, MetricType};

/// A format of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format 0.0.4.
    Text,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// The one that an `Accept` header likes best; text where it likes both or neither.
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut text, mut open) = (None::<f32>, None::<f32>);
        for part in accept.unwrap_or("*/*").split(',') {
            let mut pieces = part.split(';').map(str::trim);
            let kind = pieces.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> = pieces.filter_map(|piece| piece.split_once('=')).collect();
            let find = |name: &str| parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, v)| *v);
            let quality = find("q").and_then(|q| q.parse().ok()).unwrap_or(1.0f32);
            let best = match kind.as_str() {
                "application/openmetrics-text" if matches!(find("version"), None | Some("1.0.0")) => &mut open,
                "text/plain" | "text/*" | "*/*" => &mut text,
                _ => continue,
            };
            *best = Some(best.unwrap_or(0.0).max(quality));
        }
        match (open, text) {
            (Some(open), text) if open > 0.0 && open > text.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

pub(super) fn encode(families: &[MetricFamily], format: Format) -> String {
    let mut text = String::new();
    match format {
        Format::Text => {
            TextEncoder::new().encode_utf8(families, &mut text).expect("BUG: families are whole, a string takes all");
        }
        Format::OpenMetrics => {
            for family in families {
                open_family(&mut text, family);
            }
            text.push_str("# EOF\n");
        }
    }
    text
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("BUG: writing to a string cannot fail");
}

fn open_family(text: &mut String, family: &MetricFamily) {
    let kind = family.get_field_type();
    let (name, word) = match kind {
        MetricType::COUNTER => (family.name().strip_suffix("_total").unwrap_or(family.name()), "counter"),
        MetricType::HISTOGRAM => (family.name(), "histogram"),
        MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => (family.name(), "gauge"),
    };
    put(text, format_args!("# TYPE {name} {word}\n"));
    if name.ends_with("_seconds") {
        put(text, format_args!("# UNIT {name} seconds\n"));
    }
    put(text, format_args!("# HELP {name} {}\n", escaped(family.help())));
    for metric in family.get_metric() {
        let labels = metric.get_label();
        match kind {
            MetricType::COUNTER => sample(text, name, "_total", labels, None, metric.get_counter().get_value()),
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                let count = histogram.get_sample_count();
                for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
                    // As in the text format, so that a series has one name whichever format is scraped.
                    let bound = bucket.upper_bound().to_string();
                    sample(text, name, "_bucket", labels, Some(&bound), whole(bucket.cumulative_count()));
                }
                sample(text, name, "_bucket", labels, Some("+Inf"), whole(count));
                sample(text, name, "_sum", labels, None, histogram.get_sample_sum());
                sample(text, name, "_count", labels, None, whole(count));
            }
            MetricType::GAUGE | MetricType::SUMMARY | MetricType::UNTYPED => {
                sample(text, name, "", labels, None, metric.get_gauge().get_value());
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "beyond 2^53 of anything nobody counts by ones")]
fn whole(count: u64) -> f64 {
    count as f64
}

fn sample(text: &mut String, name: &str, suffix: &str, labels: &[LabelPair], bound: Option<&str>, value: f64) {
    put(text, format_args!("{name}{suffix}"));
    let pairs = labels.iter().map(|label| (label.name(), label.value())).chain(bound.map(|bound| ("le", bound)));
    let mut open = '{';
    for (label, value) in pairs {
        put(text, format_args!("{open}{label}=\"{}\"", escaped(value)));
        open = ',';
    }
    let close = if open == ',' { "}" } else { "" };
    put(text, format_args!("{close} {value}\n"));
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::report::Metrics;

    #[rstest]
    #[case(None, Format::Text)]
    #[case(Some("*/*"), Format::Text)]
    #[case(Some("text/html"), Format::Text)]
    #[case(Some("application/openmetrics-text"), Format::OpenMetrics)]
    #[case(Some("application/openmetrics-text; version=0.0.1"), Format::Text)]
    #[case(Some("application/openmetrics-text;q=0"), Format::Text)]
    #[case(Some("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;q=0.5"), Format::Text)]
    // What Prometheus 2.42 asks for.
    #[case(
        Some(
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
        ),
        Format::OpenMetrics
    )]
    fn the_format_that_is_liked_best_is_given(#[case] accept: Option<&str>, #[case] format: Format) {
        assert_eq!(Format::accepted(accept), format);
    }

    #[test]
    fn both_formats_hold_the_same_samples() {
        let metrics = Metrics::new("1 \"x\"\\", "a\nb");
        let samples = |format| {
            let text = metrics.text(format);
            let mut samples: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            samples.sort();
            samples
        };
        assert_eq!(samples(Format::Text), samples(Format::OpenMetrics));
        assert!(metrics.text(Format::OpenMetrics).ends_with("\n# EOF\n"));
        assert!(metrics.text(Format::OpenMetrics).contains("# TYPE orchestrate_tasks_finished counter\n"));
    }
}
