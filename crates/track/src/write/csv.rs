//! CSV: one row per frame and point, frames in order and points in order within a frame.

use std::io::{self, Write};

use crate::Tracks;

const HEADER: [&str; 12] = [
    "frame",
    "time",
    "point",
    "x",
    "y",
    "visible",
    "confidence",
    "occlusion",
    "expected_dist",
    "status",
    "source_frame",
    "label",
];

pub(super) fn write(tracks: &Tracks, out: &mut impl Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(HEADER)?;
    for t in 0..tracks.frames() {
        for n in 0..tracks.points() {
            let at = [t, n];
            csv.write_record([
                t.to_string().as_str(),
                &tracks.times[t].to_string(),
                &n.to_string(),
                &tracks.positions[[t, n, 0]].to_string(),
                &tracks.positions[[t, n, 1]].to_string(),
                if tracks.visible[at] { "1" } else { "0" },
                &tracks.confidence[at].to_string(),
                &tracks.occlusion[at].to_string(),
                &tracks.expected_dist[at].to_string(),
                tracks.status[at].name(),
                &tracks.frame_indices[t].to_string(),
                tracks.queries[n].label.as_deref().unwrap_or(""),
            ])?;
        }
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use crate::tracks::tests::tracks;

    #[test]
    fn one_row_per_frame_and_point() {
        let mut bytes = Vec::new();
        super::write(&tracks(), &mut bytes).unwrap();
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        assert_eq!(reader.headers().unwrap().len(), 12);
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 6);
        let fields: Vec<_> = rows[5].iter().collect();
        assert_eq!(
            fields,
            [
                "2",
                "0.7",
                "1",
                "7",
                "8",
                "1",
                "NaN",
                "9",
                "NaN",
                "query",
                "7",
                "a \"b\", c"
            ]
        );
        assert_eq!(&rows[1][2], "1");
        assert_eq!(&rows[2][0], "1");
    }
}
