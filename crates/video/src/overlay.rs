//! Tracked points drawn onto frames.

use std::collections::VecDeque;

use crate::Frame;
use crate::draw::{Canvas, Rgb};
use crate::frame::resize_rgb;

/// One point on one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverlayPoint {
    /// Raster position to the right, pixels of the frame; a pixel's centre is at +0.5.
    pub x: f32,
    /// Raster position down.
    pub y: f32,
    /// Whether the point is seen: a filled disc; a hollow ring if not.
    pub visible: bool,
    /// Whether the point was tracked on this frame at all; nothing is drawn if not.
    pub tracked: bool,
}

/// How many times larger the drawn frames become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverlayScale {
    /// Small pictures grow by the whole number that brings their longer side nearest to 512 pixels;
    /// others stay as they are.
    #[default]
    Auto,
    /// By this whole number, at least 1.
    Times(u32),
}

/// How points are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct OverlayOptions {
    /// Frames that a trail reaches back, 12 by default; 0 for none.
    pub trail: usize,
    /// Radius of a disc in pixels of the drawn frame; by picture size and number of points if not given.
    pub radius: Option<f32>,
    /// Enlargement of the frames (bilinear), so that discs do not hide small pictures.
    pub scale: OverlayScale,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        Self {
            trail: 12,
            radius: None,
            scale: OverlayScale::Auto,
        }
    }
}

/// Draws points onto the frames of one video, in order: it remembers where the points came from.
///
/// A point's colour follows from its start position, so that neighbours look related. Visible points are discs,
/// hidden ones rings, each with a rim that sets it off from light, dark and like-coloured backgrounds. Trails fade; where
/// a point was hidden its trail is faint.
#[derive(Clone, Debug)]
pub struct Overlay {
    colors: Vec<Rgb>,
    trails: Vec<VecDeque<Stop>>,
    trail: usize,
    radius: f32,
    scale: u32,
}

/// Where a point was on a frame, in pixels of the drawn frame; `None` where it was not tracked.
type Stop = Option<(f32, f32, bool)>;

const RIM: Rgb = [16, 16, 20];
const LIGHT: Rgb = [248, 248, 250];

impl Overlay {
    /// For points that start at `starts` (raster positions, x and y) in frames of `width` x `height` pixels.
    pub fn new(starts: &[(f32, f32)], width: u32, height: u32, options: &OverlayOptions) -> Self {
        let longer = width.max(height).max(1);
        let scale = match options.scale {
            OverlayScale::Auto => ((512.0 / longer as f32).round() as u32).clamp(1, 32),
            OverlayScale::Times(n) => n.clamp(1, 32),
        };
        let crowd = match starts.len() {
            0..=12 => 2.0,
            13..=64 => 1.4,
            65..=400 => 1.1,
            401..=2000 => 0.9,
            _ => 0.65,
        };
        let automatic = (longer * scale) as f32 * 0.0055 * crowd;
        let radius = options
            .radius
            .filter(|r| r.is_finite() && *r > 0.0)
            .unwrap_or(automatic.max(1.6));
        Self {
            colors: colors(starts),
            trails: vec![VecDeque::new(); starts.len()],
            trail: options.trail,
            radius: radius.min(1000.0),
            scale,
        }
    }

    /// How many times larger [`draw`](Self::draw) makes a frame.
    pub fn scale(&self) -> u32 {
        self.scale
    }

    /// Enlarges the frame by [`scale`](Self::scale) and draws the points, one for each start position, onto it.
    /// Positions that are not finite or far outside are not drawn; points too many are ignored.
    pub fn draw(&mut self, frame: &mut Frame, points: &[OverlayPoint]) {
        let size = (frame.width, frame.height);
        if frame.data.len() != size.0 as usize * size.1 as usize * 3 || frame.data.is_empty() {
            return;
        }
        let to = (
            size.0.saturating_mul(self.scale),
            size.1.saturating_mul(self.scale),
        );
        frame.data = resize_rgb(std::mem::take(&mut frame.data), size, to);
        (frame.width, frame.height) = to;
        let scale = self.scale as f32;
        let (w, h) = (to.0 as f32, to.1 as f32);
        // Beyond this nothing of a point or its trail is in the picture that would help anyone.
        let sane = |x: f32, y: f32| {
            x.is_finite() && y.is_finite() && x > -w && x < 2.0 * w && y > -h && y < 2.0 * h
        };
        for (i, trail) in self.trails.iter_mut().enumerate() {
            let stop = points.get(i).and_then(|p| {
                let (x, y) = (p.x * scale, p.y * scale);
                (p.tracked && sane(x, y)).then_some((x, y, p.visible))
            });
            trail.push_back(stop);
            while trail.len() > self.trail + 1 {
                trail.pop_front();
            }
        }
        let Some(mut canvas) = Canvas::new(&mut frame.data, to.0 as usize, to.1 as usize) else {
            return;
        };
        // All trails lie under all points: a long trail must not hide a point that it crosses.
        for (trail, color) in self.trails.iter().zip(&self.colors) {
            draw_trail(&mut canvas, trail, *color, self.radius, self.trail);
        }
        for visible in [false, true] {
            for (trail, color) in self.trails.iter().zip(&self.colors) {
                match trail.back() {
                    Some(&Some((x, y, seen))) if seen == visible => {
                        draw_point(&mut canvas, (x, y), *color, self.radius, visible);
                    }
                    _ => {}
                }
            }
        }
    }
}

fn draw_trail(
    canvas: &mut Canvas<'_>,
    trail: &VecDeque<Stop>,
    color: Rgb,
    radius: f32,
    length: usize,
) {
    let width = (radius * 0.85).max(1.3);
    let strength = |age: usize| {
        let rest = 1.0 - age as f32 / (length + 1) as f32;
        rest.powf(1.3)
    };
    let newest = trail.len().saturating_sub(1);
    for (i, pair) in trail.iter().zip(trail.iter().skip(1)).enumerate() {
        let (&Some((ax, ay, a_seen)), &Some((bx, by, b_seen))) = pair else {
            continue;
        };
        let dim = if a_seen && b_seen { 1.0 } else { 0.3 };
        let (old, new) = (strength(newest - i) * dim, strength(newest - i - 1) * dim);
        let (a, b) = ((ax, ay), (bx, by));
        canvas.line(a, b, width + 1.6, RIM, (old * 0.4, new * 0.4));
        canvas.line(a, b, width, color, (old, new));
    }
}

fn draw_point(canvas: &mut Canvas<'_>, at: (f32, f32), color: Rgb, radius: f32, visible: bool) {
    let rim = (radius * 0.28).clamp(0.8, 3.0);
    if visible {
        // A light line within the dark one: the disc stands out from a background of its own colour.
        canvas.ring(at, radius + 1.7 * rim, 0.0, RIM, 0.7);
        canvas.ring(at, radius + 0.75 * rim, 0.0, LIGHT, 1.0);
        canvas.ring(at, radius, 0.0, color, 1.0);
    } else {
        let stroke = (radius * 0.45).max(1.0);
        canvas.ring(
            at,
            radius + rim * 0.6,
            radius - stroke - rim * 0.6,
            RIM,
            0.55,
        );
        canvas.ring(at, radius, radius - stroke, color, 0.9);
    }
}

/// Colours by start position: hue runs across, lightness down; a few points share the hues out evenly.
fn colors(starts: &[(f32, f32)]) -> Vec<Rgb> {
    let finite = || starts.iter().filter(|p| p.0.is_finite() && p.1.is_finite());
    let low = finite().fold((f32::MAX, f32::MAX), |m, p| (m.0.min(p.0), m.1.min(p.1)));
    let high = finite().fold((f32::MIN, f32::MIN), |m, p| (m.0.max(p.0), m.1.max(p.1)));
    // One scale for both axes, so that a row of points does not take its rounding for a second dimension.
    let extent = (high.0 - low.0).max(high.1 - low.1).max(1.0);
    let place = |v: f32, from: f32| ((v - from) / extent).clamp(0.0, 1.0);
    let along = |p: &(f32, f32)| {
        let (u, v) = (place(p.0, low.0), place(p.1, low.1));
        if u.is_nan() || v.is_nan() {
            (0.5, 0.5)
        } else {
            (u, v)
        }
    };
    if starts.len() <= 16 {
        let mut order: Vec<usize> = (0..starts.len()).collect();
        let key = |i: &usize| {
            let (u, v) = along(&starts[*i]);
            u + 0.37 * v
        };
        order.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let mut colors = vec![[0; 3]; starts.len()];
        for (rank, i) in order.into_iter().enumerate() {
            colors[i] = hsl(hue(rank as f32 / starts.len() as f32), 0.95, 0.6);
        }
        return colors;
    }
    starts
        .iter()
        .enumerate()
        .map(|(i, p)| {
            let (u, v) = along(p);
            // A slight, fixed spread by index tells neighbours apart.
            let spread = (i as f32 * 0.618_034).fract() - 0.5;
            let along = 0.93 * (0.72 * u + 0.28 * v) + 0.05 * spread;
            hsl(hue(along), 0.95, 0.68 - 0.16 * v)
        })
        .collect()
}

/// The hue at a place from 0 to 1 along red, orange, yellow, green, cyan, blue, violet and pink. Evenly spaced hues
/// would give a third of the way to greens, which look alike and drown in lawns and leaves.
fn hue(at: f32) -> f32 {
    const STOPS: [f32; 9] = [0.0, 0.07, 0.14, 0.36, 0.5, 0.58, 0.73, 0.86, 0.96];
    let at = at.clamp(0.0, 1.0) * (STOPS.len() - 1) as f32;
    let below = (at as usize).min(STOPS.len() - 2);
    STOPS[below] + (STOPS[below + 1] - STOPS[below]) * (at - below as f32)
}

/// A colour from hue, saturation and lightness, each 0 to 1 (the hue wraps).
fn hsl(hue: f32, saturation: f32, lightness: f32) -> Rgb {
    let reach = saturation * lightness.min(1.0 - lightness);
    let channel = |n: f32| {
        let k = (n + hue.rem_euclid(1.0) * 12.0) % 12.0;
        let v = lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (v * 255.0).round().clamp(0.0, 255.0) as u8
    };
    [channel(0.0), channel(8.0), channel(4.0)]
}
