//! Errors of fields, in the server's words.

use std::fmt;

use serde_json::Value;

/// One violation of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The kind of violation.
    pub(crate) reason: FieldReason,
    /// The path of the field, such as `spec.ports[0].name`; `<nil>` if it has none.
    pub(crate) field: String,
    /// Explains it, such as `Required value`: a cause's message.
    pub(crate) message: String,
}

/// Classifies a violation as `details.causes[].reason` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldReason {
    /// A value must be given.
    Required,
    /// The value is malformed.
    Invalid,
    /// The value has another type.
    TypeInvalid,
    /// The value is not in the enumeration.
    NotSupported,
    /// The value is a duplicate.
    Duplicate,
    /// The value is well formed, but not allowed here.
    Forbidden,
    /// The string is too long.
    TooLong,
    /// The list is too long.
    TooMany,
}

impl FieldReason {
    /// Names the reason as a Status does.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FieldReason::Required => "FieldValueRequired",
            FieldReason::Invalid => "FieldValueInvalid",
            FieldReason::TypeInvalid => "FieldValueTypeInvalid",
            FieldReason::NotSupported => "FieldValueNotSupported",
            FieldReason::Duplicate => "FieldValueDuplicate",
            FieldReason::Forbidden => "FieldValueForbidden",
            FieldReason::TooLong => "FieldValueTooLong",
            FieldReason::TooMany => "FieldValueTooMany",
        }
    }
}

impl FieldError {
    /// Reports an absent value; `detail` may be empty.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> FieldError {
        let message =
            if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        FieldError { reason: FieldReason::Required, field: field.into(), message }
    }

    /// Reports a malformed value.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> FieldError {
        let message = format!("Invalid value: {value}: {detail}");
        FieldError { reason: FieldReason::Invalid, field: field.into(), message }
    }

    /// Reports a value of the wrong type; shows only the type's name.
    pub(crate) fn type_invalid(field: impl Into<String>, found: &str, detail: &str) -> FieldError {
        let message = format!("Invalid value: \"{found}\": {detail}: \"{found}\"");
        FieldError { reason: FieldReason::TypeInvalid, field: field.into(), message }
    }

    /// Reports a value outside of an enumeration.
    pub(crate) fn not_supported<'a>(
        field: impl Into<String>,
        value: &Value,
        supported: impl IntoIterator<Item = &'a Value>,
    ) -> FieldError {
        let supported: Vec<String> = supported.into_iter().map(quoted).collect();
        let message = format!("Unsupported value: {}: supported values: {}", value, supported.join(", "));
        FieldError { reason: FieldReason::NotSupported, field: field.into(), message }
    }

    /// Reports a duplicate value.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> FieldError {
        let message = format!("Duplicate value: {value}");
        FieldError { reason: FieldReason::Duplicate, field: field.into(), message }
    }

    /// Reports something that may not be.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> FieldError {
        let message = format!("Forbidden: {detail}");
        FieldError { reason: FieldReason::Forbidden, field: field.into(), message }
    }

    /// Reports a string that is longer than `limit` bytes.
    pub(crate) fn too_long(field: impl Into<String>, limit: u64) -> FieldError {
        let message = format!("Too long: may not be more than {limit} bytes");
        FieldError { reason: FieldReason::TooLong, field: field.into(), message }
    }

    /// Reports a list of `found` items where `limit` are allowed.
    pub(crate) fn too_many(field: impl Into<String>, found: usize, limit: u64) -> FieldError {
        let message = format!("Too many: {found}: must have at most {limit} items");
        FieldError { reason: FieldReason::TooMany, field: field.into(), message }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Quotes other values than strings as well, as in enumerations.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(_) => value.to_string(),
        other => Value::from(other.to_string()).to_string(),
    }
}
