//! Operators that may give another answer each time they are asked. Two of them are never equal, and a cut does not
//! leave one on both sides.

use crate::onnx::NodeProto;

/// From here on Dropout is the identity unless its third input says otherwise; from [`DROPOUT_QUIET`] to here, always.
const DROPOUT_BY_INPUT: i64 = 12;
const DROPOUT_QUIET: i64 = 7;

/// `version` is that of the operator's domain. Names decide, whatever the domain: a vendor's RandomNormal is random,
/// too. Even with a seed a node draws again each time it runs.
pub(crate) fn is_random_operator(node: &NodeProto, version: Option<i64>) -> bool {
    match node.op_type() {
        "Dropout" => match version {
            Some(DROPOUT_BY_INPUT..) => node.input.get(2).is_some_and(|mode| !mode.is_empty()),
            Some(DROPOUT_QUIET..) => false,
            // Without a version it may be one of those.
            Some(_) | None => {
                !node.attribute.iter().any(|attribute| attribute.name() == "is_test" && attribute.i() != 0)
            }
        },
        "Multinomial" | "Bernoulli" | "Sampling" => true,
        operator => operator.starts_with("Random") || operator.ends_with("Dropout"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(operator: &str, inputs: &[&str]) -> NodeProto {
        let input = inputs.iter().map(|&input| input.to_owned()).collect();
        NodeProto { op_type: Some(operator.to_owned()), input, ..Default::default() }
    }

    #[test]
    fn dropout_is_random_only_in_training() {
        assert!(!is_random_operator(&node("Dropout", &["x"]), Some(13)));
        assert!(!is_random_operator(&node("Dropout", &["x", "ratio", ""]), Some(13)));
        assert!(is_random_operator(&node("Dropout", &["x", "ratio", "training"]), Some(13)));
        assert!(!is_random_operator(&node("Dropout", &["x"]), Some(10)));
        assert!(is_random_operator(&node("Dropout", &["x"]), Some(6)));
        assert!(is_random_operator(&node("Dropout", &["x"]), None));
    }

    #[test]
    fn draws_are_random_and_arithmetic_is_not() {
        assert!(is_random_operator(&node("RandomNormalLike", &["x"]), Some(17)));
        assert!(is_random_operator(&node("BiasDropout", &["x"]), Some(1)));
        assert!(!is_random_operator(&node("MatMul", &["x", "w"]), Some(17)));
    }
}
