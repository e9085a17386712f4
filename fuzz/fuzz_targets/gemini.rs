//! Gemini's answers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul::model::wire::Gemini;
use longhaul_fuzz::Exam;

fuzz_target!(|data: &[u8]| {
    Exam { wire: &Gemini, stops: &["finishReason", "blockReason"] }.sit(data);
});
