//! HTTP over TLS: a certificate that is renewed, one that is broken, handshakes that take their time.

#![expect(clippy::print_stdout, reason = "times are worth a line")]

use std::{env, fs, io, net::SocketAddr, path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, crypto::ring, version},
};
use watchkeeper::{manager::Http, prelude::*};
use watchkeeper_tests::{
    backend::Stage,
    does,
    raw::{code, get},
};

use crate::harness::tests;

tests! {
    Shared: probes_and_metrics_are_answered_over_tls, a_renewed_certificate_is_served_without_a_restart,
            who_speaks_no_tls_is_told_so, slow_handshakes_keep_no_probe_waiting;
}

const HERE: &str = "127.0.0.1:0";

/// An authority, and a folder with a certificate that it signed.
struct Certified {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Drop for Certified {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Certified {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("https-{:016x}", rand::random::<u64>()));
        fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let certified = Self { folder, authority };
        certified.renew();
        certified
    }

    /// Writes a new pair over the old one.
    fn renew(&self) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        fs::write(self.folder.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(self.folder.join("tls.key"), key.serialize_pem()).unwrap();
    }

    fn http(&self) -> Http {
        Http::on(HERE).tls(self.folder.join("tls.crt"), self.folder.join("tls.key"))
    }

    /// A client that believes this authority alone.
    fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(versions).unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth()).into()
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&version::TLS12, &version::TLS13];

async fn shake_hands(client: &TlsConnector, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    client.connect("localhost".try_into().unwrap(), stream).await
}

async fn ask(client: &TlsConnector, address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = shake_hands(client, address).await?;
    read(&mut stream, path).await
}

async fn read(stream: &mut TlsStream<TcpStream>, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The certificate that a client is shown now.
async fn shown(client: &TlsConnector, address: SocketAddr) -> Vec<u8> {
    let stream = shake_hands(client, address).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn idle(stage: &Stage) -> Controller<ConfigMap, impl Reconciler<ConfigMap>> {
    let (reconciler, _) = does::<ConfigMap, _, _>(async |_, _| Ok(Action::await_change()));
    Controller::new(reconciler).namespace(&*stage.namespace)
}

// P9
async fn probes_and_metrics_are_answered_over_tls(stage: Stage) {
    let certified = Certified::new();
    let running = stage.manager().http(certified.http()).controller(idle(&stage)).spawn();
    let address = running.http_address().unwrap();
    for versions in [BOTH, &[&version::TLS12], &[&version::TLS13]] {
        let client = certified.client(versions);
        for path in ["/healthz", "/metrics", "/debug"] {
            let answer = ask(&client, address, path).await.unwrap();
            assert_eq!(code(&answer), 200, "{path} {versions:?}: {answer}");
        }
    }
    let stranger = Certified::new();
    let refused = ask(&stranger.client(BOTH), address, "/healthz").await.unwrap_err();
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
    running.stop().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the port is given up");
}

// P9
async fn a_renewed_certificate_is_served_without_a_restart(stage: Stage) {
    let certified = Certified::new();
    let running = stage.manager().http(certified.http()).controller(idle(&stage)).spawn();
    let (address, client) = (running.http_address().unwrap(), certified.client(BOTH));
    let first = shown(&client, address).await;
    let mut open = shake_hands(&client, address).await.unwrap();
    certified.renew();
    let renewed = Instant::now();
    while shown(&client, address).await == first {
        assert!(renewed.elapsed() < Duration::from_secs(30), "the new certificate is never served");
        sleep(Duration::from_millis(250)).await;
        if renewed.elapsed() > Duration::from_secs(3) && renewed.elapsed() < Duration::from_secs(4) {
            assert_eq!(code(&ask(&client, address, "/healthz").await.unwrap()), 200);
        }
    }
    println!("  a renewed certificate is served after {:?}", renewed.elapsed());
    // A head is waited for five seconds: the connection that has the old certificate is over.
    assert_eq!(open.read(&mut [0; 1]).await.unwrap_or(0), 0);
    running.stop().await.unwrap();
}

// P9
async fn who_speaks_no_tls_is_told_so(stage: Stage) {
    let certified = Certified::new();
    let running = stage.manager().http(certified.http()).controller(idle(&stage)).spawn();
    let address = running.http_address().unwrap();
    let answer = get(address, "localhost", "/debug", "").await.unwrap();
    assert_eq!(code(&answer), 400, "{answer}");
    assert!(
        answer.ends_with("this port speaks TLS: ask for https://, and probe with `scheme: HTTPS`\n"),
        "{answer}"
    );
    // Rubbish, and a handshake's record that is none.
    for rubbish in [&b"\x00\x01\x02\xff"[..], b"\x16\x03\x01\xff\xff\x00\x00", b"\x16\x03\x01\x00\x05rubbish"]
    {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(rubbish).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.expect("it goes on");
    }
    assert_eq!(code(&ask(&certified.client(BOTH), address, "/healthz").await.unwrap()), 200);
    running.stop().await.unwrap();
}

/// Holds a connection in one of several bad ways for ten seconds, and comes again.
async fn bad(address: SocketAddr, way: usize, client: TlsConnector) {
    const HOLD: Duration = Duration::from_secs(10);
    // A handshake's record of 512 bytes, which come one by one.
    const HEAD: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else { continue };
        let until = Instant::now() + HOLD;
        match way % 3 {
            0 => sleep(HOLD).await,
            1 => {
                let _ = stream.write_all(HEAD).await;
                while Instant::now() < until && stream.write_all(b"z").await.is_ok() {
                    sleep(HOLD / 10).await;
                }
            }
            _ => {
                let _shaken = client.connect("localhost".try_into().unwrap(), stream).await;
                sleep(HOLD).await;
            }
        }
        sleep(HOLD / 10).await;
    }
}

// P9 P2
async fn slow_handshakes_keep_no_probe_waiting(stage: Stage) {
    const CLIENTS: usize = 200;
    const PROBES: usize = 20;
    let certified = Certified::new();
    let running = stage.manager().http(certified.http()).controller(idle(&stage)).spawn();
    let (address, client) = (running.http_address().unwrap(), certified.client(BOTH));
    let begun = Instant::now();
    let mut silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!((3..9).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    let clients: Vec<JoinHandle<()>> =
        (0..CLIENTS).map(|way| tokio::spawn(bad(address, way, client.clone()))).collect();
    sleep(Duration::from_secs(3)).await;
    let mut best = Duration::MAX;
    // The machine may be busy with something else for a while; who starves probes does so in each round.
    for round in 1..=10 {
        let mut times = Vec::new();
        for _ in 0..PROBES {
            let asked = Instant::now();
            let answer = timeout(Duration::from_secs(10), ask(&client, address, "/healthz")).await;
            assert_eq!(code(&answer.expect("a probe starves").unwrap()), 200);
            times.push(asked.elapsed());
            sleep(Duration::from_millis(10)).await;
        }
        times.sort_unstable();
        let (median, longest) = (times[PROBES / 2], times[PROBES - 1]);
        println!(
            "  {CLIENTS} slow handshakes, round {round}: a probe takes {median:?} (median), {longest:?} (longest)"
        );
        best = best.min(longest);
        if best < Duration::from_millis(100) {
            break;
        }
    }
    assert!(best < Duration::from_millis(100), "{best:?}");
    clients.iter().for_each(JoinHandle::abort);
    running.stop().await.unwrap();
}
