//! NumPy arrays, readable without pickle: `tracks` and `visibility` as they are exchanged, the rest beside them.

use std::io::{Seek, Write};

use ndarray::{Array1, Array2};
use ndarray_npy::{NpzWriter, WriteNpzError};

use crate::{Status, Tracks};

pub(super) fn write(tracks: &Tracks, out: impl Write + Seek) -> Result<(), WriteNpzError> {
    let mut npz = NpzWriter::new(out);
    npz.add_array("tracks", &tracks.positions)?;
    npz.add_array("visibility", &tracks.visible)?;
    let queries = Array2::from_shape_fn((tracks.points(), 3), |(n, field)| {
        let query = &tracks.queries[n];
        [query.t, query.x, query.y][field]
    });
    npz.add_array("queries", &queries)?;
    npz.add_array("confidence", &tracks.confidence)?;
    npz.add_array("occlusion", &tracks.occlusion)?;
    npz.add_array("expected_dist", &tracks.expected_dist)?;
    let code = |status: &Status| match status {
        Status::Query => 0_u8,
        Status::Tracked => 1,
        Status::NotTracked => 2,
    };
    npz.add_array("status", &tracks.status.map(code))?;
    npz.add_array("times", &Array1::from_vec(tracks.times.clone()))?;
    // NumPy mixes signed integers with others more gladly than unsigned ones.
    let indices: Array1<i64> = tracks.frame_indices.iter().map(|&i| i as i64).collect();
    npz.add_array("frame_indices", &indices)?;
    // Text without pickle: UTF-8 bytes of a JSON object.
    let provenance = serde_json::to_vec(&tracks.provenance).unwrap_or_default();
    npz.add_array("provenance", &Array1::from_vec(provenance))?;
    npz.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use ndarray::{Array1, Array2, Array3};
    use ndarray_npy::NpzReader;

    use crate::Provenance;
    use crate::tracks::tests::tracks;

    #[test]
    fn arrays_come_back_in_their_shapes() {
        let expected = tracks();
        let mut bytes = Cursor::new(Vec::new());
        super::write(&expected, &mut bytes).unwrap();
        let mut again = Cursor::new(Vec::new());
        super::write(&expected, &mut again).unwrap();
        assert_eq!(bytes, again, "no clock in the file");

        let mut npz = NpzReader::new(bytes).unwrap();
        let positions: Array3<f32> = npz.by_name("tracks").unwrap();
        assert_eq!(positions, expected.positions);
        let visible: Array2<bool> = npz.by_name("visibility").unwrap();
        assert_eq!(visible, expected.visible);
        let queries: Array2<f32> = npz.by_name("queries").unwrap();
        assert_eq!(queries.row(1).to_vec(), [2.4, 7.0, 8.0]);
        let status: Array2<u8> = npz.by_name("status").unwrap();
        assert_eq!(status.column(1).to_vec(), [1, 1, 0]);
        let indices: Array1<i64> = npz.by_name("frame_indices").unwrap();
        assert_eq!(indices.to_vec(), [5, 6, 7]);
        let provenance: Array1<u8> = npz.by_name("provenance").unwrap();
        let provenance: Provenance = serde_json::from_slice(&provenance.to_vec()).unwrap();
        assert_eq!(provenance, expected.provenance);
    }
}
