//! Mistakes with the API server's data file.

use std::{env, fs, path::Path};

use watchkeeper_apiserver::ApiServer;

use crate::Mistake;

/// Says why a server does not start with a data file.
async fn refused(path: &Path) -> String {
    match ApiServer::in_memory().data(path).try_start().await {
        Ok(_) => panic!("{} is taken", path.display()),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn mistakes() -> Vec<Mistake> {
    let folder = env::temp_dir().join(format!("mistakes-data-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut found = runtime.block_on(all(&folder));
    fs::remove_dir_all(&folder).unwrap();
    for (_, said) in &mut found {
        *said = said.replace(&folder.display().to_string(), "<folder>");
    }
    found
}

async fn all(folder: &Path) -> Vec<Mistake> {
    let file = folder.join("state");
    let mut found =
        vec![("The folder of the data file is not there", refused(&folder.join("no-such/state")).await)];
    let server = ApiServer::in_memory().data(&file).start().await;
    found.push(("Another server uses the data file", refused(&file).await));
    server.stop().await;
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    found.push(("The data file is damaged", refused(&file).await));
    fs::write(&file, "watchkeeper-apiserver data 7\n").unwrap();
    found.push(("The data file is of a newer server", refused(&file).await));
    fs::write(&file, "kind: Config\n").unwrap();
    found.push(("The data file is something else", refused(&file).await));
    found
}
