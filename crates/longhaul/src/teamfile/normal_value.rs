//! The output of the reader: a tree with every spelling normalized.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor, value};
use serde::forward_to_deserialize_any;

/// A normalized value. Maps keep their order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NormalValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<NormalValue>),
    Map(Vec<(String, NormalValue)>),
}

impl NormalValue {
    /// The value of a key, mutable.
    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut NormalValue> {
        match self {
            NormalValue::Map(fields) => {
                fields.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Removes a key and returns its value.
    pub(super) fn remove(&mut self, name: &str) -> Option<NormalValue> {
        let NormalValue::Map(fields) = self else { return None };
        let at = fields.iter().position(|(key, _)| key == name)?;
        Some(fields.remove(at).1)
    }

    /// Sets a key.
    pub(super) fn set(&mut self, name: &str, value: NormalValue) {
        if let NormalValue::Map(fields) = self {
            fields.push((name.to_owned(), value));
        }
    }

    /// The values of a map, mutable.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut NormalValue> {
        let fields = match self {
            NormalValue::Map(fields) => fields.as_mut_slice(),
            _ => &mut [],
        };
        fields.iter_mut().map(|(_, value)| value)
    }
}

impl<'de> Deserializer<'de> for NormalValue {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            NormalValue::Null => visitor.visit_unit(),
            NormalValue::Bool(value) => visitor.visit_bool(value),
            NormalValue::Int(value) => visitor.visit_i64(value),
            NormalValue::Float(value) => visitor.visit_f64(value),
            NormalValue::Text(value) => visitor.visit_string(value),
            NormalValue::List(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter())),
            NormalValue::Map(fields) => visitor.visit_map(MapDeserializer::new(fields.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self {
            NormalValue::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self {
            NormalValue::Text(text) => text.into_deserializer().deserialize_enum(name, variants, visitor),
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

impl IntoDeserializer<'_> for NormalValue {
    type Deserializer = NormalValue;

    fn into_deserializer(self) -> NormalValue {
        self
    }
}
