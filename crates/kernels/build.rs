//! Compiles the device code: for NVIDIA devices, or as C++ for the emulator.

#[cfg(feature = "cuda")]
#[path = "build/device_code.rs"]
mod device_code;
#[cfg(feature = "emulate")]
#[path = "build/emulator.rs"]
mod emulator;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "cuda")]
    device_code::build();
    #[cfg(feature = "emulate")]
    emulator::build();
}
