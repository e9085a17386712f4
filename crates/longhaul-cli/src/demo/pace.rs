//! A model that replies slowly enough for a person to watch.

use std::str::FromStr;
use std::time::Duration;

use futures::StreamExt as _;
use longhaul::model::{Model, ModelRequest, ReplyStream};

use crate::view::text_format::InvalidArgument;

/// The pace of the demo: 1 is made for watching, 0 does not wait at all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DemoPace(f64);

impl DemoPace {
    /// No waiting at all.
    #[cfg(test)]
    pub(crate) const NONE: DemoPace = DemoPace(0.0);

    fn scale(self, time: Duration) -> Duration {
        time.mul_f64(self.0)
    }
}

impl Default for DemoPace {
    fn default() -> Self {
        DemoPace(1.0)
    }
}

impl FromStr for DemoPace {
    type Err = InvalidArgument;

    fn from_str(text: &str) -> Result<Self, InvalidArgument> {
        let pace: f64 = text.parse().map_err(|_| InvalidArgument("a pace is a number: 0, 0.5, 1, 3 …"))?;
        if (0.0..=1000.0).contains(&pace) {
            Ok(DemoPace(pace))
        } else {
            Err(InvalidArgument("a pace is from 0 to 1000"))
        }
    }
}

/// The delay before the first piece of a reply.
const THINKS: Duration = Duration::from_millis(850);
/// The delay between two pieces.
const SPEAKS: Duration = Duration::from_millis(70);

/// A model that waits before it replies and between pieces.
pub(super) struct PacedModel<M> {
    model: M,
    pace: DemoPace,
}

impl<M> PacedModel<M> {
    pub(super) fn new(model: M, pace: DemoPace) -> Self {
        PacedModel { model, pace }
    }

    /// Varies by agent and turn, but is the same in every run.
    fn thinking_time(&self, request: &ModelRequest<'_>) -> Duration {
        let letters = request.agent.as_str().bytes().map(u32::from).sum::<u32>() + request.turn * 3;
        self.pace.scale(THINKS + THINKS * (letters % 7) / 8)
    }
}

impl<M: Model> Model for PacedModel<M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn stream<'a>(&'a self, request: ModelRequest<'a>) -> ReplyStream<'a> {
        let (first, then) = (self.thinking_time(&request), self.pace.scale(SPEAKS));
        self.model
            .stream(request)
            .enumerate()
            .then(move |(index, piece)| async move {
                let wait = if index == 0 { first } else { then };
                if !wait.is_zero() {
                    tokio::time::sleep(wait).await;
                }
                piece
            })
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_a_number_that_makes_sense() {
        assert_eq!("0".parse(), Ok(DemoPace(0.0)));
        assert_eq!("1.5".parse(), Ok(DemoPace(1.5)));
        for wrong in ["", "fast", "-1", "NaN", "inf", "1e9"] {
            assert!(wrong.parse::<DemoPace>().is_err(), "{wrong}");
        }
    }
}
