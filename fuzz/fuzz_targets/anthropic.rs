//! Anthropic's messages.

#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul::model::wire::Anthropic;
use longhaul_fuzz::Exam;

fuzz_target!(|data: &[u8]| {
    Exam { wire: &Anthropic, stops: &["stop_reason"] }.sit(data);
});
