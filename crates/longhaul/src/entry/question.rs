//! What a person is asked, and what came of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that only a person can say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// What is asked, in words.
    pub text: String,
    /// What kind of answer is wanted.
    pub wants: Wants,
}

/// The kinds of answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wants {
    /// Whether this call may be made.
    Leave {
        /// The tool.
        tool: String,
        /// The arguments, as the model wrote them.
        arguments: String,
    },
    /// Words; JSON that fits the schema, where there is one.
    Words {
        /// The JSON schema of the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
    },
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A person answered: the words, or `yes`, `no` or `always`.
    Given(String),
    /// A person would not answer.
    Declined,
    /// Nobody was there, for this reason.
    Nobody(String),
}
