//! Failures by chance: a server that fails half of all requests, and cuts nearly every watch.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// The longest time that a list of some pages may take, from the moment when it is needed.
const BOUNDS: [(u32, u64); 2] = [(1, 40), (8, 75)];

/// The longest time that half of the lists may take.
const MEDIAN: Duration = Duration::from_secs(6);

/// A source whose requests fail at random, and what its lists took.
struct Flaky {
    rng: Mutex<SmallRng>,
    pages: u32,
    /// Since when a list is needed.
    needed: Mutex<Option<Instant>>,
    took: Mutex<Vec<Duration>>,
}

/// Notes when a list is taken.
struct Taker(Arc<Flaky>);

struct Asked(Arc<Flaky>);

impl Flaky {
    fn new(seed: u64, pages: u32) -> Arc<Self> {
        let rng = Mutex::new(SmallRng::seed_from_u64(seed));
        let (needed, took) = (Mutex::default(), Mutex::default());
        Arc::new(Self { rng, pages, needed, took })
    }

    fn chance(&self, of: f64) -> bool {
        self.rng.lock().unwrap().random_bool(of)
    }

    fn up_to(&self, seconds: f64) -> f64 {
        self.rng.lock().unwrap().random_range(0.0..seconds)
    }

    fn failure(&self) -> ListWatchError {
        match self.rng.lock().unwrap().random_range(0..5) {
            0 => answer(500, "InternalError"),
            1 => answer(503, ""),
            2 => ListWatchError::Status {
                status: Box::new(Status::failure("busy", "TooManyRequests").with_code(429)),
                retry_after: Some(Duration::from_secs(1)),
            },
            3 => ListWatchError::CutShort,
            _ => refused(),
        }
    }

    async fn request(&self) -> Result<(), ListWatchError> {
        sleep(Duration::from_millis(20)).await;
        if self.chance(0.5) { Err(self.failure()) } else { Ok(()) }
    }

    fn needs_a_list(&self) {
        self.needed.lock().unwrap().get_or_insert_with(Instant::now);
    }

    /// How long each list took, and how long one is under way that was not taken yet.
    fn took(&self) -> Vec<Duration> {
        let under_way = self.needed.lock().unwrap().map(|since| since.elapsed());
        self.took.lock().unwrap().iter().copied().chain(under_way).collect()
    }
}

impl ListerWatcher<ConfigMap> for Asked {
    async fn list(&self, options: &ListOptions) -> Page {
        self.0.needs_a_list();
        self.0.request().await?;
        let at: u32 = options.continue_token.as_deref().map_or(0, |token| token.parse().unwrap());
        if at > 0 && self.0.chance(0.01) {
            return Err(gone());
        }
        let next = at + 1;
        let text = format!("a{at}@5");
        match next < self.0.pages && options.limit.is_some() {
            true => page_before(&text, "5", &next.to_string()),
            false => page(&text, "5"),
        }
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        let streams = options.initial_events;
        if streams {
            self.0.needs_a_list();
        }
        self.0.request().await?;
        if !streams && self.0.chance(0.05) {
            self.0.needs_a_list();
            return Err(gone());
        }
        let mut acts = Vec::new();
        if streams {
            acts.extend([events("+a@5"), wait(self.0.up_to(2.0))]);
            // Most are cut before their end.
            if self.0.chance(0.2) {
                acts.push(events("!5"));
            }
        }
        acts.extend([wait(self.0.up_to(20.0)), Act::Fail(self.0.failure())]);
        Ok(Script::default().open(acts))
    }

    async fn latest_version(&self) -> Latest {
        self.0.request().await?;
        Ok(Some("5".into()))
    }
}

impl ReflectorStore<ConfigMap> for Taker {
    fn replace(&self, _: List<ConfigMap>) {
        let since = self.0.needed.lock().unwrap().take().expect("nobody asked for a list");
        self.0.took.lock().unwrap().push(since.elapsed());
    }

    fn apply(&self, _: Vec<StoreChange<ConfigMap>>) {}

    fn resync(&self) {}

    fn report(&self, _: FetchReport) {}
}

/// Fetches kinds of one server for ten minutes, each by a form of the first list and a number of pages.
///
/// Returns how long the lists of each took.
async fn ten_minutes(seed: u64, kinds: &[(FirstList, u32)]) -> Vec<(u32, Vec<Duration>)> {
    let (server, cancel) = (Server::default(), CancellationToken::new());
    let mut sources = Vec::new();
    for (number, (first_list, pages)) in kinds.iter().enumerate() {
        let seed = seed * 100 + number as u64;
        let source = Flaky::new(seed, *pages);
        source.needs_a_list();
        let config = ReflectorConfig {
            seed: Some(seed),
            first_list: *first_list,
            server: server.clone(),
            log: FailureLog::default(),
            ..ReflectorConfig::default()
        };
        let reflector = Reflector::new(Asked(source.clone()), Arc::new(Taker(source.clone())), config);
        tokio::spawn(reflector.run(cancel.clone()));
        sources.push(source);
    }
    sleep(Duration::from_secs(600)).await;
    cancel.cancel();
    sources.iter().map(|source| (source.pages, source.took())).collect()
}

// R53 R55
#[tokio::test(start_paused = true)]
async fn where_half_of_all_requests_fail_every_list_completes_in_bounded_time() {
    let together =
        [(FirstList::Streaming, 1), (FirstList::Streaming, 8), (FirstList::Paged, 8), (FirstList::Paged, 1)];
    let mut all = Vec::new();
    for seed in 0..8 {
        let mut sources = ten_minutes(seed, &together).await;
        // And kinds that no other helps.
        for kind in together {
            sources.extend(ten_minutes(seed + 50, &[kind]).await);
        }
        for (at, (pages, took)) in sources.into_iter().enumerate() {
            let bound = BOUNDS.iter().find(|(of, _)| *of == pages).unwrap().1;
            let longest = *took.iter().max().unwrap();
            assert!(longest < Duration::from_secs(bound), "seed {seed}, source {at}: {longest:?}");
            all.extend(took);
        }
    }
    all.sort_unstable();
    let median = all[all.len() / 2];
    assert!(median < MEDIAN, "half of the lists took {median:?} or more");
}

// R54
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_down_by_itself_backs_off_to_its_cap_whatever_others_do() {
    let server = Server::default();
    let of_server = |config: &mut ReflectorConfig| config.server = server.clone();
    let flapping = Plan::paged().configured(of_server).lists([page("a@1", "5")]);
    let flapping =
        flapping.watches((0..5_000).map(|_| opens([events("~5"), wait(0.1), Act::Fail(refused())])));
    let flapping = flapping.latest((0..5_000).map(|_| Ok(Some("5".into())))).start();
    for failure in [answer(503, ""), answer(500, "InternalError"), refused(), answer(429, "")] {
        let copy = || match &failure {
            ListWatchError::Status { status, .. } => ListWatchError::from_status((**status).clone()),
            _ => refused(),
        };
        let down = Plan::paged().configured(of_server).lists((0..1_000).map(|_| Err(copy()))).start();
        flapping.pass(600).await;
        let times = down.times();
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let from = |seconds: f64| times.iter().position(|at| *at - times[0] >= seconds).unwrap();
        assert!(gaps[..from(55.0)].iter().all(|gap| *gap < 2.5), "it may be chance at first: {gaps:?}");
        assert!(gaps[from(150.0)..].iter().all(|gap| *gap >= 30.0), "{:?}: {gaps:?}", copy());
        assert!(times.len() < 80, "{} requests in ten minutes", times.len());
        down.cancel.cancel();
    }
}

// R54
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_down_by_itself_is_like_others_again_after_a_success() {
    let server = Server::default();
    let watching =
        Plan::paged().lists([page("a@1", "5")]).configured(|config| config.server = server.clone());
    let _watching = watching.start();
    let down = Plan::paged()
        .configured(|config| config.server = server.clone())
        .lists((0..60).map(|_| Err(answer(503, ""))))
        .lists([page("a@1", "5")])
        .watches([opens([Act::Fail(gone())])])
        .lists((0..5).map(|_| Err(answer(503, ""))))
        .start();
    down.pass(3_600).await;
    let times = down.times();
    assert!(times[59] - times[58] >= 30.0, "{times:?}");
    let again = &times[62..];
    assert!(again.len() >= 5 && again.windows(2).all(|pair| pair[1] - pair[0] < 2.5), "{times:?}");
}

// R61
#[tokio::test(start_paused = true)]
async fn a_recovery_that_is_announced_while_an_attempt_hangs_is_not_lost() {
    let server = Server::default();
    let hangs = Plan::paged()
        .configured(|config| {
            config.server = server.clone();
            config.backoff = BackoffSchedule::custom(|failures| {
                Duration::from_secs(if failures == 0 { 2 } else { 3_600 })
            });
        })
        .watches([
            Answer::Refuses(refused()),
            Answer::RefusesLate(Duration::from_secs(30), ListWatchError::Deadline(Duration::from_secs(30))),
        ])
        .lists([page("a@1", "5")])
        .start();
    hangs.pass(10).await;
    let mut other = server.join();
    other.missed();
    other.got_through();
    hangs.pass(90).await;
    let calls = ["list limit=500", "watch rv=5", "latest", "watch rv=5", "latest", "watch rv=5"];
    assert_eq!(hangs.calls()[..6], calls);
    assert_eq!(hangs.times()[..6], [0.0, 0.0, 2.0, 2.0, 34.0, 34.0]);
}
