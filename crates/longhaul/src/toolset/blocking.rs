//! Does what blocks where it blocks nobody.

use crate::tool::ToolError;

/// Runs this on a thread of its own. A panic in it is the caller's.
pub(super) async fn run_blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::Failed("the program is ending".to_owned())),
        },
    }
}
