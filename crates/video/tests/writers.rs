//! What is written can be read back: the same frames, the same times; or nothing is there at all.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use common::{BFRAMES, Media, frames, near, pixel, probe, probe_frames, reader};
use track_video::{Error, Frame, OverlayWriter, VideoInfo, WriterOptions, open};

fn write(path: &std::path::Path, info: &VideoInfo, frames: &[Frame]) -> Result<(), Error> {
    let mut writer = OverlayWriter::create(path, info, &WriterOptions::default())?;
    for frame in frames {
        writer.push(frame)?;
    }
    writer.finish()
}

/// Mean absolute difference of two frames, in levels.
fn difference(a: &Frame, b: &Frame) -> f64 {
    let sum: u64 = a
        .data
        .iter()
        .zip(&b.data)
        .map(|(a, b)| u64::from(a.abs_diff(*b)))
        .sum();
    sum as f64 / a.data.len() as f64
}

#[test]
fn videos_keep_frames_and_times() {
    let media = Media::new();
    let source = "-f lavfi -i testsrc2=s=96x64:r=25:d=1.2";
    let vfr = "-vf select='not(mod(n\\,3))+lt(mod(n\\,7)\\,2)' -vsync vfr";
    for clip in [
        media.make("b.mp4", &format!("{source} {BFRAMES}")),
        media.make("vfr.mp4", &format!("{source} {vfr} {BFRAMES}")),
        media.make("vfr.mkv", &format!("{source} {vfr} {BFRAMES}")),
        media.make("offset.ts", &format!("{source} {BFRAMES}")),
        media.make(
            "ntsc.mp4",
            &format!("-f lavfi -i testsrc2=s=96x64:r=30000/1001:d=1 {BFRAMES}"),
        ),
        media.make("mpeg4.avi", &format!("{source} -c:v mpeg4")),
        media.make("wide.mp4", &format!("{source} -vf setsar=4/3 {BFRAMES}")),
        media.make("one.mp4", &format!("{source} -frames:v 1 {BFRAMES}")),
    ] {
        let info = reader(&clip).info().clone();
        let all = frames(&clip);
        for (name, tolerance) in [("out.mp4", 1e-6), ("out.mov", 1e-6), ("out.mkv", 6e-4)] {
            let out = media.path(name);
            write(&out, &info, &all).unwrap();
            let back = frames(&out);
            assert_eq!(back.len(), all.len(), "{} {name}", clip.display());
            let probed = probe_frames(&out, "pts_time");
            assert_eq!(probed.len(), all.len());
            for ((a, b), time) in all.iter().zip(&back).zip(probed) {
                assert!(
                    (a.time - b.time).abs() < tolerance,
                    "{} {name}: {} {}",
                    clip.display(),
                    a.time,
                    b.time
                );
                let time: f64 = time.parse().unwrap();
                assert!((a.time - time).abs() < tolerance + 1e-6);
                assert!(
                    difference(a, b) < 8.0,
                    "{} {name}: {}",
                    clip.display(),
                    difference(a, b)
                );
            }
            let written = reader(&out).info().clone();
            assert_eq!(written.pixel_aspect, info.pixel_aspect, "{name}");
            assert_eq!(
                (written.color_matrix.as_str(), written.color_range.as_str()),
                ("bt709", "limited")
            );
            if all.len() > 1 && name == "out.mp4" {
                let last = all[all.len() - 1].time - all[all.len() - 2].time;
                let duration = written.duration.unwrap();
                let span = all[all.len() - 1].time - all[0].time + last;
                assert!(
                    (duration - span).abs() < 0.002
                        || (duration - span - all[0].time).abs() < 0.002,
                    "{duration} {span}"
                );
            }
        }
    }
    assert!(media.names().iter().all(|n| !n.ends_with(".part")));
}

#[test]
fn colours_and_odd_sizes_survive() {
    let media = Media::new();
    let info = reader(&media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=64x48:r=10:d=0.4 {BFRAMES}"),
    ))
    .info()
    .clone();
    for (w, h) in [(63, 47), (1, 1), (64, 47), (2, 2)] {
        for color in [[200u8, 40, 40], [40, 180, 60], [250, 250, 250], [0, 0, 0]] {
            let frame = Frame {
                index: 0,
                time: 0.0,
                width: w,
                height: h,
                data: color.repeat((w * h) as usize),
            };
            let out = media.path("c.mp4");
            write(&out, &info, std::slice::from_ref(&frame)).unwrap();
            let back = frames(&out);
            assert_eq!(
                (back[0].width, back[0].height),
                (w.next_multiple_of(2), h.next_multiple_of(2))
            );
            let corner = pixel(&back[0], back[0].width - 1, back[0].height - 1);
            assert!(
                near(corner, color, 5),
                "{w}x{h}: {corner:?} is not {color:?}"
            );
        }
    }
    let tags = probe(
        &media.path("c.mp4"),
        "stream=color_space,color_transfer,color_primaries,color_range",
    );
    assert_eq!(tags, ["tv,bt709,bt709,bt709"]);
}

#[test]
fn gifs_keep_times_to_the_hundredth() {
    let media = Media::new();
    let clip = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=64x48:r=15:d=1 {BFRAMES}"),
    );
    let (info, all) = (reader(&clip).info().clone(), frames(&clip));
    write(&media.path("a.gif"), &info, &all).unwrap();
    let back = frames(&media.path("a.gif"));
    assert_eq!(back.len(), all.len());
    for (a, b) in all.iter().zip(&back) {
        assert!((a.time - b.time).abs() <= 0.0051);
        assert!(difference(a, b) < 12.0, "{}", difference(a, b));
    }
}

#[test]
fn contact_sheets_hold_what_was_asked() {
    let media = Media::new();
    let clip = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=320x180:r=25:d=4 {BFRAMES}"),
    );
    let (info, all) = (reader(&clip).info().clone(), frames(&clip));
    for count in [1, 3, all.len()] {
        let out = media.path("sheet.png");
        write(&out, &info, &all[..count]).unwrap();
        let sheet = image::open(&out).unwrap();
        assert!(sheet.width() <= 1600 && sheet.width() > 150);
    }
}

#[test]
fn nothing_is_left_of_what_was_not_finished() {
    let media = Media::new();
    let clip = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=64x48:r=10:d=0.4 {BFRAMES}"),
    );
    let (info, all) = (reader(&clip).info().clone(), frames(&clip));
    for name in ["x.mp4", "x.gif", "x.png"] {
        let out = media.path(name);
        // Dropped halfway.
        let mut writer = OverlayWriter::create(&out, &info, &WriterOptions::default()).unwrap();
        writer.push(&all[0]).unwrap();
        drop(writer);
        // Finished without a frame.
        let writer = OverlayWriter::create(&out, &info, &WriterOptions::default()).unwrap();
        assert!(writer.finish().unwrap_err().is_output());
        // A frame of another size is refused and the rest still written.
        let mut writer = OverlayWriter::create(&out, &info, &WriterOptions::default()).unwrap();
        writer.push(&all[0]).unwrap();
        let odd = Frame {
            width: 2,
            height: 2,
            data: vec![0; 12],
            ..all[1].clone()
        };
        assert!(matches!(writer.push(&odd), Err(Error::Pixels(_))));
        let short = Frame {
            data: vec![0; 12],
            ..all[1].clone()
        };
        assert!(matches!(writer.push(&short), Err(Error::Pixels(_))));
        drop(writer);
    }
    assert_eq!(media.names(), ["a.mp4"]);

    std::fs::create_dir(media.path("folder.mp4")).unwrap();
    for name in ["missing/x.mp4", "folder.mp4", "x.txt", "x"] {
        let error =
            OverlayWriter::create(&media.path(name), &info, &WriterOptions::default()).unwrap_err();
        assert!(error.is_output(), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(media.names(), ["a.mp4", "folder.mp4"]);
}

#[test]
fn a_finished_file_replaces_the_old_and_has_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let media = Media::new();
    let clip = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=64x48:r=10:d=0.4 {BFRAMES}"),
    );
    let (info, all) = (reader(&clip).info().clone(), frames(&clip));
    let out = media.path("out.mp4");
    std::fs::write(&out, "old").unwrap();
    let mut writer = OverlayWriter::create(&out, &info, &WriterOptions::default()).unwrap();
    writer.push(&all[0]).unwrap();
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    writer.finish().unwrap();
    let mode = std::fs::metadata(&out).unwrap().permissions().mode();
    std::fs::write(media.path("plain"), "").unwrap();
    assert_eq!(
        mode,
        std::fs::metadata(media.path("plain"))
            .unwrap()
            .permissions()
            .mode()
    );
    assert_eq!(frames(&out).len(), 1);
}

#[test]
fn times_can_start_at_zero() {
    let media = Media::new();
    let clip = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=64x48:r=10:d=1 {BFRAMES}"),
    );
    let options = track_video::OpenOptions {
        range: "4..8".parse().unwrap(),
        ..Default::default()
    };
    let reading = open(&clip, &options).unwrap();
    let options = WriterOptions {
        from_zero: true,
        ..Default::default()
    };
    let mut writer = OverlayWriter::create(&media.path("z.mp4"), reading.info(), &options).unwrap();
    for frame in reading {
        writer.push(&frame.unwrap()).unwrap();
    }
    writer.finish().unwrap();
    let times: Vec<f64> = frames(&media.path("z.mp4"))
        .iter()
        .map(|f| f.time)
        .collect();
    assert_eq!(times, [0.0, 0.1, 0.2, 0.3]);
}
