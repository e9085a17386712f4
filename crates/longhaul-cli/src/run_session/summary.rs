//! What is printed when a session has ended.

use jiff::Timestamp;

use super::RunSession;
use crate::exit::{CliError, CliExitCode};
use crate::presenter::{OutputMode, Presenter};
use crate::run_exit_code::exit_code_of_run;
use crate::view::{Ink, OutputStream, TerminalOutput, pluralize, sanitize, summary_table};

impl RunSession<'_> {
    /// Prints the answers and a summary, and returns the exit code.
    pub(super) async fn print_summary(&self, presenter: &mut Presenter<'_>) -> Result<CliExitCode, CliError> {
        presenter.clear()?;
        let (term, states) = (self.context.term, self.task_states().await?);
        let for_people = self.mode == OutputMode::Human;
        // A closed output does not change how the tasks ended.
        let line = |term: TerminalOutput, text: &str| CliError::ignore_closed_output(term.print_line(text));
        if self.mode != OutputMode::Silent {
            for subject in &self.reported_tasks {
                // Mark it as read, so that `longhaul prune` may delete it later.
                let _ = self.longhaul.mark_read(*subject).await;
            }
        }
        if for_people || self.mode == OutputMode::Quiet {
            for (index, state) in
                states.iter().filter(|state| self.reported_tasks.contains(&state.id)).enumerate()
            {
                let output = self.longhaul.output(state.id).await?;
                // The live block leaves an empty line behind, and the answer may go to another stream.
                let here =
                    state.error.is_some() || state.cut_short.is_some() || term.stream == OutputStream::Stdout;
                if for_people && (index > 0 || (!term.live && here)) {
                    line(term, "")?;
                }
                if let Some(error) = &state.error {
                    let word = term.paint(Ink::for_status(state.status), state.status.as_str());
                    line(term, &term.wrap(&format!("{} {word}: {}", state.id, sanitize(error))))?;
                    if !output.trim().is_empty() {
                        line(term, "What it had said by then:")?;
                        line(term, &term.wrap(sanitize(&output).trim_end()))?;
                    }
                }
                if let Some(limit) = &state.cut_short {
                    let word = term.paint(Ink::Attention, "cut short");
                    line(term, &term.wrap(&format!("{} {word} by {}", state.id, sanitize(limit))))?;
                }
                // Answers go to stdout; everything else goes to the progress stream.
                if state.error.is_none() && !output.trim().is_empty() {
                    let out = TerminalOutput::for_stream(OutputStream::Stdout);
                    presenter
                        .answer_lines(state.id, &output)
                        .iter()
                        .try_for_each(|styled| line(out, &styled.text))?;
                }
            }
        }
        if for_people {
            line(term, "")?;
            for row in summary_table(&states, term, Timestamp::now()) {
                line(term, &row)?;
            }
        }
        let (mut code, why) = exit_code_of_run(&self.longhaul, &states, &self.reported_tasks).await?;
        if self.mode != OutputMode::Silent {
            for why in why {
                self.context.note(&why);
            }
        }
        let denied: u32 = states.iter().map(|state| state.denied).sum();
        if denied > 0 && self.mode != OutputMode::Silent {
            let (calls, was) = (pluralize(denied as usize, "call"), if denied == 1 { "was" } else { "were" });
            self.context.note(&format!(
                "{calls} {was} denied because no one was there to approve: allow them in `permissions`, or use --unattended \
                 wait or --yolo"
            ));
        }
        if denied > 0 && self.fail_on_denied && code == CliExitCode::Success {
            code = CliExitCode::NeedsInput;
        }
        let ended = states.iter().find(|state| self.reported_tasks.contains(&state.id));
        if let Some(state) = ended {
            self.notifier.notify(&format!("{} {}: {}", state.agent, state.status, state.headline));
        }
        Ok(code)
    }
}
