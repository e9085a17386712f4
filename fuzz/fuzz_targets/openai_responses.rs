//! OpenAI's responses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul::model::wire::openai_responses::OpenAiResponses;
use longhaul_fuzz::Exam;

fuzz_target!(|data: &[u8]| {
    Exam {
        wire: &OpenAiResponses::new(),
        stops: &["response.completed", "response.done", "response.incomplete", "status"],
    }
    .sit(data);
});
