//! apimachinery meta/v1 ObjectMeta as protobuf.

use super::super::metadata::{ObjectMeta, SliceMetadata};
use super::message::{MessageField, ReadMessage, messages};
use super::wire::{Fields, WireError};

messages! { 'a
    ObjectMeta {
        1 name,
        3 namespace,
        6 resource_version,
        8 creation_timestamp,
        9 deletion_timestamp,
        11 labels,
        12 annotations,
    }
    SliceMetadata<'a> {
        1 name,
        3 namespace,
        6 resource_version,
        11 labels,
        12 annotations,
    }
}
