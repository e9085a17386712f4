//! `longhaul send`.

use std::io::Read as _;

use longhaul::supervisor::MAX_TEXT_BYTES;
use serde_json::json;

use super::CliContext;
use crate::args::SendArgs;
use crate::exit::{CliError, CliExitCode};
use crate::view::Ink;

pub(super) async fn run(context: &CliContext, args: &SendArgs) -> Result<CliExitCode, CliError> {
    let text = join_or_read_stdin(&args.text)?;
    let longhaul = context.client().await?;
    let id = longhaul.find(&args.id).await?;
    let sent = longhaul.send(id, text.trim_end()).await?;
    let (term, to, data_dir) = (context.term, sent.to, context.data_dir()?);
    let state = longhaul.state(to).await?;
    let background = match args.wait {
        true => Ok(false),
        false => super::start_background_process(&longhaul, &data_dir, &state, &args.providers).await,
    };
    let shown = term.paint(Ink::Id, &to.to_string());
    match (args.json, sent.continued) {
        (true, _) => {
            let background = background.unwrap_or_default();
            term.print_json(&json!({ "to": to, "continued": sent.continued, "background": background }))?;
        }
        (false, false) => {
            term.print_line(&format!("sent to {shown}"))?;
            super::report_who_runs(context, &data_dir, &state, background)?;
        }
        (false, true) => {
            let text = format!("{id} had ended: it is continued as {shown}, which will read your letter");
            term.print_line(&text)?;
            super::report_who_runs(context, &data_dir, &state, background)?;
        }
    }
    if args.wait {
        super::wait_until_ended(context, &longhaul, vec![to], &args.providers, args.json).await
    } else {
        Ok(CliExitCode::Success)
    }
}

/// Joins the arguments, or reads stdin for `-`.
pub(super) fn join_or_read_stdin(typed: &[String]) -> Result<String, CliError> {
    match typed {
        [dash] if dash == "-" => from_stdin(),
        words => Ok(words.join(" ")),
    }
}

/// Reads stdin, up to the size limit.
fn from_stdin() -> Result<String, CliError> {
    let unread = |error| {
        CliError::new(CliExitCode::Usage, format!("the message on standard input cannot be read: {error}"))
    };
    let mut text = Vec::new();
    let mut input = std::io::stdin().lock();
    input.by_ref().take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut text).map_err(unread)?;
    // Only count the rest, so that the error can say how long the message was.
    let rest = std::io::copy(&mut input, &mut std::io::sink()).map_err(unread)?;
    if text.len() > MAX_TEXT_BYTES {
        let size = usize::try_from(rest).unwrap_or(usize::MAX).saturating_add(text.len());
        return Err(longhaul::LonghaulError::TooLong { what: "message", size, most: MAX_TEXT_BYTES }.into());
    }
    String::from_utf8(text).map_err(|_| {
        CliError::new(CliExitCode::Usage, "the message on standard input is not text (UTF-8)")
            .with_hint("put it in a file, and send the name of the file instead")
    })
}
