//! What the how-to guides print: parts of operators, tried by tests.

#[cfg(test)]
mod alone;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod later;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod verbs;

fn main() {}
