//! Executes the overlap's commands on a device, and checks their order.

use symphony_telemetry::violated;

use super::{
    Command, Device, DeviceError, Event, Extent, HostRequest, Mark, NotNow, OrderCheck, Overlap, SLOTS, Spans,
};

/// The most batches whose spans are kept.
const SPANS_MAX: usize = 4096;

/// Why a batch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// Another request has to come first; nothing has changed.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// One model's batches on one device.
#[derive(Debug)]
pub struct Pipeline<D> {
    overlap: Overlap,
    device: D,
    check: OrderCheck,
    /// By slot: the sizes of the last staged batch and of the last launched one, since the next one may be staged
    /// before a batch has left.
    staged: [Extent; SLOTS],
    launched: [Extent; SLOTS],
    commands: Vec<Command>,
    /// None unless spans are kept.
    spans: Option<Vec<(Extent, Spans)>>,
}

impl<D: Device> Pipeline<D> {
    /// No work is in progress on the device.
    pub fn new(device: D) -> Self {
        let none = [Extent { items: 0, filled: 0 }; SLOTS];
        Self {
            overlap: Overlap::default(),
            device,
            check: OrderCheck::default(),
            staged: none,
            launched: none,
            commands: Vec::new(),
            spans: None,
        }
    }

    /// Batches that are staged and not launched.
    pub const fn waiting(&self) -> usize {
        self.overlap.waiting()
    }

    /// Batches that were launched and not finished.
    pub const fn running(&self) -> usize {
        self.overlap.running()
    }

    /// The device that runs its batches.
    pub const fn device(&self) -> &D {
        &self.device
    }

    /// The device. The caller must not enqueue work behind the pipeline's back.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Starts copying a batch's inputs to the device.
    ///
    /// # Errors
    /// If there is no room, or the device refuses. Batches that were staged or launched before are still there.
    pub fn stage(&mut self, extent: Extent, inputs: &[&[u8]]) -> Result<(), Trouble> {
        let before = (self.overlap, self.check.clone());
        let staged = self.follow(HostRequest::Stage, Some(extent), inputs, &mut Vec::new());
        if matches!(staged, Err(Trouble::Device(_))) {
            // The batch is dropped. Earlier batches go on; its enqueued part ends first.
            self.device.settle();
            (self.overlap, self.check) = before;
        }
        staged
    }

    /// Starts the oldest staged batch.
    ///
    /// # Errors
    /// If none is staged, too many run, or the device refuses: then all staged and launched batches are lost.
    pub fn launch(&mut self) -> Result<(), Trouble> {
        self.follow(HostRequest::Launch, None, &[], &mut Vec::new())
    }

    /// Whether the oldest launched batch has ended; true if none was launched.
    ///
    /// # Errors
    /// If it has failed: then all staged and launched batches are lost.
    pub fn is_done(&mut self) -> Result<bool, Trouble> {
        let Some(slot) = self.overlap.ends_next() else { return Ok(true) };
        match self.device.is_reached(Event { mark: Mark::Left, slot }) {
            Ok(done) => Ok(done),
            Err(error) => {
                self.abandon();
                Err(error.into())
            }
        }
    }

    /// Waits for the oldest launched batch, and returns its outputs.
    ///
    /// # Errors
    /// If none was launched, or it has failed: then all staged and launched batches are lost.
    pub fn finish(&mut self, outputs: &mut Vec<Vec<u8>>) -> Result<(), Trouble> {
        self.follow(HostRequest::Finish, None, &[], outputs)
    }

    /// Keeps the spans of batches from now on, and counts from now.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn keep_spans(&mut self) -> Result<(), DeviceError> {
        self.spans = Some(Vec::new());
        self.device.count_from_now()
    }

    /// The spans kept so far, of the newest 4096 batches at most.
    pub fn take_spans(&mut self) -> Vec<(Extent, Spans)> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn follow(
        &mut self,
        request: HostRequest,
        extent: Option<Extent>,
        inputs: &[&[u8]],
        outputs: &mut Vec<Vec<u8>>,
    ) -> Result<(), Trouble> {
        let mut commands = std::mem::take(&mut self.commands);
        commands.clear();
        let decided = self.overlap.step(request, &mut commands);
        let followed = decided.map_err(Trouble::from).and_then(|slot| {
            match (request, extent) {
                (HostRequest::Stage, Some(extent)) => self.staged[slot] = extent,
                (HostRequest::Launch, _) => self.launched[slot] = self.staged[slot],
                _ => {}
            }
            let done = commands.iter().try_for_each(|&command| self.perform(command, inputs, outputs));
            if done.is_err() && request != HostRequest::Stage {
                self.abandon();
            }
            Ok(done?)
        });
        self.commands = commands;
        followed
    }

    fn perform(&mut self, command: Command, inputs: &[&[u8]], outputs: &mut Vec<Vec<u8>>) -> Result<(), DeviceError> {
        if let Err((invariant, detail)) = self.check.note(command) {
            violated(invariant, detail);
        }
        let device = &mut self.device;
        match command {
            Command::Fill(slot) => device.fill(slot, self.staged[slot], inputs),
            Command::CopyIn(slot) => device.copy_in(slot, self.staged[slot]),
            Command::Compute(slot) => device.compute(slot, self.launched[slot]),
            Command::CopyOut(slot) => device.copy_out(slot, self.launched[slot]),
            Command::Record(lane, event) => device.record(lane, event),
            Command::Wait(lane, event) => device.wait(lane, event),
            Command::HostWait(event) => device.host_wait(event),
            Command::Drain(slot) => {
                device.drain(slot, self.launched[slot], outputs)?;
                if let Some(kept) = &mut self.spans {
                    if kept.len() == SPANS_MAX {
                        kept.remove(0);
                    }
                    kept.push((self.launched[slot], device.spans(slot)?));
                }
                Ok(())
            }
        }
    }

    /// After a failure the state of the device is unknown. All work ends, and the next batch starts afresh.
    pub fn abandon(&mut self) {
        self.device.settle();
        self.overlap = Overlap::default();
        self.check = OrderCheck::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use symphony_types::Nanos;

    use super::super::{FakeDevice, FakeFault, FakePace};
    use super::*;

    const ITEM: usize = 8;

    fn extent(items: u32) -> Extent {
        Extent { items, filled: items }
    }

    fn input(batch: u64, items: u32) -> Vec<u8> {
        (0..items).flat_map(|item| (batch * 1000 + u64::from(item)).to_le_bytes()).collect()
    }

    fn pipeline(seed: u64, faults: Vec<FakeFault>) -> Pipeline<FakeDevice> {
        Pipeline::new(FakeDevice::new(&[ITEM], FakePace::default(), seed).with_faults(faults))
    }

    proptest! {
        /// Whatever the order of requests and of lanes, each batch gets its own answer.
        #[test]
        fn every_batch_is_answered_with_its_own_inputs(
            seed in any::<u64>(),
            requests in prop::collection::vec(
                (prop::sample::select(vec![HostRequest::Stage, HostRequest::Launch, HostRequest::Finish]), 1..9_u32),
                0..120,
            )
        ) {
            let mut pipeline = pipeline(seed, Vec::new());
            let (mut staged, mut waiting) = (0, std::collections::VecDeque::new());
            let mut outputs = Vec::new();
            for (request, items) in requests {
                match request {
                    HostRequest::Stage => if pipeline.waiting() < SLOTS {
                        pipeline.stage(extent(items), &[&input(staged, items)]).unwrap();
                        waiting.push_back((staged, items));
                        staged += 1;
                    },
                    HostRequest::Launch => if pipeline.waiting() > 0 && pipeline.running() < SLOTS {
                        pipeline.launch().unwrap();
                    },
                    HostRequest::Finish => if pipeline.running() > 0 {
                        let _ = pipeline.is_done().unwrap();
                        pipeline.finish(&mut outputs).unwrap();
                        let (batch, items) = waiting.pop_front().unwrap();
                        prop_assert_eq!(&outputs, &[input(batch, items)]);
                    },
                }
            }
        }
    }

    #[test]
    fn copies_overlap_the_computation_before() {
        // 1 MB per item at 25 GB/s: four items take 160 µs to copy, and 900 µs to compute.
        const BYTES: usize = 1 << 20;
        const BATCHES: u64 = 12;
        let mut pipeline = Pipeline::new(FakeDevice::new(&[BYTES], FakePace::default(), 1));
        pipeline.keep_spans().unwrap();
        let input = vec![7; 4 * BYTES];
        let mut outputs = Vec::new();
        pipeline.stage(extent(4), &[&input]).unwrap();
        for batch in 1..=BATCHES {
            pipeline.launch().unwrap();
            if batch < BATCHES {
                pipeline.stage(extent(4), &[&input]).unwrap();
            }
            pipeline.finish(&mut outputs).unwrap();
        }
        let spans = pipeline.take_spans();
        assert_eq!(spans.len() as u64, BATCHES);
        for pair in spans.windows(2) {
            let (this, next) = (pair[0].1, pair[1].1);
            let copy = next.copy_in.until.saturating_sub(next.copy_in.from);
            assert_eq!(next.copy_in.shared_with(this.compute), copy, "all of it: {this:?} {next:?}");
            assert!(next.compute.from >= next.copy_in.until && next.compute.from >= this.compute.until);
        }
        // In sequence they would take the copies' time as well.
        let compute = Nanos::from_micros(900).get() * BATCHES;
        let copies = spans.iter().map(|(_, s)| s.copy_in.until.get() - s.copy_in.from.get()).sum::<u64>();
        let alone = compute + 2 * copies;
        let took = pipeline.device().now().get();
        assert!(took > compute && took < alone - copies / 2, "{took} of {alone}");
    }

    #[test]
    fn a_fault_ends_what_is_under_way_and_nothing_else() {
        let full = || DeviceError::OutOfMemory("no room for 1 MB".into());
        let lost = || DeviceError::Failed("an illegal address".into());
        for (fault, error) in [
            (FakeFault::CopyIn(1, full()), full()),
            (FakeFault::Compute(1, full()), full()),
            (FakeFault::HostWait(1, lost()), lost()),
        ] {
            let mut pipeline = pipeline(3, vec![fault.clone()]);
            let (mut outputs, mut failed) = (Vec::new(), Vec::new());
            for batch in 0..4 {
                let (numbers, mut run) = (input(batch, 2), || -> Result<(), Trouble> {
                    pipeline.stage(extent(2), &[&input(batch, 2)])?;
                    pipeline.launch()?;
                    pipeline.finish(&mut outputs)
                });
                match run() {
                    Ok(()) => assert_eq!(outputs, [numbers]),
                    Err(error) => failed.push((batch, error)),
                }
                assert_eq!((pipeline.waiting(), pipeline.running()), (0, 0));
            }
            assert_eq!(failed, [(1, Trouble::Device(error))], "{fault:?}");
        }
    }

    #[test]
    fn a_batch_that_cannot_be_staged_leaves_the_one_that_runs() {
        let full = DeviceError::OutOfMemory("no room".into());
        let mut pipeline = pipeline(4, vec![FakeFault::CopyIn(1, full.clone())]);
        let mut outputs = Vec::new();
        pipeline.stage(extent(2), &[&input(1, 2)]).unwrap();
        pipeline.launch().unwrap();
        assert_eq!(pipeline.stage(extent(3), &[&input(2, 3)]), Err(Trouble::Device(full)));
        assert_eq!((pipeline.waiting(), pipeline.running()), (0, 1));
        pipeline.stage(extent(3), &[&input(3, 3)]).unwrap();
        pipeline.finish(&mut outputs).unwrap();
        assert_eq!(outputs, [input(1, 2)]);
        pipeline.launch().unwrap();
        pipeline.finish(&mut outputs).unwrap();
        assert_eq!(outputs, [input(3, 3)]);
    }

    #[test]
    fn a_batch_is_filled_up_and_cut_again() {
        let mut pipeline = pipeline(5, Vec::new());
        let mut outputs = Vec::new();
        pipeline.stage(Extent { items: 3, filled: 8 }, &[&input(1, 3)]).unwrap();
        pipeline.launch().unwrap();
        pipeline.finish(&mut outputs).unwrap();
        assert_eq!(outputs, [input(1, 3)]);
        assert_eq!(pipeline.stage(extent(1), &[&input(2, 1)]), Ok(()));
        assert_eq!(pipeline.stage(extent(1), &[&input(3, 1)]), Ok(()));
        let refused = pipeline.stage(extent(1), &[&input(4, 1)]).unwrap_err();
        assert_eq!(refused, Trouble::NotNow(NotNow::NoRoom));
        assert_eq!(pipeline.waiting(), 2, "what was staged stays");
    }
}
