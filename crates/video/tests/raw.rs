//! Raw pictures of an application.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use proptest::prelude::*;
use track_video::raw::{PixelFormat, RawPicture, YuvMatrix, YuvRange, convert};

const FORMATS: [PixelFormat; 6] = [
    PixelFormat::Rgb8,
    PixelFormat::Rgba8,
    PixelFormat::Bgr8,
    PixelFormat::Bgra8,
    PixelFormat::Gray8,
    PixelFormat::Nv12,
];

fn picture<'a>(
    format: PixelFormat,
    size: (u32, u32),
    planes: &'a [(&'a [u8], usize)],
) -> RawPicture<'a> {
    RawPicture {
        width: size.0,
        height: size.1,
        format,
        planes,
        matrix: YuvMatrix::Bt709,
        range: YuvRange::Limited,
    }
}

#[test]
fn packed_orders_are_told_apart() {
    let rgb = |format, bytes: &[u8]| {
        convert(&picture(format, (1, 1), &[(bytes, bytes.len())]), 7, 0.5).unwrap()
    };
    assert_eq!(rgb(PixelFormat::Rgb8, &[1, 2, 3]).data, [1, 2, 3]);
    assert_eq!(rgb(PixelFormat::Rgba8, &[1, 2, 3, 4]).data, [1, 2, 3]);
    assert_eq!(rgb(PixelFormat::Bgr8, &[1, 2, 3]).data, [3, 2, 1]);
    assert_eq!(rgb(PixelFormat::Bgra8, &[1, 2, 3, 4]).data, [3, 2, 1]);
    let gray = rgb(PixelFormat::Gray8, &[9]);
    assert_eq!((gray.data, gray.index, gray.time), (vec![9, 9, 9], 7, 0.5));
}

#[test]
fn nv12_black_white_and_red() {
    for (matrix, red_limited) in [
        (YuvMatrix::Bt601, [81, 90, 240]),
        (YuvMatrix::Bt709, [63, 102, 240]),
        (YuvMatrix::Bt2020, [74, 97, 240]),
    ] {
        for ([y, cb, cr], range, expected) in [
            ([16, 128, 128], YuvRange::Limited, [0, 0, 0]),
            ([235, 128, 128], YuvRange::Limited, [255, 255, 255]),
            ([0, 128, 128], YuvRange::Full, [0, 0, 0]),
            ([255, 128, 128], YuvRange::Full, [255, 255, 255]),
            (red_limited, YuvRange::Limited, [255, 0, 0]),
        ] {
            let (luma, chroma) = ([y; 9], [cb, cr, cb, cr, cb, cr, cb, cr]);
            let planes: [(&[u8], usize); 2] = [(&luma, 3), (&chroma, 4)];
            let raw = RawPicture {
                matrix,
                range,
                ..picture(PixelFormat::Nv12, (3, 3), &planes)
            };
            for pixel in convert(&raw, 0, 0.0).unwrap().data.chunks(3) {
                assert!(
                    pixel.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 2),
                    "{matrix:?} {range:?}: {pixel:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn wrong_sizes_are_refused_and_never_panic(
        format in 0usize..6,
        width in 0u32..70, height in 0u32..70,
        lengths in prop::collection::vec((0usize..20_000, 0usize..400), 0..4),
        huge in prop::bool::weighted(0.1),
    ) {
        let data = vec![100u8; 20_000];
        let planes: Vec<(&[u8], usize)> = lengths.iter()
            .map(|(l, s)| (&data[..*l], if huge { usize::MAX - s } else { *s }))
            .collect();
        let size = if huge { (width * 60_000_000, height) } else { (width, height) };
        if let Ok(frame) = convert(&picture(FORMATS[format], size, &planes), 0, 0.0) {
            prop_assert_eq!(frame.data.len(), (width * height * 3) as usize);
        }
    }

    #[test]
    fn padding_changes_nothing(width in 1u32..40, height in 1u32..40, pad in 0usize..30, format in 0usize..6, seed in any::<u64>()) {
        let format = FORMATS[format];
        let (w, h) = (width as usize, height as usize);
        let rows = match format {
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => vec![(w * 3, h)],
            PixelFormat::Rgba8 | PixelFormat::Bgra8 => vec![(w * 4, h)],
            PixelFormat::Gray8 => vec![(w, h)],
            PixelFormat::Nv12 => vec![(w, h), (w.div_ceil(2) * 2, h.div_ceil(2))],
        };
        let value = |i: usize| (seed.wrapping_mul(i as u64 * 2 + 1) >> 23) as u8;
        let build = |pad: usize| -> Vec<(Vec<u8>, usize)> {
            rows.iter().map(|&(bytes, count)| {
                let mut plane = Vec::new();
                for row in 0..count {
                    plane.extend((0..bytes).map(|i| value(row * bytes + i)));
                    // The last row is not padded.
                    if row + 1 < count {
                        plane.extend(vec![77; pad]);
                    }
                }
                (plane, bytes + pad)
            }).collect()
        };
        let decode = |planes: &[(Vec<u8>, usize)]| {
            let planes: Vec<(&[u8], usize)> = planes.iter().map(|(p, s)| (p.as_slice(), *s)).collect();
            convert(&picture(format, (width, height), &planes), 0, 0.0).unwrap()
        };
        prop_assert_eq!(decode(&build(0)), decode(&build(pad)));
    }
}
