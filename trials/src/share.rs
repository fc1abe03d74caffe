//! Which of all trials are tried: a part of them, or those from one on.

use std::fmt;
use std::str::FromStr;

use crate::schedule::Schedule;

/// A share of all trials; all of them unless set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Which of how many parts, counted from 1.
    pub(crate) part: Option<(usize, usize)>,
    /// The first trial.
    pub(crate) from: Option<String>,
}

impl Share {
    /// Picks its trials; each part has some of all sorts.
    ///
    /// # Errors
    ///
    /// The trial to go on from does not exist.
    pub(crate) fn of(&self, all: Vec<Schedule>) -> Result<Vec<Schedule>, String> {
        let first = match &self.from {
            Some(from) => all.iter().position(|schedule| schedule.to_string() == *from).ok_or_else(|| {
                format!("there is no trial {from:?}: has the operator changed, the script, or the seed?")
            })?,
            None => 0,
        };
        let (number, parts) = self.part.unwrap_or((1, 1));
        let mine = |(at, _): &(usize, Schedule)| *at >= first && at % parts == number - 1;
        Ok(all.into_iter().enumerate().filter(mine).map(|(_, schedule)| schedule).collect())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part.map(|(number, parts)| format!("part {number}/{parts}"));
        let from = self.from.as_ref().map(|from| format!("from {from}"));
        let words: Vec<String> = part.into_iter().chain(from).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not of the form \"part 2/5\", \"from TRIAL\", or \"part 2/5 from TRIAL\"")
        };
        let (head, from) = match text.trim().split_once("from ") {
            Some((head, from)) if head.is_empty() || head.ends_with(' ') => {
                (head.trim(), Some(from.to_owned()))
            }
            _ => (text.trim(), None),
        };
        let part = match head {
            "" => None,
            head => {
                let (number, parts) =
                    head.strip_prefix("part ").and_then(|part| part.split_once('/')).ok_or_else(wrong)?;
                Some((
                    number.trim().parse().map_err(|_| wrong())?,
                    parts.trim().parse().map_err(|_| wrong())?,
                ))
            }
        };
        if part.is_some_and(|(number, parts): (usize, usize)| number == 0 || number > parts) {
            return Err(wrong());
        }
        Ok(Self { part, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // T15
    #[test]
    fn a_share_is_read_back_as_it_is_written() {
        for text in
            ["", "part 2/5", "from create configmaps shop/from a #1: lost", "part 1/3 from get x #2: slow"]
        {
            assert_eq!(text.parse::<Share>().map(|share| share.to_string()), Ok(text.to_owned()));
        }
        for text in ["2/5", "part 6/5", "part 0/5", "part 2", "part x/5", "nonsense from get x #1: lost"] {
            assert!(text.parse::<Share>().unwrap_err().contains("is not of the form"), "{text}");
        }
    }

    // T15
    #[test]
    fn the_parts_together_are_all_trials_and_each_once() {
        let schedule = |number: usize| {
            format!("get maps shop/a #{number}: lost").parse::<Schedule>().expect("it is one")
        };
        let all: Vec<Schedule> = (1..=23).map(schedule).collect();
        let share = |text: &str| text.parse::<Share>().and_then(|share| share.of(all.clone()));
        let mut found: Vec<String> = (1..=4)
            .flat_map(|part| share(&format!("part {part}/4")).unwrap())
            .map(|schedule| schedule.to_string())
            .collect();
        let mut wanted: Vec<String> = all.iter().map(ToString::to_string).collect();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
        assert_eq!(share("from get maps shop/a #20: lost").unwrap(), all[19..]);
        assert_eq!(
            share("part 2/4 from get maps shop/a #10: lost").unwrap(),
            [schedule(10), schedule(14), schedule(18), schedule(22)]
        );
        assert!(share("from get maps shop/b #20: lost").unwrap_err().contains("there is no trial"));
    }
}
