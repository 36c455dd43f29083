//! Fixtures, goldens and tolerances for tests.
