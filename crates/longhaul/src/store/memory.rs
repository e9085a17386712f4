pub struct Memory;
