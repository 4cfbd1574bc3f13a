//! Tracks a grid of points through a video file.
//!
//! ```text
//! cargo run --release -p track --example file [VIDEO [OUTPUT.json]]
//! ```

use track::{Clip, Queries, Tracker, Watch};

const VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../assets/pedestrians_47f_256x256.mp4"
);

fn main() -> Result<(), track::Error> {
    let mut arguments = std::env::args().skip(1);
    let video = arguments.next().unwrap_or_else(|| VIDEO.to_owned());

    // The built-in weights, on the best device there is.
    let tracker = Tracker::builder().build()?;
    let clip = Clip::open(&video)?;
    let watch = Watch::new().on_progress(|p| eprint!("\r{:?} {}   ", p.stage, p.done));
    let tracks = tracker.track(&clip, &Queries::grid(8), &watch)?;
    eprintln!();

    println!(
        "{}: {} points on {} frames, {:.0} % visible",
        video,
        tracks.points(),
        tracks.frames(),
        100.0 * tracks.visible_share()
    );
    for n in 0..tracks.points().min(5) {
        let (from, to) = (
            tracks.position(0, n).unwrap_or_default(),
            tracks.position(tracks.frames() - 1, n).unwrap_or_default(),
        );
        println!(
            "point {n}: ({:.1}, {:.1}) on the first frame, ({:.1}, {:.1}) on the last",
            from.0, from.1, to.0, to.1
        );
    }
    if let Some(output) = arguments.next() {
        tracks.write(output)?;
    }
    Ok(())
}
