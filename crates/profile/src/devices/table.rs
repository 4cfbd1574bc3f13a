//! The table of devices. One entry each, newest figures of the maker, with their source.

use std::collections::BTreeMap;

use super::{Device, LAUNCH_US, Reachable};

/// What drivers and people call a device besides its name and title.
pub(super) const OTHER_NAMES: [(&str, &str); 16] = [
    ("A100 40GB", "a100"),
    ("A100-SXM4-40GB", "a100"),
    ("A100-PCIE-40GB", "a100"),
    ("A100-SXM4-80GB", "a100-80gb"),
    ("H100 SXM", "h100"),
    ("H100 SXM5", "h100"),
    ("H100 80GB HBM3", "h100"),
    ("H200 SXM", "h200"),
    ("3090", "rtx3090"),
    ("4090", "rtx4090"),
    ("V100 SXM2", "v100"),
    ("V100-SXM2-16GB", "v100"),
    ("V100-SXM2-32GB", "v100-32gb"),
    ("MI250X OAM", "mi250x"),
    ("MI250X (one GCD)", "mi250x-gcd"),
    ("RTX 4090 24GB", "rtx4090"),
];

/// One row. Rates in TFLOP/s, dense, f32 accumulation; 0 where a precision is not offered.
struct Row {
    name: &'static str,
    title: &'static str,
    capability: Option<&'static str>,
    memory_gib: f64,
    bandwidth_gbs: f64,
    l2_mib: f64,
    clock_mhz: Option<(f64, f64)>,
    vector: f64,
    f32: f64,
    tf32: f64,
    /// f16 and bf16 have one rate wherever both are offered.
    half: f64,
    bf16: bool,
    reachable: Share,
    sources: &'static [&'static str],
    notes: &'static [&'static str],
}

/// How much of the datasheet good code reaches.
#[derive(Clone, Copy)]
enum Share {
    /// Measured for this project, with `track bench`'s own kinds of ceilings.
    MeasuredH200,
    /// Nobody measured it for this project: the H200's shares.
    LikeH200,
    /// A card of about 70 W cannot hold its boost clock under products.
    PowerLimited,
    /// Another maker's libraries: a cautious guess.
    Guess,
}

impl Share {
    fn reachable(self) -> Reachable {
        let like_h200 = Reachable::default();
        match self {
            Self::MeasuredH200 => Reachable {
                source: "measured: copy 4250 GB/s; bf16 792, tf32 386, f32 48.6 TFLOP/s".to_owned(),
                ..like_h200
            },
            Self::LikeH200 => like_h200,
            Self::PowerLimited => Reachable {
                bandwidth: 0.75,
                vector: 0.6,
                f32: 0.6,
                tensor: 0.55,
                source: "assumed: its power limit lowers the clock under load".to_owned(),
            },
            Self::Guess => Reachable {
                bandwidth: 0.8,
                vector: 0.6,
                f32: 0.6,
                tensor: 0.6,
                source: "assumed".to_owned(),
            },
        }
    }
}

const T4_SHEET: &str = "NVIDIA T4 Tensor Core GPU datasheet (specifications)";
const TURING: &str = "NVIDIA Turing GPU Architecture whitepaper (WP-09183), TU104 and Tesla T4";
const GA102: &str =
    "NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix of GPU specifications";
const ADA: &str = "NVIDIA Ada GPU Architecture whitepaper, appendix of GPU specifications";
const A100_SHEET: &str = "NVIDIA A100 Tensor Core GPU datasheet (specifications)";
const AMPERE: &str =
    "NVIDIA A100 Tensor Core GPU Architecture whitepaper, table of GPU specifications";
const H100_SHEET: &str = "NVIDIA H100 Tensor Core GPU datasheet (specifications)";
const HOPPER: &str =
    "NVIDIA H100 Tensor Core GPU Architecture whitepaper, table of GPU specifications";
const VOLTA: &str =
    "NVIDIA Tesla V100 GPU Architecture whitepaper (WP-08608), table of GPU specifications";
const CDNA2: &str =
    "AMD CDNA 2 Architecture whitepaper; AMD Instinct MI250X datasheet (specifications)";

const HALVED: &str = "this consumer card does f16 products with f32 accumulation at half the rate of those \
     with f16 accumulation; the halved rate is the one given";
const SPARSE: &str = "the datasheet prints rates with sparsity; halved here";

const ROWS: &[Row] = &[
    Row {
        name: "t4",
        title: "NVIDIA T4",
        capability: Some("7.5"),
        memory_gib: 16.0,
        bandwidth_gbs: 320.0,
        l2_mib: 4.0,
        clock_mhz: Some((585.0, 1590.0)),
        vector: 8.1,
        f32: 8.1,
        tf32: 0.0,
        half: 65.0,
        bf16: false,
        reachable: Share::PowerLimited,
        sources: &[T4_SHEET, TURING],
        notes: &[
            "70 W: clocks fall under sustained products (Jia et al., arXiv:1903.07486, study it)",
            "about 15 GiB are left with error-correcting codes on",
        ],
    },
    Row {
        name: "a10",
        title: "NVIDIA A10",
        capability: Some("8.6"),
        memory_gib: 24.0,
        bandwidth_gbs: 600.0,
        l2_mib: 6.0,
        clock_mhz: Some((885.0, 1695.0)),
        vector: 31.2,
        f32: 31.2,
        tf32: 62.5,
        half: 125.0,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[
            "NVIDIA A10 Tensor Core GPU datasheet (specifications)",
            GA102,
        ],
        notes: &["cloud providers' A10G is another card with lower product rates"],
    },
    Row {
        name: "l4",
        title: "NVIDIA L4",
        capability: Some("8.9"),
        memory_gib: 24.0,
        bandwidth_gbs: 300.0,
        l2_mib: 48.0,
        clock_mhz: Some((795.0, 2040.0)),
        vector: 30.3,
        f32: 30.3,
        tf32: 60.0,
        half: 121.0,
        bf16: true,
        reachable: Share::PowerLimited,
        sources: &["NVIDIA L4 Tensor Core GPU datasheet (specifications)", ADA],
        notes: &[SPARSE, "72 W"],
    },
    Row {
        name: "a100",
        title: "NVIDIA A100 40GB",
        capability: Some("8.0"),
        memory_gib: 40.0,
        bandwidth_gbs: 1555.0,
        l2_mib: 40.0,
        clock_mhz: None,
        vector: 19.5,
        f32: 19.5,
        tf32: 156.0,
        half: 312.0,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[A100_SHEET, AMPERE],
        notes: &[],
    },
    Row {
        name: "a100-80gb",
        title: "NVIDIA A100 80GB",
        capability: Some("8.0"),
        memory_gib: 80.0,
        bandwidth_gbs: 2039.0,
        l2_mib: 40.0,
        clock_mhz: None,
        vector: 19.5,
        f32: 19.5,
        tf32: 156.0,
        half: 312.0,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[A100_SHEET, AMPERE],
        notes: &["SXM; the PCIe card has 1935 GB/s"],
    },
    Row {
        name: "h100",
        title: "NVIDIA H100 SXM5 80GB",
        capability: Some("9.0"),
        memory_gib: 80.0,
        bandwidth_gbs: 3350.0,
        l2_mib: 50.0,
        clock_mhz: None,
        vector: 66.9,
        f32: 66.9,
        tf32: 494.7,
        half: 989.4,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[H100_SHEET, HOPPER],
        notes: &[SPARSE],
    },
    Row {
        name: "h100-pcie",
        title: "NVIDIA H100 PCIe",
        capability: Some("9.0"),
        memory_gib: 80.0,
        bandwidth_gbs: 2000.0,
        l2_mib: 50.0,
        clock_mhz: None,
        vector: 51.2,
        f32: 51.2,
        tf32: 378.0,
        half: 756.0,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[H100_SHEET, HOPPER],
        notes: &[SPARSE],
    },
    Row {
        name: "h200",
        title: "NVIDIA H200",
        capability: Some("9.0"),
        memory_gib: 141.0,
        bandwidth_gbs: 4800.0,
        l2_mib: 50.0,
        clock_mhz: None,
        vector: 66.9,
        f32: 66.9,
        tf32: 494.7,
        half: 989.4,
        bf16: true,
        reachable: Share::MeasuredH200,
        sources: &[
            "NVIDIA H200 Tensor Core GPU datasheet (specifications)",
            HOPPER,
        ],
        notes: &[SPARSE],
    },
    Row {
        name: "rtx3090",
        title: "NVIDIA GeForce RTX 3090",
        capability: Some("8.6"),
        memory_gib: 24.0,
        bandwidth_gbs: 936.0,
        l2_mib: 6.0,
        clock_mhz: None,
        vector: 35.6,
        f32: 35.6,
        tf32: 35.6,
        half: 71.0,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[GA102],
        notes: &[HALVED, "tf32 products are no faster than f32 ones"],
    },
    Row {
        name: "rtx4090",
        title: "NVIDIA GeForce RTX 4090",
        capability: Some("8.9"),
        memory_gib: 24.0,
        bandwidth_gbs: 1008.0,
        l2_mib: 72.0,
        clock_mhz: None,
        vector: 82.6,
        f32: 82.6,
        tf32: 82.6,
        half: 165.2,
        bf16: true,
        reachable: Share::LikeH200,
        sources: &[ADA],
        notes: &[HALVED, "tf32 products are no faster than f32 ones"],
    },
    Row {
        name: "v100",
        title: "NVIDIA V100 SXM2 16GB",
        capability: Some("7.0"),
        memory_gib: 16.0,
        bandwidth_gbs: 900.0,
        l2_mib: 6.0,
        clock_mhz: None,
        vector: 15.7,
        f32: 15.7,
        tf32: 0.0,
        half: 125.0,
        bf16: false,
        reachable: Share::LikeH200,
        sources: &[
            "NVIDIA V100 Tensor Core GPU datasheet (specifications)",
            VOLTA,
        ],
        notes: &["the PCIe card is a tenth slower"],
    },
    Row {
        name: "v100-32gb",
        title: "NVIDIA V100 SXM2 32GB",
        capability: Some("7.0"),
        memory_gib: 32.0,
        bandwidth_gbs: 900.0,
        l2_mib: 6.0,
        clock_mhz: None,
        vector: 15.7,
        f32: 15.7,
        tf32: 0.0,
        half: 125.0,
        bf16: false,
        reachable: Share::LikeH200,
        sources: &[
            "NVIDIA V100 Tensor Core GPU datasheet (specifications)",
            VOLTA,
        ],
        notes: &["the PCIe card is a tenth slower"],
    },
    Row {
        name: "mi250x",
        title: "AMD Instinct MI250X",
        capability: None,
        memory_gib: 128.0,
        bandwidth_gbs: 3276.8,
        l2_mib: 16.0,
        clock_mhz: None,
        vector: 47.9,
        f32: 95.7,
        tf32: 0.0,
        half: 383.0,
        bf16: true,
        reachable: Share::Guess,
        sources: &[CDNA2],
        notes: &[
            "both dies together, which a program sees as two devices: one clip runs on one of them, see mi250x-gcd",
            "f32 products run on matrix cores in full f32, at twice the rate of other arithmetic",
        ],
    },
    Row {
        name: "mi250x-gcd",
        title: "AMD Instinct MI250X, one GCD",
        capability: None,
        memory_gib: 64.0,
        bandwidth_gbs: 1638.4,
        l2_mib: 8.0,
        clock_mhz: None,
        vector: 23.95,
        f32: 47.9,
        tf32: 0.0,
        half: 191.5,
        bf16: true,
        reachable: Share::Guess,
        sources: &[CDNA2],
        notes: &[
            "one of the two dies, which is what a program sees",
            "f32 products run on matrix cores in full f32, at twice the rate of other arithmetic",
        ],
    },
];

pub(super) fn devices() -> Vec<Device> {
    ROWS.iter().map(Row::device).collect()
}

impl Row {
    fn device(&self) -> Device {
        let bf16 = if self.bf16 { self.half } else { 0.0 };
        let rates = [
            ("f32", self.f32),
            ("tf32", self.tf32),
            ("f16", self.half),
            ("bf16", bf16),
        ];
        let offered = rates.into_iter().filter(|(_, rate)| *rate > 0.0);
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Device {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            compute_capability: self.capability.map(str::to_owned),
            memory_gib: self.memory_gib,
            bandwidth_gbs: self.bandwidth_gbs,
            l2_mib: Some(self.l2_mib),
            clock_mhz: self.clock_mhz,
            vector_tflops: self.vector,
            tflops: offered
                .map(|(dtype, rate)| (dtype.to_owned(), rate))
                .collect::<BTreeMap<_, _>>(),
            launch_us: LAUNCH_US,
            reachable: self.reachable.reachable(),
            sources: owned(self.sources),
            notes: owned(self.notes),
        }
    }
}
