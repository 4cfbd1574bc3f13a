//! One picture of a video.

/// One frame, as it is displayed: rotation applied, pixels as stored otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Index in the source, counted from its first frame (0).
    pub index: u64,
    /// Presentation time in seconds, as ffprobe's `pts_time`.
    pub time: f64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// RGB, 8 bits each, `[height, width, 3]` row-major without gaps.
    pub data: Vec<u8>,
}

/// The size at which a `size` picture fits into `max`, its aspect kept; never larger than it is.
pub(crate) fn fit(size: (u32, u32), max: Option<(u32, u32)>) -> (u32, u32) {
    let (w, h) = size;
    match max {
        Some((mw, mh)) if w > mw || h > mh => {
            let s = (f64::from(mw) / f64::from(w)).min(f64::from(mh) / f64::from(h));
            let side = |v: u32| ((f64::from(v) * s).round() as u32).max(1);
            (side(w), side(h))
        }
        _ => size,
    }
}

/// Resizes tight RGB8 `[h, w, 3]` to `to`; the data as they are when the size is already right.
pub(crate) fn resize_rgb(data: Vec<u8>, size: (u32, u32), to: (u32, u32)) -> Vec<u8> {
    if size == to {
        return data;
    }
    match image::RgbImage::from_raw(size.0, size.1, data) {
        Some(picture) => {
            image::imageops::resize(&picture, to.0, to.1, image::imageops::FilterType::Triangle)
                .into_raw()
        }
        // Unreachable for data of the size they claim; a black picture is the harmless answer.
        None => vec![0; to.0 as usize * to.1 as usize * 3],
    }
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn previews_keep_the_aspect_and_never_grow() {
        assert_eq!(fit((1920, 1080), Some((640, 640))), (640, 360));
        assert_eq!(fit((100, 50), Some((640, 640))), (100, 50));
        assert_eq!(fit((10000, 1), Some((10, 10))), (10, 1));
        assert_eq!(fit((7, 5), None), (7, 5));
    }
}
