//! Checks of the `scheduler` section, with learning and autoscaling.

use super::{Check, limits};
use crate::{AutoscalingConfig, LearningConfig, NodeConfig, PriceConfig, SchedulerConfig};

impl Check {
    pub(super) fn scheduler(&mut self, config: &NodeConfig, scheduler: &SchedulerConfig) {
        let ids = || {
            let ids: Vec<_> = config.cluster.scheduler.iter().map(|r| r.id.get().to_string()).collect();
            if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
        };
        if config.cluster.replica(scheduler.id).is_none() {
            let id = scheduler.id.get();
            self.say("scheduler.id", format!("{id} is not among the ids of cluster.scheduler ({})", ids()));
        }
        if scheduler.data_dir.as_os_str().is_empty() {
            self.say(
                "scheduler.data_dir",
                "no directory is given; name one that survives restarts: a replica must not forget its votes",
            );
        }
        let threads = u64::from(scheduler.decision_threads);
        self.range("scheduler.decision_threads", threads, 0, limits::DECISION_THREADS_MAX.into());
        let threads = u64::from(scheduler.model_threads);
        self.range("scheduler.model_threads", threads, 0, limits::MODEL_THREADS_MAX.into());
        self.range("scheduler.tape_mb_max", scheduler.tape_mb_max, 1, limits::TAPE_MB_MAX);
        self.range("scheduler.loop_speedup", scheduler.loop_speedup.into(), 1, limits::LOOP_SPEEDUP_MAX.into());
        if let Some(dir) = scheduler.tape_dir.as_ref().filter(|dir| **dir == scheduler.data_dir) {
            let dir = dir.display();
            self.say(
                "scheduler.tape_dir",
                format!("`{dir}` is scheduler.data_dir; give tapes a directory, and better a disk, of their own"),
            );
        }
        for (name, delay_us) in scheduler.delays.each() {
            self.range(format!("scheduler.delays.{name}"), delay_us, 0, limits::DELAY_US_MAX);
        }
        let (min, max) = (scheduler.delays.data_us_min, scheduler.delays.data_us_max);
        if min > max {
            self.say("scheduler.delays.data_us_min", format!("{min} is more than scheduler.delays.data_us_max, {max}"));
        }
        self.autoscaling(&scheduler.autoscaling);
        self.learning(&scheduler.learning);
    }

    fn learning(&mut self, learning: &LearningConfig) {
        let key = |name: &str| format!("scheduler.learning.{name}");
        let percent = u64::from(learning.quarantined_percent_max);
        self.range(key("quarantined_percent_max"), percent, 0, limits::QUARANTINED_PERCENT_MAX.into());
        self.range(key("quarantine_s"), learning.quarantine_s, 1, limits::QUARANTINE_S_MAX);
    }

    fn autoscaling(&mut self, scaling: &AutoscalingConfig) {
        let key = |name: &str| format!("scheduler.autoscaling.{name}");
        self.range(key("gpus_max"), scaling.gpus_max.into(), 1, limits::SCALED_GPUS_MAX.into());
        self.range(key("gpus_min"), scaling.gpus_min.into(), 0, scaling.gpus_max.into());
        self.range(key("reserve_percent"), scaling.reserve_percent.into(), 0, limits::RESERVE_PERCENT_MAX.into());
        self.range(key("order_stands_s"), scaling.order_stands_s, 0, limits::SCALING_S_MAX);
        self.budget(scaling);
    }

    fn budget(&mut self, scaling: &AutoscalingConfig) {
        let key = |name: &str| format!("scheduler.autoscaling.{name}");
        let (budget, prices, max) = (scaling.budget_per_hour, &scaling.prices, limits::PRICE_MAX);
        if !(0.0..=max).contains(&budget) {
            self.say(key("budget_per_hour"), format!("{budget} is out of range; expected 0 for none, to {max}"));
        }
        if prices.len() > limits::PRICES_MAX {
            let (got, most) = (prices.len(), limits::PRICES_MAX);
            self.say(key("prices"), format!("{got} kinds have a price; expected at most {most}"));
        }
        for (position, PriceConfig { kind, per_hour }) in prices.iter().enumerate() {
            self.name(key(&format!("prices.{position}.kind")), kind);
            if prices[..position].iter().any(|before| before.kind == *kind) {
                self.say(
                    key(&format!("prices.{position}.kind")),
                    format!("`{kind}` has a price already; leave one out"),
                );
            }
            if !(*per_hour > 0.0 && *per_hour <= max) {
                let words = format!("{per_hour} is out of range; expected a number above 0, at most {max}");
                self.say(key(&format!("prices.{position}.per_hour")), words);
            }
        }
        let cheapest = prices.iter().map(|price| price.per_hour).fold(f64::INFINITY, f64::min);
        if budget > 0.0 && prices.is_empty() {
            let words = "there is a budget and no price; expected what one GPU of each kind costs, as { kind = \"h100\", per_hour = 2.5 }";
            self.say(key("prices"), words);
        } else if budget > 0.0 && budget < cheapest {
            let words = format!("{budget} buys no GPU; expected at least {cheapest}, the price of the cheapest kind");
            self.say(key("budget_per_hour"), words);
        } else if budget == 0.0 && !prices.is_empty() {
            self.say(
                key("prices"),
                "there are prices and no budget; set scheduler.autoscaling.budget_per_hour, or leave them out",
            );
        }
    }
}
