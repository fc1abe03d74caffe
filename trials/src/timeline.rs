//! What happened in a trial, for people.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

/// Actor did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Operator,
    /// The version that is upgraded.
    Old,
    /// The version to which it is upgraded.
    New,
    User,
    Stranger,
    /// What the server did with a request whose answer nobody hears.
    Server,
    /// A watch shows the operator something.
    Watch,
    /// What goes wrong.
    Trouble,
    /// What explains the end.
    Note,
}

impl Actor {
    /// Returns whether it is the operator, of any version.
    pub(crate) fn is_operator(self) -> bool {
        matches!(self, Self::Operator | Self::Old | Self::New)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Old => "old",
            Self::New => "new",
            Self::User => "user",
            Self::Stranger => "stranger",
            Self::Server => "server",
            Self::Watch => "  watch",
            Self::Trouble => "TROUBLE",
            Self::Note => "note",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) who: Actor,
    pub(crate) text: String,
}

/// The most steps of a story that are shown; those far from its trouble and its end are left out.
const SHOWN: usize = 80;
/// How many of these are its last.
const LAST: usize = 30;
/// How wide a text may be, in columns: with what precedes it, a line fits in a hundred.
const WIDE: usize = 70;
/// The most steps in one repetition.
const CYCLE: usize = 24;
/// How often something must follow itself to be told once.
const OFTEN: usize = 3;

/// One step of a story, or the repetition of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// The line at this place.
    Step(usize),
    /// The steps just before are repeated this many times more, until the line at this place.
    Again { steps: usize, times: usize, until: usize },
    /// So many more requests get the answer of the step just before, until the line at this place.
    Alike { times: usize, until: usize },
}

/// How much of a story is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// What is near its trouble and its end.
    Short,
    /// All of it.
    Whole,
}

/// Writes the lines as numbered steps; gives how many there are as well.
pub(crate) fn steps(lines: &[Line], length: Length) -> (String, usize) {
    let mut out = String::new();
    let all = folded(lines);
    let (first, then) = match length {
        Length::Short => kept(lines, &all),
        Length::Whole => (0..all.len(), all.len()..all.len()),
    };
    if first.start > 0 {
        let _infallible = writeln!(out, "      … {} steps before", first.start);
    }
    write_steps(&mut out, lines, &all, first.clone());
    if then.start > first.end {
        let _infallible = writeln!(out, "      … {} steps between", then.start - first.end);
    }
    write_steps(&mut out, lines, &all, then);
    (out, all.len())
}

/// Says which steps are shown: those around the trouble, and the last.
fn kept(lines: &[Line], all: &[Shown]) -> (Range<usize>, Range<usize>) {
    if all.len() <= SHOWN {
        return (0..all.len(), all.len()..all.len());
    }
    let (near, last) = (SHOWN - LAST, all.len() - LAST);
    let from = around_trouble(lines, all, near).min(last.saturating_sub(near));
    (from..from + near, last..all.len())
}

fn write_steps(out: &mut String, lines: &[Line], all: &[Shown], which: Range<usize>) {
    for number in which {
        let seconds = |until: &usize| lines[*until].at.as_secs_f64();
        let _infallible = match &all[number] {
            Shown::Step(at) => writeln!(out, "{:>4}. {}", number + 1, written(&lines[*at])),
            Shown::Again { steps, times, until } => {
                let (from, to) = (number + 1 - steps, number);
                let what = if from == to { format!("step {to}") } else { format!("steps {from} to {to}") };
                let until = seconds(until);
                writeln!(out, "{:>4}. {until:>9.3}s  … {what}, {times} times more until now", number + 1)
            }
            Shown::Alike { times, until } => {
                let until = seconds(until);
                let what = format!("{times} requests more until now, answered as step {number}");
                writeln!(out, "{:>4}. {until:>9.3}s  … {what}", number + 1)
            }
        };
    }
}

/// Writes a line; its further lines are aligned with the text.
fn written(Line { at, who, text }: &Line) -> String {
    let mut out = format!("{:>9.3}s  {:<8}  ", at.as_secs_f64(), who.word());
    for (number, line) in text.lines().enumerate() {
        // Differences stay as they are: a line of them is a line of YAML.
        let parts = if number == 0 { wrapped(line) } else { vec![line.to_owned()] };
        for (part, text) in parts.iter().enumerate() {
            match (number, part) {
                (0, 0) => {}
                (0, _) => drop(write!(out, "\n{:>32}", "")),
                _ => drop(write!(out, "\n{:>30}", "")),
            }
            out += text;
        }
    }
    out
}

/// Breaks a line that is too wide: before what is in brackets, behind the request that a trouble strikes, else
/// between words.
fn wrapped(line: &str) -> Vec<String> {
    if line.chars().count() <= WIDE {
        return vec![line.to_owned()];
    }
    let (line, aside) = line.split_once("  [").map_or((line, None), |(line, aside)| (line, Some(aside)));
    let (head, tail) = match line.split_once(": ") {
        Some((head, tail)) if line.chars().count() > WIDE && !head.contains('→') => {
            (format!("{head}:"), tail)
        }
        _ => (line.to_owned(), ""),
    };
    let aside = aside.map(|aside| format!("[{aside}"));
    let clauses = [Some(head), Some(tail.to_owned()), aside].into_iter().flatten();
    clauses.filter(|clause| !clause.is_empty()).flat_map(|clause| between_words(&clause)).collect()
}

fn between_words(clause: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in clause.split_inclusive(' ') {
        let part = parts.last_mut().expect("there is one from the start");
        // All but the first part of a line are indented.
        if part.chars().count() + word.trim_end().chars().count() > WIDE - 2 && !part.is_empty() {
            parts.push(word.to_owned());
        } else {
            part.push_str(word);
        }
    }
    parts.iter().map(|part| part.trim_end().to_owned()).collect()
}

/// Tells once what follows itself again and again.
fn folded(lines: &[Line]) -> Vec<Shown> {
    let keys: Vec<(Actor, String)> = lines.iter().map(|line| (line.who, alike(&line.text))).collect();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < keys.len() {
        let best = (1..=CYCLE.min(keys.len() - at))
            .map(|cycle| (cycle, repeated(&keys[at..], cycle)))
            .filter(|(_, times)| *times >= OFTEN)
            .max_by_key(|(cycle, times)| (cycle * times, std::cmp::Reverse(*cycle)));
        let (cycle, times) = best.unwrap_or((1, 1));
        let refused = refused_alike(&lines[at..]);
        if refused > OFTEN && refused >= cycle * times {
            out.extend([Shown::Step(at), Shown::Alike { times: refused - 1, until: at + refused - 1 }]);
            at += refused;
            continue;
        }
        out.extend((at..at + cycle).map(Shown::Step));
        if times > 1 {
            let until = at + cycle * times - 1;
            out.push(Shown::Again { steps: cycle, times: times - 1, until });
        }
        at += cycle * times;
    }
    out
}

/// Counts how many requests follow one another that get no answer, or the same refusal.
fn refused_alike(lines: &[Line]) -> usize {
    let refusal = |line: &Line| -> Option<String> {
        let (_, answer) = line.text.split_once(" → ").filter(|_| line.who.is_operator())?;
        let is_taken = answer.starts_with(['1', '2', '3']) || answer.contains('\n');
        (!is_taken).then(|| answer.to_owned())
    };
    let Some(first) = lines.first().and_then(refusal) else { return 0 };
    lines.iter().take_while(|line| refusal(line).as_ref() == Some(&first)).count()
}

/// Counts how often the first few follow one another, themselves included.
fn repeated(keys: &[(Actor, String)], cycle: usize) -> usize {
    1 + keys[cycle..].chunks_exact(cycle).take_while(|next| **next == keys[..cycle]).count()
}

/// A text without its numbers, and without the ends of names that a server chose, by which it is known again.
fn alike(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive([' ', '/', ',', '\n']) {
        let name = word.trim_end_matches([' ', '/', ',', '\n']);
        match name.rsplit_once('-').filter(|(_, end)| is_chosen(end)) {
            Some((prefix, end)) => {
                without_numbers(prefix, &mut out);
                out.push('*');
                out.push_str(&word[prefix.len() + 1 + end.len()..]);
            }
            None => without_numbers(word, &mut out),
        }
    }
    out
}

/// Returns whether this is what a server appends to `generateName`: five letters or digits, no vowels.
fn is_chosen(end: &str) -> bool {
    end.len() == 5 && end.bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte))
}

fn without_numbers(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(letter),
        }
    }
}

/// Finds where to begin, so that the trouble is seen with what led there.
fn around_trouble(lines: &[Line], all: &[Shown], near: usize) -> usize {
    let is_trouble = |shown: &Shown| matches!(shown, Shown::Step(at) if lines[*at].who == Actor::Trouble);
    all.iter().position(is_trouble).unwrap_or(0).saturating_sub(near / 2)
}

/// Writes the lines as a Mermaid sequence diagram.
pub(crate) fn mermaid(lines: &[Line]) -> String {
    let has = |actor| lines.iter().any(|line| line.who == actor);
    let mut out = "sequenceDiagram\n    autonumber\n    participant U as user\n".to_owned();
    out += if has(Actor::Old) {
        "    participant O as old version\n"
    } else {
        "    participant O as operator\n"
    };
    out += if has(Actor::New) { "    participant N as new version\n" } else { "" };
    out += "    participant S as API server\n    participant X as somebody else\n";
    for shown in folded(lines) {
        let _infallible = match shown {
            Shown::Again { steps, times, .. } => {
                writeln!(out, "    Note over O,S: the last {steps} steps, {times} times more")
            }
            Shown::Alike { times, .. } => {
                writeln!(out, "    Note over O,S: {times} requests more are answered so")
            }
            Shown::Step(at) => write!(out, "{}", drawn(&lines[at])),
        };
    }
    out
}

fn drawn(Line { who, text, .. }: &Line) -> String {
    // Of these a diagram takes the first for an end of line, the second for the beginning of a number.
    let text = text.lines().next().unwrap_or_default().replace(';', ",").replace('#', "no. ");
    match who {
        Actor::Operator | Actor::Old | Actor::New => {
            let from = if *who == Actor::New { 'N' } else { 'O' };
            match text.split_once(" → ") {
                Some((request, answer)) => format!("    {from}->>S: {request}\n    S-->>{from}: {answer}\n"),
                None => format!("    Note over {from}: {text}\n"),
            }
        }
        Actor::User => format!("    U->>S: {text}\n"),
        Actor::Stranger => format!("    X->>S: {text}\n"),
        Actor::Server => format!("    Note over S: {text}\n"),
        Actor::Note => format!("    Note over O,S: {text}\n"),
        Actor::Watch => format!("    S--)O: {text}\n"),
        Actor::Trouble => format!("    Note over O,S: {text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(who: Actor, text: &str) -> Line {
        Line { at: Duration::from_millis(1500), who, text: text.to_owned() }
    }

    // T6
    #[test]
    fn steps_are_numbered_and_timed() {
        let (told, count) = steps(
            &[line(Actor::User, "create Site a"), line(Actor::Operator, "get sites → 200")],
            Length::Short,
        );
        assert_eq!(count, 2);
        assert!(told.contains("   1.     1.500s  user      create Site a\n"), "{told}");
        assert!(told.contains("   2.     1.500s  operator  get sites → 200"), "{told}");
    }

    #[test]
    fn a_long_story_shows_its_trouble() {
        let letters = |number: usize| "x".repeat(number % 71 + 1);
        let mut lines: Vec<Line> = (0..500).map(|number| line(Actor::Operator, &letters(number))).collect();
        lines[300] = line(Actor::Trouble, "here");
        let (told, count) = steps(&lines, Length::Short);
        assert_eq!(count, 500);
        assert!(told.contains("here") && told.contains("steps before") && told.contains("steps between"));
        assert!(told.contains(" 500. "), "how it ended is shown");
        assert!(told.lines().count() <= SHOWN + 2 + 80, "{told}");
        let (told, count) = steps(&lines, Length::Whole);
        assert_eq!(count, 500);
        let all = (1..=500).all(|number| told.contains(&format!("\n{number:>4}. ")) || number == 1);
        assert!(all && !told.contains("steps before") && !told.contains("steps between"), "{told}");
    }

    // T6
    #[test]
    fn what_is_refused_alike_is_told_once() {
        let mut lines = vec![line(Actor::Operator, "get sites → 200")];
        for kind in ["sites", "maps", "sites", "leases", "maps"] {
            lines.push(line(Actor::Operator, &format!("list {kind} → the server is out of reach")));
        }
        lines.push(line(Actor::Operator, "get sites → 200"));
        let (told, count) = steps(&lines, Length::Short);
        assert_eq!(count, 4, "{told}");
        assert!(
            told.contains("   3.     1.500s  … 4 requests more until now, answered as step 2\n"),
            "{told}"
        );
        assert!(mermaid(&lines).contains("4 requests more are answered so"));
    }

    // T6
    #[test]
    fn a_line_fits_a_hundred_columns() {
        let long = "list things → ".to_owned() + &"word ".repeat(60);
        let (told, _) = steps(&[line(Actor::Operator, &long)], Length::Short);
        assert!(told.lines().count() > 3 && told.lines().all(|line| line.chars().count() <= 100), "{told}");
        assert_eq!(told.matches("word").count(), 60);
    }

    // T6
    #[test]
    fn what_repeats_itself_is_told_once() {
        let mut lines = vec![line(Actor::Trouble, "here")];
        for version in 0..50 {
            lines.push(line(Actor::Operator, "get sites → 200"));
            lines.push(line(Actor::Operator, &format!("patch sites → 200, version {version}")));
        }
        lines.push(line(Actor::User, "is done"));
        let (told, count) = steps(&lines, Length::Short);
        assert_eq!(count, 5);
        assert!(told.contains("   4.     1.500s  … steps 2 to 3, 49 times more until now\n"), "{told}");
        assert!(told.contains("   5.     1.500s  user      is done"), "{told}");
        assert!(mermaid(&lines).contains("the last 2 steps, 49 times more"));
    }

    #[test]
    fn what_is_told_is_known_again_whatever_was_chosen() {
        let one = alike("create configmaps shop/a-* → 201, made a-x7f2k, version 12");
        assert_eq!(one, alike("create configmaps shop/a-* → 201, made a-bbbbb, version 7"));
        assert_ne!(one, alike("create configmaps shop/a-* → 201, made a-copies, version 7"));
        assert_eq!(alike("get configmaps shop/a-x7f2k → 200"), alike("get configmaps shop/a-bbbbb → 200"));
    }

    #[test]
    fn a_difference_stands_below_its_step() {
        let (told, _) =
            steps(&[line(Actor::Operator, "patch sites → 200\n+ spec:\n+   size: 2")], Length::Short);
        let at = told.lines().next().and_then(|line| line.find("patch")).expect("it is there");
        assert_eq!(told.lines().nth(1).and_then(|line| line.find("+ spec")), Some(at + 2), "{told}");
    }

    #[test]
    fn a_diagram_shows_requests_with_their_answers() {
        let drawn = mermaid(&[line(Actor::Operator, "get sites → 200"), line(Actor::Watch, "ADDED sites a")]);
        assert!(drawn.contains("O->>S: get sites\n    S-->>O: 200\n    S--)O: ADDED sites a"), "{drawn}");
    }
}
