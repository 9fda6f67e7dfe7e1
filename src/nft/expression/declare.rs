//! The declaration of expressions: from a list of attributes to type, encoding and decoding.

use crate::fields::{DecodeError, Fields};
use crate::netlink::attr::Attrs;

/// Declares expressions. A macro, because encoding, decoding and type of each of these expressions
/// are one list of attributes; written out they would be three lists that must agree.
macro_rules! expressions {
    ($(
        $(#[$doc:meta])*
        $name:ident = $word:literal {
            $( $(#[$field_doc:meta])* $field:ident: $kind:ty = $number:literal, )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name {
                $( $(#[$field_doc])* pub $field: $kind, )*
            }

            impl $name {
                fn decode(attributes: &[u8]) -> Result<Self, DecodeError> {
                    let _fields = all_of(&[$($number),*], attributes)?;
                    Ok(Self {
                        $( $field: Field::read_if_present(_fields.find($number), $number)?, )*
                    })
                }

                fn encode(&self, _w: &mut AttrWriter<'_>) {
                    $( Field::write(&self.$field, $number, _w); )*
                }

                fn for_each_register(&mut self, _change: &mut dyn FnMut(&mut Reg)) {
                    $( Field::for_each_register(&mut self.$field, _change); )*
                }
            }

            impl From<$name> for Expression {
                fn from(expression: $name) -> Self {
                    Self::$name(expression)
                }
            }
        )*

        /// An expression of a rule of any program.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Expression {
            $( $(#[$doc])* $name($name), )*
            /// Disables tracking of the connection.
            Notrack,
            /// An expression that is not known here.
            Unknown(Unknown),
        }

        impl Expression {
            /// Returns the kernel's name of the expression.
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$name(_) => $word, )*
                    Self::Notrack => "notrack",
                    Self::Unknown(unknown) => &unknown.name,
                }
            }

            pub(crate) fn decode_data(
                name: &str,
                data: Option<&[u8]>,
            ) -> Result<Self, DecodeError> {
                match (name, data) {
                    ("notrack", None) => Ok(Self::Notrack),
                    $( ($word, Some(data)) => $name::decode(data).map(Self::$name), )*
                    _ => Err(DecodeError::Unknown("expression")),
                }
            }

            /// Calls `change` for each register that the expression names itself.
            pub(super) fn for_each_register(&mut self, change: &mut dyn FnMut(&mut Reg)) {
                match self {
                    $( Self::$name(known) => known.for_each_register(change), )*
                    Self::Notrack | Self::Unknown(_) => {}
                }
            }

            pub(super) fn encode_data(&self, w: &mut AttrWriter<'_>) {
                match self {
                    $( Self::$name(known) => w.nest(NFTA_EXPR_DATA, |w| known.encode(w)), )*
                    Self::Notrack => {}
                    Self::Unknown(unknown) => {
                        if let Some(data) = &unknown.data {
                            w.bytes(NFTA_EXPR_DATA, data);
                        }
                    }
                }
            }
        }
    };
}

pub(super) use expressions;

/// Returns the attributes of an expression, if all are of these types. Their order has no meaning:
/// Linux 6.12 lists those of `byteorder` in another one than 6.18.
pub(super) fn all_of<'a>(kinds: &[u16], attributes: &'a [u8]) -> Result<Fields<'a>, DecodeError> {
    for attr in Attrs::new(attributes) {
        if !kinds.contains(&attr?.kind) {
            return Err(DecodeError::Unknown("attribute"));
        }
    }
    Fields::read(Attrs::new(attributes))
}
