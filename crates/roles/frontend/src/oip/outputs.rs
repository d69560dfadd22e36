//! Which outputs a request wants, and where they lie in an answer.

use bytes::Bytes;
use symphony_types::{DataType, FailReason, TensorSpec};

use super::classes::{classes_of, classify};
use super::refusal_text::{invalid, list, shorten};
use super::shared_regions::{SharedOutput, SharedTensor};
use super::{InferAnswer, InferError, ModelInfo};

/// The outputs that a request wants, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    wanted: Vec<Wanted>,
}

/// One output that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    index: usize,
    form: Form,
}

/// How an output is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    /// The number of likeliest classes to return instead of its elements.
    pub(crate) classes: Option<u32>,
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
        let form = Form { encoding, classes: None };
        Self { wanted: (0..model.signature.outputs.len()).map(|index| Wanted { index, form }).collect() }
    }

    /// These outputs. There must be such outputs, each asked for once.
    pub(crate) fn of<'a>(
        model: &ModelInfo,
        names: impl ExactSizeIterator<Item = (&'a str, Form)>,
    ) -> Result<Self, InferError> {
        let specs = &model.signature.outputs;
        let expected = || format!("model `{}` has {}", model.name, list(specs));
        if names.len() > specs.len() {
            return Err(invalid(format!("got {} requested outputs; {}", names.len(), expected())));
        }
        let mut wanted: Vec<Wanted> = Vec::with_capacity(names.len());
        for (name, form) in names {
            let index = specs
                .iter()
                .position(|spec| spec.name == name)
                .ok_or_else(|| invalid(format!("there is no output `{}`; {}", shorten(name), expected())))?;
            if wanted.iter().any(|earlier| earlier.index == index) {
                return Err(invalid(format!("output `{name}` is requested twice")));
            }
            wanted.push(Wanted { index, form });
        }
        Ok(Self { wanted })
    }

    /// The outputs wanted, each with its specification from the signature.
    pub(crate) fn iter<'m>(&self, model: &'m ModelInfo) -> impl Iterator<Item = (&'m TensorSpec, Form)> {
        self.wanted.iter().map(|wanted| (&model.signature.outputs[wanted.index], wanted.form))
    }

    /// Whether the outputs that are wanted in shared memory fit there, for this many items.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check_room(&self, model: &ModelInfo, shared: &[SharedOutput], items: u32) -> Result<(), InferError> {
        for SharedOutput { at, tensor } in shared {
            let Some((spec, _)) = self.iter(model).nth(*at) else { continue };
            // An output with any number of rows is checked once the rows are there.
            let any_rows = self.wanted.get(*at).is_some_and(|wanted| model.has_any_rows(wanted.index));
            let (needed, has) = (if any_rows { 0 } else { items as usize * spec.item_bytes() }, tensor.bytes);
            if needed as u64 > has {
                return Err(invalid(format!(
                    "output `{}` has {needed} bytes, and shared_memory_byte_size is {has}; expected that many at least",
                    spec.name
                )));
            }
        }
        Ok(())
    }

    /// Cuts the wanted outputs out of the answer, without a copy but for classes.
    ///
    /// An answer of another size than the signature says is the executor's error, not the client's, whose id of the
    /// request is for the log.
    pub(crate) fn cut<'m>(
        &self,
        client_id: &str,
        model: &'m ModelInfo,
        items: u32,
        answer: &InferAnswer,
    ) -> Result<Vec<Output<'m>>, InferError> {
        let (specs, payload) = (&model.signature.outputs, &answer.payload);
        let of_pipeline = answer.pipeline.as_ref().map_or(&[][..], |pipeline| pipeline.outputs.as_slice());
        let rows_of = |index: usize| of_pipeline.get(index).map_or(items, |output| output.count);
        let bytes_of = |index: usize| rows_of(index) as usize * specs[index].item_bytes();
        let expected = (0..specs.len()).map(bytes_of).sum::<usize>();
        if payload.len() != expected {
            let (bytes, client_id) = (payload.len(), super::shorten(client_id));
            tracing::error!(client_id, model = model.name, bytes, expected, "an answer has the wrong size");
            return Err(InferError::Failed(FailReason::ExecutionFailed));
        }
        let cut = |wanted: &Wanted| {
            let start = (0..wanted.index).map(bytes_of).sum::<usize>();
            let spec = &specs[wanted.index];
            let data = payload.slice(start..start + bytes_of(wanted.index));
            let of_items = std::iter::once(i64::from(rows_of(wanted.index)));
            let (shape, content) = match wanted.form.classes {
                None => {
                    let shape = of_items.chain(spec.item_shape.iter().map(|&dim| i64::from(dim))).collect();
                    (shape, Content::Elements(spec.data_type, data))
                }
                Some(requested) => {
                    let labels = model.transforms.labels.get(&spec.name).map(Vec::as_slice);
                    let shape = of_items.chain([i64::from(classes_of(spec, requested))]).collect();
                    (shape, Content::Classes(classify(&data, spec, requested, labels)))
                }
            };
            let rows = of_pipeline.get(wanted.index).and_then(|output| output.places.clone());
            Output { name: &spec.name, shape, encoding: wanted.form.encoding, content, rows }
        };
        Ok(self.wanted.iter().map(cut).collect())
    }
}

/// One output of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Output<'m> {
    pub(crate) name: &'m str,
    pub(crate) shape: Vec<i64>,
    pub(crate) encoding: Encoding,
    pub(crate) content: Content,
    /// Of which item and which rows of the stages before it each row is, where an item has any number of them.
    pub(crate) rows: Option<String>,
}

/// What an output holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Its elements, little-endian.
    Elements(DataType, Bytes),
    /// Classes in words.
    Classes(Vec<String>),
    /// Its elements are in shared memory already.
    Placed(DataType, SharedTensor),
}

impl Content {
    /// The protocol's name of its type.
    pub(crate) const fn data_type(&self) -> &'static str {
        match self {
            Self::Elements(data_type, _) | Self::Placed(data_type, _) => data_type.name(),
            Self::Classes(_) => "BYTES",
        }
    }

    /// The bytes that travel where it is sent raw.
    pub(crate) fn into_raw(self) -> Bytes {
        match self {
            Self::Elements(_, data) => data,
            Self::Classes(classes) => super::byte_strings::encode(&classes),
            Self::Placed(..) => Bytes::new(),
        }
    }
}
