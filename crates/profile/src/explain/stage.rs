//! Layers grouped as a reader thinks of them.

use serde::Serialize;

/// A part of the model, made of layers that one change would touch together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Frames made ready.
    Input,
    /// Convolutions of the image encoder.
    EncoderConvolutions,
    /// Norms of the image encoder, with what is fused into them.
    EncoderNorms,
    /// The first estimate of the tracks.
    InitialTracks,
    /// The local 4D correlation.
    Correlation,
    /// The convolutions over the correlation.
    CorrelationEncoder,
    /// The transformer over a track's frames, with its input and output.
    Transformer,
    /// Layers of names that are not known here.
    Other,
}

impl Stage {
    /// Where a layer of this name belongs.
    pub fn of(layer: &str) -> Self {
        let (first, rest) = layer.split_once('.').unwrap_or((layer, ""));
        let last = rest.rsplit('.').next().unwrap_or(rest);
        match (first, last) {
            ("input", _) => Self::Input,
            ("encoder", "norm" | "normalize" | "join") => Self::EncoderNorms,
            ("encoder", "stem" | "shortcut" | "conv3x3") => Self::EncoderConvolutions,
            ("initial", _) => Self::InitialTracks,
            ("refine", "correlation" | "support") => Self::Correlation,
            ("refine", "encode_correlation") => Self::CorrelationEncoder,
            ("refine", _) => Self::Transformer,
            _ => Self::Other,
        }
    }

    /// Its name in a sentence.
    pub fn title(self) -> &'static str {
        match self {
            Self::Input => "the preparation of the frames",
            Self::EncoderConvolutions => "the encoder's convolutions",
            Self::EncoderNorms => "the encoder's norms",
            Self::InitialTracks => "the first estimate of the tracks",
            Self::Correlation => "the local 4D correlation",
            Self::CorrelationEncoder => "the correlation encoder",
            Self::Transformer => "the transformer",
            Self::Other => "the layers of unknown names",
        }
    }

    /// Its name in a table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::EncoderConvolutions => "encoder convolutions",
            Self::EncoderNorms => "encoder norms",
            Self::InitialTracks => "initial tracks",
            Self::Correlation => "correlation",
            Self::CorrelationEncoder => "correlation encoder",
            Self::Transformer => "transformer",
            Self::Other => "other",
        }
    }

    /// Whether frameworks compute it by a convolution, and not by a matrix product.
    pub fn is_convolution(self) -> bool {
        matches!(self, Self::EncoderConvolutions | Self::CorrelationEncoder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_the_model_have_a_stage() {
        for (layer, stage) in [
            ("input.resize", Stage::Input),
            ("encoder.stem", Stage::EncoderConvolutions),
            ("encoder.group2.shortcut", Stage::EncoderConvolutions),
            ("encoder.group0.conv3x3", Stage::EncoderConvolutions),
            ("encoder.group3.norm", Stage::EncoderNorms),
            ("encoder.normalize", Stage::EncoderNorms),
            ("encoder.join", Stage::EncoderNorms),
            ("initial.cost_volume", Stage::InitialTracks),
            ("refine.correlation", Stage::Correlation),
            ("refine.encode_correlation", Stage::CorrelationEncoder),
            ("refine.attention", Stage::Transformer),
            ("refine.norm", Stage::Transformer),
            ("decoder.stem", Stage::Other),
            ("", Stage::Other),
        ] {
            assert_eq!(Stage::of(layer), stage, "{layer}");
        }
    }
}
