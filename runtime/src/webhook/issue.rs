//! Makes authorities and certificates.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::authority::{Generation, LIFE};

/// Certificates are valid from this much earlier on, since clocks differ.
const SKEW: i64 = 86_400;

/// Makes an authority and a certificate that it signs. The authority's key is not kept.
///
/// # Errors
/// A name is not a DNS name or an IP address, or the system gives no randomness.
pub(crate) fn issue(names: &[String], now: i64) -> Result<Generation, rcgen::Error> {
    let (authority_key, key) = (KeyPair::generate()?, KeyPair::generate()?);
    let expires = now + LIFE;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |seconds: i64| epoch + Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    let mut of_authority = CertificateParams::new(Vec::new())?;
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    of_authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // Each has a name of its own: clients choose an issuer by its name.
    of_authority.distinguished_name.push(DnType::CommonName, format!("webhooks {now}"));
    (of_authority.not_before, of_authority.not_after) = (at(now - SKEW), at(expires));
    let authority = of_authority.self_signed(&authority_key)?;
    let mut of_leaf = CertificateParams::new(names.to_vec())?;
    of_leaf.distinguished_name.push(DnType::CommonName, names.first().map_or("webhooks", |name| name));
    of_leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    of_leaf.use_authority_key_identifier_extension = true;
    (of_leaf.not_before, of_leaf.not_after) = (of_authority.not_before, of_authority.not_after);
    let leaf = of_leaf.signed_by(&key, &Issuer::new(of_authority, authority_key))?;
    Ok(Generation {
        authority: authority.pem(),
        certificate: leaf.pem(),
        key: key.serialize_pem(),
        names: names.to_vec(),
        made: now,
        expires,
    })
}
