//! The formats of lists and watches.

use serde_json::Value;

use super::request::Request;

/// Format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Protobuf,
}

/// Media type of Kubernetes' protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Form {
    /// Number of forms.
    pub(super) const COUNT: usize = 2;

    /// The form in which a server answers a list or watch.
    pub(super) fn of(request: &Request, has_only_json: bool) -> Self {
        let accepts = request.kind.is_some() && request.accept.contains(PROTOBUF);
        if accepts && !has_only_json { Self::Protobuf } else { Self::Json }
    }

    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => PROTOBUF,
        }
    }

    /// An object or a list as the body of an answer.
    #[track_caller]
    pub(super) fn body(self, object: &Value) -> Vec<u8> {
        match self {
            Self::Json => format!("{object}\n").into_bytes(),
            Self::Protobuf => readable(test_messages::object(object)),
        }
    }

    /// An event of a watch. In JSON the type comes first, as kube-apiserver writes it: a client that
    /// gets the object first cannot read it before it knows the type, and has to keep it.
    #[track_caller]
    pub(super) fn event(self, event: &Value) -> Vec<u8> {
        match self {
            Self::Json => {
                format!("{{\"type\":{},\"object\":{}}}\n", event["type"], event["object"])
                    .into_bytes()
            }
            Self::Protobuf => test_messages::frame(&readable(test_messages::event(event))),
        }
    }

    /// An event that cannot be read.
    pub(super) fn garbage(self) -> Vec<u8> {
        match self {
            Self::Json => b"}garbage{\n".to_vec(),
            Self::Protobuf => test_messages::frame(b"}garbage{"),
        }
    }
}

#[track_caller]
fn readable(encoded: Result<Vec<u8>, String>) -> Vec<u8> {
    encoded.unwrap_or_else(|error| panic!("{error}: call answer_json for such objects"))
}
