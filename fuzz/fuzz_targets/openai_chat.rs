//! Chat completions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul::model::wire::openai_chat::{OpenAiChat, Quirks};
use longhaul_fuzz::Exam;

fuzz_target!(|data: &[u8]| {
    Exam { wire: &OpenAiChat::new(Quirks::for_provider("openai")), stops: &["finish_reason"] }.sit(data);
});
