//! Whatever a server refuses with is classified, the same however it is cut, and never taken for a success.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchkeeper::list_watch::ItemForm;
use watchkeeper_fuzz::{WHOLE, answer::Manner, listed, watched};

fuzz_target!(|input: (u16, u8, &[u8])| {
    let (code, size, body) = input;
    let code = 300 + code % 300;
    let pieces = Manner { chunk: usize::from(size) + 1, form: ItemForm::Typed };
    let refused = listed(code, body, WHOLE);
    assert_eq!(refused, listed(code, body, pieces));
    assert_eq!(refused, watched(code, body, WHOLE));
    assert!(!refused.starts_with("ListPage"));
    // A Status in place of what was asked for, and one in the stream.
    let line = [b"{\"type\":\"ERROR\",\"object\":".as_slice(), body, b"}\n"].concat();
    assert_eq!(watched(200, &line, WHOLE), watched(200, &line, pieces));
});
