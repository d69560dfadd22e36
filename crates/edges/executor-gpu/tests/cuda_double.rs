//! The code for CUDA against a double of the driver and of cuBLASLt (`symphony-cuda-double`): what a GPU is asked by
//! `cuda_device.rs`, what no GPU does when it is asked to, and the proof that a wait which is left out is found. It is
//! no GPU: what holds here need not hold on one.
//!
//! Each story runs in a process of its own, which finds the double by `LD_LIBRARY_PATH`.

#![cfg(target_os = "linux")]

mod device;

use std::env;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use device::families::{self, HEADS, head_file, with_heads};
use device::family_promises::{run, segment};
use device::moves::{HEAD_BYTES, MovesLoader, TRUNK_BYTES, classes};
use device::promises::{self, BATCH_MAX};
use device::{Bench, items_of};
use symphony_cuda_double::{CONTROL, Control, Copied, Double};
use symphony_executor::{
    BatchInputs, ExecuteError, FamilyExecutor, ModelExecutor, StagedExecutor, default_signature, item_checksum,
};
use symphony_executor_gpu::gemm::{Chain, LINK_SIZES};
use symphony_executor_gpu::{Cuda, GemmModel, GpuLoadError, NoCuda, PinnedPool};
use symphony_types::{LatencyProfile, Signature};

/// The variable that names a process's story.
const STORY: &str = "SYMPHONY_TEST_CUDA_STORY";
/// What a process prints at the end of its story: one that was skipped does not.
const TOLD: &str = "the story was told to its end";
/// A story takes some seconds; one in which something waits for ever must end, too.
const STORY_WITHIN: Duration = Duration::from_secs(300);
const PINNED_BYTES_MAX: u64 = 1 << 30;

/// A story, which may order faults.
type Story = fn(&Control);

/// The stories by name.
const STORIES: &[(&str, Story)] = &[
    ("contract", |_| device::a_model_keeps_the_contract(&bench())),
    ("copies", |_| device::copies_fall_into_computations(&slow_bench())),
    ("answers", |_| device::batches_that_are_staged_while_others_run_have_their_own_answers(&bench())),
    ("memory", |_| device::models_beside_each_other_give_their_memory_back(&bench())),
    ("too much", |_| device::what_there_is_not_the_memory_for_is_refused_and_it_goes_on(&bench())),
    ("measured", |_| what_is_measured_is_kept_or_refused()),
    ("want of memory", every_allocation_that_fails_costs_one_load),
    ("lost", a_lost_device_fails_every_batch_and_every_load),
    ("lost in a load", a_device_that_is_lost_while_a_model_is_loaded_fails_the_load),
    ("two threads", |_| models_are_used_and_dropped_by_threads_that_did_not_load_them()),
    ("beside", |_| what_is_done_in_other_lanes_holds_nobody_up()),
    ("families", |_| {
        let gpu = open().unwrap();
        families::a_family_keeps_its_promises(&gpu);
        families::a_suffix_that_refuses_fails_its_batch_only(&gpu);
    }),
    ("members", |_| families::models_join_a_trunk_are_run_together_and_leave_one_by_one(&open().unwrap())),
    ("trunk's rows", what_a_trunk_gives_stays_on_the_device),
    ("trunk's memory", |_| a_family_takes_the_memory_of_one_trunk()),
    ("trunk's event", a_suffix_that_does_not_wait_for_its_trunk_gives_wrong_answers),
    ("trunk goes", |_| families::load_after_a_family_has_gone_in_a_batch(&open().unwrap(), || ()).unwrap()),
    ("trunk goes at once", a_trunk_that_does_not_wait_for_what_reads_it_loses_the_device),
    ("waits", a_wait_that_is_left_out_gives_wrong_answers),
    ("first wait", a_first_wait_that_is_left_out_gives_wrong_answers),
    ("old driver", |_| {
        assert_eq!(open().unwrap_err(), NoCuda::OldDriver { major: 11, minor: 4 });
    }),
    ("no device", |_| {
        let refused = open().unwrap_err();
        assert_eq!(refused, NoCuda::NoDevice { ordinal: 0, count: 0 });
    }),
];

fn open() -> Result<Cuda, NoCuda> {
    Cuda::open(0, &PinnedPool::new(PINNED_BYTES_MAX))
}

fn double() -> Double {
    Double { launch_us: 100.0, tflops: 100.0, ..Double::default() }
}

/// Loads a model with chains that are reckoned from what a product takes on [`double`], and take `SLOWER` times as long
/// as the profile says: where time is that of a machine which does other things as well, nothing can be measured.
fn reckoned<const SLOWER: u64>(
    gpu: &Cuda,
    profile: &LatencyProfile,
    signature: Signature,
) -> Result<GemmModel, GpuLoadError> {
    /// Of 1024 rows, which is the third of the sizes.
    const SIZE: usize = 2;
    const PRODUCT_NS: u64 = 121_474;
    let times = |batch| (profile.latency(batch).get() * SLOWER / PRODUCT_NS) as u32;
    gpu.load_chains((1..=profile.batch_max()).map(|batch| Chain::of(SIZE, times(batch))).collect(), signature)
}

fn bench() -> Bench {
    Bench { gpu: open().unwrap(), loads: reckoned::<1>, batches: 50 }
}

/// With batches that are long beside what a busy machine sleeps too long.
fn slow_bench() -> Bench {
    Bench { loads: reckoned::<20>, ..bench() }
}

/// Runs a story in a process of its own.
#[track_caller]
fn on_the_double(double: &Double, story: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (control, output) = (dir.path().join("control"), dir.path().join("said"));
    Control::create(&control).unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["in_a_process_of_its_own", "--exact", "--ignored", "--nocapture"]).env(STORY, story);
    command.envs(double.environment(&control));
    let file = File::create(&output).unwrap();
    let mut child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.to_string(),
            None if begin.elapsed() < STORY_WITHIN => std::thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill().unwrap();
                break format!("not ended within {STORY_WITHIN:?}, {}", child.wait().unwrap());
            }
        }
    };
    let output = std::fs::read_to_string(&output).unwrap();
    assert!(output.contains(TOLD), "{story}: {status}\n{output}");
}

#[test]
#[ignore = "the other tests start it, with a double of a GPU"]
fn in_a_process_of_its_own() {
    let Ok(story) = env::var(STORY) else { return };
    let control = Control::open(Path::new(&env::var_os(CONTROL).unwrap())).unwrap();
    let (_, tell) = STORIES.iter().find(|(name, _)| *name == story).unwrap();
    tell(&control);
    println!("{TOLD}");
}

#[test]
fn a_model_keeps_the_contract() {
    on_the_double(&double(), "contract");
}

#[test]
fn a_model_keeps_the_contract_where_memory_is_not_taken_in_a_stream_s_order() {
    on_the_double(&Double { memory_pools: false, ..double() }, "contract");
}

#[test]
fn copies_fall_into_computations() {
    on_the_double(&double(), "copies");
}

#[test]
fn batches_that_are_staged_while_others_run_have_their_own_answers() {
    on_the_double(&double(), "answers");
}

#[test]
fn models_beside_each_other_give_their_memory_back() {
    on_the_double(&double(), "memory");
}

#[test]
fn what_there_is_not_the_memory_for_is_refused_and_it_goes_on() {
    on_the_double(&double(), "too much");
}

#[test]
fn a_profile_that_is_measured_is_kept_or_refused_in_words() {
    on_the_double(&double(), "measured");
}

#[test]
fn want_of_memory_costs_a_load_and_nothing_else() {
    on_the_double(&double(), "want of memory");
}

#[test]
fn a_lost_device_is_said_to_be_lost_from_then_on() {
    on_the_double(&double(), "lost");
    on_the_double(&double(), "lost in a load");
}

#[test]
fn threads_that_did_not_load_a_model_use_and_drop_it() {
    on_the_double(&double(), "two threads");
}

#[test]
fn a_batch_does_not_wait_behind_one_in_other_lanes() {
    on_the_double(&double(), "beside");
}

#[test]
fn families_keep_their_promises() {
    on_the_double(&double(), "families");
}

#[test]
fn models_join_a_trunk_are_run_together_and_leave_one_by_one() {
    on_the_double(&double(), "members");
}

#[test]
fn what_a_trunk_gives_does_not_travel_to_the_host() {
    on_the_double(&double(), "trunk's rows");
}

#[test]
fn the_memory_of_a_trunk_is_taken_once() {
    on_the_double(&double(), "trunk's memory");
}

#[test]
fn a_suffix_that_does_not_wait_for_its_trunk_is_found() {
    // The rows of a batch take 20 ms to arrive: a busy machine lets a suffix begin some milliseconds late.
    on_the_double(&Double { copy_gbps: 0.0001, ..double() }, "trunk's event");
}

#[test]
fn a_trunk_that_goes_before_what_reads_it_is_found() {
    // The weights of a head take half a second to arrive.
    let slow = Double { copy_gbps: 0.0005, ..double() };
    on_the_double(&slow, "trunk goes");
    on_the_double(&slow, "trunk goes at once");
}

#[test]
fn a_driver_that_is_too_old_or_has_no_device_is_said_to_be_so() {
    on_the_double(&Double { driver_version: 11_040, ..double() }, "old driver");
    on_the_double(&Double { devices: 0, ..double() }, "no device");
}

#[test]
fn waits_that_are_left_out_are_found() {
    on_the_double(&double(), "waits");
    on_the_double(&double(), "first wait");
}

/// A model that is loaded fast, and its profile.
const SMALL: (f64, f64, u32) = (0.5, 3.0, 2);

fn answers_as_it_should(model: &mut GemmModel) {
    assert_eq!(device::wrong_answers(model, 4096, 2, 6), 0);
}

fn every_allocation_that_fails_costs_one_load(control: &Control) {
    // The workspace, and three matrices of each size, which stay for all models. Then, for a model, inputs and outputs
    // of two batches on the device, and pinned ones, of which those that were had stay in their pool.
    const ONCE: u64 = 1 + 3 * LINK_SIZES.len() as u64;
    const OF_A_MODEL: u64 = 2 * 2 + 2;
    let bench = bench();
    let signature = items_of(4096);
    let refused = |nth| {
        control.fail_allocation(nth).unwrap();
        let loaded = bench.try_load(SMALL, signature.clone());
        control.fail_allocation(0).unwrap();
        loaded.map_err(|error| assert!(error.lacks_memory(), "allocation {nth}: {error}"))
    };
    for nth in 1..=ONCE {
        assert!(refused(nth).is_err(), "there is no allocation {nth}");
    }
    let mut model = bench.load(SMALL, signature.clone());
    let (used, _) = bench.gpu.memory().unwrap();
    for nth in 1..=OF_A_MODEL {
        assert!(refused(nth).is_err(), "there is no allocation {nth}");
        answers_as_it_should(&mut model);
        assert_eq!(bench.gpu.memory().unwrap().0, used, "a load that failed left something behind");
    }
    drop(model);
    answers_as_it_should(&mut bench.load(SMALL, signature.clone()));
}

#[track_caller]
fn assert_lost(failed: Result<(), ExecuteError>) {
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("the device is lost") && error.contains("ILLEGAL_ADDRESS"), "{error}");
}

fn a_lost_device_fails_every_batch_and_every_load(control: &Control) {
    let bench = bench();
    let mut model = bench.load(SMALL, items_of(4096));
    let mut other = bench.load(SMALL, items_of(4096));
    answers_as_it_should(&mut model);
    let input = vec![7; 4096];
    let batch = BatchInputs { items: 1, tensors: &[&input], start: None };
    let mut outputs = Vec::new();
    control.lose_device(2).unwrap();
    for _ in 0..5 {
        assert_lost(model.run(&batch, &mut outputs));
        assert_lost(other.run(&batch, &mut outputs));
    }
    let refused = bench.try_load(SMALL, items_of(4096)).unwrap_err();
    assert!(refused.to_string().contains("the device is lost"), "{refused}");
    // Dropping it neither panics nor hangs.
    drop((model, other, bench));
}

fn a_device_that_is_lost_while_a_model_is_loaded_fails_the_load(control: &Control) {
    control.lose_device(30).unwrap();
    let profile = LatencyProfile::from_line(0.5, 30.0, 2).unwrap();
    let refused = open().unwrap().load_gemm(&profile, items_of(4096), &|_| ()).unwrap_err();
    assert!(matches!(&refused, GpuLoadError::Device(_)), "{refused:?}");
    assert!(refused.to_string().contains("the device is lost"), "{refused}");
}

fn models_are_used_and_dropped_by_threads_that_did_not_load_them() {
    let bench = bench();
    let mut model = bench.load((0.5, 3.0, BATCH_MAX), default_signature());
    let (used, _) = bench.gpu.memory().unwrap();
    let run = move || {
        promises::batches_give_what_single_items_give(&mut model);
        model
    };
    let model = std::thread::spawn(run).join().unwrap();
    std::thread::spawn(move || drop(model)).join().unwrap();
    // A failure to give memory back would be reported by the next call.
    let mut next = bench.load((0.5, 3.0, BATCH_MAX), default_signature());
    promises::batches_give_what_single_items_give(&mut next);
    assert_eq!(bench.gpu.memory().unwrap().0, used);
    // The last of it goes in a thread that never had to do with the GPU.
    std::thread::spawn(move || drop((next, bench))).join().unwrap();
}

/// As the batches of a load do, which the model's own lanes have to themselves.
fn what_is_done_in_other_lanes_holds_nobody_up() {
    let bench = bench();
    let mut running = bench.load(SMALL, items_of(4096));
    let input = vec![7; 4096];
    let batch = BatchInputs { items: 1, tensors: &[&input], start: None };
    let profile = LatencyProfile::from_line(0.5, 3.0, 1).unwrap();
    for (lanes, waits) in [(bench.gpu.with_own_lanes().unwrap(), false), (bench.gpu, true)] {
        // A second and more, of which the other batch takes a few milliseconds.
        let mut beside = reckoned::<400>(&lanes, &profile, items_of(4096)).unwrap();
        beside.stage(&batch).unwrap();
        beside.launch().unwrap();
        answers_as_it_should(&mut running);
        assert_eq!(beside.is_done().unwrap(), waits, "in lanes of its own: {}", !waits);
        beside.finish(&mut Vec::new()).unwrap();
    }
}

/// A machine that does other things as well may measure anything: what it says is then that the profile cannot be kept.
fn what_is_measured_is_kept_or_refused() {
    let profile = LatencyProfile::from_line(2.0, 20.0, 2).unwrap();
    match open().unwrap().load_gemm(&profile, items_of(4096), &|_| ()) {
        Ok(mut model) => answers_as_it_should(&mut model),
        Err(GpuLoadError::Calibration(error)) => eprintln!("refused: {error}"),
        Err(error) => panic!("{error}"),
    }
}

/// Lanes are made in the order in, compute, out.
fn a_wait_that_is_left_out_gives_wrong_answers(control: &Control) {
    const ITEM_BYTES: u32 = 64 << 10;
    let bench = slow_bench();
    let mut model = bench.load((0.1, 1.0, 4), items_of(ITEM_BYTES));
    let mut wrong = || device::wrong_answers(&mut model, ITEM_BYTES as usize, 4, 10);
    assert_eq!(wrong(), 0);
    control.deafen(1).unwrap();
    assert!(wrong() > 0, "inputs overwrote those of a batch that was not computed yet, and nobody noticed");
    control.deafen(3).unwrap();
    assert!(wrong() > 0, "outputs were copied before they were computed, and nobody noticed");
    control.deafen(0).unwrap();
    assert_eq!(wrong(), 0, "what was left out is there again");
    control.make_host_impatient().unwrap();
    assert!(wrong() > 0, "outputs were read before they had left the device, and nobody noticed");
}

fn a_first_wait_that_is_left_out_gives_wrong_answers(control: &Control) {
    const ITEM_BYTES: u32 = 150 << 10;
    let mut model = bench().load((1.0, 2.0, 4), items_of(ITEM_BYTES));
    // A batch of four is copied for 61 ms, and computed for 6. The matrices, which are there by now, would take 18 s.
    control.copy_at(10).unwrap();
    let mut is_wrong = |batch: u32| {
        let input: Vec<u8> = (0..ITEM_BYTES / 4 * 4).flat_map(|n| (n ^ batch).to_le_bytes()).collect();
        let mut outputs = Vec::new();
        model.run(&BatchInputs { items: 4, tensors: &[&input], start: None }, &mut outputs).unwrap();
        let items = input.chunks(ITEM_BYTES as usize);
        outputs != [items.flat_map(|item| item_checksum([item]).to_le_bytes()).collect::<Vec<u8>>()]
    };
    assert!(!is_wrong(1));
    control.deafen(2).unwrap();
    assert!((2..6).any(&mut is_wrong), "a batch was computed before its inputs had arrived, and nobody noticed");
    control.deafen(0).unwrap();
    assert!(!is_wrong(7));
}

fn what_a_trunk_gives_stays_on_the_device(control: &Control) {
    let gpu = open().unwrap();
    let neighbours = [segment(0, 2), segment(3, 1), segment(3, 2), segment(4, 3)];
    let scattered = [segment(0, 2), segment(3, 1), segment(0, 1), segment(4, 1)];
    // Rows of 256 bytes, of which each begins where a tensor may, and of 48, of which the first does; and how many are
    // gathered: those of a variant that has two ranges, or one that begins elsewhere.
    for (width, segments, gathered) in
        [(64, neighbours, 0), (64, scattered, 3), (12, neighbours, 3 + 3), (12, scattered, 3 + 1 + 1)]
    {
        with_heads(&MovesLoader::new(&gpu, width), |mut family, _| {
            let before = control.copied().unwrap();
            run(&mut family, &segments).unwrap();
            let after = control.copied().unwrap();
            let row = 4 * width as u64;
            let rows: u64 = segments.iter().map(|segment| u64::from(segment.rows)).sum();
            let answers: u64 = segments.iter().map(|of| u64::from(of.rows) * 4 * classes(of.variant) as u64).sum();
            let copied = Copied {
                to_device: after.to_device - before.to_device,
                to_host: after.to_host - before.to_host,
                within_device: after.within_device - before.within_device,
            };
            // The trunk runs once and moves each number of a row, a head moves those of its answer, and only these go
            // to the host.
            let within_device = rows * row + answers + gathered * row;
            let expected = Copied { to_device: rows * row, to_host: answers, within_device };
            assert_eq!(copied, expected, "rows of {row} bytes: {segments:?}");
        });
    }
}

fn a_family_takes_the_memory_of_one_trunk() {
    let gpu = open().unwrap();
    let (before, _) = gpu.memory().unwrap();
    with_heads(&MovesLoader::new(&gpu, 64), |mut family, heads| {
        let used = |family: &mut FamilyExecutor<MovesLoader>| {
            // What is given back in the order of a lane is free when a lane has been waited for.
            run(family, &[segment(0, 1)]).unwrap();
            gpu.memory().unwrap().0 - before
        };
        let all = used(&mut family);
        let parts = (TRUNK_BYTES + HEADS as usize * HEAD_BYTES) as u64;
        assert!((parts..parts + parts / 20).contains(&all), "{all} bytes are used, its parts have {parts}");
        let counted = family.memory();
        let counted = counted.static_bytes + counted.dynamic_bytes;
        assert!(counted.abs_diff(all) < all / 100, "{all} bytes are used, {counted} counted");
        assert!(family.unload(3));
        let freed = all - used(&mut family);
        let head = HEAD_BYTES as u64;
        assert!((head..2 * head).contains(&freed), "{freed} bytes were freed of {all}");
        family.load(3, "head-3", &(heads.file)(3).into()).unwrap();
        assert_eq!(used(&mut family), all);
    });
}

fn a_suffix_that_does_not_wait_for_its_trunk_gives_wrong_answers(control: &Control) {
    // The GPU's own three streams are made first, then that of the trunk, then that of the suffix.
    const STREAM_OF_THE_SUFFIX: u64 = 3 + 1 + 1;
    const ROWS: u32 = 8;
    const WIDTH: u32 = 64;
    let loader = MovesLoader::new(&open().unwrap(), WIDTH as usize);
    let mut family = FamilyExecutor::form_by(loader.clone(), &[("head-0", head_file(0, 1).into())]).unwrap();
    let mut is_right = |batch: u32| {
        let rows: Vec<u8> = (0..ROWS * WIDTH).flat_map(|n| ((n ^ batch) as f32).to_le_bytes()).collect();
        let mut outputs = Vec::new();
        let inputs = BatchInputs { items: ROWS, tensors: &[&rows], start: None };
        family.run(&inputs, &[segment(0, ROWS)], &mut outputs).unwrap();
        outputs == [[loader.answer(0, &rows)]]
    };
    assert!(is_right(1));
    control.deafen(STREAM_OF_THE_SUFFIX).unwrap();
    assert!((2..6).any(|batch| !is_right(batch)), "a suffix took rows of the batch before, and nobody noticed");
    control.deafen(0).unwrap();
    assert!(is_right(7));
}

fn a_trunk_that_does_not_wait_for_what_reads_it_loses_the_device(control: &Control) {
    // The GPU's own three streams are made first.
    const STREAM_OF_THE_TRUNK: u64 = 3 + 1;
    let deafen = || control.deafen(STREAM_OF_THE_TRUNK).unwrap();
    let next = families::load_after_a_family_has_gone_in_a_batch(&open().unwrap(), deafen);
    let refused = next.expect_err("a suffix read from a trunk that had gone, and nobody noticed").to_string();
    assert!(refused.contains("the device is lost"), "{refused}");
}
