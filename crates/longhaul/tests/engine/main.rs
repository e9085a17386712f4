//! The engine as its users see it: whole runs, on the memory store unless a test is about the disk.

mod smoke;
