//! Decides which buffers a batch uses on a device, and the order of copies and computations, so that the next batch's
//! inputs are copied while this one is computed.
//!
//! A device works in three lanes, each in its own order: inputs come in, batches are computed, outputs go out.
//! [`Overlap`] only decides: it turns the three requests of a host (stage, launch, finish) into commands. It has
//! [`SLOTS`] sets of buffers, and batches use them in turn:
//!
//! ```text
//! host     fill 0 │ fill 1        │ drain 0, fill 0 …
//! in       ══copy 0══▶arrived ══copy 1══▶arrived
//! compute            └▶═════ batch 0 ═════▶computed ═════ batch 1 ═════▶computed
//! out                                      └▶═copy 0═▶left
//! ```

mod device_port;
mod fake;
mod order_check;
mod pipeline;

pub use device_port::{Device, DeviceError, Extent, Span, Spans};
pub use fake::{FakeDevice, FakeFault, FakePace};
pub use order_check::OrderCheck;
pub use pipeline::{Pipeline, Trouble};

/// Sets of buffers: one batch is computed while the next one's inputs are copied. A third would only hold a batch that
/// the scheduler could still reorder (for the same reason the backend takes two plans per GPU).
pub const SLOTS: usize = 2;

/// A serial queue of work, parallel to the others; on CUDA a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Inputs from the host to the device.
    In,
    /// Batches.
    Compute,
    /// Outputs from the device to the host.
    Out,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 3] = [Self::In, Self::Compute, Self::Out];
}

/// The meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The inputs are on the device.
    Arrived,
    /// The batch is computed: its inputs may be overwritten.
    Computed,
    /// The outputs are at the host.
    Left,
}

/// An event of a slot. Each batch of the slot records it again; a wait refers to the last record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The point in the batch's work that it marks.
    pub mark: Mark,
    /// Its set of buffers.
    pub slot: usize,
}

/// One step of the work of a slot. Steps with a lane are enqueued there and run later; the host runs the others at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The host writes the inputs to its own memory, from which the device copies.
    Fill(usize),
    /// `In`: from the host's memory to the device's.
    CopyIn(usize),
    /// `Compute`: from the device's inputs to its outputs.
    Compute(usize),
    /// `Out`: from the device's memory to the host's.
    CopyOut(usize),
    /// The host reads the outputs from its memory.
    Drain(usize),
    /// The event is reached when all earlier work of the lane is done.
    Record(Lane, Event),
    /// Later work of the lane waits for the event.
    Wait(Lane, Event),
    /// The host sleeps until the event is reached.
    HostWait(Event),
}

/// A request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRequest {
    /// Begin the next batch: its inputs may be copied.
    Stage,
    /// Compute the oldest staged batch.
    Launch,
    /// Wait for the oldest launched batch, and return its outputs.
    Finish,
}

/// Why a request has to wait. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// All input buffers belong to batches that were not launched.
    #[error("{SLOTS} batches are staged; launch one first")]
    NoRoom,
    /// No batch is staged.
    #[error("no batch is staged")]
    NothingStaged,
    /// All output buffers belong to batches that were not finished.
    #[error("{SLOTS} batches were launched and not finished; finish one first")]
    OutputsTaken,
    /// No batch was launched.
    #[error("no batch was launched")]
    NothingLaunched,
}

/// Decides the order of all work. Batches run in the order in which they were staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// The numbers of batches staged, launched and finished so far.
    staged: u64,
    launched: u64,
    finished: u64,
}

impl Overlap {
    /// Batches that are staged and not launched.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        (self.staged - self.launched) as usize
    }

    /// Batches that were launched and not finished.
    #[must_use]
    pub const fn running(&self) -> usize {
        (self.launched - self.finished) as usize
    }

    /// The slot of the batch that ends next; none if none runs.
    #[must_use]
    pub const fn ends_next(&self) -> Option<usize> {
        if self.running() == 0 { None } else { Some(slot(self.finished)) }
    }

    /// Appends the commands for the request, and returns its slot.
    ///
    /// # Errors
    /// If another request has to come first.
    pub fn step(&mut self, request: HostRequest, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        match request {
            HostRequest::Stage => self.stage(commands),
            HostRequest::Launch => self.launch(commands),
            HostRequest::Finish => self.finish(commands),
        }
    }

    fn stage(&mut self, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        if self.waiting() == SLOTS {
            return Err(NotNow::NoRoom);
        }
        let slot = slot(self.staged);
        if self.staged >= SLOTS as u64 {
            // The slot's previous batch was launched, or there would be no room, but it may still run: the host
            // overwrites the source of its copy, and the copy overwrites the input of its computation.
            commands.push(Command::HostWait(Event { mark: Mark::Arrived, slot }));
            commands.push(Command::Wait(Lane::In, Event { mark: Mark::Computed, slot }));
        }
        commands.push(Command::Fill(slot));
        commands.push(Command::CopyIn(slot));
        commands.push(Command::Record(Lane::In, Event { mark: Mark::Arrived, slot }));
        self.staged += 1;
        Ok(slot)
    }

    fn launch(&mut self, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        if self.waiting() == 0 {
            return Err(NotNow::NothingStaged);
        }
        // The slot's previous batch is finished, so its outputs have left both memories: no event is needed.
        if self.running() == SLOTS {
            return Err(NotNow::OutputsTaken);
        }
        let slot = slot(self.launched);
        commands.push(Command::Wait(Lane::Compute, Event { mark: Mark::Arrived, slot }));
        commands.push(Command::Compute(slot));
        commands.push(Command::Record(Lane::Compute, Event { mark: Mark::Computed, slot }));
        commands.push(Command::Wait(Lane::Out, Event { mark: Mark::Computed, slot }));
        commands.push(Command::CopyOut(slot));
        commands.push(Command::Record(Lane::Out, Event { mark: Mark::Left, slot }));
        self.launched += 1;
        Ok(slot)
    }

    fn finish(&mut self, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        if self.running() == 0 {
            return Err(NotNow::NothingLaunched);
        }
        let slot = slot(self.finished);
        commands.push(Command::HostWait(Event { mark: Mark::Left, slot }));
        commands.push(Command::Drain(slot));
        self.finished += 1;
        Ok(slot)
    }
}

/// Whose turn it is.
const fn slot(batch: u64) -> usize {
    (batch % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(overlap: &mut Overlap, request: HostRequest) -> Vec<Command> {
        let mut commands = Vec::new();
        overlap.step(request, &mut commands).unwrap();
        commands
    }

    const fn event(mark: Mark, slot: usize) -> Event {
        Event { mark, slot }
    }

    #[test]
    fn the_next_batch_travels_while_this_one_is_computed() {
        let mut overlap = Overlap::default();
        let first = commands(&mut overlap, HostRequest::Stage);
        assert_eq!(
            first,
            [Command::Fill(0), Command::CopyIn(0), Command::Record(Lane::In, event(Mark::Arrived, 0))],
            "nothing was here before"
        );
        let launched = commands(&mut overlap, HostRequest::Launch);
        assert_eq!(launched[0], Command::Wait(Lane::Compute, event(Mark::Arrived, 0)));
        // Nothing of the second batch waits for anything of the first.
        let second = commands(&mut overlap, HostRequest::Stage);
        assert_eq!(second, [Command::Fill(1), Command::CopyIn(1), Command::Record(Lane::In, event(Mark::Arrived, 1))]);
        // The third one takes the buffers of the first.
        commands(&mut overlap, HostRequest::Launch);
        let third = commands(&mut overlap, HostRequest::Stage);
        assert_eq!(
            third[..2],
            [Command::HostWait(event(Mark::Arrived, 0)), Command::Wait(Lane::In, event(Mark::Computed, 0))]
        );
        assert_eq!(overlap.ends_next(), Some(0));
        assert_eq!(
            commands(&mut overlap, HostRequest::Finish),
            [Command::HostWait(event(Mark::Left, 0)), Command::Drain(0)]
        );
        assert_eq!((overlap.waiting(), overlap.running(), overlap.ends_next()), (1, 1, Some(1)));
    }

    #[test]
    fn what_has_no_buffers_waits_and_changes_nothing() {
        let mut overlap = Overlap::default();
        let mut none = Vec::new();
        assert_eq!(overlap.step(HostRequest::Launch, &mut none), Err(NotNow::NothingStaged));
        assert_eq!(overlap.step(HostRequest::Finish, &mut none), Err(NotNow::NothingLaunched));
        for _ in 0..SLOTS {
            commands(&mut overlap, HostRequest::Stage);
        }
        assert_eq!(overlap.step(HostRequest::Stage, &mut none), Err(NotNow::NoRoom));
        for _ in 0..SLOTS {
            commands(&mut overlap, HostRequest::Launch);
        }
        commands(&mut overlap, HostRequest::Stage);
        assert_eq!(overlap.step(HostRequest::Launch, &mut none), Err(NotNow::OutputsTaken));
        assert_eq!(none, []);
    }
}
