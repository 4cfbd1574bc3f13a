//! Raw pictures of an application (camera buffers, decoder surfaces) as RGB8.

use crate::{Error, Frame};

/// How the bytes of a raw picture are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelFormat {
    /// One plane, 3 bytes a pixel: red, green, blue.
    Rgb8,
    /// One plane, 4 bytes a pixel: red, green, blue, alpha (ignored).
    Rgba8,
    /// One plane, 3 bytes a pixel: blue, green, red.
    Bgr8,
    /// One plane, 4 bytes a pixel: blue, green, red, alpha (ignored).
    Bgra8,
    /// One plane, 1 byte a pixel, full range.
    Gray8,
    /// Two planes: luma, 1 byte a pixel; Cb and Cr interleaved, one pair for 2x2 pixels (rounded up for odd sizes).
    Nv12,
}

/// Which matrix relates YUV to RGB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YuvMatrix {
    /// Standard definition.
    Bt601,
    /// High definition.
    #[default]
    Bt709,
    /// Ultra high definition, non-constant luminance.
    Bt2020,
}

/// Which values of YUV stand for black and white.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YuvRange {
    /// Luma 16 to 235, chroma 16 to 240: what cameras and videos usually have.
    #[default]
    Limited,
    /// 0 to 255.
    Full,
}

/// A raw picture: its planes as (bytes, stride in bytes) pairs. The last row need not be padded to the stride.
#[derive(Clone, Copy, Debug)]
pub struct RawPicture<'a> {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The layout of the planes.
    pub format: PixelFormat,
    /// One plane, or two for NV12.
    pub planes: &'a [(&'a [u8], usize)],
    /// Matrix of NV12; ignored otherwise.
    pub matrix: YuvMatrix,
    /// Range of NV12; ignored otherwise.
    pub range: YuvRange,
}

/// Converts a raw picture to a frame with that index and time (seconds).
///
/// # Errors
/// The size is zero or immense, a plane is missing or too many, a stride is shorter than a row, a plane is too short.
pub fn convert(picture: &RawPicture<'_>, index: u64, time: f64) -> Result<Frame, Error> {
    let (width, height) = (picture.width, picture.height);
    // Far above any sensor; below it no product of sizes overflows.
    if width == 0 || height == 0 || width > 1 << 16 || height > 1 << 16 {
        return Err(Error::Pixels(format!(
            "a raw picture of {width}x{height} pixels cannot be used; give a size from 1x1 to 65536x65536"
        )));
    }
    let (w, h) = (width as usize, height as usize);
    let rows: &[(usize, usize)] = match picture.format {
        PixelFormat::Rgb8 | PixelFormat::Bgr8 => &[(w * 3, h)],
        PixelFormat::Rgba8 | PixelFormat::Bgra8 => &[(w * 4, h)],
        PixelFormat::Gray8 => &[(w, h)],
        PixelFormat::Nv12 => &[(w, h), (w.div_ceil(2) * 2, h.div_ceil(2))],
    };
    check(picture, rows)?;
    let mut data = Vec::with_capacity(w * h * 3);
    let packed = |data: &mut Vec<u8>, size: usize, order: [usize; 3]| {
        let (plane, stride) = picture.planes[0];
        for row in plane.chunks(stride).take(h) {
            for pixel in row[..w * size].chunks_exact(size) {
                data.extend(order.map(|c| pixel[c]));
            }
        }
    };
    match picture.format {
        PixelFormat::Rgb8 => packed(&mut data, 3, [0, 1, 2]),
        PixelFormat::Rgba8 => packed(&mut data, 4, [0, 1, 2]),
        PixelFormat::Bgr8 => packed(&mut data, 3, [2, 1, 0]),
        PixelFormat::Bgra8 => packed(&mut data, 4, [2, 1, 0]),
        PixelFormat::Gray8 => packed(&mut data, 1, [0, 0, 0]),
        PixelFormat::Nv12 => nv12(&mut data, picture, (w, h)),
    }
    Ok(Frame {
        index,
        time,
        width,
        height,
        data,
    })
}

fn check(picture: &RawPicture<'_>, rows: &[(usize, usize)]) -> Result<(), Error> {
    let what = format!(
        "{:?} of {}x{} pixels",
        picture.format, picture.width, picture.height
    );
    if picture.planes.len() != rows.len() {
        return Err(Error::Pixels(format!(
            "{what}: expected {} planes, found {}",
            rows.len(),
            picture.planes.len()
        )));
    }
    for (i, (&(plane, stride), &(bytes, count))) in picture.planes.iter().zip(rows).enumerate() {
        if stride < bytes {
            return Err(Error::Pixels(format!(
                "{what}: plane {i} has a stride of {stride} bytes, but a row takes {bytes}; give the distance of rows in bytes"
            )));
        }
        let needed = stride
            .checked_mul(count - 1)
            .and_then(|n| n.checked_add(bytes));
        if needed.is_none_or(|n| plane.len() < n) {
            return Err(Error::Pixels(format!(
                "{what}: plane {i} has {} bytes, but {count} rows at a stride of {stride} take at least {}",
                plane.len(),
                needed.map_or_else(|| "more than memory holds".to_owned(), |n| n.to_string())
            )));
        }
    }
    Ok(())
}

/// Each chroma pair serves its 2x2 pixels; fixed point with 16 fractional bits, rounded.
fn nv12(data: &mut Vec<u8>, picture: &RawPicture<'_>, (w, h): (usize, usize)) {
    let (kr, kb) = match picture.matrix {
        YuvMatrix::Bt601 => (0.299, 0.114),
        YuvMatrix::Bt709 => (0.2126, 0.0722),
        YuvMatrix::Bt2020 => (0.2627, 0.0593),
    };
    let kg: f64 = 1.0 - kr - kb;
    let (offset, luma, chroma) = match picture.range {
        YuvRange::Limited => (16, 255.0 / 219.0, 255.0 / 224.0),
        YuvRange::Full => (0, 1.0, 1.0),
    };
    let fixed = |v: f64| (v * 65536.0).round() as i32;
    let y_gain = fixed(luma);
    let r_cr = fixed(2.0 * (1.0 - kr) * chroma);
    let b_cb = fixed(2.0 * (1.0 - kb) * chroma);
    let g_cr = fixed(-2.0 * (1.0 - kr) * kr / kg * chroma);
    let g_cb = fixed(-2.0 * (1.0 - kb) * kb / kg * chroma);
    let byte = |v: i32| ((v + 32768) >> 16).clamp(0, 255) as u8;
    let ((y_plane, y_stride), (c_plane, c_stride)) = (picture.planes[0], picture.planes[1]);
    for row in 0..h {
        let ys = &y_plane[row * y_stride..][..w];
        let cs = &c_plane[row / 2 * c_stride..][..w.div_ceil(2) * 2];
        for (x, &y) in ys.iter().enumerate() {
            let (cb, cr) = (i32::from(cs[x & !1]) - 128, i32::from(cs[x | 1]) - 128);
            let y = (i32::from(y) - offset) * y_gain;
            data.extend([
                byte(y + r_cr * cr),
                byte(y + g_cr * cr + g_cb * cb),
                byte(y + b_cb * cb),
            ]);
        }
    }
}
