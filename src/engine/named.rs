//! Enums whose values have names.

/// Declares an enum with the name of each value, as in settings, tables, labels and documents.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $enum:ident {
        $($(#[$doc:meta])* $value:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $enum {
            $($(#[$doc])* $value,)*
        }

        impl $enum {
            /// All values, in order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }
    };
}
