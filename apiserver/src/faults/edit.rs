//! Edits: distortions at work on one answer.

use std::collections::VecDeque;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::distort::{Distort, Distortion, Garble, Mark};
use crate::watch::{EventType, Frame};

/// A distortion of one answer, with its memory and the events that it holds back.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(super) rule: u64,
    script: String,
    distortion: Distortion,
    concerned: u32,
    acted: u32,
    dice: SmallRng,
    /// The last changes, for sending them again.
    recent: VecDeque<Frame>,
    /// Delayed events.
    held: Vec<Frame>,
    due: Option<Instant>,
}

impl Edit {
    /// Plants a distortion; `nth` tells the answers of one rule apart.
    pub(super) fn new(distortion: Distortion, rule: u64, nth: u64, script: String) -> Self {
        let dice = SmallRng::seed_from_u64(distortion.seed.wrapping_add(nth << 32));
        Self {
            rule,
            script,
            distortion,
            concerned: 0,
            acted: 0,
            dice,
            recent: VecDeque::new(),
            held: Vec::new(),
            due: None,
        }
    }

    /// Returns the moment at which it lets go by itself.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the script when it has just acted for the first time.
    fn first(&self, before: u32) -> Option<String> {
        (before == 0 && self.acted > 0).then(|| self.script.clone())
    }

    /// Takes an event, gives those that are sent; the script when it acts for the first time.
    pub(super) fn apply(&mut self, frame: Frame, out: &mut VecDeque<Frame>) -> Option<String> {
        let before = self.acted;
        let picked = self.distortion.events.hold(&frame) && self.picks();
        match self.distortion.what {
            Distort::Skip if picked => {}
            Distort::Replay(n) => self.replay(frame, n, picked, out),
            Distort::Reorder => self.reorder(frame, picked, out),
            Distort::Coalesce(window) => {
                if picked && self.due.is_none() {
                    self.due = Some(Instant::now() + window);
                }
                self.gather(frame, out);
            }
            Distort::Garble(how) if picked => out.push_back(garbled(frame, how)),
            Distort::EndMark(mark) if picked => out.push_back(marked(frame, mark)),
            Distort::Skip | Distort::Garble(_) | Distort::EndMark(_) => out.push_back(frame),
        }
        self.first(before)
    }

    /// Makes an item of a list unreadable, if its turn has come.
    pub(super) fn apply_to_item(&mut self, item: &mut Value) -> Option<String> {
        let Distort::Garble(how) = self.distortion.what else { return None };
        let before = self.acted;
        if self.picks() {
            garble(item, how);
        }
        self.first(before)
    }

    fn picks(&mut self) -> bool {
        self.concerned += 1;
        let Distortion { after, limit, chance, .. } = self.distortion;
        let open = self.concerned > after && limit.is_none_or(|limit| self.acted < limit);
        let picked = open && chance.is_none_or(|p| self.dice.random_bool(p));
        self.acted += u32::from(picked);
        picked
    }

    fn replay(&mut self, frame: Frame, n: u32, picked: bool, out: &mut VecDeque<Frame>) {
        if frame.event.is_change() {
            if self.recent.len() >= usize::try_from(n).unwrap_or(usize::MAX) {
                self.recent.pop_front();
            }
            self.recent.push_back(frame.clone());
        }
        out.push_back(frame);
        if picked {
            out.extend(self.recent.iter().cloned());
        }
    }

    fn reorder(&mut self, frame: Frame, picked: bool, out: &mut VecDeque<Frame>) {
        if !self.held.is_empty() && !frame.event.is_change() {
            self.flush(out);
            out.push_back(frame);
        } else if !self.held.is_empty() {
            out.push_back(frame);
            self.flush(out);
        } else if picked {
            self.held.push(frame);
        } else {
            out.push_back(frame);
        }
    }

    fn gather(&mut self, frame: Frame, out: &mut VecDeque<Frame>) {
        if frame.event == EventType::Error {
            self.flush(out);
        }
        if self.due.is_some() { self.held.push(frame) } else { out.push_back(frame) }
    }

    /// Releases delayed events.
    pub(super) fn flush(&mut self, out: &mut VecDeque<Frame>) {
        self.due = None;
        let held = std::mem::take(&mut self.held);
        if !matches!(self.distortion.what, Distort::Coalesce(_)) {
            out.extend(held);
            return;
        }
        let keys: Vec<Option<String>> = held.iter().map(key).collect();
        for (place, frame) in held.into_iter().enumerate() {
            let later = keys[place].is_some() && keys[place + 1..].contains(&keys[place]);
            if !(later && frame.event == EventType::Modified) {
                out.push_back(frame);
            }
        }
    }
}

/// Names the object of a change.
fn key(frame: &Frame) -> Option<String> {
    if !frame.event.is_change() {
        return None;
    }
    let event: Value = serde_json::from_slice(&frame.bytes).ok()?;
    let metadata = &event["object"]["metadata"];
    Some(format!("{}/{}", metadata["namespace"], metadata["name"]))
}

fn rewrite(frame: Frame, change: impl FnOnce(&mut Value)) -> Frame {
    let Ok(mut event) = serde_json::from_slice::<Value>(&frame.bytes) else { return frame };
    change(&mut event);
    Frame { bytes: Bytes::from(format!("{event}\n")), ..frame }
}

fn garbled(frame: Frame, how: Garble) -> Frame {
    match how {
        Garble::Json => {
            let bytes = Bytes::from([b"{".as_slice(), &frame.bytes].concat());
            Frame { bytes, ..frame }
        }
        Garble::Type => rewrite(frame, |event| event["type"] = "RENAMED".into()),
        Garble::Kind | Garble::Object | Garble::Identity => {
            rewrite(frame, |event| garble(&mut event["object"], how))
        }
    }
}

/// Stands for an item that is to be no JSON, until the list is written.
pub(super) const NO_JSON: &str = "this item is not JSON";

fn garble(object: &mut Value, how: Garble) {
    match how {
        Garble::Json => *object = NO_JSON.into(),
        Garble::Type => {}
        Garble::Kind => {
            object["apiVersion"] = "elsewhere.example/v1".into();
            object["kind"] = "Impostor".into();
        }
        // Labels are a map in every kind there is.
        Garble::Object => object["metadata"]["labels"] = "no map".into(),
        Garble::Identity => object["metadata"] = 7.into(),
    }
}

fn marked(frame: Frame, mark: Mark) -> Frame {
    rewrite(frame, |event| {
        // A table has the bookmark inside its only row.
        let row = event["object"].pointer("/rows/0/object").is_some();
        let object = if row { &mut event["object"]["rows"][0]["object"] } else { &mut event["object"] };
        match mark {
            Mark::False => {
                object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "false"});
            }
            Mark::Absent => {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("annotations");
                }
            }
        }
    })
}
