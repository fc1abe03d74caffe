//! Checks that a program adds to those of its manager.

use super::{Manager, checks::Probe};

impl Manager {
    /// Adds a check to `/healthz`: while it fails, the process should be restarted.
    ///
    /// Each probe calls it, so it must return at once. A panic counts as a failure.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # fn checked(manager: Manager, disk_is_full: impl Fn() -> bool + Send + Sync + 'static) -> Manager {
    /// manager.health_check("disk", move || if disk_is_full() { Err("the disk is full") } else { Ok(()) })
    /// # }
    /// ```
    pub fn health_check<E>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.inspector.checks().add(Probe::Health, name.into(), check);
        self
    }

    /// Adds a check to `/readyz`: while it fails, the program does not do its work. In all else as
    /// [`health_check`](Self::health_check).
    pub fn readiness_check<E>(
        self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.inspector.checks().add(Probe::Readiness, name.into(), check);
        self
    }
}
