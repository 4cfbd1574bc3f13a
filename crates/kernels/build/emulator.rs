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
        // 3: unrolls loops over registers, whose pragmas are nvcc's.
        .opt_level(3)
        .define("TRACK_EMULATE", None)
        .flag("-xc++")
        // Device code reads values through pointers to other types.
        .flag("-fno-strict-aliasing")
        // The running thread and shared memory are thread-local; programs here are no plug-ins.
        .flag("-ftls-model=initial-exec")
        // What is multiplied and added in two steps is rounded twice, whatever this CPU could do.
        .flag("-ffp-contract=off")
        // A fiber's stack is small, and nothing else would say that it overflowed.
        .flag_if_supported("-Werror=frame-larger-than=65536")
        // Pragmas for nvcc, and warnings that are often wrong about unrolled loops.
        .flag("-Wno-unknown-pragmas")
        .flag("-Wno-sign-compare")
        .flag_if_supported("-Wno-maybe-uninitialized")
        .flag_if_supported("-Wno-psabi")
        // What a thread did not write is no zero here.
        .flag_if_supported("-ftrivial-auto-var-init=pattern");
    for flag in vector_flags() {
        build.flag(flag);
    }
    for source in sources {
        build.file(source);
    }
    // Kernels are found through lists that their files make at start, which nothing else refers to.
    build.link_lib_modifier("+whole-archive");
    build.compile("track_device_code");
    println!("cargo::rustc-link-lib=pthread");
}

/// The vector instructions of the machine that builds, which is the one that tests: products are several times faster.
fn vector_flags() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if std::env::var_os("HOST") == std::env::var_os("TARGET")
        && std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
    {
        return &["-mavx2", "-mfma"];
    }
    &[]
}
