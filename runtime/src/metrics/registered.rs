//! Registers metrics where they are made.

use std::hash::Hash;

use prometheus_client::{
    metrics::family::Family,
    registry::{Metric, Registry},
};

/// Registers a new metric, and returns it.
pub(super) fn added<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a new family of metrics that a function makes, and returns it.
pub(super) fn family<L: Clone + Hash + Eq, M>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    new: fn() -> M,
) -> Family<L, M, fn() -> M>
where
    Family<L, M, fn() -> M>: Metric,
{
    let family = Family::new_with_constructor(new);
    registry.register(name, help, family.clone());
    family
}

/// Declares metrics that differ by a label: the families, and the metrics of one value of the label.
///
/// Each line is a field of both: `field: Type = "name_in_scrapes", "help";`. A histogram also names its constructor.
macro_rules! labelled_metrics {
    (
        $(#[$of_all:meta])* $families:ident by $labels:ident;
        $(#[$of_one:meta])* $metrics:ident {
            $($field:ident: $metric:ty = $name:literal, $help:literal $(, $new:expr)?;)+
        }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Debug)]
        pub(crate) struct $families {
            $($field: Family<$labels, $metric, fn() -> $metric>,)+
        }

        $(#[$of_one])*
        #[derive(Clone, Debug)]
        pub(crate) struct $metrics {
            $(pub(crate) $field: $metric,)+
        }

        impl $families {
            pub(super) fn register(registry: &mut Registry) -> Self {
                Self { $($field: family(registry, $name, $help, labelled_metrics!(@new $metric $(, $new)?)),)+ }
            }

            /// Returns the metrics of one value of the label. From then on they are in each scrape.
            fn labelled(&self, labels: &$labels) -> $metrics {
                $metrics { $($field: self.$field.get_or_create_owned(labels),)+ }
            }

            /// Takes them out of scrapes.
            #[allow(dead_code, reason = "not everything that is labelled leaves")]
            fn forget(&self, labels: &$labels) {
                $(self.$field.remove(labels);)+
            }
        }
    };
    (@new $metric:ty) => { <$metric>::default };
    (@new $metric:ty, $new:expr) => { $new };
}
pub(super) use labelled_metrics;
