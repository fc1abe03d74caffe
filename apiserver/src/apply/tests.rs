//! Ownership as the real server recorded it.
