//! The formats of strings and numbers.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;

/// Returns whether a string has the format; unknown formats pass.
pub(super) fn accepts(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "byte" => STANDARD.decode(text).is_ok(),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        "hostname" => is_hostname(text),
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| !scheme.is_empty()),
        _ => true,
    }
}

/// Returns whether a number is in the range of its format.
pub(super) fn holds(format: &str, number: f64) -> bool {
    match format {
        "int32" => number >= f64::from(i32::MIN) && number <= f64::from(i32::MAX),
        "float" => number.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

fn is_uuid(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_hexdigit).count();
    let dashes = text.chars().filter(|letter| *letter == '-').count();
    digits == 32 && digits + dashes == text.len() && (dashes == 0 || dashes == 4)
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
