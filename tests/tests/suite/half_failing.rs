//! A leader gets its work done although the server fails half of all requests and cuts most watches.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Mutex,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, api::DeleteParams, client::Body};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use watchkeeper::{
    Running,
    leader_election::{LeaderElection, Leadership},
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Website, deployment_for, website};

const SITES: usize = 12;
/// How long it goes on, and how often somebody changes something.
const LASTS: Duration = Duration::from_secs(600);
const EVERY: Duration = Duration::from_secs(12);
/// How soon each change is to be reconciled.
const WITHIN: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Puts a bad network between a client and its server: half of all requests fail, and most watches are cut.
fn failing(client: kube::Client, seed: u64) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let random = Arc::new(Mutex::new(SmallRng::seed_from_u64(seed)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        let (fate, cut) = {
            let mut random = random.lock().unwrap();
            let cut = random.random_bool(0.9).then(|| random.random_range(0..10_000));
            (random.random_range(0..10), cut.map(Duration::from_millis))
        };
        async move { carry(client, request, fate, cut).await }
    });
    kube::Client::new(service, namespace)
}

async fn carry(
    client: kube::Client,
    request: Request<Body>,
    fate: u32,
    cut: Option<Duration>,
) -> Result<Answer, BoxError> {
    sleep(Duration::from_millis(5)).await;
    match fate {
        0 => Ok(refused(StatusCode::INTERNAL_SERVER_ERROR)),
        1 => Ok(refused(StatusCode::TOO_MANY_REQUESTS)),
        2 => Err("connection refused".into()),
        3 => Err("connection reset by peer".into()),
        4 => {
            drop(client.send(request).await);
            Err("connection closed before an answer came".into())
        }
        _ => {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let answer = client.send(request).await?;
            let until = cut.filter(|_| watches).map(|after| Instant::now() + after);
            Ok(answer.map(|body| cut_at(body, until)))
        }
    }
}

fn refused(code: StatusCode) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "by chance",
        "reason": "InternalError", "code": code.as_u16()});
    let body = Full::from(status.to_string()).map_err(BoxError::from).boxed_unsync();
    let answer = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    answer.header(header::RETRY_AFTER, "1").body(body).unwrap()
}

/// Passes frames until a moment, and breaks off then.
fn cut_at(body: Body, until: Option<Instant>) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = stream::unfold(Some(BodyStream::new(body)), move |frames| async move {
        let mut frames = frames?;
        let over = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            frame = frames.next() => {
                let frame: Result<Frame<Bytes>, BoxError> = frame?.map_err(BoxError::from);
                Some((frame, Some(frames)))
            }
            () = over => Some((Err("connection reset by peer".into()), None)),
        }
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

/// Who works, as those know it who do: the replica, and when it began to lead.
type Term = (usize, Instant);

/// What was written, in order.
#[derive(Default)]
struct Written {
    last: Option<Term>,
    over: HashSet<Term>,
    /// Writes of a term after another had begun.
    overlaps: Vec<Term>,
}

impl Written {
    fn take(&mut self, term: Term) {
        if self.over.contains(&term) {
            self.overlaps.push(term);
        }
        if self.last != Some(term) {
            self.over.extend(self.last.replace(term));
        }
    }
}

struct Sites {
    who: usize,
    leadership: Leadership,
    written: Arc<Mutex<Written>>,
}

impl Reconciler<Website> for Sites {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let term = (self.who, self.leadership.since());
        cx.apply(deployment_for(&site)).await?;
        self.written.lock().unwrap().take(term);
        Ok(Action::await_change())
    }
}

fn start(server: &ApiServer, who: usize, seed: u64, written: &Arc<Mutex<Written>>) -> Running {
    let client = failing(server.client(), seed);
    let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
    let election = LeaderElection::new("sites").namespace("shop").identity(format!("replica-{who}"));
    let manager = Manager::with_config(client, config).leader_election(election);
    let leadership = manager.leadership().unwrap();
    let sites = Sites { who, leadership, written: written.clone() };
    manager.controller(Controller::new(sites).namespace("shop").owns::<Deployment>()).spawn()
}

/// Changes sites and deletes their Deployments; tells how long each change took to be reconciled.
async fn play(seed: u64, replicas: usize) -> Vec<Duration> {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let mut random = SmallRng::seed_from_u64(seed);
    let written: Arc<Mutex<Written>> = Arc::default();
    let began = Instant::now();
    let mut open = BTreeMap::new();
    for at in 0..SITES {
        let name = format!("site-{at}");
        let site = website(&name);
        open.insert(name.clone(), (began, site.spec.replicas));
        server
            .create(&Website {
                metadata: kube::core::ObjectMeta { namespace: Some("shop".into()), ..site.metadata.clone() },
                ..site
            })
            .await;
    }
    let running: Vec<_> =
        (0..replicas).map(|who| start(&server, who, seed * 10 + who as u64, &written)).collect();
    let deployments: Api<Deployment> = Api::namespaced(server.client(), "shop");
    let (mut took, mut next) = (Vec::new(), began + EVERY);
    while began.elapsed() < LASTS || !open.is_empty() {
        sleep(Duration::from_millis(500)).await;
        let mut done = Vec::new();
        for (name, (since, wanted)) in &open {
            let has = server.get::<Deployment>(&format!("shop/{name}")).await;
            let has = has.and_then(|deployment| deployment.spec).and_then(|spec| spec.replicas);
            match has == Some(*wanted) {
                true => done.push((name.clone(), since.elapsed())),
                false => assert!(
                    since.elapsed() <= WITHIN,
                    "seed {seed}, {replicas} replicas: {name}, changed {:?} after the start, is not reconciled \
                     after {WITHIN:?}",
                    *since - began
                ),
            }
        }
        for (name, after) in done {
            open.remove(&name);
            took.push(after);
        }
        if Instant::now() >= next && began.elapsed() < LASTS {
            next += EVERY;
            let name = format!("site-{}", random.random_range(0..SITES));
            if open.contains_key(&name) {
                continue;
            }
            let site = server.get::<Website>(&format!("shop/{name}")).await.unwrap();
            let wanted = if random.random_bool(0.5) {
                deployments.delete(&name, &DeleteParams::default()).await.unwrap();
                site.spec.replicas
            } else {
                let wanted = site.spec.replicas + 1;
                let change = json!({"spec": {"replicas": wanted}});
                server.patch_merge::<Website>(&format!("shop/{name}"), change).await;
                wanted
            };
            open.insert(name, (Instant::now(), wanted));
        }
    }
    for running in running {
        // Whether the Lease can be given up is a matter of chance.
        let _ = running.stop().await;
    }
    let overlaps = &written.lock().unwrap().overlaps;
    assert!(overlaps.is_empty(), "seed {seed}, {replicas} replicas: two at work: {overlaps:?}");
    took
}

/// A few, unless the environment asks for more: each plays ten minutes twice.
fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("WATCHKEEPER_FAILING_SEEDS").ok().and_then(|many| many.parse().ok());
    0..many.unwrap_or(4)
}

// L20
#[test]
fn every_change_is_reconciled_within_a_minute_though_half_of_all_requests_fail() {
    for replicas in [1, 2] {
        let mut took = Vec::new();
        for seed in seeds() {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().start_paused(true).build().unwrap();
            took.extend(runtime.block_on(play(seed, replicas)));
        }
        took.sort();
        let median = took[took.len() / 2];
        assert!(took.len() > 40 * seeds().end as usize, "{} changes prove little", took.len());
        assert!(median < Duration::from_secs(15), "{replicas} replicas: the median is {median:?}");
        eprintln!("{replicas} replicas: {} changes, median {median:?}, worst {:?}", took.len(), took.last());
    }
}
