//! The frontend's metrics.

use symphony_telemetry::{Kind, MetricName, Unit};

/// Every accepted request ends here, once.
pub const REQUESTS: MetricName = MetricName {
    name: "symphony_frontend_requests_total",
    help: "Accepted requests by their one outcome; reason is empty for answered and cancelled ones",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["model", "outcome", "reason"],
};

/// Requests that were refused before they were accepted.
pub const REFUSED: MetricName = MetricName {
    name: "symphony_frontend_requests_refused_total",
    help: "Requests that were refused before they were accepted, and by whose fault (client, server); model is empty if they were not \
           read so far",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["model", "reason", "fault"],
};

/// Calls of the repository extension.
pub const REPOSITORY_CALLS: MetricName = MetricName {
    name: "symphony_frontend_repository_calls_total",
    help: "Loads and unloads of models that clients asked for, by call and outcome (done, refused, failed)",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["call", "outcome"],
};

/// Versions of models by their state.
pub const MODELS: MetricName = MetricName {
    name: "symphony_frontend_models",
    help: "Versions of models that the clusters have, by state (ready, loading, unavailable)",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["state"],
};

/// Whether each model can be asked.
pub const MODEL_READY: MetricName = MetricName {
    name: "symphony_frontend_model_ready",
    help: "1 if requests for the model are accepted, else 0 and the reason why not",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &["model", "reason"],
};

/// What is promised of each model, and where it runs.
pub const MODEL_SLO: MetricName = MetricName {
    name: "symphony_frontend_model_slo_seconds",
    help: "Latency objective of the model, with the sub-cluster that serves it",
    kind: Kind::Gauge,
    unit: Unit::Seconds,
    labels: &["model", "subcluster"],
};

/// Lines of the access log that were lost because standard output was too slow.
pub const ACCESS_LINES_LOST: MetricName = MetricName {
    name: "symphony_frontend_access_lines_lost_total",
    help: "Lines of the access log that were lost because standard output does not take them as fast as they come",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Spans that did not arrive.
pub const SPANS_LOST: MetricName = MetricName {
    name: "symphony_frontend_spans_lost_total",
    help: "Spans that were lost because the collector of traces is away or does not take them as fast as they come",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// From arrival to outcome.
pub const REQUEST_DURATION: MetricName = MetricName {
    name: "symphony_frontend_request_duration_seconds",
    help: "Time from the arrival of a request to its outcome",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    labels: &["model"],
};

/// Batches, weighted by request.
pub const REQUEST_BATCH: MetricName = MetricName {
    name: "symphony_frontend_request_batch_items",
    help: "Items of the batch that an answered request ran in",
    kind: Kind::Histogram,
    unit: Unit::Count,
    labels: &["model"],
};

/// Requests without an outcome.
pub const IN_FLIGHT: MetricName = MetricName {
    name: "symphony_frontend_requests_in_flight",
    help: "Accepted requests that have no outcome yet",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// Late and doubled results.
pub const DISCARDED: MetricName = MetricName {
    name: "symphony_frontend_results_discarded_total",
    help: "Results that came for a request which had its outcome already and were not delivered",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// The other side of all outcomes.
pub const ACCEPTED: MetricName = MetricName {
    name: "symphony_frontend_requests_accepted_total",
    help: "Requests accepted; each gets one outcome",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Every result that came.
pub const RESULTS: MetricName = MetricName {
    name: "symphony_frontend_results_total",
    help: "Results that came, those that were discarded included",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Wasted executions.
pub const DUPLICATES: MetricName = MetricName {
    name: "symphony_frontend_duplicate_execution_ratio",
    help: "Share of the results that came after the outcome of their request, since the start",
    kind: Kind::Gauge,
    unit: Unit::Ratio,
    labels: &[],
};

/// Take-overs seen by requests.
pub const REDRIVEN: MetricName = MetricName {
    name: "symphony_frontend_requests_redriven_total",
    help: "Requests announced again to a new leader",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Who shares memory.
pub const SHARED_READERS: MetricName = MetricName {
    name: "symphony_frontend_shared_memory_backends",
    help: "Backends of this host that read inputs from shared memory now",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// How full it is.
pub const SHARED_BYTES: MetricName = MetricName {
    name: "symphony_frontend_shared_memory_used_bytes",
    help: "Shared memory that inputs take now, rounded up as it is given out",
    kind: Kind::Gauge,
    unit: Unit::Bytes,
    labels: &[],
};

/// When it was too full.
pub const SHARED_REFUSED: MetricName = MetricName {
    name: "symphony_frontend_shared_memory_refused_total",
    help: "Inputs that found no place in shared memory and travel by TCP",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &[],
};

/// Pictures, by what became of them.
pub const PICTURES: MetricName = MetricName {
    name: "symphony_frontend_pictures_total",
    help: "Pictures by outcome: decoded, undecodable, or abandoned since their request had ended",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["outcome"],
};

/// Work on pictures.
pub const PICTURE_DECODE: MetricName = MetricName {
    name: "symphony_frontend_picture_decode_seconds",
    help: "Time from the begin of a picture's decoding to the end of its item",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    labels: &[],
};

/// Too few threads.
pub const PICTURE_WAIT: MetricName = MetricName {
    name: "symphony_frontend_picture_wait_seconds",
    help: "Time that a picture waited for a thread to decode it",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    labels: &[],
};

/// Memory of decoded pictures.
pub const PICTURES_DECODED: MetricName = MetricName {
    name: "symphony_frontend_pictures_decoded_bytes",
    help: "Tensors that pictures become, as long as a request or an answer to a backend has them, and what pipelines hold between stages; at most frontend.images.decoded_mb_max",
    kind: Kind::Gauge,
    unit: Unit::Bytes,
    labels: &[],
};

/// Items that a tenant has used of its quota.
pub const TENANT_ITEMS: MetricName = MetricName {
    name: "symphony_frontend_tenant_items_total",
    help: "Items of requests that were let in, by tenant",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["tenant"],
};

/// GPU time by tenant.
pub const TENANT_GPU: MetricName = MetricName {
    name: "symphony_frontend_tenant_gpu_seconds_total",
    help: "GPU time that the requests which were let in take by the profiles of their models, by tenant",
    kind: Kind::Counter,
    unit: Unit::Seconds,
    labels: &["tenant"],
};

/// Shares of quotas.
pub const TENANT_SHARE: MetricName = MetricName {
    name: "symphony_frontend_tenant_quota_share_ratio",
    help: "The part of a tenant's quota (items, gpu_seconds) that this frontend may give",
    kind: Kind::Gauge,
    unit: Unit::Ratio,
    labels: &["tenant", "quota"],
};

/// Whether callers are known by the newest keys.
pub const TENANTS_FILE_OK: MetricName = MetricName {
    name: "symphony_frontend_tenants_file_ok",
    help: "1 if the file of tenants is in use as it is now, 0 if it cannot be used and what was read before stays",
    kind: Kind::Gauge,
    unit: Unit::Count,
    labels: &[],
};

/// Who was turned away.
pub const CALLERS_REFUSED: MetricName = MetricName {
    name: "symphony_frontend_callers_refused_total",
    help: "Calls that were refused for what their caller is: no key, an unknown one, no right, or a quota that is used up; tenant is empty \
           if it is unknown",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["tenant", "reason"],
};

/// Stage requests of pipelines, which are no requests by themselves.
pub const STAGE_REQUESTS: MetricName = MetricName {
    name: "symphony_frontend_stage_requests_total",
    help: "Stage requests of pipelines by their end (in_time, late, dropped, failed, withdrawn); their pipeline's request is counted once",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["pipeline", "stage", "outcome", "reason"],
};

/// From asking a stage to its result.
pub const STAGE_DURATION: MetricName = MetricName {
    name: "symphony_frontend_stage_duration_seconds",
    help: "Time from a stage request of a pipeline to its result",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    labels: &["pipeline", "stage"],
};

/// Between two stages.
pub const PIPELINE_HOP: MetricName = MetricName {
    name: "symphony_frontend_pipeline_hop_seconds",
    help: "Time from a stage's result to the header of the next stage's request on its way to a leader, with the cutting of regions and the decoding of pictures",
    kind: Kind::Histogram,
    unit: Unit::Seconds,
    labels: &["pipeline"],
};

/// One side of a fan-out.
pub const EDGE_RESULTS: MetricName = MetricName {
    name: "symphony_frontend_pipeline_edge_results_total",
    help: "Results of the stage before an edge of a pipeline",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["pipeline", "from", "to"],
};

/// The other side: divided by the results, the measured fan-out.
pub const EDGE_REQUESTS: MetricName = MetricName {
    name: "symphony_frontend_pipeline_edge_requests_total",
    help: "Stage requests that results led to along an edge of a pipeline",
    kind: Kind::Counter,
    unit: Unit::Count,
    labels: &["pipeline", "from", "to"],
};

/// Every metric of this file.
pub const ALL: [MetricName; 33] = [
    STAGE_REQUESTS,
    STAGE_DURATION,
    PIPELINE_HOP,
    EDGE_RESULTS,
    EDGE_REQUESTS,
    TENANT_ITEMS,
    TENANT_GPU,
    TENANT_SHARE,
    TENANTS_FILE_OK,
    CALLERS_REFUSED,
    REQUESTS,
    REFUSED,
    REPOSITORY_CALLS,
    MODELS,
    MODEL_READY,
    MODEL_SLO,
    ACCESS_LINES_LOST,
    SPANS_LOST,
    REQUEST_DURATION,
    REQUEST_BATCH,
    IN_FLIGHT,
    ACCEPTED,
    RESULTS,
    DISCARDED,
    DUPLICATES,
    REDRIVEN,
    SHARED_READERS,
    SHARED_BYTES,
    SHARED_REFUSED,
    PICTURES,
    PICTURE_DECODE,
    PICTURE_WAIT,
    PICTURES_DECODED,
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_names_keep_the_law() {
        assert_eq!(symphony_telemetry::check_names(&super::ALL, include_str!("metrics.rs")), Vec::<String>::new());
    }
}
