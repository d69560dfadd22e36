//! Configurations of nodes that cannot work, and machines that lack something.

use std::net::TcpListener;

use symphony_testkit::{Workspace, free_ports, needed};
use symphony_tests::{ProgramOutput, alone, phase, run};

/// A cluster of one replica on free ports, and the sections of every role.
fn config(ports: &[u16]) -> String {
    let [control, dispatch, beat, scheduler, grpc, rest, metrics, data, exec, backend] = *ports else {
        panic!("ten ports")
    };
    format!(
        "[cluster]\nname = \"test\"\ntiming = \"relaxed\"\n[[cluster.scheduler]]\nid = 1\n\
         control = \"127.0.0.1:{control}\"\ndispatch = \"127.0.0.1:{dispatch}\"\nbeat = \"127.0.0.1:{beat}\"\n\
         [scheduler]\nid = 1\ndata_dir = \"raft\"\nmetrics = \"127.0.0.1:{scheduler}\"\n\
         [frontend]\nname = \"f\"\ngrpc = \"127.0.0.1:{grpc}\"\nrest = \"127.0.0.1:{rest}\"\n\
         metrics = \"127.0.0.1:{metrics}\"\ndata = \"127.0.0.1:{data}\"\n\
         [backend]\nname = \"b\"\nexec = \"127.0.0.1:{exec}\"\nmetrics = \"127.0.0.1:{backend}\"\n\
         gpus = [{{ kind = \"cpu\", count = 1, memory_mb = 512 }}]\n\
         [security]\ninsecure_dev = true\n"
    )
}

struct Bench {
    workspace: Workspace,
    ports: Vec<u16>,
}

impl Bench {
    fn new(test: &str) -> Self {
        let (workspace, ports) = (Workspace::new(test).unwrap(), free_ports(10).unwrap());
        workspace.write("node.toml", &config(&ports)).unwrap();
        Self { workspace, ports }
    }

    fn node(&self, role: &str, rest: &[&str]) -> ProgramOutput {
        let args: Vec<_> = [role, "--config", "node.toml"].iter().chain(rest).copied().collect();
        run(self.workspace.path(), &[], &args).unwrap()
    }
}

#[test]
fn configurations_that_cannot_work_are_refused_with_file_key_and_expectation() {
    let bench = Bench::new("bad-config");
    phase("the configuration itself is fine, and what is printed is read again");
    for role in ["scheduler", "frontend", "backend"] {
        let dumped = bench.node(role, &["--dump-config"]).ended_with(0).out;
        bench.workspace.write("again.toml", &dumped).unwrap();
        let again = run(bench.workspace.path(), &[], &[role, "--config", "again.toml", "--dump-config"]).unwrap();
        assert_eq!(again.ended_with(0).out, dumped);
    }

    let two = "cluster.scheduler=[{ id = 1, control = \"127.0.0.1:1\", dispatch = \"127.0.0.1:2\", beat = \"127.0.0.1:3\" }, \
               { id = 2, control = \"127.0.0.1:4\", dispatch = \"127.0.0.1:5\", beat = \"127.0.0.1:6\" }]";
    let taken = format!("frontend.grpc=127.0.0.1:{}", bench.ports[5]);
    // (role, override, words)
    let refusals: [(&str, &str, &[&str]); 10] = [
        ("scheduler", two, &["node.toml", "cluster.scheduler: 2 replicas; expected 1, 3, 5 or 7"]),
        ("scheduler", "scheduler.id=9", &["scheduler.id: 9 is not among the ids of cluster.scheduler (1)"]),
        ("scheduler", "scheduler.data_dir=", &["scheduler.data_dir", "survives restarts"]),
        ("scheduler", "scheduler.colour=red", &["scheduler.colour", "unknown key", "`data_dir`"]),
        ("scheduler", "cluster.timing=brisk", &["brisk", "lan", "relaxed"]),
        ("frontend", &taken, &["frontend.rest", "is taken by frontend.grpc"]),
        ("frontend", "frontend.request_bytes_max=0", &["frontend.request_bytes_max: 0 is out of range; expected 1 to"]),
        (
            "frontend",
            "frontend.grpc=10.0.0.1:8001",
            &["frontend.grpc", "not a loopback address", "security.insecure_dev"],
        ),
        ("backend", "backend.gpus=[]", &["backend.gpus: no GPU is given; add"]),
        (
            "backend",
            "backend.gpus=[{ kind = \"1080ti\", count = 1, memory_mb = 1 }]",
            &["backend.gpus.0.kind", "ort-cpu"],
        ),
    ];
    for (role, setting, words) in refusals {
        phase(setting);
        let _ = bench.node(role, &["--set", setting]).ended_with(2).complains(words);
    }
    phase("all problems at once, a file that is not there, a file that is no TOML, an environment that is wrong");
    let both = ["--set", "scheduler.id=9", "--set", "scheduler.data_dir="];
    let _ = bench.node("scheduler", &both).ended_with(2).complains(&["scheduler.id", "scheduler.data_dir"]);
    let run_in = |env: &[(&str, &str)], args: &[&str]| run(bench.workspace.path(), env, args).unwrap();
    let _ = run_in(&[], &["frontend", "--config", "gone.toml"]).ended_with(2).complains(&["gone.toml", "No such file"]);
    bench.workspace.write("broken.toml", "[cluster\n").unwrap();
    let _ = run_in(&[], &["frontend", "--config", "broken.toml"]).ended_with(2).complains(&["broken.toml", "TOML"]);
    let wrong = [("SYMPHONY__FRONTEND__GRPC", "nowhere")];
    let _ = run_in(&wrong, &["frontend", "--config", "node.toml"])
        .ended_with(2)
        .complains(&["nowhere", "expected host:port"]);
    let _ = run_in(&[], &["frontend"]).ended_with(2).complains(&["frontend.name", "cluster.scheduler"]);
}

#[test]
fn a_port_in_use_is_said_at_once_by_every_role() {
    let _alone = alone();
    let bench = Bench::new("port-in-use");
    let keys = [
        ("scheduler", 0, "cluster.scheduler.control"),
        ("scheduler", 1, "cluster.scheduler.dispatch"),
        ("scheduler", 2, "cluster.scheduler.beat"),
        ("scheduler", 3, "scheduler.metrics"),
        ("frontend", 4, "frontend.grpc"),
        ("frontend", 5, "frontend.rest"),
        ("frontend", 6, "frontend.metrics"),
        ("frontend", 7, "frontend.data"),
        ("backend", 8, "backend.exec"),
        ("backend", 9, "backend.metrics"),
    ];
    for (role, index, key) in keys {
        phase(key);
        let port = bench.ports[index];
        let _held = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let words = [&format!("{key}: 127.0.0.1:{port} is in use"), "stop what listens there, or set"];
        let _ = bench.node(role, &[]).ended_with(2).complains(&words);
    }
    phase("`up` says it before it starts anything");
    let _held = TcpListener::bind(("127.0.0.1", bench.ports[5])).unwrap();
    let ended = bench.node("up", &["--dir", "up"]).ended_with(2);
    let _ = ended.complains(&["frontend.rest", "stop what listens there"]);
    assert!(!bench.workspace.file("up").join("logs").exists(), "nothing was started");
}

#[test]
fn a_missing_onnx_runtime_is_said_by_backend_and_profile() {
    let _alone = alone();
    let bench = Bench::new("no-runtime");
    std::fs::write(bench.workspace.file("digits.onnx"), symphony_executor::digits::MODEL).unwrap();
    let words = ["ONNX Runtime", "/no/such/libonnxruntime.so", "make setup"];

    phase("named in the configuration");
    let setting = ["--set", "backend.onnxruntime=/no/such/libonnxruntime.so"];
    let _ = bench.node("backend", &setting).ended_with(2).complains(&words);

    phase("named in the environment, and on the command line");
    let run_in = |env: &[(&str, &str)], args: &[&str]| run(bench.workspace.path(), env, args).unwrap();
    let env = [("SYMPHONY_ONNXRUNTIME", "/no/such/libonnxruntime.so")];
    let _ = run_in(&env, &["backend", "--config", "node.toml"]).ended_with(2).complains(&words);
    let _ = run_in(&env, &["profile", "digits.onnx"]).ended_with(2).complains(&words);
    let flag = ["profile", "digits.onnx", "--onnxruntime", "/no/such/libonnxruntime.so"];
    let _ = run_in(&[], &flag).ended_with(2).complains(&words);

    phase("a file that is no library");
    bench.workspace.write("libfake.so", "not a library").unwrap();
    let flag = ["profile", "digits.onnx", "--onnxruntime", "libfake.so"];
    let _ = run_in(&[], &flag).ended_with(2).complains(&["libfake.so", "cannot be used"]);
}

#[test]
fn a_gpu_that_is_required_and_not_there_is_said_and_ends_the_backend() {
    let _alone = alone();
    let bench = Bench::new("no-cuda");
    let gpus = "backend.gpus=[{ kind = \"h100\", count = 1, memory_mb = 81559 }]";

    phase("settings that contradict each other");
    let cuda = ["--set", "backend.device=cuda"];
    let _ = bench.node("backend", &cuda).ended_with(2).complains(&["backend.gpus.0.kind", "a CUDA device is no `cpu`"]);
    let gemm = ["--set", "backend.executor=cuda-gemm", "--set", gpus, "--set", "backend.device=cpu"];
    let _ = bench.node("backend", &gemm).ended_with(2).complains(&["backend.device", "cuda-gemm", "CUDA devices only"]);

    let Some(()) = needed("no-cuda", no_cuda_here()) else { return };
    phase("required");
    let required = ["--set", "backend.device=cuda", "--set", "backend.device_required=true", "--set", gpus];
    let words = ["backend.device = \"cuda\" is required", "no CUDA device", "backend.device_required = false"];
    let _ = bench.node("backend", &required).ended_with(2).complains(&words);

    phase("an executor that runs nowhere else");
    let gemm = ["--set", "backend.executor=cuda-gemm", "--set", gpus];
    let words = ["backend.executor = \"cuda-gemm\" runs on CUDA devices only", "no CUDA device"];
    let _ = bench.node("backend", &gemm).ended_with(2).complains(&words);

    phase("`profile` on a GPU");
    std::fs::write(bench.workspace.file("digits.onnx"), symphony_executor::digits::MODEL).unwrap();
    let run_here = |args: &[&str]| run(bench.workspace.path(), &[], args).unwrap();
    let profile = ["profile", "digits.onnx", "--device", "cuda:0"];
    let _ = run_here(&profile).ended_with(2).complains(&["a CUDA device is no `cpu`", "--gpu-kind"]);
    let with_kind = [&profile[..], &["--gpu-kind", "h100"]].concat();
    let _ = run_here(&with_kind).ended_with(2).complains(&["no CUDA device"]);
    let gemm = ["profile", "gemm", "--alpha-ms", "1", "--beta-ms", "5", "--gpu-kind", "h100"];
    let _ = run_here(&gemm).ended_with(2).complains(&["no CUDA device"]);
    let _ = run_here(&["profile", "digits.onnx", "--device", "tpu"]).ended_with(2).complains(&["cuda:0, cuda:1"]);
    let timeline = ["profile", "digits.onnx", "--timeline", "t.json"];
    let _ = run_here(&timeline).ended_with(2).complains(&["--timeline", "--device cuda:0"]);
}

/// What follows is about machines without a CUDA device.
fn no_cuda_here() -> Result<(), &'static str> {
    // The question that the program asks the driver, asked of another.
    let device = std::path::Path::new("/dev/nvidia0").exists();
    if device { Err("this machine has a CUDA device") } else { Ok(()) }
}
