//! Keys that are held: nobody gets them for now, whatever is said of them.

use super::*;

impl<K: QueueKey> State<K> {
    /// Keeps a key from workers until it is released, or for so long. Once shut down, what waits is dropped.
    pub(in crate::workqueue) fn hold(&mut self, key: &K, at_most: Duration, clock: &impl Clock) {
        self.promote(clock);
        let found = match self.mode {
            Mode::Open => self.admit(key.clone(), clock),
            Mode::Draining | Mode::Discarding => self.find(key),
        };
        let Some(id) = found else { return };
        let entry = &mut self.entries.slab[id];
        entry.held = clock.now().after(at_most);
        match entry.place {
            Place::InFlight => return,
            // a retry that has its token pays no second one
            Place::Ready => entry.skip_backoff(),
            _ => {}
        }
        self.leave(id);
        match self.mode {
            Mode::Open => self.park(id),
            Mode::Draining | Mode::Discarding => self.entries.remove(id),
        }
    }

    /// Lets a held key go on as was said of it meanwhile, at the back of whatever line that is.
    pub(in crate::workqueue) fn release(&mut self, key: &K, clock: &impl Clock) {
        self.promote(clock);
        let Some(id) = self.entries.find(key) else { return };
        let entry = &mut self.entries.slab[id];
        entry.held = At::START;
        if entry.place == Place::Held {
            let now = clock.now();
            self.leave(id);
            self.resume(id, now);
            self.serve_retries(now);
        }
    }

    /// Tells where a key would stand were it not held.
    pub(super) fn standing(&self, id: Id, clock: &impl Clock) -> Place {
        let entry = &self.entries.slab[id];
        match entry.place {
            Place::Held if entry.delay != At::NEVER => match entry.cause {
                _ if entry.due() > clock.now() => Place::Delayed,
                Cause::Failure if self.retry_rate.is_some() => Place::AwaitsToken,
                _ => Place::Ready,
            },
            Place::Held if entry.cause == Cause::Terminal => Place::Terminal,
            Place::Held => Place::Idle,
            place => place,
        }
    }

    /// Puts a key that stands nowhere among those that are held.
    pub(super) fn park(&mut self, id: Id) {
        let entry = &mut self.entries.slab[id];
        entry.place = Place::Held;
        self.held += 1;
        self.delayed.schedule(id, entry.held);
    }

    /// Ends the hold of a key that left the others that are held.
    pub(super) fn resume(&mut self, id: Id, now: At) {
        let entry = &mut self.entries.slab[id];
        entry.held = At::START;
        match entry.due() {
            _ if entry.delay == At::NEVER => self.rest(id),
            due if due > now => self.put_off(id, due),
            _ => self.line_up_due(id, &now),
        }
    }

    /// Whether a key is held beyond now; a hold that is over is forgotten.
    pub(super) fn stays_held(&mut self, id: Id, clock: &impl Clock) -> bool {
        let entry = &mut self.entries.slab[id];
        if entry.held != At::START && entry.held <= clock.now() {
            entry.held = At::START;
        }
        entry.held != At::START
    }
}
