//! Pays the rate for each start of the user's code, at the moment of that start.

use crate::{
    object::ObjectKey,
    workqueue::{Token, Waited, WorkQueue},
};

/// The tokens of one run: it is handed out with one, and may start user code several times, or never.
pub(super) struct Starts<'a> {
    queue: &'a WorkQueue<ObjectKey>,
    token: Option<Token<ObjectKey>>,
}

/// Whether the user's code can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// Nothing has happened since this was asked.
    AtOnce,
    /// That took a wait: what was found before may not be so any more.
    AfterWait,
    /// The controller stops: nothing starts any more.
    Never,
}

impl<'a> Starts<'a> {
    pub(super) fn new(queue: &'a WorkQueue<ObjectKey>, token: Token<ObjectKey>) -> Self {
        Self { queue, token: Some(token) }
    }

    /// Gives the token back, before something that takes time: others can start meanwhile.
    pub(super) fn give_back(&mut self) {
        self.token = None;
    }

    /// Waits for a token, if there is none at hand.
    pub(super) async fn ready(&mut self) -> Ready {
        if self.token.is_some() {
            return Ready::AtOnce;
        }
        let Some((token, waited)) = Box::pin(self.queue.claim()).await else { return Ready::Never };
        self.token = Some(token);
        match waited {
            Waited::No => Ready::AtOnce,
            Waited::Yes => Ready::AfterWait,
        }
    }

    /// Pays: the user's code starts now.
    pub(super) fn pay(&mut self) {
        if let Some(token) = self.token.take() {
            token.pay();
        }
    }
}
