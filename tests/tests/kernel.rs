//! The kernel programs under `BPF_PROG_TEST_RUN`.
use honk_tests::kernel::{CLASSIFIERS, LOOKUP, Rig, root_or_skip};

#[test]
fn load() {
    if !root_or_skip("load") {
        return;
    }
    let rig = Rig::new().unwrap_or_else(|e| panic!("{e:?}"));
    for p in CLASSIFIERS.iter().chain([&LOOKUP]) {
        println!("{p} {}", rig.verified_insns(p).unwrap());
    }
}
