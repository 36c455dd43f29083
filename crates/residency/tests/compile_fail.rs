//! What must not compile: weights used without the right to them.

#[test]
fn weights_cannot_outlive_their_lease_nor_leases_their_component() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
