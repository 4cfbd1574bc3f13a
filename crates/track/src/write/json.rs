//! JSON, schema `track/1`: everything, point by point. docs/output.md describes it for people.

use std::io::{self, Write};
use std::path::Path;

use ndarray::{Array2, Array3};
use serde::{Deserialize, Serialize};

use crate::error::os_reason;
use crate::{Error, Provenance, QueryPoint, Result, Status, Tracks};

/// The schema's name and version. The number grows when a field changes its meaning or goes away.
const SCHEMA: &str = "track/1";
/// Where (0, 0) lies: the corner of the corner pixel, not its centre.
const PIXEL_ORIGIN: &str = "corner";

/// One point over all frames. Numbers that are not finite are `null` in the file.
#[derive(Serialize, Deserialize)]
struct Row {
    point: usize,
    query: QueryPoint,
    x: Vec<Option<f32>>,
    y: Vec<Option<f32>>,
    visible: Vec<bool>,
    confidence: Vec<Option<f32>>,
    occlusion: Vec<Option<f32>>,
    expected_dist: Vec<Option<f32>>,
    status: Vec<Status>,
}

/// A whole file. It is read in one piece, but written piece by piece to keep one track a line.
#[derive(Deserialize)]
struct Document {
    schema: String,
    pixel_origin: String,
    provenance: Provenance,
    warnings: Vec<String>,
    frame_indices: Vec<u64>,
    times: Vec<f64>,
    tracks: Vec<Row>,
}

pub(super) fn write(tracks: &Tracks, out: &mut impl Write) -> io::Result<()> {
    fn field(out: &mut impl Write, name: &str, value: &impl Serialize) -> io::Result<()> {
        write!(out, "\"{name}\":")?;
        serde_json::to_writer(&mut *out, value)?;
        out.write_all(b",\n")
    }
    out.write_all(b"{\n")?;
    field(out, "schema", &SCHEMA)?;
    field(out, "pixel_origin", &PIXEL_ORIGIN)?;
    field(out, "provenance", &tracks.provenance)?;
    field(out, "warnings", &tracks.warnings)?;
    field(out, "frame_indices", &tracks.frame_indices)?;
    field(out, "times", &tracks.times)?;
    out.write_all(b"\"tracks\":[")?;
    for n in 0..tracks.points() {
        out.write_all(if n == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &row(tracks, n))?;
    }
    out.write_all(b"\n]\n}\n")
}

fn row(tracks: &Tracks, n: usize) -> Row {
    let finite = |v: &f32| v.is_finite().then_some(*v);
    let column = |plane: &Array2<f32>| plane.column(n).iter().map(finite).collect();
    let axis = |c: usize| {
        let along = tracks.positions.slice(ndarray::s![.., n, c]);
        along.iter().map(finite).collect()
    };
    Row {
        point: n,
        query: tracks.queries[n].clone(),
        x: axis(0),
        y: axis(1),
        visible: tracks.visible.column(n).to_vec(),
        confidence: column(&tracks.confidence),
        occlusion: column(&tracks.occlusion),
        expected_dist: column(&tracks.expected_dist),
        status: tracks.status.column(n).to_vec(),
    }
}

pub(super) fn read(path: &Path) -> Result<Tracks> {
    let bytes = std::fs::read(path)
        .map_err(|e| Error::input(path, format!("cannot read the tracks ({})", os_reason(&e))))?;
    let document: Document = serde_json::from_slice(&bytes).map_err(|e| {
        Error::input(
            path,
            format!("cannot be read as tracks of schema {SCHEMA} ({e})"),
        )
    })?;
    if document.schema != SCHEMA || document.pixel_origin != PIXEL_ORIGIN {
        return Err(Error::input(
            path,
            format!(
                "expected schema {SCHEMA} with pixel origin {PIXEL_ORIGIN}, found {} with {}; write the tracks again with this version",
                document.schema, document.pixel_origin
            ),
        ));
    }
    from_document(document).map_err(|reason| Error::input(path, reason))
}

fn from_document(document: Document) -> Result<Tracks, String> {
    let (frames, points) = (document.times.len(), document.tracks.len());
    if document.frame_indices.len() != frames {
        return Err(format!(
            "{frames} times, but {} frame indices; they must be as many",
            document.frame_indices.len()
        ));
    }
    let plane = || Array2::from_elem((frames, points), 0.0_f32);
    let mut tracks = Tracks {
        positions: Array3::zeros((frames, points, 2)),
        visible: Array2::from_elem((frames, points), false),
        confidence: plane(),
        occlusion: plane(),
        expected_dist: plane(),
        status: Array2::from_elem((frames, points), Status::Tracked),
        times: document.times,
        frame_indices: document.frame_indices,
        queries: Vec::with_capacity(points),
        provenance: document.provenance,
        warnings: document.warnings,
    };
    for (n, row) in document.tracks.into_iter().enumerate() {
        let lengths = [
            row.x.len(),
            row.y.len(),
            row.visible.len(),
            row.confidence.len(),
            row.occlusion.len(),
            row.expected_dist.len(),
            row.status.len(),
        ];
        if row.point != n || lengths.iter().any(|&l| l != frames) {
            return Err(format!(
                "track {n} does not have one value for each of the {frames} frames; the file was changed or cut"
            ));
        }
        let number = |v: Option<f32>| v.unwrap_or(f32::NAN);
        for t in 0..frames {
            tracks.positions[[t, n, 0]] = number(row.x[t]);
            tracks.positions[[t, n, 1]] = number(row.y[t]);
            tracks.visible[[t, n]] = row.visible[t];
            tracks.confidence[[t, n]] = number(row.confidence[t]);
            tracks.occlusion[[t, n]] = number(row.occlusion[t]);
            tracks.expected_dist[[t, n]] = number(row.expected_dist[t]);
            tracks.status[[t, n]] = row.status[t];
        }
        tracks.queries.push(row.query);
    }
    Ok(tracks)
}

#[cfg(test)]
mod tests {
    use crate::Tracks;
    use crate::tracks::tests::tracks;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let written = tracks();
        written.write(&path).unwrap();
        let read = Tracks::read_json(&path).unwrap();
        assert_eq!(read.positions, written.positions);
        assert_eq!(read.visible, written.visible);
        assert_eq!(read.status, written.status);
        assert_eq!(read.queries, written.queries);
        assert_eq!(read.times, written.times);
        assert_eq!(read.frame_indices, written.frame_indices);
        assert_eq!(read.provenance, written.provenance);
        // The one number that is not finite comes back as such.
        assert!(read.expected_dist[[2, 1]].is_nan() && read.confidence[[2, 1]].is_nan());
        let again = folder.path().join("again.json");
        read.write(&again).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(again).unwrap());
    }

    #[test]
    fn the_file_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        tracks().write(&path).unwrap();
        let value: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["schema"], "track/1");
        assert_eq!(value["pixel_origin"], "corner");
        assert_eq!(value["tracks"][1]["query"]["label"], "a \"b\", c");
        assert_eq!(value["tracks"][1]["status"][2], "query");
        assert!(value["tracks"][1]["expected_dist"][2].is_null());
    }

    #[test]
    fn other_files_are_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        tracks().write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let changes = [
            text.replace("track/1", "track/9"),
            text.replace("[0.5,0.6,0.7]", "[0.5,0.6]"),
            text.replacen("true,true,false", "true,true", 1),
            text[..text.len() / 2].to_owned(),
            "[]".to_owned(),
        ];
        for changed in changes {
            assert_ne!(changed, text);
            std::fs::write(&path, changed).unwrap();
            let error = Tracks::read_json(&path).unwrap_err().to_string();
            assert!(error.contains("t.json: "), "{error}");
        }
    }
}
