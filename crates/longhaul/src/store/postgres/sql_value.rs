//! Values of parameters that know their type in SQL.
//!
//! Behind a pooler no statement has a name, so nobody can ask the server what types its parameters have.

use tokio_postgres::types::{ToSql, Type};

/// The value of a parameter.
pub(super) trait SqlValue: ToSql + Sync {
    /// Its type.
    fn sql_type(&self) -> Type;
    /// The value as the client takes it.
    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

/// The parameters of a statement.
pub(super) type Values<'a> = &'a [&'a dyn SqlValue];

macro_rules! sql_values {
    ($($name:ident: $($value:ty),+;)+) => {$($(
        impl SqlValue for $value {
            fn sql_type(&self) -> Type {
                Type::$name
            }
            fn as_sql(&self) -> &(dyn ToSql + Sync) {
                self
            }
        }
    )+)+};
}

sql_values! {
    INT2: i16;
    INT4: i32;
    INT8: i64, Option<i64>;
    TEXT: String, &str, Option<String>, Option<&str>;
    BYTEA: Vec<u8>, &[u8];
    INT2_ARRAY: Vec<i16>;
    INT8_ARRAY: Vec<i64>, Vec<Option<i64>>;
    TEXT_ARRAY: Vec<String>, Vec<Option<String>>;
    BYTEA_ARRAY: Vec<Vec<u8>>, Vec<Option<Vec<u8>>>, Vec<&[u8]>;
}

/// The values as a prepared statement takes them.
pub(super) fn untyped<'a>(values: Values<'a>) -> Vec<&'a (dyn ToSql + Sync)> {
    values.iter().map(|value| value.as_sql()).collect()
}

/// The values with their types.
pub(super) fn typed<'a>(values: Values<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value.as_sql(), value.sql_type())).collect()
}
