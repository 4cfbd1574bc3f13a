//! How a stored picture is turned for display.

/// One of the eight ways to lay a picture on a grid: transposed or not, then mirrored along either axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    transpose: bool,
    flip_x: bool,
    flip_y: bool,
}

impl Orientation {
    /// The orientation nearest to a display matrix (9 numbers, row-major, as containers keep them), and
    /// whether it is exact: a turn by 10 degrees is not.
    pub(crate) fn from_matrix(matrix: &[i32; 9]) -> (Self, bool) {
        // A stored (p, q) is displayed at (a p + c q, b p + d q), x to the right and y down.
        let [a, b, c, d] = [matrix[0], matrix[1], matrix[3], matrix[4]].map(i64::from);
        let (straight, crossed) = (a.abs() + d.abs(), b.abs() + c.abs());
        if straight == 0 && crossed == 0 {
            return (Self::default(), false);
        }
        if crossed > straight {
            let exact = straight == 0;
            let orientation = Self {
                transpose: true,
                flip_x: c < 0,
                flip_y: b < 0,
            };
            (orientation, exact)
        } else {
            let orientation = Self {
                transpose: false,
                flip_x: a < 0,
                flip_y: d < 0,
            };
            (orientation, crossed == 0)
        }
    }

    /// Degrees clockwise, and whether the picture is mirrored left to right before the turn.
    pub(crate) fn rotation(self) -> (u16, bool) {
        match (self.transpose, self.flip_x, self.flip_y) {
            (false, false, false) => (0, false),
            (false, true, true) => (180, false),
            (false, true, false) => (0, true),
            (false, false, true) => (180, true),
            (true, true, false) => (90, false),
            (true, false, true) => (270, false),
            (true, false, false) => (270, true),
            (true, true, true) => (90, true),
        }
    }

    /// The size, or pixel aspect, of the displayed picture.
    pub(crate) fn apply_size<T>(self, (w, h): (T, T)) -> (T, T) {
        if self.transpose { (h, w) } else { (w, h) }
    }

    /// Copies RGB8 rows of `stride` bytes, `size` (width, height) stored pixels, into tight displayed rows.
    pub(crate) fn apply(self, src: &[u8], stride: usize, size: (u32, u32)) -> Vec<u8> {
        let (w, h) = (size.0 as usize, size.1 as usize);
        let mut out = Vec::with_capacity(w * h * 3);
        if self == Self::default() {
            for row in src.chunks(stride).take(h) {
                out.extend_from_slice(&row[..w * 3]);
            }
            return out;
        }
        let (dw, dh) = self.apply_size((w, h));
        for y in 0..dh {
            for x in 0..dw {
                let fx = if self.flip_x { dw - 1 - x } else { x };
                let fy = if self.flip_y { dh - 1 - y } else { y };
                let (sx, sy) = self.apply_size((fx, fy));
                let at = sy * stride + sx * 3;
                out.extend_from_slice(&src[at..at + 3]);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Orientation;

    const ONE: i32 = 1 << 16;

    fn turned(a: i32, b: i32, c: i32, d: i32) -> (Vec<u8>, (u16, bool)) {
        // 1 2 3
        // 4 5 6
        let src: Vec<u8> = (1..=6).flat_map(|v| [v, v, v]).collect();
        let (o, exact) =
            Orientation::from_matrix(&[a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30]);
        assert!(exact);
        let out = o.apply(&src, 9, (3, 2));
        (out.chunks(3).map(|p| p[0]).collect(), o.rotation())
    }

    #[test]
    fn quarter_turns_are_clockwise() {
        assert_eq!(turned(1, 0, 0, 1), (vec![1, 2, 3, 4, 5, 6], (0, false)));
        assert_eq!(turned(0, 1, -1, 0), (vec![4, 1, 5, 2, 6, 3], (90, false)));
        assert_eq!(turned(-1, 0, 0, -1), (vec![6, 5, 4, 3, 2, 1], (180, false)));
        assert_eq!(turned(0, -1, 1, 0), (vec![3, 6, 2, 5, 1, 4], (270, false)));
    }

    #[test]
    fn mirrors_are_told_from_turns() {
        assert_eq!(turned(-1, 0, 0, 1), (vec![3, 2, 1, 6, 5, 4], (0, true)));
        assert_eq!(turned(1, 0, 0, -1), (vec![4, 5, 6, 1, 2, 3], (180, true)));
        assert_eq!(turned(0, 1, 1, 0), (vec![1, 4, 2, 5, 3, 6], (270, true)));
        assert_eq!(turned(0, -1, -1, 0), (vec![6, 3, 5, 2, 4, 1], (90, true)));
    }

    #[test]
    fn odd_angles_are_said_to_be_inexact() {
        let m = [60000, 26000, 0, -26000, 60000, 0, 0, 0, 1 << 30];
        assert!(!Orientation::from_matrix(&m).1);
        assert!(!Orientation::from_matrix(&[0; 9]).1);
        let extreme = [i32::MIN, 0, 0, 0, i32::MIN, 0, 0, 0, 0];
        assert_eq!(
            Orientation::from_matrix(&extreme).0.rotation(),
            (180, false)
        );
    }
}
