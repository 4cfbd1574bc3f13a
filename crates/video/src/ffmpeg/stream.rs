//! Which stream of a file is the video, and how its colours are to be read.

use std::path::Path;

use ff::format::context::Input;
use ff::media::Type;
use ffmpeg_next as ff;

use super::ffi::{BT709, Colors, Layout};
use crate::Error;

/// The best stream of moving pictures; cover art is none.
pub(super) fn pick_stream<'a>(path: &Path, input: &'a Input) -> Result<ff::Stream<'a>, Error> {
    let cover = ff::format::stream::Disposition::ATTACHED_PIC;
    let moving = |s: &ff::Stream<'_>| {
        s.parameters().medium() == Type::Video && !s.disposition().contains(cover)
    };
    input
        .streams()
        .best(Type::Video)
        .filter(moving)
        .or_else(|| input.streams().find(moving))
        .ok_or_else(|| {
            let mut found: Vec<&str> = input
                .streams()
                .map(|s| match s.parameters().medium() {
                    Type::Video => "a cover picture",
                    Type::Audio => "sound",
                    Type::Subtitle => "subtitles",
                    _ => "data",
                })
                .collect();
            found.sort_unstable();
            found.dedup();
            Error::NoVideoStream {
                path: path.to_path_buf(),
                found: if found.is_empty() {
                    "nothing".to_owned()
                } else {
                    found.join(" and ")
                },
            }
        })
}

/// Sorts what opening a file failed with.
pub(super) fn unopened(path: &Path, e: ff::Error) -> Error {
    match e {
        ff::Error::Other { errno } if errno > 0 && errno != ff::error::EINVAL => {
            Error::reading(path, std::io::Error::from_raw_os_error(errno))
        }
        e => Error::NotVideo {
            path: path.to_path_buf(),
            reason: format!(
                "a file that FFmpeg does not recognise ({e}); it is no video, or one that was cut short: give another file or export it again"
            ),
        },
    }
}

/// The colours to read a picture with, the matrix's name, and what is doubtful about them.
pub(super) fn colors(layout: &Layout) -> (Colors, &'static str, Option<&'static str>) {
    const FULL: i32 = 2;
    let (rgb, components) = layout.components();
    if rgb {
        let colors = Colors {
            matrix: BT709,
            full: true,
        };
        return (colors, "rgb", None);
    }
    // Formats that are full range by their name: yuvj*. Grey says so only if it is limited.
    let named = layout.format_name().starts_with("yuvj");
    let full = match layout.range {
        FULL => true,
        0 => named || components == 1,
        _ => named,
    };
    // The usual guess for streams that do not say: standard definition is BT.601, larger is BT.709.
    let guess = if layout.height < 720 {
        (5, "bt601")
    } else {
        (BT709, "bt709")
    };
    let ((matrix, name), doubt) = match layout.matrix {
        1 => ((BT709, "bt709"), None),
        5 | 6 => ((5, "bt601"), None),
        4 => ((4, "fcc"), None),
        7 => ((7, "smpte240m"), None),
        9 => ((9, "bt2020"), None),
        10 => (
            (9, "bt2020"),
            Some("its BT.2020 colours are of constant luminance and are read as if they were not"),
        ),
        0 | 2 | 3 => (guess, None),
        _ => (
            guess,
            Some("its colour matrix is one that cannot be converted exactly; colours may be off"),
        ),
    };
    (Colors { matrix, full }, name, doubt)
}
