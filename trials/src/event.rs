//! What happens to the server, or to watches.

use std::collections::HashSet;
use std::time::Duration;

use http::{Method, Uri};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper_apiserver::inside::{self, RequestInfo, object};
use watchkeeper_apiserver::{Fault, Restart, Verb};

use crate::foreign::send;
use crate::harness::{Denied, Harness, Paging};
use crate::trouble::{AWAY, Event};
use crate::world::everything;

/// How long watches of a kind are late.
const LAG: Duration = Duration::from_secs(5);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Lets it happen; false where there is nothing to happen.
pub(crate) async fn happen(harness: &Harness, info: &RequestInfo, event: Event) -> bool {
    let (server, faults) = (&harness.server, harness.server.faults());
    let open = faults.open_streams() as u64;
    match event {
        Event::WatchesCut | Event::WatchesSilent if open == 0 => return false,
        Event::WatchesCut => drop(faults.on(Verb::Watch, "*").times(open).then(Fault::Cut)),
        Event::WatchesSilent => drop(faults.on(Verb::Watch, "*").times(open).then(Fault::Silence)),
        Event::WatchesLate => {
            let armed = faults.on(Verb::Watch, &info.resource).then(Fault::Silence);
            let in_flight = harness.clone().fly(LAG);
            tokio::spawn(async move {
                sleep(LAG).await;
                armed.disarm();
                drop(in_flight);
            });
        }
        Event::Restarts => server.restart(Restart::Keep),
        Event::ForgetsHistory => server.restart(Restart::ForgetHistory),
        Event::Restored => {
            let mut state = harness.state();
            let two_back = state.before_writes.len().saturating_sub(2);
            let Some(to) = state.before_writes.get(two_back).copied() else { return false };
            state.restored = true;
            drop(state);
            let is_restored = inside::restore(server, to);
            harness.others_write();
            return is_restored;
        }
        Event::ListsExpire => {
            let until = Instant::now() + AWAY;
            harness.state().paging = Some(Paging { until, expired: HashSet::new() });
            harness.wrong_for(AWAY);
            server.restart(Restart::ForgetHistory);
        }
        Event::DefinitionGone => return definition_goes(harness, info).await,
        Event::RightsTaken | Event::Partitioned => {
            let resource = (event == Event::RightsTaken).then(|| info.resource.clone());
            harness.state().denied = Some(Denied { resource, until: Instant::now() + AWAY });
            harness.wrong_for(AWAY);
            if event == Event::Partitioned && open > 0 {
                drop(faults.on(Verb::Watch, "*").times(open).then(Fault::Cut));
            }
        }
        Event::ClockAhead => server.clock().skew(jiff::SignedDuration::from_hours(1)),
    }
    true
}

/// Names the definition of a custom kind; `None` for built-in kinds.
pub(crate) fn definition(harness: &Harness, info: &RequestInfo) -> Option<String> {
    inside::is_custom(&harness.server, info).then(|| format!("{}.{}", info.resource, info.group))
}

/// Deletes a kind's definition; it comes back later, as its installer would write it.
async fn definition_goes(harness: &Harness, info: &RequestInfo) -> bool {
    let Some(name) = definition(harness, info) else { return false };
    let path = format!("{DEFINITIONS}/{name}");
    let all = everything(&harness.server);
    let Some(mut definition) = all.into_iter().find(|found| found.path == path).map(|found| found.value)
    else {
        return false;
    };
    inside::reset(&mut definition);
    object::remove(&mut definition, "finalizers");
    if send(harness, Method::DELETE, &path, "application/json", &json!({})).await.is_none() {
        return false;
    }
    harness.state().touched_foreign = true;
    let (harness, in_flight) = (harness.clone(), harness.clone().fly(AWAY));
    let old = RequestInfo::of(&Method::GET, &path.parse().unwrap_or_default());
    tokio::spawn(async move {
        sleep(AWAY).await;
        // The old one waits for the finalizers of its objects: for how long, the operator says, and the trial's
        // patience bounds it.
        while inside::peek(&harness.server, &old).is_some()
            || send(&harness, Method::POST, DEFINITIONS, "application/json", &definition).await.is_none()
        {
            sleep(Duration::from_secs(1)).await;
        }
        drop(in_flight);
    });
    true
}

/// The same request for pages of one, where it asks for pages at all.
pub(crate) fn with_small_pages(uri: &Uri) -> Uri {
    let small = |pair: &str| if pair.starts_with("limit=") { "limit=1".to_owned() } else { pair.to_owned() };
    let query: Vec<String> = uri.query().unwrap_or_default().split('&').map(small).collect();
    format!("{}?{}", uri.path(), query.join("&")).parse().unwrap_or_else(|_| uri.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_for_pages_gets_small_ones() {
        let small = |uri: &str| with_small_pages(&uri.parse().expect("it is a path")).to_string();
        assert_eq!(small("/api/v1/configmaps?limit=500&continue=x"), "/api/v1/configmaps?limit=1&continue=x");
        assert_eq!(small("/api/v1/configmaps?watch=1"), "/api/v1/configmaps?watch=1");
    }
}
