//! Anti-aliased shapes on RGB8 pictures. Positions are raster positions: a pixel's centre is at +0.5.

pub(crate) type Rgb = [u8; 3];

/// A picture to draw on, `[height, width, 3]`.
pub(crate) struct Canvas<'a> {
    data: &'a mut [u8],
    width: usize,
    height: usize,
}

impl<'a> Canvas<'a> {
    pub(crate) fn new(data: &'a mut [u8], width: usize, height: usize) -> Option<Self> {
        (data.len() == width * height * 3).then_some(Self {
            data,
            width,
            height,
        })
    }

    /// A ring between two radii; a disc if the inner one is not positive. `alpha` is its opacity, 0 to 1.
    pub(crate) fn ring(&mut self, at: (f32, f32), outer: f32, inner: f32, color: Rgb, alpha: f32) {
        let reach = outer + 1.0;
        self.shade(at, at, reach, color, |x, y| {
            let distance = (x - at.0).hypot(y - at.1);
            let hole = if inner > 0.0 {
                edge(inner - distance)
            } else {
                0.0
            };
            (edge(outer - distance) - hole).max(0.0) * alpha
        });
    }

    /// A line of that width, its opacity going from `alpha.0` at `a` to `alpha.1` at `b`. Its ends are cut square,
    /// so that lines which continue each other do not overlap.
    pub(crate) fn line(
        &mut self,
        a: (f32, f32),
        b: (f32, f32),
        width: f32,
        color: Rgb,
        alpha: (f32, f32),
    ) {
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length = dx.hypot(dy);
        if length < 1e-3 {
            return;
        }
        let (ux, uy) = (dx / length, dy / length);
        let half = width / 2.0;
        self.shade(a, b, half + 1.0, color, |x, y| {
            let (px, py) = (x - a.0, y - a.1);
            let along = px * ux + py * uy;
            let across = (px * uy - py * ux).abs();
            // What two lines cover of the pixel that they meet in adds up to the whole.
            let ends = (edge(along) + edge(length - along) - 1.0).max(0.0);
            let t = (along / length).clamp(0.0, 1.0);
            edge(half - across) * ends * (alpha.0 + (alpha.1 - alpha.0) * t)
        });
    }

    /// Blends `color` over every pixel within `reach` of the rectangle from `a` to `b`, by the opacity at its centre.
    fn shade(
        &mut self,
        a: (f32, f32),
        b: (f32, f32),
        reach: f32,
        color: Rgb,
        opacity: impl Fn(f32, f32) -> f32,
    ) {
        // Casts saturate, so that no position, however far, indexes outside.
        let first = |v: f32| (v - reach).floor().max(0.0) as usize;
        let last = |v: f32, side: usize| ((v + reach).ceil().max(0.0) as usize).min(side);
        let rows = first(a.1.min(b.1))..last(a.1.max(b.1), self.height);
        let columns = first(a.0.min(b.0))..last(a.0.max(b.0), self.width);
        if columns.is_empty() {
            return;
        }
        for y in rows {
            let row = &mut self.data[y * self.width * 3..][..self.width * 3];
            for x in columns.clone() {
                let alpha = opacity(x as f32 + 0.5, y as f32 + 0.5);
                if alpha > 0.0 {
                    for (to, from) in row[x * 3..x * 3 + 3].iter_mut().zip(color) {
                        let mixed = f32::from(*to) + (f32::from(from) - f32::from(*to)) * alpha;
                        *to = mixed.round().clamp(0.0, 255.0) as u8;
                    }
                }
            }
        }
    }
}

/// How much of a pixel lies inside an edge, by its centre's distance to it (positive inside).
fn edge(distance: f32) -> f32 {
    (distance + 0.5).clamp(0.0, 1.0)
}
