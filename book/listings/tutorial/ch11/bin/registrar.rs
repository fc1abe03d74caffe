//! A registrar to try things out with: it keeps domains in a file.

use std::{collections::BTreeMap, fs, io};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

const FILE: &str = "domains.json";

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:7070").await?;
    eprintln!("the registrar is open at http://127.0.0.1:7070");
    let kept = fs::read(FILE).ok();
    let kept = kept.and_then(|text| serde_json::from_slice(&text).ok());
    let mut owners = kept.unwrap_or_default();
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut head = BufReader::new(&mut stream).lines();
        let Some(first) = head.next_line().await? else { continue };
        while head.next_line().await?.is_some_and(|line| !line.is_empty()) {}
        let mut words = first.split(' ');
        let (method, path) = (words.next(), words.next());
        let status = answer(&mut owners, method.unwrap_or(""), path.unwrap_or(""));
        eprintln!("{first}: {status}");
        fs::write(FILE, serde_json::to_vec(&owners)?)?;
        let headers = "content-length: 0\r\nconnection: close";
        let reply = format!("HTTP/1.1 {status}\r\n{headers}\r\n\r\n");
        stream.write_all(reply.as_bytes()).await?;
    }
}

/// Answers `PUT` and `DELETE` of `/domains/DOMAIN?owner=OWNER`.
fn answer(
    owners: &mut BTreeMap<String, String>,
    method: &str,
    path: &str,
) -> &'static str {
    let named =
        path.strip_prefix("/domains/").and_then(|path| path.split_once("?owner="));
    let Some((domain, owner)) = named else { return "400 Bad Request" };
    match (method, owners.get(domain)) {
        ("PUT" | "DELETE", Some(other)) if other != owner => "409 Conflict",
        ("PUT", _) => {
            owners.insert(domain.to_owned(), owner.to_owned());
            "200 OK"
        }
        ("DELETE", None) => "404 Not Found",
        ("DELETE", Some(_)) => {
            owners.remove(domain);
            "200 OK"
        }
        _ => "405 Method Not Allowed",
    }
}
