//! Implements `Debug` and `Clone` for types that a derive would bind too tightly, or show too much of.

/// Implements `Debug` by named values: `impl_debug!([K: Object] Cache<K>, this => len: this.len())`.
macro_rules! impl_debug {
    ($([$($bounds:tt)*])? $name:ident $(<$($argument:tt),*>)? $(, $this:ident => $($field:ident: $value:expr),+)?) => {
        impl $(<$($bounds)*>)? ::std::fmt::Debug for $name $(<$($argument),*>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($name));
                $(let $this = self; $(shown.field(stringify!($field), &$value);)+)?
                shown.finish_non_exhaustive()
            }
        }
    };
}

/// Implements `Clone` field by field, whatever the arguments are: `impl_clone!([K: ?Sized] Cache<K>, shared)`.
macro_rules! impl_clone {
    ([$($bounds:tt)*] $name:ident<$($argument:tt),*>, $($field:tt),+) => {
        impl<$($bounds)*> Clone for $name<$($argument),*> {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone()),+ }
            }
        }
    };
}
