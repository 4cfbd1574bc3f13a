//! Sentences about one device, made from its numbers.

use super::words::{count, digits, list, percent, plain, size, time, times};
use super::{InPrecision, OfStage, OnDevice};
use crate::record::{BenchReport, value_size};
use crate::roofline::Bound;

/// What a change of precision must win to be worth naming.
const WORTH: f64 = 1.05;
/// What part of a floor is worth naming.
const PART: f64 = 0.02;

/// One of a precision's times, where it is there.
type TimeOf = fn(&InPrecision) -> Option<f64>;

/// What precisions of a device are compared by: measured times where every precision has one, else
/// predictions, else floors.
struct Basis {
    time: TimeOf,
    name: &'static str,
}

impl Basis {
    fn of(precisions: &[InPrecision]) -> Self {
        let kinds: [(TimeOf, _); 2] = [
            (|p| p.measured_ms, "by what was measured"),
            (|p| p.predicted_ms, "by what is predicted"),
        ];
        let known = |time: TimeOf| precisions.iter().all(|p| time(p).is_some());
        let found = kinds.into_iter().find(|(time, _)| known(*time));
        let (time, name) = found.unwrap_or((|p| Some(p.floor_ms), "by its floor"));
        Self { time, name }
    }
}

/// The precision to pick: the fastest that fits, where a less exact one must win a twentieth at least.
pub(super) fn pick(precisions: &[InPrecision]) -> String {
    let Basis { time, .. } = Basis::of(precisions);
    let mut picked: Option<&InPrecision> = None;
    for candidate in precisions {
        let fits = |p: &InPrecision| p.memory.as_ref().is_none_or(|m| m.fits);
        let better = picked.is_none_or(|so_far| {
            let faster = time(candidate) < time(so_far).map(|ms| ms / WORTH);
            fits(candidate) && (faster || !fits(so_far))
        });
        if better {
            picked = Some(candidate);
        }
    }
    picked.map_or_else(|| "f32".to_owned(), |p| p.dtype.clone())
}

pub(super) fn sentences(on: &OnDevice, report: &BenchReport) -> Vec<String> {
    let of = |dtype: &str| on.precisions.iter().find(|p| p.dtype == dtype);
    let (Some(base), Some(picked)) = (of("f32"), of(&on.pick)) else {
        return Vec::new();
    };
    let view = View { on, base, picked };
    [
        view.change_first(),
        Some(view.which_precision()),
        view.largest(),
        view.what_is_left(),
        view.halved_by_bytes(),
        view.helped_by_none(),
        view.narrow(),
        view.launches(report),
        fused(report),
        view.memory(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn fused(report: &BenchReport) -> Option<String> {
    let fused = report
        .precisions
        .iter()
        .any(|p| super::compare::is_fused(&p.layers));
    fused.then(|| {
        "This report's code encodes the correlation in the layer that correlates: the local 4D correlation holds \
         the correlation encoder."
            .to_owned()
    })
}

struct View<'a> {
    on: &'a OnDevice,
    base: &'a InPrecision,
    picked: &'a InPrecision,
}

impl View<'_> {
    fn changes(&self) -> bool {
        self.base.dtype != self.picked.dtype
    }

    fn in_picked(&self, stage: &OfStage) -> Option<&OfStage> {
        let stages = &self.picked.stages;
        stages.iter().find(|s| s.stage == stage.stage)
    }

    /// How many times less time the picked precision needs at least.
    fn gain(&self, stage: &OfStage) -> f64 {
        match self.in_picked(stage) {
            Some(picked) if picked.floor_ms > 0.0 => stage.floor_ms / picked.floor_ms,
            _ => 1.0,
        }
    }

    fn units(&self) -> &'static str {
        if self.on.device.compute_capability.is_some() {
            "Tensor Cores"
        } else {
            "matrix cores"
        }
    }

    /// Where measured, else predicted, time is farthest above what good code reaches.
    fn change_first(&self) -> Option<String> {
        let p = self.picked;
        let spent = |stage: &OfStage| stage.measured_ms.or(stage.predicted_ms);
        let above = |stage: &OfStage| Some(spent(stage)? - stage.reachable_ms);
        let total: f64 = p
            .stages
            .iter()
            .filter_map(above)
            .map(|ms| ms.max(0.0))
            .sum();
        let worst = p.stages.iter().max_by(|a, b| {
            let (a, b) = (above(a).unwrap_or(0.0), above(b).unwrap_or(0.0));
            a.total_cmp(&b)
        })?;
        let (spent, above) = (spent(worst)?, above(worst)?);
        if above <= 0.0 {
            return None;
        }
        let kind = if worst.measured_ms.is_some() {
            "measured"
        } else {
            "predicted"
        };
        Some(format!(
            "Change first: {}, {} {kind} in {} where {} is reachable; {} of all the time above that is there.",
            worst.stage.title(),
            time(spent),
            p.dtype,
            time(worst.reachable_ms),
            percent(above / total),
        ))
    }

    fn which_precision(&self) -> String {
        let (base, picked) = (self.base, self.picked);
        let mut text = if self.changes() {
            let against =
                |a: f64, b: f64| format!("{} against {} in {}", time(a), time(b), base.dtype);
            let mut text = format!(
                "Pick {}: its floor is {}, {} times less",
                picked.dtype,
                against(picked.floor_ms, base.floor_ms),
                times(base.floor_ms / picked.floor_ms),
            );
            for (kind, a, b) in [
                ("measured", picked.measured_ms, base.measured_ms),
                ("predicted", picked.predicted_ms, base.predicted_ms),
            ] {
                if let (Some(a), Some(b)) = (a, b) {
                    text.push_str(&format!("; {kind}, {}", against(a, b)));
                }
            }
            text + "."
        } else if self.on.precisions.len() > 1 {
            format!(
                "Stay with f32: {}, no other precision of this device is faster by a twentieth.",
                Basis::of(&self.on.precisions).name
            )
        } else {
            format!("It has f32 only, with a floor of {}.", time(base.floor_ms))
        };
        let middle = self.on.precisions.iter().find(|p| p.dtype == "tf32");
        if let Some(tf32) = middle.filter(|_| self.changes() && picked.dtype != "tf32") {
            text.push_str(&format!(
                " tf32, with f32's range and storage, has a floor of {}.",
                time(tf32.floor_ms)
            ));
        }
        if self.on.precisions.len() > 1 && !self.on.lacks.is_empty() {
            text.push_str(&format!(" It has no {}.", self.on.lacks.join(" and no ")));
        }
        text
    }

    /// The largest part of the floor in f32, and what the picked precision does to it.
    fn largest(&self) -> Option<String> {
        let stage = self.base.stages.first()?;
        let mut text = format!(
            "{} of the floor in {} is {}, bound by {}",
            percent(stage.share),
            self.base.dtype,
            stage.stage.title(),
            said(stage.bound),
        );
        if self.changes() {
            text.push_str("; ");
            text.push_str(&self.effect(stage));
        }
        Some(text + ".")
    }

    /// What the picked precision does to a stage.
    fn effect(&self, stage: &OfStage) -> String {
        let dtype = &self.picked.dtype;
        let gain = self.gain(stage);
        let rate = |dtype: &str| self.on.device.tflops.get(dtype).copied().unwrap_or(0.0);
        let (fast, slow) = (rate(dtype), rate(&self.base.dtype));
        let then = self.in_picked(stage).map(|s| s.bound);
        match stage.bound {
            Bound::Products if fast > slow * WORTH => {
                let faster = fast / slow;
                let moved = format!(
                    "{dtype} moves it to {}, {} against {} TFLOP/s: {} times the rate",
                    self.units(),
                    plain(fast),
                    plain(slow),
                    times(faster),
                );
                match then {
                    Some(bound) if bound != Bound::Products => format!(
                        "{moved}, of which {} times are left before it is bound by {}",
                        times(gain),
                        said(bound)
                    ),
                    _ if gain < faster / WORTH => {
                        format!("{moved}, and {} times less time", times(gain))
                    }
                    _ => moved,
                }
            }
            Bound::Bandwidth if gain > WORTH => {
                format!("{dtype} moves fewer bytes: {} times less time", times(gain))
            }
            Bound::Bandwidth => "its bytes are the same in every precision".to_owned(),
            _ if gain > WORTH => format!("{dtype} leaves {} times less time", times(gain)),
            _ => "no precision changes that".to_owned(),
        }
    }

    /// The largest part in the picked precision, and what alone makes it smaller.
    fn what_is_left(&self) -> Option<String> {
        if !self.changes() {
            return None;
        }
        let stage = self.picked.stages.first()?;
        let advice = match stage.bound {
            Bound::Bandwidth => {
                let bytes = stage.cost.bytes_at(value_size(&self.picked.dtype)?) as f64 / 1e9;
                format!(
                    "it moves {} GB at least, so that only fusing it with its neighbours makes it faster",
                    digits(bytes)
                )
            }
            Bound::Products => {
                let work = stage.cost.products as f64 / 1e12;
                format!(
                    "{} TFLOP, so that only fewer operations make it faster",
                    digits(work)
                )
            }
            Bound::Arithmetic => {
                "arithmetic outside products runs at the rate of f32 in every precision".to_owned()
            }
            Bound::Launch => "fewer and larger launches make it faster".to_owned(),
        };
        Some(format!(
            "In {}, {} of what is left is {}, bound by {}: {advice}.",
            self.picked.dtype,
            percent(stage.share),
            stage.stage.title(),
            said(stage.bound),
        ))
    }

    /// Stages other than the largest that are bound by bandwidth in f32 and win by smaller values.
    fn halved_by_bytes(&self) -> Option<String> {
        let smaller = value_size(&self.picked.dtype) < value_size(&self.base.dtype);
        let others = self.base.stages.iter().skip(1);
        let items: Vec<_> = others
            .filter(|s| smaller && s.bound == Bound::Bandwidth && s.share >= PART)
            .filter(|s| self.gain(s) > WORTH)
            .map(|s| {
                let (share, gain) = (percent(s.share), times(self.gain(s)));
                format!(
                    "{} ({share} of the floor in f32, {gain} times)",
                    s.stage.title()
                )
            })
            .collect();
        (!items.is_empty()).then(|| {
            format!(
                "Bound by bandwidth, so that {} wins by its smaller values alone, at most 2 times: {}.",
                self.picked.dtype,
                list(&items)
            )
        })
    }

    fn helped_by_none(&self) -> Option<String> {
        let unmoved = |s: &&OfStage| {
            let before = self.base.stages.iter().find(|b| b.stage == s.stage);
            s.share >= PART && before.is_some_and(|before| self.gain(before) < WORTH)
        };
        let items = self.picked.stages.iter().filter(unmoved).map(|s| {
            let (share, bound) = (percent(s.share), said(s.bound));
            format!(
                "{} ({share} of what is left, bound by {bound})",
                s.stage.title()
            )
        });
        let items: Vec<_> = items.collect();
        (self.changes() && !items.is_empty())
            .then(|| format!("{} does nothing for {}.", self.picked.dtype, list(&items)))
    }

    /// Stages whose products do not suit Tensor Cores.
    fn narrow(&self) -> Option<String> {
        if self.picked.dtype == "f32" {
            return None;
        }
        let narrow = |s: &OfStage| s.cost.narrow as f64 / s.cost.products.max(1) as f64;
        let items: Vec<_> = self
            .picked
            .stages
            .iter()
            .filter(|s| narrow(s) > 0.1 && s.share >= PART / 2.0)
            .map(|s| {
                format!(
                    "{} ({} of its products)",
                    s.stage.title(),
                    percent(narrow(s))
                )
            })
            .collect();
        (!items.is_empty()).then(|| {
            format!(
                "Sizes that are no multiple of 8, which {} work on only with padding: {}. The floor does not \
                 count the padding.",
                self.units(),
                list(&items)
            )
        })
    }

    fn launches(&self, report: &BenchReport) -> Option<String> {
        let layers = || self.picked.layers.iter();
        let bound = || layers().filter(|l| l.bound == Bound::Launch);
        let share = bound().map(|l| l.floor_ms).sum::<f64>() / self.picked.floor_ms;
        if share < PART {
            return None;
        }
        let calls: u64 = bound().map(|l| l.calls).sum();
        let names: Vec<_> = bound().map(|l| l.name.as_str()).collect();
        let launches = report.precisions.iter().find_map(|p| p.launches);
        let all = launches.map_or_else(String::new, |n| {
            format!(" The report counted {} launches a clip.", count(n))
        });
        Some(format!(
            "Too small to fill the device, so that the launch is what is paid for: {} ({} calls, {} of \
             the floor in {}). Fuse them or replay them as a graph.{all}",
            list(&names),
            count(calls),
            percent(share),
            self.picked.dtype,
        ))
    }

    fn memory(&self) -> Option<String> {
        let usable = self.on.device.usable_memory();
        let needs = |p: &InPrecision| Some((p.dtype.clone(), p.memory.clone()?));
        let mut needed = vec![needs(self.base)?];
        if self.changes() {
            needed.push(needs(self.picked)?);
        }
        let source = &needed.last()?.1.source;
        let figures: Vec<_> = needed
            .iter()
            .map(|(dtype, m)| format!("{dtype} needs {}", size(m.bytes)))
            .collect();
        let lacking: Vec<_> = needed
            .iter()
            .filter(|(_, m)| !m.fits)
            .map(|(dtype, _)| dtype.as_str())
            .collect();
        let verdict = if usable == 0 {
            "how much the device has is not known".to_owned()
        } else if lacking.is_empty() {
            format!("it fits the {} that a program can use", size(usable))
        } else {
            format!(
                "{} does not fit the {} that a program can use: fewer points or frames at a time do",
                list(&lacking),
                size(usable)
            )
        };
        Some(format!("Memory: {} ({source}); {verdict}.", list(&figures)))
    }
}

/// A bound in a sentence.
pub(super) fn said(bound: Bound) -> &'static str {
    match bound {
        Bound::Products => "products",
        Bound::Arithmetic => "arithmetic outside products",
        Bound::Bandwidth => "bandwidth",
        Bound::Launch => "launches",
    }
}
