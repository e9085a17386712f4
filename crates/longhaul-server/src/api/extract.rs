//! What handlers take from a request. Whatever is wrong with it is answered with a problem that names it.

use std::marker::PhantomData;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use http::StatusCode;
use http::request::Parts;
use longhaul::TaskId;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;

use crate::problem::ProblemDocument;

/// A body of JSON.
pub(super) struct Payload<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Payload<T> {
    type Rejection = ProblemDocument;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDocument> {
        match Json::<JsonObject<T>>::from_request(request, state).await {
            Ok(Json(JsonObject(value))) => Ok(Payload(value)),
            Err(rejection) => Err(bad_body(&rejection)),
        }
    }
}

/// What a JSON object has. Serde alone takes an array for a struct, too.
struct JsonObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        object(from).map(JsonObject)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Reads a JSON object, and nothing else.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(ObjectVisitor(PhantomData))
}

fn bad_body(rejection: &JsonRejection) -> ProblemDocument {
    let detail = rejection.body_text();
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ProblemDocument::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", "The request is too long", detail)
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            let title = "The media type is not supported";
            ProblemDocument::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", title, detail)
                .with_hint("send JSON, with the header `Content-Type: application/json`")
        }
        _ => ProblemDocument::invalid(detail),
    }
}

/// The query.
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ProblemDocument;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDocument> {
        let read: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        read.map(|Query(value)| Params(value))
            .map_err(|rejection| ProblemDocument::invalid(rejection.body_text()))
    }
}

/// The task in the path.
pub(super) struct Id(pub(super) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ProblemDocument;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDocument> {
        let read: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        let Path(text) = read.map_err(|rejection| ProblemDocument::invalid(rejection.body_text()))?;
        task_id(&text).map(Id)
    }
}

/// The task in the path, for the API's description.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "`Id` is what handlers take")]
pub(super) struct TaskPath {
    /// The task.
    #[param(pattern = "^t-[0-9a-hjkmnp-tv-z]{5,15}$")]
    id: String,
}

/// The task with this id, by its form alone.
pub(super) fn task_id(text: &str) -> Result<TaskId, ProblemDocument> {
    text.parse().map_err(|error: longhaul::id::ParseTaskIdError| ProblemDocument::invalid(error.to_string()))
}

/// A whole number, or nothing. JSON Schema counts 10.0 as one.
pub(super) fn whole_number<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    // Larger ones are not exact as floating point.
    let exact = |float: &f64| float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(float);
    let whole = number.as_u64().or_else(|| number.as_f64().filter(exact).map(|float| float as u64));
    let fits = whole.and_then(|whole| T::try_from(whole).ok());
    fits.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is not a whole number that fits here")))
}

/// A time in a query.
pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<jiff::Timestamp>, ProblemDocument> {
    let wrong = |text: &str| {
        let shown: String = text.chars().take(40).collect();
        ProblemDocument::invalid(format!("{name}: '{shown}' is not a time: write it as 2026-11-17T12:00:00Z"))
    };
    text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}
