//! Tests of the queue.
