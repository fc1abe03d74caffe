//! What waits for a handler, and how it folds.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::Instant;

use super::testing::{held, key, show_held};
use crate::informer::{
    backlog::{Backlog, Notification},
    change::{AddOrigin, Gone},
};

struct Case(Backlog<ConfigMap>);

impl Case {
    fn new() -> Self {
        Self(Backlog::new())
    }

    fn add(&mut self, text: &str) {
        self.push(text, Notification::Add(held(text), AddOrigin::Watch));
    }

    fn update(&mut self, old: &str, new: &str) {
        self.push(old, Notification::Update { old: held(old), new: held(new) });
    }

    fn delete(&mut self, text: &str) {
        self.push(text, Notification::Delete(Gone::Final(held(text))));
    }

    fn push(&mut self, text: &str, notification: Notification<ConfigMap>) {
        let name = text.split(['@', ':']).next().unwrap();
        self.0.push(&key(name), notification, Instant::now());
    }

    fn drained(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.0.pop())
            .map(|notification| match notification {
                Notification::Add(object, _) => format!("+{}", show_held(&object)),
                Notification::Update { old, new } => format!("~{}>{}", show_held(&old), show_held(&new)),
                Notification::Delete(Gone::Undecoded { key, uid, .. }) => {
                    format!("-{key}:{}", uid.unwrap())
                }
                Notification::Delete(gone) => format!("-{}", show_held(gone.held().unwrap())),
            })
            .collect()
    }
}

// I11
#[test]
fn what_waits_for_one_object_folds_to_one_notification() {
    let mut case = Case::new();
    case.add("a@1");
    case.update("b@1", "b@2");
    case.update("a@1", "a@3");
    case.update("b@2", "b@4");
    case.update("c@1", "c@5");
    case.delete("c@6");
    case.add("d@7");
    case.delete("d@8");
    assert_eq!(case.drained(), ["+a@3", "~b@1>b@4", "-c@6", "-d@8"]);
    assert_eq!(case.0.len(), 0);
    case.update("a@3", "a@9");
    assert_eq!(case.drained(), ["~a@3>a@9"], "what was taken is not folded into");
}

// I21
#[test]
fn a_delete_is_never_swallowed_and_a_successor_stays_apart() {
    let mut case = Case::new();
    case.update("a:one@1", "a:one@2");
    case.delete("a:one@3");
    case.add("a:two@4");
    case.update("a:two@4", "a:two@5");
    assert_eq!(case.drained(), ["-a:one@3", "+a:two@5"]);

    case.delete("a:one@3");
    case.add("a:two@4");
    case.delete("a:two@5");
    case.add("a:three@6");
    case.delete("a:three@7");
    assert_eq!(case.drained(), ["-a:one@3", "-a:two@5", "-a:three@7"]);
}

// I11
#[test]
fn an_object_that_comes_and_goes_under_one_uid_waits_at_most_twice() {
    let mut case = Case::new();
    for version in 0..100 {
        case.add(&format!("a@{version}"));
        case.delete(&format!("a@{version}"));
    }
    assert_eq!(case.0.len(), 1);
    case.add("a@100");
    assert_eq!(case.drained(), ["-a@99", "+a@100"]);
}

// I11
#[test]
fn past_ten_thousand_deletions_only_names_are_kept() {
    let mut case = Case::new();
    for n in 0..10_002 {
        case.delete(&format!("o{n}:u{n}@1"));
    }
    let drained = case.drained();
    assert_eq!((&*drained[9_999], &*drained[10_000]), ("-o9999:u9999@1", "-shop/o10000:u10000"));
    case.delete("a@1");
    assert_eq!(case.drained(), ["-a@1"], "once there is room again, states are kept again");
}

#[test]
fn the_initial_content_is_out_once_nothing_of_it_waits() {
    let mut case = Case::new();
    assert!(!case.0.initial_is_out(), "nothing was marked");
    case.add("a@1");
    case.0.mark_initial();
    case.add("b@2");
    assert!(!case.0.initial_is_out());
    case.update("a@1", "a@3");
    case.0.pop();
    assert!(case.0.initial_is_out());
}
