//! The part of HTTP/1.1 that clients of an API server use: requests without bodies, on kept connections.

use std::io;

use tokio::net::TcpStream;

/// A request's path and query.
pub(super) struct Request {
    pub(super) path: String,
    query: String,
}

impl Request {
    fn of(target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self { path: path.to_owned(), query: query.to_owned() }
    }

    /// Finds a value of the query; it never needs decoding.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(held, _)| *held == name).map(|(_, value)| value).next()
    }

    /// Finds a number of the query; 0 where it is missing.
    pub(super) fn number(&self, name: &str) -> usize {
        self.value(name).and_then(|value| value.parse().ok()).unwrap_or(0)
    }
}

/// Reads the head of the next request; `None` when the client has disconnected.
pub(super) async fn read(connection: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            return Ok(head.split(' ').nth(1).map(Request::of));
        }
        let mut bytes = [0; 4_096];
        match read_some(connection, &mut bytes).await? {
            0 => return Ok(None),
            count => buffer.extend_from_slice(&bytes[..count]),
        }
    }
}

/// Waits for bytes; 0 when the client has disconnected.
pub(super) async fn read_some(connection: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        connection.readable().await?;
        match connection.try_read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

/// Sends bytes as fast as they are taken.
pub(super) async fn write_all(connection: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.writable().await?;
        match connection.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends a whole answer.
pub(super) async fn send(connection: &TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let head = head(status, &format!("Content-Length: {}", body.len()));
    write_all(connection, head.as_bytes()).await?;
    write_all(connection, body).await
}

/// Sends a body in parts, as one chunk each, like a server that does not know the length in advance.
pub(super) async fn send_parts(connection: &TcpStream, parts: [&[u8]; 3]) -> io::Result<()> {
    begin_stream(connection).await?;
    for part in parts.into_iter().flat_map(|part| part.chunks(1 << 16)) {
        write_all(connection, format!("{:x}\r\n", part.len()).as_bytes()).await?;
        write_all(connection, part).await?;
        write_all(connection, b"\r\n").await?;
    }
    end_stream(connection).await
}

/// Begins a body of chunks.
pub(super) async fn begin_stream(connection: &TcpStream) -> io::Result<()> {
    write_all(connection, head("200 OK", "Transfer-Encoding: chunked").as_bytes()).await
}

/// Ends a body of chunks.
pub(super) async fn end_stream(connection: &TcpStream) -> io::Result<()> {
    write_all(connection, b"0\r\n\r\n").await
}

fn head(status: &str, length: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{length}\r\n\r\n")
}
