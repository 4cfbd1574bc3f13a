//! The few things of FFmpeg that its safe wrapper does not offer. All of the crate's `unsafe` is here.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr;

use ffmpeg_next as ff;
use ffmpeg_next::ffi as sys;
use ffmpeg_next::software::scaling::Flags;

/// The version string of the libraries in use.
pub(super) fn version() -> String {
    // SAFETY: returns a static C string.
    let text = unsafe { CStr::from_ptr(sys::av_version_info()) };
    text.to_string_lossy().into_owned()
}

/// The stream's display matrix (9 numbers, row-major), if it has one.
pub(super) fn display_matrix(stream: &ff::Stream<'_>) -> Option<[i32; 9]> {
    stream.side_data().find_map(|item| {
        // SAFETY: the iterator yields entries of the stream's side data array, alive as long as `stream`.
        let entry = unsafe { &*item.as_ptr() };
        let wanted = entry.type_ == sys::AVPacketSideDataType::AV_PKT_DATA_DISPLAYMATRIX;
        if !wanted || entry.data.is_null() || entry.size < 36 {
            return None;
        }
        let mut matrix = [0i32; 9];
        for (i, value) in matrix.iter_mut().enumerate() {
            // SAFETY: the entry holds at least nine 32-bit numbers, perhaps unaligned.
            *value = unsafe { entry.data.cast::<i32>().add(i).read_unaligned() };
        }
        Some(matrix)
    })
}

/// Frames that the container's index lists for display; `None` where it keeps no complete index up front.
/// Entries that an edit list hides are not displayed and not counted.
pub(super) fn indexed(stream: &ff::Stream<'_>) -> Option<Indexed> {
    // SAFETY: the stream belongs to an open input, and the entries are read before anything else uses it.
    unsafe {
        let raw = stream.as_ptr().cast_mut();
        let count = sys::avformat_index_get_entries_count(raw);
        let mut hidden = 0u64;
        for i in 0..count {
            let entry = sys::avformat_index_get_entry(raw, i);
            if !entry.is_null() && ((*entry).flags() & sys::AVINDEX_DISCARD_FRAME as c_int) != 0 {
                hidden += 1;
            }
        }
        let all = u64::try_from(count).ok().filter(|c| *c > 0)?;
        Some(Indexed {
            packets: all,
            frames: all - hidden,
        })
    }
}

/// How many packets a container's index has, and how many of them are to be displayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) packets: u64,
    pub(super) frames: u64,
}

/// Whether the container's duration was written into it, and not guessed from its size or its last packets.
pub(super) fn duration_is_stated(input: &ff::format::context::Input) -> bool {
    // SAFETY: the input is open.
    let method = unsafe { (*input.as_ptr()).duration_estimation_method };
    method == sys::AVDurationEstimationMethod::AVFMT_DURATION_FROM_STREAM
}

/// The stream's pixel aspect, where the container or the codec states one.
pub(super) fn pixel_aspect(stream: &ff::Stream<'_>) -> Option<(u32, u32)> {
    // SAFETY: a stream of an open input has parameters.
    let (outer, inner) = unsafe {
        let raw = stream.as_ptr();
        (
            (*raw).sample_aspect_ratio,
            (*(*raw).codecpar).sample_aspect_ratio,
        )
    };
    [outer, inner].into_iter().find_map(|r| {
        let part = |v: c_int| u32::try_from(v).ok().filter(|v| *v > 0);
        Some((part(r.num)?, part(r.den)?))
    })
}

/// Notes the pixel aspect in a stream that is about to be written.
pub(super) fn set_pixel_aspect(stream: &mut ff::StreamMut<'_>, aspect: (u32, u32)) {
    // SAFETY: the stream belongs to an output whose header is not written yet.
    unsafe {
        (*stream.as_mut_ptr()).sample_aspect_ratio = sys::AVRational {
            num: aspect.0 as c_int,
            den: aspect.1 as c_int,
        };
    }
}

/// Lets the decoder or encoder use every core, by whatever means the codec has.
pub(super) fn use_threads(context: &mut ff::codec::Context) {
    // SAFETY: the context is allocated and not yet open; 0 means "as many as there are cores".
    unsafe { (*context.as_mut_ptr()).thread_count = 0 }
}

/// What a decoded picture says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) format: sys::AVPixelFormat,
    pub(super) width: c_int,
    pub(super) height: c_int,
    /// `AVColorSpace`, as a number.
    pub(super) matrix: c_int,
    /// `AVColorRange`, as a number: 0 unstated, 1 limited, 2 full.
    pub(super) range: c_int,
}

impl Layout {
    pub(super) fn of(frame: &ff::frame::Video) -> Option<Self> {
        // SAFETY: the frame is allocated; a format that is not negative is one of the library's own numbers.
        unsafe {
            let raw = &*frame.as_ptr();
            if raw.format < 0 || raw.width <= 0 || raw.height <= 0 || raw.data[0].is_null() {
                return None;
            }
            Some(Self {
                format: std::mem::transmute::<c_int, sys::AVPixelFormat>(raw.format),
                width: raw.width,
                height: raw.height,
                matrix: raw.colorspace as c_int,
                range: raw.color_range as c_int,
            })
        }
    }

    /// Name of the pixel format.
    pub(super) fn format_name(&self) -> String {
        // SAFETY: returns a static string, or null for an unknown format.
        unsafe {
            let name = sys::av_get_pix_fmt_name(self.format);
            if name.is_null() {
                "unknown".to_owned()
            } else {
                CStr::from_ptr(name).to_string_lossy().into_owned()
            }
        }
    }

    /// Whether the format stores RGB (also by palette), and how many colour components it has without alpha.
    pub(super) fn components(&self) -> (bool, usize) {
        // SAFETY: the descriptor is static; null for an unknown format.
        unsafe {
            let descriptor = sys::av_pix_fmt_desc_get(self.format);
            if descriptor.is_null() {
                return (false, 3);
            }
            let flags = (*descriptor).flags as u64;
            let rgb =
                flags & (sys::AV_PIX_FMT_FLAG_RGB as u64 | sys::AV_PIX_FMT_FLAG_PAL as u64) != 0;
            let alpha = flags & sys::AV_PIX_FMT_FLAG_ALPHA as u64 != 0;
            (
                rgb,
                ((*descriptor).nb_components as usize).saturating_sub(usize::from(alpha)),
            )
        }
    }
}

/// Colours of one side of a conversion: swscale's number of the matrix, and whether the range is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colors {
    pub(super) matrix: c_int,
    pub(super) full: bool,
}

/// BT.709 in swscale's numbering, which is `AVColorSpace`'s.
pub(super) const BT709: c_int = 1;

/// A picture converter for one layout and one target.
pub(super) struct Scaler {
    context: *mut sys::SwsContext,
    source: (sys::AVPixelFormat, c_int, c_int),
    target: (c_int, c_int),
    /// Rows that are wider than the picture: vector code writes past the last pixel of a row.
    buffer: Vec<u8>,
    stride: usize,
}

// SAFETY: the context is owned, has no tie to a thread and is only used through `&mut self`.
unsafe impl Send for Scaler {}

/// Alignment of rows, and the spare bytes behind the last one.
const ALIGN: usize = 64;

impl Scaler {
    /// A converter of decoded pictures to RGB8 of the size `target`.
    pub(super) fn to_rgb(layout: Layout, colors: Colors, target: (u32, u32)) -> Option<Self> {
        let target = (
            c_int::try_from(target.0).ok()?,
            c_int::try_from(target.1).ok()?,
        );
        let same = (layout.width, layout.height) == target;
        let filter = if same { Flags::BILINEAR } else { Flags::AREA };
        let source = (layout.format, layout.width, layout.height);
        let rgb = (sys::AVPixelFormat::AV_PIX_FMT_RGB24, target.0, target.1);
        let full = Colors {
            matrix: BT709,
            full: true,
        };
        let mut scaler = Self::new(source, rgb, filter, colors, full)?;
        scaler.stride = (target.0 as usize * 3).next_multiple_of(ALIGN);
        scaler.buffer = vec![0; scaler.stride * target.1 as usize + ALIGN];
        Some(scaler)
    }

    /// A converter of RGB8 to limited-range BT.709 `format` of the same size.
    pub(super) fn from_rgb(size: (u32, u32), format: ff::format::Pixel) -> Option<Self> {
        let (w, h) = (c_int::try_from(size.0).ok()?, c_int::try_from(size.1).ok()?);
        let source = (sys::AVPixelFormat::AV_PIX_FMT_RGB24, w, h);
        let full = Colors {
            matrix: BT709,
            full: true,
        };
        let limited = Colors {
            matrix: BT709,
            full: false,
        };
        let mut scaler = Self::new(source, (format.into(), w, h), Flags::BICUBIC, full, limited)?;
        scaler.stride = (w as usize * 3).next_multiple_of(ALIGN);
        scaler.buffer = vec![0; scaler.stride * h as usize + ALIGN];
        Some(scaler)
    }

    fn new(
        source: (sys::AVPixelFormat, c_int, c_int),
        target: (sys::AVPixelFormat, c_int, c_int),
        filter: Flags,
        from: Colors,
        to: Colors,
    ) -> Option<Self> {
        let flags = filter | Flags::ACCURATE_RND | Flags::FULL_CHR_H_INT | Flags::FULL_CHR_H_INP;
        // SAFETY: plain numbers go in; a null context is checked for, the tables are static.
        let context = unsafe {
            let context = sys::sws_getContext(
                source.1,
                source.2,
                source.0,
                target.1,
                target.2,
                target.0,
                flags.bits() as _,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            );
            if context.is_null() {
                return None;
            }
            // Refused for pairs of formats without a matrix between them, where it means nothing anyway.
            sys::sws_setColorspaceDetails(
                context,
                sys::sws_getCoefficients(from.matrix),
                c_int::from(from.full),
                sys::sws_getCoefficients(to.matrix),
                c_int::from(to.full),
                0,
                1 << 16,
                1 << 16,
            );
            context
        };
        Some(Self {
            context,
            source,
            target: (target.1, target.2),
            buffer: Vec::new(),
            stride: 0,
        })
    }

    /// Converts a decoded picture; returns RGB8 rows and their stride in bytes.
    pub(super) fn run(&mut self, frame: &ff::frame::Video) -> Option<(&[u8], usize)> {
        let layout = Layout::of(frame)?;
        if (layout.format, layout.width, layout.height) != self.source {
            return None;
        }
        let target = [
            self.buffer.as_mut_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        ];
        let strides = [self.stride as c_int, 0, 0, 0];
        // SAFETY: the frame's planes fit the layout that the context was made for, and the buffer holds
        // `stride` bytes for each target row and more.
        let rows = unsafe {
            let raw = frame.as_ptr();
            sys::sws_scale(
                self.context,
                (*raw).data.as_ptr().cast(),
                (*raw).linesize.as_ptr(),
                0,
                layout.height,
                target.as_ptr(),
                strides.as_ptr(),
            )
        };
        (rows == self.target.1).then_some((&self.buffer[..], self.stride))
    }

    /// Converts RGB8 that `fill` writes (rows, stride in bytes) into the planes of `out`.
    pub(super) fn fill(
        &mut self,
        out: &mut ff::frame::Video,
        fill: impl FnOnce(&mut [u8], usize),
    ) -> bool {
        fill(&mut self.buffer, self.stride);
        // SAFETY: the planes of `out` are checked to be there, of the target's size and not shared.
        unsafe {
            let raw = out.as_mut_ptr();
            if (*raw).data[0].is_null()
                || ((*raw).width, (*raw).height) != self.target
                || sys::av_frame_make_writable(raw) < 0
            {
                return false;
            }
            let source = [self.buffer.as_ptr(), ptr::null(), ptr::null(), ptr::null()];
            let strides = [self.stride as c_int, 0, 0, 0];
            let rows = sys::sws_scale(
                self.context,
                source.as_ptr(),
                strides.as_ptr(),
                0,
                self.source.2,
                (*raw).data.as_ptr(),
                (*raw).linesize.as_ptr(),
            );
            rows == self.target.1
        }
    }
}

impl Drop for Scaler {
    fn drop(&mut self) {
        // SAFETY: the context was made by `sws_getContext` and is freed once.
        unsafe { sys::sws_freeContext(self.context) }
    }
}
