//! Runs blocking code on a thread where blocking is allowed.

use crate::tool::ToolError;

/// Runs `f` on a blocking thread and returns its result. A panic in it panics the caller.
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
