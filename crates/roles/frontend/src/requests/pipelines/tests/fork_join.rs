//! A stage that takes what two branches of a fork say.

use super::*;

/// A fork that joins: each box whose score is above five goes to `left`, what is seen as a whole to `right`, and `both`
/// takes what they say.
fn fork_join_view() -> View {
    let mut view = pipeline_view(false);
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|&(one, other)| (one.to_owned(), other.to_owned())).collect()
    };
    let PipelineView { declaration: declared, split, .. } = view.pipelines.get_mut("p@3").unwrap();
    // What each takes, and what its only output is called.
    let stages = [
        ("left", vec![("box", "found")], "of_left"),
        ("right", vec![("scores", "scores")], "of_right"),
        ("both", vec![("one", "of_left"), ("other", "of_right")], "label"),
    ];
    declared.stages.truncate(1);
    declared.stages.extend(stages.iter().map(|(name, inputs, output)| DeclaredStage {
        name: (*name).into(),
        model: (*name).into(),
        inputs: map(inputs),
        outputs: map(&[("y", output)]),
    }));
    declared.edges[0].to = "left".into();
    let split = split.as_mut().unwrap();
    split.budgets_ns = vec![15_000_000_000; 4];
    split.gammas = vec![Finite::ONE; 4];
    let recognise = view.models.remove(&ModelId::new(5)).unwrap();
    let inputs =
        [vec![tensor("box", &[2])], vec![tensor("scores", &[3])], vec![tensor("one", &[1]), tensor("other", &[1])]];
    for ((id, (name, ..)), inputs) in (5..).zip(stages).zip(inputs) {
        let mut model = recognise.clone();
        (model.spec.name, model.spec.signature.inputs) = (name.into(), inputs);
        view.models.insert(ModelId::new(id), model);
    }
    view
}

#[tokio::test]
async fn a_join_takes_the_rows_of_each_branch_when_all_are_there() {
    let frontend = frontend(vec![fork_join_view()], FederationView::default());
    let table = Arc::clone(&frontend.slots[0].requests.table);
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    assert!(table.end(2, answer(FOUND)));
    open(&table, 3).await;
    let by_input: BTreeMap<_, _> = [3, 4, 5].map(|sequence| (table.payload(sequence).unwrap(), sequence)).into();
    let [first, third, whole] = [&b"01"[..], b"45", b"\x09\x01\x07"].map(|input| by_input[input]);
    // The last box first, and the whole between the boxes.
    assert!(table.end(third, answer(b"5")) && table.end(whole, answer(b"w")));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!((table.stages(), table.payload(6)), (1, None), "a branch is open");
    assert!(table.end(first, answer(b"1")));
    open(&table, 2).await;
    let of_both: BTreeMap<_, _> = [6, 7].map(|sequence| (table.payload(sequence).unwrap(), sequence)).into();
    assert!(table.end(of_both[&b"5w"[..]], answer(b"F")) && table.end(of_both[&b"1w"[..]], answer(b"O")));
    let answered = asking.await.unwrap().unwrap();
    assert_eq!(&answered.payload[..], b"\x09\x01\x07OF", "in the order of the boxes");
    let outputs = answered.pipeline.unwrap().outputs;
    assert_eq!((outputs[1].count, outputs[1].places.as_deref()), (2, Some("0.0,0.2")));

    // Where one branch is not asked nothing is joined.
    let asking = asks(&frontend, 1);
    open(&table, 1).await;
    assert!(table.end(9, answer(b"012345\x00\x00\x00")));
    while table.payload(10).is_none() {
        tokio::task::yield_now().await;
    }
    assert!(table.end(10, answer(b"w")));
    let answered = asking.await.unwrap().unwrap();
    assert_eq!((&answered.payload[..], answered.pipeline.unwrap().outputs[1].count), (&b"\0\0\0"[..], 0));
    assert!(table.is_empty());
}
