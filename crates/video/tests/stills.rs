//! Folders, patterns, GIFs and single pictures.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use common::{Media, frames, near, pixel, ranged, reader};
use image::{Rgb, RgbImage};
use track_video::{Error, OpenOptions, SourceKind, open};

fn still(media: &Media, name: &str, size: (u32, u32), value: u8) {
    RgbImage::from_pixel(size.0, size.1, Rgb([value, 0, 0]))
        .save(media.path(name))
        .unwrap();
}

#[test]
fn a_folder_is_read_in_natural_order() {
    let media = Media::new();
    let folder = media.path("shots");
    std::fs::create_dir(&folder).unwrap();
    for n in [10u8, 2, 1, 100, 20] {
        still(&media, &format!("shots/img{n}.png"), (8, 6), n);
    }
    std::fs::write(folder.join("notes.txt"), "not a still").unwrap();
    std::fs::write(folder.join(".hidden.png"), "not a still").unwrap();
    for path in [folder.clone(), folder.join("*.png"), folder.join("img*")] {
        let all = frames(&path);
        let order: Vec<u8> = all.iter().map(|f| f.data[0]).collect();
        assert_eq!(order, [1, 2, 10, 20, 100]);
        assert!((all[3].time - 3.0 / 25.0).abs() < 1e-12);
        let info = reader(&path).info().clone();
        assert_eq!(
            (info.kind, info.frames, info.frame_rate),
            (SourceKind::Stills, Some(5), Some((25, 1)))
        );
    }
    assert_eq!(ranged(&folder, "1..0.12s").unwrap(), &frames(&folder)[1..3]);
    let options = OpenOptions {
        stills_fps: Some(29.97),
        ..Default::default()
    };
    let info = open(&folder, &options).unwrap().info().clone();
    assert_eq!(
        (info.frame_rate, info.time_base),
        (Some((30000, 1001)), (1001, 30000))
    );
    let options = OpenOptions {
        stills_fps: Some(f64::NAN),
        ..Default::default()
    };
    assert!(open(&folder, &options).is_err());
}

#[test]
fn a_still_of_another_size_is_named() {
    let media = Media::new();
    for n in 1..=3 {
        still(&media, &format!("a{n}.png"), (8, 6), 0);
    }
    still(&media, "a12.png", (9, 6), 0);
    let error = open(&media.path("a*.png"), &OpenOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Stills { .. }));
    let text = error.to_string();
    assert!(
        text.contains("a12.png") && text.contains("9x6") && text.contains("8x6"),
        "{text}"
    );
}

#[test]
fn a_single_still_is_one_frame() {
    let media = Media::new();
    for name in [
        "one.png", "one.jpg", "one.bmp", "one.webp", "one.tiff", "one.ppm",
    ] {
        still(&media, name, (16, 8), 200);
        let all = frames(&media.path(name));
        assert_eq!(all.len(), 1, "{name}");
        assert_eq!((all[0].width, all[0].height, all[0].time), (16, 8, 0.0));
        assert!(near(pixel(&all[0], 8, 4), [200, 0, 0], 4));
        assert_eq!(reader(&media.path(name)).info().kind, SourceKind::Still);
    }
    let data = std::fs::read(media.path("one.png")).unwrap();
    std::fs::write(media.path("cut.png"), &data[..data.len() / 2]).unwrap();
    let outcome = open(&media.path("cut.png"), &OpenOptions::default())
        .and_then(|r| r.collect::<Result<Vec<_>, _>>());
    assert!(matches!(outcome, Err(Error::Decode { .. })));
}

#[test]
fn gif_delays_are_times() {
    let media = Media::new();
    let path = media.path("a.gif");
    let mut encoder = gif::Encoder::new(std::fs::File::create(&path).unwrap(), 8, 6, &[]).unwrap();
    for (value, delay) in [(10u8, 4u16), (80, 25), (160, 0), (240, 7)] {
        let mut frame = gif::Frame::from_rgb(8, 6, &[value, 0, 0].repeat(48));
        frame.delay = delay;
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    let all = frames(&path);
    let times: Vec<f64> = all.iter().map(|f| f.time).collect();
    // No delay at all is shown as a tenth of a second.
    assert_eq!(times, [0.0, 0.04, 0.29, 0.39]);
    let values: Vec<u8> = all.iter().map(|f| f.data[0]).collect();
    assert_eq!(values, [10, 80, 160, 240]);
    let info = reader(&path).info().clone();
    assert_eq!(
        (info.kind, info.frames, info.duration),
        (SourceKind::Gif, Some(4), Some(0.46))
    );
    assert_eq!(ranged(&path, "1..3").unwrap(), &all[1..3]);
}

#[test]
#[cfg(feature = "ffmpeg")]
fn gif_frames_are_composed_as_ffmpeg_composes_them() {
    let media = Media::new();
    let path = media.make("c.gif", "-f lavfi -i testsrc=s=60x40:r=10:d=1");
    media.make("c.mkv", "-i c.gif -pix_fmt bgr0 -c:v ffv1");
    let (ours, theirs) = (frames(&path), frames(&media.path("c.mkv")));
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(&theirs) {
        assert!(a.data == b.data, "frame {}", a.index);
        assert!((a.time - b.time).abs() < 1e-3);
    }
    let data = std::fs::read(&path).unwrap();
    for step in 0..40 {
        let cut = media.path("cut.gif");
        std::fs::write(&cut, &data[..data.len() * step / 40]).unwrap();
        if let Ok(mut reading) = open(&cut, &OpenOptions::default()) {
            let whole = reading.by_ref().filter(|f| f.is_ok()).count();
            assert!(whole == ours.len() || !reading.warnings().is_empty() || whole == 0);
        }
    }
}

#[test]
fn readers_and_writers_can_move_to_another_thread() {
    fn movable<T: Send + 'static>() {}
    movable::<track_video::Reader>();
    movable::<track_video::OverlayWriter>();
    movable::<track_video::Overlay>();
}

#[test]
#[cfg(not(feature = "ffmpeg"))]
fn without_ffmpeg_a_video_is_refused_with_a_reason() {
    let media = Media::new();
    std::fs::write(media.path("a.mp4"), "anything").unwrap();
    let error = open(&media.path("a.mp4"), &OpenOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("FFmpeg"));
    assert_eq!(track_video::ffmpeg_version(), None);
}
