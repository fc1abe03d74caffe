//! Quantities: `500m`, `1Gi`, `1e3`, compared by what they mean.

use serde_json::Value;

/// How many of the smallest parts one has.
const PARTS: i128 = 1_000_000_000;

/// An amount, in billionths; amounts that are too large become the largest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity(i128);

impl Quantity {
    /// Nothing.
    pub(super) const ZERO: Self = Self(0);

    /// Reads an amount, as a text or a number.
    pub(super) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && part.is_empty()) || part.contains('.') {
            return None;
        }
        let (two, ten) = scale(suffix)?;
        let mut amount = digits(whole).saturating_mul(PARTS).saturating_mul(1i128 << two);
        let mut place = PARTS;
        for digit in part.bytes().take(9) {
            place /= 10;
            amount = amount.saturating_add((i128::from(digit - b'0') * place).saturating_mul(1i128 << two));
        }
        for _ in 0..ten.unsigned_abs().min(40) {
            amount = if ten < 0 {
                // An amount below the smallest unit counts as one.
                amount / 10 + i128::from(amount % 10 != 0)
            } else {
                amount.saturating_mul(10)
            };
        }
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Returns whether it is a number without a fraction.
    pub(super) fn is_whole(self) -> bool {
        self.0 % PARTS == 0
    }
}

fn digits(text: &str) -> i128 {
    text.bytes().fold(0i128, |sum, digit| sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')))
}

/// Returns the powers of two and of ten of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    if let Some(power) = (1..).zip(BINARY).find(|(_, name)| *name == suffix) {
        return Some((10 * power.0, 0));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((0, *power));
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    Some((0, power.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A45
    #[test]
    fn amounts_are_compared_by_what_they_mean() {
        let read = |text: &str| Quantity::read(&text.into()).unwrap();
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1Ki", "1024"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("1.5Gi", "1536Mi"),
            ("1E", "1e18"),
            (".5", "500m"),
            ("2.", "2"),
            ("1e-3", "1m"),
            ("-1", "-1000m"),
            ("1u", "1000n"),
        ] {
            assert_eq!(read(one), read(other), "{one}");
        }
        assert!(read("1Gi") > read("1G"));
        assert!(read("-1") < Quantity::ZERO);
        assert!(read("9e99") > read("1E"));
        assert!(read("0.1n") > Quantity::ZERO);
        assert!(read("1k").is_whole() && !read("1500m").is_whole());
        for odd in ["", "a", "1x", "1.2.3", "e3", "1 Gi", "--1"] {
            assert_eq!(Quantity::read(&odd.into()), None, "{odd}");
        }
        assert_eq!(Quantity::read(&3.into()), Some(read("3")));
    }
}
