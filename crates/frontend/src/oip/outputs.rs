//! Which outputs a request wants, and where they lie in an answer.

use bytes::Bytes;
use symphony_types::{FailReason, TensorSpec};

use super::inputs::{invalid, list, shorten};
use super::{InferError, ModelInfo};

/// The outputs that a request wants, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    wanted: Vec<Wanted>,
}

/// One output that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    index: usize,
    pub(crate) encoding: Encoding,
}

/// How the elements of a tensor travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As the lists of the message: JSON or protobuf.
    Typed,
    /// Little-endian bytes beside it.
    Raw,
}

impl Selection {
    /// Every output, in the order of the signature.
    pub(crate) fn all(model: &ModelInfo, encoding: Encoding) -> Self {
        Self { wanted: (0..model.signature.outputs.len()).map(|index| Wanted { index, encoding }).collect() }
    }

    /// These outputs. There must be such outputs, each asked for once.
    pub(crate) fn of<'a>(
        model: &ModelInfo,
        names: impl ExactSizeIterator<Item = (&'a str, Encoding)>,
    ) -> Result<Self, InferError> {
        let specs = &model.signature.outputs;
        let expected = || format!("model `{}` has {}", model.name, list(specs));
        if names.len() > specs.len() {
            return Err(invalid(format!("got {} requested outputs; {}", names.len(), expected())));
        }
        let mut wanted: Vec<Wanted> = Vec::with_capacity(names.len());
        for (name, encoding) in names {
            let index = specs
                .iter()
                .position(|spec| spec.name == name)
                .ok_or_else(|| invalid(format!("there is no output `{}`; {}", shorten(name), expected())))?;
            if wanted.iter().any(|earlier| earlier.index == index) {
                return Err(invalid(format!("output `{name}` is requested twice")));
            }
            wanted.push(Wanted { index, encoding });
        }
        Ok(Self { wanted })
    }

    /// The outputs wanted, with what the signature says of each.
    pub(crate) fn iter<'m>(&self, model: &'m ModelInfo) -> impl Iterator<Item = (&'m TensorSpec, Encoding)> {
        self.wanted.iter().map(|wanted| (&model.signature.outputs[wanted.index], wanted.encoding))
    }

    /// Cuts the wanted outputs out of the answer, without a copy.
    ///
    /// An answer of another size than the signature says is the executor's error, not the client's.
    pub(crate) fn cut<'m>(
        &self,
        model: &'m ModelInfo,
        items: u32,
        payload: &Bytes,
    ) -> Result<Vec<Output<'m>>, InferError> {
        let specs = &model.signature.outputs;
        let expected = items as usize * model.signature.output_item_bytes();
        if payload.len() != expected {
            tracing::error!(model = model.name, bytes = payload.len(), expected, "an answer has the wrong size");
            return Err(InferError::Failed(FailReason::ExecutionFailed));
        }
        let bytes_of = |spec: &TensorSpec| items as usize * spec.item_bytes();
        let cut = |wanted: &Wanted| {
            let start = specs[..wanted.index].iter().map(bytes_of).sum::<usize>();
            let spec = &specs[wanted.index];
            let data = payload.slice(start..start + bytes_of(spec));
            Output { spec, encoding: wanted.encoding, data }
        };
        Ok(self.wanted.iter().map(cut).collect())
    }
}

/// One output of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Output<'m> {
    pub(crate) spec: &'m TensorSpec,
    pub(crate) encoding: Encoding,
    /// Little-endian.
    pub(crate) data: Bytes,
}

impl Output<'_> {
    /// The shape of this output for so many items.
    pub(crate) fn shape(&self, items: u32) -> Vec<i64> {
        std::iter::once(i64::from(items)).chain(self.spec.item_shape.iter().map(|&dim| i64::from(dim))).collect()
    }
}
