//! controller-rs on watchkeeper: documents that can be hidden.

#[cfg(test)]
#[path = "tried/first_step.rs"]
mod first_step;

use watchkeeper::prelude::*;

/// A text that can be hidden.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "kube.rs", version = "v1", kind = "Document", namespaced)]
#[kube(status = "DocumentStatus", shortname = "doc")]
struct DocumentSpec {
    title: String,
    hide: bool,
    content: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct DocumentStatus {
    hidden: bool,
}

/// Why a document can't be handled.
#[derive(Debug)]
enum Refused {
    Illegal,
    Write(watchkeeper::WriteError),
}

struct Documents;

impl Reconciler<Document> for Documents {
    type Error = Refused;

    async fn reconcile(
        &self,
        document: Arc<Document>,
        cx: &Context<Document>,
    ) -> Result<Action, Refused> {
        let (name, hidden) = (document.name_any(), document.spec.hide);
        let was_hidden = document.status.as_ref().is_some_and(|status| status.hidden);
        if hidden && !was_hidden {
            cx.event(Event::normal("HideRequested", format!("Hiding `{name}`")));
        }
        if name == "illegal" {
            return Err(Refused::Illegal);
        }
        cx.patch_status(&document, DocumentStatus { hidden }).await?;
        Ok(Action::requeue_after(Duration::from_secs(5 * 60)))
    }

    async fn cleanup(
        &self,
        document: Arc<Document>,
        cx: &Context<Document>,
    ) -> Result<Cleanup, Refused> {
        let note = format!("Delete `{}`", document.name_any());
        cx.event(Event::normal("DeleteRequested", note));
        Ok(Cleanup::Done)
    }

    // The document must change: waiting does not make it legal.
    fn is_terminal(error: &Refused) -> bool {
        matches!(error, Refused::Illegal)
    }
}

impl From<watchkeeper::WriteError> for Refused {
    fn from(error: watchkeeper::WriteError) -> Self {
        Self::Write(error)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Illegal => f.write_str("the document is illegal"),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Illegal => None,
            Self::Write(error) => Some(error),
        }
    }
}

fn controller() -> Controller<Document, Documents> {
    Controller::new(Documents).finalizer("documents.kube.rs/cleanup").records_events()
}

fn main() -> std::process::ExitCode {
    watchkeeper::cli(("documents", env!("CARGO_PKG_VERSION")), |manager| {
        manager.kind::<Document>().controller(controller())
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::events::v1::Event as Recorded;
    use watchkeeper::controller::Why;
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    fn document(name: &str, hide: bool) -> Document {
        let (title, content) = ("A title".to_owned(), "Some text".to_owned());
        Document::new(name, DocumentSpec { title, hide, content })
    }

    #[tokio::test(start_paused = true)]
    async fn a_document_is_hidden_and_goes() {
        let server = ApiServer::in_memory().crd::<Document>().namespace("home");
        let server = server.start().await;
        let _running = Manager::new(server.client()).controller(controller()).spawn();

        server.create(&document("samuel", true)).await;
        let is_hidden = |document: Option<&Document>| {
            let status = document.and_then(|document| document.status.as_ref());
            status.is_some_and(|status| status.hidden)
        };
        server.eventually::<Document>("home/samuel", is_hidden).await;
        server.delete::<Document>("home/samuel").await;
        server.eventually::<Document>("home/samuel", |gone| gone.is_none()).await;

        tokio::time::sleep(Duration::from_secs(5)).await;
        let events = kube::Api::<Recorded>::namespaced(server.client(), "home");
        let events = events.list(&Default::default()).await.expect("a list").items;
        let reasons: Vec<_> =
            events.iter().filter_map(|event| event.reason.as_deref()).collect();
        assert_eq!(reasons.len(), 2, "{reasons:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_illegal_document_waits_for_a_change() {
        let server = ApiServer::in_memory().crd::<Document>().namespace("home");
        let server = server.start().await;
        let running = Manager::new(server.client()).controller(controller()).spawn();
        server.create(&document("illegal", false)).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let report = running.why::<Document>(&ObjectKey::new("home", "illegal"));
        assert_eq!(report[0].why, Why::AwaitsChangeAfterFailure { failures: 1 });
    }
}
