//! The scheduler alone under load; exit code 1 if it lags its schedule.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use symphony_benches::measured::{Figures, Measured};
use symphony_benches::stress::{StressPlan, StressReport, run};
use symphony_scheduler::{Delays, GPUS_MAX};
use symphony_scheduler_runtime::SUBCLUSTER_MODELS_MAX;
use symphony_types::Nanos;

/// Real model and rank threads of the runtime on a real clock; requests and GPUs are objects of this process.
///
/// The load is open loop: requests fall due on a Poisson schedule whatever the scheduler does, and the run fails, with
/// exit code 1, when one of them is taken in too late or too many are dropped.
#[derive(Debug, Parser)]
#[command(name = "scheduler-stress", version)]
struct Args {
    /// Models, equally popular.
    #[arg(long, default_value_t = 16)]
    models: u32,
    /// Emulated GPUs.
    #[arg(long, default_value_t = 64)]
    gpus: u32,
    /// Model threads beside the rank thread; 0 runs everything on one thread.
    #[arg(long, default_value_t = 1)]
    model_threads: u32,
    /// Requests per second in total.
    #[arg(long, default_value_t = 100_000.0)]
    rate: f64,
    /// Searches the highest rate that passes, beginning at --rate, to within 5 %.
    #[arg(long)]
    find_rate: bool,
    /// Seconds that count.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// ℓ(b) = α·b + β.
    #[arg(long, default_value_t = 0.01)]
    alpha_ms: f64,
    /// See --alpha-ms.
    #[arg(long, default_value_t = 5.0)]
    beta_ms: f64,
    /// The largest batch.
    #[arg(long, default_value_t = 256)]
    batch_max: u32,
    /// SLO of every model.
    #[arg(long, default_value_t = 100.0)]
    slo_ms: f64,
    /// Control delay and guard of every model.
    #[arg(long, default_value_t = 100)]
    delay_us: u64,
    /// Requests that fall due within this many microseconds share a frame.
    #[arg(long, default_value_t = 20)]
    frame_us: u64,
    /// A request that is taken in later than this fails the run.
    #[arg(long, default_value_t = 2.0)]
    lag_ms: f64,
    /// More bad requests than this share fail the run.
    #[arg(long, default_value_t = 0.01)]
    bad_max: f64,
    /// GPUs never end what they were given: requests gather, as many as are sent. With a long --slo-ms, for memory.
    #[arg(long)]
    hang: bool,
    /// Record nothing for `symphony explain`: to measure what that costs.
    #[arg(long)]
    no_recorder: bool,
    /// Decision threads sleep when they have nothing to do, instead of spinning.
    #[arg(long)]
    park: bool,
    /// Binds the generator to core CORE − 1, the rank thread to CORE, model threads to those behind it.
    #[arg(long, value_name = "CORE")]
    first_core: Option<usize>,
    /// Runs of each rate; one that passes is enough, because a shared machine pauses now and then.
    #[arg(long, default_value_t = 1)]
    tries: u32,
    /// Seed of the arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For people or for programs.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    measured: Measured,
}

/// The form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// The longest of what is given in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// The most requests whose deadlines are remembered: 2 GiB of them.
const REMEMBERED_MAX: f64 = (1_u32 << 27) as f64;

/// A search ends when the highest rate that passed is this close to one that did not.
const SEARCH_UNTIL: f64 = 1.05;
/// A search goes up by this factor until a rate fails.
const SEARCH_STEP: f64 = 1.5;
/// A search gives up below this.
const SEARCH_RATE_MIN: f64 = 1000.0;

impl Args {
    fn plan(&self, rate_rps: f64) -> StressPlan {
        let delay = Nanos::from_micros(self.delay_us);
        StressPlan {
            models: self.models,
            gpus: self.gpus,
            model_threads: self.model_threads,
            rate_rps,
            duration: Duration::from_secs_f64(self.seconds),
            warmup: Duration::from_secs_f64(self.warmup),
            alpha_ms: self.alpha_ms,
            beta_ms: self.beta_ms,
            batch_max: self.batch_max,
            slo: Nanos::from_millis_f64(self.slo_ms),
            delays: Delays { control: delay, guard: delay, ..Delays::default() },
            frame: Nanos::from_micros(self.frame_us),
            lag_max: Nanos::from_millis_f64(self.lag_ms),
            bad_max: self.bad_max,
            hang: self.hang,
            no_recorder: self.no_recorder,
            spin: !self.park,
            first_core: self.first_core,
            seed: self.seed,
        }
    }

    /// The first run of `tries` that passes, or the last one.
    fn try_rate(&self, rate_rps: f64) -> anyhow::Result<StressReport> {
        let mut report = run(&self.plan(rate_rps))?;
        for _ in 1..self.tries {
            if report.passed() {
                break;
            }
            eprintln!("{rate_rps:.0} requests/s: {}; once more", outcome(&report));
            report = run(&self.plan(rate_rps))?;
        }
        Ok(report)
    }

    fn find_rate(&self) -> anyhow::Result<StressReport> {
        let (mut passed, mut failed, mut rate) = (None, None, self.rate);
        loop {
            let report = self.try_rate(rate)?;
            eprintln!("{rate:.0} requests/s: {}", outcome(&report));
            if report.passed() {
                passed = Some((rate, report));
            } else if rate < SEARCH_RATE_MIN {
                return Ok(report);
            } else {
                failed = Some(rate);
            }
            rate = match (&passed, failed) {
                (None, _) => rate / SEARCH_STEP,
                (Some(_), None) => rate * SEARCH_STEP,
                (Some((low, report)), Some(high)) if high / low <= SEARCH_UNTIL => return Ok(report.clone()),
                (Some((low, _)), Some(high)) => (low * high).sqrt(),
            };
        }
    }

    /// The highest rate, of which performance.md says with which options.
    fn figures(&self, report: &StressReport) -> Figures {
        let threads = match self.model_threads {
            1 => "1 model thread",
            2 => "2 model threads",
            _ => return Figures::new(),
        };
        if !self.find_rate || !report.passed() {
            return Figures::new();
        }
        vec![(format!("highest rate, {threads}"), format!("{:.1}", report.rate_rps / 1e6))]
    }

    /// What clap cannot see.
    fn check(&self) -> Result<(), String> {
        let positive =
            [("--rate", self.rate), ("--seconds", self.seconds), ("--slo-ms", self.slo_ms), ("--lag-ms", self.lag_ms)];
        for (name, value) in positive {
            if !(value > 0.0 && value.is_finite()) {
                return Err(format!("{name} {value}: expected a positive number"));
            }
        }
        if !(self.warmup >= 0.0 && self.warmup.is_finite()) {
            return Err(format!("--warmup {}: expected seconds, not negative", self.warmup));
        }
        let spans = [
            ("--seconds", self.seconds),
            ("--warmup", self.warmup),
            ("--slo-ms", self.slo_ms / 1e3),
            ("--lag-ms", self.lag_ms / 1e3),
        ];
        for (name, seconds) in spans {
            if seconds > SECONDS_MAX {
                return Err(format!("{name}: {seconds} s, expected {SECONDS_MAX} s at most"));
            }
        }
        let remembered = self.rate * (self.slo_ms / 1e3).min(self.seconds + self.warmup) * 2.0;
        if remembered > REMEMBERED_MAX {
            return Err(format!("--rate {}: too many requests within one SLO", self.rate));
        }
        let limits = [("--models", self.models, SUBCLUSTER_MODELS_MAX), ("--gpus", self.gpus, GPUS_MAX)];
        for (name, value, max) in limits {
            if value == 0 || value as usize > max {
                return Err(format!("{name} {value}: expected 1 to {max}"));
            }
        }
        self.plan(self.rate).model().map(|_| ()).map_err(|error| error.to_string())
    }
}

fn outcome(report: &StressReport) -> &str {
    report.lagged.as_ref().or(report.failed.as_ref()).map_or("passed", String::as_str)
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = args.check() {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let report = if args.find_rate { args.find_rate() } else { args.try_rate(args.rate) };
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(1);
        }
    };
    match args.output {
        Output::Table => println!("{report}"),
        Output::Json => match serde_json::to_string_pretty(&report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("error: {error}"),
        },
    }
    if let Err(error) = args.measured.write(&report, &args.figures(&report)) {
        eprintln!("error: {error:#}");
        return ExitCode::from(1);
    }
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
