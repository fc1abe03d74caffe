//! TLS on the port: a certificate and its key from files, read again when they change.

use std::{fs::File, io::Read, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::{task::spawn_blocking, time::sleep};
pub(super) use tokio_rustls::TlsAcceptor as Tls;

use super::settings::{TlsFiles, Unusable};
use crate::manager::client::crypto_provider;

/// How often the files are read.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A pair that does not match may still be being written for this long.
const SETTLES: Duration = Duration::from_secs(1);
/// Most bytes of a file.
const LONGEST: u64 = 1 << 20;

const REMEDY: &str =
    "give `.tls(..)` the files of a Secret of type kubernetes.io/tls, first tls.crt, then tls.key";

/// The content of both files: certificate and key.
type KeyPair = (Vec<u8>, Vec<u8>);

/// The certificate for new connections; clones are the same.
#[derive(Clone, Debug)]
struct CurrentCertificate(Arc<ArcSwap<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Reads the files from time to time.
struct Reloader {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: CurrentCertificate,
    /// What was used, or logged, last.
    settled: Result<KeyPair, String>,
    /// What could not be used at the last reading, and was not logged yet.
    pending: Option<Result<KeyPair, String>>,
}

/// Reads the files for the first time; what else is returned reads them again and again.
pub(super) fn load(files: &TlsFiles) -> Result<(Tls, BoxFuture<'static, ()>), Unusable> {
    let provider = crypto_provider();
    let reloader = Reloader::new(files.clone(), provider.clone())?;
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| (error.to_string(), None))?;
    let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(reloader.current.clone()));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config).into(), Box::pin(reloader.run())))
}

impl Reloader {
    fn new(files: TlsFiles, provider: Arc<CryptoProvider>) -> Result<Self, Unusable> {
        let pair = read_both(&files)?;
        let current = certified(&files, &pair, &provider)?;
        let current = CurrentCertificate(Arc::new(ArcSwap::from_pointee(current)));
        Ok(Self { files, provider, current, settled: Ok(pair), pending: None })
    }

    /// Reads the files again and again.
    async fn run(mut self) {
        loop {
            sleep(if self.pending.is_some() { SETTLES } else { LOOK_EVERY }).await;
            let files = self.files.clone();
            let Ok(found) = spawn_blocking(move || read_both(&files)).await else { continue };
            match self.take(found) {
                None => {}
                Some(Ok(())) => {
                    let certificate = self.files.certificate.display();
                    tracing::info!(%certificate, "HTTP has a new certificate: new connections get it");
                }
                Some(Err(why)) => {
                    tracing::warn!("the new certificate of HTTP can't be used, the old one stays: {why}");
                }
            }
        }
    }

    /// Uses what was read, if possible; returns what is to be logged.
    ///
    /// Files that can't be used are pending at first: perhaps only one of them is written yet.
    fn take(&mut self, found: Result<KeyPair, Unusable>) -> Option<Result<(), String>> {
        let found = found.map_err(told);
        if self.settled == found {
            self.pending = None;
            return None;
        }
        let used = found.clone().and_then(|pair| {
            let certified = certified(&self.files, &pair, &self.provider).map_err(told)?;
            self.current.0.store(Arc::new(certified));
            Ok(())
        });
        if used.is_err() && self.pending.as_ref() != Some(&found) {
            self.pending = Some(found);
            return None;
        }
        (self.settled, self.pending) = (found, None);
        Some(used)
    }
}

fn told((problem, source): Unusable) -> String {
    source.map_or(problem.clone(), |source| format!("{problem}: {source}"))
}

fn unusable(path: &Path, what: &str) -> Unusable {
    (format!("{} {what}", path.display()), None)
}

fn read_both(files: &TlsFiles) -> Result<KeyPair, Unusable> {
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LONGEST => {
            let what = format!("is longer than {LONGEST} bytes, which no certificate is: {REMEDY}");
            Err(unusable(path, &what))
        }
        Ok(_) => Ok(bytes),
        Err(source) => Err((unusable(path, &format!("can't be read: {REMEDY}")).0, Some(source))),
    }
}

/// Makes a certificate for TLS from a pair.
fn certified(
    files: &TlsFiles,
    (certificate, key_file): &KeyPair,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Unusable> {
    let chain = chain(&files.certificate, certificate)?;
    let key = key(&files.key, key_file)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => unusable(
            &files.key,
            &format!(
                "is not the key of the first certificate in {}: that is the server's own, those of its issuers come \
                 after it; renew both together",
                files.certificate.display()
            ),
        ),
        rustls::Error::InvalidCertificate(why) => {
            unusable(&files.certificate, &format!("begins with a broken certificate ({why:?}): {REMEDY}"))
        }
        error => unusable(&files.key, &format!("holds a key that can't be used ({error}): make one of RSA \
            with 2048 bits or more, ECDSA with P-256 or P-384, or Ed25519")),
    })
}

fn chain(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) if holds(bytes, "PRIVATE KEY-----") => {
            Err(unusable(path, &format!("holds a key and no certificate: {REMEDY}")))
        }
        Ok(_) => Err(unusable(path, &format!("holds no certificate in PEM: {REMEDY}"))),
        Err(_) => Err(broken(path)),
    }
}

fn key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, Unusable> {
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if holds(bytes, "ENCRYPTED PRIVATE KEY-----") => {
            unusable(path, "holds an encrypted key: decrypt it by `openssl pkey`")
        }
        pem::Error::NoItemsFound if holds(bytes, "CERTIFICATE-----") => {
            unusable(path, &format!("holds a certificate and no key: {REMEDY}"))
        }
        pem::Error::NoItemsFound => unusable(path, &format!("holds no key in PEM: {REMEDY}")),
        _ => broken(path),
    })
}

/// Does not repeat what is in the file: it may be a key.
fn broken(path: &Path) -> Unusable {
    unusable(path, &format!("is broken PEM: write it again, or {REMEDY}"))
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use std::{env, fs, io, path::PathBuf};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let folder = env::temp_dir().join(format!("certificates-{:016x}", crate::backoff::random_seed()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn files(&self) -> TlsFiles {
            TlsFiles { certificate: self.0.join("tls.crt"), key: self.0.join("tls.key") }
        }

        fn write(&self, made: &Made) {
            fs::write(self.files().certificate, &made.certificate).unwrap();
            fs::write(self.files().key, &made.key).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    struct Made {
        certificate: String,
        key: String,
        der: Vec<u8>,
    }

    fn made() -> Made {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        Made { certificate: made.cert.pem(), key, der: made.cert.der().to_vec() }
    }

    fn loaded(folder: &Folder) -> Result<(CurrentCertificate, Reloader), Unusable> {
        let reloader = Reloader::new(folder.files(), Arc::new(rustls::crypto::ring::default_provider()))?;
        Ok((reloader.current.clone(), reloader))
    }

    fn served(current: &CurrentCertificate) -> Vec<u8> {
        current.0.load().cert[0].to_vec()
    }

    // P9
    #[test]
    fn a_pair_that_can_not_be_used_is_refused_with_file_and_remedy() {
        let (folder, one, other) = (Folder::new(), made(), made());
        let refused = |certificate: &str, key: &str| {
            folder.write(&Made { certificate: certificate.into(), key: key.into(), der: Vec::new() });
            loaded(&folder).map(drop).unwrap_err().0
        };
        let encrypted = one.key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let cut = &one.key[..one.key.len() / 2];
        let empty = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (certificate, key, file, why) in [
            ("", &*one.key, "tls.crt", "holds no certificate in PEM: give `.tls(..)`"),
            ("\u{0}\u{1}rubbish", &one.key, "tls.crt", "holds no certificate in PEM"),
            (&*one.key, &one.certificate, "tls.crt", "holds a key and no certificate: give `.tls(..)`"),
            (empty, &one.key, "tls.crt", "begins with a broken certificate"),
            (&one.certificate, "", "tls.key", "holds no key in PEM"),
            (&one.certificate, &one.certificate, "tls.key", "holds a certificate and no key"),
            (&one.certificate, &encrypted, "tls.key", "decrypt it by `openssl pkey`"),
            (&one.certificate, cut, "tls.key", "is broken PEM: write it again"),
            (&one.certificate, &other.key, "tls.key", "is not the key of the first certificate in"),
            (&"z".repeat(2 << 20), &one.key, "tls.crt", "is longer than 1048576 bytes"),
        ] {
            let said = refused(certificate, key);
            let start = folder.0.join(file).display().to_string();
            assert!(said.starts_with(&start) && said.contains(why), "{said}");
            let secret = one.key.lines().nth(1).unwrap();
            assert!(!said.contains(secret), "{said}");
        }
        folder.write(&one);
        fs::remove_file(folder.files().key).unwrap();
        let missing = loaded(&folder).map(drop).unwrap_err();
        assert!(missing.0.contains("tls.key can't be read: give `.tls(..)`"), "{missing:?}");
        assert_eq!(missing.1.unwrap().kind(), io::ErrorKind::NotFound);
    }

    // P9
    #[tokio::test(start_paused = true)]
    async fn a_renewed_pair_is_served_within_ten_seconds() {
        let (folder, one, other) = (Folder::new(), made(), made());
        folder.write(&one);
        let (current, reloader) = loaded(&folder).unwrap();
        let _running = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(reloader.run()));
        assert_eq!(served(&current), one.der);
        sleep(Duration::from_secs(60)).await;
        folder.write(&other);
        sleep(LOOK_EVERY + SETTLES).await;
        assert_eq!(served(&current), other.der);
        fs::write(folder.files().key, "rubbish").unwrap();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(served(&current), other.der, "the old one stays");
        folder.write(&one);
        sleep(LOOK_EVERY + SETTLES).await;
        assert_eq!(served(&current), one.der);
    }

    // P9
    #[test]
    fn a_broken_pair_is_told_of_once_and_one_that_is_being_written_never() {
        let (folder, one, other) = (Folder::new(), made(), made());
        folder.write(&one);
        let (current, mut reloader) = loaded(&folder).unwrap();
        let mut look = || (reloader.take(read_both(&folder.files())), reloader.pending.is_some());
        let (same, pending, taken) = ((None, false), (None, true), (Some(Ok(())), false));
        assert_eq!(look(), same);
        fs::write(folder.files().certificate, &other.certificate).unwrap();
        assert_eq!(look(), pending, "its key is on the way");
        folder.write(&other);
        assert_eq!((look(), look()), (taken.clone(), same.clone()));
        fs::remove_file(folder.files().key).unwrap();
        assert_eq!(look(), pending);
        assert!(matches!(look().0, Some(Err(why)) if why.contains("tls.key can't be read")));
        assert_eq!((look(), look()), (same.clone(), same.clone()));
        folder.write(&other);
        assert_eq!((look(), look()), (taken, same));
        assert_eq!(served(&current), other.der);
    }
}
