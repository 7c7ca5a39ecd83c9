//! One scrape under construction: values go in by family, text comes out.

use std::collections::BTreeMap;

use prometheus::{
    Encoder as _, TextEncoder,
    proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType},
};

use super::names::{Family, Kind};

/// Longest label value.
const LABEL_BYTES: usize = 128;

/// Families with their samples.
#[derive(Debug, Default)]
pub(crate) struct Page {
    families: BTreeMap<&'static str, MetricFamily>,
}

impl Page {
    /// Adds a sample of a counter or gauge. `labels` are values in the order of the family.
    pub(crate) fn add(&mut self, family: &'static Family, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        let mut metric = Metric::from_label(pairs(family, labels));
        match family.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Kind::Gauge | Kind::Histogram => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
        }
        self.family(family).mut_metric().push(metric);
    }

    /// Adds an integer sample.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the exposition format has floats only"
    )]
    pub(crate) fn count(&mut self, family: &'static Family, labels: &[&str], value: u64) {
        self.add(family, labels, value as f64);
    }

    /// Adds a histogram that was counted elsewhere. `buckets` has one number more than
    /// `bounds` (seconds); they are not cumulative.
    pub(crate) fn distribution(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        bounds: &[f64],
        buckets: &[u64],
        sum: f64,
    ) {
        let mut histogram = Histogram::default();
        let mut below = 0;
        let steps = bounds.iter().zip(buckets).map(|(bound, count)| {
            below += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(below);
            bucket
        });
        histogram.set_bucket(steps.collect());
        histogram.set_sample_count(buckets.iter().sum());
        histogram.set_sample_sum(sum);
        let mut metric = Metric::from_label(pairs(family, labels));
        metric.set_histogram(histogram);
        self.family(family).mut_metric().push(metric);
    }

    /// Adds what the registry of the crate collected: histograms.
    pub(crate) fn gathered(&mut self, families: Vec<MetricFamily>) -> Vec<MetricFamily> {
        let mut all = families;
        all.extend(std::mem::take(&mut self.families).into_values());
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    fn family(&mut self, family: &'static Family) -> &mut MetricFamily {
        self.families.entry(family.name).or_insert_with(|| {
            let mut made = MetricFamily::default();
            made.set_name(family.name.to_owned());
            made.set_help(family.help.to_owned());
            made.set_field_type(match family.kind {
                Kind::Counter => MetricType::COUNTER,
                Kind::Gauge => MetricType::GAUGE,
                Kind::Histogram => MetricType::HISTOGRAM,
            });
            made
        })
    }
}

fn pairs(family: &Family, labels: &[&str]) -> Vec<LabelPair> {
    let pairs = family.labels.iter().zip(labels);
    let pairs = pairs.map(|(name, text)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(label(text));
        pair
    });
    pairs.collect()
}

/// The text of a scrape.
pub(crate) fn encode(families: &[MetricFamily]) -> Result<Vec<u8>, prometheus::Error> {
    let mut text = Vec::new();
    TextEncoder::new().encode(families, &mut text)?;
    Ok(text)
}

/// A label value: no control characters, at most [`LABEL_BYTES`] bytes.
fn label(text: &str) -> String {
    let mut safe: String = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if safe.len() > LABEL_BYTES {
        let mut end = LABEL_BYTES - '…'.len_utf8();
        while !safe.is_char_boundary(end) {
            end -= 1;
        }
        safe.truncate(end);
        safe.push('…');
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names;

    #[test]
    fn samples_of_a_family_stand_together_with_help_and_type() {
        let mut page = Page::default();
        page.count(&names::CONNECTIONS, &["tcp", "hk"], 3);
        page.count(&names::LOG_EVENTS, &["warn"], 1);
        page.count(&names::CONNECTIONS, &["udp", "a\"b\n"], 0);
        let text = String::from_utf8(encode(&page.gathered(Vec::new())).unwrap()).unwrap();
        let expected = "\
# HELP honk_connections Flows that userspace carries now.
# TYPE honk_connections gauge
honk_connections{network=\"tcp\",outbound=\"hk\"} 3
honk_connections{network=\"udp\",outbound=\"a\\\"b?\"} 0
# HELP honk_log_events_total Log lines written.
# TYPE honk_log_events_total counter
honk_log_events_total{level=\"warn\"} 1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let cut = label(&"節".repeat(60));
        assert!(cut.len() <= LABEL_BYTES && cut.ends_with('…'), "{cut}");
    }
}
