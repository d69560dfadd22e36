//! What a test needs and a machine may not have.

use std::fmt::Display;

/// The environment variable that names, divided by commas, what may not be missing.
const REQUIRE: &str = "SYMPHONY_TEST_REQUIRE";

/// What tests may need. A name that is not among them is a slip of the pen, and would require nothing.
const NAMES: [&str; 9] =
    ["onnxruntime", "onnxruntime-cuda", "cuda", "no-cuda", "highs", "rdma", "promtool", "prometheus", "chromium"];

/// What was found of that name; without it the test is skipped, and says why. `SYMPHONY_TEST_REQUIRE`, names divided by
/// commas, turns that into a failure.
///
/// # Panics
/// If it is missing and required, or a name is unknown.
pub fn needed<T>(what: &str, found: Result<T, impl Display>) -> Option<T> {
    unless_required(&std::env::var(REQUIRE).unwrap_or_default(), what, found)
}

fn unless_required<T>(required: &str, what: &str, found: Result<T, impl Display>) -> Option<T> {
    let required: Vec<_> = required.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    for name in required.iter().chain([&what]) {
        assert!(NAMES.contains(name), "{REQUIRE} knows no `{name}`; expected any of {}", NAMES.join(", "));
    }
    match found {
        Ok(found) => Some(found),
        Err(missing) => {
            assert!(!required.contains(&what), "{REQUIRE} names {what}, and it is not here: {missing}");
            eprintln!("skipped: {missing}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// What is done, or the words of the panic.
    fn done(required: &'static str, what: &'static str, found: Result<u8, &'static str>) -> Result<Option<u8>, String> {
        catch_unwind(|| unless_required(required, what, found)).map_err(|panic| *panic.downcast::<String>().unwrap())
    }

    #[test]
    fn what_is_missing_is_skipped_or_fails_if_it_is_required() {
        assert_eq!(done("onnxruntime", "onnxruntime", Ok(1)), Ok(Some(1)));
        for others in ["", "cuda", "onnxruntime-cuda, cuda,"] {
            assert_eq!(done(others, "onnxruntime", Err("no library")), Ok(None), "{others}");
        }
        for all in ["onnxruntime", "cuda,onnxruntime", " cuda , onnxruntime"] {
            let failed = done(all, "onnxruntime", Err("no library")).unwrap_err();
            assert!(failed.contains("names onnxruntime, and it is not here: no library"), "{all}: {failed}");
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_an_error_also_where_everything_is_here() {
        for (required, what) in [("onnx", "cuda"), ("onnxruntime cuda", "cuda"), ("", "gpu")] {
            let failed = done(required, what, Ok(1)).unwrap_err();
            assert!(failed.contains("expected any of onnxruntime, onnxruntime-cuda, cuda, no-cuda, highs"), "{failed}");
        }
    }
}
