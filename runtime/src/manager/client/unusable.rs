//! Explains what is wrong with a configuration: which file, what in it, and what to do.

use std::path::{Path, PathBuf};

use kube::{
    Config,
    client::AuthError,
    config::{Kubeconfig, KubeconfigError},
};

use crate::{
    chain::{self, one_line},
    error::Error,
};

/// Where a kubeconfig is looked for.
#[derive(Debug)]
pub(super) struct KubeconfigPlace {
    /// `None`: no file is named, and none is in the home folder.
    file: Option<PathBuf>,
    /// `KUBECONFIG` names it.
    is_named: bool,
}

impl KubeconfigPlace {
    /// Returns whether a file is named, or is in the home folder.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Looks as kubectl does.
    pub(super) fn find(environment: impl Fn(&str) -> Option<String>, exists: impl Fn(&Path) -> bool) -> Self {
        let set = |name| environment(name).filter(|text| !text.is_empty());
        if let Some(file) = set("KUBECONFIG") {
            return Self { file: Some(file.into()), is_named: true };
        }
        let home = set("HOME").or_else(|| set("USERPROFILE"));
        let home = home.map(|home| Path::new(&home).join(".kube/config"));
        Self { file: home.filter(|file| exists(file)), is_named: false }
    }

    /// Says that what is there can't be used, and why.
    fn refused(&self, why: &str, cause: Option<KubeconfigError>) -> Error {
        let from = if self.is_named { " (from KUBECONFIG)" } else { "" };
        let what = match &self.file {
            Some(file) => format!("the kubeconfig {}{from}", file.display()),
            None => "the configuration".to_owned(),
        };
        let problem = format!("{what} can't be used: {why}");
        Error::Configuration { kubeconfig: self.file.clone(), problem, cause: cause.map(Box::new) }
    }

    /// Returns the error for a cluster that is not configured, or a file that can't be used.
    pub(super) fn refuse(&self, cause: KubeconfigError) -> Error {
        if self.file.is_some() {
            return self.refused(&what_is_wrong(&cause), Some(cause));
        }
        let problem = "no cluster is configured: KUBECONFIG is not set, ~/.kube/config does not exist, and this \
                       process is not running in a pod with a service account; set KUBECONFIG";
        Error::Configuration { kubeconfig: None, problem: problem.to_owned(), cause: Some(Box::new(cause)) }
    }

    /// Says that no client can be made of a configuration.
    pub(super) fn refuse_client(&self, config: &Config, cause: &kube::Error) -> Error {
        let plugin = config.auth_info.exec.as_ref().and_then(|exec| exec.command.as_deref());
        self.refused(&why_no_client(plugin, cause), None)
    }

    /// Refuses a context whose user is not there: kube would go on as nobody.
    pub(super) fn check_user(&self, kubeconfig: &Kubeconfig) -> Result<(), Error> {
        let name = kubeconfig.current_context.as_deref().unwrap_or_default();
        let context = kubeconfig.contexts.iter().find(|context| context.name == name);
        let user = context.and_then(|context| context.context.as_ref()?.user.as_deref());
        let Some(user) = user.filter(|user| !user.is_empty()) else { return Ok(()) };
        if kubeconfig.auth_infos.iter().any(|known| known.name == user) {
            return Ok(());
        }
        let why = format!("its context {name:?} names the user {user:?}, which is not in it");
        Err(self.refused(&why, None))
    }
}

fn what_is_wrong(cause: &KubeconfigError) -> String {
    match cause {
        KubeconfigError::CurrentContextNotSet => {
            "it has no current context; choose one with `kubectl config use-context NAME`".to_owned()
        }
        KubeconfigError::LoadContext(name) => {
            format!("it has no context {name:?}; choose one with `kubectl config use-context NAME`")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("its context names the cluster {name:?}, which is not in it")
        }
        KubeconfigError::ReadConfig(error, _) => one_line(error),
        // The lines after the first one quote the file, which may contain a token.
        KubeconfigError::Parse(error) => {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default();
            format!("it is not a valid kubeconfig: {}", first.trim_start_matches("error: "))
        }
        _ => one_line(cause),
    }
}

/// Says why no client can be made, which may run a plugin for credentials.
pub(in crate::manager) fn why_no_client(plugin: Option<&str>, cause: &kube::Error) -> String {
    match (cause, plugin) {
        (kube::Error::Auth(cause), Some(plugin)) => of_plugin(plugin, cause),
        _ => one_line(cause),
    }
}

/// Says how a plugin failed.
fn of_plugin(plugin: &str, cause: &AuthError) -> String {
    match cause {
        AuthError::AuthExecStart(error) => {
            format!(
                "its credentials plugin `{plugin}` can't be run: {error}; install it, or correct its path"
            )
        }
        _ => match chain::of_plugin(cause) {
            Some(how) => format!("its credentials plugin `{plugin}` {how}"),
            None => format!("its credentials plugin `{plugin}` gave no credentials: {}", one_line(cause)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_is_looked_for_as_kubectl_does() {
        let find = |variables: &'static [(&str, &str)], exists: bool| {
            let value = move |name: &str| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            KubeconfigPlace::find(value, move |_| exists).refused("x", None).to_string()
        };
        let named = find(&[("KUBECONFIG", "/k"), ("HOME", "/home/me")], true);
        assert_eq!(named, "the kubeconfig /k (from KUBECONFIG) can't be used: x");
        let home = find(&[("KUBECONFIG", ""), ("HOME", "/home/me")], true);
        assert_eq!(home, "the kubeconfig /home/me/.kube/config can't be used: x");
        assert_eq!(KubeconfigPlace::find(|_| None, |_| true).file, None);
        assert_eq!(find(&[("HOME", "/home/me")], false), "the configuration can't be used: x");
    }
}
