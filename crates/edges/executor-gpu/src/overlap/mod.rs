//! Which buffers a batch uses on a device, and what waits for what, so that the next batch's inputs travel while this
//! one is computed.
//!
//! A device works in three lanes, each in its own order: inputs come in, batches are computed, outputs go out.
//! [`Overlap`] decides and does nothing: it turns the three wishes of a host (stage, launch, finish) into commands. It
//! has [`SLOTS`] sets of buffers and gives the batches to them in turn:
//!
//! ```text
//! host     fill 0 │ fill 1        │ drain 0, fill 0 …
//! in       ══copy 0══▶arrived ══copy 1══▶arrived
//! compute            └▶═════ batch 0 ═════▶computed ═════ batch 1 ═════▶computed
//! out                                      └▶═copy 0═▶left
//! ```

mod device;
mod fake;
mod order_check;
mod pipeline;

pub use device::{Device, DeviceError, Extent, Span, Spans};
pub use fake::{FakeDevice, FakeFault, FakePace};
pub use order_check::OrderCheck;
pub use pipeline::{Pipeline, Trouble};

/// Sets of buffers: one batch is computed, the next one's inputs travel. A third would only hold what the scheduler
/// could still reorder (the backend takes two plans per GPU, for the same reason).
pub const SLOTS: usize = 2;

/// What works in order by itself, beside the others; on CUDA a stream.
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

/// What has happened when an event is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The inputs are on the device.
    Arrived,
    /// The batch is computed: its inputs are not needed any more.
    Computed,
    /// The outputs are at the host.
    Left,
}

/// An event of a slot. It is recorded anew by each batch of the slot; whoever waits means the record before his wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What has happened.
    pub mark: Mark,
    /// The set of buffers that it happened to.
    pub slot: usize,
}

/// One step of the work of a slot. Those with a lane are enqueued there and done later; the host does the others at
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
    /// The host takes the outputs out of its memory.
    Drain(usize),
    /// The event is reached when everything before it in the lane is done.
    Record(Lane, Event),
    /// What comes after it in the lane waits for the event.
    Wait(Lane, Event),
    /// The host waits for the event.
    HostWait(Event),
}

/// What a host wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To begin with the next batch: its inputs may travel.
    Stage,
    /// To compute the batch that was staged first of those that were not launched.
    Launch,
    /// To wait for the batch that was launched first of those that were not finished, and have its outputs.
    Finish,
}

/// Why a wish has to wait. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// All inputs' buffers belong to batches that were not launched.
    #[error("{SLOTS} batches are staged; launch one first")]
    NoRoom,
    /// No batch is staged.
    #[error("no batch is staged")]
    NothingStaged,
    /// All outputs' buffers belong to batches that were not finished.
    #[error("{SLOTS} batches were launched and not finished; finish one first")]
    OutputsTaken,
    /// No batch was launched.
    #[error("no batch was launched")]
    NothingLaunched,
}

/// Decides what is done in which order. Batches go in the order in which they were staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Batches so far that were staged, of these launched, and of these finished.
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

    /// Appends what fulfils the wish, and says for which slot.
    ///
    /// # Errors
    /// If something else has to come first.
    pub fn step(&mut self, wish: Wish, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        match wish {
            Wish::Stage => self.stage(commands),
            Wish::Launch => self.launch(commands),
            Wish::Finish => self.finish(commands),
        }
    }

    fn stage(&mut self, commands: &mut Vec<Command>) -> Result<usize, NotNow> {
        if self.waiting() == SLOTS {
            return Err(NotNow::NoRoom);
        }
        let slot = slot(self.staged);
        if self.staged >= SLOTS as u64 {
            // The batch before in this slot was launched, or there would be no room; it need not have ended. The host
            // overwrites what its copy reads, and the copy overwrites what its computation reads.
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
        // The outputs of the batch before in this slot are out of both memories when it has finished: no event is
        // needed.
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

    fn commands(overlap: &mut Overlap, wish: Wish) -> Vec<Command> {
        let mut commands = Vec::new();
        overlap.step(wish, &mut commands).unwrap();
        commands
    }

    const fn event(mark: Mark, slot: usize) -> Event {
        Event { mark, slot }
    }

    #[test]
    fn the_next_batch_travels_while_this_one_is_computed() {
        let mut overlap = Overlap::default();
        let first = commands(&mut overlap, Wish::Stage);
        assert_eq!(
            first,
            [Command::Fill(0), Command::CopyIn(0), Command::Record(Lane::In, event(Mark::Arrived, 0))],
            "nothing was here before"
        );
        let launched = commands(&mut overlap, Wish::Launch);
        assert_eq!(launched[0], Command::Wait(Lane::Compute, event(Mark::Arrived, 0)));
        // Nothing of the second batch waits for anything of the first.
        let second = commands(&mut overlap, Wish::Stage);
        assert_eq!(second, [Command::Fill(1), Command::CopyIn(1), Command::Record(Lane::In, event(Mark::Arrived, 1))]);
        // The third one takes the buffers of the first.
        commands(&mut overlap, Wish::Launch);
        let third = commands(&mut overlap, Wish::Stage);
        assert_eq!(
            third[..2],
            [Command::HostWait(event(Mark::Arrived, 0)), Command::Wait(Lane::In, event(Mark::Computed, 0))]
        );
        assert_eq!(overlap.ends_next(), Some(0));
        assert_eq!(commands(&mut overlap, Wish::Finish), [Command::HostWait(event(Mark::Left, 0)), Command::Drain(0)]);
        assert_eq!((overlap.waiting(), overlap.running(), overlap.ends_next()), (1, 1, Some(1)));
    }

    #[test]
    fn what_has_no_buffers_waits_and_changes_nothing() {
        let mut overlap = Overlap::default();
        let mut none = Vec::new();
        assert_eq!(overlap.step(Wish::Launch, &mut none), Err(NotNow::NothingStaged));
        assert_eq!(overlap.step(Wish::Finish, &mut none), Err(NotNow::NothingLaunched));
        for _ in 0..SLOTS {
            commands(&mut overlap, Wish::Stage);
        }
        assert_eq!(overlap.step(Wish::Stage, &mut none), Err(NotNow::NoRoom));
        for _ in 0..SLOTS {
            commands(&mut overlap, Wish::Launch);
        }
        commands(&mut overlap, Wish::Stage);
        assert_eq!(overlap.step(Wish::Launch, &mut none), Err(NotNow::OutputsTaken));
        assert_eq!(none, []);
    }
}
