//! Replay logs of Nexus on the Blox toolkit: one job a line, ⟨job, model, slo, rate, arrival⟩ (*Implementing Inference
//! scheduler in Blox*, figure 3).

use symphony_types::Nanos;

use super::lines::refusal;
use super::{RecordedArrival, RecordedArrivals, Sources, SpreadSeed, TRACE_S_MAX, Window, room_for};
use crate::limits::TIME_MS_MAX;
use crate::trace::slo_from_ms;

const FIELDS: &str = "<job, model, slo in ms, rate in requests per second, arrival in seconds>";
const RATE_MAX: f64 = 1e9;

impl RecordedArrivals {
    /// Reads jobs: each asks for `rate` requests per second from its arrival on for `lasts`, spread as `spread` says,
    /// with its SLO. The source is the model. The log may have a header, and `<` and `>` around lines. Jobs may be in
    /// any order.
    ///
    /// # Errors
    /// If a line has other fields, or a number is negative or none; the message names the line.
    pub fn from_blox(text: &str, lasts: Nanos, spread: SpreadSeed, window: Window) -> Result<Self, String> {
        let (mut sources, mut rows, mut made) = (Sources::default(), Vec::new(), 0);
        for (line, text) in (1_u64..).zip(text.lines()) {
            let text = text.trim();
            let is_header = || line == 1 && text.trim_start_matches('<').to_ascii_lowercase().starts_with("job");
            let job = match Job::parse(text) {
                Some(job) => job,
                None if text.is_empty() || is_header() => continue,
                None => return Err(refusal(line, FIELDS, text)),
            };
            let source = sources.position(job.model)?;
            let from = Nanos::from_secs_f64(job.arrival_s);
            if !window.meets(from, lasts) {
                continue;
            }
            let count = (job.rate_rps * lasts.as_secs_f64()).round() as u64;
            room_for(made, count).map_err(|error| format!("line {line}: {error}"))?;
            made += count;
            let slo = Some(slo_from_ms(job.slo_ms));
            // Jobs have streams of their own: a model may have several at a time.
            spread.of_source(line).each(count, from, lasts, |at| {
                if window.holds(at) {
                    rows.push(RecordedArrival { at, source, items: None, slo });
                }
            });
        }
        let mut arrivals = Self { sources: sources.into_names(), rows };
        arrivals.sort();
        Ok(arrivals)
    }
}

struct Job<'a> {
    model: &'a str,
    slo_ms: f64,
    rate_rps: f64,
    arrival_s: f64,
}

impl<'a> Job<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix('<').map_or(Some(text), |inside| inside.strip_suffix('>'))?;
        let mut fields = text.split(',').map(str::trim);
        let (id, model) = (fields.next()?, fields.next()?);
        let mut number = |above: f64, max: f64| {
            let number: f64 = fields.next()?.parse().ok()?;
            (above..=max).contains(&number).then_some(number)
        };
        // A nanosecond is the shortest time there is.
        let slo_ms = number(1e-6, TIME_MS_MAX)?;
        let (rate_rps, arrival_s) = (number(0.0, RATE_MAX)?, number(0.0, TRACE_S_MAX)?);
        let is_whole = !id.is_empty() && !model.is_empty() && fields.next().is_none();
        is_whole.then_some(Self { model, slo_ms, rate_rps, arrival_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    fn read(text: &str) -> Result<RecordedArrivals, String> {
        let spread = SpreadSeed { spread: Spread::Uniform, seed: 1 };
        RecordedArrivals::from_blox(text, Nanos::from_millis(10_000), spread, Window::ALL)
    }

    #[test]
    fn a_job_is_a_stream_of_requests_from_its_arrival_on() {
        let log = "job_id, model, slo, rate, arrival\n<1, resnet50, 100, 2, 5.0>\n2,vgg,50.5,0.5,0\n";
        let read = read(log).unwrap();
        assert_eq!(read.sources, ["resnet50", "vgg"]);
        let of = |source| read.rows.iter().filter(move |row| row.source == source);
        assert_eq!((of(0).count(), of(1).count()), (20, 5));
        assert!(of(0).all(|row| (5.0..15.0).contains(&row.at.as_secs_f64())));
        assert!(of(1).all(|row| row.slo == Some(Nanos::from_micros(50_500))));
        assert!(read.rows.is_sorted_by_key(|row| row.at), "jobs in any order");
    }

    #[test]
    fn lines_that_are_no_jobs_are_refused() {
        for line in ["1,m,100,2", "1,m,100,2,0,7", "1,m,-1,2,0", "1,m,1,-2,0", "1,,1,2,0", "1,m,1,x,0", "<1,m,1,2,0"] {
            let error = read(&format!("1,m,1,1,0\n{line}\n")).unwrap_err();
            assert!(error.contains("line 2: expected <job, model, slo in ms") && error.contains(line), "{error}");
        }
        let error = read("1,m,1,1e9,0\n").unwrap_err();
        assert!(error.contains("line 1: expected at most 20000000 arrivals"), "{error}");
    }
}
