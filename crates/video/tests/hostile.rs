//! Files that are not what they say, and files cut short.
#![cfg(feature = "ffmpeg")]
#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

mod common;

use std::fs;

use common::{BFRAMES, Media, frames, reader};
use track_video::{Error, OpenOptions, open};

fn refused(path: &std::path::Path) -> Error {
    let error = open(path, &OpenOptions::default()).unwrap_err();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(error.to_string().contains(name), "{error}");
    assert!(!error.is_output() && !error.is_usage());
    error
}

#[test]
fn what_is_no_video_is_refused_by_kind() {
    let media = Media::new();
    assert!(matches!(
        refused(&media.path("missing.mp4")),
        Error::NotFound { .. }
    ));
    let text = media.path("text.mp4");
    fs::write(
        &text,
        "P5 is how some pictures start, and this is a text\n".repeat(50),
    )
    .unwrap();
    assert!(matches!(refused(&text), Error::NotVideo { .. }));
    let empty = media.path("empty.mp4");
    fs::write(&empty, "").unwrap();
    assert!(matches!(refused(&empty), Error::NotVideo { .. }));
    let zeros = media.path("zeros.mp4");
    fs::write(&zeros, vec![0; 100_000]).unwrap();
    assert!(matches!(refused(&zeros), Error::NotVideo { .. }));
    let folder = media.path("folder");
    fs::create_dir(&folder).unwrap();
    assert!(matches!(refused(&folder), Error::NoFrames { .. }));
    assert!(matches!(
        refused(&media.path("none*.png")),
        Error::NoFrames { .. }
    ));
    let sound = media.make("sound.m4a", "-f lavfi -i sine=d=0.5");
    assert!(matches!(refused(&sound), Error::NoVideoStream { .. }));
}

#[test]
fn cover_art_is_not_the_video() {
    let media = Media::new();
    media.make("cover.png", "-f lavfi -i testsrc2=s=80x80 -frames:v 1");
    let song = media.make(
        "song.mp3",
        "-f lavfi -i sine=d=0.5 -i cover.png -map 0 -map 1 -c:v copy -disposition:v attached_pic",
    );
    let error = refused(&song);
    assert!(error.to_string().contains("cover picture"), "{error}");
}

#[test]
fn a_file_without_read_permission_or_utf8_name_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let media = Media::new();
    let clip = media.make("a.mp4", "-f lavfi -i testsrc2=s=64x48:r=25:d=0.2");
    let odd = media
        .path("x")
        .with_file_name(std::ffi::OsStr::from_bytes(b"caf\xe9.mp4"));
    if fs::copy(&clip, &odd).is_ok() {
        let error = open(&odd, &OpenOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    // Names that FFmpeg would take for an address or an option.
    for name in ["a:b.mp4", "-i.mp4", "http:x.mp4", "50%d.mp4", "[a].mp4"] {
        let path = media.path(name);
        fs::copy(&clip, &path).unwrap();
        assert_eq!(frames(&path).len(), 5, "{name}");
    }
}

/// Decodes whatever is there; the number of frames and whether anything was said of damage.
fn survive(path: &std::path::Path) -> (usize, bool) {
    let Ok(mut reader) = open(path, &OpenOptions::default()) else {
        return (0, true);
    };
    let mut count = 0;
    let mut said = false;
    for frame in reader.by_ref() {
        match frame {
            Ok(_) => count += 1,
            Err(_) => said = true,
        }
    }
    (count, said || !reader.warnings().is_empty())
}

#[test]
fn cut_files_give_what_they_have_and_say_so() {
    let media = Media::new();
    let source = "-f lavfi -i testsrc2=s=96x64:r=25:d=1";
    for (name, args, silent) in [
        ("fast.mp4", "-movflags +faststart", false),
        ("plain.mp4", "", false),
        ("a.mkv", "-bf 0", false),
        ("a.avi", "-bf 0", true),
        ("a.ts", "", true),
        ("a.h264", "", true),
    ] {
        let whole = media.make(name, &format!("{source} {BFRAMES} {args}"));
        let all = frames(&whole).len();
        assert_eq!(all, 25, "{name}");
        let data = fs::read(&whole).unwrap();
        let cut = media.path(&format!("cut-{name}"));
        for step in 0..40 {
            let length = data.len() * step / 40;
            fs::write(&cut, &data[..length]).unwrap();
            let (count, said) = survive(&cut);
            assert!(count <= all);
            // A stream without an index or a length can end anywhere; one with a length can lose its last frame
            // unnoticed, because the length is only as exact as a frame.
            assert!(
                said || silent || count + 1 >= all,
                "{name} cut to {length}: {count} frames, nothing said"
            );
        }
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let media = Media::new();
    let whole = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=96x64:r=25:d=1 {BFRAMES}"),
    );
    let data = fs::read(&whole).unwrap();
    let bad = media.path("bad.mp4");
    let mut state = 12345u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    for round in 0..60 {
        let mut copy = data.clone();
        for _ in 0..(1 << (round % 7)) {
            let at = random() % copy.len();
            copy[at] = random() as u8;
        }
        fs::write(&bad, &copy).unwrap();
        survive(&bad);
    }
}

#[test]
fn damage_in_the_middle_is_said() {
    let media = Media::new();
    let whole = media.make(
        "a.mp4",
        &format!("-f lavfi -i testsrc2=s=96x64:r=25:d=1 {BFRAMES}"),
    );
    let mut data = fs::read(&whole).unwrap();
    let middle = data.len() / 3;
    data[middle..middle + 400].fill(0xff);
    fs::write(&whole, &data).unwrap();
    let mut reading = reader(&whole);
    assert!(reading.by_ref().filter(|f| f.is_ok()).count() > 10);
    assert!(!reading.warnings().is_empty());
}
