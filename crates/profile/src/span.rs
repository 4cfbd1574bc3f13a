//! Layers as other tools see them: `tracing` spans and, with the feature `nvtx`, ranges in Nsight Systems.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::level_filters::LevelFilter;
use tracing::span::EnteredSpan;
use tracing_core::callsite::{self, Callsite};
use tracing_core::field::FieldSet;
use tracing_core::subscriber::Interest;
use tracing_core::{Kind, Level, Metadata, dispatcher, identify_callsite};

/// What subscribers filter the spans by; their level is TRACE.
const TARGET: &str = "track::layer";

/// A layer that other tools see while this value lives.
///
/// A device's work is seen where the host starts it: a range around launches, which Nsight Systems projects onto
/// the kernels that they launch.
#[must_use = "the span ends when it is dropped"]
pub struct Span {
    // Fields are dropped in this order: ranges nest like scopes.
    #[cfg(feature = "nvtx")]
    _range: nvtx::domain::LocalRange<'static>,
    _entered: Option<EnteredSpan>,
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").finish_non_exhaustive()
    }
}

/// Opens a span under a layer's name. Without anybody who listens it costs a comparison (with `nvtx`, also a call
/// of an empty function).
pub fn span(name: &'static str) -> Span {
    Span {
        _entered: entered(name),
        #[cfg(feature = "nvtx")]
        _range: range(name),
    }
}

#[cfg(feature = "nvtx")]
fn range(name: &'static str) -> nvtx::domain::LocalRange<'static> {
    static DOMAIN: OnceLock<nvtx::Domain> = OnceLock::new();
    DOMAIN
        .get_or_init(|| nvtx::Domain::new(c"track"))
        // A name with a zero in it has no other way to C.
        .local_range(std::ffi::CString::new(name).unwrap_or_default())
}

fn entered(name: &'static str) -> Option<EnteredSpan> {
    if LevelFilter::current() < LevelFilter::TRACE {
        return None;
    }
    let site = site(name);
    let metadata = site.metadata.get()?;
    let wanted = !site.never.load(Ordering::Relaxed)
        && dispatcher::get_default(|subscriber| subscriber.enabled(metadata));
    wanted.then(|| tracing::Span::new(metadata, &metadata.fields().value_set(&[])).entered())
}

/// What `tracing` wants to know of a place that makes spans. Its macros make one a name of their own, as a static;
/// layers' names are known when they run, so that one is made for each name when it is first seen, and stays.
struct Site {
    /// Set before the site is seen by anybody.
    metadata: OnceLock<Metadata<'static>>,
    /// Whether every subscriber has said that it does not want these spans.
    never: AtomicBool,
}

impl Callsite for Site {
    fn set_interest(&self, interest: Interest) {
        self.never.store(interest.is_never(), Ordering::Relaxed);
    }

    fn metadata(&self) -> &Metadata<'_> {
        match self.metadata.get() {
            Some(metadata) => metadata,
            None => unreachable!("a site is registered with its metadata"),
        }
    }
}

fn site(name: &'static str) -> &'static Site {
    static SITES: Mutex<Vec<&Site>> = Mutex::new(Vec::new());
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = sites
        .iter()
        .find(|site| site.metadata.get().is_some_and(|m| m.name() == name));
    if let Some(site) = known {
        return site;
    }
    // There are as many as a model has names of layers.
    let site: &'static Site = Box::leak(Box::new(Site {
        metadata: OnceLock::new(),
        never: AtomicBool::new(false),
    }));
    site.metadata.get_or_init(|| {
        let fields = FieldSet::new(&[], identify_callsite!(site));
        Metadata::new(
            name,
            TARGET,
            Level::TRACE,
            None,
            None,
            None,
            fields,
            Kind::SPAN,
        )
    });
    callsite::register(site);
    sites.push(site);
    site
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Subscriber};

    use super::*;
    use crate::{Cost, Profiler};

    /// Notes the names of spans as they are entered and left.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<(Vec<&'static str>, Vec<String>)>>);

    impl Subscriber for Notes {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == TARGET
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let names = &mut self.0.lock().unwrap().0;
            names.push(span.metadata().name());
            Id::from_u64(names.len() as u64)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, id: &Id) {
            self.note("in", id);
        }
        fn exit(&self, id: &Id) {
            self.note("out", id);
        }
    }

    impl Notes {
        fn note(&self, what: &str, id: &Id) {
            let (names, notes) = &mut *self.0.lock().unwrap();
            notes.push(format!("{what} {}", names[id.into_u64() as usize - 1]));
        }
    }

    #[test]
    fn layers_are_spans_of_their_own_names_with_and_without_a_profiler() {
        let notes = Notes::default();
        tracing::subscriber::with_default(notes.clone(), || {
            drop(Profiler::off().layer("one", Cost::default()));
            let profiler = Profiler::on();
            let _outer = profiler.layer("two", Cost::default());
            drop(span("one"));
        });
        let found = notes.0.lock().unwrap().1.clone();
        assert_eq!(
            found,
            [
                "in one", "out one", "in two", "in one", "out one", "out two"
            ]
        );
    }

    #[test]
    fn a_name_has_one_site() {
        assert!(std::ptr::eq(site("same"), site("same")));
        assert!(!std::ptr::eq(site("same"), site("other")));
    }
}
