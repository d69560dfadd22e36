//! A model in numbers.

use bytes::Bytes;

use crate::cuts::{Cut, evenly};
use crate::error::Error;
use crate::hash::ValueHash;
use crate::limits::CUTS_MAX;
use crate::model::Model;
use crate::onnx::TypeProto;

/// A model in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Bytes of the file.
    pub bytes: u64,
    /// Nodes of the main graph.
    pub nodes: usize,
    /// The nodes on a path from inputs to outputs.
    pub nodes_on_paths: usize,
    /// Values of the main graph: inputs, initializers and what nodes make.
    pub values: usize,
    /// What clients give.
    pub inputs: Vec<String>,
    /// What the model answers with.
    pub outputs: Vec<String>,
    /// Operator sets: domain and version.
    pub operator_sets: Vec<(String, i64)>,
    /// All cut points.
    pub cuts_found: usize,
    /// The cuts that are kept, at most [`CUTS_MAX`], evenly by position.
    pub cuts: Vec<CutReport>,
}

/// A cut point in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct CutReport {
    /// The value's name.
    pub value: String,
    /// What it computes.
    pub hash: ValueHash,
    /// Its type, if the model states it.
    pub value_type: Option<TypeProto>,
    /// Nodes on paths up to here.
    pub position: usize,
    /// Their share of all nodes on paths.
    pub depth: f64,
    /// Bytes of weights that the trunk has.
    pub trunk_bytes: u64,
    /// Bytes of weights that the suffix has; what both use counts in both.
    pub suffix_bytes: u64,
}

/// Reads a model and reports what is in it.
///
/// # Errors
/// As [`Model::read`].
pub fn inspect(bytes: Bytes) -> Result<Report, Error> {
    Ok(Model::read(bytes)?.report())
}

impl Model {
    /// The report on the model.
    #[must_use]
    pub fn report(&self) -> Report {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let imports = self.proto.opset_import.iter();
        let nodes_on_paths = self.flow.nodes();
        let cuts = evenly(self.cuts(), CUTS_MAX, |cut| cut.position as f64);
        Report {
            bytes: self.bytes.len() as u64,
            nodes: self.wiring.nodes.len(),
            nodes_on_paths,
            values: self.wiring.values.len(),
            inputs: owned(self.inputs()),
            outputs: owned(self.outputs()),
            operator_sets: imports.map(|import| (import.domain().to_owned(), import.version())).collect(),
            cuts_found: self.cuts().len(),
            cuts: cuts.into_iter().map(|cut| self.cut_report(cut, nodes_on_paths)).collect(),
        }
    }

    fn cut_report(&self, cut: &Cut, nodes_on_paths: usize) -> CutReport {
        CutReport {
            value: cut.value.clone(),
            hash: cut.hash,
            value_type: cut.value_type.clone(),
            position: cut.position,
            depth: cut.position as f64 / nodes_on_paths.max(1) as f64,
            trunk_bytes: self.initializer_bytes(None, Some(cut)),
            suffix_bytes: self.initializer_bytes(Some(cut), None),
        }
    }
}
