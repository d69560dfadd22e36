//! The predicates of invariants D1 and D2: they find commands that use a buffer at the same time, or that mix up the
//! inputs or outputs of two batches.

use symphony_types::Invariant;

use super::{Command, Event, Lane, Mark, SLOTS};

/// The actors: three lanes and the host.
const ACTORS: usize = 4;
const HOST: usize = 3;
const MARKS: usize = 3;

/// The progress of each actor that is known for certain at some point.
type Known = [u64; ACTORS];

/// A memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    HostInputs,
    DeviceInputs,
    DeviceOutputs,
    HostOutputs,
}

const MEMORIES: usize = 4;

/// The last uses of a memory.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    /// The actor that wrote it, and the number of that operation.
    write: Option<(usize, u64)>,
    /// For each actor, its last operation that read it.
    reads: Known,
    /// The batch whose data it holds.
    batch: Option<u64>,
}

/// Checks the commands of one [`super::Overlap`] in their order, and reports the broken invariant.
///
/// Each lane may run its work at any time after it was enqueued: two uses of a memory are ordered only if they are in
/// the same lane, or if a wait for an event lies between them. (Vector clocks: Mattern, "Virtual Time and Global
/// States of Distributed Systems", 1988.)
#[derive(Clone, Debug, Default)]
pub struct OrderCheck {
    actors: [Known; ACTORS],
    events: [[Option<Known>; SLOTS]; MARKS],
    uses: [[Uses; SLOTS]; MEMORIES],
    filled: u64,
    drained: u64,
}

impl OrderCheck {
    /// Checks a command.
    ///
    /// # Errors
    /// D1 if a memory is used while an earlier use of it may still be in progress, or if a wait refers to an event
    /// that was never recorded; D2 if the outputs are not those of the batch that is next.
    pub fn note(&mut self, command: Command) -> Result<(), (Invariant, String)> {
        match command {
            Command::Fill(slot) => {
                let batch = self.filled;
                self.filled += 1;
                self.write(HOST, Memory::HostInputs, slot, Some(batch))
            }
            Command::CopyIn(slot) => self.carry(Lane::In, slot, Memory::HostInputs, Memory::DeviceInputs),
            Command::Compute(slot) => self.carry(Lane::Compute, slot, Memory::DeviceInputs, Memory::DeviceOutputs),
            Command::CopyOut(slot) => self.carry(Lane::Out, slot, Memory::DeviceOutputs, Memory::HostOutputs),
            Command::Drain(slot) => self.drain(slot),
            Command::Record(lane, event) => {
                let known = self.acts(lane as usize);
                self.events[event.mark as usize][event.slot] = Some(known);
                Ok(())
            }
            Command::Wait(lane, event) => self.wait(lane as usize, event),
            Command::HostWait(event) => self.wait(HOST, event),
        }
    }

    /// Counts one more operation of an actor, with the progress it knows. A lane knows the host's progress at the time
    /// of the enqueuing.
    fn acts(&mut self, actor: usize) -> Known {
        let host = self.actors[HOST];
        let known = &mut self.actors[actor];
        known[actor] += 1;
        if actor != HOST {
            learn(known, &host);
        }
        *known
    }

    fn wait(&mut self, actor: usize, event: Event) -> Result<(), (Invariant, String)> {
        self.acts(actor);
        let Some(then) = self.events[event.mark as usize][event.slot] else {
            return Err((Invariant::D1, format!("{event:?} is waited for, and was never recorded")));
        };
        learn(&mut self.actors[actor], &then);
        Ok(())
    }

    fn carry(&mut self, lane: Lane, slot: usize, from: Memory, to: Memory) -> Result<(), (Invariant, String)> {
        let batch = self.read(lane as usize, from, slot)?;
        self.write(lane as usize, to, slot, batch)
    }

    fn drain(&mut self, slot: usize) -> Result<(), (Invariant, String)> {
        let batch = self.read(HOST, Memory::HostOutputs, slot)?;
        let expected = self.drained;
        self.drained += 1;
        if batch == Some(expected) {
            return Ok(());
        }
        Err((Invariant::D2, format!("batch {expected} is given the outputs of {batch:?}")))
    }

    fn read(&mut self, actor: usize, memory: Memory, slot: usize) -> Result<Option<u64>, (Invariant, String)> {
        let known = self.acts(actor);
        let uses = &mut self.uses[memory as usize][slot];
        uses.reads[actor] = known[actor];
        match uses.write {
            Some((writer, deed)) if known[writer] < deed => Err(too_early(memory, slot, "read", "written")),
            _ => Ok(uses.batch),
        }
    }

    fn write(
        &mut self,
        actor: usize,
        memory: Memory,
        slot: usize,
        batch: Option<u64>,
    ) -> Result<(), (Invariant, String)> {
        let known = self.acts(actor);
        let uses = &mut self.uses[memory as usize][slot];
        let read_still = (0..ACTORS).any(|reader| known[reader] < uses.reads[reader]);
        let written_still = uses.write.is_some_and(|(writer, deed)| known[writer] < deed);
        uses.write = Some((actor, known[actor]));
        uses.batch = batch;
        match () {
            () if read_still => Err(too_early(memory, slot, "written", "read")),
            () if written_still => Err(too_early(memory, slot, "written", "written")),
            () => Ok(()),
        }
    }
}

fn learn(known: &mut Known, other: &Known) {
    known.iter_mut().zip(other).for_each(|(known, other)| *known = (*known).max(*other));
}

fn too_early(memory: Memory, slot: usize, now: &str, still: &str) -> (Invariant, String) {
    (Invariant::D1, format!("{memory:?} of slot {slot} is {now} while it may still be {still}"))
}

const _: () = assert!(Lane::ALL.len() == HOST && Mark::Left as usize + 1 == MARKS);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{HostRequest, Overlap};
    use super::*;

    /// The commands of a busy period: as many requests as have room, in this order, and then all batches are finished.
    fn commands(requests: &[HostRequest]) -> Vec<Command> {
        let (mut overlap, mut commands) = (Overlap::default(), Vec::new());
        for &request in requests {
            let _ = overlap.step(request, &mut commands);
        }
        while overlap.waiting() + overlap.running() > 0 {
            if overlap.step(HostRequest::Launch, &mut commands).is_err() {
                overlap.step(HostRequest::Finish, &mut commands).unwrap();
            }
        }
        commands
    }

    fn broken(commands: &[Command]) -> Option<(Invariant, String)> {
        let mut check = OrderCheck::default();
        commands.iter().find_map(|&command| check.note(command).err())
    }

    /// As deep as the slots permit: every buffer is reused while the previous batch may still run.
    const BUSY: [HostRequest; 10] = {
        use HostRequest::{Finish, Launch, Stage};
        [Stage, Launch, Stage, Launch, Stage, Finish, Launch, Stage, Finish, Launch]
    };

    #[test]
    fn every_wait_is_needed() {
        let whole = commands(&BUSY);
        assert_eq!(broken(&whole), None);
        let mut planted = 0;
        for index in 0..whole.len() {
            if let Command::Wait(..) | Command::HostWait(_) = whole[index] {
                let mut without = whole.clone();
                let missing = without.remove(index);
                let found = broken(&without);
                assert!(found.is_some(), "nobody missed {missing:?}, command {index}");
                planted += 1;
            }
        }
        assert!(planted >= 10, "{planted}");
    }

    #[test]
    fn planted_faults_are_found_and_named() {
        let whole = commands(&BUSY);
        let find = |what: fn(&Command) -> bool| whole.iter().position(what).unwrap();

        // The host fills the buffers again before the copy out of them has ended.
        let mut early = whole.clone();
        early.remove(find(|c| matches!(c, Command::HostWait(Event { mark: Mark::Arrived, .. }))));
        let (invariant, words) = broken(&early).unwrap();
        assert_eq!(invariant, Invariant::D1);
        assert_eq!(words, "HostInputs of slot 0 is written while it may still be read");

        // The copy overwrites inputs while they are computed.
        let mut early = whole.clone();
        early.remove(find(|c| matches!(c, Command::Wait(Lane::In, _))));
        assert_eq!(broken(&early).unwrap().1, "DeviceInputs of slot 0 is written while it may still be read");

        // A batch is computed before its inputs have arrived.
        let mut early = whole.clone();
        early.remove(find(|c| matches!(c, Command::Wait(Lane::Compute, _))));
        assert_eq!(broken(&early).unwrap().1, "DeviceInputs of slot 0 is read while it may still be written");

        // An event of the wrong slot.
        let mut crossed = whole.clone();
        let at = find(|c| matches!(c, Command::Wait(Lane::Compute, _)));
        crossed[at] = Command::Wait(Lane::Compute, Event { mark: Mark::Arrived, slot: 1 });
        assert!(broken(&crossed).unwrap().1.contains("was never recorded"));

        // A batch is answered with another batch's outputs.
        let mut swapped = whole;
        for command in &mut swapped {
            if let Command::Drain(slot) | Command::HostWait(Event { mark: Mark::Left, slot }) = command {
                *slot = 1 - *slot;
            }
        }
        assert_eq!(broken(&swapped).unwrap().0, Invariant::D2);
    }

    proptest! {
        #[test]
        fn no_order_of_requests_breaks_an_invariant(
            requests in prop::collection::vec(
                prop::sample::select(vec![HostRequest::Stage, HostRequest::Launch, HostRequest::Finish]),
                0..80,
            )
        ) {
            prop_assert_eq!(broken(&commands(&requests)), None);
        }
    }
}
