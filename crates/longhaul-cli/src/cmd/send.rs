//! `longhaul send`.

use std::io::Read as _;

use longhaul::supervisor::LONGEST_TEXT;
use serde_json::json;

use super::Desk;
use crate::args::SendArgs;
use crate::exit::{Code, Trouble};
use crate::view::Ink;

pub(super) async fn run(desk: &Desk, args: &SendArgs) -> Result<Code, Trouble> {
    let text = words(&args.text)?;
    let longhaul = desk.client().await?;
    let id = longhaul.find(&args.id).await?;
    let sent = longhaul.send(id, text.trim_end()).await?;
    let (term, to, place) = (desk.term, sent.to, desk.place()?);
    let head = longhaul.head(to).await?;
    let background = match args.wait {
        true => Ok(false),
        false => super::hand_over(&longhaul, &place, &head, &args.outside).await,
    };
    let shown = term.paint(Ink::Id, &to.to_string());
    match (args.json, sent.continued) {
        (true, _) => {
            let background = background.unwrap_or_default();
            term.json(&json!({ "to": to, "continued": sent.continued, "background": background }))?;
        }
        (false, false) => {
            term.line(&format!("sent to {shown}"))?;
            super::told_who_runs(desk, &place, &head, background)?;
        }
        (false, true) => {
            let told = format!("{id} had ended: it is continued as {shown}, which will read your letter");
            term.line(&told)?;
            super::told_who_runs(desk, &place, &head, background)?;
        }
    }
    if args.wait {
        super::stay(desk, &longhaul, vec![to], &args.outside, args.json).await
    } else {
        Ok(Code::Fine)
    }
}

/// What was typed, or what is on standard input.
pub(super) fn words(typed: &[String]) -> Result<String, Trouble> {
    match typed {
        [dash] if dash == "-" => from_stdin(),
        words => Ok(words.join(" ")),
    }
}

/// All of standard input, or enough of it to see that it is too much.
fn from_stdin() -> Result<String, Trouble> {
    let unread =
        |error| Trouble::new(Code::Usage, format!("the message on standard input cannot be read: {error}"));
    let mut text = Vec::new();
    let mut input = std::io::stdin().lock();
    input.by_ref().take(LONGEST_TEXT as u64 + 1).read_to_end(&mut text).map_err(unread)?;
    // The rest is only counted, so that the error can say how long the message was.
    let rest = std::io::copy(&mut input, &mut std::io::sink()).map_err(unread)?;
    if text.len() > LONGEST_TEXT {
        let size = usize::try_from(rest).unwrap_or(usize::MAX).saturating_add(text.len());
        return Err(longhaul::LonghaulError::TooLong { what: "message", size, most: LONGEST_TEXT }.into());
    }
    String::from_utf8(text).map_err(|_| {
        Trouble::new(Code::Usage, "the message on standard input is not text (UTF-8)")
            .hint("put it in a file, and write the name of the file instead")
    })
}
