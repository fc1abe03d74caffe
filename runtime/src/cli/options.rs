//! Reads a command line: a command, its operands and its options.

use std::{ffi::OsString, time::Duration};

/// Where probes, metrics and the debug page are served, unless that is said.
pub(super) const DEFAULT_ADDRESS: &str = ":8080";
/// Where `why` asks, unless that is said.
pub(super) const MOST_USED_PORT: &str = "127.0.0.1:8080";

/// For how many seconds a rehearsal goes on at most, unless that is said.
const REHEARSAL: u64 = 300;

/// What the program is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CliCommand {
    Help,
    Version,
    Run(RunOptions),
    Rehearse { at_most: Duration, logs_json: bool },
    Crd,
    Rbac { namespace: Option<String> },
    Manifests { namespace: Option<String>, image: Option<String>, made: MadeManifests },
    Why { kind: String, key: String, http: Option<String> },
}

/// How a program that runs can be watched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunOptions {
    /// The address that was said; `off` is none.
    pub(super) http: Option<String>,
    /// Whether lines of the log are JSON.
    pub(super) logs_json: bool,
}

/// The form of manifests, and the folder that they are written to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MadeManifests {
    Yaml,
    Kustomization(String),
    Chart(String),
}

/// A command: its name, the operands that it needs, and the options that it has.
struct CommandForm {
    name: &'static str,
    operands: &'static [&'static str],
    options: &'static [&'static str],
}

const FORMS: [CommandForm; 6] = [
    CommandForm { name: "run", operands: &[], options: &["http", "log-format"] },
    CommandForm { name: "crd", operands: &[], options: &[] },
    CommandForm { name: "rbac", operands: &[], options: &["namespace"] },
    CommandForm { name: "manifests", operands: &[], options: &["helm", "kustomize", "image", "namespace"] },
    CommandForm { name: "rehearse", operands: &[], options: &["at-most", "log-format"] },
    CommandForm { name: "why", operands: &["KIND", "KEY"], options: &["http"] },
];

/// The help of a program; it fits on a screen.
pub(super) fn help(name: &str) -> String {
    format!(
        "\
Usage: {name} [COMMAND] [OPTIONS]

  run                 runs the operator (the default)
    --http ADDRESS      where probes, metrics and the debug page are served: {DEFAULT_ADDRESS}, or off
    --log-format FORMAT text or json; RUST_LOG=info,watchkeeper=debug filters
  crd                 prints the CustomResourceDefinitions
  rbac                prints the least roles
    --namespace NAME    where the operator runs: {name}
  manifests           prints everything that a cluster needs for this operator
    --helm DIR          writes a chart of Helm into a folder
    --kustomize DIR     writes a kustomization into a folder
    --image IMAGE       the operator's image, such as registry.example.dev/{name}:1.0.0
    --namespace NAME    where the operator runs: {name}
  rehearse            runs against the cluster without a write; prints what would change
    --at-most SECONDS   for how long: {REHEARSAL}; --log-format as for run
  why KIND KEY        asks the running operator why it does not reconcile an object, such as shop/a
    --http ADDRESS      where it serves HTTP: {MOST_USED_PORT}

  --help, --version
"
    )
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// What can't be read, and what to write.
pub(super) fn parse(name: &str, arguments: impl Iterator<Item = OsString>) -> Result<CliCommand, String> {
    let mut arguments = arguments.map(|argument| {
        argument
            .into_string()
            .map_err(|argument| format!("{argument:?} is not valid UTF-8: write it in UTF-8"))
    });
    let (mut words, mut options) = (Vec::new(), Options(Vec::new()));
    while let Some(argument) = arguments.next().transpose()? {
        match argument.as_str() {
            "--help" | "-h" | "help" => return Ok(CliCommand::Help),
            "--version" | "-V" => return Ok(CliCommand::Version),
            option if option.starts_with('-') => {
                let (option, value) = match option.split_once('=') {
                    Some((option, value)) => (option, Some(value.to_owned())),
                    None => (option, None),
                };
                let known = FORMS
                    .iter()
                    .flat_map(|form| form.options)
                    .find(|known| option.strip_prefix("--").is_some_and(|option| option == **known));
                let Some(known) = known else { return Err(format!("unknown option {option:?}")) };
                let value = match value {
                    Some(value) => Some(value),
                    None => arguments.next().transpose()?,
                };
                let value = value.filter(|value| !value.is_empty());
                let value = value.ok_or_else(|| format!("--{known} needs a value: --{known} VALUE"))?;
                if options.0.iter().any(|(other, _)| other == known) {
                    return Err(format!("--{known} is there twice: leave one out"));
                }
                options.0.push((known, value));
            }
            _ => words.push(argument),
        }
    }
    let mut words = words.into_iter();
    let command = words.next().unwrap_or_else(|| "run".to_owned());
    let Some(form) = FORMS.iter().find(|form| form.name == command) else {
        let known = FORMS.map(|form| form.name).join(", ");
        return Err(format!("unknown command {command:?}: the commands are {known}"));
    };
    let operands: Vec<String> = words.collect();
    form.check(name, &operands, &options)?;
    command_of(form.name, operands, options)
}

/// The options that were given, with their values.
struct Options(Vec<(&'static str, String)>);

impl Options {
    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(option, _)| *option == name)?;
        Some(self.0.remove(at).1)
    }

    fn logs_json(&mut self) -> Result<bool, String> {
        match self.take("log-format").as_deref() {
            None | Some("text") => Ok(false),
            Some("json") => Ok(true),
            Some(other) => Err(format!("--log-format is {other:?}: write text or json")),
        }
    }
}

impl CommandForm {
    fn check(&self, program: &str, operands: &[String], options: &Options) -> Result<(), String> {
        let Self { name, operands: wanted, .. } = self;
        if let Some((option, _)) = options.0.iter().find(|(option, _)| !self.options.contains(option)) {
            let of = FORMS.iter().filter(|form| form.options.contains(option)).map(|form| form.name);
            let of = of.collect::<Vec<_>>().join(", ");
            return Err(format!("`{name}` has no option --{option}, which is for: {of}"));
        }
        if operands.len() < wanted.len() {
            let wanted = wanted.join(" and ");
            return Err(format!("`{name}` needs {wanted}, as in `{program} {name} Website shop/a`"));
        }
        match operands.get(wanted.len()) {
            Some(further) => Err(format!("`{name}` does not take {further:?}: leave it out")),
            None => Ok(()),
        }
    }
}

fn command_of(name: &str, operands: Vec<String>, mut options: Options) -> Result<CliCommand, String> {
    Ok(match name {
        "crd" => CliCommand::Crd,
        "rbac" => CliCommand::Rbac { namespace: options.take("namespace") },
        "manifests" => {
            let (namespace, image) = (options.take("namespace"), options.take("image"));
            let made = match (options.take("helm"), options.take("kustomize")) {
                (Some(_), Some(_)) => {
                    return Err("--helm and --kustomize are there: leave one out".to_owned());
                }
                (Some(folder), None) => MadeManifests::Chart(folder),
                (None, Some(folder)) => MadeManifests::Kustomization(folder),
                (None, None) => MadeManifests::Yaml,
            };
            CliCommand::Manifests { namespace, image, made }
        }
        "rehearse" => {
            let seconds = options.take("at-most").unwrap_or_else(|| REHEARSAL.to_string());
            let seconds = seconds
                .parse()
                .map_err(|_| format!("--at-most is {seconds:?}: write seconds, such as 60"))?;
            CliCommand::Rehearse { at_most: Duration::from_secs(seconds), logs_json: options.logs_json()? }
        }
        "why" => {
            let mut operands = operands.into_iter();
            let (kind, key) = (operands.next().unwrap_or_default(), operands.next().unwrap_or_default());
            CliCommand::Why { kind, key, http: options.take("http") }
        }
        _ => CliCommand::Run(RunOptions { logs_json: options.logs_json()?, http: options.take("http") }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<CliCommand, String> {
        parse("ops", line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_command_line_says_what_to_do() {
        let served = |http: Option<&str>, logs_json| RunOptions { http: http.map(str::to_owned), logs_json };
        let rehearse =
            |seconds, logs_json| CliCommand::Rehearse { at_most: Duration::from_secs(seconds), logs_json };
        let some = |text: &str| Some(text.to_owned());
        let why = |http| CliCommand::Why { kind: "Website".to_owned(), key: "shop/a".to_owned(), http };
        for (line, wanted) in [
            ("", CliCommand::Run(served(None, false))),
            ("run --http off", CliCommand::Run(served(Some("off"), false))),
            ("--log-format=json", CliCommand::Run(served(None, true))),
            ("rehearse", rehearse(300, false)),
            ("rehearse --at-most 5 --log-format json", rehearse(5, true)),
            ("crd", CliCommand::Crd),
            ("rbac --namespace x", CliCommand::Rbac { namespace: some("x") }),
            (
                "manifests --image a:1 --helm out",
                CliCommand::Manifests {
                    namespace: None,
                    image: some("a:1"),
                    made: MadeManifests::Chart("out".to_owned()),
                },
            ),
            (
                "--kustomize=out manifests --namespace x",
                CliCommand::Manifests {
                    namespace: some("x"),
                    image: None,
                    made: MadeManifests::Kustomization("out".to_owned()),
                },
            ),
            ("why Website shop/a", why(None)),
            ("why --http :1 Website shop/a", why(some(":1"))),
            ("crd --help", CliCommand::Help),
            ("--version", CliCommand::Version),
        ] {
            assert_eq!(read(line), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn what_can_t_be_read_is_named_with_the_remedy() {
        for (line, wanted) in [
            ("walk", "unknown command \"walk\": the commands are run, crd, rbac, manifests, rehearse, why"),
            ("--fast", "unknown option \"--fast\""),
            ("-http", "unknown option \"-http\""),
            ("crd --image a", "`crd` has no option --image, which is for: manifests"),
            ("crd --http a", "`crd` has no option --http, which is for: run, why"),
            ("rehearse --at-most soon", "--at-most is \"soon\": write seconds, such as 60"),
            ("crd all", "`crd` does not take \"all\": leave it out"),
            ("why Website", "`why` needs KIND and KEY, as in `ops why Website shop/a`"),
            ("why a b c", "`why` does not take \"c\": leave it out"),
            ("--http", "--http needs a value: --http VALUE"),
            ("--http=", "--http needs a value: --http VALUE"),
            ("--http a --http b", "--http is there twice: leave one out"),
            ("--log-format xml", "--log-format is \"xml\": write text or json"),
            ("manifests --helm a --kustomize b", "--helm and --kustomize are there: leave one out"),
        ] {
            assert_eq!(read(line), Err(wanted.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_help_fits_on_a_screen_and_names_everything() {
        let help = help("ops");
        assert!(help.lines().count() <= 24 && help.lines().all(|line| line.len() <= 100), "{help}");
        for form in &FORMS {
            assert!(help.contains(&format!("\n  {}", form.name)), "{}", form.name);
            form.options.iter().for_each(|option| assert!(help.contains(&format!("--{option}")), "{option}"));
        }
    }
}
