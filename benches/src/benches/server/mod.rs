//! `server`: the embedded API server, in memory and over a socket, compared with a real kube-apiserver.

mod load;
mod place;
mod watchers;

use http::Request;
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::kube::client::Body;

use self::load::{CONFIG_MAPS, Kind, definition};
use crate::{
    contest::{Contest, Extent, Settings},
    job::{Bench, Job, Mode, Question, Side},
    kit::{self, Spent},
    measure::{Measures, held_megabytes, measures},
    report::{
        Column,
        Goal::{AtLeast, AtMost},
        Goals,
    },
};

pub(crate) use load::{many, whole};
pub(crate) use place::{Place, serve};

/// How many requests are under way at once over a socket.
const AT_ONCE: usize = 32;
const SOCKET: &str = "over a socket";

/// How much is measured.
struct Sizes {
    objects: usize,
    watchers: usize,
    a_second: usize,
    seconds: u64,
}

impl Sizes {
    fn of(extent: Extent) -> Self {
        match extent {
            Extent::Small => Self { objects: 300, watchers: 20, a_second: 50, seconds: 1 },
            _ => Self { objects: 10_000, watchers: 1_000, a_second: 1_000, seconds: 5 },
        }
    }
}

/// Runs all parts.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let sizes = Sizes::of(settings.extent);
    start(&sizes, settings)?;
    requests(&sizes, settings)?;
    list(&sizes, settings)?;
    watchers(&sizes, settings, Question::Apart, sizes.watchers)?;
    // All events to a thousand are a million a second: a tenth of that as well, which more servers reach.
    watchers(&sizes, settings, Question::Together, sizes.watchers / 10)?;
    watchers(&sizes, settings, Question::Together, sizes.watchers)?;
    memory(&sizes, settings)?;
    costs(&sizes, settings)
}

fn job(sizes: &Sizes, question: Question) -> Job {
    Job::new(Bench::Server, sizes.objects).question(question)
}

/// The server in memory, over a socket, and the real one over its own.
fn all(contest: Contest, goals: &Goals, settings: &Settings) -> anyhow::Result<()> {
    contest
        .variant(Side::ApiServer, Mode::Default, "in memory", goals)
        .variant(Side::ApiServer, Mode::Socket, SOCKET, &[])
        .variant(Side::KubeApiserver, Mode::Socket, SOCKET, &[])
        .run(settings)
        .map(drop)
}

fn start(sizes: &Sizes, settings: &Settings) -> anyhow::Result<()> {
    let contest = Contest::new("server: from nothing to answers", job(sizes, Question::Start))
        .column(Column::cost("start", "start, ms"))
        .column(Column::cost("first", "start and a first object, ms"));
    all(contest, &[("start", AtMost(20.0)), ("first", AtMost(20.0))], settings)
}

fn requests(sizes: &Sizes, settings: &Settings) -> anyhow::Result<()> {
    let contest = Contest::new(
        "server: config maps of 1 KB; one thread in memory, 32 at once elsewhere",
        job(sizes, Question::Main),
    )
    .column(Column::rate("creates", "creates a second"))
    .column(Column::rate("gets", "gets a second"))
    .column(Column::cost("create", "CPU of a create, client included, µs"))
    .column(Column::cost("get", "CPU of a get, client included, µs"));
    all(contest, &[("creates", AtLeast(20_000.0)), ("gets", AtLeast(100_000.0))], settings)
}

fn list(sizes: &Sizes, settings: &Settings) -> anyhow::Result<()> {
    let contest = Contest::new(format!("server: a list of {}", sizes.objects), job(sizes, Question::List))
        .column(Column::cost("first", "the first whole list, ms"))
        .column(Column::cost("whole", "a whole list, ms"))
        .column(Column::cost("pages", "in pages of 500, ms"))
        .column(Column::cost("labels", "a hundredth, by a label, ms"));
    all(contest, &[], settings)
}

fn watchers(sizes: &Sizes, settings: &Settings, question: Question, users: usize) -> anyhow::Result<()> {
    let (a_second, seconds) = (sizes.a_second, sizes.seconds);
    let hear = if question == Question::Apart { "each its own namespace" } else { "each all of them" };
    let job = job(sizes, question).users(users).events(a_second * seconds as usize).seconds(seconds);
    let title = format!("server: {users} watchers, {a_second} writes a second for {seconds} s, {hear}");
    let contest = Contest::new(title, job)
        .column(Column::rate("rate", "writes a second").awaited())
        .column(Column::cost("p50", "from write to event, median, ms").awaited())
        .column(Column::cost("p99", "from write to event, p99, ms").awaited())
        .column(Column::cost("cpu", "CPU of clients and server in memory, an event, µs").awaited())
        .column(Column::rate("delivered", "events delivered a second, up to the last").awaited())
        .column(Column::fact("came", "events that came in time, %").awaited())
        .column(Column::fact("watches", "watches open at the end").awaited());
    let goals = [("p99", AtMost(5.0)), ("rate", AtLeast(a_second as f64 * 0.95)), ("came", AtLeast(100.0))];
    all(contest, &goals, settings)
}

fn memory(sizes: &Sizes, settings: &Settings) -> anyhow::Result<()> {
    Contest::new(
        format!("server: {} objects in memory", sizes.objects * 2),
        Job::new(Bench::Server, sizes.objects * 2).question(Question::Memory),
    )
    .column(Column::fact("json", "JSON of an object, bytes"))
    .column(Column::cost("held", "held for an object, times its JSON"))
    .variant(Side::ApiServer, Mode::Default, "config maps", &[("held", AtMost(2.0))])
    .variant(Side::ApiServer, Mode::Custom, "custom objects", &[("held", AtMost(2.0))])
    .run(settings)
    .map(drop)
}

fn costs(sizes: &Sizes, settings: &Settings) -> anyhow::Result<()> {
    let side = Side::ApiServer;
    Contest::new(
        "server: what protobuf, custom kinds, CEL and RBAC cost, in memory, one thread",
        job(sizes, Question::Main),
    )
    .column(Column::rate("creates", "creates a second"))
    .column(Column::rate("gets", "gets a second"))
    .column(Column::cost("create", "CPU of a create, µs"))
    .column(Column::cost("get", "CPU of a get, µs"))
    .variant(side, Mode::Default, "JSON", &[])
    .variant(side, Mode::Protobuf, "protobuf", &[])
    .variant(side, Mode::Roles, "JSON under RBAC", &[])
    .variant(side, Mode::Custom, "custom objects", &[])
    .variant(side, Mode::Rules, "custom objects with three rules in CEL", &[])
    .run(settings)
    .map(drop)
}

/// Returns whether a job is measured on one thread.
pub(crate) fn is_on_one_thread(job: &Job) -> bool {
    job.bench == Bench::Server && job.mode != Mode::Socket
}

/// Measures one server.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    if !matches!(job.side, Side::ApiServer | Side::KubeApiserver) {
        return kit::no_part(job.side);
    }
    let began = Instant::now();
    let crd = matches!(job.mode, Mode::Custom | Mode::Rules).then(|| definition(job.mode));
    let (place, took) = Place::start(job, crd).await?;
    let kind = Kind::of(job.mode);
    match job.question {
        Question::Start => {
            kind.create(&place.client, 0).await?;
            let first = began.elapsed().as_secs_f64();
            Ok(measures([("start", took * 1e3), ("first", first * 1e3)]))
        }
        Question::List => lists(&place, job.objects).await,
        Question::Apart | Question::Together => watchers::measure(&place.client, job).await,
        Question::Memory => held(&place, kind, job.objects).await,
        _ => writes_and_reads(&place, kind, job).await,
    }
}

async fn writes_and_reads(place: &Place, kind: Kind, job: &Job) -> anyhow::Result<Measures> {
    let at_once = if job.mode == Mode::Socket { AT_ONCE } else { 1 };
    if let (Mode::Roles, Some(server)) = (job.mode, &place.memory) {
        let admin = server.client();
        bind(&admin).await?;
    }
    let client = &place.client;
    let (writes, reads) = if job.mode == Mode::Socket {
        (job.objects / 2, job.objects)
    } else {
        (job.objects * 2, job.objects * 10)
    };
    let spent = Spent::from_now();
    many(writes, at_once, |at| kind.create(client, at)).await?;
    let (creates, create) = (writes as f64 / spent.wall(), spent.cpu() * 1e6 / writes as f64);
    let spent = Spent::from_now();
    many(reads, at_once, |at| kind.get(client, at % writes)).await?;
    let (gets, get) = (reads as f64 / spent.wall(), spent.cpu() * 1e6 / reads as f64);
    Ok(measures([("creates", creates), ("gets", gets), ("create", create), ("get", get)]))
}

/// Returns a user a role, as most have one.
async fn bind(admin: &watchkeeper::kube::Client) -> anyhow::Result<()> {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "worker"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "worker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "worker"},
        "subjects": [{"kind": "User", "name": "worker", "apiGroup": "rbac.authorization.k8s.io"}]});
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{plural}");
        let request = Request::post(path).header("content-type", "application/json");
        whole(admin, request.body(Body::from(object.to_string().into_bytes()))?).await?;
    }
    Ok(())
}

async fn lists(place: &Place, objects: usize) -> anyhow::Result<Measures> {
    let (client, kind) = (&place.client, Kind::of(Mode::Default));
    many(objects, AT_ONCE, |at| kind.create(client, at)).await?;
    let list = async |query: &str| -> anyhow::Result<(bytes::Bytes, f64)> {
        let began = Instant::now();
        let request = Request::get(format!("{CONFIG_MAPS}?{query}"));
        let body = whole(client, request.body(Body::empty())?).await?;
        Ok((body, began.elapsed().as_secs_f64() * 1e3))
    };
    let (_, first) = list("").await?;
    let (body, whole) = list("").await?;
    let items = memchr::memmem::find_iter(&body, br#""uid":"#).count();
    anyhow::ensure!(items >= objects, "{items} of {objects} are listed");
    let (mut pages, mut go_on) = (0.0, String::new());
    loop {
        let (body, took) = list(&format!("limit=500{go_on}")).await?;
        pages += took;
        let Some(at) = memchr::memmem::find(&body, br#""continue":""#) else { break };
        let token = body[at + 12..].split(|byte| *byte == b'"').next().unwrap_or_default();
        go_on = format!("&continue={}", String::from_utf8_lossy(token));
    }
    let (_, labels) = list("labelSelector=shard%3Ds07").await?;
    Ok(measures([("first", first), ("whole", whole), ("pages", pages), ("labels", labels)]))
}

async fn held(place: &Place, kind: Kind, objects: usize) -> anyhow::Result<Measures> {
    // What a server holds whatever it stores, such as the last requests, is there before.
    many(objects, 1, |at| kind.create(&place.client, at)).await?;
    let (before, mut json) = (held_megabytes(), 0);
    for at in objects..objects * 2 {
        json += kind.create(&place.client, at).await?.len();
    }
    let held = (held_megabytes() - before) * 1e6;
    Ok(measures([("json", json as f64 / objects as f64), ("held", held / json as f64)]))
}
