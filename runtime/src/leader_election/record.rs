//! What a Lease says of its holder, read from the object and written into it.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::{Value, json};

/// How long a Lease that was released is said to last: what client-go writes.
const RELEASED: Duration = Duration::from_secs(1);

/// The part of a Lease that candidates go by; everything else in it stays as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Nobody where it is empty.
    pub(super) holder: String,
    pub(super) duration: Option<Duration>,
    /// Times stand as they were written: they are compared, never believed.
    pub(super) acquired: Value,
    pub(super) renewed: Value,
    pub(super) transitions: i64,
}

impl Record {
    /// Whether its holder gave it up, as opposed to one whose holder somebody else removed.
    pub(super) fn is_released(&self) -> bool {
        self.holder.is_empty() && self.duration.is_some_and(|duration| duration <= RELEASED)
    }

    /// Whether it looks like a renewal of another record: the holder is the same, and `renewTime` has moved on.
    pub(super) fn renews(&self, before: &Self) -> bool {
        let time = |renewed: &Value| renewed.as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let moved = match (time(&self.renewed), time(&before.renewed)) {
            (Some(renewed), Some(before)) => renewed > before,
            (Some(_), None) => true,
            (None, _) => false,
        };
        moved && !self.holder.is_empty() && self.holder == before.holder
    }

    /// What a holder leaves behind that has stopped.
    pub(super) fn released(&self, now: i64) -> Self {
        let now = micro_time(now);
        Self {
            holder: String::new(),
            duration: Some(RELEASED),
            acquired: now.clone(),
            renewed: now,
            transitions: self.transitions,
        }
    }

    fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        Self {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            duration: spec["leaseDurationSeconds"].as_u64().map(Duration::from_secs),
            acquired: spec["acquireTime"].clone(),
            renewed: spec["renewTime"].clone(),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or_default(),
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
    }
}

/// A Lease as the server has it, or had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) record: Record,
    /// The whole object, for the next write of it, but for `managedFields`: a write without them leaves them to the
    /// server.
    pub(super) object: Value,
}

impl Stored {
    pub(super) fn of(mut object: Value) -> Self {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Self { record: Record::of(&object), object }
    }

    /// Makes the object that a write of a record sends: it is refused if the Lease is not this one any more.
    pub(super) fn with(&self, record: &Record) -> Value {
        let mut object = self.object.clone();
        record.write_into(&mut object);
        object
    }

    /// Whether both are the same Lease at the same version, with the same content.
    pub(super) fn is(&self, other: &Self) -> bool {
        let version = |stored: &Self| {
            let meta = &stored.object["metadata"];
            (meta["uid"].clone(), meta["resourceVersion"].clone())
        };
        self.record == other.record && version(self) == version(other)
    }
}

/// Makes a Lease that is not there yet.
pub(super) fn new_lease(namespace: &str, name: &str, record: &Record) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
    });
    record.write_into(&mut lease);
    lease
}

/// Writes a time as a Lease holds it, with six decimals.
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
    fn a_write_keeps_what_candidates_do_not_go_by() {
        let stored = Stored::of(lease());
        assert_eq!(stored.record.duration, Some(Duration::from_secs(15)));
        let written = stored.with(&Record { holder: "two".into(), ..stored.record.clone() });
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
        let stored = Stored::of(managed);
        assert_eq!(stored.with(&stored.record)["metadata"], lease()["metadata"]);
    }

    // L4
    #[test]
    fn a_lease_is_released_only_if_its_holder_says_so() {
        let held = Stored::of(lease()).record;
        assert!(!held.is_released());
        assert!(held.released(0).is_released());
        let struck_out = Record { holder: String::new(), ..held.clone() };
        assert!(!struck_out.is_released(), "a stranger's edit leaves the duration");
        assert!(!Record::default().is_released(), "one that was never held");
        assert_eq!(held.released(0).transitions, 3);
    }

    #[test]
    fn times_have_six_decimals() {
        assert_eq!(micro_time(1_767_323_045_000_000), "2026-01-02T03:04:05.000000Z");
        assert_eq!(micro_time(1_767_323_045_000_006), "2026-01-02T03:04:05.000006Z");
    }
}
