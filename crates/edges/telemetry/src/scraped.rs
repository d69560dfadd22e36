//! What tests read of a histogram as a scraper that takes native ones does.

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{self as model, MetricFamily};
use prost::Message as _;

use crate::Registry;

/// The only histogram of this name.
pub(crate) fn scraped(registry: &Registry, name: &str) -> model::Histogram {
    let bytes = registry.encode_protobuf().unwrap();
    let (mut rest, mut found) = (bytes.as_slice(), None);
    while !rest.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut rest).unwrap();
        if family.name == name {
            assert_eq!(family.r#type, model::MetricType::Histogram as i32);
            found = family.metric.into_iter().next();
        }
    }
    found.unwrap().histogram.unwrap()
}

/// Native buckets by index: spans state where they lie, deltas how many more they have than the one before.
pub(crate) fn native_counts(histogram: &model::Histogram) -> Vec<(i32, i64)> {
    let (mut index, mut count) = (0, 0);
    let mut deltas = histogram.positive_delta.iter();
    let mut counts = Vec::new();
    for span in &histogram.positive_span {
        index += span.offset;
        for _ in 0..span.length {
            count += deltas.next().unwrap();
            counts.push((index, count));
            index += 1;
        }
    }
    assert_eq!(deltas.next(), None, "a delta without a place");
    counts
}
