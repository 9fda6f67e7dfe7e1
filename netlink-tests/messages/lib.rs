//! Encodes API objects as Kubernetes' protobuf, from their JSON and `kubernetes.proto`.
//!
//! Kubernetes' own types wrote that file, and `tests` compares the bytes with those of its encoder.
//! Fields of the JSON that the file does not have are left out.

#![allow(clippy::expect_used)] // A wrong definition is a failed test.

mod schema;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use schema::{Field, Label, SCHEMA};

/// First bytes of an object.
const PREFIX: &[u8] = b"k8s\0";

/// Encodes an object, a list or a Status by its `kind` and `apiVersion`, in its envelope.
///
/// # Errors
/// The object has no kind of the definitions, or a field of the wrong type.
pub fn object(object: &Value) -> Result<Vec<u8>, String> {
    let kind = object["kind"].as_str().ok_or("no kind")?;
    let raw = message(kind, object)?;
    let types = json!({"apiVersion": object["apiVersion"], "kind": kind});
    let types = message("TypeMeta", &types)?;
    let mut envelope = PREFIX.to_vec();
    append_bytes(&mut envelope, number("Unknown", "typeMeta"), &types);
    append_bytes(&mut envelope, number("Unknown", "raw"), &raw);
    append_bytes(&mut envelope, number("Unknown", "contentEncoding"), b"");
    append_bytes(&mut envelope, number("Unknown", "contentType"), b"");
    Ok(envelope)
}

/// Encodes an event of a watch, `{"type": …, "object": …}`, without its length.
///
/// # Errors
/// See [`object`].
pub fn event(event: &Value) -> Result<Vec<u8>, String> {
    let mut raw = Vec::new();
    append_bytes(&mut raw, number("RawExtension", "raw"), &object(&event["object"])?);
    let change = event["type"].as_str().ok_or("no type")?;
    let mut encoded = Vec::new();
    append_bytes(&mut encoded, number("WatchEvent", "type"), change.as_bytes());
    append_bytes(&mut encoded, number("WatchEvent", "object"), &raw);
    Ok(encoded)
}

/// Puts the length before an event, as in the body of a watch.
pub fn frame(event: &[u8]) -> Vec<u8> {
    let length = u32::try_from(event.len()).expect("an event is shorter than 4 GiB");
    [&length.to_be_bytes(), event].concat()
}

/// Encodes a message of this name.
///
/// # Errors
/// The definitions have no such message, or a field has the wrong type.
pub fn message(name: &str, value: &Value) -> Result<Vec<u8>, String> {
    let fields = SCHEMA.get(name).ok_or_else(|| format!("no message {name}"))?;
    let mut out = Vec::new();
    for field in fields {
        let value = &value[&field.name];
        match field.label {
            Label::Required if value.is_null() => append_empty(&mut out, field)?,
            _ if value.is_null() => {}
            Label::Required | Label::Optional => append(&mut out, field, value)?,
            Label::Repeated => {
                let list = value.as_array().ok_or_else(|| wrong(field, value))?;
                list.iter().try_for_each(|value| append(&mut out, field, value))?;
            }
            Label::Map => {
                for (key, value) in value.as_object().ok_or_else(|| wrong(field, value))? {
                    let mut entry = Vec::new();
                    append_bytes(&mut entry, 1, key.as_bytes());
                    append(&mut entry, &Field { number: 2, ..field.clone() }, value)?;
                    append_bytes(&mut out, field.number, &entry);
                }
            }
        }
    }
    Ok(out)
}

/// Appends a field that the JSON does not have, as Go writes its zero value.
fn append_empty(out: &mut Vec<u8>, field: &Field) -> Result<(), String> {
    match &*field.kind {
        "int32" | "int64" | "bool" => append_number(out, field.number, 0),
        // Time has an encoder of its own, for which a zero time is an empty message.
        "string" | "Time" => append_bytes(out, field.number, b""),
        other => append_bytes(out, field.number, &message(other, &Value::Null)?),
    }
    Ok(())
}

fn append(out: &mut Vec<u8>, field: &Field, value: &Value) -> Result<(), String> {
    let wrong = || wrong(field, value);
    match &*field.kind {
        "string" => append_bytes(out, field.number, value.as_str().ok_or_else(wrong)?.as_bytes()),
        "bytes" => append_bytes(out, field.number, value.to_string().as_bytes()),
        "int32" | "int64" => append_number(out, field.number, value.as_i64().ok_or_else(wrong)?),
        "bool" => append_number(out, field.number, value.as_bool().ok_or_else(wrong)?.into()),
        other => append_bytes(out, field.number, &message(other, &written(other, value)?)?),
    }
    Ok(())
}

/// Returns the fields of a message that JSON writes in another form.
fn written(name: &str, value: &Value) -> Result<Value, String> {
    Ok(match (name, value) {
        ("Time", Value::String(text)) => {
            let time: Timestamp = text.parse().map_err(|error| format!("{text}: {error}"))?;
            json!({"seconds": time.as_second(), "nanos": time.subsec_nanosecond()})
        }
        ("IntOrString", Value::Number(number)) => json!({"type": 0, "intVal": number}),
        ("IntOrString", Value::String(text)) => json!({"type": 1, "strVal": text}),
        ("Quantity", Value::String(text)) => json!({"string": text}),
        ("FieldsV1", value) => json!({"Raw": value}),
        (_, Value::Object(_)) => value.clone(),
        (name, value) => return Err(format!("{name} is {value}")),
    })
}

fn wrong(field: &Field, value: &Value) -> String {
    format!("{}: {value} is no {}", field.name, field.kind)
}

fn number(message: &str, field: &str) -> u64 {
    let mut fields = SCHEMA[message].iter();
    fields.find(|it| it.name == field).expect("the definitions have the field").number
}

fn append_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    append_varint(out, number << 3 | 2);
    append_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn append_number(out: &mut Vec<u8>, number: u64, value: i64) {
    append_varint(out, number << 3);
    append_varint(out, value.cast_unsigned());
}

fn append_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        let [low, ..] = value.to_le_bytes();
        out.push(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    out.push(low);
}
