//! Trials of operators: ten that are wrong in a classical way, the project's own, and patterns of kube's users.

mod boards;
mod bugs;
mod oracle;
mod ours;
mod patterns;
mod replays;
mod replicas;
mod upgrades;
mod usage;
mod webhooks;
