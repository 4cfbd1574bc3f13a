//! Colours, sizes, pixel formats and turns come out as they are displayed.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use common::{Media, frames, near, pixel, reader};
use track_video::{Frame, OpenOptions, open};

/// Four known colours in a 2x2 grid of 32-pixel patches.
const PATCHES: [[u8; 3]; 4] = [[200, 40, 40], [40, 180, 60], [50, 60, 210], [230, 220, 90]];

fn patches() -> Vec<u8> {
    (0..64 * 64)
        .flat_map(|i| PATCHES[(i / 64 / 32) * 2 + (i % 64) / 32])
        .collect()
}

fn centre(frame: &Frame, patch: usize) -> [u8; 3] {
    let (w, h) = (frame.width, frame.height);
    pixel(
        frame,
        w / 4 + (patch as u32 % 2) * (w / 2),
        h / 4 + (patch as u32 / 2) * (h / 2),
    )
}

fn write_patches(media: &Media) {
    let picture = image::RgbImage::from_raw(64, 64, patches()).unwrap();
    picture.save(media.path("patches.png")).unwrap();
}

#[test]
fn colours_follow_the_streams_matrix_and_range() {
    let media = Media::new();
    write_patches(&media);
    for (matrix, tag, name) in [
        ("bt709", "bt709", "bt709"),
        ("bt601", "smpte170m", "bt601"),
        ("bt2020", "bt2020nc", "bt2020"),
    ] {
        for (range, full) in [("tv", "limited"), ("pc", "full")] {
            for format in ["yuv420p", "yuv444p", "yuv422p10le"] {
                let clip = media.make(
                    "c.mkv",
                    &format!(
                        "-loop 1 -i patches.png -frames:v 2 -vf scale=out_color_matrix={matrix}:out_range={range}:flags=accurate_rnd,format={format} \
                         -colorspace {tag} -color_range {range} -c:v ffv1"
                    ),
                );
                let reading = reader(&clip);
                let info = reading.info().clone();
                assert_eq!(
                    (info.color_matrix.as_str(), info.color_range.as_str()),
                    (name, full)
                );
                for frame in reading {
                    let frame = frame.unwrap();
                    for (i, expected) in PATCHES.into_iter().enumerate() {
                        let found = centre(&frame, i);
                        assert!(
                            near(found, expected, 3),
                            "{matrix} {range} {format}: {found:?} is not {expected:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn unstated_colours_are_guessed_by_size() {
    let media = Media::new();
    write_patches(&media);
    for (size, matrix) in [(64, "bt601"), (720, "bt709")] {
        let clip = media.make(
            "g.mkv",
            &format!(
                "-loop 1 -i patches.png -frames:v 1 -vf scale={size}:{size}:flags=neighbor:out_color_matrix={matrix}:out_range=tv,format=yuv420p -c:v ffv1"
            ),
        );
        let frame = &frames(&clip)[0];
        for (i, expected) in PATCHES.into_iter().enumerate() {
            assert!(
                near(centre(frame, i), expected, 4),
                "{size}: {:?}",
                centre(frame, i)
            );
        }
    }
}

#[test]
fn every_stored_format_becomes_rgb() {
    let media = Media::new();
    write_patches(&media);
    for (format, codec, tolerance) in [
        ("rgb24", "png", 0),
        ("rgba", "png", 0),
        ("gbrp", "ffv1", 0),
        ("bgr0", "ffv1", 0),
        ("yuvj420p", "mjpeg", 12),
        ("yuv410p", "ffv1", 6),
        ("yuv420p10le", "ffv1", 4),
        ("yuva420p", "ffv1", 4),
        ("rgb48be", "png", 1),
    ] {
        let clip = media.make(
            "f.mkv",
            &format!("-loop 1 -i patches.png -frames:v 1 -pix_fmt {format} -c:v {codec} -q:v 1"),
        );
        let frame = &frames(&clip)[0];
        for (i, expected) in PATCHES.into_iter().enumerate() {
            let found = centre(frame, i);
            assert!(
                near(found, expected, tolerance),
                "{format}: {found:?} is not {expected:?}"
            );
        }
    }
    for format in ["gray", "gray10le"] {
        let clip = media.make(
            "g.mkv",
            &format!("-f lavfi -i color=0x808080:s=64x64:r=5:d=0.2 -pix_fmt {format} -c:v ffv1"),
        );
        let found = pixel(&frames(&clip)[0], 30, 30);
        assert!(near(found, [128, 128, 128], 2), "{format}: {found:?}");
    }
}

#[test]
fn odd_sizes_are_kept() {
    let media = Media::new();
    for (w, h) in [(1, 1), (3, 2), (17, 33), (65, 47), (255, 129)] {
        let clip = media.make(
            "o.mkv",
            &format!("-f lavfi -i color=0x3264C8:s=64x64:r=5:d=0.4 -vf scale={w}:{h} -pix_fmt yuv444p -c:v ffv1"),
        );
        let all = frames(&clip);
        assert_eq!(all.len(), 2);
        for frame in all {
            assert_eq!((frame.width, frame.height), (w, h));
            assert_eq!(frame.data.len(), (w * h * 3) as usize);
            assert!(
                frame
                    .data
                    .chunks(3)
                    .all(|p| near([p[0], p[1], p[2]], [50, 100, 200], 3))
            );
        }
    }
    let clip = media.make(
        "o420.mkv",
        "-f lavfi -i testsrc2=s=68x46:r=5:d=0.4 -vf scale=67:45,format=yuv420p -c:v ffv1",
    );
    assert_eq!(frames(&clip)[0].data.len(), 67 * 45 * 3);
}

#[test]
fn turns_are_applied() {
    let media = Media::new();
    write_patches(&media);
    media.make("p.mp4", "-loop 1 -i patches.png -frames:v 3 -vf scale=96:64:flags=neighbor,format=yuv444p -c:v libx264 -qp 0");
    let mut met = Vec::new();
    for degrees in [0, 90, 180, 270] {
        let clip = media.make(
            "t.mp4",
            &format!("-i p.mp4 -c copy -metadata:s:v rotate={degrees}"),
        );
        // Which way a tool writes the angle has changed over its versions; how it displays the file is what counts.
        let displayed = image::open(media.make("t.png", "-i t.mp4 -frames:v 1"))
            .unwrap()
            .into_rgb8();
        let reading = reader(&clip);
        let info = reading.info().clone();
        let order = match info.rotation {
            0 => [0, 1, 2, 3],
            90 => [2, 0, 3, 1],
            180 => [3, 2, 1, 0],
            _ => [1, 3, 0, 2],
        };
        met.push(info.rotation);
        let size = if degrees % 180 == 0 {
            (96, 64)
        } else {
            (64, 96)
        };
        assert_eq!(
            (info.width, info.height, info.mirrored),
            (size.0, size.1, false)
        );
        assert_eq!(displayed.dimensions(), size);
        let all: Vec<Frame> = reading.map(|f| f.unwrap()).collect();
        assert_eq!(all.len(), 3);
        let options = OpenOptions {
            max_size: Some((48, 48)),
            ..Default::default()
        };
        let small = open(&clip, &options).unwrap().next().unwrap().unwrap();
        assert_eq!((small.width, small.height), (size.0 / 2, size.1 / 2));
        for (i, patch) in order.into_iter().enumerate() {
            let found = centre(&all[0], i);
            assert!(
                near(found, PATCHES[patch], 5),
                "{degrees}: patch {i} is {found:?}"
            );
            assert!(near(centre(&small, i), PATCHES[patch], 5));
            let (x, y) = (
                size.0 / 4 + (i as u32 % 2) * size.0 / 2,
                size.1 / 4 + (i as u32 / 2) * size.1 / 2,
            );
            assert!(
                near(displayed.get_pixel(x, y).0, found, 8),
                "{degrees}: patch {i}"
            );
        }
    }
    met.sort_unstable();
    assert_eq!(met, [0, 90, 180, 270]);
}

#[test]
fn a_size_that_changes_midway_is_scaled_to_the_first() {
    let media = Media::new();
    media.make(
        "1.ts",
        "-f lavfi -i color=red:s=64x48:r=5:d=1 -c:v mpeg2video",
    );
    media.make(
        "2.ts",
        "-f lavfi -i color=blue:s=96x80:r=5:d=1 -c:v mpeg2video",
    );
    let both: Vec<u8> = ["1.ts", "2.ts"]
        .iter()
        .flat_map(|n| std::fs::read(media.path(n)).unwrap())
        .collect();
    std::fs::write(media.path("both.ts"), both).unwrap();
    let mut reading = reader(&media.path("both.ts"));
    let all: Vec<Frame> = reading.by_ref().map(|f| f.unwrap()).collect();
    assert!(all.len() >= 9, "{}", all.len());
    assert!(all.iter().all(|f| (f.width, f.height) == (64, 48)));
    assert!(near(pixel(&all[all.len() - 1], 30, 20), [0, 0, 254], 6));
    assert!(
        reading
            .warnings()
            .iter()
            .any(|w| w.contains("size changes")),
        "{:?}",
        reading.warnings()
    );
}

#[test]
fn streams_without_a_length_are_read_to_their_end() {
    let media = Media::new();
    for name in [
        "a.ts", "a.h264", "a.mjpeg", "a.mkv", "a.flv", "a.m2v", "a.webm",
    ] {
        let codec = match name {
            "a.mjpeg" => "-c:v mjpeg",
            "a.m2v" => "-c:v mpeg2video -bf 2",
            "a.webm" => "-c:v libvpx",
            _ => "-c:v libx264 -bf 2",
        };
        let clip = media.make(
            name,
            &format!("-f lavfi -i testsrc2=s=64x48:r=25:d=0.8 -pix_fmt yuv420p {codec}"),
        );
        let all = frames(&clip);
        assert_eq!(all.len(), 20, "{name}");
        for pair in all.windows(2) {
            let step = pair[1].time - pair[0].time;
            assert!(
                (step - 0.04).abs() < 2e-3,
                "{name}: {} then {}",
                pair[0].time,
                pair[1].time
            );
        }
    }
}

#[test]
fn pixel_aspect_is_recorded_and_not_applied() {
    let media = Media::new();
    let clip = media.make(
        "w.mp4",
        "-f lavfi -i testsrc2=s=64x48:r=5:d=0.4 -vf setsar=4/3 -pix_fmt yuv420p",
    );
    let info = reader(&clip).info().clone();
    assert_eq!(
        (info.width, info.height, info.pixel_aspect),
        (64, 48, (4, 3))
    );
}
