//! A list reads the same however its bytes are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchkeeper::list_watch::ItemForm;
use watchkeeper_fuzz::{Manner, listed};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, body) = input;
    let pieces = Manner { chunk: usize::from(size) + 1, form: ItemForm::Typed };
    assert_eq!(listed(200, body, Manner::WHOLE), listed(200, body, pieces));
    let whole = Manner { form: ItemForm::Bytes, ..Manner::WHOLE };
    let pieces = Manner { form: ItemForm::Bytes, ..pieces };
    assert_eq!(listed(200, body, whole), listed(200, body, pieces));
});
