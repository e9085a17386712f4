//! Where a response of HTTP/1.1 and its body begin and end: pure, without IO.

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};

/// How long the status and the headers of a response may be.
const MAX_START: usize = 16 << 10;
const MOST_HEADERS: usize = 100;
/// How much is skipped behind the sizes of chunks and after the last one, in all.
const MAX_SKIPPED: usize = 16 << 10;

/// Why a response cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::model::http) enum FramingError {
    #[error("the server does not answer in HTTP/1.1 ({0}): check base_url")]
    NotHttp(String),
    #[error("the server speaks TLS: use https:// in base_url")]
    Tls,
    #[error("the server's response has more than {MOST_HEADERS} headers")]
    ManyHeaders,
    #[error("the headers of the server's response have more than {} KiB", MAX_START >> 10)]
    LongHeaders,
    #[error("the server's response has no valid content-length")]
    Length,
    #[error("a chunk of the server's response is malformed")]
    Chunk,
    #[error("the server closed the connection before the end of its response")]
    CutOff,
}

/// The status and the headers of a response.
#[derive(Debug)]
pub(super) struct ResponseStart {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: BodyDecoder,
    /// Whether the connection can be used again after the body.
    pub(super) keeps_alive: bool,
}

impl ResponseStart {
    /// Takes them out of these bytes, or returns `None` if more is needed. Interim responses are skipped.
    pub(super) fn parse(bytes: &mut Vec<u8>) -> Result<Option<ResponseStart>, FramingError> {
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut response = httparse::Response::new(&mut fields);
            let length = match response.parse(bytes) {
                Ok(httparse::Status::Complete(length)) => length,
                Ok(httparse::Status::Partial) if bytes.len() < MAX_START => return Ok(None),
                Ok(httparse::Status::Partial) => return Err(FramingError::LongHeaders),
                Err(httparse::Error::TooManyHeaders) => return Err(FramingError::ManyHeaders),
                // How every message of TLS that refuses something begins.
                Err(_) if bytes.starts_with(&[0x15, 3]) => return Err(FramingError::Tls),
                Err(error) => return Err(FramingError::NotHttp(error.to_string())),
            };
            let status = StatusCode::from_u16(response.code.unwrap_or_default())
                .map_err(|error| FramingError::NotHttp(error.to_string()))?;
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(FramingError::NotHttp("it switches to another protocol".to_owned()));
            }
            let start = match status.is_informational() {
                true => None,
                false => {
                    let version = response.version.unwrap_or_default();
                    Some(ResponseStart::new(status, version, read_headers(response.headers)?)?)
                }
            };
            bytes.drain(..length);
            if start.is_some() {
                return Ok(start);
            }
        }
    }

    fn new(status: StatusCode, minor_version: u8, headers: HeaderMap) -> Result<ResponseStart, FramingError> {
        let has = |name, token: &str| tokens(&headers, name).any(|found| found.eq_ignore_ascii_case(token));
        let body = match status {
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => BodyDecoder::Length(0),
            _ => match tokens(&headers, TRANSFER_ENCODING).last() {
                Some(last) if last.eq_ignore_ascii_case("chunked") => BodyDecoder::chunked(),
                Some(_) => BodyDecoder::UntilClose,
                None => content_length(&headers)?.map_or(BodyDecoder::UntilClose, BodyDecoder::Length),
            },
        };
        let keeps_alive = match minor_version {
            0 => has(CONNECTION, "keep-alive") && !has(CONNECTION, "close"),
            _ => !has(CONNECTION, "close"),
        };
        Ok(ResponseStart { status, headers, body, keeps_alive })
    }
}

fn read_headers(fields: &[httparse::Header<'_>]) -> Result<HeaderMap, FramingError> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        match (name, value) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Err(FramingError::NotHttp(format!("the header {} is malformed", field.name))),
        };
    }
    Ok(headers)
}

/// The values of a header that is a list.
fn tokens(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("?"));
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// The length of the body, if the server says it. It may say it several times, but not differently.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, FramingError> {
    let mut length = None;
    for token in tokens(headers, CONTENT_LENGTH) {
        let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        let found = token.parse().ok().filter(|_| digits).ok_or(FramingError::Length)?;
        if length.is_some_and(|length| length != found) {
            return Err(FramingError::Length);
        }
        length = Some(found);
    }
    Ok(length)
}

/// Finds the data in the bytes of a body, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    /// So many bytes are still to come.
    Length(u64),
    /// What comes next, and how much was skipped so far.
    Chunked(ChunkStage, usize),
    UntilClose,
}

/// What comes next in a body of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkStage {
    /// The size of a chunk, in hexadecimal digits.
    Size {
        size: u64,
        digits: u8,
    },
    /// What may stand behind the size.
    Extension {
        size: u64,
    },
    /// The end of the line with the size.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataEnd {
        begun: bool,
    },
    /// A line after the last chunk.
    Trailer {
        begun: bool,
    },
    TrailerEnd {
        last: bool,
    },
    Over,
}

/// What some bytes of a body hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// How many bytes of data there are. They are at the beginning now.
    pub(super) data: usize,
    /// How many of the bytes belong to this body.
    pub(super) used: usize,
}

impl BodyDecoder {
    fn chunked() -> BodyDecoder {
        BodyDecoder::Chunked(ChunkStage::Size { size: 0, digits: 0 }, 0)
    }

    /// Whether the body has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, BodyDecoder::Length(0) | BodyDecoder::Chunked(ChunkStage::Over, _))
    }

    /// The server has closed the connection.
    pub(super) fn on_close(&self) -> Result<(), FramingError> {
        match self {
            BodyDecoder::UntilClose => Ok(()),
            _ if self.is_over() => Ok(()),
            _ => Err(FramingError::CutOff),
        }
    }

    /// Takes more bytes, and moves the data that they hold to their beginning.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, FramingError> {
        match self {
            BodyDecoder::UntilClose => Ok(Decoded { data: bytes.len(), used: bytes.len() }),
            BodyDecoder::Length(left) => {
                let taken = at_most(*left, bytes.len());
                *left -= taken as u64;
                Ok(Decoded { data: taken, used: taken })
            }
            BodyDecoder::Chunked(stage, skipped) => {
                let (mut data, mut used) = (0, 0);
                while used < bytes.len() && *stage != ChunkStage::Over {
                    if let ChunkStage::Data { left } = stage {
                        let taken = at_most(*left, bytes.len() - used);
                        bytes.copy_within(used..used + taken, data);
                        *left -= taken as u64;
                        (data, used) = (data + taken, used + taken);
                        if *left == 0 {
                            *stage = ChunkStage::DataEnd { begun: false };
                        }
                    } else {
                        *stage = stage.next(bytes[used])?;
                        used += 1;
                        if matches!(stage, ChunkStage::Extension { .. } | ChunkStage::Trailer { begun: true })
                        {
                            *skipped += 1;
                            if *skipped > MAX_SKIPPED {
                                return Err(FramingError::Chunk);
                            }
                        }
                    }
                }
                Ok(Decoded { data, used })
            }
        }
    }
}

fn at_most(left: u64, available: usize) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}

impl ChunkStage {
    /// What comes after this byte, which is no data.
    fn next(self, byte: u8) -> Result<ChunkStage, FramingError> {
        use ChunkStage::*;
        Ok(match (self, byte) {
            // The first digits may be zeros, but not endlessly.
            (Size { size, digits }, _) if byte.is_ascii_hexdigit() && size >> 60 == 0 && digits < 32 => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
            }
            (Size { size, digits: 1.. } | Extension { size }, b'\r') => SizeEnd { size },
            (Size { size, digits: 1.. }, b';' | b' ' | b'\t') => Extension { size },
            (Extension { size }, _) if byte != b'\n' => Extension { size },
            (SizeEnd { size: 0 }, b'\n') => Trailer { begun: false },
            (SizeEnd { size }, b'\n') => Data { left: size },
            (DataEnd { begun: false }, b'\r') => DataEnd { begun: true },
            (DataEnd { begun: true }, b'\n') => Size { size: 0, digits: 0 },
            (Trailer { begun }, b'\r') => TrailerEnd { last: !begun },
            (Trailer { .. }, _) if byte != b'\n' => Trailer { begun: true },
            (TrailerEnd { last: true }, b'\n') => Over,
            (TrailerEnd { last: false }, b'\n') => Trailer { begun: false },
            _ => return Err(FramingError::Chunk),
        })
    }
}

#[cfg(test)]
#[path = "response_framing_tests.rs"]
mod tests;
