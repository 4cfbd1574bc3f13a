//! Compiles the device code as C++, to run on the CPU in tests.

use std::ffi::OsStr;

pub(crate) fn build() {
    println!("cargo::rerun-if-changed=cuda");
    let sources = std::fs::read_dir("cuda")
        .expect("crates/kernels/cuda can be read")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            [Some(OsStr::new("cu")), Some(OsStr::new("cpp"))].contains(&path.extension())
        });
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .define("TRACK_EMULATE", None)
        .flag("-xc++")
        .warnings(false);
    for source in sources {
        build.file(source);
    }
    // Kernels are found through lists that their files make at start, which nothing else refers to.
    build.link_lib_modifier("+whole-archive");
    build.compile("track_device_code");
    println!("cargo::rustc-link-lib=pthread");
}
