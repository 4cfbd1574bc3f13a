//! What a report's figures say of each layer: rates, the floor, and what stands in the way.

use crate::record::{BenchReport, LayerRecord, PrecisionRecord, value_size};
use crate::roofline::{Floor, Rates};

/// Whether the shapes of a layer's products suit Tensor Cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shapes {
    /// There are no products.
    None,
    /// All sizes are multiples of 8.
    Suit,
    /// This share of the products (0 to 1) has to be padded.
    Padded(f64),
}

/// A layer with what follows from its figures.
#[derive(Debug, Clone)]
pub struct LayerView<'a> {
    /// The figures.
    pub record: &'a LayerRecord,
    /// Share of the sum over the layers, 0 to 1.
    pub share: f64,
    /// Operations by the layer's definition over its time, in 10¹² a second.
    pub tflops: f64,
    /// Bytes by the layer's definition.
    pub bytes: u64,
    /// These over its time, in 10⁹ bytes a second.
    pub gbs: f64,
    /// The least time on the report's device; `None` where its rates in this precision are not known.
    pub floor: Option<Floor>,
    /// Time over floor; `None` without a floor, or for a layer that spends nothing.
    pub ratio: Option<f64>,
    /// Whether its products suit Tensor Cores.
    pub shapes: Shapes,
}

/// Every layer of a precision.
pub fn layers<'a>(report: &BenchReport, precision: &'a PrecisionRecord) -> Vec<LayerView<'a>> {
    let rates = Rates::new(&report.ceilings, &precision.dtype);
    let size = value_size(&precision.dtype).unwrap_or(4);
    let sum = precision.layers_ms().max(f64::MIN_POSITIVE);
    let view = |record: &'a LayerRecord| {
        let cost = &record.cost;
        let seconds = (record.median_ms / 1e3).max(f64::MIN_POSITIVE);
        let bytes = cost.bytes_at(size);
        let floor = rates.map(|rates| rates.floor(cost, record.calls));
        let ratio = floor
            .filter(|f| f.seconds > 0.0)
            .map(|f| record.median_ms / f.ms());
        let shapes = match (cost.products, cost.narrow) {
            (0, _) => Shapes::None,
            (_, 0) => Shapes::Suit,
            (all, narrow) => Shapes::Padded(narrow as f64 / all as f64),
        };
        LayerView {
            record,
            share: record.median_ms / sum,
            tflops: cost.flops() as f64 / seconds / 1e12,
            bytes,
            gbs: bytes as f64 / seconds / 1e9,
            floor,
            ratio,
            shapes,
        }
    };
    precision.layers.iter().map(view).collect()
}

/// Sum over the floors of a precision's layers in milliseconds, where they are known.
pub fn floor_ms(views: &[LayerView<'_>]) -> Option<f64> {
    views.iter().map(|view| view.floor.map(|f| f.ms())).sum()
}

/// Three digits that say something, and no more than four behind the point.
pub(crate) fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.9995 => format!("{x:.2}"),
        a if a >= 0.09995 => format!("{x:.3}"),
        _ => format!("{x:.4}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Cost;
    use crate::record::{Ceilings, DeviceRecord, Machine, SCHEMA, Settings, Timing};

    /// A report of two layers in two precisions; the second precision has no ceiling.
    pub(crate) fn report() -> BenchReport {
        let layer = |name: &str, median_ms, calls, cost| LayerRecord {
            name: name.to_owned(),
            calls,
            median_ms,
            cost,
        };
        let precision = |dtype: &str, ms: f64| PrecisionRecord {
            dtype: dtype.to_owned(),
            end_to_end: Timing::new(vec![ms + 4.0, ms + 5.0]),
            decode: Timing::new(vec![3.0, 3.5]),
            upload: Some(Timing::new(vec![0.5, 0.5])),
            model: Timing::new(vec![ms, ms + 1.0]),
            download: Some(Timing::new(vec![0.25, 0.25])),
            points_frames_per_second: 1234.5,
            peak_device_bytes: Some(3 << 29),
            peak_host_bytes: Some(100 << 20),
            device_busy: Some(0.75),
            launches: Some(120),
            profiled: Timing::new(vec![ms + 0.1]),
            layers: vec![
                layer(
                    "encoder.stem",
                    ms * 0.75,
                    2,
                    Cost::product(1_000_000, 64, 147),
                ),
                layer(
                    "refine.norm",
                    ms * 0.25,
                    28,
                    Cost::elementwise(10_000_000, 8),
                ),
            ],
        };
        BenchReport {
            schema: SCHEMA.to_owned(),
            program: "track 0.1.0".to_owned(),
            commit: Some("0123456789ab".to_owned()),
            machine: Machine {
                system: "linux x86_64".to_owned(),
                processor: "A processor".to_owned(),
                threads: 8,
                memory_bytes: Some(16 << 30),
            },
            device: DeviceRecord {
                kind: "cuda".to_owned(),
                name: "A <device> & more".to_owned(),
                compute_capability: Some("9.0".to_owned()),
                code: Some("sm_90".to_owned()),
                driver: Some("580".to_owned()),
                memory_bytes: Some(1 << 37),
                l2_bytes: None,
                multiprocessors: Some(132),
                clock_mhz: Some(1980),
                memory_clock_mhz: None,
            },
            ceilings: Ceilings {
                bandwidth_gbs: 1000.0,
                launch_us: Some(5.0),
                tflops: [("f32".to_owned(), 10.0)].into(),
                vector_tflops: 10.0,
                source: "measured".to_owned(),
            },
            settings: Settings {
                clip: "a clip".to_owned(),
                synthetic: false,
                frames: 47,
                width: 256,
                height: 256,
                points: 64,
                model: "locotrack-small".to_owned(),
                weights: "built in".to_owned(),
                weights_sha256: "00".to_owned(),
                runs: 2,
                warmup: 1,
                batch: 1,
            },
            precisions: vec![precision("f32", 8.0), precision("bf16", 4.0)],
        }
    }

    #[test]
    fn rates_and_ratios_by_hand() {
        let report = report();
        let views = layers(&report, &report.precisions[0]);
        let stem = &views[0];
        // 18.816 GFLOP in 6 ms; at 10 Tflop/s 1.8816 ms and two calls of 5 µs.
        assert!((stem.tflops - 3.136).abs() < 1e-9);
        assert!((stem.floor.unwrap().ms() - 1.8916).abs() < 1e-9);
        assert!((stem.ratio.unwrap() - 6.0 / 1.8916).abs() < 1e-9);
        assert_eq!(stem.shapes, Shapes::Padded(1.0));
        assert!((stem.share - 0.75).abs() < 1e-12);
        let norm = &views[1];
        assert_eq!(norm.shapes, Shapes::None);
        // 80 MB in 2 ms.
        assert!((norm.gbs - 40.0).abs() < 1e-9);
        let sum = floor_ms(&views).unwrap();
        assert!((sum - stem.floor.unwrap().ms() - norm.floor.unwrap().ms()).abs() < 1e-12);
        let views = layers(&report, &report.precisions[1]);
        assert!(views[0].floor.is_none() && views[0].ratio.is_none());
        assert_eq!(floor_ms(&views), None);
        assert_eq!(views[1].bytes, 40_000_000);
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.01234, 0.1234, 1.234, 12.34, 99.96, 1234.5].map(short);
        assert_eq!(
            texts,
            ["0", "0.0123", "0.123", "1.23", "12.3", "100", "1234"]
        );
    }
}
