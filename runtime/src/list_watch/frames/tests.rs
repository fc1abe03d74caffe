//! Frames and their events.
