//! Works on the slots of this replica, if replicas share the work.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use tokio::time::sleep;

use super::core::ControllerCore;
use crate::{
    informer::TermStart,
    keys::Reason,
    object::Scope,
    shards::{ShownVersions, Slot, SlotUser, Slots, Turn},
};

/// How soon those that leave are looked at again while runs of theirs go on; then after twice as long each time.
const LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_millis(250);
/// How long caches keep what left. More may leave, and what left may come back.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// Returns the slots that a controller's keys are in, if it keeps to some namespaces and each of them is in one slot.
pub(super) fn own_slots(core: &ControllerCore, slots: Option<&Slots>) -> Option<BTreeSet<Slot>> {
    let (of, namespaces) = (slots?.of(), &core.settings.namespaces);
    let are_few = !of.by_name && !namespaces.is_empty() && core.base.kind.scope == Scope::Namespaced;
    are_few.then(|| namespaces.iter().map(|namespace| of.slot_of(Some(namespace), "")).collect())
}

/// Lets in the keys of slots that come, and gives up slots that leave once nothing of theirs runs.
pub(super) async fn follow(core: &Arc<ControllerCore>, slots: Option<&Slots>) -> Infallible {
    let Some(slots) = slots else { return pending().await };
    let own = own_slots(core, Some(slots));
    let (of, says_what_is_shown) = (core.clone(), own.is_none());
    // At a stop, caches may not show yet what the last runs wrote. A Lease has no room for the caches of each namespace: who
    // takes their slots asks the server.
    let shown = move || match says_what_is_shown {
        true => of.waits.shown(of.keys.written()),
        false => ShownVersions::new(),
    };
    let user = slots.join(own.clone(), shown);
    tokio::select! {
        biased;
        never = let_go(core, slots, &user) => never,
        never = let_in(core, slots, own.is_some()) => never,
        never = share_rates(core, slots, own) => never,
        never = forget_others(core, slots) => never,
    }
}

async fn let_go(core: &ControllerCore, slots: &Slots, user: &SlotUser) -> Infallible {
    let (mut changes, mut look) = (slots.changes(), LOOK);
    loop {
        let leaving = core.keys.table().dismiss();
        let mut is_busy = false;
        for (slot, turn, is_idle) in leaving {
            match is_idle {
                true => user.drained(slot, turn),
                false => is_busy = true,
            }
        }
        if is_busy {
            // Each look visits all keys in the table.
            sleep(look).await;
            look = (look * 2).min(LONGEST_LOOK);
        } else {
            look = LOOK;
            // The sender is part of `slots`.
            let _ = changes.changed().await;
        }
    }
}

/// Keeps to this replica's part of the controller's rates.
async fn share_rates(core: &ControllerCore, slots: &Slots, own: Option<BTreeSet<Slot>>) -> Infallible {
    let own: Vec<Slot> = own.map_or_else(|| (0..slots.of().slots).collect(), Vec::from_iter);
    let mut changes = slots.changes();
    loop {
        let kept = slots.kept();
        let part = own.iter().filter(|slot| kept[usize::from(**slot)]).count();
        core.keys.queue.share_rates(u32::try_from(part).unwrap_or(1), u32::try_from(own.len()).unwrap_or(1));
        let _ = changes.changed().await;
    }
}

/// Has caches that hold this replica's part alone forget what left it, some time after it left.
async fn forget_others(core: &ControllerCore, slots: &Slots) -> Infallible {
    let (mut changes, kept) = (slots.changes(), || slots.kept());
    let mut before = kept();
    loop {
        let _ = changes.changed().await;
        let now = kept();
        let has_left = before.iter().zip(&now).any(|(before, now)| *before && !*now);
        before = now;
        if has_left {
            sleep(FORGET_AFTER).await;
            before = kept();
            core.waits.forget_others().await;
        }
    }
}

/// Lets in slots that come. If each namespace is in one slot, none waits for the caches of another's.
async fn let_in(core: &ControllerCore, slots: &Slots, is_restricted: bool) -> Infallible {
    let (mut changes, mut busy, mut arriving) = (slots.changes(), BTreeSet::new(), FuturesUnordered::new());
    loop {
        // Others may have written until the slots came.
        let (gained, start) = (core.keys.table().slots.gained(), Arc::new(TermStart::default()));
        let mut groups = BTreeMap::<Option<Slot>, Vec<(Slot, Turn)>>::new();
        for (slot, turn) in gained {
            groups.entry(is_restricted.then_some(slot)).or_default().push((slot, turn));
        }
        for (group, came) in groups {
            if busy.insert(group) {
                let start = start.clone();
                arriving.push(async move {
                    let_in_once_fresh(core, slots, group, came, &start).await;
                    group
                });
            }
        }
        tokio::select! {
            biased;
            Some(group) = arriving.next() => {
                busy.remove(&group);
            }
            // The sender is part of `slots`.
            _ = changes.changed() => {}
        }
    }
}

/// Lets in slots once the caches are fresh enough: those of one slot alone, or all.
async fn let_in_once_fresh(
    core: &ControllerCore,
    slots: &Slots,
    only: Option<Slot>,
    came: Vec<(Slot, Turn)>,
    start: &TermStart,
) {
    let is_in = |namespace: &str| only.is_none_or(|slot| slots.of().slot_of(Some(namespace), "") == slot);
    // What is said of a cache may be what another controller saw of it.
    match slots.shown_before(came.iter().map(|(slot, _)| *slot)).filter(|_| only.is_none()) {
        Some(shown) => core.waits.as_fresh_as(&shown, start).await,
        None => core.waits.fresh(start, is_in).await,
    }
    // Others may have applied more to the children meanwhile. A child may be in another slot than its owner.
    core.base.writer.forget_applied();
    let admitted: Vec<Slot> = {
        let mut table = core.keys.table();
        let admitted = came.into_iter().filter(|(slot, turn)| table.slots.admit(*slot, *turn));
        admitted.map(|(slot, _)| slot).collect()
    };
    if admitted.is_empty() {
        return;
    }
    let (controller, count) = (&*core.settings.name, admitted.len());
    tracing::debug!(controller, ?admitted, "{controller} works on {count} more slots");
    let keys = core.objects.keys(None);
    let mut table = core.keys.table();
    let came = keys.into_iter().filter(|key| admitted.contains(&slots.slot(key)));
    came.for_each(|key| table.add(key, Reason::InitialList));
}
