//! A profiled pass as Chrome trace events, which Perfetto and `chrome://tracing` open.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Call;
use crate::record::value_size;

/// The calls of one pass in one precision.
#[derive(Debug, Clone, Copy)]
pub struct Pass<'a> {
    /// `f32`, `tf32`, `f16` or `bf16`.
    pub dtype: &'a str,
    /// In the order in which layers ended.
    pub calls: &'a [Call],
}

/// A trace of some passes, one process each: the pass, in it the model's parts (a layer's name up to its first dot,
/// as long as they follow one another), in them the layers.
pub fn chrome_trace(program: &str, device: &str, passes: &[Pass<'_>]) -> Value {
    let mut events = Vec::new();
    for (process, pass) in passes.iter().enumerate() {
        let named = |what: &str, name: &str| json!({"name": what, "ph": "M", "pid": process, "tid": 0, "args": {"name": name}});
        events.push(named(
            "process_name",
            &format!("{} on {device}", pass.dtype),
        ));
        events.push(named("thread_name", "layers"));
        let mut calls = pass.calls.to_vec();
        calls.sort_by_key(|call| call.start);
        let (Some(first), Some(end)) = (calls.first(), calls.iter().map(end_of).max()) else {
            continue;
        };
        let origin = first.start;
        let slice = |name: &str, category: &str, start: Duration, end: Duration, args: Value| {
            json!({
                "name": name, "cat": category, "ph": "X", "pid": process, "tid": 0,
                "ts": microseconds(start - origin), "dur": microseconds(end - start), "args": args,
            })
        };
        events.push(slice(
            &format!("pass {}", pass.dtype),
            "pass",
            origin,
            end,
            json!({}),
        ));
        for together in calls.chunk_by(|a, b| part(a) == part(b)) {
            let start = together[0].start;
            let until = together.iter().map(end_of).max().unwrap_or(start);
            events.push(slice(part(&together[0]), "part", start, until, json!({})));
            for call in together {
                let args = figures(call, pass.dtype);
                events.push(slice(call.name, "layer", call.start, end_of(call), args));
            }
        }
    }
    json!({
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"program": program, "device": device},
    })
}

fn part(call: &Call) -> &'static str {
    call.name.split('.').next().unwrap_or(call.name)
}

fn end_of(call: &Call) -> Duration {
    call.start + call.time
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn figures(call: &Call, dtype: &str) -> Value {
    let seconds = call.time.as_secs_f64().max(1e-9);
    let bytes = call.cost.bytes_at(value_size(dtype).unwrap_or(4));
    json!({
        "GFLOP": call.cost.flops() as f64 / 1e9,
        "MB": bytes as f64 / 1e6,
        "GFLOP/s": call.cost.flops() as f64 / seconds / 1e9,
        "GB/s": bytes as f64 / seconds / 1e9,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cost;

    #[test]
    fn layers_lie_in_their_parts_and_parts_in_the_pass() {
        let call = |name, start, time| Call {
            name,
            start: Duration::from_micros(start),
            time: Duration::from_micros(time),
            cost: Cost::product(10, 8, 8),
        };
        let calls = [
            call("encoder.stem", 100, 10),
            call("encoder.norm", 110, 5),
            call("refine.qkv", 120, 30),
            call("encoder.stem", 155, 5),
        ];
        let pass = Pass {
            dtype: "f32",
            calls: &calls,
        };
        let trace = chrome_trace("track", "cpu", &[pass, pass]);
        let events = trace["traceEvents"].as_array().unwrap();
        let slices = |category: &str, pid: u64| -> Vec<(String, f64, f64)> {
            let of = events
                .iter()
                .filter(|e| e["cat"] == category && e["pid"] == pid);
            of.map(|e| {
                let start = e["ts"].as_f64().unwrap();
                let name = e["name"].as_str().unwrap().to_owned();
                (name, start, start + e["dur"].as_f64().unwrap())
            })
            .collect()
        };
        for pid in [0, 1] {
            assert_eq!(slices("pass", pid), [("pass f32".to_owned(), 0.0, 60.0)]);
            let parts = slices("part", pid);
            let names: Vec<_> = parts.iter().map(|p| p.0.as_str()).collect();
            assert_eq!(names, ["encoder", "refine", "encoder"]);
            let layers = slices("layer", pid);
            assert_eq!(layers.len(), 4);
            for (name, start, end) in layers {
                let part = name.split('.').next().unwrap();
                assert!(
                    parts
                        .iter()
                        .any(|p| p.0 == part && p.1 <= start && end <= p.2),
                    "{name}"
                );
            }
        }
        let empty = chrome_trace(
            "track",
            "cpu",
            &[Pass {
                dtype: "f32",
                calls: &[],
            }],
        );
        assert_eq!(empty["traceEvents"].as_array().unwrap().len(), 2);
    }
}
