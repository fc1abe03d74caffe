//! The scanner beside `serde_json`: it accepts what that accepts, ends where that ends, however the text is cut.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::*;
use crate::list_watch::{
    cut::Cutter,
    json::{Flaw, Json},
};

/// Returns whether `serde_json` reads a text; of how deep it is nested the scanner only keeps count.
fn oracle(text: &[u8]) -> bool {
    let mut oracle = Deserializer::from_slice(text);
    let read: serde_json::Result<IgnoredAny> = serde::Deserialize::deserialize(&mut oracle);
    read.is_ok() && oracle.end().is_ok() && std::str::from_utf8(text).is_ok()
}

/// Reads a text in pieces of a size, as it grows.
fn in_pieces(text: &[u8], size: usize) -> Result<Scan, Malformed> {
    let mut scanner = Scanner::default();
    let mut end = size.min(text.len());
    loop {
        match scanner.scan(&text[..end], &mut ())? {
            Scan::GoesOn if end < text.len() => end = (end + size).min(text.len()),
            scan => return Ok(scan),
        }
    }
}

/// Finds the end of a value in brackets, in pieces of a size.
fn cut_in_pieces(text: &[u8], size: usize) -> Option<usize> {
    let mut cutter = Cutter::default();
    let ends = (1..).map(|n: usize| n.saturating_mul(size).min(text.len()));
    ends.take(text.len()).find_map(|end| cutter.end(&text[..end]))
}

fn check(text: &[u8]) {
    let read = Json::read(text);
    assert_eq!(read.is_ok(), oracle(text), "{:?}", String::from_utf8_lossy(text));
    // What may go on is told as such, or a body that breaks off would be taken for garbage. Where a number or an
    // escape is short of digits the oracle misses them at the end of the text, and may say the same.
    let ends = serde_json::from_slice::<IgnoredAny>(text).is_err_and(|error| error.is_eof());
    let short_of_digits = text.contains(&b'u') || text.last().is_some_and(|last| b"-+.eE".contains(last));
    assert!(!ends || short_of_digits || read == Err(Flaw::CutShort), "{:?}", String::from_utf8_lossy(text));
    let whole = in_pieces(text, usize::MAX);
    if let (Ok(Scan::Ends(end)), [b'{' | b'[', ..]) = (whole, text) {
        for size in [1, 2, 7, usize::MAX] {
            assert_eq!(cut_in_pieces(text, size), Some(end), "{:?}", String::from_utf8_lossy(text));
        }
    }
    for size in [1, 2, 3, 7] {
        assert_eq!(in_pieces(text, size), whole, "{:?}", String::from_utf8_lossy(text));
    }
}

// R48
#[test]
fn it_accepts_what_serde_json_accepts() {
    let values = [
        "0",
        "-0",
        "-",
        "01",
        "-01",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1E+5",
        "1e",
        "1e-",
        "1e999",
        "-1e999",
        "1e-999",
        "0e999",
        "18446744073709551616",
        "123456789012345678901234567890",
        "+1",
        "1_0",
        "0x1",
        "NaN",
        "Infinity",
        "true",
        "tru",
        "truex",
        "True",
        "false",
        "null",
        "nul",
        "nulll",
        "\"\"",
        "\"a",
        "\"\\\"",
        "\"\\",
        "\"\\q\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\u00e4\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\n\"",
        "\"\\ud83dx\"",
        "\"\\ud83d\\ud83d\"",
        "\"\\u\"",
        "\"\t\"",
        "\"\n\"",
        "\"\u{7f}\"",
        "\"\u{1f}\"",
        "\"ä😀\"",
        "'a'",
        "a",
        "{}",
        "{",
        "}",
        "[]",
        "[",
        "]",
        "[}",
        "{]",
        "[,]",
        "[1,]",
        "[1 2]",
        "[1,,2]",
        "{,}",
        "{1:2}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\" 1}",
        "{\"a\":1}}",
        "[[]",
        "[]]",
        "{\"a\":1}{",
        "1 2",
        "//",
        "/**/1",
        "",
        " ",
        "\u{feff}1",
        "\u{a0}1",
        "\u{c}1",
        "\u{0}",
    ];
    for value in values {
        for text in [
            value.to_owned(),
            format!(" {value}\r\n\t"),
            format!("[{value}]"),
            format!("[1,{value} ,[]]"),
            format!("{{\"a\":{value}}}"),
            format!("{{{value}:1}}"),
            format!("{{\"a\" : {value} , \"b\":{{}}}}"),
        ] {
            check(text.as_bytes());
        }
    }
    check(format!("[{}]", "1".repeat(400)).as_bytes());
    check(format!("[{}.5]", "1".repeat(300)).as_bytes());
    for bad in [
        b"\"\xff\"".as_slice(),
        b"\"\xc3\"",
        b"\"\xe2\x82\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xc0\xaf\"",
        b"\xff",
        b"[\xc3\xa4]",
    ] {
        check(bad);
        check(&[b"{\"a\":[", bad, b"]}"].concat());
    }
}

// R48
#[test]
fn brackets_match_at_any_depth() {
    for depth in [1, 63, 64, 65, 127, 128, 129, 1_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
            let text = [open.repeat(depth), "1".to_owned(), close.repeat(depth)].concat();
            let mut scanner = Scanner::default();
            assert_eq!(scanner.scan(text.as_bytes(), &mut ()), Ok(Scan::Ends(text.len())));
            assert_eq!(scanner.deepest(), depth * close.len());
            // Each bracket in turn closed by one of the other sort.
            for at in text.len() - depth * close.len()..text.len() {
                let mut wrong = text.clone().into_bytes();
                wrong[at] = if wrong[at] == b']' { b'}' } else { b']' };
                assert_eq!(Scanner::default().scan(&wrong, &mut ()), Err(Malformed), "{depth} {at}");
            }
        }
    }
}

#[test]
fn a_value_ends_at_the_same_byte_however_it_is_cut() {
    let text = br#" {"a":"\\\"}","b":[[],{"c":-1.5e3}],"d":[true,false,null,"\ud83d\ude00"]},"#;
    for size in 1..text.len() {
        assert_eq!(in_pieces(text, size), Ok(Scan::Ends(text.len() - 1)), "{size}");
    }
}

/// Strings, keys and brackets stand side by side, as nearly always, and apart.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"a\":",
    "\"b\":{",
    "\"c\":\"d\",",
    "1",
    "null",
    " ",
    "\"\\u00e9\"",
    "\"",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    // R48
    #[test]
    fn json_like_text_reads_as_serde_json_reads_it(text in "[{}\\[\\]:,\"\\\\a1 nu0e.\\-\t]{0,24}") {
        check(text.as_bytes());
    }

    // R48
    #[test]
    fn tokens_in_any_order_read_as_serde_json_reads_them(
        tokens in prop::collection::vec(prop::sample::select(TOKENS), 0..14)
    ) {
        check(tokens.concat().as_bytes());
    }

    // R48
    #[test]
    fn strings_read_as_serde_json_reads_them(text in "\"[\\\\udD83c0eE\"nä\u{1}/]{0,16}\"") {
        check(text.as_bytes());
    }

    // R48
    #[test]
    fn numbers_read_as_serde_json_reads_them(text in "[-+0-9.eE]{0,12}") {
        check(text.as_bytes());
        check(format!("[{text}]").as_bytes());
    }

    // R48
    #[test]
    fn bytes_in_a_string_read_as_serde_json_reads_them(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        check(&[b"[\"", &*bytes, b"\"]"].concat());
    }
}
