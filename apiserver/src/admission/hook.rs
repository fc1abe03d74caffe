//! Hooks: one webhook of a configuration, and whether it wants to be called.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::authorizer::authorizer;
use super::matching::{Matching, NoNamespace};
use super::request::{Asked, GROUP, Trial};
use crate::kinds::Served;
use crate::schema::evaluate_condition;
use crate::state::State;
use crate::store::{ResourceId, Stored};

/// The kind of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// They may change the object.
    Mutating,
    /// They may only refuse it.
    Validating,
}

impl Family {
    fn plural(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        }
    }
}

/// One webhook.
#[derive(Clone, Debug)]
pub(super) struct Hook {
    configuration: Arc<Stored>,
    index: usize,
}

/// Returns all webhooks of a family, by the names of their configurations.
pub(super) fn hooks(state: &State, family: Family) -> Vec<Hook> {
    let configurations = state.store.scan(&ResourceId::new(GROUP, family.plural()), "");
    let all = configurations.flat_map(|configuration| {
        let count = configuration.pinned()["webhooks"].as_array().map_or(0, Vec::len);
        (0..count).map(|index| Hook { configuration: configuration.clone(), index })
    });
    all.collect()
}

/// Returns whether there are webhooks of either family.
pub(super) fn are_there(state: &State, family: Family) -> bool {
    state.store.count(&ResourceId::new(GROUP, family.plural())) > 0
}

/// Why it is unknown whether a webhook must be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unclear {
    /// The namespace of the request is not there.
    NoNamespace,
    /// A condition could not be evaluated.
    Conditions(String),
}

impl From<NoNamespace> for Unclear {
    fn from(_: NoNamespace) -> Self {
        Self::NoNamespace
    }
}

impl Hook {
    fn value(&self) -> &Value {
        &self.configuration.pinned()["webhooks"][self.index]
    }

    fn text(&self, key: &str, default: &'static str) -> &str {
        self.value()[key].as_str().filter(|text| !text.is_empty()).unwrap_or(default)
    }

    pub(super) fn name(&self) -> &str {
        self.text("name", "")
    }

    /// Names it among all.
    pub(super) fn id(&self) -> String {
        format!("{}/{}/{}", self.configuration.key, self.name(), self.index)
    }

    pub(super) fn client(&self) -> &Value {
        &self.value()["clientConfig"]
    }

    pub(super) fn ignores_failures(&self) -> bool {
        self.text("failurePolicy", "Fail") == "Ignore"
    }

    pub(super) fn wants_to_be_asked_again(&self) -> bool {
        self.text("reinvocationPolicy", "Never") == "IfNeeded"
    }

    pub(super) fn timeout(&self) -> Duration {
        let seconds = self.value()["timeoutSeconds"].as_u64().unwrap_or(10);
        Duration::from_secs(seconds.clamp(1, 30))
    }

    /// Returns whether it may be called for a dry run.
    pub(super) fn takes(&self, trial: Trial) -> bool {
        trial == Trial::Real || matches!(self.text("sideEffects", "Unknown"), "None" | "NoneOnDryRun")
    }

    /// Returns the version of reviews that it takes and this server writes.
    pub(super) fn review_version(&self) -> Option<&str> {
        let versions = self.value()["admissionReviewVersions"].as_array()?;
        versions.iter().filter_map(Value::as_str).find(|version| matches!(*version, "v1" | "v1beta1"))
    }

    /// Returns the version that it accepts; `None` if it does not want to be called.
    ///
    /// # Errors
    /// It can't be decided.
    pub(super) fn wants(
        &self,
        state: &State,
        asked: &Asked,
        object: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, Unclear> {
        if asked.resource.group() == GROUP {
            return Ok(None);
        }
        let Some(version) = Matching::of_webhook(self.value()).matches(state, asked, object)? else {
            return Ok(None);
        };
        Ok(self.meets_conditions(state, asked, &version, object)?.then_some(version))
    }

    fn meets_conditions(
        &self,
        state: &State,
        asked: &Asked,
        version: &Served,
        object: Option<&Value>,
    ) -> Result<bool, Unclear> {
        let Some(conditions) = self.value()["matchConditions"].as_array().filter(|list| !list.is_empty())
        else {
            return Ok(true);
        };
        let mut request = asked.request(version, object);
        let mut take =
            |key: &str| request.as_object_mut().and_then(|map| map.remove(key)).unwrap_or_default();
        let (object, old) = (take("object"), take("oldObject"));
        let scope = [("object", &object), ("oldObject", &old), ("request", &request)];
        let mut errors = Vec::new();
        for condition in conditions {
            let expression = condition["expression"].as_str().unwrap_or_default();
            match evaluate_condition(expression, &scope, authorizer(asked, state)) {
                Ok(true) => {}
                // One that is false decides, whatever the others come to.
                Ok(false) => return Ok(false),
                Err(why) => errors.push(format!("expression '{expression}' resulted in error: {why}")),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.ignores_failures() => Ok(false),
            [one] => Err(Unclear::Conditions(one.clone())),
            many => Err(Unclear::Conditions(format!("[{}]", many.join(", ")))),
        }
    }
}
