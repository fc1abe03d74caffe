//! Which connections there are, and which one goes where another is one too many.
//!
//! Pure: times are passed in.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a connection is left in peace until it has had an answer.
///
/// In a flood of others a probe would be closed before it is read. So many as there may be are taken in each such time.
const PEACE: Duration = Duration::from_millis(25);

/// The open connections, up to a limit.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    open: HashMap<u64, Connection>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    from: IpAddr,
    /// When it was opened, or last had a request.
    active: Instant,
    /// Until when it is left in peace; `None` once it had an answer.
    peace: Option<Instant>,
    id: u64,
    closed: CancellationToken,
}

impl Connection {
    /// How long it is left in peace still.
    fn peace_left(&self, now: Instant) -> Duration {
        self.peace.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

impl Table {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), open: HashMap::new(), next: 0 }
    }

    /// Says how long to wait before another connection is taken in; `None`: not at all.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.open.len() < self.most {
            return None;
        }
        let left = self.of_the_most().map(|one| one.peace_left(now)).min();
        left.filter(|left| !left.is_zero())
    }

    /// Adds a connection; beyond the limit, cancels another one. Returns its number, and the token that cancels it.
    pub(super) fn enter(&mut self, peer: IpAddr, now: Instant) -> (u64, CancellationToken) {
        if self.open.len() >= self.most {
            self.close_one(now);
        }
        let (id, closed) = (self.next, CancellationToken::new());
        self.next += 1;
        let (from, peace, closes) = (site(peer), Some(now + PEACE), closed.clone());
        self.open.insert(id, Connection { from, active: now, peace, id, closed });
        (id, closes)
    }

    /// Tells a connection to go: of the address that holds the most, the one whose last request is the longest ago.
    pub(super) fn close_one(&mut self, now: Instant) {
        let goes = self.of_the_most().min_by_key(|one| (!one.peace_left(now).is_zero(), one.active, one.id));
        let goes = goes.map(|one| one.id);
        if let Some(gone) = goes.and_then(|id| self.open.remove(&id)) {
            gone.closed.cancel();
        }
    }

    /// Shows the connections of the address that holds the most, or of each of several.
    fn of_the_most(&self) -> impl Iterator<Item = &Connection> {
        let mut held = HashMap::<IpAddr, usize>::new();
        self.open.values().for_each(|one| *held.entry(one.from).or_default() += 1);
        let most = held.values().max().copied();
        self.open.values().filter(move |one| held.get(&one.from).copied() == most)
    }

    /// Takes note of a request.
    pub(super) fn asked(&mut self, id: u64, now: Instant) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.active = now;
        }
    }

    /// Takes note of an answer.
    pub(super) fn answered(&mut self, id: u64) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.peace = None;
        }
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.open.remove(&id);
    }
}

/// Who holds an IPv6 address holds all that differ in their second half.
pub(super) fn site(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn closed(tokens: &[(u64, CancellationToken)]) -> Vec<u64> {
        tokens.iter().filter(|(_, token)| token.is_cancelled()).map(|(id, _)| *id).collect()
    }

    // P2
    #[test]
    fn of_too_many_the_one_goes_that_asked_for_nothing_the_longest() {
        let (mut table, begun) = (Table::new(3), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut tokens: Vec<_> = (0..3).map(|n| table.enter(address("10.0.0.1"), at(n))).collect();
        table.asked(0, at(4));
        tokens.push(table.enter(address("10.0.0.1"), at(5)));
        assert_eq!(closed(&tokens), [1]);
        table.leave(2);
        tokens.push(table.enter(address("10.0.0.1"), at(6)));
        assert_eq!(closed(&tokens), [1], "one had gone");
        assert_eq!(table.open.len(), 3);
    }

    // P2
    #[test]
    fn whoever_holds_the_most_makes_room_for_others() {
        let (mut table, now) = (Table::new(4), Instant::now());
        let mut tokens = vec![table.enter(address("10.0.0.9"), now)];
        for from in ["2001:db8::1", "2001:db8::2", "2001:db8::3"] {
            tokens.push(table.enter(address(from), now + Duration::from_secs(9)));
        }
        tokens.push(table.enter(address("::ffff:10.0.0.9"), now + Duration::from_secs(10)));
        assert_eq!(closed(&tokens), [1], "three of one network are more than two of an address");
    }

    // P2
    #[test]
    fn who_comes_in_a_flood_has_time_to_ask_and_none_to_waste() {
        let (mut table, begun) = (Table::new(2), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        let from = address("10.0.0.1");
        assert_eq!(table.wait(at(0)), None);
        let mut tokens = vec![table.enter(from, at(0)), table.enter(from, at(10))];
        assert_eq!(table.wait(at(15)), Some(Duration::from_millis(10)), "both may be about to ask");
        assert_eq!(table.wait(at(25)), None, "the first has had its time");
        table.asked(1, at(12));
        table.answered(1);
        assert_eq!(table.wait(at(15)), None, "the second has had its answer");
        tokens.push(table.enter(from, at(15)));
        assert_eq!(closed(&tokens), [1], "the first is left in peace");
    }

    #[test]
    fn a_table_of_none_holds_one() {
        let (mut table, now) = (Table::new(0), Instant::now());
        let (_, first) = table.enter(address("10.0.0.1"), now);
        let (_, second) = table.enter(address("10.0.0.2"), now);
        assert!(first.is_cancelled() && !second.is_cancelled());
    }
}
