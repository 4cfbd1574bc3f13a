//! Properties of the whole library with the weights that come with it, on a few frames of a real clip.

use std::sync::LazyLock;

use track::raw::{PixelFormat, RawPicture};
use track::{Cancel, Clip, Error, MemoryClip, Queries, QueryPoint, Status, Tracker, Tracks, Watch};

const CLIP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../assets/pedestrians_47f_256x256.mp4"
);

static TRACKER: LazyLock<Tracker> =
    LazyLock::new(|| Tracker::builder().build().expect("built-in weights load"));

/// Pixels by which positions may differ where sums are taken in another order.
const CLOSE: f32 = 1e-3;

fn clip(frames: &str) -> Clip {
    let range = frames.parse().expect("a range");
    Clip::options()
        .range(range)
        .open(CLIP)
        .expect("the clip opens")
}

fn track(tracker: &Tracker, clip: &Clip, queries: &Queries) -> Tracks {
    tracker
        .track(clip, queries, &Watch::new())
        .expect("the clip is tracked")
}

/// The largest difference in pixels of point `a` in `left` from point `b` in `right`.
fn gap(left: &Tracks, a: usize, right: &Tracks, b: usize) -> f32 {
    assert_eq!(left.frames(), right.frames());
    (0..left.frames())
        .map(|t| {
            let (l, r) = (left.position(t, a), right.position(t, b));
            let ((lx, ly), (rx, ry)) = l.zip(r).expect("both points");
            (lx - rx).abs().max((ly - ry).abs())
        })
        .fold(0.0, f32::max)
}

fn points() -> Queries {
    Queries::points([(0.0, 60.5, 120.5), (2.0, 128.0, 100.25), (4.0, 0.0, 256.0)])
}

#[test]
fn a_still_background_stays_and_is_seen() {
    let tracks = track(&TRACKER, &clip("..5"), &Queries::grid(4));
    let mut drift: Vec<f32> = (0..tracks.points())
        .map(|n| {
            let ends = tracks.position(0, n).zip(tracks.position(4, n));
            let ((ax, ay), (bx, by)) = ends.expect("both ends");
            (ax - bx).hypot(ay - by)
        })
        .collect();
    drift.sort_by(f32::total_cmp);
    // The camera stands still, and most of a street does too.
    assert!(drift[drift.len() / 2] < 0.5, "{drift:?}");
    assert!(tracks.visible_share() > 0.8);
}

#[test]
fn a_point_is_at_its_query_on_its_own_frame_and_the_border_is_fine() {
    let tracks = track(&TRACKER, &clip("..5"), &points());
    for (n, query) in tracks.queries.iter().enumerate() {
        let own = query.frame(5);
        assert_eq!(tracks.position(own, n), Some((query.x, query.y)));
        assert!(tracks.visible[[own, n]]);
        for t in 0..5 {
            let expected = if t == own {
                Status::Query
            } else {
                Status::Tracked
            };
            assert_eq!(tracks.status[[t, n]], expected);
        }
    }
    assert!(tracks.positions.iter().all(|v| v.is_finite()));
}

#[test]
fn threads_share_a_tracker_and_get_the_same() {
    let clip = clip("..4");
    let alone = track(&TRACKER, &clip, &points_in(4));
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| track(&TRACKER, &clip, &points_in(4))))
            .collect();
        for run in runs {
            assert_eq!(run.join().expect("no panic"), alone);
        }
    });
}

/// Points of a clip of so many frames.
fn points_in(frames: usize) -> Queries {
    let last = frames as f32 - 1.0;
    Queries::points([(0.0, 60.5, 120.5), (last, 200.0, 30.0), (1.0, 77.0, 77.0)])
}

#[test]
fn chunks_and_other_points_do_not_move_a_track() {
    let clip = clip("..4");
    let all = track(&TRACKER, &clip, &points_in(4));
    let one_by_one = Tracker::builder()
        .query_chunk(Some(1))
        .build()
        .expect("built-in weights load");
    let chunked = track(&one_by_one, &clip, &points_in(4));
    for n in 0..3 {
        assert!(gap(&all, n, &chunked, n) < CLOSE);
        let alone = Queries::points([all.queries[n].clone()]);
        assert!(gap(&all, n, &track(&TRACKER, &clip, &alone), 0) < CLOSE);
    }
}

#[test]
fn frames_from_memory_are_tracked_like_the_file() {
    let file = clip("3..7");
    let mut memory = MemoryClip::new("memory", 10.0);
    for frame in file.frames().expect("frames") {
        let frame = frame.expect("a frame");
        // BGRA with rows padded to an odd distance.
        let stride = frame.width as usize * 4 + 12;
        let mut bytes = vec![7; stride * frame.height as usize];
        let rows = frame.data.chunks_exact(frame.width as usize * 3);
        for (to, from) in bytes.chunks_exact_mut(stride).zip(rows) {
            for (to, from) in to.chunks_exact_mut(4).zip(from.chunks_exact(3)) {
                to[..3].copy_from_slice(&[from[2], from[1], from[0]]);
            }
        }
        let picture = RawPicture {
            width: frame.width,
            height: frame.height,
            format: PixelFormat::Bgra8,
            planes: &[(&bytes, stride)],
            matrix: Default::default(),
            range: Default::default(),
        };
        memory.push_at(frame.time, &picture).expect("it fits");
    }
    let memory = memory.into_clip().expect("frames");
    let (a, b) = (
        track(&TRACKER, &file, &points_in(4)),
        track(&TRACKER, &memory, &points_in(4)),
    );
    assert_eq!(a.positions, b.positions);
    assert_eq!(a.occlusion, b.occlusion);
    assert_eq!(a.times, b.times);
    assert_eq!((a.frame_indices[0], b.frame_indices[0]), (3, 0));
}

#[test]
fn a_run_can_be_ended_in_every_stage() {
    for (stage, done) in [(track::Stage::Encode, 1), (track::Stage::Track, 1)] {
        let cancel = Cancel::new();
        let watch = Watch::new()
            .on_progress(|p| {
                if p.stage == stage && p.done >= done {
                    cancel.cancel();
                }
            })
            .cancelled_by(&cancel);
        let result = TRACKER.track(&clip("..4"), &Queries::grid(3), &watch);
        assert!(matches!(result, Err(Error::Cancelled)), "{stage:?}");
    }
}

#[test]
fn one_frame_and_a_fractional_query_frame() {
    let tracks = track(&TRACKER, &clip("..1"), &Queries::grid(2));
    assert_eq!((tracks.frames(), tracks.points()), (1, 4));
    let between = Queries::points([QueryPoint::new(1.5, 100.0, 100.0)]);
    let tracks = track(&TRACKER, &clip("..4"), &between);
    assert_eq!(tracks.status[[2, 0]], Status::Query);
    assert_eq!(tracks.position(2, 0), Some((100.0, 100.0)));
}
