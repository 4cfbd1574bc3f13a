//! Follows points that somebody clicked on different frames, with names, and ends early on request.
//!
//! ```text
//! cargo run --release -p track --example clicked_points [VIDEO]
//! ```

use track::{Cancel, Clip, Queries, QueryPoint, Tracker, Watch};

const VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../assets/pedestrians_47f_256x256.mp4"
);

fn main() -> Result<(), track::Error> {
    let video = std::env::args().nth(1).unwrap_or_else(|| VIDEO.to_owned());
    let clip = Clip::open(&video)?;

    // Frame, x, y: the middle of pixel (i, j) is (i + 0.5, j + 0.5). Each point is followed forwards and
    // backwards from its own frame.
    let queries = Queries::points([
        QueryPoint::new(0.0, 60.5, 120.5).labelled("first click"),
        QueryPoint::new(10.0, 128.0, 128.0).labelled("second click"),
        QueryPoint::new(20.0, 190.25, 90.75).labelled("third click"),
    ]);

    // A window's "Stop" button would throw the switch from its own thread.
    let stop = Cancel::new();
    let watch = Watch::new().cancelled_by(&stop);
    let tracks = Tracker::builder().build()?.track(&clip, &queries, &watch)?;

    for (n, query) in tracks.queries.iter().enumerate() {
        println!("{}", query.label.as_deref().unwrap_or("a point"));
        for t in (0..tracks.frames()).step_by(10) {
            let (x, y) = tracks.position(t, n).unwrap_or_default();
            let seen = if tracks.visible[[t, n]] {
                "seen"
            } else {
                "hidden"
            };
            println!(
                "  frame {t:2} at {:.1} s: {x:6.1} {y:6.1} {seen}, {}",
                tracks.times[t],
                tracks.status[[t, n]].name()
            );
        }
    }
    Ok(())
}
