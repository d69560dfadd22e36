//! The models of a worker: arrival, profiles, departure.

use std::sync::Arc;

use symphony_scheduler::{DataDelay, MinTree, ModelInput, ModelQueue, ModelQueueConfig};
use symphony_types::{GpuClass, GpuClasses, LatencyProfile, ModelId, Time};

use super::ModelWorker;
use crate::workers::delivery::Returning;
use crate::workers::load::ModelCounts;
use crate::workers::messages::RankMessage;
use crate::workers::offer_board::Offer;

pub(super) struct ModelSlot {
    pub(super) id: ModelId,
    /// For tapes.
    pub(super) name: Arc<str>,
    pub(super) ordinal: u32,
    pub(super) queue: ModelQueue,
    pub(super) counts: Arc<ModelCounts>,
    /// By class of GPUs: offers that the rank worker has not seen.
    pub(super) offers: Vec<Option<Offer>>,
    /// The turn that armed the timer.
    pub(super) armed_in: u64,
}

impl ModelWorker {
    pub(super) fn add_model(
        &mut self,
        now: Time,
        (id, name): (ModelId, Arc<str>),
        ordinal: u32,
        config: ModelQueueConfig,
        counts: Arc<ModelCounts>,
    ) {
        if self.by_id.contains_key(&id) {
            return;
        }
        let index = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.slots.push(None);
                self.wakes.grow(self.slots.len());
                self.slots.len() - 1
            }
        };
        self.tape.model(index, (id, &*name), ordinal, &config);
        let queue = ModelQueue::new(config);
        self.slots[index] = Some(ModelSlot { id, name, ordinal, queue, counts, offers: Vec::new(), armed_in: 0 });
        self.by_id.insert(id, index);
        self.by_ordinal.insert(ordinal, index);
        if self.classes != GpuClasses::NONE {
            self.step(now, index, ModelInput::Classes(self.classes));
        }
    }

    pub(super) fn set_profile(&mut self, id: ModelId, class: GpuClass, profile: LatencyProfile) {
        let Some(&index) = self.by_id.get(&id) else { return };
        if let Some(slot) = &mut self.slots[index] {
            self.tape.profile(index, class, &profile);
            slot.queue.set_profile(class, profile);
        }
    }

    pub(super) fn set_data_delay(&mut self, now: Time, id: ModelId, data: DataDelay) {
        let Some(&index) = self.by_id.get(&id) else { return };
        let Some(slot) = &mut self.slots[index] else { return };
        self.tape.data_delay(index, &data);
        slot.queue.set_data_delay(data);
        // A GPU at the time that the previous offer asked for may be too late for the waiting requests.
        self.step(now, index, ModelInput::Wake);
    }

    /// A kind of GPUs has appeared, or the last GPU of a kind has left.
    pub(super) fn set_classes(&mut self, now: Time, classes: GpuClasses) {
        self.classes = classes;
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some() {
                self.step(now, slot, ModelInput::Classes(classes));
            }
        }
    }

    /// A queue for the model as it is now takes the place of the one before, with its requests and its profiles, which
    /// may have been corrected since. The ordinal is a new one, so that no offer of the former queue is granted.
    pub(super) fn change_model(&mut self, now: Time, (id, ordinal): (ModelId, u32), config: ModelQueueConfig) {
        let Some(slot) = self.take_model(id) else { return };
        let profiles = slot.queue.profiles().clone();
        self.add_model(now, (id, slot.name), ordinal, ModelQueueConfig { profiles, ..config }, slot.counts);
        // Tens of thousands may wait: not in one turn, and nothing that may concern them is handled before.
        let requests: Vec<_> = slot.queue.into_requests().collect();
        self.delivery.bring_back(Returning { model: id, requests: requests.into_iter() });
    }

    pub(super) fn remove_model(&mut self, id: ModelId) {
        let Some(slot) = self.take_model(id) else { return };
        for request in slot.queue.into_requests() {
            self.delivery.end_unserved(request.id);
        }
    }

    /// The rank worker hears no more of the model under this ordinal.
    fn take_model(&mut self, id: ModelId) -> Option<ModelSlot> {
        let index = self.by_id.remove(&id)?;
        let slot = self.slots[index].take()?;
        self.tape.gone(index);
        self.by_ordinal.remove(&slot.ordinal);
        self.wakes.set(index, MinTree::EMPTY);
        // An offer that the rank worker has not read must not outlive the model.
        for class in GpuClass::all().take(slot.offers.len()) {
            self.offers.publish(slot.ordinal, class, (u64::MAX, None));
        }
        self.wake_rank = true;
        self.send_to_rank(RankMessage::Forget { ordinal: slot.ordinal });
        Some(slot)
    }
}
