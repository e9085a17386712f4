//! The store exam.
