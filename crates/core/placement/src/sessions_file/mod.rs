//! Sessions from a file.

mod text;

use symphony_packing::{SESSIONS_MAX, Session};
use symphony_partitioner::ProblemError;
use symphony_types::{LatencyProfile, Nanos, PROFILE_BATCH_MAX, SLO_MAX};
use symphony_workload::profile_from_batches;

use text::{FileText, SessionText};

/// The highest rate in items per second: one per nanosecond.
const RATE_RPS_MAX: f64 = 1e9;
/// The longest time in milliseconds of a line: that of an SLO.
const TIME_MS_MAX: f64 = 3_600_000.0;

/// A session with what it owns.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSession {
    /// Its name, once in a file.
    pub name: String,
    /// L: from arrival to answer.
    pub slo: Nanos,
    /// R: items per second.
    pub rate_per_second: f64,
    /// ℓ(b).
    pub profile: LatencyProfile,
}

impl NamedSession {
    /// As packings take it.
    #[must_use]
    pub fn session(&self) -> Session<'_> {
        Session { profile: &self.profile, slo: self.slo, rate_per_second: self.rate_per_second }
    }

    /// Whether a GPU of its own can keep its SLO: an item waits for up to one batch and runs in the next (the Nexus
    /// paper, section 4.1).
    #[must_use]
    pub fn is_servable(&self) -> bool {
        self.profile.latency(1).saturating_mul(2) <= self.slo
    }
}

/// The sessions of a file: `[[session]]` with `name`, `slo_ms`, `rate_rps`, and `profile_csv` (columns
/// `batch,latency_ms`) or `alpha_ms` and `beta_ms` (and `batch_max`). `read_csv` returns the text of a CSV file, or why
/// it cannot be read.
///
/// # Errors
/// If anything is unknown, missing or invalid; the message names file, key and what was expected.
pub fn read_sessions(
    file: &str,
    text: &str,
    read_csv: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Vec<NamedSession>, ProblemError> {
    let parsed: FileText = toml::from_str(text).map_err(|error| {
        let whole = error.to_string();
        let lines: Vec<_> = whole.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        ProblemError::Text { file: file.to_owned(), message: lines.join(" ") }
    })?;
    let reader = Reader { file, read_csv };
    if parsed.session.is_empty() || parsed.session.len() > SESSIONS_MAX {
        return reader.refuse("session", &format!("1 to {SESSIONS_MAX} sessions"), parsed.session.len());
    }
    let mut sessions: Vec<NamedSession> = Vec::with_capacity(parsed.session.len());
    for (at, session) in parsed.session.iter().enumerate() {
        if session.name.is_empty() || sessions.iter().any(|other| other.name == session.name) {
            return reader.refuse(&format!("session.{at}.name"), "a name that no other session has", &session.name);
        }
        sessions.push(reader.session(at, session)?);
    }
    Ok(sessions)
}

struct Reader<'a> {
    file: &'a str,
    read_csv: &'a dyn Fn(&str) -> Result<String, String>,
}

impl Reader<'_> {
    fn refuse<T>(&self, key: &str, expected: &str, got: impl std::fmt::Display) -> Result<T, ProblemError> {
        let (file, key) = (self.file.to_owned(), key.to_owned());
        Err(ProblemError::Value { file, key, expected: expected.to_owned(), got: got.to_string() })
    }

    fn number(&self, key: &str, value: f64, most: f64) -> Result<f64, ProblemError> {
        if (0.0..=most).contains(&value) {
            Ok(value)
        } else {
            self.refuse(key, &format!("a number from 0 to {most}"), value)
        }
    }

    fn session(&self, at: usize, text: &SessionText) -> Result<NamedSession, ProblemError> {
        let key = |name: &str| format!("session.{at}.{name}");
        let slo = Nanos::from_millis_f64(text.slo_ms);
        if slo == Nanos::ZERO || slo > SLO_MAX {
            let expected = format!("a number above 0, at most {}", SLO_MAX.as_millis_f64());
            return self.refuse(&key("slo_ms"), &expected, text.slo_ms);
        }
        let rate_per_second = self.number(&key("rate_rps"), text.rate_rps, RATE_RPS_MAX)?;
        let profile = match (&text.profile_csv, text.alpha_ms, text.beta_ms) {
            (Some(_), None, None) if text.batch_max.is_some() => {
                return self.refuse(&key("batch_max"), "none beside profile_csv, whose largest batch counts", "one");
            }
            (Some(csv), None, None) => {
                (self.read_csv)(csv).and_then(|text| profile_from_batches(&text)).or_else(|why| {
                    self.refuse(&key("profile_csv"), "latencies of this session", format!("{csv}: {why}"))
                })?
            }
            (None, Some(alpha), Some(beta)) => {
                let alpha = self.number(&key("alpha_ms"), alpha, TIME_MS_MAX)?;
                let beta = self.number(&key("beta_ms"), beta, TIME_MS_MAX)?;
                let batch_max = text.batch_max.unwrap_or_else(|| batch_within(alpha, beta, slo));
                if batch_max == 0 || batch_max > PROFILE_BATCH_MAX {
                    return self.refuse(&key("batch_max"), &format!("1 to {PROFILE_BATCH_MAX}"), batch_max);
                }
                LatencyProfile::from_line(alpha, beta, batch_max)
                    .or_else(|error| self.refuse(&key("alpha_ms"), "a line that makes latencies", error))?
            }
            _ => {
                let expected = "profile_csv, or alpha_ms and beta_ms";
                return self.refuse(&format!("session.{at}"), expected, "another combination of these keys");
            }
        };
        Ok(NamedSession { name: text.name.clone(), slo, rate_per_second, profile })
    }
}

/// The largest batch that runs within the SLO, one at least.
fn batch_within(alpha_ms: f64, beta_ms: f64, slo: Nanos) -> u32 {
    let fits = |&batch: &u32| Nanos::from_millis_f64(alpha_ms.mul_add(f64::from(batch), beta_ms)) <= slo;
    (1..=PROFILE_BATCH_MAX).take_while(fits).last().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "[[session]]\nname = \"A\"\nslo_ms = 200.0\nrate_rps = 64.0\nprofile_csv = \"a.csv\"\n\
                        [[session]]\nname = \"B\"\nslo_ms = 50\nrate_rps = 0\nalpha_ms = 1.0\nbeta_ms = 5.0\n";

    fn read(text: &str) -> Result<Vec<NamedSession>, String> {
        let csv = |name: &str| match name {
            "a.csv" => Ok("batch,latency_ms\n4,50\n8,75\n16,100\n".to_owned()),
            other => Err(format!("there is no {other}")),
        };
        read_sessions("s.toml", text, &csv).map_err(|error| error.to_string())
    }

    #[test]
    fn profiles_come_from_a_file_or_a_line() {
        let sessions = read(FINE).unwrap();
        assert_eq!((sessions[0].name.as_str(), sessions[0].slo), ("A", Nanos::from_millis(200)));
        assert_eq!(sessions[0].profile.latency(16), Nanos::from_millis(100));
        assert_eq!(sessions[1].profile.batch_max(), 45, "1·45 + 5 = 50");
        assert!(sessions.iter().all(NamedSession::is_servable));
    }

    #[test]
    fn bad_input_is_named_with_file_key_and_what_was_expected() {
        for (from, to, words) in [
            ("slo_ms = 200.0", "slo_ms = -1.0", "s.toml: key `session.0.slo_ms`: expected a number above 0"),
            ("slo_ms = 200.0", "slo_ms = nan", "session.0.slo_ms"),
            ("slo_ms = 200.0", "slo_ms = 1e9", "at most 3600000"),
            ("slo_ms = 200.0\n", "", "missing field `slo_ms`"),
            ("slo_ms = 200.0", "slo = 200.0", "unknown field `slo`"),
            ("rate_rps = 64.0", "rate_rps = inf", "session.0.rate_rps"),
            ("rate_rps = 64.0", "rate_rps = -3", "expected a number from 0 to 1000000000, got -3"),
            ("\"B\"", "\"A\"", "session.1.name`: expected a name that no other session has, got A"),
            (
                "\"a.csv\"",
                "\"b.csv\"",
                "session.0.profile_csv`: expected latencies of this session, got b.csv: there is no",
            ),
            ("profile_csv = \"a.csv\"\n", "", "session.0`: expected profile_csv, or alpha_ms and beta_ms"),
            ("beta_ms = 5.0", "beta_ms = 5.0\nbatch_max = 0", "session.1.batch_max`: expected 1 to 4096, got 0"),
            ("\"a.csv\"", "\"a.csv\"\nbatch_max = 8", "session.0.batch_max`: expected none beside profile_csv"),
            ("alpha_ms = 1.0\nbeta_ms = 5.0", "alpha_ms = 0\nbeta_ms = 0", "session.1.alpha_ms"),
        ] {
            let error = read(&FINE.replace(from, to)).unwrap_err();
            assert!(error.starts_with("s.toml: ") && error.contains(words), "{words}: {error}");
        }
        assert!(read("").unwrap_err().contains("expected 1 to 2000 sessions, got 0"));
    }
}
