//! A range equals the same slice of a full decode; times are ffprobe's.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use common::{BFRAMES, Media, frames, probe_frames, ranged, reader};
use proptest::prelude::*;
use track_video::{Error, FrameRange, Position};

/// Every kind of timing, by name.
fn clips(media: &Media) -> Vec<std::path::PathBuf> {
    let source = "-f lavfi -i testsrc2=s=64x48:r=25:d=1.6";
    // Frames dropped unevenly, their times kept.
    let vfr = "-vf select='not(mod(n\\,3))+lt(mod(n\\,7)\\,2)' -vsync vfr";
    vec![
        media.make("b.mp4", &format!("{source} {BFRAMES}")),
        media.make("vfr.mp4", &format!("{source} {vfr} {BFRAMES}")),
        media.make("vfr.mkv", &format!("{source} {vfr} {BFRAMES}")),
        media.make("offset.ts", &format!("{source} {BFRAMES}")),
        media.make(
            "late.mp4",
            &format!("{source} {BFRAMES} -output_ts_offset 3.5"),
        ),
        media.make(
            "ntsc.mp4",
            &format!("-f lavfi -i testsrc2=s=64x48:r=30000/1001:d=1.3 {BFRAMES}"),
        ),
        media.make("mpeg4.avi", &format!("{source} -c:v mpeg4 -bf 2 -g 10")),
        media.make("cut.mp4", "-ss 0.5 -i b.mp4 -c copy"),
    ]
}

#[test]
fn ranges_equal_slices_of_the_whole() {
    let media = Media::new();
    for clip in clips(&media) {
        let all = frames(&clip);
        assert!(all.len() > 15, "{}", clip.display());
        for (i, frame) in all.iter().enumerate() {
            assert_eq!(frame.index, i as u64);
        }
        assert!(
            all.windows(2).all(|w| w[0].time < w[1].time),
            "{}",
            clip.display()
        );
        for (a, b) in [(0, 5), (3, 4), (7, 13), (11, 15)] {
            let expected = &all[a..b];
            assert_eq!(ranged(&clip, &format!("{a}..{b}")).unwrap(), expected);
            // Times as a listing prints them, with six decimals.
            let by_time = format!("{:.6}s..{:.6}s", all[a].time, all[b].time);
            assert_eq!(
                ranged(&clip, &by_time).unwrap(),
                expected,
                "{} {by_time}",
                clip.display()
            );
            let mixed = format!("{a}..{:.6}s", all[b].time);
            assert_eq!(ranged(&clip, &mixed).unwrap(), expected);
        }
        assert_eq!(ranged(&clip, "10..").unwrap(), &all[10..]);
        assert_eq!(ranged(&clip, "..3").unwrap(), &all[..3]);
        assert_eq!(ranged(&clip, "..99999").unwrap(), all);
    }
}

#[test]
fn times_and_counts_are_those_of_ffprobe() {
    let media = Media::new();
    for clip in clips(&media) {
        let all = frames(&clip);
        let expected = probe_frames(&clip, "pts_time");
        let missing = expected.iter().any(|t| t == "N/A");
        let expected = match missing {
            true => probe_frames(&clip, "best_effort_timestamp_time"),
            false => expected,
        };
        assert_eq!(all.len(), expected.len(), "{}", clip.display());
        for (frame, time) in all.iter().zip(&expected) {
            // Where ffprobe has no time either, the frame rate gives it; order is asserted elsewhere.
            let Ok(time) = time.parse::<f64>() else {
                continue;
            };
            assert!(
                (frame.time - time).abs() < 1e-6,
                "{}: {} is not {time}",
                clip.display(),
                frame.time
            );
        }
        if let Some(count) = reader(&clip).info().frames {
            assert_eq!(count, all.len() as u64, "{}", clip.display());
        }
        let mut reading = reader(&clip);
        reading.by_ref().for_each(drop);
        assert!(reading.warnings().is_empty(), "{:?}", reading.warnings());
    }
}

#[test]
fn empty_ranges_are_refused() {
    let media = Media::new();
    let clip = media.make("a.mp4", "-f lavfi -i testsrc2=s=64x48:r=25:d=0.4");
    for range in ["5..5", "6..2", "2s..1s", "..0"] {
        assert!(
            matches!(range.parse::<FrameRange>(), Err(Error::EmptyRange { .. })),
            "{range}"
        );
    }
    for range in ["10..", "8..0.1s", "7s.."] {
        let error = ranged(&clip, range).unwrap_err();
        assert!(
            matches!(error, Error::EmptyRange { .. }) && error.is_usage(),
            "{range}: {error}"
        );
        assert!(error.to_string().contains("a.mp4"), "{error}");
    }
}

#[test]
fn positions_are_read_as_people_write_them() {
    let time = |t: &str| t.parse::<Position>().unwrap();
    assert_eq!(time("120"), Position::Frame(120));
    assert_eq!(time("4.5s"), Position::Time(4.5));
    assert_eq!(time("-0.5s"), Position::Time(-0.5));
    assert_eq!(time("1:02.5"), Position::Time(62.5));
    assert_eq!(time("00:01:02.5"), Position::Time(62.5));
    assert_eq!(time("90:00"), Position::Time(5400.0));
    for bad in [
        "",
        "4.5",
        "s",
        "-3",
        "1:60",
        "1:2:3:4",
        "infs",
        "nans",
        "1e3s",
        "1:-2",
        "1.2.3s",
        "0x10",
        "99999999999999999999",
    ] {
        let error = bad.parse::<Position>().unwrap_err();
        assert!(error.is_usage() && !error.is_output(), "{bad}");
    }
    assert_eq!("..".parse::<FrameRange>().unwrap(), FrameRange::default());
    assert!("5".parse::<FrameRange>().is_err());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[-0-9:.s ]{0,14}|.{0,12}") {
        let _ = text.parse::<Position>();
        let _ = text.parse::<FrameRange>();
    }

    #[test]
    fn ranges_print_as_they_are_read(a in 0u64..1000, n in 1u64..1000, t in 0.0f64..100.0, d in 0.001f64..10.0) {
        for range in [
            FrameRange { start: Some(Position::Frame(a)), end: Some(Position::Frame(a + n)) },
            FrameRange { start: Some(Position::Time(t)), end: Some(Position::Time(t + d)) },
            FrameRange { start: None, end: Some(Position::Time(t + d)) },
            FrameRange { start: Some(Position::Frame(a)), end: None },
        ] {
            prop_assert_eq!(range.to_string().parse::<FrameRange>().unwrap(), range);
        }
    }
}
