//! A watch reads the same however its bytes are cut, and its lines as `serde_json` reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchkeeper::list_watch::ItemForm;
use watchkeeper_fuzz::{WHOLE, answer::Manner, judged_watch};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, body) = input;
    for form in [ItemForm::Typed, ItemForm::Bytes] {
        let pieces = Manner { chunk: usize::from(size) + 1, form };
        assert_eq!(judged_watch(body, Manner { form, ..WHOLE }), judged_watch(body, pieces));
    }
});
