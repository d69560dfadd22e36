//! Clients that were written for other servers, unmodified, as judges.

use std::path::Path;
use std::process::Stdio;

use super::fake::Running;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tritonclient_is_served_over_grpc_and_http() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let python = root.join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing; run `make setup-tests` once", python.display());

    let running = Running::start_with_shared_memory().await;
    let client = tokio::process::Command::new(python)
        .arg(root.join("tests/clients/tritonclient_oip.py"))
        .args(["--grpc", &running.grpc.to_string(), "--http", &running.rest.to_string()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = client.await.unwrap();
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "tritonclient is not content:\n{printed}");
    assert!(running.service.count() > 0, "tritonclient asked for nothing:\n{printed}");
    running.stop().await;
}
