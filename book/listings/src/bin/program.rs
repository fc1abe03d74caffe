//! An operator's program: it keeps a ConfigMap for every notice.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

/// A notice on a board.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "board.example.dev", version = "v1", kind = "Notice", namespaced)]
struct NoticeSpec {
    text: String,
}

struct Notices;

impl Reconciler<Notice> for Notices {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        notice: Arc<Notice>,
        cx: &Context<Notice>,
    ) -> Result<Action, Self::Error> {
        let mut page = ConfigMap::default();
        page.metadata.name = Some(notice.name_any());
        page.data = Some([("text".to_owned(), notice.spec.text.clone())].into());
        cx.apply(page).await?;
        Ok(Action::await_change())
    }
}

fn main() -> std::process::ExitCode {
    watchkeeper::cli(("notices", env!("CARGO_PKG_VERSION")), |manager| {
        manager
            .kind::<Notice>() // `run` installs its CRD, `crd` prints it
            .leader_election("notices")
            .controller(Controller::new(Notices).owns::<ConfigMap>())
    })
}
