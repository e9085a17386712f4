pub struct Sqlite;
pub struct SqliteOptions;
pub enum Durability {}
