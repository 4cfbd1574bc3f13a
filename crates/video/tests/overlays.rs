//! Points drawn onto frames: where they should be, and harmless where they should not.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use track_video::{Frame, Overlay, OverlayOptions, OverlayPoint, OverlayScale};

fn blank(width: u32, height: u32) -> Frame {
    Frame {
        index: 0,
        time: 0.0,
        width,
        height,
        data: vec![128; (width * height * 3) as usize],
    }
}

fn point(x: f32, y: f32, visible: bool) -> OverlayPoint {
    OverlayPoint {
        x,
        y,
        visible,
        tracked: true,
    }
}

/// Centroid of what was drawn, raster positions of the drawn frame, weighted by how much it changed.
fn centroid(frame: &Frame) -> Option<(f32, f32)> {
    let (mut sx, mut sy, mut sum) = (0.0f64, 0.0f64, 0.0f64);
    for (i, p) in frame.data.chunks(3).enumerate() {
        let weight: f64 = p.iter().map(|v| f64::from(v.abs_diff(128))).sum();
        sx += weight * ((i as u32 % frame.width) as f64 + 0.5);
        sy += weight * ((i as u32 / frame.width) as f64 + 0.5);
        sum += weight;
    }
    (sum > 0.0).then(|| ((sx / sum) as f32, (sy / sum) as f32))
}

#[test]
fn discs_sit_at_their_raster_position() {
    for scale in [1, 2, 3] {
        for (x, y) in [(40.5, 30.5), (40.25, 30.75), (41.0, 31.0)] {
            for visible in [true, false] {
                // Large, so that where the rims' greys fall on single pixels counts for little.
                let options = OverlayOptions {
                    radius: Some(9.0),
                    scale: OverlayScale::Times(scale),
                    ..Default::default()
                };
                let mut overlay = Overlay::new(&[(x, y)], 80, 60, &options);
                let mut frame = blank(80, 60);
                overlay.draw(&mut frame, &[point(x, y, visible)]);
                assert_eq!((frame.width, frame.height), (80 * scale, 60 * scale));
                let (cx, cy) = centroid(&frame).unwrap();
                let s = scale as f32;
                assert!(
                    (cx - x * s).abs() < 0.08 && (cy - y * s).abs() < 0.08,
                    "{x} {y} {scale}: {cx} {cy}"
                );
            }
        }
    }
}

#[test]
fn small_pictures_grow_by_default() {
    for (size, scale) in [
        ((256, 256), 2),
        ((64, 48), 8),
        ((512, 300), 1),
        ((1920, 1080), 1),
        ((1, 1), 32),
    ] {
        let overlay = Overlay::new(&[(1.0, 1.0)], size.0, size.1, &OverlayOptions::default());
        assert_eq!(overlay.scale(), scale, "{size:?}");
    }
}

#[test]
fn odd_positions_are_harmless() {
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        1e9,
        -1e9,
        -40.0,
        0.0,
        79.9,
        80.0,
    ];
    let starts: Vec<(f32, f32)> = values
        .iter()
        .flat_map(|x| values.map(|y| (*x, y)))
        .collect();
    let mut overlay = Overlay::new(&starts, 80, 60, &OverlayOptions::default());
    for round in 0..20usize {
        let points: Vec<OverlayPoint> = (0..starts.len() + 3)
            .map(|i| {
                let (x, y) = starts[(i * 7 + round * 31) % starts.len()];
                OverlayPoint {
                    x,
                    y,
                    visible: i % 3 > 0,
                    tracked: i % 5 > 0,
                }
            })
            .collect();
        overlay.draw(&mut blank(80, 60), &points);
    }
    overlay.draw(&mut blank(80, 60), &[]);
    overlay.draw(
        &mut Frame {
            data: vec![],
            ..blank(80, 60)
        },
        &[],
    );
    overlay.draw(&mut blank(0, 0), &[]);
    let mut frame = blank(80, 60);
    let mut far = Overlay::new(
        &[(1e9, 5.0)],
        80,
        60,
        &OverlayOptions {
            scale: OverlayScale::Times(1),
            ..Default::default()
        },
    );
    far.draw(&mut frame, &[point(1e9, 5.0, true)]);
    far.draw(
        &mut frame,
        &[OverlayPoint {
            tracked: false,
            ..point(10.0, 10.0, true)
        }],
    );
    assert_eq!(centroid(&frame), None);
    Overlay::new(&[], 0, 0, &OverlayOptions::default()).draw(&mut blank(4, 4), &[]);
}

#[test]
fn trails_follow_fade_and_end() {
    let options = OverlayOptions {
        trail: 4,
        scale: OverlayScale::Times(1),
        ..Default::default()
    };
    let mut overlay = Overlay::new(&[(20.5, 30.5)], 200, 60, &options);
    let mut frame = blank(200, 60);
    for i in 0..10 {
        frame = blank(200, 60);
        overlay.draw(&mut frame, &[point(20.5 + 15.0 * i as f32, 30.5, true)]);
    }
    let change = |x: f32| {
        let at = (30 * 200 + x as usize) * 3;
        frame.data[at..at + 3]
            .iter()
            .map(|v| u32::from(v.abs_diff(128)))
            .sum::<u32>()
    };
    let now = 20.5 + 15.0 * 9.0;
    assert!(change(now - 10.0) > change(now - 50.0) && change(now - 50.0) > 0);
    assert_eq!(change(now - 70.0), 0);
}
