//! Words: the rules for names, keys, ports and addresses, and the server's words for violations.

use std::net::IpAddr;

use crate::selector::SUBDOMAIN;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
     alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower \
     case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex \
     used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or \
     'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
     validation is '[-A-Za-z0-9]+')";

/// The server's words for an invalid percentage.
pub(super) const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
     validation is '[0-9]+%')";

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn is_label(text: &str) -> bool {
    let inner = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(inner)
        && bytes.last().is_some_and(inner)
        && bytes.iter().all(|c| inner(c) || *c == b'-')
}

/// Describes why a text is not a DNS label.
pub(super) fn label(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 63).into_iter().collect();
    if !is_label(text) {
        let dots = text.split('.').all(is_label);
        wrong.push(if dots { "must not contain dots".to_owned() } else { LABEL.to_owned() });
    }
    wrong
}

/// Describes why a text is not a DNS subdomain.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 253).into_iter().collect();
    wrong.extend((!text.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned()));
    wrong
}

/// Describes why a text is not a DNS subdomain that begins with `*.`.
pub(super) fn wildcard(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 253).into_iter().collect();
    let fits = text.strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_label));
    wrong.extend((!fits).then(|| WILDCARD.to_owned()));
    wrong
}

/// Describes why a text can't be a path segment.
pub(super) fn path_segment(text: &str) -> Vec<String> {
    if matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    let odd = ["/", "%"].into_iter().filter(|odd| text.contains(*odd));
    odd.map(|odd| format!("may not contain '{odd}'")).collect()
}

/// Describes why a text can't name a port.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 15).into_iter().collect();
    let mut say = |is_wrong: bool, why: &str| wrong.extend(is_wrong.then(|| why.to_owned()));
    let fine = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    say(
        text.is_empty() || !text.bytes().all(fine),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    say(!text.bytes().any(|c| c.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    say(text.contains("--"), "must not contain consecutive hyphens");
    say(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

/// Describes why a text can't be a key of a ConfigMap or Secret.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut wrong: Vec<String> = too_long(text, 253).into_iter().collect();
    let fine = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    wrong.extend((text.is_empty() || !text.bytes().all(fine)).then(|| CONFIG_KEY.to_owned()));
    match text {
        "." | ".." => wrong.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// Describes why a text can't name an environment variable.
pub(super) fn variable(text: &str) -> Vec<String> {
    let fine = |c: u8| (b' '..=b'~').contains(&c) && c != b'=';
    if text.bytes().all(fine) {
        return Vec::new();
    }
    let why =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![why.to_owned()]
}

/// Describes why a text can't name an HTTP header.
pub(super) fn header(text: &str) -> Vec<String> {
    let fine = !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    if fine { Vec::new() } else { vec![HEADER.to_owned()] }
}

/// Reads a percentage, e.g. `25%`.
pub(super) fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let fits = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    // One that is too large to count is at least more than anything may be.
    fits.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Describes why a text is not an address.
pub(super) fn address(text: &str) -> Vec<String> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Vec::new(),
        Err(_) if without_zeros(text).parse::<IpAddr>().is_ok() => {
            vec!["must not have leading 0s".to_owned()]
        }
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// Describes why an address can't receive traffic.
pub(super) fn of_an_end(text: &str) -> Vec<String> {
    let Ok(address) = text.parse::<IpAddr>() else { return Vec::new() };
    let local = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    let mut wrong = Vec::new();
    if address.is_unspecified() {
        wrong.push(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        wrong.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if local.0 {
        wrong.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if local.1 {
        wrong.push("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
    wrong
}

/// Takes the leading zeros of an IPv4 address's numbers away.
fn without_zeros(text: &str) -> String {
    let part = |part: &str| {
        let rest = part.trim_start_matches('0');
        if rest.is_empty() && !part.is_empty() { "0".to_owned() } else { rest.to_owned() }
    };
    text.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A network: the bits of its address, how many there are, and how many of them count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    bits: u128,
    all: u32,
    counting: u32,
}

impl Network {
    /// Reads a network, e.g. `10.0.0.0/8`.
    ///
    /// # Errors
    /// The error, in the server's words.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        const ODD: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        let (address, length) = text.split_once('/').ok_or(ODD)?;
        let sloppy = without_zeros(address);
        let (bits, all) = match address.parse().or_else(|_| sloppy.parse()) {
            Ok(IpAddr::V4(address)) => (u128::from(address.to_bits()), 32),
            Ok(IpAddr::V6(address)) => (address.to_bits(), 128),
            Err(_) => return Err(ODD.to_owned()),
        };
        let digits = length.bytes().all(|c| c.is_ascii_digit());
        let counting = length.parse::<u32>().ok().filter(|length| digits && *length <= all).ok_or(ODD)?;
        let zeros = address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0'));
        if zeros {
            return Err("must not have leading 0s in IP or prefix length".to_owned());
        }
        let network = Self { bits, all, counting };
        if all == 128 && std::net::Ipv6Addr::from_bits(bits).to_ipv4_mapped().is_some() {
            return Err("must not have an IPv4-mapped IPv6 address".to_owned());
        }
        if network.masked() != bits {
            return Err("must not have bits set beyond the prefix length".to_owned());
        }
        Ok(network)
    }

    fn masked(self) -> u128 {
        let free = self.all - self.counting;
        if free >= 128 { 0 } else { self.bits >> free << free }
    }

    /// Returns whether another network is a part of this one, and not the whole.
    pub(super) fn has_within(self, other: Self) -> bool {
        let masked = Self { counting: self.counting, ..other }.masked();
        self.all == other.all && self.counting < other.counting && masked == self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A45
    #[test]
    fn networks_are_read_strictly() {
        for fine in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/64", "1.2.3.4/32"] {
            assert!(Network::read(fine).is_ok(), "{fine}");
        }
        for (bad, why) in [
            ("10.0.0.0", "must be a valid CIDR"),
            ("10.0.0.0/33", "must be a valid CIDR"),
            ("10.0.0.0/+8", "must be a valid CIDR"),
            ("010.0.0.0/8", "must not have leading 0s"),
            ("10.0.0.0/08", "must not have leading 0s"),
            ("10.0.0.1/8", "must not have bits set"),
            ("::ffff:1.2.3.0/120", "must not have an IPv4-mapped"),
        ] {
            assert!(Network::read(bad).is_err_and(|said| said.starts_with(why)), "{bad}");
        }
        let network = |text| Network::read(text).unwrap();
        assert!(network("10.0.0.0/8").has_within(network("10.1.0.0/16")));
        assert!(!network("10.0.0.0/8").has_within(network("10.0.0.0/8")));
        assert!(!network("10.0.0.0/8").has_within(network("11.0.0.0/16")));
        assert!(network("::/0").has_within(network("2001:db8::/64")));
        assert!(!network("0.0.0.0/0").has_within(network("2001:db8::/64")));
    }

    // A45
    #[test]
    fn names_of_ports_and_keys_are_told_in_full() {
        assert!(port_name("http-2").is_empty());
        assert_eq!(port_name("1").len(), 1);
        assert_eq!(port_name("-A--b-").len(), 3);
        assert_eq!(port_name(""), port_name("").into_iter().take(2).collect::<Vec<_>>());
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert!(variable("a-b.C d").is_empty());
        assert_eq!(variable("a=b").len(), 1);
        assert_eq!(percent("25%"), Some(25));
        assert_eq!(percent("-25%"), None);
        assert_eq!(address("010.1.1.1"), ["must not have leading 0s"]);
        assert_eq!(address("1.1.1").len(), 1);
    }
}
