//! Functions that vectorise: no branches, no calls.

/// e^x to about 2 ulp; below −87 it is 0 or the smallest normal number, above 88 it stays at e^88.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 · 2^23: adding it rounds to an integer in the low mantissa bits
    let x = x.clamp(-87.0, 88.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    // ln 2 in two parts, so that the remainder keeps its bits.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    // Taylor's series to r^7: |r| ≤ ln 2 / 2 leaves less than 6e-9.
    let mut p = 1.984_127e-4f32;
    p = p.mul_add(r, 1.388_889e-3);
    p = p.mul_add(r, 8.333_333e-3);
    p = p.mul_add(r, 4.166_666_7e-2);
    p = p.mul_add(r, 0.166_666_67);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r, 1.0);
    p = p.mul_add(r, 1.0);
    let power = f32::from_bits(
        shifted
            .to_bits()
            .wrapping_sub(MAGIC.to_bits())
            .wrapping_add(127)
            << 23,
    );
    p * power
}

/// The error function to 3e-7 (Abramowitz and Stegun, 7.1.26).
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let z = x.abs();
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let mut p = 1.061_405_4f32;
    p = p.mul_add(t, -1.453_152);
    p = p.mul_add(t, 1.421_413_8);
    p = p.mul_add(t, -0.284_496_74);
    p = p.mul_add(t, 0.254_829_6);
    let y = (-p * t).mul_add(exp(-z * z), 1.0);
    y.copysign(x)
}

/// x·Φ(x), the exact form with the error function.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let half = 0.5 * x;
    half.mul_add(erf(x * std::f32::consts::FRAC_1_SQRT_2), half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_over_its_range() {
        for i in -86_000..88_000 {
            let x = i as f32 * 1e-3;
            let want = f64::from(x).exp();
            let got = f64::from(exp(x));
            assert!(
                ((got - want) / want).abs() < 4e-7,
                "exp({x}) = {got}, not {want}"
            );
        }
        assert!(exp(-1e9) < 1e-37);
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn erf_agrees_with_known_values() {
        // From tables of the error function.
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (4.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 4e-7, "erf({x}) = {}", erf(x));
            assert!((erf(-x) + want).abs() < 4e-7);
        }
    }
}
