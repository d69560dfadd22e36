//! Traffic splits as messages.

use symphony_cluster_state::{Shadow, Traffic};

use crate::control as pb;

impl From<pb::ModelTraffic> for Traffic {
    fn from(traffic: pb::ModelTraffic) -> Self {
        let weights = traffic.weights.into_iter().map(|pb::TrafficWeight { version, weight }| (version, weight));
        let (version, percent) = (traffic.shadow_version, traffic.shadow_percent);
        Self { weights: weights.collect(), shadow: (version != 0).then_some(Shadow { version, percent }) }
    }
}

impl From<(&String, &Traffic)> for pb::ModelTraffic {
    fn from((model, traffic): (&String, &Traffic)) -> Self {
        let weights = traffic.weights.iter().map(|(&version, &weight)| pb::TrafficWeight { version, weight });
        let (shadow_version, shadow_percent) = traffic.shadow.map_or((0, 0), |shadow| (shadow.version, shadow.percent));
        Self { model: model.clone(), weights: weights.collect(), shadow_version, shadow_percent }
    }
}
