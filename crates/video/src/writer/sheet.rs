//! A contact sheet: evenly spread frames on one picture.

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

use super::{WriterOptions, font};
use crate::Frame;

const MARGIN: u32 = 12;
const GAP: u32 = 10;
const PAPER: Rgb<u8> = Rgb([24, 24, 27]);
const INK: Rgb<u8> = Rgb([212, 212, 216]);
const FAINT: Rgb<u8> = Rgb([130, 130, 140]);
/// How many times more frames are kept than shown: the finer the choice, the more even the spread.
const SPARE: usize = 4;
/// No cell is made smaller than this, for its label's sake; the sheet gets fewer columns instead.
const LEAST_CELL: u32 = 150;

/// A contact sheet in the making. How many frames come is not known, so that every `stride`-th is kept,
/// already reduced, and the stride doubles whenever too many have come together.
pub(super) struct Sheet {
    wanted: usize,
    width: u32,
    stride: u64,
    seen: u64,
    kept: Vec<Thumb>,
    last: Option<Frame>,
}

struct Thumb {
    index: u64,
    time: f64,
    picture: RgbImage,
}

/// Columns, and the size of a cell's picture.
struct Grid {
    columns: u32,
    cell: (u32, u32),
}

impl Sheet {
    pub(super) fn new(options: &WriterOptions) -> Self {
        Self {
            wanted: options.sheet_frames.clamp(1, 1000),
            width: options.sheet_width.clamp(LEAST_CELL + 2 * MARGIN, 20_000),
            stride: 1,
            seen: 0,
            kept: Vec::new(),
            last: None,
        }
    }

    pub(super) fn push(&mut self, frame: &Frame) {
        let take = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if take {
            let thumb = self.reduce(frame);
            self.kept.push(thumb);
            if self.kept.len() > self.wanted * SPARE {
                let mut place = 0usize;
                self.kept.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
        }
        // The last frame belongs on the sheet, and any frame may be the last.
        self.last = Some(frame.clone());
    }

    fn reduce(&self, frame: &Frame) -> Thumb {
        let size = (frame.width, frame.height);
        let cell = grid(self.wanted, self.width, size).cell;
        let picture = RgbImage::from_raw(size.0, size.1, frame.data.clone()).unwrap_or_default();
        let picture = if cell == size {
            picture
        } else {
            imageops::resize(&picture, cell.0, cell.1, FilterType::CatmullRom)
        };
        Thumb {
            index: frame.index,
            time: frame.time,
            picture,
        }
    }

    /// The finished sheet; `None` if no frame came.
    pub(super) fn picture(mut self) -> Option<RgbImage> {
        let last = self.last.take()?;
        if self.kept.last().is_none_or(|t| t.index != last.index) {
            let thumb = self.reduce(&last);
            self.kept.push(thumb);
        }
        let first = self.kept.first()?.index;
        let count = self.wanted.min(self.kept.len());
        // The kept frame nearest to each of `count` evenly spread ones.
        let span = last.index.saturating_sub(first) as f64;
        let mut chosen: Vec<usize> = (0..count)
            .map(|i| {
                let ideal = first as f64 + span * i as f64 / (count.max(2) - 1) as f64;
                let distance = |t: &Thumb| (t.index as f64 - ideal).abs();
                (0..self.kept.len())
                    .min_by(|a, b| distance(&self.kept[*a]).total_cmp(&distance(&self.kept[*b])))
                    .unwrap_or(0)
            })
            .collect();
        chosen.dedup();
        let grid = grid(self.wanted, self.width, (last.width, last.height));
        let columns = grid.columns.min(chosen.len() as u32);
        let rows = (chosen.len() as u32).div_ceil(columns);
        let scale = if grid.cell.0 >= 220 { 2 } else { 1 };
        let label = font::SIGN.1 * scale + 12;
        let step = (grid.cell.0 + GAP, grid.cell.1 + label + GAP);
        let mut sheet = RgbImage::from_pixel(
            2 * MARGIN + columns * step.0 - GAP,
            2 * MARGIN + rows * step.1 - GAP,
            PAPER,
        );
        for (place, thumb) in chosen.iter().map(|i| &self.kept[*i]).enumerate() {
            let (column, row) = (place as u32 % columns, place as u32 / columns);
            let (x, y) = (MARGIN + column * step.0, MARGIN + row * step.1);
            imageops::replace(&mut sheet, &thumb.picture, i64::from(x), i64::from(y));
            let under = y + grid.cell.1 + 6;
            let number = format!("#{}", thumb.index);
            let time = format!("{:.2} s", thumb.time);
            font::draw(&mut sheet, &number, (x, under), scale, INK);
            let width = font::width(&time, scale);
            if font::width(&number, scale) + width + 6 * scale <= grid.cell.0 {
                let right = x + grid.cell.0 - width;
                font::draw(&mut sheet, &time, (right, under), scale, FAINT);
            }
        }
        Some(sheet)
    }
}

/// Lays `count` pictures of `size` out: about as wide as a page or a screen, no wider than `width`, none enlarged.
fn grid(count: usize, width: u32, size: (u32, u32)) -> Grid {
    let aspect = f64::from(size.0) / f64::from(size.1.max(1));
    // A sheet about 1.5 times as wide as high.
    let ideal = (1.5 * count as f64 / aspect).sqrt().round().max(1.0) as u32;
    let room = width - 2 * MARGIN;
    let most = ((room + GAP) / (LEAST_CELL.min(size.0) + GAP)).max(1);
    let columns = ideal.clamp(1, most.min(count as u32));
    let w = ((room + GAP) / columns)
        .saturating_sub(GAP)
        .clamp(1, size.0);
    let h = (f64::from(w) / aspect).round().max(1.0) as u32;
    Grid {
        columns,
        cell: (w, h),
    }
}
