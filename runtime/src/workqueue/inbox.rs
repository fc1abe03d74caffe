//! Where keys are left behind a long line, so that who adds many does not wait for the queue's lock.
//!
//! Whoever takes that lock next adds them first, in the order in which they came and at the time at which they did: nobody can
//! tell a key that was left from one that was added. Nothing is left while a worker waits, as it may have to be woken.
//!
//! A thousand adds to a million keys take 20 µs in place of 500: the rest is done when a worker comes.

use std::sync::atomic::{AtomicBool, Ordering};

use super::clock::{At, Clock, ClockOrigin};
use super::sync::{Mutex, lock, lock_within};
use super::types::Priority;

/// Most keys that are left at once: one more is added, and they with it, which takes about 2 ms behind a million keys.
///
/// Workers that come all at the same moments leave others alone in between: it has to hold what is added meanwhile.
const MOST: usize = if cfg!(test) { 3 } else { 4096 };

/// What may be left at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// Keys, whenever they come: nothing waits for a time.
    Keys,
    /// Keys, with the time at which they come.
    KeysAndTimes,
}

/// A key that was left.
#[derive(Debug)]
pub(super) struct Left<K> {
    pub(super) key: K,
    pub(super) priority: Priority,
    /// When it was; never if that does not matter.
    at: At,
}

impl<K> Left<K> {
    pub(super) fn at(&self) -> Option<At> {
        (self.at != At::NEVER).then_some(self.at)
    }
}

/// Keys in the order in which they were left.
///
/// The queue's lock is taken before this one's, never within it.
#[derive(Debug)]
pub(super) struct Inbox<K> {
    content: Mutex<Content<K>>,
    /// What `content` tells, for those who only look: nothing is left without looking again under the lock.
    is_open: AtomicBool,
    is_filled: AtomicBool,
}

#[derive(Debug)]
struct Content<K> {
    takes: Takes,
    keys: Vec<Left<K>>,
}

impl<K> Inbox<K> {
    pub(super) const fn new() -> Self {
        let content = Mutex::new(Content { takes: Takes::Nothing, keys: Vec::new() });
        Self { content, is_open: AtomicBool::new(false), is_filled: AtomicBool::new(false) }
    }

    /// Leaves a key, or gives it back: it is to be added by the caller.
    #[inline]
    pub(super) fn leave(&self, key: K, priority: Priority, origin: ClockOrigin) -> Result<(), K> {
        match self.is_open.load(Ordering::Acquire) {
            true => self.leave_if_open(key, priority, origin),
            false => Err(key),
        }
    }

    fn leave_if_open(&self, key: K, priority: Priority, origin: ClockOrigin) -> Result<(), K> {
        let mut content = lock(&self.content);
        let at = match content.takes {
            _ if content.keys.len() == MOST => return Err(key),
            Takes::Nothing => return Err(key),
            Takes::Keys => At::NEVER,
            Takes::KeysAndTimes => origin.now(),
        };
        content.keys.push(Left { key, priority, at });
        self.is_filled.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there is anything to take out: all that was left before the caller was told of it.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// Takes out what was left. Under the queue's lock.
    pub(super) fn take(&self) -> Vec<Left<K>> {
        self.empty(&mut lock_within(&self.content))
    }

    /// Says what may be left from now on, and takes out what was left before. Under the queue's lock.
    pub(super) fn accept(&self, takes: Takes) -> Vec<Left<K>> {
        let mut content = lock_within(&self.content);
        content.takes = takes;
        self.is_open.store(takes != Takes::Nothing, Ordering::Release);
        self.empty(&mut content)
    }

    fn empty(&self, content: &mut Content<K>) -> Vec<Left<K>> {
        self.is_filled.store(false, Ordering::Release);
        std::mem::take(&mut content.keys)
    }
}
