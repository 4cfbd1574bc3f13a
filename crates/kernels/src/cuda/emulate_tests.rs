//! What the emulator makes of the small kernels in `cuda/emulate_test.cpp`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};

use super::*;

/// As the kernels' `TestParams`.
#[derive(Clone, Copy, Default)]
struct Params {
    a: u64,
    b: u64,
    out: u64,
    count: u64,
}

fn run(kernel: &str, blocks: u32, threads: u32, shared: usize, p: Params) -> Result<()> {
    let params = [p.a, p.b, p.out, p.count];
    // SAFETY: tests pass the addresses of vectors that are as large as their kernel needs.
    unsafe { launch(kernel, [blocks, 1, 1], [threads, 1, 1], shared, &params) }
}

/// 16-byte words, as kernels want their memory aligned.
fn words(bytes: &[u8]) -> Vec<u128> {
    bytes
        .chunks(16)
        .map(|c| u128::from_ne_bytes(std::array::from_fn(|i| c.get(i).copied().unwrap_or(0))))
        .collect()
}

/// The order of blocks is the whole process's: tests that set it take turns. It is 0 again at the end.
struct Order(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Order {
    fn alone() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        Self(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        set_order(0);
    }
}

/// Numbers in [-2, 2) that are the same in every run.
fn noise(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    }
}

#[test]
fn lanes_exchange_values() {
    let _turn = Order::alone();
    for order in 0..2 {
        set_order(order);
        let mut out = vec![0i32; 64 * 6];
        let p = Params {
            out: out.as_mut_ptr() as u64,
            ..Params::default()
        };
        run("test_shuffle", 1, 64, 0, p).unwrap();
        let votes = (0..32).filter(|l| l % 3 == 0).fold(0u32, |v, l| v | 1 << l);
        for (thread, got) in out.chunks(6).enumerate() {
            let lane = thread as i32 % 32;
            let down = if lane % 8 + 3 < 8 { lane + 3 } else { lane };
            let want = [
                lane ^ 5,
                (lane * 7 + 3) % 32,
                if lane < 3 { lane } else { lane - 3 },
                down,
                votes as i32,
                31 * 16 + lane / 8 * 8 + 7,
            ];
            assert_eq!(got, want, "thread {thread}");
        }
    }
}

#[test]
fn matrices_reach_the_lanes_that_the_instruction_names() {
    let values: Vec<u16> = (0..256).collect(); // 32 rows of 8
    let rows = words(bytes_of(&values));
    let mut out = vec![0u32; 32 * 8];
    let p = Params {
        a: rows.as_ptr() as u64,
        out: out.as_mut_ptr() as u64,
        ..Params::default()
    };
    run("test_ldmatrix", 1, 32, 512, p).unwrap();
    for (lane, got) in out.chunks(8).enumerate() {
        for i in 0..4 {
            let at = |row: usize, column: usize| (i * 64 + row * 8 + column) as u32;
            let (row, column) = (lane / 4, lane % 4 * 2);
            assert_eq!(got[i], at(row, column) | at(row, column + 1) << 16);
            assert_eq!(got[i + 4], at(column, row) | at(column + 1, row) << 16);
        }
    }
}

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: called with integers and floats, whose bytes are all initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

/// c + a · bᵀ beside the same in f64; `held` says what an operand is taken to be.
fn products_are_right<T: Copy>(
    kernel: &str,
    depth: usize,
    make: impl Fn(f32) -> T,
    held: impl Fn(T) -> f64,
) {
    for seed in 0..50 {
        let mut next = noise(seed);
        let a: Vec<T> = (0..16 * depth).map(|_| make(next())).collect();
        let b: Vec<T> = (0..8 * depth).map(|_| make(next())).collect();
        let c: Vec<f32> = (0..128).map(|_| next()).collect();
        let (rows_a, rows_b, mut out) = (words(bytes_of(&a)), words(bytes_of(&b)), c.clone());
        let p = Params {
            a: rows_a.as_ptr() as u64,
            b: rows_b.as_ptr() as u64,
            out: out.as_mut_ptr() as u64,
            count: 1,
        };
        run(kernel, 1, 32, 768, p).unwrap();
        for row in 0..16 {
            for column in 0..8 {
                let want = f64::from(c[row * 8 + column])
                    + (0..depth)
                        .map(|k| held(a[row * depth + k]) * held(b[column * depth + k]))
                        .sum::<f64>();
                let got = f64::from(out[row * 8 + column]);
                // 17 roundings of sums below 70.
                assert!(
                    (got - want).abs() < 2e-5,
                    "{kernel}, row {row}, column {column}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn products_of_halves() {
    products_are_right("test_mma_f16", 16, f16::from_f32, f16::to_f64);
}

#[test]
fn products_of_bfloats() {
    products_are_right("test_mma_bf16", 16, bf16::from_f32, bf16::to_f64);
}

#[test]
fn products_of_floats_keep_ten_bits_of_mantissa() {
    products_are_right("test_mma_tf32", 8, |v| v, |v| f64::from(tf32(v)));
}

/// To 11 significant bits, nearest, ties away from zero, by another way than the emulator's.
fn tf32(v: f32) -> f32 {
    if v == 0.0 || !v.is_finite() {
        return v;
    }
    let step = 2f64.powi((f64::from(v.abs()).log2().floor() as i32).max(-126) - 10);
    ((f64::from(v) / step).round() * step) as f32
}

#[test]
fn values_are_rounded_as_the_types_say() {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        65504.0,
        65519.9,
        65520.0,
        -1e9,
        f32::INFINITY,
        f32::NEG_INFINITY,
        6e-8,
        2.98e-8, // half of the least half
        3.0e-8,
        -6.1e-5,
        1e-40,
        f32::MAX,
        1.000_976_6,
        1.000_488_3, // half way between two halves
        1.001_464_8,
    ];
    let mut next = noise(7);
    values.extend((0..20_000).map(|i| next() * 2f32.powi(i % 60 - 30)));
    let mut out = vec![0u32; values.len() * 5];
    let p = Params {
        a: values.as_ptr() as u64,
        out: out.as_mut_ptr() as u64,
        count: values.len() as u64,
        ..Params::default()
    };
    run("test_round", values.len().div_ceil(256) as u32, 256, 0, p).unwrap();
    for (v, got) in values.iter().zip(out.chunks(5)) {
        let (h, b) = (f16::from_f32(*v), bf16::from_f32(*v));
        assert_eq!(got[0], u32::from(h.to_bits()), "half of {v:e}");
        assert_eq!(got[1], u32::from(b.to_bits()), "bfloat of {v:e}");
        assert_eq!(got[3], h.to_f32().to_bits(), "{v:e} back from a half");
        assert_eq!(got[4], b.to_f32().to_bits(), "{v:e} back from a bfloat");
        if v.abs() < 1e38 && v.abs() > 1e-37 {
            assert_eq!(f32::from_bits(got[2]), tf32(*v), "tf32 of {v:e}");
        }
    }
    let nan = [f32::NAN];
    let p = Params {
        a: nan.as_ptr() as u64,
        count: 1,
        ..p
    };
    run("test_round", 1, 256, 0, p).unwrap();
    assert!(f16::from_bits(out[0] as u16).is_nan() && bf16::from_bits(out[1] as u16).is_nan());
    assert!(f32::from_bits(out[2]).is_nan());
}

/// What `test_barrier` leaves, when its barriers are there.
fn mirrored(rounds: usize) -> Vec<i32> {
    (0..256)
        .map(|t| rounds as i32 + if rounds.is_multiple_of(2) { t } else { 255 - t })
        .collect()
}

fn barriers(order: u32, rounds: usize) -> Vec<i32> {
    set_order(order);
    let mut out = vec![0i32; 256];
    let p = Params {
        out: out.as_mut_ptr() as u64,
        count: rounds as u64,
        ..Params::default()
    };
    run("test_barrier", 1, 256, 0, p).unwrap();
    out
}

#[test]
fn threads_of_a_block_wait_for_each_other() {
    let _turn = Order::alone();
    for order in 0..2 {
        assert_eq!(barriers(order, 10), mirrored(10));
    }
    let mut out = [0f32];
    let p = Params {
        out: out.as_mut_ptr() as u64,
        ..Params::default()
    };
    run("test_mixed", 100, 128, 0, p).unwrap();
    assert_eq!(out[0], 100.0 * (2.0 + 4.0 + 8.0 + 16.0));
}

#[test]
fn a_missing_barrier_shows() {
    let _turn = Order::alone();
    assert_ne!(barriers(0, 3), mirrored(3));
    assert_ne!(barriers(1, 3), mirrored(3));
}

#[test]
fn copies_arrive_when_they_are_waited_for() {
    let _turn = Order::alone();
    let values: Vec<i32> = (0..3 * 64 * 4).collect();
    let rows = words(bytes_of(&values));
    let sums = |order: u32, in_flight: u64| -> Vec<i32> {
        set_order(order);
        let mut out = vec![0i32; 64 * 3];
        let p = Params {
            a: rows.as_ptr() as u64,
            out: out.as_mut_ptr() as u64,
            count: in_flight,
            ..Params::default()
        };
        run("test_copies", 1, 64, 3 * 64 * 16, p).unwrap();
        out
    };
    let want = |in_flight: usize| -> Vec<i32> {
        let sum = |t: usize, s: usize| -> i32 {
            let from = s * 64 + 63 - t;
            match s {
                _ if s + in_flight > 2 => -4,
                2 if (63 - t) % 2 == 1 => 0,
                _ => values[from * 4..from * 4 + 4].iter().sum(),
            }
        };
        (0..64)
            .flat_map(|t| (0..3).map(move |s| (t, s)))
            .map(|(t, s)| sum(t, s))
            .collect()
    };
    for in_flight in 0..3 {
        assert_eq!(sums(0, in_flight), want(in_flight as usize));
        // At once: as if everything had been waited for.
        assert_eq!(sums(2, in_flight), want(0));
    }
}

#[test]
fn what_a_block_does_wrong_is_named() {
    let ones = [1u128; 64];
    let mut out = vec![0f32; 64];
    let mut wrong = |what: u64| {
        let p = Params {
            a: ones.as_ptr() as u64,
            out: out.as_mut_ptr() as u64,
            count: what,
            ..Params::default()
        };
        match run("test_wrong", 1, 64, 256, p) {
            Ok(()) => format!("{:?}", out[0]),
            Err(e) => e.to_string(),
        }
    };
    let cases = [
        "the lane ended while",
        "__syncthreads while",
        "__syncwarp while",
        "wrote behind its 256 bytes",
        "NaN",
        "Copy16 to shared memory: address",
        "ldmatrix4: address",
        "__trap()",
        "NaN",
    ];
    for (what, message) in cases.iter().enumerate() {
        let got = wrong(what as u64);
        assert!(got.contains(message), "{what}: {got}");
        if *message != "NaN" {
            assert!(
                got.starts_with("kernel test_wrong, block (0, 0, 0)"),
                "{got}"
            );
        }
    }
    assert_eq!(wrong(8), "NaN", "though the block before wrote there");
    // The same stacks are used again.
    assert_eq!(wrong(99), "0.0");
}

#[test]
fn a_launch_that_cannot_be_is_refused() {
    assert!(has("test_wrong") && !has("test_nothing"));
    let fails = |kernel: &str, grid: [u32; 3], threads: u32, shared: usize, params: &[u64]| {
        // SAFETY: none of these runs.
        let result = unsafe { launch(kernel, grid, [threads, 1, 1], shared, params) };
        result.expect_err("it is refused").to_string()
    };
    let cases = [
        (
            fails("test_nothing", [1; 3], 32, 0, &[0; 4]),
            "no kernel called",
        ),
        (
            fails("test_wrong", [1; 3], 65, 0, &[0; 4]),
            "made for 1 to 64",
        ),
        (
            fails("test_wrong", [1; 3], 0, 0, &[0; 4]),
            "a block of 0 threads",
        ),
        (
            fails("test_wrong", [1, 0, 1], 32, 0, &[0; 4]),
            "a grid of 1 × 0 × 1",
        ),
        (
            fails("test_wrong", [1; 3], 32, 300 << 10, &[0; 4]),
            "shared memory",
        ),
        (
            fails("test_wrong", [1; 3], 32, 0, &[0; 3]),
            "takes 32 bytes of parameters, but was given 24",
        ),
    ];
    for (got, message) in cases {
        assert!(got.contains(message), "{got}");
    }
}
