//! Messages to the rank worker: candidates, answers to grants, and accounts.

use symphony_scheduler::{Account, POOL_TICK};
use symphony_types::{GpuClass, Time};

use super::ModelWorker;
use super::models::ModelSlot;
use crate::workers::messages::RankMessage;
use crate::workers::offer_board::Offer;

impl ModelWorker {
    /// Keeps the newest candidate for a class until it is published.
    pub(super) fn offer(&mut self, slot: usize, class: GpuClass, offer: Offer) {
        let Some(model) = &mut self.slots[slot] else { return };
        if class.index() >= model.offers.len() {
            model.offers.resize(class.index() + 1, None);
        }
        if model.offers[class.index()].replace(offer).is_none() {
            self.offering.push((slot, class));
        }
    }

    /// Sends the account of the models to the rank worker.
    pub(super) fn send_account(&mut self, now: Time) {
        self.account_is_stale = false;
        self.account_at = now + POOL_TICK;
        self.slots.iter().flatten().for_each(ModelSlot::show_queued_by_model);
        let models = self.slots.iter_mut().flatten();
        let account = models.map(|model| model.queue.take_account()).fold(Account::default(), Account::and);
        self.send_to_rank(RankMessage::Account(Box::new(account)));
    }

    pub(super) fn send_to_rank(&mut self, message: RankMessage) {
        self.answers.push(message);
    }

    /// Publishes the answers to grants, and then the newest candidate of every model that has a new one. Does not wake
    /// the rank worker.
    pub(super) fn publish_to_rank(&mut self) {
        self.wake_rank |= !self.answers.is_empty();
        for answer in self.answers.drain(..) {
            self.rank.push_silently(answer);
        }
        for (slot, class) in self.offering.drain(..) {
            if let Some(model) = &mut self.slots[slot]
                && let Some(offer) = model.offers.get_mut(class.index()).and_then(Option::take)
            {
                self.offers.publish(model.ordinal, class, offer);
                self.wake_rank = true;
            }
        }
    }
}
