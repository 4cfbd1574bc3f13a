//! Helpers shared by the tests across crates: the published models' reference numbers, and the formula that
//! fills weights and clips so that the numbers can be checked without a download (`tests/reference/README.md`).

pub mod formula;
pub mod reference;
