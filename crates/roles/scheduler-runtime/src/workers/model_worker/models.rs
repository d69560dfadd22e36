//! The models of a worker: arrival, profiles, departure.

use std::sync::atomic::Ordering;

use symphony_scheduler::{DataDelay, MinTree, ModelInput, ModelQueue, ModelQueueConfig, Request};
use symphony_types::{GpuClass, GpuClasses, LatencyProfile, ModelId, Time};

use super::ModelWorker;
use crate::workers::delivery::{EnqueueKind, Returning};
use crate::workers::messages::{Member, NewQueue, RankMessage};
use crate::workers::offer_board::Offer;

/// A queue, for one model or for models that share a trunk.
pub(super) struct ModelSlot {
    /// By id; never empty.
    members: Vec<Member>,
    /// Whether its plans may have rows of several models.
    shares_trunk: bool,
    pub(super) ordinal: u32,
    pub(super) queue: ModelQueue,
    /// By class of GPUs: offers that the rank worker has not seen.
    pub(super) offers: Vec<Option<Offer>>,
    /// The turn that armed the timer.
    pub(super) armed_in: u64,
}

impl ModelSlot {
    /// The model of a request; the first one for that of a model that has left.
    #[inline]
    pub(super) fn member(&self, request: &Request) -> &Member {
        match &self.members[..] {
            [only] => only,
            members => {
                let place = members.binary_search_by_key(&request.variant, |member| member.id.get());
                &members[place.unwrap_or(0)]
            }
        }
    }

    /// Shows how many requests wait. To count them by model takes a look at each, so that waits for the next account,
    /// unless none waits.
    pub(super) fn show_queued(&self) {
        match &self.members[..] {
            [only] => only.counts.queued.store(self.queue.len() as u64, Ordering::Relaxed),
            members if self.queue.is_empty() => {
                members.iter().for_each(|member| member.counts.queued.store(0, Ordering::Relaxed));
            }
            _ => {}
        }
    }

    /// Shows how many requests of each model wait.
    pub(super) fn show_queued_by_model(&self) {
        let members = &self.members[..];
        if members.len() == 1 {
            return;
        }
        let mut waiting = vec![0_u64; members.len()];
        for request in self.queue.waiting() {
            if let Ok(place) = members.binary_search_by_key(&request.variant, |member| member.id.get()) {
                waiting[place] += 1;
            }
        }
        members
            .iter()
            .zip(waiting)
            .for_each(|(member, waiting)| member.counts.queued.store(waiting, Ordering::Relaxed));
    }
}

impl ModelWorker {
    /// Makes a queue, unless one of its models is in another one.
    pub(super) fn add_queue(&mut self, now: Time, queue: NewQueue) {
        let NewQueue { members, ordinal, config, families } = queue;
        if members.is_empty() || members.iter().any(|member| self.by_id.contains_key(&member.id)) {
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
        let shares_trunk = !families.is_empty();
        let names: Vec<_> = members.iter().map(|member| (member.id, &*member.name)).collect();
        match names[..] {
            [name] if !shares_trunk => self.tape.model(index, name, ordinal, &config),
            _ => self.tape.family(index, &names, ordinal, &config, &families),
        }
        let mut queue = ModelQueue::new(*config);
        if shares_trunk {
            let names: Vec<_> = members.iter().map(|member| member.id.get()).collect();
            queue.name_variants(&names);
            families.into_iter().for_each(|(class, family)| queue.share_trunk(class, family));
        }
        for member in &members {
            self.by_id.insert(member.id, index);
        }
        self.slots[index] = Some(ModelSlot { members, shares_trunk, ordinal, queue, offers: Vec::new(), armed_in: 0 });
        self.by_ordinal.insert(ordinal, index);
        if self.classes != GpuClasses::NONE {
            self.step(now, index, ModelInput::Classes(self.classes));
        }
    }

    pub(super) fn set_profile(&mut self, id: ModelId, class: GpuClass, profile: LatencyProfile) {
        let Some(&index) = self.by_id.get(&id) else { return };
        // What is learnt of a model alone does not apply to the parts that it shares.
        if let Some(slot) = self.slots[index].as_mut().filter(|slot| !slot.shares_trunk) {
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
        let Some(slot) = self.take_queue(id) else { return };
        let config = Box::new(ModelQueueConfig { profiles: slot.queue.profiles().clone(), ..config });
        self.add_queue(now, NewQueue { members: slot.members, ordinal, config, families: Vec::new() });
        self.bring_back(slot.queue.into_requests().collect());
    }

    /// Models get these queues in place of those that they are in.
    pub(super) fn regroup(&mut self, now: Time, queues: Vec<NewQueue>) {
        let mut requests = Vec::new();
        for member in queues.iter().flat_map(|queue| &queue.members) {
            // A queue goes with the first of its models.
            requests.extend(self.take_queue(member.id).into_iter().flat_map(|slot| slot.queue.into_requests()));
        }
        queues.into_iter().for_each(|queue| self.add_queue(now, queue));
        self.bring_back(requests);
    }

    /// Requests of queues that have gone wait in those that their models have now.
    fn bring_back(&mut self, mut requests: Vec<Request>) {
        let queue_of = |request: &Request| self.by_id.get(&ModelId::new(request.variant)).copied();
        requests.sort_by_key(|request| (queue_of(request), request.deadline));
        // One candidate for each queue, with the last.
        let is_last = |at: usize| requests.get(at + 1).is_none_or(|next| queue_of(next) != queue_of(&requests[at]));
        let kind = |at| if is_last(at) { EnqueueKind::Returned } else { EnqueueKind::ReturnedWithNext };
        let returning: Vec<_> =
            (0..requests.len()).map(|at| (ModelId::new(requests[at].variant), requests[at], kind(at))).collect();
        // Tens of thousands may wait: not in one turn, and nothing that may concern them is handled before.
        self.delivery.bring_back(Returning { requests: returning.into_iter() });
    }

    pub(super) fn remove_model(&mut self, now: Time, id: ModelId) {
        let Some(&index) = self.by_id.get(&id) else { return };
        if self.slots[index].as_ref().is_some_and(|slot| slot.members.len() > 1) {
            return self.remove_member(now, index, id);
        }
        let Some(slot) = self.take_queue(id) else { return };
        for request in slot.queue.into_requests() {
            self.delivery.end_unserved(request.id);
        }
    }

    /// A model leaves the queue that it shares; the others stay as they are.
    fn remove_member(&mut self, now: Time, index: usize, id: ModelId) {
        let Some(slot) = &mut self.slots[index] else { return };
        slot.members.retain(|member| member.id != id);
        let own = slot.queue.waiting().filter(|request| request.variant == id.get());
        let own: Vec<_> = own.map(|request| request.id).collect();
        self.by_id.remove(&id);
        for (at, &request) in own.iter().enumerate() {
            let is_last = at + 1 == own.len();
            let cancel = if is_last { ModelInput::Cancel(request) } else { ModelInput::CancelWithNext(request) };
            self.step(now, index, cancel);
        }
        own.into_iter().for_each(|request| self.delivery.end_unserved(request));
    }

    /// Takes the queue of a model away, with all models that share it. The rank worker gets no more offers of its
    /// ordinal.
    fn take_queue(&mut self, id: ModelId) -> Option<ModelSlot> {
        let index = *self.by_id.get(&id)?;
        let slot = self.slots[index].take()?;
        for member in &slot.members {
            self.by_id.remove(&member.id);
        }
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
