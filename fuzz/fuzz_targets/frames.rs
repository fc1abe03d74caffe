//! A watch reads the same however its bytes are cut, and shows nothing that its lines do not say.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchkeeper::list_watch::ItemForm;
use watchkeeper_fuzz::{Manner, watched};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, body) = input;
    let pieces = Manner { chunk: usize::from(size) + 1, form: ItemForm::Typed };
    assert_eq!(watched(200, body, Manner::WHOLE), watched(200, body, pieces));
    let whole = Manner { form: ItemForm::Bytes, ..Manner::WHOLE };
    let pieces = Manner { form: ItemForm::Bytes, ..pieces };
    assert_eq!(watched(200, body, whole), watched(200, body, pieces));
});
