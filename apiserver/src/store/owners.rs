//! Owners: dependents by the uid of their owner, updated with every write.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use serde_json::Value;

use super::resource_id::ResourceId;
use crate::object;

/// The key of an object.
pub(crate) type OwnerPlace = (ResourceId, Arc<str>);

/// A uid, as short as it can be: there is one for each object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Uid {
    /// In the order of creation.
    Number(u128),
    /// Any other text.
    Text(Box<str>),
}

impl Uid {
    fn of(text: &str) -> Self {
        let is_usual = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match at {
                8 | 13 | 18 | 23 => byte == b'-',
                _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            });
        let digits = text.bytes().filter(u8::is_ascii_hexdigit);
        let number = || {
            digits.fold(0, |sum, digit| sum << 4 | u128::from(char::from(digit).to_digit(16).unwrap_or(0)))
        };
        if is_usual { Self::Number(number()) } else { Self::Text(text.into()) }
    }
}

/// The existing uids, their dependents, and the suspects of the garbage collector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners {
    places: HashMap<Uid, OwnerPlace>,
    dependents: HashMap<String, BTreeSet<OwnerPlace>>,
    suspects: VecDeque<OwnerPlace>,
    /// Owners that count as there although no object has the uid.
    assumed: HashSet<Uid>,
}

impl Owners {
    /// Takes an owner for one that is there, until an object has its uid.
    pub(crate) fn assume(&mut self, uid: &str) {
        let uid = Uid::of(uid);
        if !self.places.contains_key(&uid) {
            self.assumed.insert(uid);
        }
    }

    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        !self.assumed.is_empty() && self.assumed.contains(&Uid::of(uid))
    }

    /// Notes a write: the state before and the one after.
    pub(super) fn note(&mut self, place: &OwnerPlace, before: Option<&Value>, after: Option<&Value>) {
        let uids = |value: Option<&Value>| -> Vec<String> {
            value.into_iter().flat_map(object::owners).map(|owner| owner.uid.to_owned()).collect()
        };
        let (was, is) = (uids(before), uids(after));
        if was != is {
            for uid in &was {
                if let Some(places) = self.dependents.get_mut(uid) {
                    places.remove(place);
                    if places.is_empty() {
                        self.dependents.remove(uid);
                    }
                }
            }
            for uid in is {
                self.dependents.entry(uid).or_default().insert(place.clone());
            }
            if after.is_some() {
                self.suspects.push_back(place.clone());
            }
        }
        match after {
            Some(after) if before.is_none() => {
                let uid = Uid::of(object::uid(after));
                self.assumed.remove(&uid);
                self.places.insert(uid, place.clone());
            }
            Some(after) if object::is_deleting(after) => self.suspects.push_back(place.clone()),
            Some(_) => {}
            None => {
                let uid = before.map(object::uid).unwrap_or_default();
                self.places.remove(&Uid::of(uid));
                self.suspects.extend(self.dependents(uid));
                for owner in was {
                    self.suspects.extend(self.places.get(&Uid::of(&owner)).cloned());
                }
            }
        }
    }

    /// Notes an object that is simply there; one on its way out is looked at again.
    pub(super) fn restore(&mut self, place: OwnerPlace, value: &Value) {
        self.note(&place, None, Some(value));
        if object::is_deleting(value) {
            self.suspects.push_back(place);
        }
    }

    /// Returns the key of the object with a uid.
    pub(crate) fn place(&self, uid: &str) -> Option<&OwnerPlace> {
        self.places.get(&Uid::of(uid))
    }

    /// Returns the objects that name a uid as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<OwnerPlace> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Returns the next suspect.
    pub(crate) fn next_suspect(&mut self) -> Option<OwnerPlace> {
        self.suspects.pop_front()
    }

    /// Returns whether there are suspects.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Forgets every object.
    pub(super) fn clear(&mut self) {
        *self = Self { assumed: mem::take(&mut self.assumed), ..Self::default() };
    }
}
