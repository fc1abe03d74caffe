//! Slots: which one a key belongs to.

use crate::object::ObjectKey;

/// A number below that of all slots.
pub(crate) type Slot = u16;

/// How keys are put into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotOf {
    /// Whether the objects of a namespace are spread over all slots.
    pub(crate) by_name: bool,
    pub(crate) slots: Slot,
}

impl SlotOf {
    /// Returns the slot of a key. That of a cluster-scoped object depends on its name.
    pub(crate) fn slot(self, key: &ObjectKey) -> Slot {
        self.slot_of(key.namespace(), key.name())
    }

    /// Returns the slot of an object by its namespace and its name.
    pub(crate) fn slot_of(self, namespace: Option<&str>, name: &str) -> Slot {
        let hash = match (namespace, self.by_name) {
            (Some(namespace), false) => hash(&[namespace.as_bytes()]),
            (Some(namespace), true) => hash(&[namespace.as_bytes(), b"/", name.as_bytes()]),
            (None, _) => hash(&[name.as_bytes()]),
        };
        Slot::try_from(hash % u64::from(self.slots)).unwrap_or_default()
    }

    /// Returns the slot of something that is named, such as a task.
    pub(crate) fn named(self, name: &str) -> Slot {
        self.slot_of(None, name)
    }
}

/// Hashes text: FNV-1a with 64 bits, then mixed, since its last bytes hardly change the highest bits.
///
/// All replicas must agree, whatever their build: a hasher of a library may change.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let folded = |hash: u64| hash ^ (hash >> 33);
    folded(folded(hash).wrapping_mul(0xff51_afd7_ed55_8ccd))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    // H1
    #[test]
    fn the_hash_is_the_same_in_every_build() {
        assert_eq!(
            [hash(&[]), hash(&[b"foo", b"bar"]), hash(&[b"foobar"])],
            [17_058_014_651_485_797_458, 7_572_466_921_087_745_109, 7_572_466_921_087_745_109]
        );
    }

    // H1
    #[test]
    fn a_namespace_is_in_one_slot_unless_keys_are_spread_by_name() {
        let keys: Vec<_> = (0..1_000).map(|at| ObjectKey::new("shop", format!("a-{at}"))).collect();
        let count =
            |of: SlotOf| keys.iter().map(|key| of.slot(key)).collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(count(SlotOf { by_name: false, slots: 64 }), 1);
        assert_eq!(count(SlotOf { by_name: true, slots: 64 }), 64);
        assert_eq!(count(SlotOf { by_name: true, slots: 1 }), 1);
    }

    // H1
    #[test]
    fn namespaces_are_spread_evenly() {
        let of = SlotOf { by_name: false, slots: 64 };
        for (many, slots) in [(6_400_usize, 64), (8, 5)] {
            let mut counts = BTreeMap::<Slot, usize>::new();
            for at in 0..many {
                *counts.entry(of.slot(&ObjectKey::new(format!("tenant-{at}"), "a"))).or_default() += 1;
            }
            assert!(counts.len() >= slots, "{counts:?}");
            assert!(counts.values().all(|count| *count < 2 * many.div_ceil(64) + 50), "{counts:?}");
        }
    }
}
