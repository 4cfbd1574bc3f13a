//! Compiles the device code for every architecture and writes where it lies for `include!`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Machine code for these, and PTX of sm_80 for what is newer than all of them.
const MACHINE_CODE: [(&str, &str); 5] = [
    ("compute_75", "sm_75"),
    ("compute_80", "sm_80"),
    ("compute_86", "sm_86"),
    ("compute_89", "sm_89"),
    // 90a has Hopper's own instructions.
    ("compute_90a", "sm_90a"),
];

pub(crate) fn build() {
    println!("cargo::rerun-if-changed=cuda");
    for name in ["CUDA_HOME", "CUDA_PATH", "NVCC"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let nvcc = nvcc();
    let sources = files("cuda", "cu");
    let all: Vec<String> = MACHINE_CODE
        .iter()
        .map(|(ptx, code)| format!("-gencode=arch={ptx},code={code}"))
        .chain(["-gencode=arch=compute_80,code=compute_80".to_owned()])
        .collect();
    let only = |arch: &str| vec![format!("-gencode=arch=compute_{arch},code=compute_{arch}")];
    let sets = [
        ("DEVICE_CODE", "all", all),
        ("DEVICE_CODE_PTX_75", "75", only("75")),
        ("DEVICE_CODE_PTX_80", "80", only("80")),
    ];
    let headers = files("cuda", "cuh");
    let mut jobs = Vec::new();
    let mut list = String::new();
    for (constant, tag, targets) in &sets {
        list += &format!(
            "/// Compiled device code, one image for each file.\nstatic {constant}: &[&[u8]] = &[\n"
        );
        for source in &sources {
            let name = source.file_stem().expect("it has a name").to_string_lossy();
            let image = out.join(format!("{name}.{tag}.fatbin"));
            list += &format!("    include_bytes!({image:?}),\n");
            if !is_newer(&image, &headers, source) {
                jobs.push((source.clone(), image, targets.clone()));
            }
        }
        list += "];\n";
    }
    fs::write(out.join("device_code.rs"), list).expect("OUT_DIR can be written");
    compile(&nvcc, jobs);
}

/// Files of a folder with an extension, sorted.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{folder} cannot be read: {e}"))
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension() == Some(OsStr::new(extension)))
        .collect();
    files.sort();
    files
}

/// Whether an image was compiled after its source, every header and this script last changed.
fn is_newer(image: &Path, headers: &[PathBuf], source: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let Some(compiled) = time(image) else {
        return false;
    };
    let script = PathBuf::from("build/device_code.rs");
    let inputs = headers
        .iter()
        .chain([&script])
        .map(PathBuf::as_path)
        .chain([source]);
    inputs
        .into_iter()
        .all(|input| time(input).is_some_and(|t| t < compiled))
}

/// Runs the compiler as often at a time as cargo allows.
fn compile(nvcc: &Path, jobs: Vec<(PathBuf, PathBuf, Vec<String>)>) {
    let threads = env::var("NUM_JOBS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let queue = Mutex::new(jobs.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let job = queue
                        .lock()
                        .expect("no thread panics while it holds it")
                        .next();
                    let Some((source, image, targets)) = job else {
                        return;
                    };
                    let output = Command::new(nvcc)
                        .args(["-std=c++17", "-O3", "-fatbin", "-compress-mode=size", "-o"])
                        .arg(&image)
                        .args(&targets)
                        .arg(&source)
                        .output()
                        .unwrap_or_else(|e| panic!("{} cannot be run: {e}", nvcc.display()));
                    if !output.status.success() {
                        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
                        eprintln!("{} could not be compiled", source.display());
                        std::process::exit(1);
                    }
                }
            });
        }
    });
}

/// The compiler: what `NVCC` names, a toolkit that `CUDA_HOME` or `CUDA_PATH` names, the one that
/// `cargo xtask cuda` fetched, or what is on the path.
fn nvcc() -> PathBuf {
    if let Some(named) = env::var_os("NVCC") {
        return named.into();
    }
    let homes = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(env::var_os)
        .map(PathBuf::from);
    let fetched = fs::read_dir("../../.cuda/lib")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/nvidia/cu13")));
    let system = [PathBuf::from("/usr/local/cuda")];
    for home in homes.chain(fetched).chain(system) {
        let nvcc = home.join("bin/nvcc");
        if nvcc.is_file() {
            return nvcc.canonicalize().unwrap_or(nvcc);
        }
    }
    let found = Command::new("nvcc")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if !found {
        eprintln!(
            "the feature `cuda` needs NVIDIA's compiler nvcc (12.8 or newer; no GPU, no driver): run \
             `cargo xtask cuda`, or set CUDA_HOME to a toolkit"
        );
        std::process::exit(1);
    }
    PathBuf::from("nvcc")
}
