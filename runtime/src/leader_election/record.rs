//! The holder's record in a Lease, read from the object and written into it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::{Value, json};

use crate::object::ObjectKey;

/// The duration of a Lease that was released, as client-go writes it.
const RELEASED: Duration = Duration::from_secs(1);

/// The label of Leases in which replicas say something: the name of their group.
pub(super) const GROUP_LABEL: &str = "watchkeeper.dev/shards";
/// The annotation that holds what they say.
const NOTE_ANNOTATION: &str = "watchkeeper.dev/slots";

/// What a Lease says, as part of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoteRecord {
    pub(super) group: Arc<str>,
    pub(super) text: Arc<str>,
}

/// The part of a Lease that candidates use. The rest of the object stays as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// The name of the holder; empty if there is none.
    pub(super) holder: String,
    pub(super) duration: Option<Duration>,
    /// Times are kept as they were written. They are compared, never trusted.
    pub(super) acquired: Value,
    pub(super) renewed: Value,
    pub(super) transitions: i64,
    /// What the holder says besides; `None` leaves what is there.
    pub(super) note: Option<NoteRecord>,
}

impl LeaseRecord {
    /// Says whether the holder released it. If somebody else removed the holder, this is false.
    ///
    /// A release sets both times to the same one, as client-go's does. A manifest that is applied leaves them as they were.
    pub(super) fn is_released(&self) -> bool {
        self.holder.is_empty()
            && self.duration.is_some_and(|duration| duration <= RELEASED)
            && self.acquired == self.renewed
    }

    /// Says whether it looks like a renewal of another record: same holder, later `renewTime`.
    pub(super) fn renews(&self, before: &Self) -> bool {
        let time = |renewed: &Value| renewed.as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let moved = match (time(&self.renewed), time(&before.renewed)) {
            (Some(renewed), Some(before)) => renewed > before,
            (Some(_), None) => true,
            (None, _) => false,
        };
        moved && !self.holder.is_empty() && self.holder == before.holder
    }

    /// Returns the record of a Lease that its holder has released.
    pub(super) fn released(&self, now: i64) -> Self {
        let now = micro_time(now);
        Self {
            holder: String::new(),
            duration: Some(RELEASED),
            acquired: now.clone(),
            renewed: now,
            transitions: self.transitions,
            note: self.note.clone(),
        }
    }

    fn of(lease: &Value) -> Self {
        let (spec, meta) = (&lease["spec"], &lease["metadata"]);
        let text = |text: &Value| text.as_str().map(Arc::from);
        let group = text(&meta["labels"][GROUP_LABEL]);
        let said = text(&meta["annotations"][NOTE_ANNOTATION]);
        let note = (group.is_some() || said.is_some())
            .then(|| NoteRecord { group: group.unwrap_or_default(), text: said.unwrap_or_default() });
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            duration: spec["leaseDurationSeconds"].as_u64().map(Duration::from_secs),
            acquired: spec["acquireTime"].clone(),
            renewed: spec["renewTime"].clone(),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
            note,
        }
    }

    fn write_into(&self, lease: &mut Value) {
        if !lease["spec"].is_object() {
            lease["spec"] = json!({});
        }
        let spec = &mut lease["spec"];
        spec["holderIdentity"] = json!(self.holder);
        spec["leaseDurationSeconds"] = json!(self.duration.map(|duration| duration.as_secs()));
        spec["acquireTime"] = self.acquired.clone();
        spec["renewTime"] = self.renewed.clone();
        spec["leaseTransitions"] = json!(self.transitions);
        if let Some(NoteRecord { group, text }) = &self.note {
            for (part, name, value) in
                [("labels", GROUP_LABEL, group), ("annotations", NOTE_ANNOTATION, text)]
            {
                let part = &mut lease["metadata"][part];
                if !part.is_object() {
                    *part = json!({});
                }
                part[name] = json!(value);
            }
        }
    }
}

/// A Lease as it was read from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredLease {
    pub(super) record: LeaseRecord,
    /// The whole object, for the next write, without `managedFields`. A write without them leaves them to the server.
    pub(super) object: Value,
}

impl StoredLease {
    pub(super) fn of(mut object: Value) -> Self {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Self { record: LeaseRecord::of(&object), object }
    }

    /// Returns the object for a write of a record. The server refuses it if the Lease has changed.
    pub(super) fn with(&self, record: &LeaseRecord) -> Value {
        let mut object = self.object.clone();
        record.write_into(&mut object);
        object
    }

    /// Says whether both are the same Lease at the same version, with the same content.
    pub(super) fn is(&self, other: &Self) -> bool {
        let version = |stored: &Self| {
            let meta = &stored.object["metadata"];
            (meta["uid"].clone(), meta["resourceVersion"].clone())
        };
        self.record == other.record && version(self) == version(other)
    }
}

/// Makes a new Lease.
pub(super) fn new_lease(key: &ObjectKey, record: &LeaseRecord) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": key.namespace(), "name": key.name()},
    });
    record.write_into(&mut lease);
    lease
}

/// Reads a time of a Lease.
pub(super) fn micros(time: &str) -> Option<i64> {
    Some(time.parse::<Timestamp>().ok()?.as_microsecond())
}

/// Returns a time in the form of a Lease, with six decimals.
pub(super) fn micro_time(unix_micros: i64) -> Value {
    let time = Timestamp::from_microsecond(unix_micros).unwrap_or(Timestamp::MAX);
    json!(MicroTime(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease() -> Value {
        json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"team": "x"}},
            "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "strategy": "OldestEmulationVersion",
                     "acquireTime": "2026-01-02T03:04:05.000006Z", "renewTime": null, "leaseTransitions": 3},
        })
    }

    // L1
    #[test]
    fn a_write_keeps_the_fields_that_candidates_do_not_use() {
        let stored = StoredLease::of(lease());
        assert_eq!(stored.record.duration, Some(Duration::from_secs(15)));
        let written = stored.with(&LeaseRecord { holder: "two".into(), ..stored.record.clone() });
        assert_eq!(written["spec"]["holderIdentity"], "two");
        assert_eq!(written["spec"]["strategy"], "OldestEmulationVersion");
        assert_eq!(written["spec"]["acquireTime"], lease()["spec"]["acquireTime"]);
        assert_eq!(written["metadata"], lease()["metadata"]);
    }

    // L12
    #[test]
    fn a_write_leaves_the_managed_fields_to_the_server() {
        let mut managed = lease();
        managed["metadata"]["managedFields"] = json!([{"manager": "one", "operation": "Update"}]);
        let stored = StoredLease::of(managed);
        assert_eq!(stored.with(&stored.record)["metadata"], lease()["metadata"]);
    }

    // L4
    #[test]
    fn a_lease_is_released_only_if_its_holder_says_so() {
        let held = StoredLease::of(lease()).record;
        assert!(!held.is_released());
        assert!(held.released(0).is_released());
        let struck_out = LeaseRecord { holder: String::new(), ..held.clone() };
        assert!(!struck_out.is_released(), "an edit by somebody else keeps the duration");
        assert!(!LeaseRecord::default().is_released(), "a Lease that was never held");
        let reset = LeaseRecord { duration: Some(RELEASED), ..struck_out };
        assert!(!reset.is_released(), "an edit by somebody else keeps the times");
        assert_eq!(held.released(0).transitions, 3);
    }

    #[test]
    fn times_have_six_decimals() {
        assert_eq!(micro_time(1_767_323_045_000_000), "2026-01-02T03:04:05.000000Z");
        assert_eq!(micro_time(1_767_323_045_000_006), "2026-01-02T03:04:05.000006Z");
    }
}
