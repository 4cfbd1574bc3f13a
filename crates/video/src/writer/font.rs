//! Digits and a few signs, 5x7 pixels, for the labels of a contact sheet.

use image::{Rgb, RgbImage};

/// Width and height of a sign, without the gap of one pixel behind it.
pub(super) const SIGN: (u32, u32) = (5, 7);

/// Rows of a sign from the top, the lowest five bits from left to right.
fn rows(sign: char) -> [u8; 7] {
    match sign {
        '0' => [
            0b01110, 0b10001, 0b10011, 0b10101, 0b11001, 0b10001, 0b01110,
        ],
        '1' => [
            0b00100, 0b01100, 0b00100, 0b00100, 0b00100, 0b00100, 0b01110,
        ],
        '2' => [
            0b01110, 0b10001, 0b00001, 0b00110, 0b01000, 0b10000, 0b11111,
        ],
        '3' => [
            0b11110, 0b00001, 0b00001, 0b01110, 0b00001, 0b00001, 0b11110,
        ],
        '4' => [
            0b00010, 0b00110, 0b01010, 0b10010, 0b11111, 0b00010, 0b00010,
        ],
        '5' => [
            0b11111, 0b10000, 0b11110, 0b00001, 0b00001, 0b10001, 0b01110,
        ],
        '6' => [
            0b00110, 0b01000, 0b10000, 0b11110, 0b10001, 0b10001, 0b01110,
        ],
        '7' => [
            0b11111, 0b00001, 0b00010, 0b00100, 0b01000, 0b01000, 0b01000,
        ],
        '8' => [
            0b01110, 0b10001, 0b10001, 0b01110, 0b10001, 0b10001, 0b01110,
        ],
        '9' => [
            0b01110, 0b10001, 0b10001, 0b01111, 0b00001, 0b00010, 0b01100,
        ],
        '.' => [0, 0, 0, 0, 0, 0b01100, 0b01100],
        '-' => [0, 0, 0, 0b11111, 0, 0, 0],
        '#' => [
            0b01010, 0b01010, 0b11111, 0b01010, 0b11111, 0b01010, 0b01010,
        ],
        's' => [0, 0, 0b01111, 0b10000, 0b01110, 0b00001, 0b11110],
        _ => [0; 7],
    }
}

/// Width of a text in pixels at a whole magnification.
pub(super) fn width(text: &str, scale: u32) -> u32 {
    (text.chars().count() as u32 * (SIGN.0 + 1)).saturating_sub(1) * scale
}

/// Draws a text, its upper left corner at (x, y); what lies outside the picture is left out.
pub(super) fn draw(
    picture: &mut RgbImage,
    text: &str,
    (x, y): (u32, u32),
    scale: u32,
    color: Rgb<u8>,
) {
    for (place, sign) in text.chars().enumerate() {
        let left = x + place as u32 * (SIGN.0 + 1) * scale;
        for (row, bits) in rows(sign).into_iter().enumerate() {
            for column in (0..SIGN.0).filter(|c| bits >> (SIGN.0 - 1 - c) & 1 == 1) {
                for (dx, dy) in (0..scale * scale).map(|i| (i % scale, i / scale)) {
                    let at = (left + column * scale + dx, y + row as u32 * scale + dy);
                    if let Some(pixel) = picture.get_pixel_mut_checked(at.0, at.1) {
                        *pixel = color;
                    }
                }
            }
        }
    }
}
