//! Whose token is reviewed next, and what is remembered of those that were.
//!
//! Pure: times are passed in.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::time::Instant;

use super::table::site;

/// How long it is believed that somebody may.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long somebody who might goes before those who are not known.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);
/// How long it is believed that somebody may not.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most answers of each sort that are remembered.
const MOST_REMEMBERED: usize = 1_000;
/// Most questions at once.
const MOST_ASKED: usize = 4;
/// Most of them about tokens that are not known.
const MOST_OF_STRANGERS: usize = 3;
/// How often a token may be reviewed that is not known: one in this time, and this many after a pause.
const EVERY: Duration = Duration::from_millis(100);
const BURST: u32 = 20;

/// A token, and the path that it is to open.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) token: String,
    pub(super) path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// The token is nobody's.
    Unknown,
    /// It is that user's, who may not.
    Forbidden(String),
}

/// How it stands with somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The answer has come meanwhile.
    Answered(Verdict),
    Asks,
    /// Until something moves, or until then.
    Waits(Option<Instant>),
}

/// Who waits, who asks, and what is remembered.
pub(super) struct Desk {
    /// Until when; kept longer than it is believed.
    allowed: HashMap<Question, Instant>,
    /// By digest: made-up tokens are not worth their bytes.
    refused: HashMap<u64, (Verdict, Instant)>,
    hasher: RandomState,
    waiting: Vec<Waiting>,
    /// Who asks, and whether that one is known.
    asking: HashMap<u64, bool>,
    next: u64,
    /// When each had the last turn, by address and by connection.
    sites: HashMap<Option<IpAddr>, u64>,
    peers: HashMap<Option<SocketAddr>, u64>,
    turns: u64,
    /// From when on the strangers' budget is whole again.
    whole: Instant,
}

struct Waiting {
    id: u64,
    peer: Option<SocketAddr>,
    known: bool,
}

impl Desk {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            allowed: HashMap::new(),
            refused: HashMap::new(),
            hasher: RandomState::new(),
            waiting: Vec::new(),
            asking: HashMap::new(),
            next: 0,
            sites: HashMap::new(),
            peers: HashMap::new(),
            turns: 0,
            whole: now,
        }
    }

    pub(super) fn remembered(&self, question: &Question, now: Instant) -> Option<Verdict> {
        if self.allowed.get(question).is_some_and(|until| *until > now) {
            return Some(Verdict::Allowed);
        }
        let of = |digest| self.refused.get(&digest).filter(|(_, until)| *until > now);
        let found = of(self.digest(question)).or_else(|| of(self.digest_of_token(question)));
        found.map(|(verdict, _)| verdict.clone())
    }

    pub(super) fn remember(&mut self, question: &Question, verdict: Verdict, now: Instant) {
        let digest = match verdict {
            Verdict::Allowed => {
                make_room(&mut self.allowed, |until| *until);
                self.allowed.retain(|_, until| *until + KNOWN_FOR > now);
                self.allowed.insert(question.clone(), now + ALLOWED_FOR);
                return;
            }
            // Whatever it is to open.
            Verdict::Unknown => self.digest_of_token(question),
            Verdict::Forbidden(_) => self.digest(question),
        };
        self.allowed.remove(question);
        make_room(&mut self.refused, |(_, until)| *until);
        self.refused.insert(digest, (verdict, now + REFUSED_FOR));
    }

    /// Takes somebody in who waits from now on; returns a number for that.
    pub(super) fn enter(&mut self, question: &Question, peer: Option<SocketAddr>) -> u64 {
        let (id, known) = (self.next, self.allowed.contains_key(question));
        self.next += 1;
        self.waiting.push(Waiting { id, peer, known });
        id
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.waiting.retain(|one| one.id != id);
        self.asking.remove(&id);
    }

    /// Says whether it is somebody's turn.
    pub(super) fn turn(&mut self, id: u64, question: &Question, now: Instant) -> Turn {
        if let Some(verdict) = self.remembered(question, now) {
            return Turn::Answered(verdict);
        }
        // Who was seen before goes first; then the address, and of that the connection, that waits the longest.
        let next = self.waiting.iter().min_by_key(|one| {
            let site = self.sites.get(&one.peer.map(|peer| site(peer.ip()))).copied().unwrap_or_default();
            let peer = self.peers.get(&one.peer).copied().unwrap_or_default();
            (!one.known, site, peer, one.id)
        });
        let Some(&Waiting { peer, known, .. }) = next.filter(|next| next.id == id) else {
            return Turn::Waits(None);
        };
        let strangers = self.asking.values().filter(|known| !**known).count();
        if self.asking.len() >= MOST_ASKED || (!known && strangers >= MOST_OF_STRANGERS) {
            return Turn::Waits(None);
        }
        if !known {
            let earliest = self.whole.checked_sub(EVERY * (BURST - 1)).unwrap_or(now);
            if earliest > now {
                return Turn::Waits(Some(earliest));
            }
            self.whole = self.whole.max(now) + EVERY;
        }
        self.waiting.retain(|one| one.id != id);
        self.asking.insert(id, known);
        self.note_turn(peer);
        Turn::Asks
    }

    fn note_turn(&mut self, peer: Option<SocketAddr>) {
        if self.peers.len() >= MOST_REMEMBERED {
            (self.peers, self.sites) = Default::default();
        }
        self.turns += 1;
        self.peers.insert(peer, self.turns);
        self.sites.insert(peer.map(|peer| site(peer.ip())), self.turns);
    }

    fn digest(&self, question: &Question) -> u64 {
        self.hasher.hash_one(question)
    }

    fn digest_of_token(&self, question: &Question) -> u64 {
        self.hasher.hash_one(&question.token)
    }
}

/// Drops the entry that expires first when the table is full.
fn make_room<K: Clone + Eq + Hash, V>(remembered: &mut HashMap<K, V>, until: impl Fn(&V) -> Instant) {
    if remembered.len() < MOST_REMEMBERED {
        return;
    }
    let first = remembered.iter().min_by_key(|(_, value)| until(value)).map(|(key, _)| key.clone());
    first.map(|key| remembered.remove(&key));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(token: &str) -> Question {
        Question { token: token.to_owned(), path: "/metrics".to_owned() }
    }

    // P17
    #[tokio::test]
    async fn refusals_are_bounded_and_push_no_good_answer_out() {
        let now = Instant::now();
        let mut desk = Desk::new(now);
        desk.remember(&question("good"), Verdict::Allowed, now);
        for number in 0..10 * MOST_REMEMBERED {
            desk.remember(&question(&number.to_string()), Verdict::Unknown, now);
        }
        assert_eq!(desk.refused.len(), MOST_REMEMBERED);
        assert_eq!(desk.remembered(&question("good"), now), Some(Verdict::Allowed));
    }

    // P17
    #[tokio::test]
    async fn addresses_take_turns_and_of_one_address_its_connections() {
        let now = Instant::now();
        let mut desk = Desk::new(now);
        let peer = |host, port| Some(SocketAddr::from(([10, 0, 0, host], port)));
        let mut waiting = Vec::new();
        for (at, peer) in
            [peer(1, 1), peer(1, 1), peer(1, 1), peer(1, 2), peer(2, 1), peer(2, 1)].into_iter().enumerate()
        {
            let question = question(&at.to_string());
            waiting.push((at, desk.enter(&question, peer), question));
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let next =
                waiting.iter().position(|(_, id, question)| desk.turn(*id, question, now) == Turn::Asks);
            let (at, id, _) = waiting.remove(next.expect("it is somebody's turn"));
            desk.leave(id);
            order.push(at);
        }
        assert_eq!(order, [0, 4, 3, 5, 1, 2]);
    }
}
