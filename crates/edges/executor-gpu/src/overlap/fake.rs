//! A fake device for tests on machines without one: real bytes, virtual time, and lanes that run their work as late
//! and in as odd an order as their events permit. Its model returns its inputs.

use std::collections::VecDeque;

use symphony_types::Nanos;

use super::{Device, DeviceError, Event, Extent, Lane, SLOTS, Span, Spans};

const MARKS: usize = 3;
/// Steps that a wait may take. A lane holds a few operations per slot, so a correct order takes fewer.
const STEPS_MAX: usize = 10_000;

/// How fast the device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakePace {
    /// Time that a copy takes per byte, in picoseconds: 40 is 25 GB/s.
    pub copy_ps_per_byte: u64,
    /// Time that a batch takes, without its items.
    pub batch: Nanos,
    /// Time that each item takes.
    pub item: Nanos,
}

impl Default for FakePace {
    fn default() -> Self {
        Self { copy_ps_per_byte: 40, batch: Nanos::from_micros(500), item: Nanos::from_micros(100) }
    }
}

/// A fault that occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FakeFault {
    /// The enqueuing of that many computations from now, 0 the next, is refused.
    Compute(u32, DeviceError),
    /// The copy of inputs is refused.
    CopyIn(u32, DeviceError),
    /// The wait for the end of a batch fails, as it does when its computation went wrong.
    HostWait(u32, DeviceError),
}

#[derive(Clone, Copy, Debug)]
enum Work {
    CopyIn,
    Compute,
    CopyOut,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Do(Work, usize, Extent, Nanos),
    Record(Event, u64),
    Wait(Event, u64),
}

/// The memories of one slot; one buffer per input.
#[derive(Clone, Debug, Default)]
struct Slot {
    host_inputs: Vec<Vec<u8>>,
    device_inputs: Vec<Vec<u8>>,
    device_outputs: Vec<Vec<u8>>,
    host_outputs: Vec<Vec<u8>>,
    spans: Spans,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    item_bytes: Vec<usize>,
    pace: FakePace,
    slots: [Slot; SLOTS],
    lanes: [VecDeque<Operation>; 3],
    /// The time up to which each lane has worked.
    lane_at: [Nanos; 3],
    host_at: Nanos,
    /// How often each event was recorded by the host and reached by its lane, and its last time.
    recorded: [[u64; SLOTS]; MARKS],
    reached: [[u64; SLOTS]; MARKS],
    reached_at: [[Nanos; SLOTS]; MARKS],
    faults: Vec<FakeFault>,
    dice: u64,
}

impl FakeDevice {
    /// A device for a model whose inputs have these bytes per item; `seed` decides which lane works first when several
    /// can.
    #[must_use]
    pub fn new(item_bytes: &[usize], pace: FakePace, seed: u64) -> Self {
        Self {
            item_bytes: item_bytes.to_vec(),
            pace,
            slots: Default::default(),
            lanes: Default::default(),
            lane_at: [Nanos::ZERO; 3],
            host_at: Nanos::ZERO,
            recorded: Default::default(),
            reached: Default::default(),
            reached_at: [[Nanos::ZERO; SLOTS]; MARKS],
            faults: Vec::new(),
            // A generator with state zero yields only zeros.
            dice: seed | 1 << 63,
        }
    }

    /// This device with faults to come.
    #[must_use]
    pub fn with_faults(self, faults: Vec<FakeFault>) -> Self {
        Self { faults, ..self }
    }

    /// The virtual time of the host.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.host_at
    }

    /// The fault of this sort whose turn it is.
    fn fault(&mut self, of: impl Fn(&mut FakeFault) -> Option<&mut u32>) -> Result<(), DeviceError> {
        for index in 0..self.faults.len() {
            let Some(left) = of(&mut self.faults[index]) else { continue };
            if *left > 0 {
                *left -= 1;
                continue;
            }
            let (FakeFault::Compute(_, error) | FakeFault::CopyIn(_, error) | FakeFault::HostWait(_, error)) =
                self.faults.remove(index);
            return Err(error);
        }
        Ok(())
    }

    fn enqueue(&mut self, lane: Lane, work: Work, slot: usize, extent: Extent) {
        let at = self.host_at;
        self.lanes[lane as usize].push_back(Operation::Do(work, slot, extent, at));
    }

    /// Runs one operation of a lane that can go on; false if none can.
    fn turn(&mut self) -> bool {
        let can = |operation: &Operation| match *operation {
            Operation::Wait(event, record) => self.reached[event.mark as usize][event.slot] >= record,
            _ => true,
        };
        let able: Vec<usize> = (0..3).filter(|&lane| self.lanes[lane].front().is_some_and(can)).collect();
        if able.is_empty() {
            return false;
        }
        // Xorshift (Marsaglia, 2003).
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let lane = able[self.dice as usize % able.len()];
        if let Some(operation) = self.lanes[lane].pop_front() {
            self.perform(lane, operation);
        }
        true
    }

    fn perform(&mut self, lane: usize, operation: Operation) {
        let at = self.lane_at[lane];
        match operation {
            Operation::Do(work, slot, extent, enqueued) => {
                let from = at.max(enqueued);
                let until = Nanos::new(from.get() + self.takes(work, extent).get());
                let (span, slot) = (Span { from, until }, &mut self.slots[slot]);
                match work {
                    Work::CopyIn => (slot.device_inputs, slot.spans.copy_in) = (slot.host_inputs.clone(), span),
                    Work::Compute => (slot.device_outputs, slot.spans.compute) = (slot.device_inputs.clone(), span),
                    Work::CopyOut => (slot.host_outputs, slot.spans.copy_out) = (slot.device_outputs.clone(), span),
                }
                self.lane_at[lane] = until;
            }
            Operation::Record(event, record) => {
                self.reached[event.mark as usize][event.slot] = record;
                self.reached_at[event.mark as usize][event.slot] = at;
            }
            Operation::Wait(event, _) => self.lane_at[lane] = at.max(self.reached_at[event.mark as usize][event.slot]),
        }
    }

    fn takes(&self, work: Work, extent: Extent) -> Nanos {
        let filled = u64::from(extent.filled);
        match work {
            Work::Compute => Nanos::new(self.pace.batch.get() + self.pace.item.get() * filled),
            Work::CopyIn | Work::CopyOut => {
                let bytes = self.item_bytes.iter().sum::<usize>() as u64 * filled;
                Nanos::new(bytes * self.pace.copy_ps_per_byte / 1000)
            }
        }
    }

    fn is_at(&self, event: Event, record: u64) -> bool {
        self.reached[event.mark as usize][event.slot] >= record
    }
}

impl Device for FakeDevice {
    fn fill(&mut self, slot: usize, extent: Extent, inputs: &[&[u8]]) -> Result<(), DeviceError> {
        let buffers = inputs.iter().zip(&self.item_bytes).map(|(input, &item)| {
            let mut buffer = input.to_vec();
            for _ in extent.items..extent.filled {
                buffer.extend_from_within(buffer.len() - item..);
            }
            buffer
        });
        self.slots[slot].host_inputs = buffers.collect();
        Ok(())
    }

    fn copy_in(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.fault(|fault| if let FakeFault::CopyIn(left, _) = fault { Some(left) } else { None })?;
        self.enqueue(Lane::In, Work::CopyIn, slot, extent);
        Ok(())
    }

    fn compute(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.fault(|fault| if let FakeFault::Compute(left, _) = fault { Some(left) } else { None })?;
        self.enqueue(Lane::Compute, Work::Compute, slot, extent);
        Ok(())
    }

    fn copy_out(&mut self, slot: usize, extent: Extent) -> Result<(), DeviceError> {
        self.enqueue(Lane::Out, Work::CopyOut, slot, extent);
        Ok(())
    }

    fn drain(&mut self, slot: usize, extent: Extent, outputs: &mut Vec<Vec<u8>>) -> Result<(), DeviceError> {
        outputs.clone_from(&self.slots[slot].host_outputs);
        for (output, item) in outputs.iter_mut().zip(&self.item_bytes) {
            output.truncate(item * extent.items as usize);
        }
        Ok(())
    }

    fn record(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError> {
        let record = &mut self.recorded[event.mark as usize][event.slot];
        *record += 1;
        self.lanes[lane as usize].push_back(Operation::Record(event, *record));
        Ok(())
    }

    fn wait(&mut self, lane: Lane, event: Event) -> Result<(), DeviceError> {
        let record = self.recorded[event.mark as usize][event.slot];
        self.lanes[lane as usize].push_back(Operation::Wait(event, record));
        Ok(())
    }

    fn host_wait(&mut self, event: Event) -> Result<(), DeviceError> {
        self.fault(|fault| if let FakeFault::HostWait(left, _) = fault { Some(left) } else { None })?;
        let record = self.recorded[event.mark as usize][event.slot];
        for _ in 0..STEPS_MAX {
            if self.is_at(event, record) {
                self.host_at = self.host_at.max(self.reached_at[event.mark as usize][event.slot]);
                return Ok(());
            }
            if !self.turn() {
                break;
            }
        }
        Err(DeviceError::Lost(format!("{event:?} is never reached")))
    }

    fn is_reached(&mut self, event: Event) -> Result<bool, DeviceError> {
        self.turn();
        let record = self.recorded[event.mark as usize][event.slot];
        Ok(self.is_at(event, record))
    }

    fn spans(&mut self, slot: usize) -> Result<Spans, DeviceError> {
        Ok(self.slots[slot].spans)
    }

    fn count_from_now(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn settle(&mut self) {
        while self.turn() {}
        self.lanes.iter_mut().for_each(VecDeque::clear);
    }

    fn used_bytes(&self) -> Option<u64> {
        None
    }
}
