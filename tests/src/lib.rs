//! Helpers shared by the tests across crates.
