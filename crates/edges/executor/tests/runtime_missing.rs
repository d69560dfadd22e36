//! Without ONNX Runtime there is a clear error and no panic. A file of its own: a process can load only one library.

use std::path::Path;

use symphony_executor::{RuntimeError, load_runtime};

#[test]
fn a_library_that_cannot_be_used_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();

    // Phase 1: the file is not there.
    let missing = dir.path().join("libonnxruntime.so.1.31.1");
    let error = load_runtime(Some(&missing)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, RuntimeError::Unusable { .. }));
    for words in [missing.to_str().unwrap(), "named by the configuration", "make setup", "1.23 or later"] {
        assert!(text.contains(words), "{text}");
    }

    // Phase 2: the file exists and is no library.
    std::fs::write(&missing, "not a library").unwrap();
    let error = load_runtime(Some(&missing)).unwrap_err();
    assert!(matches!(error, RuntimeError::Unusable { .. }));
    assert!(error.to_string().contains("file too short"), "the dynamic linker's own words are lost: {error}");

    // Phase 3: it is a library, but not this one. Every test binary is linked to the C library.
    let other = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    if let Some(other) = other.iter().map(Path::new).find(|path| path.exists()) {
        let text = load_runtime(Some(other)).unwrap_err().to_string();
        assert!(text.contains("OrtGetApiBase"), "{text}");
    }

    // Phase 4: after all these failures a good library still loads, if there is one.
    match load_runtime(None) {
        Ok(runtime) => {
            let again = load_runtime(Some(runtime.path())).unwrap();
            assert_eq!(again.path(), runtime.path());
            let error = load_runtime(Some(&missing)).unwrap_err();
            assert!(matches!(error, RuntimeError::AlreadyLoaded { .. }), "{error}");
        }
        Err(error) => {
            let text = error.to_string();
            assert!(matches!(error, RuntimeError::NotFound { .. }), "{text}");
            assert!(text.contains("make setup") && text.contains("onnxruntime==1.31.1"), "{text}");
        }
    }
}
