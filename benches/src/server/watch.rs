//! Open watches, and what happens on them.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::{
    net::TcpStream,
    sync::watch::Sender,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    Shared,
    bytes::{Prepared, expired},
    http::{self, Request, read_some, write_all},
};
use crate::{clock::wall_nanos, gadget::LISTED};

/// What open watches are to do; each one that is sent is done once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Script {
    /// Nothing.
    #[default]
    Silence,
    /// Send this many changes as fast as they are read.
    Flood { events: usize },
    /// Send this many changes at a rate, each with the time at which it was sent.
    Pace { events: usize, a_second: usize },
    /// End with 410; the next watch begins with one change of the last object.
    Expire,
}

/// Counts a watch as open while it lives.
struct Open<'a>(&'a Sender<usize>);

impl<'a> Open<'a> {
    fn new(count: &'a Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Serves a watch until it is ended, its time is over, or its client is gone.
///
/// A watch that begins behind changes goes on with those that follow, if they are sent at a rate.
pub(super) async fn serve(
    connection: &TcpStream,
    request: &Request,
    prepared: &Prepared,
    shared: &Shared,
) -> anyhow::Result<()> {
    let mut script = shared.script.subscribe();
    script.mark_unchanged();
    let over = Some(request.number("timeoutSeconds")).filter(|seconds| *seconds > 0);
    let over = over.map(|seconds| Instant::now() + Duration::from_secs(seconds as u64));
    http::begin_stream(connection).await?;
    if request.value("sendInitialEvents") == Some("true") {
        write_all(connection, prepared.initial_events()).await?;
    }
    if shared.expired.swap(false, Ordering::Relaxed) {
        write_all(connection, prepared.last_change(1, wall_nanos()).as_bytes()).await?;
    }
    let _open = Open::new(&shared.open_watches);
    let sent = (request.number("resourceVersion") as u64).saturating_sub(LISTED) as usize;
    let now = *script.borrow();
    if let Script::Pace { events, a_second } = now
        && (1..events).contains(&sent)
    {
        pace(connection, prepared, (sent + 1, events), a_second, over).await?;
    }
    let mut nothing = [0; 64];
    loop {
        tokio::select! {
            _ = read_some(connection, &mut nothing) => anyhow::bail!("the client is gone"),
            changed = script.changed() => changed?,
            () = until(over) => return Ok(http::end_stream(connection).await?),
        }
        let now = *script.borrow_and_update();
        match now {
            Script::Silence => {}
            Script::Flood { events } => write_all(connection, prepared.flood(events).as_bytes()).await?,
            Script::Pace { events, a_second } => {
                pace(connection, prepared, (1, events), a_second, over).await?;
            }
            Script::Expire => {
                shared.expired.store(true, Ordering::Relaxed);
                write_all(connection, expired().as_bytes()).await?;
                return Ok(http::end_stream(connection).await?);
            }
        }
    }
}

async fn until(over: Option<Instant>) {
    match over {
        Some(over) => sleep_until(over).await,
        None => std::future::pending().await,
    }
}

/// Sends changes, from the first to the last, or until the watch's time is over.
async fn pace(
    connection: &TcpStream,
    prepared: &Prepared,
    (first, last): (usize, usize),
    a_second: usize,
    over: Option<Instant>,
) -> anyhow::Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / a_second.max(1) as u32);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in first..=last {
        let due = ticks.tick().await;
        if over.is_some_and(|over| over <= due) {
            return Ok(());
        }
        let sent = wall_nanos();
        let event = match number == last {
            true => prepared.last_change(number, sent),
            false => prepared.change(number, sent),
        };
        write_all(connection, event.as_bytes()).await?;
    }
    Ok(())
}
